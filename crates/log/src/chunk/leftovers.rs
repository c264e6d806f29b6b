//! Files of chunks that nobody needs, and that could not be removed.
//!
//! # Why
//! The merged chunk is durable when its sources go. If one of them cannot be removed, the merge has succeeded all the same:
//! to make it again would write its bytes again with each try. A copy that fails may leave its own file. What is left is
//! removed later, or by the next start.
//!
//! # Invariants
//! - Every file here is replaced by a chunk of the group, or all of it was dead, or it was never taken.
//! - It goes only after the names of the directory are durable: that of what replaces it is one of them.
//! - Merges of a group wait while it has too many of these: they would only take more room.

use crate::paths::remove_if_there;
use env::Disk;
use model::GroupId;
use std::io;
use std::path::{Path, PathBuf};

/// With so many files left, nothing more of their group is merged.
const LEFTOVERS_MAX: usize = 64;

/// Files of one group that nobody needs.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Vec<PathBuf>);

/// Removes files of a group.
#[derive(Debug)]
pub(crate) struct RemovalTask {
    pub(crate) group: GroupId,
    pub(crate) dir: PathBuf,
    pub(crate) files: Vec<PathBuf>,
}

/// What could not be removed, and the first error.
#[derive(Debug, Default)]
pub(crate) struct RemovalDone {
    pub(crate) left: Vec<PathBuf>,
    pub(crate) error: Option<io::Error>,
}

impl Leftovers {
    /// Adds files that could not be removed.
    pub(crate) fn add(&mut self, files: Vec<PathBuf>) {
        let is_new = |file: &PathBuf| !self.0.contains(file);
        let new: Vec<PathBuf> = files.into_iter().filter(is_new).collect();
        self.0.extend(new);
    }

    /// Whether there are so many that no merge should make more.
    pub(crate) fn are_many(&self) -> bool {
        self.0.len() >= LEFTOVERS_MAX
    }

    /// Takes all files, to be removed; `None` if there are none.
    pub(crate) fn take(
        &mut self,
        group: GroupId,
        dir: impl FnOnce() -> PathBuf,
    ) -> Option<RemovalTask> {
        if self.0.is_empty() {
            return None;
        }
        let files = std::mem::take(&mut self.0);
        Some(RemovalTask { group, dir: dir(), files })
    }
}

impl RemovalTask {
    pub(crate) fn run(&self, disk: &dyn Disk) -> RemovalDone {
        let mut done = RemovalDone::default();
        if let Err(error) = disk.sync_dir(&self.dir) {
            return RemovalDone { left: self.files.clone(), error: Some(error) };
        }
        for file in &self.files {
            if let Err(error) = remove_if_there(disk, file) {
                done.keep(file.clone(), error);
            }
        }
        done.sync(disk, &self.dir)
    }
}

impl RemovalDone {
    /// A file could not be removed.
    pub(crate) fn keep(&mut self, file: PathBuf, error: io::Error) {
        self.left.push(file);
        self.error.get_or_insert(error);
    }

    /// Makes the removals durable. A power loss before that brings files back, which the next start removes.
    pub(crate) fn sync(mut self, disk: &dyn Disk, dir: &Path) -> Self {
        if let Err(error) = disk.sync_dir(dir) {
            self.error.get_or_insert(error);
        }
        self
    }
}
