//! Damage to what is stored.

use crate::fault::{BLOCK_BYTES, End, FaultKind};
use crate::mutant::Mutant;
use crate::witnesses::Witnesses;
use crate::world::{Act, World};
use env::Disk;
use std::path::{Path, PathBuf};

/// What a disk loses at once.
const SECTOR_BYTES: u64 = 512;

impl World {
    /// Lets clients pause first, until all that is under way is durable and marked so. Without a mark, damage to the very
    /// last batch of a log cannot be distinguished from a torn batch.
    pub(crate) fn damage_disk(&mut self, kind: FaultKind) {
        if self.process.as_ref().is_none_or(|process| process.is_poisoned()) {
            return;
        }
        self.quiet_until_us = self.clock.now_us + 16_000_000;
        self.slow_until_us = 0;
        self.after(15_000_000, Act::Hit(kind));
    }

    pub(crate) fn hit(&mut self, kind: FaultKind) {
        let is_quiet = self.process.as_ref().is_some_and(|process| {
            let idle = process.open_shards().all(|shard| shard.core.stats().in_flight_count == 0);
            idle && process.jobs.is_empty() && !process.is_poisoned() && !process.is_stopping
        });
        if !is_quiet || self.is_ending {
            return;
        }
        self.process = None;
        self.disk.kill_process();
        self.lose_connections(|_| true);
        self.hit_disk(kind, true);
        self.after(1_000, Act::Start);
    }

    /// Ends the process in the middle of work on files, such as a merge, and damages the disk at once.
    pub(crate) fn end_damaged(&mut self) {
        self.cuts_work = false;
        let power = self.has_fault(FaultKind::PowerLoss) && self.later_dice.percent(50);
        self.end_process(if power { End::PowerLoss } else { End::Kill });
        let kinds = [
            FaultKind::FlippedBit,
            FaultKind::Misdirected,
            FaultKind::LostSector,
            FaultKind::UnreadableBlock,
        ];
        let kind = *self.later_dice.pick(&kinds);
        self.hit_disk(kind, false);
    }

    /// Changes stored bytes while no process runs. All of them are durable and marked so if it `was_quiet`.
    fn hit_disk(&mut self, kind: FaultKind, was_quiet: bool) {
        if kind == FaultKind::LostSegment {
            return self.lose_segment();
        }
        let parts = ["/wal/", "/chunks/", "/checkpoints/", "FORMAT"];
        let part = match kind {
            FaultKind::Misdirected => *self.fault_dice.pick(&parts[1..3]),
            FaultKind::FlippedBit if self.fault_dice.percent(6) => parts[3],
            _ => *self.fault_dice.pick(&parts[..3]),
        };
        let files = self.files(part);
        if files.is_empty() {
            return;
        }
        let path = self.fault_dice.pick(&files).clone();
        match kind {
            FaultKind::LostLastBatch => self.lose_last_batch(),
            FaultKind::FlippedBit => self.flip(&path, was_quiet),
            FaultKind::LostSector => self.lose_sector(&path),
            FaultKind::UnreadableBlock => self.lose_readability(&path),
            _ => self.misdirect(&path),
        }
    }

    fn lose_sector(&mut self, path: &Path) {
        let Ok(file) = self.disk.open(path) else { return };
        let length = file.len().unwrap_or(0);
        let Some(byte) = self.used_byte(path, length) else { return };
        let position = byte / SECTOR_BYTES * SECTOR_BYTES;
        if !self.may_lose((path, position), true) {
            return;
        }
        let count = SECTOR_BYTES.min(length - position);
        let bytes: Vec<u8> = (0..count).map(|_| self.fault_dice.below(256) as u8).collect();
        self.note(format_args!("sector {} of {}", position / SECTOR_BYTES, path.display()));
        let _ = file.write_at(&bytes, position);
        let _ = file.sync_data();
        self.count_hit(path);
    }

    /// The witnesses of a WAL. A mutant that writes no lists must not be spared for that.
    fn witnesses(&self, segment: &Path) -> Witnesses {
        let lists_count = self.plan.mutant == Some(Mutant::LostLists);
        Witnesses::read(&self.disk, segment, lists_count)
    }

    /// Whether what a block holds may be lost without a loss that nothing can name. If so, one of a WAL counts as lost.
    fn may_lose(&mut self, (path, position): (&Path, u64), is_garbage: bool) -> bool {
        if !path.starts_with("/data/wal") {
            return true;
        }
        let block = (path.to_owned(), position / BLOCK_BYTES);
        let witnesses = self.witnesses(path);
        let looks_torn = is_garbage && witnesses.is_unclaimed(&block);
        if looks_torn || witnesses.is_last(&block, &self.lost_blocks) {
            return false;
        }
        self.lost_blocks.insert(block);
        true
    }

    /// Any block of the last batch of a WAL that is known to have been durable turns to garbage, or cannot be read.
    fn lose_last_batch(&mut self) {
        let files = self.files("/wal/");
        let Some(segment) = files.get(self.later_dice.below(files.len() as u64) as usize) else {
            return;
        };
        let witnesses = self.witnesses(segment);
        let Some(batch) = witnesses.last_claimed() else { return };
        let (path, block) = self.later_dice.pick(&batch.blocks()).clone();
        let is_garbage = self.later_dice.percent(50);
        if !self.may_lose((&path, block * BLOCK_BYTES), true) {
            return;
        }
        let what = if is_garbage { "is garbage" } else { "cannot be read" };
        self.note(format_args!("block {block} of {} {what}", path.display()));
        if is_garbage {
            let bytes: Vec<u8> =
                (0..BLOCK_BYTES).map(|_| self.later_dice.below(256) as u8).collect();
            let Ok(file) = self.disk.open(&path) else { return };
            let _ = file.write_at(&bytes, block * BLOCK_BYTES);
            let _ = file.sync_data();
        } else {
            self.disk.make_unreadable(&path, block);
        }
        self.count_hit(&path);
    }

    /// A segment of a WAL cannot be opened any more. It is one whose entries are missed, and nothing else is lost of this
    /// WAL.
    fn lose_segment(&mut self) {
        let mut files = self.files("/wal/");
        files.retain(|path| {
            let is_hit = self.lost_blocks.iter().any(|(lost, _)| lost.parent() == path.parent());
            !is_hit && self.witnesses(path).is_missed(path)
        });
        let Some(path) = files.get(self.later_dice.below(files.len() as u64) as usize) else {
            return;
        };
        let length = self.disk.open(path).and_then(|file| file.len()).unwrap_or(0);
        let blocks = (0..length.div_ceil(BLOCK_BYTES)).map(|block| (path.clone(), block));
        self.lost_blocks.extend(blocks);
        self.note(format_args!("{} cannot be opened", path.display()));
        self.disk.set_openable(path, false);
        self.count_hit(path);
        self.oracle.hit_groups.insert(None);
        self.closed_segments.push((path.clone(), self.starts));
    }

    /// A segment that could not be opened at an earlier start can be again, perhaps.
    pub(crate) fn perhaps_open_segments(&mut self) {
        let (starts, dice) = (self.starts, &mut self.later_dice);
        let mut is_open = |(path, closed_at): &(PathBuf, u64)| {
            let is_healed = *closed_at < starts && dice.percent(40);
            if is_healed && self.disk.paths().contains(path) {
                self.disk.set_openable(path, true);
            }
            is_healed
        };
        let open: Vec<_> = self.closed_segments.extract_if(.., |of| is_open(of)).collect();
        for (path, _) in open {
            self.note(format_args!("{} can be opened again", path.display()));
        }
    }

    /// A block of a file that is in use cannot be read any more.
    pub(crate) fn lose_running(&mut self, part: &str) {
        let files = self.files(part);
        if !files.is_empty() {
            let path = self.fault_dice.pick(&files).clone();
            self.lose_readability(&path);
        }
    }

    fn lose_readability(&mut self, path: &Path) {
        let Ok(file) = self.disk.open(path) else { return };
        let length = file.len().unwrap_or(0);
        let Some(byte) = self.used_byte(path, length) else { return };
        let block = byte / BLOCK_BYTES;
        if !self.may_lose((path, byte), false) {
            return;
        }
        self.note(format_args!("block {block} of {} cannot be read", path.display()));
        self.disk.make_unreadable(path, block);
        self.count_hit(path);
        if path.starts_with("/data/wal") {
            self.oracle.hit_groups.insert(None);
        }
    }

    /// One bit, wherever it is, is noticed and named when all was marked durable and no block of a WAL is lost.
    fn flip(&mut self, path: &Path, was_quiet: bool) {
        let length = self.disk.open(path).and_then(|file| file.len()).unwrap_or(0);
        // Most of a WAL is zeroes: a bit there hits nothing.
        let Some(byte) = self.used_byte(path, length) else { return };
        let bit = byte * 8 + self.fault_dice.below(8);
        let is_alone = was_quiet && self.lost_blocks.is_empty();
        if !self.may_lose((path, byte), true) {
            if !is_alone {
                return;
            }
            self.lost_blocks.insert((path.to_owned(), byte / BLOCK_BYTES));
        }
        self.note(format_args!("bit {bit} of {}", path.display()));
        self.disk.flip_bit(path, bit);
        if path.ends_with("FORMAT") || path.ends_with("FORMAT.copy") {
            self.flipped_formats.add(path.to_owned(), bit);
        } else {
            self.count_hit(path);
        }
    }

    /// A chunk or checkpoint names its group; for a WAL, recovery must find it out.
    fn count_hit(&mut self, path: &Path) {
        self.oracle.damage_possible = true;
        self.flips += 1;
        let dir = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        if !path.starts_with("/data/wal") {
            self.oracle.hit_groups.insert(dir.and_then(|name| name.parse().ok()));
        }
    }

    fn used_byte(&mut self, path: &Path, length: u64) -> Option<u64> {
        let file = self.disk.open(path).ok()?;
        (0..64).find_map(|_| {
            let at = self.fault_dice.below(length);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).ok()?;
            (byte[0] != 0).then_some(at)
        })
    }

    fn misdirect(&mut self, path: &Path) {
        let Ok(file) = self.disk.open(path) else { return };
        let blocks = file.len().unwrap_or(0) / 4096;
        if blocks < 3 {
            return;
        }
        let (from, to) = (self.fault_dice.below(blocks), self.fault_dice.below(blocks));
        let mut block = [0; 4096];
        self.note(format_args!("block {from} at {to} of {}", path.display()));
        if file.read_exact_at(&mut block, from * 4096).is_ok() {
            let _ = file.write_at(&block, to * 4096);
            let _ = file.sync_data();
            self.count_hit(path);
        }
    }
}
