//! What a disk in memory does when it is sick.

use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_env::{Disk, DiskOperation, File, MemoryDisk, SeededRandom, is_unreadable};

fn file_of(blocks: usize) -> (MemoryDisk, Arc<dyn File>) {
    let disk = MemoryDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    let file = disk.create(Path::new("/d/f")).unwrap();
    file.write_at(&vec![7; blocks * 4096], 0).unwrap();
    (disk, file)
}

#[test]
fn an_unreadable_block_fails_every_read_of_it_until_it_is_written_whole() {
    let (disk, file) = file_of(3);
    disk.make_unreadable(Path::new("/d/f"), 1);
    let read = |at, count| file.read_exact_at(&mut vec![0; count], at);
    read(0, 4096).unwrap();
    read(8192, 4096).unwrap();
    for (at, count) in [(4096, 1), (8191, 1), (0, 4097), (4000, 8000)] {
        assert!(is_unreadable(&read(at, count).unwrap_err()), "{count} bytes at {at}");
    }
    let cached = file.read_cached_at(&mut [0], 5000).unwrap_err();
    assert_eq!(cached.kind(), io::ErrorKind::WouldBlock);
    assert!(is_unreadable(&file.write_at(&[1; 100], 5000).unwrap_err()));
    file.write_at(&[1; 4096], 4096).unwrap();
    read(0, 3 * 4096).unwrap();
}

#[test]
fn an_unreadable_block_survives_a_crash() {
    let (disk, file) = file_of(1);
    file.sync_data().unwrap();
    for dir in ["", "/", "/d"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    disk.make_unreadable(Path::new("/d/f"), 0);
    disk.crash(&mut SeededRandom::new(1));
    let file = disk.open(Path::new("/d/f")).unwrap();
    assert!(is_unreadable(&file.read_at(&mut [0], 0).unwrap_err()));
}

#[test]
fn operations_fail_as_often_as_they_are_told_to_and_change_nothing() {
    let (disk, file) = file_of(1);
    let (from, to) = (Path::new("/d/f"), Path::new("/d/g"));
    disk.fail(DiskOperation::Rename, 0, 2);
    disk.fail(DiskOperation::Read, 1, 1);
    disk.fail(DiskOperation::Open, 0, u64::MAX);
    assert!(disk.rename(from, to).is_err() && disk.rename(from, to).is_err());
    disk.rename(from, to).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    assert!(file.read_at(&mut [0], 0).is_err());
    file.read_at(&mut [0], 0).unwrap();
    assert!(disk.open(to).is_err() && disk.open(to).is_err());
    disk.fail_nothing();
    disk.open(to).unwrap();
    for operation in [DiskOperation::Remove, DiskOperation::SyncDir] {
        disk.fail(operation, 0, 1);
    }
    assert!(disk.remove(to).is_err() && disk.sync_dir(Path::new("/d")).is_err());
    disk.remove(to).unwrap();
}
