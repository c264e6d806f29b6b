//! Damage of what one node had synced: the others have it, too.
//!
//! A copy that finds such damage takes part in nothing any more, for it may have promised what is lost. So one node is hit
//! at a time, and the others must do without it. It comes back under a new id, and then
//! another one may be hit. But damage in a chunk shows when somebody reads it, which may be much later: as long as it is on the
//! disk no other node is hit. The last batch of a WAL is left alone: no later one says that it was durable (`docs/reliability.md`).

use super::hits::Place;
use super::member::Member;
use super::world::World;
use crate::witnesses::Witnesses;
use env::Disk;
use std::path::{Path, PathBuf};

const BLOCK_BYTES: u64 = 4096;

/// Places that are looked at for a byte that is not zero.
const LOOKS: u64 = 64;

impl World {
    /// Whether a node may be hit: no other one was, or that one has all again.
    pub(super) fn may_damage_another(&mut self, node: usize) -> bool {
        let Some(last) = self.damages.last().filter(|last| *last != node) else { return true };
        !self.damages.is_left(last, &self.members[last].disk) && self.has_grown()
    }

    /// A node is killed, and some of its bytes are others when it starts again.
    pub(super) fn damage(&mut self, node: usize) {
        let victim = match self.damages.last() {
            Some(last) if !self.may_damage_another(node) => last,
            _ => node,
        };
        if !self.members[victim].is_up() {
            return;
        }
        self.kill(victim);
        self.damages.note(victim, self.now_us);
        for _ in 0..self.fault_dice.between(1, 3) {
            self.hit(victim);
        }
    }

    fn hit(&mut self, node: usize) {
        let part = *self.fault_dice.pick(&["/wal/", "/chunks/", "/checkpoints/"]);
        let files = files(&self.members[node], part);
        if files.is_empty() {
            return;
        }
        let path = self.fault_dice.pick(&files).clone();
        let Some(byte) = self.used_byte(node, &path) else { return };
        let disk = self.members[node].disk.clone();
        let block = (path.clone(), byte / BLOCK_BYTES);
        let is_wal = path.starts_with("/data/wal");
        if is_wal && Witnesses::read(&disk, &path, false).is_unclaimed(&block) {
            return;
        }
        if self.fault_dice.percent(50) {
            disk.flip_bit(&path, byte * 8 + self.fault_dice.below(8));
        } else {
            disk.make_unreadable(&path, block.1);
        }
        self.damages.note_place(node, Place::now(&disk, (path.clone(), byte)));
        self.hits += 1;
        self.note(format_args!("byte {byte} of {} of node {node} is damaged", path.display()));
    }

    fn used_byte(&mut self, node: usize, path: &Path) -> Option<u64> {
        let file = self.members[node].disk.open(path).ok()?;
        let length = file.len().ok().filter(|length| *length > 0)?;
        (0..LOOKS).find_map(|_| {
            let at = self.fault_dice.below(length);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).ok()?;
            (byte[0] != 0).then_some(at)
        })
    }
}

fn files(member: &Member, part: &str) -> Vec<PathBuf> {
    let is_part = |path: &PathBuf| path.to_string_lossy().contains(part);
    member.disk.paths().into_iter().filter(is_part).collect()
}
