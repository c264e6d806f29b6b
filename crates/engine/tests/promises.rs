//! What other embedded logs were seen to break, tried on this one. `docs/history/other-systems.md`
//! names the failures; each test here fails if we get one of them.

mod disk;

use disk::{files, open, read_from, small, try_open};
use env::{Disk, MemoryDisk, Random, SeededRandom};
use std::path::PathBuf;
use thalweg_engine::{Durability, Engine, Options, ReadLimits, WriteError};

fn power_cut(engine: Engine, disk: &MemoryDisk, seed: u64) {
    // What stops the engine's threads writes nothing that the cut could miss.
    disk.power_off_after(0);
    drop(engine);
    disk.crash(&mut SeededRandom::new(seed));
}

fn reopen(disk: &MemoryDisk) -> Engine {
    disk.power_off_after(None);
    open(disk, Durability::Each)
}

#[test]
fn appends_trims_and_batches_survive_a_power_cut() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::Each);
    assert_eq!(engine.append("one", b"hello "), Ok(0));
    assert_eq!(engine.append_batch("one", &[b"wor", b"ld"]), Ok(1));
    assert_eq!(engine.append("two", b"!"), Ok(0));
    engine.trim("one", 1).unwrap();
    power_cut(engine, &disk, 1);
    let engine = reopen(&disk);
    assert_eq!(read_from(&engine, "one", 1), [b"wor".to_vec(), b"ld".to_vec()]);
    assert!(engine.read("one", 0, ReadLimits::default()).is_err(), "it was trimmed");
    assert_eq!((engine.tail("two"), engine.tail("none")), (1, 0));
    engine.close().unwrap();
}

#[test]
fn a_long_history_goes_through_chunks_and_checkpoints() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::Each);
    let entry = |number: u32| number.to_le_bytes().repeat(150);
    for number in 0..1500 {
        engine.append("s", &entry(number)).unwrap();
    }
    assert!(engine.stats().chunks > 0);
    engine.close().unwrap();
    assert!(!files(&disk, "ckpt").is_empty());
    let engine = reopen(&disk);
    let expected: Vec<_> = (0..1500).map(entry).collect();
    assert!(read_from(&engine, "s", 0) == expected);
    assert_eq!(engine.damages(), []);
}

#[test]
fn a_full_disk_refuses_appends_and_keeps_every_one_that_it_took() {
    let disk = MemoryDisk::new();
    let engine = try_open(&disk, small(Durability::Each)).unwrap();
    engine.append("s", &[0; 900]).unwrap();
    disk.set_capacity(disk.used_bytes());
    let (mut taken, mut refused) = (1, 0);
    // As long as it takes to be refused many times: not one of them may be acknowledged.
    while refused < 12 {
        match engine.append("s", &[7; 900]) {
            Ok(id) => {
                assert_eq!(id, taken);
                taken += 1;
            }
            Err(WriteError::DiskFull | WriteError::Busy { .. }) => refused += 1,
            Err(other) => panic!("a full disk is an answer: {other}"),
        }
    }
    assert_eq!(read_from(&engine, "s", 0).len() as u64, taken);
    power_cut(engine, &disk, 1);
    disk.set_capacity(None);
    let engine = reopen(&disk);
    assert_eq!(engine.damages(), []);
    assert_eq!(read_from(&engine, "s", 0).len() as u64, taken, "what was taken, and no more");
    assert_eq!(engine.append("s", &[1; 900]), Ok(taken), "with room there is service");
}

#[test]
fn an_entry_of_25_mib_and_what_follows_it_survive_clean_restarts() {
    let disk = MemoryDisk::new();
    let options =
        Options { segment_bytes: 8 << 20, wal_bytes_max: 256 << 20, ..Options::default() };
    let reopen = || try_open(&disk, options.clone()).unwrap();
    let engine = reopen();
    let entry: Vec<u8> = (0..25_u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    engine.append("other", b"before").unwrap();
    engine.append("large", &entry).unwrap();
    for _ in 0..100 {
        engine.append("other", b"after").unwrap();
    }
    engine.close().unwrap();
    for _ in 0..3 {
        let engine = reopen();
        assert_eq!(engine.damages(), []);
        assert!(read_from(&engine, "large", 0) == [entry.as_slice()], "the large entry is whole");
        let other = read_from(&engine, "other", 0);
        assert_eq!((other.len(), other[0].as_slice()), (101, &b"before"[..]));
        assert!(other[1..].iter().all(|entry| entry == b"after"));
        engine.close().unwrap();
    }
}

/// Length of the records below.
const RECORD_BYTES: usize = 100;

fn record(stream: u8, number: u32) -> Vec<u8> {
    let mut record = format!("stream {stream} record {number:06} ").into_bytes();
    record.resize(RECORD_BYTES, b'.');
    record
}

fn records(stream: u8, count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| record(stream, number)).collect()
}

/// Where `needle` is in the files of the disk.
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
fn flip_byte_of(number: u32, options: &Options) {
    let disk = MemoryDisk::new();
    let engine = try_open(&disk, options.clone()).unwrap();
    for number in 0..1_000 {
        engine.append("hit", &record(1, number)).unwrap();
        engine.append("other", &record(2, number)).unwrap();
    }
    engine.close().unwrap();
    let places = find(&disk, &record(1, number));
    assert!(!places.is_empty(), "the record is stored");
    for (path, at) in places {
        (0..8).for_each(|bit| disk.flip_bit(&path, (at + 40) * 8 + bit));
    }
    let engine = try_open(&disk, options.clone()).unwrap();
    assert!(read_from(&engine, "other", 0) == records(2, 1_000), "no other stream loses an entry");
    assert_eq!(engine.tail("hit"), 1_000, "nothing moves");
    let one = ReadLimits { entries_max: 1, ..ReadLimits::default() };
    engine.read("hit", u64::from(number), one).expect_err("damage is reported, not served");
    let last = engine.read("hit", 999, one).unwrap();
    assert_eq!(last.iter().next(), Some((999, &*record(1, 999))), "what follows is there");
}

#[test]
fn one_flipped_byte_of_a_stream_costs_no_other_stream_an_entry() {
    let roomy = Options { segment_bytes: 1 << 20, wal_bytes_max: 64 << 20, ..Options::default() };
    for number in [0, 500, 990] {
        flip_byte_of(number, &roomy);
    }
    let sealed = Options { wait_ms_max: 20_000, ..small(Durability::Each) };
    flip_byte_of(10, &sealed);
}

/// What a reader keeps: results, and how far it has come.
fn take_ten(engine: &Engine) -> Result<(), WriteError> {
    let from = engine.cursor("reader", "source");
    let limits = ReadLimits { entries_max: 10, ..ReadLimits::default() };
    let entries = engine.read("source", from, limits).map_err(|_| WriteError::Closed)?;
    let taken: Vec<&[u8]> = entries.iter().map(|(_, entry)| entry).collect();
    // Results of a part that is not committed are made again, from the same place.
    let skip = engine.tail("results").saturating_sub(from) as usize;
    if let Some(missing) = taken.get(skip..).filter(|missing| !missing.is_empty()) {
        engine.append_batch("results", missing)?;
    }
    engine.commit_cursor("reader", "source", entries.next_id())
}

#[test]
fn a_durable_cursor_survives_reopening_and_reads_on_exactly_there() {
    let disk = MemoryDisk::new();
    let mut engine = open(&disk, Durability::Each);
    for number in 0..1_000 {
        engine.append("source", &record(1, number)).unwrap();
    }
    for round in 0..60 {
        take_ten(&engine).unwrap();
        let before = engine.cursor("reader", "source");
        match round % 3 {
            0 => engine.close().unwrap(),
            1 => drop(engine),
            _ => {
                // The power goes at some step of the next ten.
                disk.power_off_after(round / 3 % 6);
                let _ = take_ten(&engine);
                power_cut(engine, &disk, round);
            }
        }
        engine = reopen(&disk);
        let after = engine.cursor("reader", "source");
        let steps = (after - before) / 10;
        assert!(steps <= u64::from(round % 3 == 2), "what was saved is saved, and nothing else");
        assert!(engine.tail("results") >= after, "no cursor is ahead of its results");
    }
    let found = read_from(&engine, "results", 0);
    assert!(found.len() >= 600 && records(1, 1_000).starts_with(&found));
}

#[test]
fn appends_and_batches_that_compete_for_one_stream_all_get_through() {
    const WRITERS: u64 = 8;
    const RECORDS: u32 = 200;
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::Each);
    let mut random = SeededRandom::new(7);
    let mut next = [0_u32; WRITERS as usize];
    while next.iter().any(|number| *number < RECORDS) {
        let writer = (random.next_u64() % WRITERS) as u8;
        let number = &mut next[usize::from(writer)];
        let (first, second) = (record(writer, *number), record(writer, *number + 1));
        *number += 2;
        if writer.is_multiple_of(2) {
            engine.append_batch("s", &[&first, &second]).unwrap();
        } else {
            engine.append("s", &first).unwrap();
            engine.append("s", &second).unwrap();
        }
    }
    power_cut(engine, &disk, 5);
    let engine = reopen(&disk);
    let mut seen = [0_u32; WRITERS as usize];
    for entry in read_from(&engine, "s", 0) {
        let writer = entry[7] - b'0';
        let number = &mut seen[usize::from(writer)];
        assert_eq!(entry, record(writer, *number), "each writer's records in order, each once");
        *number += 1;
    }
    assert_eq!(seen, next);
}
