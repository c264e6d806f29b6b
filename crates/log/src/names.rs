//! The directories of a log at a start: what is missing is made, and all names are synced.
//!
//! # Why
//! A process that was killed may have given files names and not synced them. Nothing may depend on such a name: not what is
//! written into the file, and not the removal of what it replaces.
//!
//! # A device that cannot sync them
//! What an earlier process showed or acknowledged depends on no such name. So all of it can be read. Nothing is written,
//! removed or given another name: the log is poisoned from the start.

use crate::open_error::{OpenError, at};
use crate::paths::{checkpoint_dir, chunk_dir, make_dir, sync_names};
use crate::store::Store;
use crate::wal::segment::wal_dir;
use env::is_unreadable;
use std::io::{self, ErrorKind::NotFound, ErrorKind::PermissionDenied};
use std::path::Path;

/// Numbers of all WALs that the directory has.
///
/// # Errors
/// [`OpenError::Io`].
pub(crate) fn wal_numbers(store: &Store) -> Result<Vec<u16>, OpenError> {
    let dir = store.root.join("wal");
    let names = store.disk.list(&dir).map_err(at(&dir))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Makes the directories, and syncs all names. Returns why the device cannot sync them, if it cannot.
///
/// # Errors
/// [`OpenError::Io`]: a directory cannot be made, or could not be synced for another reason.
pub(crate) fn settle_names(store: &Store) -> Result<Option<io::Error>, OpenError> {
    make_dirs(store)?;
    match sync_dirs(store) {
        Err(OpenError::Io { path, error }) if is_unreadable(&error) => {
            Ok(Some(not_synced(&path, &error)))
        }
        synced => synced.map(|()| None),
    }
}

/// Says which directory it is that cannot be synced.
pub(crate) fn not_synced(dir: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the directory {} cannot be synced: {error}", dir.display()),
    )
}

fn make_dirs(store: &Store) -> Result<(), OpenError> {
    let (disk, root) = (&*store.disk, &store.root);
    for group in 0..store.options.group_total() {
        make_dir(disk, &chunk_dir(root, group))?;
        make_dir(disk, &checkpoint_dir(root, group))?;
    }
    (0..store.shard_count).try_for_each(|wal| make_dir(disk, &wal_dir(root, wal)))
}

fn sync_dirs(store: &Store) -> Result<(), OpenError> {
    let (disk, root) = (&*store.disk, &store.root);
    for group in 0..store.options.group_total() {
        sync_names(disk, &chunk_dir(root, group))?;
        sync_names(disk, &checkpoint_dir(root, group))?;
    }
    for wal in wal_numbers(store)? {
        sync_names(disk, &wal_dir(root, wal))?;
    }
    for dir in ["chunks", "checkpoints", "wal"] {
        sync_names(disk, &root.join(dir))?;
    }
    sync_names(disk, root)?;
    match root.parent().map(|parent| disk.sync_dir(parent)) {
        // The parent's owner may not let us open it; then the name is the owner's care. A
        // relative name has an empty parent, the working directory, which exists.
        Some(Err(error)) if !matches!(error.kind(), PermissionDenied | NotFound) => {
            Err(at(root)(error))
        }
        _ => Ok(()),
    }
}
