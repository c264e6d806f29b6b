//! Where answers to reads start and end, and what watchers learn. PROTOCOL §5.6, §7.1.

use env::MemoryDisk;
use log::LogOptions;
use model::{ByteOffset, ReadFrom, ReadRecords, ShardId, StreamPath, TrimBefore, limits};
use stream::{Append, ContentType, Outcome, Refusal};
use thalweg_node::testing::{Ask, Process, create, fork_of, options, path_in, text};
use thalweg_node::{Change, Event, Failure, ReadRequest, Reply, Request};

fn process() -> Process {
    Process::open(&MemoryDisk::new(), 2)
}

fn json() -> Append {
    let content_type = stream::AppendType::Named(ContentType::new("application/json"));
    Append { content_type, record_count: 2, ..Append::default() }
}

#[test]
fn answers_of_text_end_at_multiples_of_the_boundary() {
    let (mut process, path) = (process(), path_in(0, "text"));
    process.with_text(&path, b"01234");
    process.append(&path, text(), b"56789");
    let ends: Vec<_> = [0, 3, 4, 8, 10, 99].map(|from| process.ends(&path, from, 4)).to_vec();
    assert_eq!(ends, [(0, 4), (3, 4), (4, 8), (8, 10), (10, 10), (99, 99)]);
    assert_eq!(process.ends(&path, 5, 5), (5, 10));
}

#[test]
fn answers_of_json_are_whole_messages_and_end_with_an_append() {
    let (mut process, path) = (process(), path_in(0, "json"));
    process.create(&path, "application/json");
    process.append(&path, json(), b"1,22,");
    process.append(&path, json(), b"333,4,");
    let ends: Vec<_> = [0, 1, 2, 3, 5, 7, 9].map(|from| process.ends(&path, from, 4)).to_vec();
    assert_eq!(ends, [(0, 5), (0, 5), (2, 5), (2, 5), (5, 11), (5, 11), (9, 11)]);
}

#[test]
fn inherited_messages_are_found_in_the_shard_that_stores_them() {
    let (mut process, source, fork) = (process(), path_in(0, "source"), path_in(1, "fork"));
    process.create(&source, "application/json");
    process.append(&source, json(), b"1,22,");
    process.append(&source, json(), b"333,");
    process.fork(&fork, fork_of(&source, Some(0), 2));
    process.append(&fork, json(), b"4,");
    let ends: Vec<_> = [0, 3, 5, 6].map(|from| process.ends(&fork, from, 3)).to_vec();
    assert_eq!(ends, [(0, 5), (2, 7), (5, 7), (5, 7)]);
    assert_eq!(process.ends(&fork, 0, 1), (0, 5), "not beyond what is inherited");
    assert_eq!(process.ends(&fork, 0, 5), (0, 5), "the fork's own bytes begin at the boundary");
    assert_eq!(process.bytes(&fork), b"1,22,4,");
}

#[test]
fn a_window_is_bounded_and_a_stream_that_is_gone_has_none() {
    let (mut process, path) = (process(), path_in(0, "text"));
    process.with_text(&path, &[7; 100_000]);
    let key = process.head(&path).0;
    let window =
        |from, to| Request::Window { key, from: ByteOffset::new(from), to: ByteOffset::new(to) };
    let Reply::Window(slice) = process.ask(window(0, 100_000)) else { panic!("no window") };
    assert_eq!(slice.len(), limits::READ_WINDOW_BYTES_MAX as u64);
    let Reply::Window(slice) = process.ask(window(99_990, 99_993)) else { panic!("no window") };
    assert_eq!(slice.len(), 3);
    process.delete(&path);
    let gone = process.ask(window(0, 10));
    assert!(matches!(gone, Reply::Failed(Failure::NotFound)), "{gone:?}");
}

/// Commits two appends and damages the data of the second.
fn with_damage(process: &mut Process, path: &StreamPath) {
    process.with_text(path, b"intact");
    process.append(path, text(), b"damaged");
    let paths = process.disk.paths().into_iter();
    let wal = paths.filter(|path| path.starts_with("/data/wal/00000")).min().unwrap();
    let file = env::Disk::open(&process.disk, &wal).unwrap();
    let mut bytes = vec![0; 64 << 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let position = bytes.windows(7).position(|window| window == b"damaged").unwrap();
    process.disk.flip_bit(&wal, position as u64 * 8);
}

#[test]
fn an_answer_ends_before_damage_and_each_place_is_reported_once() {
    let (mut process, path) = (process(), path_in(0, "text"));
    with_damage(&mut process, &path);
    let key = process.head(&path).0;
    let (from, to) = (ByteOffset::new(6), ByteOffset::new(13));
    for _ in 0..2 {
        let damaged = process.ask(Request::Window { key, from, to });
        assert!(matches!(damaged, Reply::Failed(Failure::Damaged { .. })), "{damaged:?}");
    }
    assert_eq!(process.shards[0].take_read_damages().len(), 1);
    assert_eq!(process.shards[0].take_read_damages(), []);
    assert_eq!(process.ends(&path, 0, 1 << 20), (0, 6));
}

#[test]
fn an_answer_ends_before_damage_that_another_shard_stores() {
    let (mut process, source, fork) = (process(), path_in(0, "source"), path_in(1, "fork"));
    with_damage(&mut process, &source);
    process.fork(&fork, fork_of(&source, None, 0));
    process.append(&fork, text(), b"own");
    let key = process.head(&source).0;
    let (from, to) = (ByteOffset::new(6), ByteOffset::new(13));
    let met = process.ask(Request::Window { key, from, to });
    assert!(matches!(met, Reply::Failed(_)), "from here on the damage is known");
    assert_eq!(process.ends(&fork, 0, 1 << 20), (0, 6));
    assert_eq!(process.ends(&fork, 13, 1 << 20), (13, 16));
    let from = ReadFrom::At(from);
    let damaged = process.ask(Request::Read(ReadRequest {
        path: fork,
        from,
        boundary_bytes: 1 << 20,
        first_bytes_max: u64::MAX,
        records: None,
    }));
    assert!(matches!(damaged, Reply::Failed(Failure::Damaged { .. })), "{damaged:?}");
}

fn watch(process: &mut Process, path: &StreamPath) -> Request {
    let key = process.head(path).0;
    process.offer(Request::Watch { key });
    process.settle();
    Request::Unwatch { key }
}

fn told(process: &mut Process) -> Vec<(u64, bool, bool)> {
    let as_seen = |(shard, change): (ShardId, Change)| {
        assert_eq!(shard, ShardId::new(0));
        (change.tail.get(), change.closed, change.gone)
    };
    process.changes.drain(..).map(as_seen).collect()
}

#[test]
fn a_watcher_gets_the_state_of_the_stream_and_every_change_until_its_end() {
    let (mut process, path) = (process(), path_in(1, "watched"));
    process.with_text(&path, b"abc");
    watch(&mut process, &path);
    process.append(&path, text(), b"d");
    process.append(&path, Append { close: true, ..Append::default() }, b"");
    process.delete(&path);
    let expected = [(3, false, false), (4, false, false), (4, true, false), (4, true, true)];
    assert_eq!(told(&mut process), expected);
    assert_eq!(process.refusal(&path), Some(Refusal::NotFound));
    assert_eq!(process.shards[1].stats().watched_count, 0);
}

#[test]
fn a_watcher_that_left_gets_no_change() {
    let (mut process, path) = (process(), path_in(1, "watched"));
    process.with_text(&path, b"abc");
    let unwatch = watch(&mut process, &path);
    process.changes.clear();
    process.offer(unwatch);
    process.append(&path, text(), b"d");
    assert_eq!(told(&mut process), []);
}

#[test]
fn changes_carry_their_bytes_if_those_fit_a_window() {
    let (mut process, path) = (process(), path_in(0, "watched"));
    process.outcome(create(&path, Some("text/plain"), None, b""));
    watch(&mut process, &path);
    for length in [1, limits::READ_WINDOW_BYTES_MAX, limits::READ_WINDOW_BYTES_MAX + 1] {
        process.append(&path, text(), &vec![b'x'; length]);
    }
    let changes: Vec<Change> = process.changes.drain(..).map(|(_, change)| change).collect();
    let carried: Vec<_> = changes.iter().map(|c| c.data.as_ref().map(|data| data.len())).collect();
    assert_eq!(carried, [None, Some(1), Some(limits::READ_WINDOW_BYTES_MAX), None]);
    let starts: Vec<_> = changes.iter().map(|c| c.data_start().map(ByteOffset::get)).collect();
    assert_eq!(starts, [None, Some(0), Some(1), None]);
}

/// A stream of JSON: one append of a long message between short ones, in a log whose disk has nothing
/// in memory.
fn cold_messages() -> (Process, StreamPath, u64) {
    let options = LogOptions { batch_bytes_max: 8 << 20, wal_bytes_max: 64 << 20, ..options() };
    let mut process = Process::open_with(&MemoryDisk::new(), 1, options);
    let path = path_in(0, "messages");
    process.create(&path, "application/json");
    let long = [b"1,[", "2,".repeat(3 << 20).as_bytes(), b"2],3,"].concat();
    let append = Append { record_count: 3, ..json() };
    assert!(matches!(process.append(&path, append, &long), Outcome::Appended(_)));
    process.disk.forget_cached(100, 1);
    (process, path, long.len() as u64)
}

#[test]
fn a_read_that_is_not_in_memory_is_answered_by_a_job() {
    let (mut process, path, length) = cold_messages();
    process.held.reads = Some(vec![]);
    let from = ReadFrom::At(ByteOffset::new(length - 1));
    let read = ReadRequest {
        path: path.clone(),
        from,
        boundary_bytes: 1 << 30,
        first_bytes_max: u64::MAX,
        records: None,
    };
    process.offer(Request::Read(read));
    let mut jobs = 0;
    loop {
        process.settle();
        let Some((shard, job)) = process.held.reads.as_mut().unwrap().pop() else { break };
        // Others are served between the pieces.
        process.offer(Request::Head { path: path.clone() });
        assert!(matches!(process.replies.as_slice(), []), "answered before it was read");
        process.settle();
        assert!(matches!(process.replies.pop(), Some((_, Reply::Head(..)))));
        process.shards[shard].handle(process.now, Event::ReadDone(Box::new(job.run())));
        jobs += 1;
    }
    assert!(jobs > 2, "6 MiB were looked through in {jobs} pieces");
    match process.replies.pop() {
        Some((_, Reply::Read(reply))) => {
            assert_eq!((reply.start.get(), reply.end.get()), (length - 2, length));
            assert!(reply.first.is_none(), "it is not in memory");
        }
        other => panic!("a read was answered by {other:?}"),
    }
}

#[test]
fn what_was_read_by_jobs_is_what_is_in_memory() {
    let (mut process, path, length) = cold_messages();
    let positions = [0, 1, 2, 3, 40_000, 100_001, length / 2, length - 3, length - 2, length - 1];
    let ends = |process: &mut Process| positions.map(|at| process.ends(&path, at, 1 << 16));
    let cold = ends(&mut process);
    let cold_bytes = process.bytes(&path);
    process.disk.forget_cached(0, 1);
    assert_eq!(ends(&mut process), cold);
    assert!(process.bytes(&path) == cold_bytes);
    let expected = [(0, length), (0, length), (2, length)];
    assert_eq!(cold[..3], expected, "inside a message its start is meant");
    assert_eq!(cold[8..], [(length - 2, length); 2]);
}

#[test]
fn a_stream_that_is_deleted_under_a_read_is_read_to_the_end_of_the_window() {
    let (mut process, path, length) = cold_messages();
    let key = process.head(&path).0;
    process.held.reads = Some(vec![]);
    let window = |from| Request::Window { key, from, to: ByteOffset::new(length) };
    process.offer(window(ByteOffset::ZERO));
    process.settle();
    assert!(matches!(process.delete(&path), Outcome::Deleted));
    let (shard, job) = process.held.reads.take().unwrap().pop().unwrap();
    process.shards[shard].handle(process.now, Event::ReadDone(Box::new(job.run())));
    process.settle();
    assert!(matches!(process.replies.pop(), Some((_, Reply::Window(slice))) if !slice.is_empty()));
    let gone = process.ask(window(ByteOffset::new(1 << 16)));
    assert!(matches!(gone, Reply::Failed(Failure::NotFound)), "{gone:?}");
}

#[test]
fn no_more_reads_are_out_than_a_thread_can_use() {
    let (mut process, path, length) = cold_messages();
    let key = process.head(&path).0;
    process.held.reads = Some(vec![]);
    for from in (0..100).map(ByteOffset::new) {
        process.offer(Request::Window { key, from, to: ByteOffset::new(length) });
    }
    process.settle();
    let (mut most, mut answered) = (0, 0);
    while let Some((shard, job)) = process.held.reads.as_mut().unwrap().pop() {
        most = most.max(process.held.reads.as_ref().unwrap().len() + 1);
        process.shards[shard].handle(process.now, Event::ReadDone(Box::new(job.run())));
        process.settle();
        answered += process.replies.drain(..).count();
    }
    assert!((2..=16).contains(&most), "{most} reads were out at once");
    assert_eq!(answered, 100, "each has its answer");
}

#[test]
fn a_read_at_the_tail_of_a_stream_that_is_all_in_chunks_looks_into_none() {
    let small = LogOptions { seal_bytes: 1, checkpoint_bytes: 1, ..options() };
    let disk = MemoryDisk::new();
    let mut process = Process::open_with(&disk, 1, small.clone());
    let paths = [(path_in(0, "text"), "text/plain"), (path_in(0, "json"), "application/json")];
    for (path, content_type) in &paths {
        process.create(path, content_type);
        let append = if path.as_str().contains("json") { json() } else { text() };
        process.append(path, append, b"1,22,");
        process.wait_ms(0);
    }
    process.kill();
    let mut process = Process::open_with(&disk, 1, small);
    let looks = |process: &Process| {
        let log = process.shards[0].log().stats();
        assert_eq!((log.hot_bytes, log.chunks), (0, 2), "all of it is in chunks");
        log.chunk_cache.page_hits + log.chunk_cache.page_misses
    };
    let before = looks(&process);
    for (path, _) in &paths {
        assert_eq!(process.ends(path, 5, 1 << 22), (5, 5));
        let at_tail = ReadRequest {
            path: path.clone(),
            from: ReadFrom::Now,
            boundary_bytes: 9,
            first_bytes_max: u64::MAX,
            records: None,
        };
        assert!(matches!(process.ask(Request::Read(at_tail)), Reply::Read(_)));
        assert!(matches!(process.head(path), (_, info) if info.tail == ByteOffset::new(5)));
    }
    assert_eq!(looks(&process), before, "the state knows the tail");
    assert_eq!(process.bytes(&paths[0].0), b"1,22,");
    assert!(looks(&process) > before);
}

/// Asks where nothing is in memory, and lets the stream be trimmed while a job looks.
fn ask_beside_a_trim(ask: impl FnOnce(&StreamPath) -> Ask<'static>) -> Reply {
    let (mut process, path, _) = cold_messages();
    process.append(&path, json(), b"4,5,");
    process.held.reads = Some(vec![]);
    process.offer(ask(&path));
    process.settle();
    let held = process.held.reads.take().unwrap();
    assert!(!held.is_empty() && process.replies.is_empty(), "a job looks for the place");
    process.offer(Request::Trim { path, before: TrimBefore::Record(3) });
    process.settle();
    assert!(matches!(process.replies.pop(), Some((_, Reply::Outcome(Outcome::Trimmed { .. })))));
    for (shard, job) in held {
        process.shards[shard].handle(process.now, Event::ReadDone(Box::new(job.run())));
    }
    process.settle();
    process.replies.pop().expect("an answer").1
}

fn read_beside_a_trim(from: ReadFrom) -> Reply {
    ask_beside_a_trim(|path| {
        let request = Request::Read(ReadRequest {
            path: path.clone(),
            from,
            boundary_bytes: 1 << 30,
            first_bytes_max: u64::MAX,
            records: Some(ReadRecords::default()),
        });
        Ask { request, data: b"" }
    })
}

#[test]
fn a_fork_that_a_trim_overtakes_learns_of_the_trim() {
    for sub_offset in [0, 1] {
        let reply = ask_beside_a_trim(|path| {
            create(&path_in(0, "fork"), None, Some(fork_of(path, Some(2), sub_offset)), b"")
        });
        assert!(
            matches!(reply, Reply::Outcome(Outcome::Refused(Refusal::ForkTrimmed { .. }))),
            "{reply:?}"
        );
    }
}

#[test]
fn a_read_of_the_last_records_that_a_trim_overtakes_begins_at_the_head() {
    match read_beside_a_trim(ReadFrom::TailRecords(4)) {
        Reply::Read(reply) => {
            assert_eq!((reply.start, reply.records), (reply.info.head, Some((3, 5))));
        }
        other => panic!("a read was answered by {other:?}"),
    }
    let named = read_beside_a_trim(ReadFrom::Record(1));
    assert!(matches!(named, Reply::Failed(Failure::Trimmed { .. })), "{named:?}");
}
