//! Which chunks of a damaged replica are whole, before it gets a snapshot.
//!
//! # Why
//! A replica that has lost something begins behind a snapshot. Most of its chunks are as they were, and need not be sent
//! again. The others must not be among those of the new replica: a read would find their damage once more. So each chunk is read
//! and compared, and one that is not whole gets a name that is no chunk's. It stays until the snapshot is installed.
//!
//! # How
//! One chunk is a job of its own, so that others come between them. Then come files whose headers cannot be read.
//!
//! # Invariants
//! - The new names are durable before the owner learns that all is done.

use crate::chunk::file::ChunkFile;
use crate::paths::{parse_numbered, remove_unneeded};
use crate::snapshot::is_intact;
use env::{Disk, is_unreadable};
use model::GroupId;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How far the look at a group's chunks is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sifting {
    /// Chunks up to this number were looked at.
    Upto(u64),
    /// All were: no chunk is damaged, and what a stream lacks may be at its beginning.
    Done,
}

/// Looks at one chunk, or at the end at what is left.
#[derive(Debug)]
pub(crate) struct SiftTask {
    pub(crate) group: GroupId,
    pub(crate) dir: PathBuf,
    /// The count of the snapshot that is to come.
    pub(crate) installs: u16,
    pub(crate) what: ToSift,
}

#[derive(Debug)]
pub(crate) enum ToSift {
    Chunk(Arc<ChunkFile>),
    Unreadable(Vec<PathBuf>),
}

/// What a look has come to.
#[derive(Debug)]
pub(crate) struct SiftDone {
    pub(crate) sifting: Sifting,
    /// The chunk that was set aside.
    pub(crate) aside: Option<u64>,
}

/// A chunk that is not whole, until snapshot `installs` is there.
fn aside_path(dir: &Path, number: u64, installs: u16) -> PathBuf {
    dir.join(format!("{number:016x}.damaged.{installs:04x}"))
}

/// The number of a chunk that was set aside, and of the snapshot that it was set aside for.
pub(super) fn parse_aside(name: &str) -> Option<(u64, u16)> {
    let (chunk, installs) = name.rsplit_once('.')?;
    let is_one = installs.len() == 4;
    is_one.then_some((parse_numbered(chunk, ".damaged")?, u16::from_str_radix(installs, 16).ok()?))
}

/// Removes what was set aside for a snapshot that is there now.
///
/// # Errors
/// Any error of the underlying disk.
pub(super) fn remove_asides(disk: &dyn Disk, dir: &Path, installs: u16) -> io::Result<()> {
    for name in disk.list(dir)? {
        if parse_aside(&name).is_some_and(|(_, of)| of <= installs) {
            remove_unneeded(disk, &dir.join(&name))?;
        }
    }
    Ok(())
}

impl SiftTask {
    /// # Errors
    /// Any error of the underlying disk but that a part of a chunk cannot be read.
    pub(crate) fn run(&self, disk: &dyn Disk) -> io::Result<SiftDone> {
        match &self.what {
            ToSift::Chunk(chunk) => {
                let is_whole = match is_intact(chunk) {
                    Err(error) if is_unreadable(&error) => false,
                    // An earlier try has set it aside, and then it has failed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                    looked => looked?,
                };
                if !is_whole {
                    self.set_aside(disk, &chunk.path, chunk.seq)?;
                }
                let aside = (!is_whole).then_some(chunk.seq);
                Ok(SiftDone { sifting: Sifting::Upto(chunk.seq), aside })
            }
            ToSift::Unreadable(files) => {
                for file in files {
                    let name = file.file_name().and_then(|name| name.to_str());
                    let number =
                        name.and_then(|name| u64::from_str_radix(name.get(..16)?, 16).ok());
                    self.set_aside(disk, file, number.expect("a chunk has a number"))?;
                }
                disk.sync_dir(&self.dir)?;
                Ok(SiftDone { sifting: Sifting::Done, aside: None })
            }
        }
    }

    fn set_aside(&self, disk: &dyn Disk, file: &Path, number: u64) -> io::Result<()> {
        let aside = aside_path(&self.dir, number, self.installs);
        match disk.rename(file, &aside) {
            // It was set aside before, or a merge has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_aside_is_no_chunk_and_knows_its_snapshot() {
        let path = aside_path(Path::new("/c"), 11, 3);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, "000000000000000b.damaged.0003");
        assert_eq!(parse_aside(name), Some((11, 3)));
        assert_eq!(parse_aside("000000000000000b.chunk.0003"), None);
        assert_eq!(parse_aside("000000000000000b.damaged"), None);
    }
}
