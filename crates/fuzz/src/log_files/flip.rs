//! One flipped bit, anywhere: what it may cost, to the byte.
//!
//! - `FORMAT` and `FORMAT.copy`: the directory opens and says which copy is damaged.
//! - A read gives the right bytes or says that they are damaged.
//! - In the WAL it costs at most one append, reported with its stream; nothing moves.
//! - In a checkpoint it costs at most one stream, which is reported; all others are whole.
//! - In a chunk it moves nothing.

use super::directory::{Base, shards};
use super::owner::{Ends, Owner};
use crate::input::Input;
use log::{Damage, DamageKind, ReadError};
use model::{ByteOffset, StreamKey};
use std::path::{Path, PathBuf};

/// Input: base and shards (1), file (1), position of the byte (4), bit (1), whether work is done
/// before reading (1).
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let base = Base::of(flags);
    let paths: Vec<&PathBuf> = base.files.keys().collect();
    let path = paths[usize::from(input.byte()) % paths.len()];
    let length = base.files[path].len();
    let position = input.int() as usize % length.max(1);
    let bit = 1 << (input.byte() & 7);
    let works = input.byte() & 1 != 0;
    let disk = base.disk(|other, bytes| {
        let mut bytes = bytes.to_vec();
        if other == path.as_path() && !bytes.is_empty() {
            bytes[position] ^= bit;
        }
        bytes
    });
    let place = format!("{} at {position}, mask {bit:#x}", path.display());
    match Owner::open(&disk, shards(flags)) {
        Err(error) => panic!("{place}: {error}"),
        Ok(mut owner) => {
            let damages = &owner.machine.damages;
            let is_told = damages.iter().any(|damage| damage.kind == DamageKind::FormatCopy);
            assert_eq!(is_told, is_format(path) && length > 0, "{place}: {damages:?}");
            check(base, path, &mut owner, &place);
            if works {
                owner.work();
                check(base, path, &mut owner, &format!("{place}, after work"));
            }
        }
    }
}

fn is_format(path: &Path) -> bool {
    path.ends_with("FORMAT") || path.ends_with("FORMAT.copy")
}

fn check(base: &Base, path: &Path, owner: &mut Owner, place: &str) {
    let costly: Vec<_> = owner.machine.damages.clone();
    let mut costly = costly.iter().filter(|damage| !is_free(damage.kind));
    let damage = costly.next();
    let is_checkpoint = path.extension().is_some_and(|extension| extension == "ckpt");
    let mut lost_appends = 0;
    for (key, appends) in &base.appends {
        let lost = unreadable(owner, *key, appends, place);
        if is_checkpoint && lost > 0 {
            let named = damage.is_some_and(|damage| damage.stream == Some(key.stream));
            assert!(named, "{place}: {key} is lost and was not reported: {damage:?}");
        }
        lost_appends += lost;
    }
    let is_wal = path.extension().is_some_and(|extension| extension == "wal");
    if is_wal {
        assert!(lost_appends <= 1, "{place}: {lost_appends} appends are lost");
        assert!(lost_appends == 0 || damage.is_some(), "{place}: nothing was reported");
    }
    if lost_appends == 0 && !is_checkpoint {
        let is_known = damage.is_none_or(|damage| damage.stream.is_some());
        assert!(is_known, "{place}: {damage:?}");
    }
}

/// Whether a damage costs nothing.
fn is_free(kind: DamageKind) -> bool {
    matches!(kind, DamageKind::HeaderRepaired | DamageKind::FormatCopy)
}

/// How many appends of a stream cannot be read. Every byte of the others is where it was.
fn unreadable(owner: &mut Owner, key: StreamKey, appends: &[Vec<u8>], place: &str) -> usize {
    let is_lost = |damage: &Damage| {
        damage.kind == DamageKind::CheckpointPayload && damage.stream == Some(key.stream)
    };
    if owner.machine.damages.iter().any(is_lost) {
        return appends.len();
    }
    let ends = owner.machine.streams.get(&key).copied().unwrap_or_default();
    let total: usize = appends.iter().map(Vec::len).sum();
    assert_eq!(
        ends,
        Ends { head: 0, tail: total as u64 },
        "{place}: {key} has other ends: {:?}",
        owner.machine.damages
    );
    let shard = owner.shard(key.group);
    let (mut lost, mut start) = (0, 0);
    for append in appends {
        let mut at = 0;
        let mut is_lost = false;
        while at < append.len() {
            let from = ByteOffset::new((start + at) as u64);
            match shard.read(key, from, append.len() - at) {
                Ok(slice) if slice.is_empty() => (is_lost, at) = (true, append.len()),
                Ok(slice) => {
                    let bytes = slice.to_bytes().expect("a file in memory");
                    let wanted = &append[at..at + bytes.len()];
                    assert!(bytes == wanted, "{place}: {key} at {from} has other bytes");
                    at += bytes.len();
                }
                Err(ReadError::Io(error)) => panic!("{place}: {key} at {from}: {error}"),
                Err(_) => (is_lost, at) = (true, append.len()),
            }
        }
        lost += usize::from(is_lost);
        start += append.len();
    }
    lost
}

/// Bits of every file.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for file in 0..12 {
        for position in [0u32, 70, 200, 4100, 5000] {
            let position = position.to_le_bytes();
            seeds.push(
                [&[file % 3 + 64 * (file % 4), file], &position[..], &[3, file & 1]].concat(),
            );
        }
    }
    for (file, position) in (0..12).flat_map(|file| [70u32, 130, 300].map(|at| (file, at))) {
        seeds.push([&[3, file], &position.to_le_bytes()[..], &[3, file & 1]].concat());
    }
    seeds
}
