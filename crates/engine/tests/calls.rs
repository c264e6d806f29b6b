//! What each call answers, on a disk that nothing happens to.

mod disk;

use disk::{open, read_from, small, try_open};
use env::MemoryDisk;
use thalweg_engine::{
    BATCH_BYTES_MAX, Class, Durability, Ends, Engine, NAME_BYTES_MAX, OpenError, Options,
    ReadError, ReadLimits, WriteError,
};

const EACH: Durability = Durability::Each;

fn entry(number: u64) -> Vec<u8> {
    let length = 20 + (number * 37 % 300) as usize;
    let mut entry = format!("entry {number} ").into_bytes();
    entry.resize(length, b'.');
    entry
}

#[test]
fn ids_of_each_stream_are_contiguous_and_survive_reopening() {
    let disk = MemoryDisk::new();
    for life in 0..4_u64 {
        let engine = open(&disk, EACH);
        assert_eq!(engine.damages(), []);
        for number in life * 300..(life + 1) * 300 {
            assert_eq!(engine.append("a", &entry(number)), Ok(number));
            assert_eq!(engine.append("b", &entry(number + 1)), Ok(number));
        }
        let expected: Vec<_> = (0..(life + 1) * 300).map(entry).collect();
        assert_eq!(read_from(&engine, "a", 0), expected);
        assert_eq!(read_from(&engine, "b", 7).len() as u64, (life + 1) * 300 - 7);
        engine.close().unwrap();
    }
    assert_eq!(open(&disk, EACH).streams(), ["a", "b"]);
}

#[test]
fn any_id_is_found_in_the_wal_and_in_chunks() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, EACH);
    let mut next = 0;
    // Frames of very uneven size: the search must not rely on even ones.
    while next < 1_000 {
        let count = if next % 7 == 0 { 40 } else { 1 };
        let batch: Vec<Vec<u8>> = (next..next + count).map(entry).collect();
        let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
        assert_eq!(engine.append_batch("a", &batch), Ok(next));
        next += count;
    }
    for step in 0..next {
        let id = step * 389 % next;
        let one = ReadLimits { entries_max: 1, ..ReadLimits::default() };
        let entries = engine.read("a", id, one).unwrap();
        assert_eq!(entries.iter().collect::<Vec<_>>(), [(id, entry(id).as_slice())]);
    }
}

#[test]
fn a_read_ends_at_its_limits_and_returns_one_entry_at_least() {
    let engine = open(&MemoryDisk::new(), EACH);
    let batch: Vec<Vec<u8>> = (0..10).map(|byte| vec![byte; 100]).collect();
    let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    engine.append_batch("a", &batch).unwrap();
    let count = |entries_max, bytes_max| {
        engine.read("a", 2, ReadLimits { entries_max, bytes_max }).unwrap().len()
    };
    assert_eq!(count(3, 10_000), 3);
    assert_eq!(count(100, 250), 2);
    assert_eq!(count(100, 0), 1);
    assert_eq!(count(100, 10_000), 8);
    let at_tail = engine.read("a", 10, ReadLimits::default()).unwrap();
    assert_eq!((at_tail.len(), at_tail.next_id()), (0, 10));
}

#[test]
fn empty_and_large_entries_come_back() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, EACH);
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    engine.append("a", b"").unwrap();
    engine.append("a", &large).unwrap();
    engine.append("a", b"after").unwrap();
    engine.close().unwrap();
    let engine = open(&disk, EACH);
    assert_eq!(engine.append("a", b"later"), Ok(3));
    let found = read_from(&engine, "a", 0);
    assert!(found[1] == large);
    assert_eq!((&*found[0], &*found[2], &*found[3]), (&b""[..], &b"after"[..], &b"later"[..]));
}

#[test]
fn cursors_are_kept_exactly() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, EACH);
    for number in 0..900 {
        engine.append("a", &entry(number)).unwrap();
    }
    engine.commit_cursor("one", "a", 900).unwrap();
    engine.commit_cursor("two", "a", 500).unwrap();
    engine.commit_cursor("two", "a", 13).unwrap();
    assert_eq!(engine.cursor("three", "a"), 0);
    drop(engine);
    let engine = open(&disk, EACH);
    assert_eq!((engine.cursor("one", "a"), engine.cursor("two", "a")), (900, 13));
    let past = engine.commit_cursor("one", "a", 901);
    assert_eq!(past, Err(WriteError::PastTail { id: 901, tail: 900 }));
    let missing = engine.commit_cursor("one", "b", 0);
    assert_eq!(missing, Err(WriteError::NoStream { stream: "b".to_owned() }));
}

#[test]
fn a_trim_drops_what_lies_before_and_nothing_else() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, EACH);
    for number in 0..500 {
        engine.append_batch("a", &[&entry(2 * number), &entry(2 * number + 1)]).unwrap();
    }
    // In the middle of a batch.
    engine.trim("a", 501).unwrap();
    engine.trim("a", 300).unwrap();
    let mut engine = Some(engine);
    for _life in 0..2 {
        let engine = engine.take().unwrap_or_else(|| open(&disk, EACH));
        assert_eq!(engine.ends("a"), Ends { head: 501, tail: 1000 });
        let expected: Vec<_> = (501..1000).map(entry).collect();
        assert_eq!(read_from(&engine, "a", 501), expected);
        let trimmed = engine.read("a", 500, ReadLimits::default()).unwrap_err();
        assert!(matches!(trimmed, ReadError::Trimmed { id: 500, head: 501 }), "{trimmed}");
        engine.close().unwrap();
    }
    let engine = open(&disk, EACH);
    engine.trim("a", 1000).unwrap();
    assert_eq!(engine.append("a", b"next"), Ok(1000));
    assert_eq!(read_from(&engine, "a", 1000), [b"next"]);
}

#[test]
fn refusals_say_what_and_change_nothing() {
    let engine = open(&MemoryDisk::new(), EACH);
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    assert_eq!(engine.append("", b""), Err(WriteError::Name { length_bytes: 0 }));
    assert_eq!(engine.append(&long, b""), Err(WriteError::Name { length_bytes: 256 }));
    assert_eq!(engine.append_batch("a", &[]), Err(WriteError::EmptyBatch));
    let large = vec![0; BATCH_BYTES_MAX - 15];
    let refused = engine.append("a", &large).unwrap_err();
    assert_eq!(refused, WriteError::TooLarge { bytes: BATCH_BYTES_MAX as u64 + 1 });
    assert_eq!(refused.class(), Class::Rejected);
    assert!(refused.to_string().contains("67108865"), "{refused}");
    assert_eq!(engine.streams(), Vec::<String>::new());
    let missing = engine.read("a", 0, ReadLimits::default()).unwrap_err();
    assert!(matches!(missing, ReadError::NoStream { .. }));
    engine.append("a", b"x").unwrap();
    let past = engine.read("a", 2, ReadLimits::default()).unwrap_err();
    assert!(matches!(past, ReadError::PastTail { id: 2, tail: 1 }));
}

#[test]
fn a_closed_engine_takes_nothing_and_still_reads() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, EACH);
    engine.append("a", b"x").unwrap();
    engine.clone().close().unwrap();
    assert_eq!(engine.append("a", b"y"), Err(WriteError::Closed));
    assert_eq!(read_from(&engine, "a", 0), [b"x"]);
    let held = try_open(&disk, small(EACH)).unwrap_err();
    assert!(matches!(held, OpenError::Log(_)), "{held}");
    drop(engine);
    open(&disk, EACH);
}

#[test]
fn bad_options_are_refused_before_anything_is_made() {
    let disk = MemoryDisk::new();
    let error = try_open(&disk, Options { segment_bytes: 1, ..Options::default() }).unwrap_err();
    assert!(error.to_string().contains("segment_bytes is 1"), "{error}");
    assert_eq!(disk.paths(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn begun_appends_are_in_order_and_waited_for() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, EACH);
    let begin = |number| engine.begin_append("a", &[&entry(number)]).unwrap();
    let tickets: Vec<_> = (0..2_000).map(begin).collect();
    for (number, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(engine.wait(ticket), Ok(number as u64));
    }
    let expected: Vec<_> = (0..2_000).map(entry).collect();
    assert_eq!(read_from(&engine, "a", 0), expected);
    let _: Engine = engine;
}
