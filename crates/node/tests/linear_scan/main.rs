//! Reads by record, by time and by offset, with every bound, get what a walk over all appends finds.
//!
//! That holds over forks of forks, trims, seals, merges, restarts and other numbers of shards.
//!
//! The long run: `cargo test --release -p thalweg-node --test linear_scan -- --ignored --nocapture`.

mod history;

use env::{MemoryDisk, Random, SeededRandom};
use history::{History, Nothing, Part};
use log::LogOptions;
use model::{Bounds, ByteOffset, ReadFrom, ReadRecords, StreamPath, Timestamp, TrimBefore};
use stream::{Append, AppendType, ContentType, Outcome, RecordTime};
use thalweg_node::testing::{Ask, Process, fork_of, options, path};
use thalweg_node::{Failure, ReadRequest, Reply, Request, Resolved};

/// Streams that are there at once, at most.
const STREAMS_MAX: usize = 24;

struct Stream {
    path: StreamPath,
    history: History,
    /// Every append brings a time.
    is_timed: bool,
}

struct World {
    process: Process,
    options: LogOptions,
    random: SeededRandom,
    streams: Vec<Stream>,
    made: u64,
    appends: u64,
    questions: u64,
    restarts: u64,
    forks: u64,
}

/// Small chunks that are merged soon.
fn small() -> LogOptions {
    LogOptions {
        group_count: 5,
        seal_bytes: 12 << 10,
        checkpoint_bytes: 100 << 10,
        chunk_bytes_max: 4 << 20,
        ..options()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let process = Process::open_with(&MemoryDisk::new(), 2, small());
        let (options, random) = (small(), SeededRandom::new(seed));
        let (streams, made) = (Vec::new(), 0);
        let (appends, questions, restarts, forks) = (0, 0, 0, 0);
        Self { process, options, random, streams, made, appends, questions, restarts, forks }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.next_u64() % count
    }

    fn now(&self) -> u64 {
        self.process.now.wall.get()
    }

    fn new_path(&mut self) -> StreamPath {
        self.made += 1;
        path(&format!("stream/{}", self.made))
    }

    fn create(&mut self) {
        let (path, is_json, is_timed) =
            (self.new_path(), self.made.is_multiple_of(2), self.made.is_multiple_of(3));
        let kind = if is_json { "application/json" } else { "text/plain" };
        assert!(matches!(self.process.create(&path, kind), Outcome::Created(_)));
        self.streams.push(Stream { path, history: History::new(is_json), is_timed });
    }

    /// Some appends that may share a batch.
    fn append(&mut self) {
        let mut offered = Vec::new();
        for _ in 0..=self.below(6) {
            let place = self.below(self.streams.len() as u64) as usize;
            let (append, data, lengths) = self.draw(place);
            let (at, given) = (self.now(), append.record_time);
            let stream = &mut self.streams[place];
            let given = given.map(|given| match given {
                RecordTime::Given(time) => time,
                RecordTime::SinceArrival(_) => unreachable!("a client gives a time"),
            });
            stream.history.push(&data, &lengths, (at, given));
            let request = Request::Append { path: stream.path.clone(), append };
            let number = self.process.offer(Ask { request, data: &data });
            offered.push((number, stream.history.tail()));
            self.appends += 1;
        }
        self.process.settle();
        for (number, reply) in std::mem::take(&mut self.process.replies) {
            let (_, tail) = offered.iter().find(|(offered, _)| *offered == number).unwrap();
            match reply {
                Reply::Outcome(Outcome::Appended(accepted)) => {
                    assert_eq!(accepted.tail.get(), *tail);
                }
                other => panic!("an append is answered by {other:?}"),
            }
        }
    }

    fn draw(&mut self, place: usize) -> (Append, Vec<u8>, Vec<u64>) {
        let (is_json, is_timed) =
            (self.streams[place].history.is_json, self.streams[place].is_timed);
        let (mut data, mut lengths) = (Vec::new(), Vec::new());
        let count = if is_json { 1 + self.below(3) } else { 1 };
        for _ in 0..count {
            let before = data.len();
            match self.below(4) {
                0 => data.extend(format!("[\"a,{}\"],", self.made).bytes()),
                _ => data.extend(format!("{},", self.random.next_u64() >> self.below(60)).bytes()),
            }
            lengths.push((data.len() - before) as u64);
        }
        let kind = if is_json { "application/json" } else { "text/plain" };
        let now = self.now();
        let late = match self.below(20) {
            0 => now + 5_000,
            _ => now.saturating_sub(self.below(2_000)),
        };
        let gives_time =
            is_timed && self.streams[place].history.next_record() > 20 || self.below(2_000) == 0;
        let append = Append {
            content_type: AppendType::Named(ContentType::new(kind)),
            record_count: count as u32,
            record_time: gives_time.then_some(RecordTime::Given(late)),
            ..Append::default()
        };
        (append, data, lengths)
    }

    fn fork(&mut self) {
        let place = self.below(self.streams.len() as u64) as usize;
        let path = self.new_path();
        let number = self.draw_record(place);
        let in_part = self.below(2) == 0;
        let (history, source) = (&self.streams[place].history, &self.streams[place].path);
        let (offset, sub_offset, at) = history.fork_point(number, in_part);
        let fork = fork_of(source, Some(offset), sub_offset);
        let made = self.process.fork(&path, fork);
        assert!(matches!(made, Outcome::Created(_)), "{made:?}");
        let history = self.streams[place].history.fork(at, self.now());
        let is_timed = self.below(2) == 0;
        self.streams.push(Stream { path, history, is_timed });
        self.forks += 1;
    }

    fn trim(&mut self) {
        let place = self.below(self.streams.len() as u64) as usize;
        // Most of a stream stays.
        let upto = self.streams[place].history.next_record() / (1 + self.below(8));
        let number = self.below(upto + 1);
        let by_record = self.below(2) == 0;
        let history = &mut self.streams[place].history;
        let (before, to) = match history.record_length(number) {
            Some(length) if !by_record => {
                let at = history.start(ReadFrom::Record(number), true);
                let at = at.map_or(0, |place| place.0) + length / 2;
                (TrimBefore::Offset(ByteOffset::new(at)), history.append_at(at))
            }
            _ => (TrimBefore::Record(number), history.append_of(number)),
        };
        history.trim(to);
        let head = history.head;
        let path = self.streams[place].path.clone();
        match self.process.outcome(Request::Trim { path, before }) {
            Outcome::Trimmed { head: trimmed, .. } => assert_eq!(trimmed.get(), head),
            other => panic!("a trim is answered by {other:?}"),
        }
    }

    fn delete(&mut self) {
        let place = self.below(self.streams.len() as u64) as usize;
        let stream = self.streams.swap_remove(place);
        assert!(matches!(self.process.delete(&stream.path), Outcome::Deleted));
    }

    fn restart(&mut self) {
        let shards = 1 + self.below(3) as u16;
        let now = self.process.now;
        let disk = std::mem::replace(
            &mut self.process,
            Process::open_with(&MemoryDisk::new(), 1, self.options.clone()),
        )
        .kill();
        self.restarts += 1;
        let (seed, options) = (1 + self.restarts, self.options.clone());
        self.process = Process::try_open_from(seed, &disk, shards, options).unwrap();
        self.process.now = now;
        assert_eq!(self.process.damages, []);
    }

    /// One step; most are appends.
    fn step(&mut self) {
        match self.below(1_000) {
            0..=2 if self.streams.len() < STREAMS_MAX => self.create(),
            3..=11 if self.streams.len() < STREAMS_MAX => self.fork(),
            12..=14 => self.trim(),
            15 if self.streams.len() > STREAMS_MAX / 2 => self.delete(),
            16..=18 => self.restart(),
            19..=300 => {
                let ms = self.below(40);
                self.process.wait_ms(ms);
            }
            _ if self.streams.is_empty() => self.create(),
            _ => self.append(),
        }
    }

    fn draw_record(&mut self, place: usize) -> u64 {
        let next = self.streams[place].history.next_record();
        // The ends are where errors are.
        match self.below(8) {
            0 => next,
            1 => next.saturating_sub(1),
            2 => self.below(next.min(5) + 1),
            _ => self.below(next + 1),
        }
    }

    fn draw_from(&mut self, place: usize) -> ReadFrom {
        let number = self.draw_record(place);
        let aside = self.below(3);
        let history = &self.streams[place].history;
        match self.random.next_u64() % 8 {
            0 | 1 => ReadFrom::Record(number + aside / 2),
            2 | 3 => ReadFrom::TailRecords(history.next_record() - number + aside / 2),
            4 | 5 => ReadFrom::Time((history.time_of(number) + aside).saturating_sub(1)),
            6 => ReadFrom::At(ByteOffset::new(self.random.next_u64() % (history.tail() + 1))),
            _ => [ReadFrom::Begin, ReadFrom::Now][aside as usize % 2],
        }
    }

    fn draw_wanted(&mut self, place: usize) -> ReadRecords {
        let (number, most) = (self.draw_record(place), 1 + self.below(300));
        let until = self.streams[place].history.time_of(number);
        let records_max = (self.below(3) == 0).then_some(most);
        let bytes_max = (self.below(3) == 0).then_some(most * 7);
        let until = (self.below(3) == 0).then_some(until);
        let bounds = Bounds { records_max, bytes_max, until };
        ReadRecords { bounds, clamp: self.below(4) == 0 }
    }

    /// Asks for a part of each stream and looks one place up, so often.
    fn check(&mut self, times: usize) {
        for _ in 0..times {
            for place in 0..self.streams.len() {
                self.check_read(place);
                self.check_place(place);
                self.questions += 2;
            }
        }
    }

    fn request(&self, place: usize, from: ReadFrom, wanted: ReadRecords) -> ReadRequest {
        let path = self.streams[place].path.clone();
        let (boundary_bytes, first_bytes_max) = (1 << 12, u64::MAX);
        ReadRequest { path, from, boundary_bytes, first_bytes_max, records: Some(wanted) }
    }

    fn check_read(&mut self, place: usize) {
        let (from, wanted) = (self.draw_from(place), self.draw_wanted(place));
        let expected = self.streams[place].history.part(from, 1 << 12, wanted);
        let request = self.request(place, from, wanted);
        let asked = format!("{}: {from:?}, {wanted:?}", self.streams[place].path);
        match self.process.ask(Request::Read(request)) {
            Reply::Read(reply) => {
                let numbers = reply.records.expect("they were asked for");
                let part = Part { start: reply.start.get(), end: reply.end.get(), numbers };
                assert_eq!(Ok(part), expected, "{asked}");
                let bytes = self.process.bytes_of(&reply);
                let wanted = part.start as usize..part.end as usize;
                assert!(bytes == self.streams[place].history.bytes[wanted], "{asked}");
            }
            Reply::Failed(failure) => {
                assert_eq!(Err(nothing(&failure)), expected, "{asked}");
            }
            other => panic!("{asked} is answered by {other:?}"),
        }
    }

    fn check_place(&mut self, place: usize) {
        let from = self.draw_from(place);
        let wanted = ReadRecords { clamp: self.below(2) == 0, ..ReadRecords::default() };
        let history = &self.streams[place].history;
        let expected = history.start(from, wanted.clamp);
        let expected = expected.map(|(at, number)| (at, number, history.time_at(at)));
        let asked = format!("{}: place of {from:?}, {wanted:?}", self.streams[place].path);
        let request = self.request(place, from, wanted);
        let found = match self.process.ask(Request::Resolve(request)) {
            Reply::Resolved(resolved) => {
                let Resolved { at, record, time, .. } = *resolved;
                Ok((at.get(), record, time))
            }
            Reply::Failed(failure) => Err(nothing(&failure)),
            other => panic!("{asked} is answered by {other:?}"),
        };
        assert_eq!(found, expected, "{asked}");
    }

    fn run(&mut self, appends: u64, checks: u64) {
        for round in 1..=checks {
            while self.appends < appends * round / checks {
                self.step();
            }
            self.check(1);
        }
        self.restart();
        self.check(3);
    }
}

fn nothing(failure: &Failure) -> Nothing {
    match failure {
        Failure::Trimmed { .. } => Nothing::Trimmed,
        Failure::Beyond { .. } => Nothing::Beyond,
        other => panic!("a read fails: {other:?}"),
    }
}

#[test]
fn ten_thousand_appends_are_found_as_a_walk_finds_them() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        world.run(2_500, 40);
        let World { forks, restarts, .. } = world;
        assert!(forks > 0 && restarts > 0, "{forks} forks, {restarts} restarts");
        let chunks: u64 = world.process.shards.iter().map(|shard| shard.log().stats().chunks).sum();
        assert!(chunks > 2, "{chunks} chunks");
    }
}

#[test]
#[ignore = "a million appends take minutes"]
fn a_million_appends_are_found_as_a_walk_finds_them() {
    let mut world = World::new(99);
    world.run(1_000_000, 400);
    let World { appends, questions, restarts, forks, .. } = world;
    println!("{appends} appends, {forks} forks, {restarts} restarts: {questions} questions");
    assert!(forks > 20 && restarts > 20, "{forks} forks, {restarts} restarts");
}

/// The clock of the tests is a small number.
#[test]
fn a_record_time_in_the_future_is_found_by_its_arrival() {
    let mut world = World::new(7);
    world.create();
    world.process.now.wall = Timestamp::new(9_000);
    let path = world.streams[0].path.clone();
    let append =
        Append { record_time: Some(RecordTime::Given(1 << 50)), ..thalweg_node::testing::text() };
    assert!(matches!(world.process.append(&path, append, b"x"), Outcome::Appended(_)));
    world.streams[0].history.push(b"x", &[1], (9_000, Some(1 << 50)));
    world.check(50);
}
