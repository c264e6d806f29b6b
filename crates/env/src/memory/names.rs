//! Names on a disk in memory: volatile until their directory is synced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) type InodeId = u64;

/// The files and directories that there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) files: BTreeMap<PathBuf, InodeId>,
    pub(super) dirs: BTreeSet<PathBuf>,
}

/// A change of names, which a crash loses or keeps as a whole.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Link { path: PathBuf, inode: InodeId },
    Rename { from: PathBuf, to: PathBuf },
    Unlink { path: PathBuf },
    MakeDir { path: PathBuf },
    RemoveDir { path: PathBuf },
}

impl NameChange {
    /// Whether a sync of `dir` makes it durable.
    pub(super) fn touches(&self, dir: &Path) -> bool {
        match self {
            Self::Link { path, .. }
            | Self::Unlink { path }
            | Self::MakeDir { path }
            | Self::RemoveDir { path } => path.parent() == Some(dir),
            Self::Rename { from, to } => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }
}

impl Names {
    pub(super) fn change(&mut self, change: &NameChange) {
        match change {
            NameChange::Link { path, inode } => {
                self.files.insert(path.clone(), *inode);
            }
            NameChange::Rename { from, to } => {
                if let Some(inode) = self.files.remove(from) {
                    self.files.insert(to.clone(), inode);
                }
            }
            NameChange::Unlink { path } => {
                self.files.remove(path);
            }
            NameChange::MakeDir { path } => {
                self.dirs.insert(path.clone());
            }
            NameChange::RemoveDir { path } => {
                self.dirs.remove(path);
            }
        }
    }
}
