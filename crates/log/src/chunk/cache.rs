//! What all chunks of a store share: open files, pages and filters in memory, all bounded.
//!
//! # Why
//! A long history has tens of thousands of chunks. Each would cost a descriptor, and their rows gigabytes. So
//! files are opened when they are read, and pages are kept while they are used.
//!
//! A lookup may ask the filters of hundreds of chunks in turn. A cache that is a little smaller than all of them has none
//! when it is asked for. So filters have a half of the memory for themselves. Chunks keep theirs as long as
//! they live; what finds no room is read with its page.
//!
//! # Invariants
//! - No lock is held during IO, nor while a file is closed.

use crate::chunk::clock::Clock;
use crate::chunk::page::Page;
use crate::descriptors::HeldDescriptors;
use crate::options::LogOptions;
use crate::unreadable::open_around;
use env::{Disk, File, is_out_of_descriptors};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a page takes besides its payload: the key twice, and what is around it.
const PAGE_OVERHEAD_BYTES: u64 = 128;

/// Open files and pages of chunks.
#[derive(Debug)]
pub(crate) struct ChunkCache {
    disk: Arc<dyn Disk>,
    files: Mutex<Clock<u64, Arc<dyn File>>>,
    pages: Mutex<Clock<(u64, u32), Arc<Page>>>,
    filter_bytes: AtomicU64,
    filter_bytes_max: u64,
    id_next: AtomicU64,
    held: HeldDescriptors,
    counts: Counts,
}

/// How the bounds of open files and of pages in memory do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkStats {
    /// Chunk files that are open.
    pub open_files: u64,
    /// Reads that found their file open.
    pub file_hits: u64,
    /// Files that were opened for a read.
    pub file_misses: u64,
    /// Bytes of pages and filters in memory.
    pub page_bytes: u64,
    /// Pages that were found in memory.
    pub page_hits: u64,
    /// Pages that were looked for and not found there.
    pub page_misses: u64,
    /// Damaged copies of pages that reads have met since the start; the other copy was taken.
    pub damaged_pages: u64,
}

#[derive(Debug, Default)]
struct Counts {
    file_hits: AtomicU64,
    file_misses: AtomicU64,
    page_hits: AtomicU64,
    page_misses: AtomicU64,
    damaged_pages: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ChunkCache {
    /// The cache of a store; `path` is a file of it that is always there.
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf, options: &LogOptions) -> Self {
        let filter_bytes_max = options.chunk_pages_bytes_max / 2;
        Self {
            held: HeldDescriptors::new(path),
            disk,
            files: Mutex::new(Clock::new(options.chunk_files_max)),
            pages: Mutex::new(Clock::new(options.chunk_pages_bytes_max - filter_bytes_max)),
            filter_bytes: AtomicU64::new(0),
            filter_bytes_max,
            id_next: AtomicU64::new(0),
            counts: Counts::default(),
        }
    }

    pub(crate) fn stats(&self) -> ChunkStats {
        let Counts { file_hits, file_misses, page_hits, page_misses, damaged_pages } = &self.counts;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChunkStats {
            open_files: locked(&self.files).weight(),
            file_hits: of(file_hits),
            file_misses: of(file_misses),
            page_bytes: locked(&self.pages).weight() + of(&self.filter_bytes),
            page_hits: of(page_hits),
            page_misses: of(page_misses),
            damaged_pages: of(damaged_pages),
        }
    }

    /// A read has met a damaged copy of a page.
    pub(crate) fn note_damaged_page(&self) {
        Counts::add(&self.counts.damaged_pages);
    }

    /// A number for a chunk that no other one has.
    pub(crate) fn take_id(&self) -> u64 {
        self.id_next.fetch_add(1, Ordering::Relaxed)
    }

    /// The open file of a chunk, if it is there.
    pub(crate) fn file(&self, id: u64) -> Option<Arc<dyn File>> {
        let found = locked(&self.files).get(id);
        Counts::add(if found.is_some() {
            &self.counts.file_hits
        } else {
            &self.counts.file_misses
        });
        found
    }

    /// Opens a file; `None` if the device fails to.
    ///
    /// # Errors
    /// Any other error of the underlying disk.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Option<Arc<dyn File>>> {
        self.with_descriptors(|disk| open_around(disk, path))
    }

    /// Does what takes a descriptor. Where there is none, those of files that are kept, and those that are held, are
    /// given back for it.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn with_descriptors<T>(
        &self,
        work: impl Fn(&dyn Disk) -> io::Result<T>,
    ) -> io::Result<T> {
        match work(&*self.disk) {
            Err(error) if is_out_of_descriptors(&error) => {
                if self.close_all() + self.held.give_back() == 0 {
                    return Err(error);
                }
                work(&*self.disk)
            }
            done => {
                self.held.refill(&*self.disk);
                done
            }
        }
    }

    /// Holds some descriptors from now on.
    pub(crate) fn hold_descriptors(&self) {
        self.held.fill(&*self.disk);
    }

    /// Closes all files that nobody reads; returns how many were kept.
    pub(crate) fn close_all(&self) -> usize {
        let closed = locked(&self.files).take_all();
        closed.len()
    }

    /// Keeps a file that is open; another one may be closed for it.
    pub(crate) fn keep(&self, id: u64, file: Arc<dyn File>) {
        let closed = locked(&self.files).insert(id, file, 1);
        drop(closed);
    }

    /// Keeps no file of this chunk any longer.
    pub(crate) fn forget_file(&self, id: u64) {
        let closed = locked(&self.files).remove(id);
        drop(closed);
    }

    /// Takes room for a filter; `false` if there is none.
    pub(crate) fn take_filter_room(&self, bytes: u64) -> bool {
        let taken = self.filter_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| {
            Some(kept + bytes).filter(|bytes| *bytes <= self.filter_bytes_max)
        });
        taken.is_ok()
    }

    /// A filter is not kept any longer.
    pub(crate) fn give_filter_room(&self, bytes: u64) {
        self.filter_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn page(&self, id: u64, number: u32) -> Option<Arc<Page>> {
        let found = locked(&self.pages).get((id, number));
        Counts::add(if found.is_some() {
            &self.counts.page_hits
        } else {
            &self.counts.page_misses
        });
        found
    }

    pub(crate) fn keep_page(&self, id: u64, number: u32, page: &Arc<Page>) {
        let weight = page.payload.len() as u64 + PAGE_OVERHEAD_BYTES;
        let gone = locked(&self.pages).insert((id, number), Arc::clone(page), weight);
        drop(gone);
    }
}
