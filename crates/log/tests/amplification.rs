//! What a reader of a long history reads from the disk, beside what it gets.

use crate::support;
use crate::support::{Node, key};
use env::{Disk, DiskOverlay, File, FileOverlay, MemoryDisk};
use model::{ByteOffset, StreamKey};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thalweg_log::LogOptions;

const APPENDS: u64 = 100_000;
const APPEND_BYTES: usize = 24;
const WINDOW_BYTES: u64 = 64 << 10;

/// A disk that counts what is read.
#[derive(Debug, Clone)]
struct Counting {
    below: MemoryDisk,
    read_bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile {
    below: Arc<dyn File>,
    read_bytes: Arc<AtomicU64>,
}

impl DiskOverlay for Counting {
    fn below(&self) -> &dyn Disk {
        &self.below
    }

    fn wrap(&self, _path: &Path, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(CountingFile { below, read_bytes: Arc::clone(&self.read_bytes) })
    }
}

impl FileOverlay for CountingFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_bytes.fetch_add(buffer.len() as u64, Relaxed);
        self.below.read_at(buffer, position)
    }
}

fn options() -> LogOptions {
    LogOptions {
        group_count: 1,
        batch_bytes_max: 1 << 20,
        segment_bytes: 8 << 20,
        wal_bytes_max: 64 << 20,
        seal_bytes: APPENDS * APPEND_BYTES as u64,
        hot_appends: APPENDS,
        chunk_bytes_max: 64 << 20,
        chunk_pages_bytes_max: 1 << 20,
        checkpoint_bytes: 1 << 30,
        ..support::small()
    }
}

/// Reads all of a stream in windows that end with an append, as readers of JSON do; the bytes that it got.
fn read_all(node: &mut Node, key: StreamKey) -> u64 {
    let (mut at, tail) = (0, APPENDS * APPEND_BYTES as u64);
    while at < tail {
        let wanted = ByteOffset::new((at + WINDOW_BYTES).min(tail));
        let log = node.shard(key.group);
        let start = log.append_at(key, ByteOffset::new(at)).unwrap().unwrap().start;
        assert_eq!(start.get(), at);
        let end = log.first_end_at_or_after(key, wanted).unwrap().unwrap();
        let slice = log.read(key, start, (end.get() - at) as usize).unwrap();
        at += slice.to_bytes().unwrap().len() as u64;
    }
    at
}

#[test]
fn a_reader_of_many_small_appends_reads_little_more_than_it_gets() {
    let disk = Counting { below: MemoryDisk::new(), read_bytes: Arc::default() };
    let mut node = Node::open_on(Arc::new(disk.clone()), 1, options()).unwrap();
    let key = key(0, 1);
    for number in 0..APPENDS {
        node.append(key, &[number as u8; APPEND_BYTES]).unwrap();
        if number % 1000 == 0 {
            node.commit().unwrap();
        }
    }
    node.commit().unwrap();
    while node.shards[0].stats().hot_appends > 0 {
        assert!(node.run_job());
    }
    assert_eq!(node.shards[0].stats().chunks, 1);
    // The first time all is compared with its checksums, too.
    for (times, what) in [(2.5, "new"), (1.5, "checked")] {
        let before = disk.read_bytes.load(Relaxed);
        let got_bytes = read_all(&mut node, key);
        let read_bytes = disk.read_bytes.load(Relaxed) - before;
        let factor = read_bytes as f64 / got_bytes as f64;
        assert!((1.0..times).contains(&factor), "{what}: {factor} bytes were read for one");
    }
}
