//! What a newer version has written into spare bytes of the log refuses the start, and nothing is lost.

use crate::support::{Node, files, key, wal};
use env::{Disk, MemoryDisk};
use std::ops::Range;
use std::path::{Path, PathBuf};
use thalweg_log::OpenError;

/// Spare bytes: docs/format/wal.md.
const BATCH_SPARE: Range<u64> = 56..60;
/// The first one says what a record is; none that has a command or data is a note.
const ENTRY_SPARE: [u64; 3] = [55, 58, 59];

/// Spare bytes of a chunk's header, and its length: docs/format/chunk.md.
const CHUNK_SPARE: Range<u64> = 114..124;
const CHUNK_HEADER: usize = 128;

/// A directory with three batches of one append each.
fn written() -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for data in [&b"one"[..], b"two", b"three"] {
        node.append(key(0, 1), data).unwrap();
        node.commit().unwrap();
    }
    node.stop();
    let path = files(&disk, "wal").remove(0);
    (disk, path)
}

fn bytes_at<const N: usize>(disk: &MemoryDisk, path: &Path, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    disk.open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// Sets a byte of a header, under a right checksum.
fn set(disk: &MemoryDisk, path: &Path, (header, spare): (u64, u64), seed: &[u8]) {
    let mut bytes: [u8; 64] = bytes_at(disk, path, header);
    bytes[spare as usize] = 1;
    let crc = crc32c::crc32c_append(crc32c::crc32c(seed), &bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    disk.open(path).unwrap().write_at(&bytes, header).unwrap();
}

fn assert_refused(disk: &MemoryDisk, path: &Path, header: u64) {
    match Node::open(disk, 1).map(|_| ()) {
        Err(error @ OpenError::Newer { .. }) => {
            let said = error.to_string();
            assert!(said.contains(&path.display().to_string()), "{said}");
            assert!(said.contains(&format!("at byte {header}")), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn spare_bytes_of_batches_and_entries_are_a_newer_versions() {
    let (disk, path) = written();
    let store: [u8; 8] = bytes_at(&disk, Path::new("/data/FORMAT"), 12);
    for batch in (0..3).map(wal::batch) {
        let intact: [u8; 4096] = bytes_at(&disk, &path, batch);
        for spare in BATCH_SPARE {
            set(&disk, &path, (batch, spare), &store);
            assert_refused(&disk, &path, batch);
            disk.open(&path).unwrap().write_at(&intact, batch).unwrap();
        }
        let entry = batch + wal::entry_header(0);
        let segment: [u8; 8] = bytes_at(&disk, &path, batch + wal::SEGMENT);
        let number: [u8; 8] = bytes_at(&disk, &path, batch + wal::BATCH_NUMBER);
        let seed = [&store[..], &segment, &number, &[0; 4]].concat();
        for spare in ENTRY_SPARE {
            set(&disk, &path, (entry, spare), &seed);
            // A newer version writes both copies alike.
            disk.flip_bit(&path, (batch + 4096 - 64) * 8);
            disk.flip_bit(&path, (batch + 4096 - 63) * 8);
            assert_refused(&disk, &path, entry);
            disk.open(&path).unwrap().write_at(&intact, batch).unwrap();
        }
    }
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.read_all(key(0, 1), 100).unwrap(), b"onetwothree");
}

#[test]
fn spare_bytes_and_later_versions_of_chunks_are_a_newer_versions() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), &[7; 9000]).unwrap();
    node.commit().unwrap();
    node.work().unwrap();
    let lineage = node.report.lineage.to_le_bytes();
    node.stop();
    let path = files(&disk, "chunk").remove(0);
    let file = disk.open(&path).unwrap();
    let footer = file.len().unwrap() - CHUNK_HEADER as u64;
    let intact: [u8; CHUNK_HEADER] = bytes_at(&disk, &path, 0);
    // The version is at byte 4.
    for (at, value) in CHUNK_SPARE.map(|at| (at, 1)).chain([(4, 3)]) {
        let mut bytes = intact;
        bytes[at as usize] = value;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&lineage), &bytes[..124]);
        bytes[124..].copy_from_slice(&crc.to_le_bytes());
        // A newer version writes both copies alike.
        [0, footer].iter().for_each(|header| file.write_at(&bytes, *header).unwrap());
        assert_refused(&disk, &path, 0);
        file.write_at(&[0; CHUNK_HEADER], 0).unwrap();
        assert_refused(&disk, &path, footer);
    }
    [0, footer].iter().for_each(|header| file.write_at(&intact, *header).unwrap());
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.read_all(key(0, 1), 10_000).unwrap(), [7; 9000]);
}
