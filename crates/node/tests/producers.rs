//! How many producers a stream remembers, also after a restart with another setting.

use env::MemoryDisk;
use stream::{Append, Outcome, Producer};
use thalweg_node::testing::{Ask, Process, path_in, text};
use thalweg_node::{Reply, Request};

/// The setting of all shards, logged.
fn set(process: &mut Process, count: u32) {
    for shard in &mut process.shards {
        shard.set_producers_max(count);
    }
    process.wait_ms(1000);
}

/// The first append of a producer; whether it was taken for a repetition.
fn is_repetition(process: &mut Process, id: &str) -> bool {
    let path = path_in(0, "text");
    let producer = Some(Producer { id: id.into(), epoch: 0, seq: 0 });
    let append = Append { producer, ..text() };
    let request = Request::Append { path, append };
    match process.ask(Ask { request, data: id.as_bytes() }) {
        Reply::Outcome(Outcome::Appended(accepted)) => accepted.duplicate,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lower_limit_forgets_and_recovery_forgets_the_same() {
    let path = path_in(0, "text");
    let mut process = Process::open(&MemoryDisk::new(), 2);
    process.create(&path, "text/plain");
    set(&mut process, 2);
    for id in ["a", "b", "c"] {
        assert!(!is_repetition(&mut process, id), "{id}");
    }
    assert!(is_repetition(&mut process, "b"));
    assert!(!is_repetition(&mut process, "a"), "it was forgotten");
    assert_eq!(process.bytes(&path), b"abca");
    // The entries are read again by a process that is to remember more.
    let mut process = Process::open(&process.kill(), 1);
    assert_eq!(process.bytes(&path), b"abca");
    set(&mut process, 4096);
    assert!(is_repetition(&mut process, "a"));
    assert!(!is_repetition(&mut process, "b"), "b made room for a");
    assert_eq!(process.bytes(&path), b"abcab");
    let mut process = Process::open(&process.kill(), 2);
    assert_eq!(process.bytes(&path), b"abcab");
}
