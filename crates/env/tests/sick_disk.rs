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

#[test]
fn a_disk_that_shears_sectors_destroys_what_was_in_them() {
    let garbage = |shears: bool| {
        let sheared = (0..50).filter(|seed| {
            let (disk, file) = file_of(1);
            disk.sync_dir(Path::new("/d")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            file.sync_data().unwrap();
            if shears {
                disk.shear_sectors();
            }
            // Nothing changes, and yet it is written.
            file.write_at(&[7; 512], 0).unwrap();
            disk.crash(&mut SeededRandom::new(*seed));
            let mut bytes = [0; 1024];
            disk.open(Path::new("/d/f")).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes[512..], [7; 512], "it was not written");
            bytes[..512] != [7; 512]
        });
        sheared.count()
    };
    assert_eq!(garbage(false), 0);
    assert!(garbage(true) > 3);
}

#[test]
fn what_a_failed_sync_lost_is_in_the_cache_and_not_stored() {
    let (disk, file) = file_of(1);
    file.sync_data().unwrap();
    let read = || {
        let (mut cached, mut stored) = ([0; 3], [0; 3]);
        file.read_exact_at(&mut cached, 600).unwrap();
        file.read_stored_exact_at(&mut stored, 600).unwrap();
        (cached, stored)
    };
    file.write_at(b"new", 600).unwrap();
    disk.fail_next_sync(1);
    assert!(file.sync_data().is_err());
    assert_eq!(read(), (*b"new", [7; 3]));
    file.write_at(b"new", 600).unwrap();
    file.sync_data().unwrap();
    assert_eq!(read(), (*b"new", *b"new"));
}

#[test]
fn what_a_failed_sync_lost_is_read_until_it_is_evicted_and_written_again_it_stays() {
    let (disk, file) = file_of(1);
    file.sync_data().unwrap();
    file.write_at(&[2; 4096], 0).unwrap();
    disk.fail_next_sync(1);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    let bytes = || {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(bytes(), [2; 4096], "the cache has it");
    file.write_at(&[3; 512], 0).unwrap();
    let random = &mut SeededRandom::new(1);
    (0..40).for_each(|_| disk.evict_lost_writes(random));
    assert_eq!((&bytes()[..512], &bytes()[512..]), (&[3; 512][..], &[7; 3584][..]));
}
