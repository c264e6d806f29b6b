//! A failing sync, a full disk, damage: nothing is acknowledged that is not there.

mod disk;

use disk::{files, open, read_from, try_open};
use env::{Clock, MemoryDisk, RealClock, SeededRandom};
use std::time::Duration;
use thalweg_engine::{
    Class, DamageKind, Durability, Engine, Options, ReadError, ReadLimits, WriteError,
};

const MODES: [Durability; 3] =
    [Durability::Each, Durability::Periodic(Duration::from_millis(5)), Durability::None];

#[test]
fn a_failed_sync_ends_all_acknowledgements() {
    for durability in MODES {
        let disk = MemoryDisk::new();
        let engine = open(&disk, durability);
        engine.append("a", b"before").unwrap();
        engine.sync().unwrap();
        let mut acknowledged = 1;
        let failed = loop {
            // Again and again: background work may meet the failing sync, and only tries again.
            disk.fail_next_sync(1);
            match engine.append("a", b"entry").and_then(|id| engine.sync().map(|()| id)) {
                Ok(id) => acknowledged = id + 1,
                Err(error) => break error,
            }
        };
        assert_eq!(failed.class(), Class::Fatal, "{failed}");
        assert!(failed.to_string().contains("open again"), "{failed}");
        for _ in 0..10 {
            assert!(matches!(engine.append("a", b"later"), Err(WriteError::Failed { .. })));
            assert!(matches!(engine.sync(), Err(WriteError::Failed { .. })));
        }
        assert!(matches!(engine.commit_cursor("c", "a", 0), Err(WriteError::Failed { .. })));
        drop(engine);
        disk.crash(&mut SeededRandom::new(3));
        let engine = open(&disk, durability);
        assert!(engine.tail("a") >= acknowledged, "{} < {acknowledged}", engine.tail("a"));
        engine.append("a", b"again").unwrap();
    }
}

#[test]
fn what_a_failed_sync_lost_is_written_again() {
    for seed in 0..12 {
        let disk = MemoryDisk::new();
        let engine = open(&disk, Durability::None);
        (0..50).for_each(|_| _ = engine.append("a", &[7; 300]).unwrap());
        disk.fail_next_sync(1);
        while engine.sync().is_ok() {
            // Background work met the failing sync.
            engine.append("a", b"more").unwrap();
            disk.fail_next_sync(1);
        }
        drop(engine);
        // The page cache has all of it, and takes for written what the failed sync has lost.
        disk.kill_process();
        let engine = open(&disk, Durability::None);
        let tail = engine.tail("a");
        assert!(tail >= 50);
        engine.sync().unwrap();
        disk.crash(&mut SeededRandom::new(seed));
        drop(engine);
        let engine = open(&disk, Durability::None);
        assert_eq!((engine.tail("a"), engine.damages()), (tail, [].as_slice()), "seed {seed}");
        assert_eq!(read_from(&engine, "a", 0).len() as u64, tail);
    }
}

#[test]
fn callers_that_wait_for_a_failing_sync_get_the_error() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::Each);
    let begin = || engine.begin_append("a", &[b"entry"]);
    engine.wait(begin().unwrap()).unwrap();
    let failed = (0..1_000).find_map(|_| {
        // Background work may meet the failing sync, and only tries again.
        disk.fail_next_sync(1);
        let tickets: Vec<_> = (0..100).map_while(|_| begin().ok()).collect();
        let results: Vec<_> = tickets.iter().map(|ticket| engine.wait(*ticket)).collect();
        let first = results.iter().position(Result::is_err)?;
        Some(results[first..].iter().all(Result::is_err))
    });
    assert_eq!(failed, Some(true), "nothing is acknowledged behind the sync that failed");
    assert!(begin().is_err());
}

fn fill(engine: &Engine) -> (u64, u32) {
    let (mut taken, mut refused) = (engine.tail("a"), 0);
    while refused < 20 {
        match engine.append("a", &taken.to_le_bytes().repeat(100)) {
            Ok(id) => {
                assert_eq!(id, taken);
                taken += 1;
            }
            Err(error) => {
                assert_eq!(error.class(), Class::Retry, "{error}");
                refused += 1;
            }
        }
    }
    (taken, refused)
}

#[test]
fn a_full_disk_is_an_answer_and_service_returns() {
    for durability in MODES {
        let disk = MemoryDisk::new();
        let engine = open(&disk, durability);
        engine.append("a", &0_u64.to_le_bytes().repeat(100)).unwrap();
        disk.set_capacity(disk.used_bytes() + 10_000);
        let (taken, _) = fill(&engine);
        assert!(read_from(&engine, "a", 0).len() as u64 == taken, "nothing more, nothing less");
        disk.set_capacity(None);
        // A busy machine may not get to it within one call's patience.
        let served = (0..30).find_map(|_| engine.append("a", b"with room there is service").ok());
        assert_eq!(served, Some(taken));
        drop(engine);
        let engine = open(&disk, durability);
        let found = read_from(&engine, "a", 0);
        assert_eq!(found.len() as u64, taken + 1);
        for (id, entry) in found[..found.len() - 1].iter().enumerate() {
            assert_eq!(entry[..8], (id as u64).to_le_bytes());
        }
    }
}

/// One life of 300 appends that ends with the process; what the next one finds.
fn kill_and_reopen(disk: &MemoryDisk, engine: Engine, next: Durability, life: u64) -> Engine {
    for number in life * 300..(life + 1) * 300 {
        assert_eq!(engine.append("a", &number.to_le_bytes()), Ok(number));
    }
    disk.power_off_after(0);
    drop(engine);
    disk.kill_process();
    let engine = open(disk, next);
    let found = read_from(&engine, "a", 0);
    assert_eq!(found.len() as u64, (life + 1) * 300, "after life {life}");
    assert!((0_u64..).zip(&found).all(|(number, entry)| *entry == number.to_le_bytes()));
    engine
}

#[test]
fn what_a_killed_process_wrote_is_there() {
    for first in MODES {
        for second in MODES {
            let disk = MemoryDisk::new();
            let mut engine = open(&disk, first);
            for (life, next) in (0..).zip([second, first, first]) {
                engine = kill_and_reopen(&disk, engine, next, life);
            }
            // What recovery relies on was made durable: the power may go now.
            disk.power_off_after(0);
            drop(engine);
            disk.crash(&mut SeededRandom::new(0));
            assert_eq!(open(&disk, second).tail("a"), 900, "{first:?} {second:?}");
        }
    }
}

/// Inverts the first byte of `needle`, wherever it occurs.
fn damage(disk: &MemoryDisk, needle: &[u8]) {
    use env::Disk;
    let mut count = 0;
    for path in disk.paths() {
        let Ok(file) = disk.open(&path) else { continue };
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        for at in (0..bytes.len()).filter(|&at| bytes[at..].starts_with(needle)) {
            (0..8).for_each(|bit| disk.flip_bit(&path, at as u64 * 8 + bit));
            count += 1;
        }
    }
    assert!(count > 0, "the entry is stored");
}

#[test]
fn damage_costs_the_entry_that_it_hits() {
    for durability in MODES {
        let disk = MemoryDisk::new();
        // All of it in the WAL: in a chunk a checksum covers 64 KiB, whosever bytes they are.
        let options = Options { durability, ..Options::default() };
        let engine = try_open(&disk, options.clone()).unwrap();
        let entry = |stream: &str, number: u32| format!("<{stream} {number:06}>").into_bytes();
        for number in 0..300 {
            engine.append("hit", &entry("hit", number)).unwrap();
            engine.append("other", &entry("other", number)).unwrap();
        }
        engine.close().unwrap();
        damage(&disk, &entry("hit", 299));
        damage(&disk, &entry("hit", 7));
        let engine = try_open(&disk, options).unwrap();
        let expected: Vec<_> = (0..300).map(|number| entry("other", number)).collect();
        assert_eq!(read_from(&engine, "other", 0), expected, "no other stream loses an entry");
        assert_eq!(engine.tail("hit"), 300);
        for id in 0..300 {
            let one = ReadLimits { entries_max: 1, bytes_max: 0 };
            match engine.read("hit", id, one) {
                Ok(found) => {
                    assert_eq!(found.iter().next(), Some((id, &*entry("hit", id as u32))));
                }
                Err(ReadError::Damaged { id: told, .. }) => assert_eq!(id, told),
                Err(other) => panic!("{id}: {other}"),
            }
        }
        assert!(matches!(
            engine.read("hit", 299, ReadLimits::default()),
            Err(ReadError::Damaged { .. })
        ));
        assert!(engine.damages().iter().any(|damage| damage.kind == DamageKind::EntryData));
        assert_eq!(engine.append("hit", b"later"), Ok(300));
    }
}

#[test]
fn the_wal_stays_within_its_bound() {
    for durability in MODES {
        let disk = MemoryDisk::new();
        let engine = open(&disk, durability);
        for number in 0..2_000_u32 {
            engine.append("a", &number.to_le_bytes().repeat(50)).unwrap();
        }
        assert!(files(&disk, "wal").len() <= 9, "{:?}", files(&disk, "wal"));
        assert!(engine.stats().chunks > 0);
        assert_eq!(read_from(&engine, "a", 0).len(), 2_000);
    }
}

#[test]
fn chunks_are_merged_when_the_load_has_ended() {
    const CHUNKS_MAX: u64 = 12;
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::None);
    // Each round is worth a chunk.
    for _ in 0..40 {
        for _ in 0..20 {
            engine.append("a", &[b'.'; 600]).unwrap();
        }
        engine.sync().unwrap();
        std::thread::park_timeout(Duration::from_millis(10));
    }
    // Nobody appends from here on.
    let clock = RealClock::new();
    let end = clock.now_monotonic();
    while engine.stats().chunks > CHUNKS_MAX {
        assert!(clock.now_monotonic().ms_since(end) < 60_000, "{:?}", engine.stats());
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(read_from(&engine, "a", 0).len(), 800);
}
