//! Names below the data directory, and what is done to names alone.

use crate::codec::NUMBER_MAX;
use crate::open_error::{OpenError, at};
use env::{Disk, is_unreadable};
use std::io;
use std::path::{Path, PathBuf};

/// Removes a file, unless there is none.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file that nobody needs. If the device cannot, it stays until a later start: that refuses nothing.
///
/// # Errors
/// Any other error of the underlying disk.
pub(crate) fn remove_unneeded(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    has_removed_unneeded(disk, path).map(drop)
}

/// As [`remove_unneeded`], and whether the file is gone.
///
/// # Errors
/// Any other error of the underlying disk.
pub(crate) fn has_removed_unneeded(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match remove_if_there(disk, path) {
        Err(error) if is_unreadable(&error) => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// The number in a name of sixteen hexadecimal digits and `suffix`.
pub(crate) fn parse_numbered(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (digits.len() == 16 && number <= NUMBER_MAX).then_some(number)
}

/// Makes a directory whose name survives a crash.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn make_dir(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    disk.create_dir_all(dir).map_err(at(dir))
}

/// Syncs names that an earlier process may have changed and not synced.
///
/// # Errors
/// Any error of the underlying disk.
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
