//! Writes pieces of a file while their owner makes the next one.
//!
//! # Why
//! A seal of a flood copied for two thirds of its time, and waited for the disk for the rest
//! (`docs/adr/0133-a-flood-is-written-behind.md`).
//!
//! # Driving it
//! `memory` and `begin` for each piece, then `end`.
//!
//! # Invariants
//! - Pieces are written one at a time, in the order in which they were begun. Without a thread each is written when memory for a later one
//!   is asked for, so that a simulation sees late writes, too.
//! - No more than [`PIECES_MAX`] pieces are in memory, and the last one.

use crate::paced::Pace;
use env::{Beside, File};
use std::io;
use std::sync::{Arc, Mutex};

/// Pieces that were begun and are not written. A thread that has just written one has the next at hand.
const PIECES_MAX: usize = 2;

/// The writes of a file.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    file: Arc<dyn File>,
    pace: Arc<Mutex<Pace>>,
    /// Gives the memory of each piece back.
    writes: Beside<io::Result<Vec<u8>>>,
}

impl WriteBehind {
    /// With a thread if that is wanted.
    pub(crate) fn new(file: Arc<dyn File>, pace: Pace, wants_thread: bool) -> Self {
        Self { file, pace: Arc::new(Mutex::new(pace)), writes: Beside::new(wants_thread) }
    }

    /// Memory for a piece, empty.
    ///
    /// # Errors
    /// Any error of the underlying disk, of a write that was begun: the file is of no use then.
    pub(crate) fn memory(&mut self) -> io::Result<Vec<u8>> {
        if self.writes.begun() < PIECES_MAX {
            return Ok(Vec::new());
        }
        self.writes.wait().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Begins to write a piece.
    pub(crate) fn begin(&mut self, mut piece: Vec<u8>, position: u64) {
        let (file, pace) = (Arc::clone(&self.file), Arc::clone(&self.pace));
        self.writes.begin(move || {
            let mut pace = pace.lock().expect("a write has panicked");
            pace.write(&*file, &piece, position)?;
            piece.clear();
            Ok(piece)
        });
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// As [`WriteBehind::memory`].
    pub(crate) fn end(&mut self) -> io::Result<()> {
        while let Some(written) = self.writes.wait() {
            written?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Disk, RealDisk};
    use std::path::Path;

    #[test]
    fn an_error_is_that_of_a_later_call() {
        for wants_thread in [false, true] {
            // A device that takes every write and cannot sync.
            let file = RealDisk.open(Path::new("/dev/null")).unwrap();
            let mut behind = WriteBehind::new(file, Pace::default(), wants_thread);
            let piece = vec![1; crate::options::COPY_BYTES];
            behind.begin(piece.clone(), 0);
            assert!(behind.memory().unwrap().is_empty(), "one may be late");
            behind.begin(piece.clone(), piece.len() as u64);
            assert!(behind.memory().is_err());
            assert!(behind.end().is_err());
        }
    }
}
