//! Directories of the operator's files, and how to see that files have changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file, and what distinguishes one state of it from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamp {
    /// The file.
    pub path: PathBuf,
    modified: Option<SystemTime>,
    bytes: u64,
}

impl FileStamp {
    /// Of the file that `path` names now; a missing file has the stamp of nothing.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let bytes = metadata.map_or(0, |metadata| metadata.len());
        Self { path: path.to_owned(), modified, bytes }
    }
}

/// The files in `dir` and in its subdirectories, not deeper, sorted by path, at most `count_max`. Hidden ones are left
/// out: Kubernetes keeps the versions of its files in hidden directories.
///
/// # Errors
/// Any error of the underlying disk about `dir` itself.
pub fn list_operator_files(dir: &Path, count_max: usize) -> io::Result<Vec<FileStamp>> {
    let mut files = Vec::new();
    for path in visible(dir)? {
        let found = if path.is_dir() { visible(&path).unwrap_or_default() } else { vec![path] };
        let room = count_max - files.len();
        let found = found.iter().filter(|path| !path.is_dir()).take(room);
        files.extend(found.map(|path| FileStamp::of(path)));
    }
    Ok(files)
}

/// Makes a directory for files of the operator, unless it is there.
///
/// # Errors
/// Any error of the underlying disk.
pub fn make_operator_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

fn visible(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_two_levels_deep_and_hidden_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        make_operator_dir(&root.join("a/deep")).unwrap();
        make_operator_dir(&root.join(".hidden")).unwrap();
        for file in ["b", "a/c", "a/deep/d", ".hidden/e", ".f"] {
            fs::write(root.join(file), b"x").unwrap();
        }
        let names = |count_max| -> Vec<PathBuf> {
            let files = list_operator_files(root, count_max).unwrap();
            files.iter().map(|file| file.path.strip_prefix(root).unwrap().to_owned()).collect()
        };
        assert_eq!(names(9), [PathBuf::from("a/c"), PathBuf::from("b")]);
        assert_eq!(names(1), [PathBuf::from("a/c")]);
        assert!(list_operator_files(&root.join("none"), 9).is_err());
    }

    #[test]
    fn a_file_that_has_changed_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        let none = FileStamp::of(&file);
        fs::write(&file, b"one").unwrap();
        let one = FileStamp::of(&file);
        fs::write(&file, b"other").unwrap();
        assert_ne!(none, one);
        assert_ne!(one, FileStamp::of(&file));
    }
}
