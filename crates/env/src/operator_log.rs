//! A file that lines are appended to, which a tool may rename at any time.
//!
//! # Invariants
//! - Nothing here waits for a reader: a pipe that is full or that nobody has open is an error.
//! - A line that was cut by an error is ended before the next one.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Mode of a new file: logs name clients, so others do not read them.
const MODE: u32 = 0o640;

/// A log that is open.
#[derive(Debug)]
pub struct OperatorLog {
    file: File,
    /// The last line that was written has no end.
    is_cut: bool,
}

impl OperatorLog {
    /// Opens a log, or makes it.
    ///
    /// # Errors
    /// Any error of the system. A pipe without a reader is one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of the system");
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
        Ok(Self { file, is_cut: false })
    }

    /// Appends lines, each with its end.
    ///
    /// # Errors
    /// What the system said, and how many lines were lost.
    pub fn append(&mut self, lines: &str) -> Result<(), (io::Error, u64)> {
        if self.is_cut {
            self.write(b"\n").map_err(|(error, _)| (error, count(lines.as_bytes())))?;
            self.is_cut = false;
        }
        let lines = lines.as_bytes();
        self.write(lines).map_err(|(error, written)| {
            self.is_cut |= written > 0 && lines[written - 1] != b'\n';
            (error, count(&lines[written..]))
        })
    }

    /// Writes all of `bytes`; the error says how many were written.
    fn write(&mut self, bytes: &[u8]) -> Result<(), (io::Error, usize)> {
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written)),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((error, written)),
            }
        }
        Ok(())
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn lines_are_appended_and_a_renamed_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut log = OperatorLog::open(&path).unwrap();
        log.append("one\n").unwrap();
        fs::rename(&path, &old).unwrap();
        log.append("two\n").unwrap();
        let mut log = OperatorLog::open(&path).unwrap();
        log.append("three\n").unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o007, 0);
        OperatorLog::open(&path).unwrap().append("four\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\nfour\n");
    }

    #[test]
    fn a_full_disk_costs_lines_and_says_how_many() {
        let mut log = OperatorLog::open(Path::new("/dev/full")).unwrap();
        let (error, lost) = log.append("a\nb\nc\n").unwrap_err();
        assert_eq!((error.kind(), lost), (io::ErrorKind::StorageFull, 3));
    }

    #[test]
    fn a_pipe_without_a_reader_is_refused_and_a_full_one_loses_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(OperatorLog::open(&path).is_err());
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut log = OperatorLog::open(&path).unwrap();
        let line = format!("{}\n", "x".repeat(99_999));
        let (error, lost) = log.append(&line).unwrap_err();
        assert_eq!((error.kind(), lost), (io::ErrorKind::WouldBlock, 1));
        let mut taken = vec![0; 64 << 10];
        reader.read_exact(&mut taken).unwrap();
        log.append("next\n").unwrap();
        let mut rest = vec![0; 6];
        reader.read_exact(&mut rest).unwrap();
        assert_eq!(rest, b"\nnext\n", "the line that was cut has an end");
    }
}
