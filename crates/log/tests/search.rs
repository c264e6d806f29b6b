//! Appends are found by record and by time as a walk over all of them finds them: in the WAL, in chunks, in both,
//! with gaps, trims, merges and restarts.

use crate::support::{APPEND, DELETE, Node, TRIM, key, small, with_records};
use env::{MemoryDisk, Random, SeededRandom};
use model::{ByteOffset, StreamKey, Timestamp};
use thalweg_log::{Aim, AppendBounds, LogOptions, PlacedAppend, ReadError, TimeAim};

/// What a walk sees: every append of a stream.
#[derive(Default)]
struct Walked {
    appends: Vec<PlacedAppend>,
    head: u64,
    is_deleted: bool,
}

impl Walked {
    fn push(&mut self, bytes: u64, (records, time): (u32, Option<u64>), at: u64) {
        let last = self.appends.last();
        let start = last.map_or(ByteOffset::ZERO, |append| append.bounds.end);
        let first_record =
            last.map_or(0, |append| append.first_record + u64::from(append.bounds.records));
        let before = last.and_then(|append| append.mark);
        let bounds =
            AppendBounds { start, end: start.advance(bytes), records, at: Timestamp::new(at) };
        let mark = time.max(before);
        self.appends.push(PlacedAppend { bounds, first_record, mark });
    }

    fn kept(&self) -> impl Iterator<Item = &PlacedAppend> {
        self.appends.iter().filter(|append| append.bounds.end.get() > self.head)
    }

    fn find(&self, aim: Aim) -> Option<PlacedAppend> {
        let is_it = |append: &&PlacedAppend| match aim {
            Aim::Byte(at) => (append.bounds.start..append.bounds.end).contains(&at),
            Aim::Record(number) => {
                let end = append.first_record + u64::from(append.bounds.records);
                (append.first_record..end).contains(&number)
            }
            Aim::Time(TimeAim::Arrival(at)) => append.bounds.at >= at,
            Aim::Time(TimeAim::Record(time)) => {
                append.mark.unwrap_or(append.bounds.at.get()) >= time
            }
        };
        self.kept().find(is_it).copied()
    }
}

/// A log, and what a walk over each of its streams sees.
struct Pair {
    disk: MemoryDisk,
    node: Node,
    walked: Vec<(StreamKey, Walked)>,
    random: SeededRandom,
    now: u64,
    options: LogOptions,
}

impl Pair {
    fn new(seed: u64, streams: u64, options: LogOptions) -> Self {
        let disk = MemoryDisk::new();
        let node = Node::open_with(&disk, 1, options.clone()).unwrap();
        let stream = |number| (key((number % 3) as u16, 1 + number), Walked::default());
        let walked = (0..streams).map(stream).collect();
        Self { disk, node, walked, random: SeededRandom::new(seed), now: 1000, options }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.next_u64() % count
    }

    /// Appends to a stream: of every third one with record times, from its tenth append on, which go up and down.
    fn append(&mut self, place: usize) {
        self.now += self.below(4) / 3 * self.random.next_u64() % 50;
        let (bytes, records) = (1 + self.below(60), 1 + (self.below(5) / 4 * 3) as u32);
        let late = self.now.saturating_sub(self.below(90));
        let count = self.walked[place].1.appends.len();
        let has_time = place % 3 == 2 && count >= 10;
        // The first record time is no earlier than the arrivals before.
        let time = has_time.then_some(if count == 10 { self.now } else { late });
        let (key, walked) = &mut self.walked[place];
        if walked.is_deleted {
            return;
        }
        walked.push(bytes, (records, time), self.now);
        self.node.at = Some(self.now);
        let command = with_records(records, time);
        self.node.write(*key, APPEND, &command, &vec![7; bytes as usize]).unwrap();
    }

    fn trim(&mut self, place: usize) {
        let part = self.below(100) as usize;
        let (key, walked) = &mut self.walked[place];
        let index = walked.appends.len() * part / 100;
        let Some(append) = walked.appends.get(index) else { return };
        // In front of an append, or inside it, as a fork may need it.
        walked.head = walked.head.max(append.bounds.start.get() + part as u64 % 2);
        let upto = walked.head.to_le_bytes();
        self.node.write(*key, TRIM, &upto, &[]).unwrap();
    }

    fn step(&mut self) {
        let place = self.below(self.walked.len() as u64) as usize;
        match self.below(400) {
            0..=2 => self.trim(place),
            3 if place % 5 == 4 => {
                let (key, walked) = &mut self.walked[place];
                walked.is_deleted = true;
                self.node.write(*key, DELETE, &[], &[]).unwrap();
            }
            4..=40 => self.node.commit().unwrap(),
            41..=50 => {
                self.node.commit().unwrap();
                self.node.work().unwrap();
            }
            51..=53 => {
                // A seal is under way while more comes.
                let group = self.walked[place].0.group;
                self.node.commit().unwrap();
                self.node.hold_jobs(group);
            }
            54 => self.restart(),
            _ => self.append(place),
        }
    }

    fn restart(&mut self) {
        self.node.commit().unwrap();
        let shards = 1 + self.below(3) as u16;
        // The lock goes with the one before.
        self.node = Node::open_with(&MemoryDisk::new(), 1, small()).unwrap();
        self.node = Node::open_with(&self.disk, shards, self.options.clone()).unwrap();
        assert_eq!(self.node.machine.damages, []);
    }

    /// Asks for appends of all streams by all that they can be found by, `each` of them.
    fn check(&mut self, each: usize) {
        self.node.commit().unwrap();
        for place in 0..self.walked.len() {
            let offset = self.below(each as u64) as usize;
            let (key, walked) = &self.walked[place];
            let shard = self.node.shard(key.group);
            if walked.is_deleted {
                let gone = shard.find(*key, Aim::Record(0));
                assert!(matches!(gone, Err(ReadError::NotFound) | Ok(None)), "{gone:?}");
                continue;
            }
            let picked = walked.appends.iter().skip(offset).step_by(each);
            let aims = picked.flat_map(|append| {
                let bounds = append.bounds;
                let time = append.mark.unwrap_or(bounds.at.get());
                let last = append.first_record + u64::from(bounds.records) - 1;
                [
                    Aim::Byte(bounds.start),
                    Aim::Record(append.first_record),
                    Aim::Record(last),
                    Aim::Time(TimeAim::Arrival(bounds.at)),
                    Aim::Time(TimeAim::Arrival(bounds.at.plus_ms(1))),
                    Aim::Time(TimeAim::Record(time)),
                    Aim::Time(TimeAim::Record(time + 1)),
                ]
            });
            let ends = [Aim::Record(1 << 40), Aim::Time(TimeAim::Record(u64::MAX))];
            for aim in aims.chain(ends) {
                let wanted = walked.find(aim);
                // A trim may end inside an append.
                let is_byte = matches!(aim, Aim::Byte(at) if at.get() < walked.head);
                let found = match shard.find(*key, aim) {
                    Err(ReadError::Trimmed { .. }) => {
                        assert!(is_byte || wanted.is_none(), "{aim:?}");
                        assert!(!matches!(aim, Aim::Time(_)), "{aim:?}");
                        continue;
                    }
                    // Nothing of it is there, or all that was is trimmed.
                    Err(ReadError::NotFound | ReadError::PastTail { .. }) => None,
                    found => found.unwrap(),
                };
                assert!(found == wanted, "{key}, {aim:?}: {found:?}, not {wanted:?}");
            }
        }
    }
}

#[test]
fn records_and_times_are_found_as_a_walk_finds_them() {
    for seed in 0..12 {
        let mut pair = Pair::new(seed, 9, small());
        for number in 1..=4_000 {
            pair.step();
            if number % 400 == 0 {
                pair.check(7);
            }
        }
        pair.node.work().unwrap();
        pair.check(1);
        pair.restart();
        pair.check(3);
    }
}

#[test]
fn they_are_found_in_many_chunks() {
    // No merges: a group has more chunks than a loop looks into.
    let options = LogOptions { chunk_bytes_max: 1, seal_bytes: 1 << 10, ..small() };
    let mut pair = Pair::new(77, 30, options);
    for _ in 0..16_000 {
        pair.step();
    }
    pair.node.work().unwrap();
    let chunks = pair.node.shards.iter().map(|shard| shard.stats().chunks).max();
    assert!(chunks > Some(100), "{chunks:?} chunks");
    pair.check(11);
}
