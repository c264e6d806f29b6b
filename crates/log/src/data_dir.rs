//! The data directory: what makes it ours, and the lock on it.
//!
//! # Invariants
//! - A directory with files but without `FORMAT` is never written into.
//! - Nobody reads or writes a file of the log before the lock is held and the owner is known.
//!
//! # Format
//! `docs/format/data-directory.md`.

use crate::damage::Damage;
use crate::format::{self, COPY_NAME, FORMAT_NAME, Format, Owner, WRITING_NAME};
use crate::open_error::{OpenError, at};
use crate::options::LogOptions;
use env::{DirLock, Disk, Random};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOCK_NAME: &str = "LOCK";

/// Which data directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its own id, another one for each directory.
    pub store: u64,
    /// The history that it continues: its own id, or that of the directory that it comes from.
    pub lineage: u64,
    /// Groups that it has.
    pub group_count: u16,
}

/// A locked directory of one program.
#[derive(Debug)]
pub struct DataDir {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) root: PathBuf,
    pub(crate) options: LogOptions,
    pub(crate) format: Format,
    pub(crate) lock: DirLock,
    pub(crate) is_new: bool,
    /// A copy of `FORMAT` that is not intact.
    pub(crate) damage: Option<Damage>,
}

impl DataDir {
    /// Whether `dir` is a data directory already. Changes nothing but its lock file.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if another process has it, [`OpenError::Io`] if it cannot be looked at.
    pub fn find(disk: &dyn Disk, dir: &Path) -> Result<bool, OpenError> {
        let names = match disk.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            names => names.map_err(at(dir))?,
        };
        if has_format(&names) || names.iter().any(|name| name == LOCK_NAME) {
            drop(disk.lock_dir(&dir.join(LOCK_NAME)).map_err(OpenError::Locked)?);
        }
        Ok(has_format(&names) && !is_begun(&names))
    }

    /// Which data directory `dir` is; `None` if it is none yet. It is not locked for that.
    ///
    /// # Errors
    /// [`OpenError`] if `FORMAT` cannot be read or believed.
    pub fn identity(disk: &dyn Disk, dir: &Path) -> Result<Option<Identity>, OpenError> {
        let names = match disk.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            names => names.map_err(at(dir))?,
        };
        if !has_format(&names) || is_begun(&names) {
            return Ok(None);
        }
        let (Format { store, lineage, group_count, .. }, _) = format::read(disk, dir)?;
        Ok(Some(Identity { store, lineage, group_count }))
    }

    /// Locks `dir` and reads its `FORMAT`, or makes both in an empty directory. A new directory draws
    /// its ids from `random`.
    ///
    /// # Errors
    /// [`OpenError`] if the directory is not this owner's, not for this program, or in use.
    ///
    /// # Panics
    /// If `options` are out of proportion.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        owner: Owner,
        random: &mut dyn Random,
    ) -> Result<Self, OpenError> {
        options.check();
        disk.create_dir_all(dir).map_err(at(dir))?;
        let names = disk.list(dir).map_err(at(dir))?;
        let (is_complete, is_begun) = (has_format(&names), is_begun(&names));
        if !is_complete && !is_begun {
            return Err(OpenError::Foreign { dir: dir.to_owned() });
        }
        let lock = disk.lock_dir(&dir.join(LOCK_NAME)).map_err(OpenError::Locked)?;
        let is_new = is_begun;
        let (format, damage) = if is_new {
            let store = options.store.unwrap_or_else(|| random.next_u64());
            let format = Format::new(owner, options.group_count, store, options.lineage);
            format::create(&*disk, dir, format)?;
            (format, None)
        } else {
            format::read(&*disk, dir)?
        };
        check_owner(dir, &format, owner)?;
        let asked = options.group_count;
        if format.group_count != asked {
            return Err(OpenError::GroupCount { found: format.group_count, asked });
        }
        if let Some(asked) = options.lineage.filter(|asked| *asked != format.lineage) {
            return Err(OpenError::Lineage { dir: dir.to_owned(), found: format.lineage, asked });
        }
        let root = dir.to_owned();
        Ok(Self { disk, root, options, format, lock, is_new, damage })
    }
}

fn has_format(names: &[String]) -> bool {
    names.iter().any(|name| name == FORMAT_NAME || name == COPY_NAME)
}

/// Whether the directory is empty, but for what a start leaves that did not come to its end.
fn is_begun(names: &[String]) -> bool {
    let left = [LOCK_NAME, WRITING_NAME, COPY_NAME, "lost+found"];
    names.iter().all(|name| left.contains(&name.as_str()))
}

fn check_owner(dir: &Path, format: &Format, owner: Owner) -> Result<(), OpenError> {
    let application = format.application();
    if format.kind != owner.kind || application != owner.application {
        let advice = Owner::advice(format.kind);
        let asked = owner.application;
        return Err(OpenError::Owner { dir: dir.to_owned(), application, advice, asked });
    }
    if format.placement != owner.placement {
        return Err(OpenError::Placement { found: format.placement, known: owner.placement });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
