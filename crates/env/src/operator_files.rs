//! Files of the operator: keys, rules and certificates beside the data directory.
//!
//! # Why apart
//! They belong to a person or a tool, not to the log. Their modes matter, and they are replaced whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A file as it was read.
#[derive(Debug)]
pub struct OperatorFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its mode: permissions and nothing else.
    pub mode: u32,
}

impl OperatorFile {
    /// Whether users that are neither its owner nor in its group can read, change or run it: no place for a secret.
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        self.mode & 0o007 != 0
    }
}

/// Reads a file of at most `bytes_max`.
///
/// # Errors
/// Any error of the underlying disk, or [`io::ErrorKind::FileTooLarge`].
pub fn read_operator_file(path: &Path, bytes_max: u64) -> io::Result<OperatorFile> {
    let metadata = fs::metadata(path)?;
    if metadata.len() > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(OperatorFile { bytes: fs::read(path)?, mode: metadata.permissions().mode() & 0o7777 })
}

/// Puts `bytes` in the place of a file, or makes it: written beside it, synced, renamed. A link stays a link, and its
/// target changes.
///
/// # Errors
/// Any error of the underlying disk. The file is as it was then.
pub fn replace_operator_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut draft = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    draft.push(".new");
    let draft = path.with_file_name(draft);
    let _ = fs::remove_file(&draft);
    let written = write(&draft, bytes, mode).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

fn write(draft: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    // The process may have a mask that takes bits away.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode_and_its_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a"), dir.path().join("b"));
        replace_operator_file(&file, b"one", 0o640).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace_operator_file(&link, b"two", 0o600).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let read = read_operator_file(&file, 3).unwrap();
        assert_eq!((read.bytes.as_slice(), read.mode), (&b"two"[..], 0o600));
        assert_eq!(read_operator_file(&file, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        replace_operator_file(&file, b"one", 0o600).unwrap();
        // A directory has the name of the draft.
        fs::create_dir(dir.path().join("a.new")).unwrap();
        assert!(replace_operator_file(&file, b"two", 0o600).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"one");
    }
}
