//! What is looked at before anything is made, opened or listened on.
//!
//! A start that cannot succeed should say so for its first reason. Two servers with the same settings collide in
//! their ports, too, but the data directory is what matters. And a disk that is too small would be noticed only
//! after the port is open, by the first clients.

use crate::settings::Settings;
use env::Disk;
use log::{ALL_SEGMENTS_MAX, DataDir, OpenError};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Segments that a shard's log needs to work: the one that is written and the next, made ahead of use.
const SEGMENTS_MIN: u64 = 2;

/// What a shard needs beside its segments: names, checkpoints, and the first small chunks.
const OTHERS_BYTES_MIN: u64 = 2 << 20;

/// Why a start would not succeed.
#[derive(Debug)]
pub enum Refusal {
    /// Another process has the data directory, or it cannot be looked at.
    DataDir(OpenError),
    /// The disk of a data directory that is to be made is too small.
    NoSpace {
        /// The data directory.
        dir: PathBuf,
        /// Bytes that its first files take.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// The file system writes changed blocks to new places.
    CopyOnWrite {
        /// The data directory.
        dir: PathBuf,
        /// The name of the file system.
        file_system: &'static str,
    },
    /// The write-ahead logs could have more segments than one shard can open.
    ManySegments {
        /// Segments of all shards.
        segment_count: u64,
    },
    /// The file system could not be asked for its free space or its kind.
    Space {
        /// The data directory, or the nearest directory above it that there is.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataDir(error) => write!(f, "cannot open the data directory: {error}"),
            Self::NoSpace { dir, needed_bytes, free_bytes } => write!(
                f,
                "the disk of {} has {} MiB free; a new data directory needs {} MiB for the first segments \
                 of its write-ahead logs; free some space, choose another data_dir, or take fewer shards \
                 or smaller segments (settings shards and segment_bytes)",
                dir.display(),
                free_bytes >> 20,
                needed_bytes.div_ceil(1 << 20),
            ),
            Self::CopyOnWrite { dir, file_system } => write!(
                f,
                "{} is on {file_system}, which writes changed blocks to new places: what the write-ahead log \
                 keeps free there is not its own, and a full disk can fail a commit; choose a data_dir on ext4 or \
                 XFS, or take the risk with the setting allow_copy_on_write",
                dir.display(),
            ),
            Self::ManySegments { segment_count } => write!(
                f,
                "the write-ahead logs of all shards could have {segment_count} segments; at most \
                 {ALL_SEGMENTS_MAX} are allowed: choose larger segments, shorter logs or fewer shards \
                 (settings segment_bytes, wal_bytes_max and shards)"
            ),
            Self::Space { dir, error } => {
                write!(f, "cannot ask the file system of {}: {error}", dir.display())
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Looks at the data directory of `settings`, which `shard_count` shards are to use.
///
/// # Errors
/// [`Refusal`]: each says what to do.
pub fn check(disk: &dyn Disk, settings: &Settings, shard_count: u16) -> Result<(), Refusal> {
    let dir = &settings.data_dir;
    check_segments(settings, shard_count)?;
    let exists = DataDir::find(disk, dir).map_err(Refusal::DataDir)?;
    if !settings.allow_copy_on_write
        && let Some(file_system) = nearest(dir, |dir| disk.copy_on_write(dir))?
    {
        return Err(Refusal::CopyOnWrite { dir: dir.clone(), file_system });
    }
    if exists {
        // It has its segments. On a full disk it still serves reads.
        return Ok(());
    }
    let needed_bytes =
        u64::from(shard_count) * (SEGMENTS_MIN * settings.segment_bytes + OTHERS_BYTES_MIN);
    let free_bytes = nearest(dir, |dir| disk.free_bytes(dir))?;
    if free_bytes < needed_bytes {
        return Err(Refusal::NoSpace { dir: dir.clone(), needed_bytes, free_bytes });
    }
    Ok(())
}

/// Refuses more segments than can be opened.
///
/// # Errors
/// [`Refusal::ManySegments`].
pub fn check_segments(settings: &Settings, shard_count: u16) -> Result<(), Refusal> {
    let segment_count = u64::from(shard_count) * (settings.wal_bytes_max / settings.segment_bytes);
    if segment_count > ALL_SEGMENTS_MAX {
        return Err(Refusal::ManySegments { segment_count });
    }
    Ok(())
}

/// What `ask` answers for `dir`, or for the nearest directory above it that there is.
fn nearest<T>(dir: &Path, ask: impl Fn(&Path) -> io::Result<T>) -> Result<T, Refusal> {
    let mut at = dir;
    loop {
        let named = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        match (ask(named), at.parent()) {
            (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => at = above,
            (result, _) => {
                return result.map_err(|error| Refusal::Space { dir: named.to_owned(), error });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Environment, Flags, load};
    use env::{MemoryDisk, RealDisk};

    fn free_bytes(dir: &Path) -> Result<u64, Refusal> {
        nearest(dir, |dir| RealDisk.free_bytes(dir))
    }

    #[test]
    fn the_space_of_a_directory_that_is_not_there_is_that_of_the_nearest_one() {
        let here = free_bytes(Path::new(".")).unwrap();
        for dir in ["not-there", "./not/there", "not/there/either"] {
            assert!(free_bytes(Path::new(dir)).unwrap().abs_diff(here) < 1 << 30, "{dir}");
        }
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml/below"));
        assert!(matches!(free_bytes(file), Err(Refusal::Space { .. })));
    }

    fn settings(given: &[(&'static str, &str)]) -> Settings {
        let values = given.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        let no_file = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let flags = Flags { config: None, values };
        load(&flags, &Environment::new([]), &no_file).unwrap().settings
    }

    #[test]
    fn a_file_system_that_copies_on_write_is_refused_unless_it_is_allowed() {
        let allows = |text| settings(&[("allow_copy_on_write", text)]);
        let disk = MemoryDisk::new();
        check(&disk, &allows("off"), 1).unwrap();
        disk.set_copy_on_write("btrfs");
        let refusal = check(&disk, &allows("off"), 1).unwrap_err().to_string();
        assert!(refusal.contains("btrfs") && refusal.contains("allow_copy_on_write"), "{refusal}");
        check(&disk, &allows("on"), 1).unwrap();
    }

    #[test]
    fn more_segments_than_a_shard_can_open_are_refused_with_the_range() {
        let small = settings(&[("segment_bytes", "8MiB"), ("wal_bytes_max", "2GiB")]);
        let disk = MemoryDisk::new();
        check(&disk, &small, 128).unwrap();
        let refusal = check(&disk, &small, 129).unwrap_err().to_string();
        assert!(refusal.contains("33024 segments; at most 32768"), "{refusal}");
        assert!(refusal.contains("segment_bytes") && refusal.contains("shards"), "{refusal}");
    }
}
