//! The data directory: what makes it ours, and the lock on it.
//!
//! # Invariants
//! - A directory with files but without `FORMAT` is never written into.
//! - `FORMAT` is written once, aside, synced and renamed; nothing ever changes it.
//!
//! # Format
//! `docs/format/data-directory.md`.

use crate::codec::{header_is_sealed, put, seal_header, u16_at, u64_at};
use crate::options::LogOptions;
use crate::recovery::OpenError;
use env::{DirLock, Disk, Random, RealRandom};
use std::io;
use std::path::{Path, PathBuf};

const FORMAT_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"THALWEG\n";
const VERSION: u16 = 1;
const FORMAT_NAME: &str = "FORMAT";
const FORMAT_WRITING_NAME: &str = "FORMAT.tmp";
const LOCK_NAME: &str = "LOCK";

/// What `FORMAT` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) group_count: u16,
    /// Random: seeds every header checksum, so that files of another store are never taken.
    pub(crate) store: u64,
}

impl Format {
    fn encode(self) -> [u8; FORMAT_BYTES] {
        let mut out = [0; FORMAT_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 10, &self.group_count.to_le_bytes());
        put(&mut out, 12, &self.store.to_le_bytes());
        seal_header(&mut out, &[]);
        out
    }
}

/// A locked directory of this program.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub(crate) format: Format,
    pub(crate) lock: DirLock,
    pub(crate) created: bool,
}

/// Attaches the path to an error of the disk.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    move |error| OpenError::Io { path: path.to_owned(), error }
}

/// Removes a file, unless there is none.
///
/// # Errors
/// As the disk answers.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Locks `dir` and reads or makes its `FORMAT`.
///
/// # Errors
/// [`OpenError`] if the directory is not ours, not for this program, or in use.
pub(crate) fn open_data_dir(
    disk: &dyn Disk,
    dir: &Path,
    options: &LogOptions,
) -> Result<DataDir, OpenError> {
    let group_count = options.group_count;
    disk.create_dir_all(dir).map_err(at(dir))?;
    let names = disk.list(dir).map_err(at(dir))?;
    let is_ours = names.iter().any(|name| name == FORMAT_NAME);
    let ours_before_format = [LOCK_NAME, FORMAT_WRITING_NAME, "lost+found"];
    if !is_ours && names.iter().any(|name| !ours_before_format.contains(&name.as_str())) {
        return Err(OpenError::Foreign { dir: dir.to_owned() });
    }
    let lock = disk.lock_dir(&dir.join(LOCK_NAME)).map_err(OpenError::Locked)?;
    let format = if is_ours {
        read_format(disk, &dir.join(FORMAT_NAME))?
    } else {
        create_format(disk, dir, options)?
    };
    if format.group_count != group_count {
        return Err(OpenError::GroupCount { found: format.group_count, asked: group_count });
    }
    Ok(DataDir { format, lock, created: !is_ours })
}

fn read_format(disk: &dyn Disk, path: &Path) -> Result<Format, OpenError> {
    let damaged = || OpenError::FormatDamaged { file: path.to_owned() };
    let file = disk.open(path).map_err(at(path))?;
    let mut bytes = [0; FORMAT_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged()),
        other => other.map_err(at(path))?,
    }
    if bytes[..MAGIC.len()] != MAGIC || !header_is_sealed(&bytes, &[]) {
        return Err(damaged());
    }
    let found = u16_at(&bytes, 8);
    if found > VERSION {
        return Err(OpenError::Newer { found, known: VERSION });
    }
    Ok(Format { group_count: u16_at(&bytes, 10), store: u64_at(&bytes, 12) })
}

fn create_format(disk: &dyn Disk, dir: &Path, options: &LogOptions) -> Result<Format, OpenError> {
    let store = options.store_id.unwrap_or_else(|| RealRandom.next_u64());
    let format = Format { group_count: options.group_count, store };
    let writing = dir.join(FORMAT_WRITING_NAME);
    remove_if_there(disk, &writing).map_err(at(&writing))?;
    let file = disk.create(&writing).map_err(at(&writing))?;
    file.write_at(&format.encode(), 0).map_err(at(&writing))?;
    file.sync_all().map_err(at(&writing))?;
    disk.rename(&writing, &dir.join(FORMAT_NAME)).map_err(at(dir))?;
    disk.sync_dir(dir).map_err(at(dir))?;
    Ok(format)
}

/// Makes a directory whose name survives a crash.
///
/// # Errors
/// As the disk answers.
pub(crate) fn make_dir(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    disk.create_dir_all(dir).map_err(at(dir))
}

/// Syncs names that an earlier process may have changed and not synced.
///
/// # Errors
/// As the disk answers.
pub(crate) fn sync_names(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    disk.sync_dir(dir).map_err(at(dir))
}

/// Directory of a group's chunks.
pub(crate) fn chunk_dir(root: &Path, group: u16) -> PathBuf {
    root.join("chunks").join(format!("{group:05}"))
}

/// Directory of a group's checkpoints.
pub(crate) fn checkpoint_dir(root: &Path, group: u16) -> PathBuf {
    root.join("checkpoints").join(format!("{group:05}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;

    const DIR: &str = "/data";

    fn open(disk: &MemoryDisk, group_count: u16) -> Result<DataDir, OpenError> {
        open_data_dir(disk, Path::new(DIR), &LogOptions { group_count, ..LogOptions::default() })
    }

    #[test]
    fn the_bytes_of_a_format_file_never_change() {
        let format = Format { group_count: 64, store: 77 };
        assert_eq!(format.encode(), *include_bytes!("../testdata/format.golden"));
    }

    #[test]
    fn a_directory_is_made_once_and_known_again() {
        let disk = MemoryDisk::new();
        let first = open(&disk, 8).unwrap();
        assert!(first.created);
        let format = first.format;
        drop(first);
        let again = open(&disk, 8).unwrap();
        assert!(!again.created);
        assert_eq!(again.format, format);
    }

    #[test]
    fn what_is_not_ours_or_not_for_us_is_refused() {
        let disk = MemoryDisk::new();
        let held = open(&disk, 8).unwrap();
        assert!(matches!(open(&disk, 8), Err(OpenError::Locked(_))));
        drop(held);
        assert!(matches!(open(&disk, 9), Err(OpenError::GroupCount { found: 8, asked: 9 })));

        let mut newer = Format { group_count: 8, store: 1 }.encode();
        newer[8] = 2;
        seal_header(&mut newer, &[]);
        let path = Path::new(DIR).join(FORMAT_NAME);
        disk.open(&path).unwrap().write_at(&newer, 0).unwrap();
        assert!(matches!(open(&disk, 8), Err(OpenError::Newer { found: 2, known: 1 })));

        disk.flip_bit(&path, 100);
        assert!(matches!(open(&disk, 8), Err(OpenError::FormatDamaged { .. })));

        let foreign = MemoryDisk::new();
        foreign.create_dir_all(Path::new(DIR)).unwrap();
        foreign.create(Path::new("/data/holiday.jpg")).unwrap();
        assert!(matches!(open(&foreign, 8), Err(OpenError::Foreign { .. })));
    }
}
