//! Files of a snapshot that is on its way, and what a start does with them.
//!
//! # Why
//! The checkpoint of a snapshot is what commits it. Its chunks are durable before that under names that are no chunk's, and
//! get these behind it. A crash in between leaves names, which say to which snapshot they belong.

use crate::chunk::writer::{chunk_path, parse_chunk_name};
use crate::paths::{remove_if_there, remove_unneeded};
use crate::snapshot::sift::{parse_aside, remove_asides};
use env::Disk;
use std::io;
use std::path::{Path, PathBuf};

/// The received checkpoint of another directory.
const CHECKPOINT_NAME: &str = "checkpoint.received";

/// What is known of parts when a process begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// Snapshots that were installed in the group: parts of the last one are its chunks.
    pub(crate) installs: u16,
    /// A checkpoint cannot be read, which may be that of the others: they stay.
    pub(crate) may_be_needed: bool,
}

/// Where the received checkpoint of a group is.
pub(crate) fn received_checkpoint(dir: &Path) -> PathBuf {
    dir.join(CHECKPOINT_NAME)
}

/// The part of snapshot `installs` that becomes chunk `number`.
pub(crate) fn part_path(dir: &Path, number: u64, installs: u16) -> PathBuf {
    dir.join(format!("{number:016x}.chunk.{installs:04x}"))
}

/// The number of the chunk that a part becomes, and of its snapshot.
fn parse_part(name: &str) -> Option<(u64, u16)> {
    let (chunk, installs) = name.rsplit_once('.')?;
    let is_one = installs.len() == 4;
    is_one.then_some((parse_chunk_name(chunk)?, u16::from_str_radix(installs, 16).ok()?))
}

/// Gives a part its name as a chunk, unless it has that already.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn rename_part(disk: &dyn Disk, dir: &Path, part: (u64, u16)) -> io::Result<()> {
    let chunk = chunk_path(dir, part.0);
    match disk.rename(&part_path(dir, part.0, part.1), &chunk) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.open(&chunk).map(drop),
        renamed => renamed,
    }
}

/// Removes what earlier snapshots of this process have left.
///
/// # Errors
/// Any error of the underlying disk.
pub(super) fn remove_parts(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let names = disk.list(dir)?;
    let is_left = |name: &&String| *name == CHECKPOINT_NAME || parse_part(name).is_some();
    names.iter().filter(is_left).try_for_each(|name| remove_if_there(disk, &dir.join(name)))?;
    disk.sync_dir(dir)
}

impl Parts {
    /// Finishes a snapshot that was committed, and removes what is left of others; whether that has changed `names`.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn settle(self, disk: &dyn Disk, dir: &Path, names: &[String]) -> io::Result<bool> {
        let mut has_changed = false;
        remove_asides(disk, dir, self.installs)?;
        for name in names {
            let part = parse_part(name);
            match part {
                Some(part) if self.is_of_last(part.1) => rename_part(disk, dir, part)?,
                Some(_) if self.may_be_needed => continue,
                Some(_) => remove_unneeded(disk, &dir.join(name))?,
                None if name == CHECKPOINT_NAME => remove_unneeded(disk, &dir.join(name))?,
                None => continue,
            }
            has_changed = true;
        }
        if has_changed {
            disk.sync_dir(dir)?;
        }
        Ok(has_changed)
    }

    fn is_of_last(self, installs: u16) -> bool {
        installs > 0 && installs == self.installs
    }

    /// The number that a file has, which no other chunk may have.
    pub(crate) fn number_taken_by(name: &str) -> Option<u64> {
        parse_aside(name).map(|(number, _)| number)
    }

    /// The number of the chunk that a file is, although it could not be given its name.
    pub(crate) fn number_in(self, name: &str) -> Option<u64> {
        parse_part(name).filter(|part| self.is_of_last(part.1)).map(|part| part.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;

    fn settled(parts: Parts, names: &[&str]) -> Vec<String> {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/c"));
        disk.create_dir_all(dir).unwrap();
        names.iter().for_each(|name| drop(disk.create(&dir.join(name)).unwrap()));
        parts.settle(&disk, dir, &disk.list(dir).unwrap()).unwrap();
        disk.list(dir).unwrap()
    }

    #[test]
    fn parts_of_the_last_snapshot_become_chunks_and_others_go() {
        let [old, two, three] = ["000000000000000a.chunk", "000000000000000b.chunk", "x.chunk"];
        let part = |of: u16| format!("{two}.{of:04x}");
        let names = [old, &part(2), CHECKPOINT_NAME, three];
        let parts = |installs, may_be_needed| Parts { installs, may_be_needed };
        assert_eq!(settled(parts(2, false), &names), [old, two, three]);
        assert_eq!(settled(parts(1, false), &names), [old, three]);
        assert_eq!(settled(parts(0, false), &[&part(0)]), [""; 0]);
        assert_eq!(settled(parts(0, true), &names), [old, &part(2), three]);
        assert_eq!(parts(2, false).number_in(&part(2)), Some(11));
        assert_eq!(parts(2, false).number_in(&part(3)), None);
    }
}
