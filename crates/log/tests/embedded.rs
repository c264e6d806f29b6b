//! The blocking face: what returned is durable, and comes back.

mod face;

use env::{Disk, MemoryDisk, SeededRandom};
use face::{AT, open, small};
use model::{ByteOffset, StreamId};
use std::path::Path;
use thalweg_log::LogOptions;

#[test]
fn appends_trims_and_batches_survive_a_power_cut() {
    let disk = MemoryDisk::new();
    let (one, two) = (StreamId::new(1), StreamId::new(2));
    let mut log = open(&disk, small());
    assert_eq!(disk.list(Path::new("/data/chunks")).unwrap(), ["00000"], "there is one group");
    assert_eq!(log.append(one, AT, b"hello ").unwrap(), ByteOffset::new(6));
    let tails = log.append_batch(AT, &[(one, b"world"), (two, b"!")]).unwrap();
    assert_eq!(tails, [ByteOffset::new(11), ByteOffset::new(1)]);
    log.trim(one, AT, ByteOffset::new(6)).unwrap();
    drop(log);
    disk.crash(&mut SeededRandom::new(1));
    let log = open(&disk, small());
    assert_eq!(&log.read(one, ByteOffset::new(6), 100).unwrap()[..], b"world");
    assert!(log.read(one, ByteOffset::ZERO, 100).is_err());
    assert_eq!(log.tail(two), ByteOffset::new(1));
    assert!(log.read(StreamId::new(9), ByteOffset::ZERO, 5).unwrap().is_empty());
    log.close().unwrap();
}

#[test]
fn a_long_history_goes_through_chunks_and_checkpoints() {
    let disk = MemoryDisk::new();
    let stream = StreamId::new(1);
    let mut log = open(&disk, small());
    let mut expected = Vec::new();
    for number in 0..1500_u32 {
        let data = number.to_le_bytes().repeat(150);
        log.append(stream, AT, &data).unwrap();
        expected.extend(data);
    }
    log.close().unwrap();
    let log = open(&disk, small());
    let mut found = Vec::new();
    while found.len() < expected.len() {
        found.extend(log.read(stream, ByteOffset::new(found.len() as u64), 50_000).unwrap());
    }
    assert!(found == expected);
    assert_eq!(log.damages(), []);
}

#[test]
fn short_appends_that_are_far_apart_are_read_for_a_bounded_price() {
    const COUNT: u32 = 500;
    let disk = MemoryDisk::new();
    let (thin, thick) = (StreamId::new(1), StreamId::new(2));
    let mut log = open(&disk, LogOptions::default());
    for number in 0..COUNT {
        log.append(thin, AT, &number.to_le_bytes()).unwrap();
        log.append(thick, AT, &[7; 6_000]).unwrap();
    }
    let window = 64 << 10;
    let expected: Vec<u8> = (0..COUNT).flat_map(u32::to_le_bytes).collect();
    let mut found = Vec::new();
    while found.len() < expected.len() {
        let piece = log.read(thin, ByteOffset::new(found.len() as u64), window).unwrap();
        // Four windows' worth of the file hold so many of its entries, which are 6,000 bytes and more apart.
        assert!((4..=4 * (4 * window / 6_000 + 1)).contains(&piece.len()), "{}", piece.len());
        found.extend_from_slice(&piece);
    }
    assert_eq!(found, expected);
    let short = log.read(thin, ByteOffset::new(0), 60).unwrap();
    assert_eq!(short, expected[..60], "a short answer comes at once");
    let whole = log.read(thick, ByteOffset::new(0), window).unwrap();
    assert!(whole.len() > window - 6_000, "long ones fill their window: {}", whole.len());
}
