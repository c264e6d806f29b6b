//! Descriptors that are held for the case that connections have taken all others.

use env::{Disk, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors that are held. Few jobs run at once, and each has few files open.
const HELD: usize = 8;

/// Descriptors that nobody needs until there are no others.
#[derive(Debug)]
pub(crate) struct HeldDescriptors {
    /// A file that is always there.
    path: PathBuf,
    files: Mutex<Vec<Arc<dyn File>>>,
    is_short: AtomicBool,
}

impl HeldDescriptors {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, files: Mutex::default(), is_short: AtomicBool::new(false) }
    }

    fn files(&self) -> MutexGuard<'_, Vec<Arc<dyn File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back what was given, if there is as much.
    pub(crate) fn refill(&self, disk: &dyn Disk) {
        if self.is_short.load(Ordering::Relaxed) {
            self.fill(disk);
        }
    }

    /// Takes as many as there can be.
    pub(crate) fn fill(&self, disk: &dyn Disk) {
        let mut files = self.files();
        while files.len() < HELD {
            let Ok(file) = disk.open(&self.path) else { return };
            files.push(file);
        }
        self.is_short.store(false, Ordering::Relaxed);
    }

    /// Gives all back; returns how many.
    pub(crate) fn give_back(&self) -> usize {
        self.is_short.store(true, Ordering::Relaxed);
        let files = std::mem::take(&mut *self.files());
        files.len()
    }
}
