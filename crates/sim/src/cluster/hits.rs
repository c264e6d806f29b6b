//! Which nodes were damaged.

use env::{Disk, MemoryDisk};
use std::path::{Path, PathBuf};

/// The nodes that were damaged or have lost their disk, and when.
#[derive(Debug, Default)]
pub(super) struct Damages {
    nodes: Vec<(usize, u64)>,
    places: Vec<(usize, Place)>,
}

/// A byte that was damaged.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    at: u64,
    /// What is there since; `None` if it cannot be read.
    byte: Option<u8>,
}

impl Place {
    /// A byte that has just been damaged.
    pub(super) fn now(disk: &MemoryDisk, (path, at): (PathBuf, u64)) -> Self {
        let byte = byte_at(disk, &path, at).flatten();
        Self { path, at, byte }
    }

    /// Whether the file is there, with its damage. A block that cannot be read may have another name by now: segments of the log
    /// are used again.
    fn is_on(&self, disk: &MemoryDisk) -> bool {
        match self.byte {
            Some(_) => byte_at(disk, &self.path, self.at) == Some(self.byte),
            None => disk.paths().iter().any(|path| byte_at(disk, path, self.at) == Some(None)),
        }
    }
}

/// A byte of a file, `Some(None)` if it cannot be read; `None` if there is no such byte.
fn byte_at(disk: &MemoryDisk, path: &Path, at: u64) -> Option<Option<u8>> {
    let file = disk.open(path).ok()?;
    let mut byte = [0];
    let is_there = file.len().is_ok_and(|length| at < length);
    is_there.then(|| file.read_exact_at(&mut byte, at).ok().map(|()| byte[0]))
}

impl Damages {
    pub(super) fn note(&mut self, node: usize, at_us: u64) {
        self.nodes.push((node, at_us));
    }

    pub(super) fn note_place(&mut self, node: usize, place: Place) {
        self.places.push((node, place));
    }

    /// Whether a node has damage that it may not have met yet.
    pub(super) fn is_left(&self, node: usize, disk: &MemoryDisk) -> bool {
        self.places.iter().any(|(hit, place)| *hit == node && place.is_on(disk))
    }

    /// Whether a node was ever hit.
    pub(super) fn has_hit(&self, node: usize) -> bool {
        self.nodes.iter().any(|(hit, _)| *hit == node)
    }

    /// Whether a node may have had what was begun then, and has lost it.
    pub(super) fn may_have_cost(&self, node: usize, begun_us: u64) -> bool {
        self.nodes.iter().any(|(hit, at_us)| *hit == node && begun_us <= *at_us)
    }

    /// The node that was hit last.
    pub(super) fn last(&self) -> Option<usize> {
        self.nodes.last().map(|(node, _)| *node)
    }
}
