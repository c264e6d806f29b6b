//! What other embedded logs were seen to break, tried on this one.
//! `docs/history/other-systems.md` names the failures; each test here fails if we get one of them.

mod face;

use env::{Disk, MemoryDisk, SeededRandom};
use face::{AT, open, small};
use model::{ByteOffset, StreamId};
use std::path::PathBuf;
use thalweg_log::{AppendError, EmbeddedError, EmbeddedLog, LogOptions};

/// All bytes of a stream up to its tail.
fn read_all(log: &EmbeddedLog, stream: StreamId) -> Vec<u8> {
    let tail = log.tail(stream).get();
    let mut found = Vec::new();
    while (found.len() as u64) < tail {
        let from = ByteOffset::new(found.len() as u64);
        let piece = log.read(stream, from, 1 << 20).unwrap();
        assert!(!piece.is_empty(), "{from} is below the tail {tail}");
        found.extend_from_slice(&piece);
    }
    found
}

fn power_cut(log: EmbeddedLog, disk: &MemoryDisk, seed: u64) {
    drop(log);
    disk.crash(&mut SeededRandom::new(seed));
}

#[test]
fn a_full_disk_refuses_appends_and_keeps_every_one_that_it_took() {
    let disk = MemoryDisk::new();
    let stream = StreamId::new(1);
    let mut log = open(&disk, small());
    log.append(stream, AT, &[0; 900]).unwrap();
    disk.set_capacity(disk.used_bytes());
    let mut taken = 1_u64;
    let mut refused = 0;
    // As long as it takes to be refused many times in a row: not one of them may be acknowledged.
    for number in 0..2_000_u32 {
        match log.append(stream, AT, &[number as u8; 900]) {
            Ok(tail) => {
                taken += 1;
                assert_eq!(tail.get(), taken * 900);
            }
            Err(EmbeddedError::Append(AppendError::DiskFull)) => refused += 1,
            Err(EmbeddedError::Append(AppendError::Backpressure)) => refused += 1,
            Err(other) => panic!("a full disk is an answer: {other}"),
        }
    }
    assert!(refused > 1_000, "{refused} refusals, {taken} taken");
    assert_eq!(read_all(&log, stream).len() as u64, taken * 900);
    power_cut(log, &disk, 1);
    disk.set_capacity(u64::MAX);
    let mut log = open(&disk, small());
    assert_eq!(log.damages(), []);
    assert_eq!(read_all(&log, stream).len() as u64, taken * 900, "what was taken, and no more");
    log.append(stream, AT, &[1; 900]).expect("with room there is service");
}

#[test]
fn an_entry_of_25_mib_and_what_follows_it_survive_clean_restarts() {
    let disk = MemoryDisk::new();
    let (large, other) = (StreamId::new(1), StreamId::new(2));
    let options = || LogOptions { segment_bytes: 8 << 20, wal_bytes_max: 256 << 20, ..small() };
    let mut log = open(&disk, options());
    let entry: Vec<u8> = (0..25_u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    log.append(other, AT, b"before,").unwrap();
    log.append(large, AT, &entry).unwrap();
    for _ in 0..100 {
        log.append(other, AT, b"after,").unwrap();
    }
    let expected = [b"before,".as_slice(), &b"after,".repeat(100)].concat();
    log.close().unwrap();
    for _ in 0..3 {
        let log = open(&disk, options());
        assert_eq!(log.damages(), []);
        assert!(read_all(&log, large) == entry, "the large entry is whole");
        assert_eq!(read_all(&log, other), expected);
        log.close().unwrap();
    }
}

/// Length of the records below.
const RECORD_BYTES: usize = 100;

fn record(stream: u8, number: u32) -> Vec<u8> {
    let mut record = format!("stream {stream} record {number:06} ").into_bytes();
    record.resize(RECORD_BYTES, b'.');
    record
}

/// Where `needle` stands in the files of the disk.
fn find(disk: &MemoryDisk, needle: &[u8]) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for path in disk.paths() {
        let Ok(file) = disk.open(&path) else { continue };
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        let length = file.read_at(&mut bytes, 0).unwrap();
        let places = bytes[..length].windows(needle.len()).enumerate();
        let places = places.filter(|(_, window)| window == &needle);
        found.extend(places.map(|(at, _)| (path.clone(), at as u64)));
    }
    found
}

/// Flips all bits of one byte of record `number` of stream 1, wherever it is stored, and compares
/// what two streams of 1,000 records each have left.
fn flip_byte_of(number: u32, is_sealed: bool) {
    let disk = MemoryDisk::new();
    let (hit, other) = (StreamId::new(1), StreamId::new(2));
    let roomy = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let options = || if is_sealed { small() } else { roomy.clone() };
    let mut log = open(&disk, options());
    for number in 0..1_000 {
        log.append(hit, AT, &record(1, number)).unwrap();
        log.append(other, AT, &record(2, number)).unwrap();
    }
    log.close().unwrap();
    let places = find(&disk, &record(1, number));
    assert!(!places.is_empty(), "the record is stored");
    for (path, at) in places {
        (0..8).for_each(|bit| disk.flip_bit(&path, (at + 40) * 8 + bit));
    }
    let log = open(&disk, options());
    let expected: Vec<u8> = (0..1_000).flat_map(|number| record(2, number)).collect();
    assert!(read_all(&log, other) == expected, "no other stream loses a byte");
    assert_eq!(log.tail(hit).get(), 1_000 * RECORD_BYTES as u64, "nothing moves");
    let from = ByteOffset::new(u64::from(number) * RECORD_BYTES as u64);
    log.read(hit, from, RECORD_BYTES).expect_err("damage is told, not served");
    let last = ByteOffset::new(999 * RECORD_BYTES as u64);
    assert_eq!(log.read(hit, last, RECORD_BYTES).unwrap(), record(1, 999), "what follows is there");
}

#[test]
fn one_flipped_byte_of_a_stream_costs_no_other_stream_an_entry() {
    for number in [0, 500, 990] {
        flip_byte_of(number, false);
    }
    flip_byte_of(10, true);
    assert_eq!(record(1, 0).len(), RECORD_BYTES);
}

/// The offset that a reader saved last, from a stream of its own.
fn saved_offset(log: &EmbeddedLog, saves: StreamId) -> Result<ByteOffset, EmbeddedError> {
    let tail = log.tail(saves).get();
    let Some(from) = tail.checked_sub(8) else { return Ok(ByteOffset::ZERO) };
    let bytes = log.read(saves, ByteOffset::new(from), 8)?;
    Ok(ByteOffset::new(u64::from_le_bytes(bytes[..].try_into().unwrap())))
}

/// What a reader keeps: results, and how far it has come, in one batch.
fn take_ten(log: &mut EmbeddedLog) -> Result<(), EmbeddedError> {
    let (source, saves, results) = (StreamId::new(1), StreamId::new(2), StreamId::new(3));
    let from = saved_offset(log, saves)?;
    let records = log.read(source, from, 10 * RECORD_BYTES)?;
    let to = from.advance(records.len() as u64).get().to_le_bytes();
    log.append_batch(AT, &[(results, &records), (saves, &to)]).map(drop)
}

#[test]
fn a_saved_offset_survives_reopening_and_reads_on_exactly_there() {
    let disk = MemoryDisk::new();
    let (source, saves, results) = (StreamId::new(1), StreamId::new(2), StreamId::new(3));
    let mut log = open(&disk, small());
    for number in 0..1_000 {
        log.append(source, AT, &record(1, number)).unwrap();
    }
    for round in 0..60 {
        take_ten(&mut log).unwrap();
        let before = saved_offset(&log, saves).unwrap();
        match round % 3 {
            0 => log.close().unwrap(),
            1 => drop(log),
            _ => {
                // The power goes at some step of the next ten.
                disk.power_off_after(round / 3 % 4);
                let _ = take_ten(&mut log);
                power_cut(log, &disk, round);
            }
        }
        log = open(&disk, small());
        let after = saved_offset(&log, saves).unwrap();
        let steps = (after.get() - before.get()) / (10 * RECORD_BYTES as u64);
        assert!(steps <= u64::from(round % 3 == 2), "what was saved is saved, and nothing else");
        assert_eq!(log.tail(results), after, "results and offset: both or neither");
    }
    let expected: Vec<u8> = (0..1_000).flat_map(|number| record(1, number)).collect();
    let found = read_all(&log, results);
    assert!(found.len() >= 60 * 10 * RECORD_BYTES && expected.starts_with(&found));
}

#[test]
fn appends_and_batches_that_compete_for_one_stream_all_get_through() {
    const WRITERS: u64 = 8;
    const RECORDS: u32 = 200;
    let disk = MemoryDisk::new();
    let stream = StreamId::new(1);
    let mut log = open(&disk, small());
    let mut random = SeededRandom::new(7);
    let mut next = [0_u32; WRITERS as usize];
    // The log has one owner: writers come in any order, and not one of them is sent away.
    while next.iter().any(|number| *number < RECORDS) {
        let writer = random.below(WRITERS) as u8;
        let number = &mut next[usize::from(writer)];
        let (first, second) = (record(writer, *number), record(writer, *number + 1));
        *number += 2;
        if writer.is_multiple_of(2) {
            log.append_batch(AT, &[(stream, &first), (stream, &second)]).unwrap();
        } else {
            log.append(stream, AT, &first).unwrap();
            log.append(stream, AT, &second).unwrap();
        }
    }
    power_cut(log, &disk, 5);
    let found = read_all(&open(&disk, small()), stream);
    let mut seen = [0_u32; WRITERS as usize];
    for piece in found.chunks(RECORD_BYTES) {
        let writer = piece[7] - b'0';
        let number = &mut seen[usize::from(writer)];
        assert_eq!(piece, record(writer, *number), "each writer's records in order, each once");
        *number += 1;
    }
    assert_eq!(seen, next);
}
