//! A process that may have few files open: chunks are closed for what is needed now.

use crate::support::{Node, files, key, small};
use env::{DirLock, Disk, File, FileOverlay, LockError, MemoryDisk};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thalweg_log::LogOptions;

/// The system's number of "too many open files".
const EMFILE: i32 = 24;

/// A disk of which few files can be open at once.
#[derive(Debug, Clone)]
struct Few {
    below: MemoryDisk,
    open: Arc<AtomicU64>,
    most: u64,
}

#[derive(Debug)]
struct OpenFile {
    below: Arc<dyn File>,
    open: Arc<AtomicU64>,
}

impl FileOverlay for OpenFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl Few {
    fn with<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        if self.open.load(Relaxed) >= self.most {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        work()
    }

    fn file(&self, below: Arc<dyn File>) -> Arc<dyn File> {
        self.open.fetch_add(1, Relaxed);
        Arc::new(OpenFile { below, open: Arc::clone(&self.open) })
    }
}

impl Disk for Few {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.with(|| self.below.open(path)).map(|file| self.file(file))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.with(|| self.below.create(path)).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.with(|| self.below.remove_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.with(|| self.below.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.below.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with(|| self.below.sync_dir(dir))
    }

    fn lock_dir(&self, path: &Path) -> Result<DirLock, LockError> {
        self.below.lock_dir(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.below.free_bytes(dir)
    }

    fn copy_on_write(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        self.below.copy_on_write(dir)
    }

    fn memory_file(&self) -> io::Result<Arc<dyn File>> {
        self.below.memory_file()
    }
}

/// Many small chunks, all of which may stay open.
fn options() -> LogOptions {
    LogOptions { chunk_files_max: 1000, chunk_bytes_max: 1, ..small() }
}

#[test]
fn a_start_reads_and_appends_need_few_descriptors() {
    let disk = MemoryDisk::new();
    let few = Few { below: disk.clone(), open: Arc::default(), most: 30 };
    for life in 0..3_u64 {
        let mut node = Node::open_on(Arc::new(few.clone()), 1, options()).unwrap();
        for number in 0..150 {
            let key = key((number % 3) as u16, number % 7 + 1);
            node.append(key, &[number as u8; 1500]).unwrap();
            node.commit().unwrap();
            node.work().unwrap();
        }
        for number in 0..7 {
            for group in 0..3 {
                let ends = node.machine.streams.get(&key(group, number + 1)).copied();
                let length = node.read_all(key(group, number + 1), 4096).unwrap().len() as u64;
                assert_eq!(length, ends.unwrap_or_default().tail);
            }
        }
        assert_eq!(node.work_errors, 0);
        assert!(few.open.load(Relaxed) <= 30);
        let chunks = files(&disk, "chunk").len();
        assert!(chunks as u64 > 20 * (life + 1), "{chunks} chunks");
    }
}

#[test]
fn some_descriptors_are_held_for_when_others_take_the_rest() {
    let disk = MemoryDisk::new();
    let few = Few { below: disk, open: Arc::default(), most: 40 };
    let mut node = Node::open_on(Arc::new(few.clone()), 1, options()).unwrap();
    let append = |node: &mut Node| {
        (0..60).for_each(|number| {
            node.append(key(0, number % 2 + 1), &[7; 1500]).unwrap();
            node.commit().unwrap();
            node.work().unwrap();
        });
    };
    append(&mut node);
    let others: Vec<_> = std::iter::from_fn(|| few.open(Path::new("/data/FORMAT")).ok()).collect();
    assert!(others.len() < 40);
    append(&mut node);
    assert_eq!(node.read_all(key(0, 1), 4096).unwrap().len(), 60 * 1500);
}

/// A start begins a small segment of its own where nobody has made the next one.
#[test]
fn segments_of_starts_that_a_crash_followed_go_soon() {
    let disk = MemoryDisk::new();
    let options =
        LogOptions { segment_bytes: 4 << 20, wal_bytes_max: 512 << 20, group_count: 20, ..small() };
    let begin = || {
        let mut node = Node::open_with(&disk, 1, options.clone()).unwrap();
        (0..20).for_each(|group| node.append(key(group, 1), &[7; 10]).unwrap());
        node.commit().unwrap();
        node
    };
    (0..150).for_each(|_| drop(begin()));
    assert!(files(&disk, "wal").len() >= 150);
    let mut node = begin();
    (0..10).for_each(|_| node.work().unwrap());
    let segments = files(&disk, "wal").len();
    assert!(segments <= 70, "{segments} segments");
}
