//! Engines on a simulated disk, small enough that a short test goes through every kind of file.

#![allow(dead_code, reason = "each test program uses a part of this")]

use env::{Disk, MemoryDisk, RealClock, RealRandom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_engine::{Driver, Durability, Engine, OpenError, Options, ReadLimits};

pub(crate) const DIR: &str = "/engine";

pub(crate) fn small(durability: Durability) -> Options {
    Options {
        durability,
        segment_bytes: 64 << 10,
        wal_bytes_max: 512 << 10,
        seal_bytes: 8 << 10,
        wait_ms_max: 500,
    }
}

pub(crate) fn try_open(disk: &MemoryDisk, options: Options) -> Result<Engine, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (clock, random) = (Arc::new(RealClock::new()), &mut RealRandom);
    Engine::open_on(disk, clock, random, Path::new(DIR), options)
}

/// Without threads.
pub(crate) fn open_driven(disk: &MemoryDisk, options: Options) -> (Engine, Driver) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (clock, random) = (Arc::new(RealClock::new()), &mut RealRandom);
    Engine::open_driven(disk, clock, random, Path::new(DIR), options).unwrap()
}

/// The files whose names end in `extension`.
pub(crate) fn files(disk: &MemoryDisk, extension: &str) -> Vec<PathBuf> {
    let has_it = |path: &PathBuf| path.extension().is_some_and(|end| end == extension);
    disk.paths().into_iter().filter(has_it).collect()
}

/// Patient: on a busy machine background work may take its time, which is no failure.
pub(crate) fn open(disk: &MemoryDisk, durability: Durability) -> Engine {
    try_open(disk, Options { wait_ms_max: 20_000, ..small(durability) }).unwrap()
}

/// All entries of a stream from `from` to its tail.
pub(crate) fn read_from(engine: &Engine, stream: &str, from: u64) -> Vec<Vec<u8>> {
    let (mut next, mut found) = (from, Vec::new());
    while next < engine.tail(stream) {
        let entries = engine.read(stream, next, ReadLimits::default()).unwrap();
        assert!(!entries.is_empty(), "{next} lies before the tail");
        for (id, entry) in entries.iter() {
            assert_eq!(id, from + found.len() as u64, "ids are contiguous");
            found.push(entry.to_vec());
        }
        next = entries.next_id();
    }
    found
}

/// A disk with the same files, all of them durable.
pub(crate) fn copy(disk: &MemoryDisk) -> MemoryDisk {
    let copy = MemoryDisk::new();
    for path in disk.paths() {
        let from = disk.open(&path).unwrap();
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_exact_at(&mut bytes, 0).unwrap();
        copy.create_dir_all(path.parent().unwrap()).unwrap();
        let to = copy.create(&path).unwrap();
        to.write_at(&bytes, 0).unwrap();
        to.sync_all().unwrap();
        path.ancestors().skip(1).for_each(|dir| copy.sync_dir(dir).unwrap());
    }
    copy
}
