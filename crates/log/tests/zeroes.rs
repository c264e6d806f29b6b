//! How much of a new segment is filled with zeroes, beside long batches on a slow disk.

use crate::support::{Node, key, small};
use env::{Disk, DiskOverlay, File, FileOverlay, MemoryDisk};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg_log::LogOptions;

const SEGMENT_BYTES: u64 = 8 << 20;

/// Three or four of them are written before it is known what they take.
const MIB: u64 = 1 << 20;

/// A disk that takes 20 ms for each MiB past the system's cache.
#[derive(Debug, Clone, Default)]
struct SlowDisk {
    below: MemoryDisk,
    /// Bytes that were written so, for each new file.
    written_bytes: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

#[derive(Debug)]
struct SlowFile {
    below: Arc<dyn File>,
    written_bytes: Arc<AtomicU64>,
}

impl DiskOverlay for SlowDisk {
    fn below(&self) -> &dyn Disk {
        &self.below
    }

    fn wrap(&self, _path: &Path, below: Arc<dyn File>) -> Arc<dyn File> {
        let written_bytes = Arc::<AtomicU64>::default();
        self.written_bytes.lock().unwrap().push(Arc::clone(&written_bytes));
        Arc::new(SlowFile { below, written_bytes })
    }
}

impl FileOverlay for SlowFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn uncached_time(&self, length: usize) -> Option<Duration> {
        self.written_bytes.fetch_add(length as u64, Relaxed);
        Some(Duration::from_millis(20) * u32::try_from(length >> 12).unwrap() / 256)
    }
}

impl SlowDisk {
    /// The bytes of zeroes in each new segment, and none of the segments before.
    fn new_zeroes(&self) -> Vec<u64> {
        let all = std::mem::take(&mut *self.written_bytes.lock().unwrap());
        all.iter().map(|bytes| bytes.load(Relaxed)).filter(|bytes| *bytes > 0).collect()
    }
}

fn new_node(disk: &SlowDisk) -> Node {
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        wal_bytes_max: 256 << 20,
        seal_bytes: 2 << 20,
        batch_bytes_max: 1 << 20,
        checkpoint_bytes: 256 << 20,
        ..small()
    };
    Node::open_on(Arc::new(disk.clone()), 1, options).unwrap()
}

/// Writes 48 batches of 512 KiB, six segments, with a tick after each if there are ticks.
fn write(node: &mut Node, has_ticks: bool) {
    for _ in 0..48 {
        node.append(key(0, 1), &vec![7; 512 << 10]).unwrap();
        node.commit().unwrap();
        if has_ticks {
            node.shards[0].tick();
        }
        while node.run_job() {}
    }
}

#[test]
fn zeroes_end_while_long_batches_are_written() {
    let disk = SlowDisk::default();
    let mut node = new_node(&disk);
    // Nothing says that much is written.
    write(&mut node, false);
    let whole = disk.new_zeroes();
    assert!(
        whole.len() >= 3 && whole.iter().skip(2).all(|bytes| *bytes == SEGMENT_BYTES),
        "{whole:?}"
    );
    write(&mut node, true);
    let parts = disk.new_zeroes();
    assert!(parts.len() >= 3 && parts.iter().skip(2).all(|bytes| *bytes < 6 * MIB), "{parts:?}");
    let written = node.read_all(key(0, 1), 1 << 20).unwrap();
    assert!(written.len() == 48 << 20 && written.iter().all(|byte| *byte == 7));
    // The log is quiet again.
    (0..11).for_each(|_| node.shards[0].tick());
    while node.run_job() {}
    disk.new_zeroes();
    write(&mut node, false);
    let whole = disk.new_zeroes();
    assert!(whole.iter().all(|bytes| *bytes == SEGMENT_BYTES), "{whole:?}");
}
