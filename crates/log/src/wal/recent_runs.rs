//! Recent bytes of one stream in one piece, for readers of long histories.
//!
//! # What and why
//! The ring of recent bytes ([`crate::wal::recent`]) has a stream's appends between those of others. A long read copies
//! them, and the system copies them again into the socket. The fourth one writes them into a file in memory, with
//! one vectored write. From there they are sent by reference, to this reader and to those after it. The first ones do not:
//! most histories are read once, and fresh pages cost more than the copies.
//!
//! # How
//! A run is written once and never changed: what was sent may still be in the buffers of a socket. Runs lie in slabs, each a
//! file of its own. A slab that is full is given up as a whole. The system gives its memory back when the last reader
//! has taken it. The slab that goes is the one that served least of late, and it goes only for what is asked for far more often.
//! Readers who go round more than fits find some of it each time, and the rest is copied.
//!
//! # Invariants
//! - A run holds durable bytes of its stream. These never change, and no other stream gets its number.
//! - Slabs take no more than their bound, those included that were given up while readers hold them.

use crate::read::Slice;
use env::{Disk, File};
use model::StreamKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest run: to write it takes some 30 µs of the loop.
pub(crate) const RUN_BYTES_MAX: usize = model::limits::FILE_WINDOW_BYTES_MAX;

/// Size of a slab, unless the bound is too small for some of them.
const SLAB_BYTES_MAX: u64 = 1 << 20;

/// Slabs that the bound holds at least.
const SLABS_MIN: u64 = 8;

/// Reads that are remembered because another one may be worth a run. A collision costs a copy or a run too many.
const ASKED_COUNT: usize = 4096;

/// Reads that copy before one makes a run. What three copies cost more than sending by reference, fresh pages cost more than a copy
/// (docs/adr/0060).
pub(crate) const COPIES_MIN: u32 = 3;

/// How many times what all slabs hold is read until older reads count half.
const ROUNDS: u64 = 8;

/// Spreads numbers over 64 bits: 2^64 divided by the golden ratio.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Memory comes in pages: each run begins with one.
const PAGE_BYTES: u64 = 4096;

/// The runs of a shard.
#[derive(Debug)]
pub(crate) struct RecentRuns {
    disk: Arc<dyn Disk>,
    slab_bytes: u64,
    slabs_max: usize,
    /// Shorter ones are copied.
    bytes_min: usize,
    /// By stream and first byte.
    runs: BTreeMap<(StreamKey, u64), Run>,
    slabs: Vec<Slab>,
    /// Files of slabs that were given up while readers had them.
    held: Vec<Arc<dyn File>>,
    slab_next: u64,
    /// What was asked for of late and not found, by its hash.
    asked: Vec<Asked>,
    /// Bytes that were read until older reads count half.
    young_bytes: u64,
    hits: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    hash: u64,
    /// How often, as far as it counts.
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    slab: u64,
    position: u64,
    length: u64,
}

#[derive(Debug)]
struct Slab {
    number: u64,
    file: Arc<dyn File>,
    used_bytes: u64,
    /// Bytes that it served, as far as they count.
    served_bytes: u64,
    starts: Vec<(StreamKey, u64)>,
}

impl RecentRuns {
    /// Runs of at least `bytes_min` bytes that take at most `bytes_max` together.
    pub(crate) fn new(disk: Arc<dyn Disk>, (bytes_min, bytes_max): (usize, u64)) -> Self {
        let slab_bytes = SLAB_BYTES_MAX.min(bytes_max / SLABS_MIN / PAGE_BYTES * PAGE_BYTES);
        let slabs_max = bytes_max.checked_div(slab_bytes).unwrap_or(0);
        Self {
            disk,
            slab_bytes,
            slabs_max: usize::try_from(slabs_max).expect("the bound of memory fits memory"),
            bytes_min,
            runs: BTreeMap::new(),
            slabs: Vec::new(),
            held: Vec::new(),
            slab_next: 0,
            asked: Vec::new(),
            young_bytes: 0,
            hits: 0,
        }
    }

    /// Whether a read of so many bytes is worth a run.
    pub(crate) fn is_long(&self, bytes: u64) -> bool {
        self.slabs_max > 0 && bytes >= self.bytes_min as u64
    }

    /// Bytes of `stream` from `from`, at most `bytes_max`, if a run has them.
    pub(crate) fn find(&mut self, stream: StreamKey, from: u64, bytes_max: usize) -> Option<Slice> {
        let (&(key, start), &run) = self.runs.range(..=(stream, from)).next_back()?;
        let skipped = from - start.min(from);
        if key != stream || skipped >= run.length {
            return None;
        }
        self.hits += 1;
        let slab = self.slabs.iter_mut().find(|slab| slab.number == run.slab);
        let slab = slab.expect("the runs of a slab go with it");
        let length = (run.length - skipped).min(bytes_max as u64);
        slab.served_bytes += length;
        let slice =
            Slice::File { file: Arc::clone(&slab.file), position: run.position + skipped, length };
        self.note_read(length);
        Some(slice)
    }

    /// How often the same was asked for of late; notes that it is asked for now, by a read of about so many `bytes`.
    pub(crate) fn asked_before(&mut self, (stream, from): (StreamKey, u64), bytes: u64) -> u32 {
        if self.asked.is_empty() {
            self.asked = vec![Asked::default(); ASKED_COUNT];
        }
        self.note_read(bytes);
        let StreamKey { group, stream } = stream;
        let numbers = [u64::from(group.get()), stream.get(), from];
        let mix =
            |hash: u64, number: u64| (hash.rotate_left(26) ^ number).wrapping_mul(HASH_FACTOR);
        let hash = numbers.into_iter().fold(1, mix) | 1;
        let place = usize::try_from(hash >> 40).expect("24 bits") % ASKED_COUNT;
        // Either of two places: two that are asked for in turn do not push each other out.
        let (one, other) = (self.asked[place], self.asked[place ^ 1]);
        let is_other = other.hash == hash || (one.hash != hash && other.count < one.count);
        let asked = &mut self.asked[if is_other { place ^ 1 } else { place }];
        if asked.hash != hash {
            *asked = Asked { hash, count: 0 };
        }
        let before = asked.count;
        asked.count = before.saturating_add(1);
        before
    }

    fn note_read(&mut self, bytes: u64) {
        self.young_bytes += bytes;
        if self.young_bytes >= ROUNDS * self.slab_bytes * self.slabs_max as u64 {
            self.young_bytes = 0;
            self.slabs.iter_mut().for_each(|slab| slab.served_bytes /= 2);
            self.asked.iter_mut().for_each(|asked| asked.count /= 2);
        }
    }

    /// Makes a run of `pieces`, the bytes of `stream` from `from` on, which were asked for so many times before; `None` if there is
    /// no room for it now.
    pub(crate) fn put(
        &mut self,
        (stream, from): (StreamKey, u64),
        asked_before: u32,
        pieces: &[&[u8]],
    ) -> Option<Slice> {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if length == 0 || length > self.slab_bytes {
            return None;
        }
        let has_room = |slab: &Slab| slab.used_bytes + length <= self.slab_bytes;
        if !self.slabs.last().is_some_and(has_room) {
            self.add_slab(asked_before)?;
        }
        let slab = self.slabs.last_mut()?;
        let position = slab.used_bytes;
        // Memory is short: the caller copies.
        slab.file.write_pieces_at(pieces, position).ok()?;
        slab.used_bytes = (position + length).next_multiple_of(PAGE_BYTES);
        slab.served_bytes += length;
        slab.starts.push((stream, from));
        self.runs.insert((stream, from), Run { slab: slab.number, position, length });
        Some(Slice::File { file: Arc::clone(&slab.file), position, length })
    }

    fn add_slab(&mut self, asked_before: u32) -> Option<()> {
        self.held.retain(|file| Arc::strong_count(file) > 1);
        if self.slabs.len() + self.held.len() >= self.slabs_max {
            self.give_up_slab(asked_before)?;
        }
        if self.slabs.len() + self.held.len() >= self.slabs_max {
            return None;
        }
        let file = self.disk.memory_file().ok()?;
        self.slab_next += 1;
        self.slabs.push(Slab {
            number: self.slab_next,
            file,
            used_bytes: 0,
            served_bytes: 0,
            starts: Vec::new(),
        });
        Some(())
    }

    /// Gives up the slab that served least of late for what was asked for more than twice as often; `None` if there is none.
    fn give_up_slab(&mut self, asked_before: u32) -> Option<()> {
        let least = self.slabs.iter().map(|slab| slab.served_bytes).min()?;
        if u64::from(asked_before) * self.slab_bytes <= 2 * least {
            return None;
        }
        let is_least = |slab: &Slab| slab.served_bytes == least;
        let among = self.slabs.iter().filter(|slab| is_least(slab)).count() as u64;
        let chosen = self.slab_next.wrapping_mul(HASH_FACTOR) >> 33;
        let chosen = usize::try_from(chosen % among).expect("less than there are");
        let at = (0..self.slabs.len()).filter(|at| is_least(&self.slabs[*at])).nth(chosen)?;
        let slab = self.slabs.remove(at);
        for start in &slab.starts {
            if self.runs.get(start).is_some_and(|run| run.slab == slab.number) {
                self.runs.remove(start);
            }
        }
        if Arc::strong_count(&slab.file) > 1 {
            self.held.push(slab.file);
        }
        Some(())
    }

    /// Bytes of memory that slabs take or may take.
    pub(crate) fn held_bytes(&self) -> u64 {
        let used = self.slabs.iter().map(|slab| slab.used_bytes).sum::<u64>();
        used + self.held.len() as u64 * self.slab_bytes
    }

    /// Reads that found a run.
    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        assert!(self.slabs.len() + self.held.len() <= self.slabs_max, "slabs keep to their bound");
        for run in self.runs.values() {
            let slab = self.slabs.iter().find(|slab| slab.number == run.slab);
            let slab = slab.expect("the runs of a slab go with it");
            assert!(run.position + run.length <= slab.used_bytes, "a run is in its slab");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::MemoryDisk;
    use model::{GroupId, StreamId};

    fn stream(number: u64) -> StreamKey {
        StreamKey { group: GroupId::new(1), stream: StreamId::new(number) }
    }

    /// Eight slabs that hold one run of a page each.
    fn runs() -> RecentRuns {
        RecentRuns::new(Arc::new(MemoryDisk::new()), (10, SLABS_MIN * PAGE_BYTES))
    }

    fn put(runs: &mut RecentRuns, number: u64) -> Option<Slice> {
        runs.put((stream(number), 100), 1, &[&[number as u8; 30], &[99; 30]])
    }

    fn find(runs: &mut RecentRuns, number: u64, from: u64) -> Option<Vec<u8>> {
        runs.check();
        let slice = runs.find(stream(number), from, 20)?;
        Some(slice.to_bytes().unwrap().to_vec())
    }

    #[test]
    fn a_run_has_the_bytes_of_its_pieces_and_is_found_by_each_of_them() {
        let mut runs = runs();
        let whole = put(&mut runs, 7).unwrap().to_bytes().unwrap();
        assert_eq!(whole, [[7; 30], [99; 30]].concat());
        assert_eq!(find(&mut runs, 7, 100).unwrap(), [7; 20]);
        assert_eq!(find(&mut runs, 7, 120).unwrap(), whole[20..40]);
        assert_eq!(find(&mut runs, 7, 159).unwrap(), [99]);
        for (number, from) in [(7, 99), (7, 160), (6, 100), (8, 100)] {
            assert!(find(&mut runs, number, from).is_none(), "{number} at {from}");
        }
        assert_eq!((runs.hits(), runs.held_bytes()), (3, PAGE_BYTES));
    }

    #[test]
    fn what_is_read_again_and_again_stays() {
        let mut runs = runs();
        for number in 0..100 {
            put(&mut runs, number).unwrap();
            assert!(find(&mut runs, 0, 100).is_some(), "gone after {number}");
            assert!(runs.held_bytes() <= SLABS_MIN * PAGE_BYTES);
        }
        let kept = (0..100).filter(|number| find(&mut runs, *number, 100).is_some()).count();
        assert_eq!(kept as u64, SLABS_MIN);
    }

    /// Reads a page from the beginning of a stream; whether it found a run, or made one.
    fn read_page(runs: &mut RecentRuns, number: u64) -> (bool, bool) {
        runs.check();
        if runs.find(stream(number), 0, PAGE_BYTES as usize).is_some() {
            return (true, false);
        }
        let before = runs.asked_before((stream(number), 0), PAGE_BYTES);
        let page = [number as u8; PAGE_BYTES as usize];
        (false, before > 0 && runs.put((stream(number), 0), before, &[&page]).is_some())
    }

    #[test]
    fn a_round_of_more_than_fits_finds_what_fits_each_time() {
        let mut runs = runs();
        for round in 0..200 {
            let read: Vec<_> = (0..20).map(|number| read_page(&mut runs, number)).collect();
            let found = read.iter().filter(|(found, _)| *found).count() as u64;
            let made = read.iter().filter(|(_, made)| *made).count() as u64;
            let wanted = [(0, 0), (0, SLABS_MIN)];
            assert_eq!((found, made), *wanted.get(round).unwrap_or(&(SLABS_MIN, 0)), "{round}");
        }
    }

    #[test]
    fn what_is_read_far_more_often_takes_the_place_of_what_was_read_less() {
        let mut runs = runs();
        for _ in 0..10 {
            (0..20).for_each(|number| _ = read_page(&mut runs, number));
        }
        let asked = (1..100).find(|_| read_page(&mut runs, 50).1).expect("it gets its place");
        assert!((4..40).contains(&asked), "{asked}");
        assert!(read_page(&mut runs, 50).0);
    }

    #[test]
    fn slow_readers_hold_no_more_than_the_bound() {
        let mut runs = runs();
        let slices: Vec<Slice> = (0..20).map_while(|number| put(&mut runs, number)).collect();
        assert_eq!(slices.len() as u64, SLABS_MIN, "the others are copied");
        runs.check();
        for (number, slice) in slices.iter().enumerate() {
            assert_eq!(slice.to_bytes().unwrap()[..30], [number as u8; 30], "as it was sent");
        }
        drop(slices);
        assert!(put(&mut runs, 50).is_some());
        assert!(runs.held_bytes() <= SLABS_MIN * PAGE_BYTES);
    }

    #[test]
    fn only_the_same_read_is_asked_again() {
        let mut runs = runs();
        let mut asked = |number, from| runs.asked_before((stream(number), from), 1);
        for before in 0..4 {
            let asked = [asked(1, 0), asked(1, 100), asked(2, 0), asked(2, 100)];
            assert_eq!(asked, [before; 4]);
        }
    }

    #[test]
    fn without_a_bound_there_are_none() {
        let mut runs = RecentRuns::new(Arc::new(MemoryDisk::new()), (10, 0));
        assert!(!runs.is_long(1 << 20) && put(&mut runs, 1).is_none());
    }
}
