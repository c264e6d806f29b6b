//! Many threads, real files, two processes.

use crate::{Durability, Engine, OpenError, Options, ReadLimits};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MODES: [Durability; 3] =
    [Durability::Each, Durability::Periodic(Duration::from_millis(5)), Durability::None];

fn options(durability: Durability) -> Options {
    Options {
        durability,
        segment_bytes: 1 << 20,
        wal_bytes_max: 8 << 20,
        seal_bytes: 256 << 10,
        ..Options::default()
    }
}

fn entry(thread: u64, number: u64) -> Vec<u8> {
    let mut entry = [thread.to_le_bytes(), number.to_le_bytes()].concat();
    entry.resize(16 + (number % 200) as usize, thread as u8);
    entry
}

/// Appends to a stream of its own and to one that all share, in batches and begun appends too.
fn appender(engine: &Engine, thread: u64, count: u64) {
    let own = format!("own {thread}");
    for number in 0..count {
        let entry = entry(thread, number);
        assert_eq!(engine.append(&own, &entry), Ok(number));
        match number % 3 {
            0 => _ = engine.append("shared", &entry).unwrap(),
            1 => _ = engine.append_batch("shared", &[&entry, &entry]).unwrap(),
            _ => {
                let ticket = engine.begin_append("shared", &[&entry]).unwrap();
                assert_eq!(engine.wait(ticket), Ok(ticket.first_id()));
            }
        }
    }
}

/// Follows a stream with a durable cursor until it has seen `count` entries.
fn follower(engine: &Engine, name: &str, count: u64) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while (found.len() as u64) < count {
        let from = engine.cursor(name, "shared");
        assert_eq!(from, found.len() as u64);
        let limits = ReadLimits { entries_max: 100, ..ReadLimits::default() };
        let Ok(entries) = engine.read("shared", from, limits) else { continue };
        found.extend(entries.iter().map(|(_, entry)| entry.to_vec()));
        if !entries.is_empty() {
            engine.commit_cursor(name, "shared", entries.next_id()).unwrap();
        }
    }
    found
}

/// Every entry of each thread is there, in its order.
fn check(shared: &[Vec<u8>], threads: u64, count: u64) {
    for thread in 0..threads {
        let of = shared.iter().filter(|entry| entry[..8] == thread.to_le_bytes());
        let expected: Vec<Vec<u8>> = (0..count)
            .flat_map(|number| vec![entry(thread, number); if number % 3 == 1 { 2 } else { 1 }])
            .collect();
        assert!(of.eq(expected.iter()), "thread {thread}");
    }
}

#[test]
fn a_read_while_a_commit_runs_waits_for_the_next_one_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options(Durability::None)).unwrap();
    for round in 0..200 {
        // Together large enough for a commit, which another thread makes; the small one comes behind it.
        for _ in 0..3 {
            engine.append("s", &[7; 100 << 10]).unwrap();
        }
        engine.append("s", b"small").unwrap();
        let entries = engine.read("s", 4 * round + 3, ReadLimits::default()).unwrap();
        assert_eq!(entries.iter().count(), 1);
    }
}

#[test]
fn many_threads_append_and_follow() {
    let (threads, count) = (6, 300);
    for durability in MODES {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), options(durability)).unwrap();
        let total = threads * (count + count / 3);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let engine = &engine;
                scope.spawn(move || appender(engine, thread, count));
            }
            let followers: Vec<_> = ["x", "y"]
                .into_iter()
                .map(|name| (name, &engine))
                .map(|(name, engine)| scope.spawn(move || follower(engine, name, total)))
                .collect();
            for follower in followers {
                check(&follower.join().unwrap(), threads, count);
            }
        });
        engine.close().unwrap();
        let engine = Engine::open(dir.path(), options(durability)).unwrap();
        assert_eq!(engine.damages(), []);
        assert_eq!(engine.cursor("x", "shared"), engine.tail("shared"));
        check(&follower(&engine, "z", engine.tail("shared")), threads, count);
    }
}

/// Not a test: what the other process of the test below does.
#[test]
#[ignore = "run by two_processes_do_not_share_a_directory"]
fn opens_what_is_held() {
    let Some(dir) = std::env::var_os("THALWEG_HELD") else { return };
    let refused = Engine::open(dir, Options::default()).unwrap_err();
    assert!(matches!(refused, OpenError::Log(_)), "{refused}");
    println!("refused: {refused}");
}

#[test]
fn two_processes_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let _held = Engine::open(dir.path(), options(Durability::Each)).unwrap();
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "threads::tests::opens_what_is_held", "--nocapture"])
        .env("THALWEG_HELD", dir.path())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&other.stdout);
    assert!(other.status.success(), "{said}");
    let pid = format!("is locked by process {}", std::process::id());
    assert!(said.contains("refused: ") && said.contains(&pid), "{said}");
}

/// Not a test: the process that is killed by the test below.
#[test]
#[ignore = "run by what_a_killed_process_had_acknowledged_is_there"]
fn appends_until_killed() {
    let Some(dir) = std::env::var_os("THALWEG_KILLED") else { return };
    let life: usize = std::env::var("THALWEG_LIFE").unwrap().parse().unwrap();
    let engine = Engine::open(dir, options(MODES[life % MODES.len()])).unwrap();
    for number in engine.tail("a").. {
        assert_eq!(engine.append("a", &entry(1, number)), Ok(number));
        engine.commit_cursor("reader", "a", number).unwrap();
        println!("told {number}");
    }
}

/// Starts the process above and kills it once it has printed `count` entries. Returns the last of them.
fn killed_after(count: usize, life: usize, dir: &Path) -> u64 {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "threads::tests::appends_until_killed", "--nocapture"])
        .env("THALWEG_KILLED", dir)
        .env("THALWEG_LIFE", life.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(writer.stdout.take().unwrap()).lines();
    let told =
        said.map_while(Result::ok).filter_map(|line| line.strip_prefix("told ")?.parse().ok());
    let last = told.take(count).last().unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    last
}

#[test]
fn what_a_killed_process_had_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    for (life, count) in [50, 3_000, 4_000, 1, 20, 2_000].into_iter().enumerate() {
        let last = killed_after(count, life, dir.path());
        let engine = Engine::open(dir.path(), options(Durability::None)).unwrap();
        assert_eq!(engine.damages(), []);
        let (tail, cursor) = (engine.tail("a"), engine.cursor("reader", "a"));
        assert!(tail > last, "{tail} after {last} was told");
        assert!((last..tail).contains(&cursor), "{cursor} after {last} was told");
        let mut next = 0;
        while next < tail {
            let entries = engine.read("a", next, ReadLimits::default()).unwrap();
            assert!(entries.iter().all(|(id, found)| found == entry(1, id)));
            next = entries.next_id();
        }
    }
}
