//! What was asked of the server and what it answered: the other side of every promise.
//!
//! # Driving it
//! The sender records a request before it is sent, and its outcome when the answer arrives. A request
//! without an answer stays unknown. After a restart [`Stream::check`] gets all that a stream holds and
//! returns what contradicts the record. The contents settle what was unknown, forever.
//!
//! # Invariants
//! A lock of a stream is held while that of an ancestor is taken, never the other way: forks have
//! greater numbers than their sources.

use crate::record::{Append, AppendId, Found, Kind, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use xxhash_rust::xxh3::xxh3_64;

/// How the server distinguishes appends to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Not at all: an unknown one is not repeated.
    Plain,
    /// By producer numbers: an unknown one is repeated until the answer is known.
    Producer,
    /// By a `Stream-Seq`: the repeat of one that was stored is refused.
    Sequenced,
}

/// What is known of a create, a close or a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Never asked for, or refused.
    No,
    /// Asked for, no answer.
    Unknown,
    /// Acknowledged, or seen by a reader.
    Done,
}

/// What is known of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Unknown,
    /// Acknowledged, or seen; where it ends, if that was said.
    Stored(Option<u64>),
    /// Refused, or unknown and not there after a restart.
    Absent,
}

#[derive(Debug, Clone)]
struct Attempt {
    stored_bytes: u64,
    hash: u64,
    closes: bool,
    state: State,
    /// It was sent before without an answer: the refusal of a repeat says nothing of that.
    is_doubtful: bool,
    /// It was sent to one of several nodes and got no answer: it may come behind what was sent later.
    may_be_late: bool,
}

/// Bytes that a reader was given.
#[derive(Debug, Clone, Copy)]
struct Seen {
    from: u64,
    to: u64,
    hash: u64,
}

/// One writer of a stream of repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writer {
    /// The next number that was never sent.
    pub(crate) next: u64,
    /// Numbers that were sent and whose answer is not known to the writer, in order.
    pub(crate) pending: Vec<u64>,
    pub(crate) epoch: u64,
    /// The number that is sequence 0 of the epoch.
    pub(crate) epoch_start: u64,
}

/// Where a fork comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fork {
    pub(crate) source: u32,
    pub(crate) at: u64,
    pub(crate) depth: u32,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) style: Style,
    /// The only worker that writes to it, or any.
    pub(crate) owner: Option<u32>,
    pub(crate) fork: Option<Fork>,
    /// Whether it was made with a first append.
    pub(crate) has_first: bool,
    pub(crate) created: Fate,
    pub(crate) closed: Fate,
    pub(crate) deleted: Fate,
    /// Another stream has been asked for at its path.
    pub(crate) is_replaced: bool,
    pub(crate) writers: Vec<Writer>,
    /// A request for it got no answer from one of several nodes, and may be under way between them. So nobody deletes it,
    /// and nobody takes its path: the request would meet the next stream.
    pub(crate) may_change: bool,
    /// The greatest position that is known to end an append.
    pub(crate) tail_known: u64,
    attempts: BTreeMap<(u32, u64), Attempt>,
    seen: Vec<Seen>,
}

/// What a stream holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) content: &'a [u8],
    pub(crate) is_closed: bool,
    /// The server was started again: what is missing now stays missing.
    pub(crate) is_final: bool,
}

/// What a check went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Acknowledged appends that are there.
    pub(crate) appends: u64,
    /// Appends without an answer that turned out to be there, or not.
    pub(crate) settled: u64,
    /// Ranges that readers had been given.
    pub(crate) ranges_seen: u64,
    pub(crate) bytes: u64,
}

/// All streams of one data directory.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) seed: u64,
    streams: RwLock<Vec<Arc<Mutex<Stream>>>>,
}

/// A handle that may be used after a worker has panicked: the panic is reported by itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, streams: RwLock::default() }
    }

    /// Adds the stream that `make` gives for its number.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Stream) -> Arc<Mutex<Stream>> {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let stream = make(u32::try_from(streams.len()).expect("few streams"));
        streams.push(Arc::new(Mutex::new(stream)));
        Arc::clone(streams.last().expect("pushed a line above"))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Mutex<Stream>>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn get(&self, id: u32) -> Option<Arc<Mutex<Stream>>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).get(id as usize).cloned()
    }

    /// Whether the stream that `found` names holds it at the same place.
    fn stands_in_source(&self, found: &Found) -> Result<(), String> {
        let source = self.get(found.id.stream).ok_or("no such stream was ever made")?;
        let source = lock(&source);
        let attempt = source.attempts.get(&(found.id.writer, found.id.number));
        let attempt = attempt.ok_or("it was never sent there")?;
        let end = match attempt.state {
            State::Stored(end) => end,
            State::Unknown => None,
            State::Absent => return Err("it was refused there".to_owned()),
        };
        let is_same = attempt.hash == found.hash && end.is_none_or(|end| end == found.end);
        if is_same { Ok(()) } else { Err(format!("there it is {attempt:?}")) }
    }
}

impl Stream {
    pub(crate) fn new(id: u32, path: String, kind: Kind, style: Style) -> Self {
        Self {
            id,
            path,
            kind,
            style,
            owner: None,
            fork: None,
            has_first: false,
            created: Fate::No,
            closed: Fate::No,
            deleted: Fate::No,
            is_replaced: false,
            may_change: false,
            writers: vec![Writer::default(); 2],
            tail_known: 0,
            attempts: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    pub(crate) const fn append_id(&self, writer: u32, number: u64) -> AppendId {
        AppendId { stream: self.id, writer, number }
    }

    /// Whether appends can be expected to be taken.
    pub(crate) fn is_open(&self) -> bool {
        self.created == Fate::Done && self.closed == Fate::No && self.deleted == Fate::No
    }

    /// An append is about to be sent, for the first time or again.
    pub(crate) fn begin(&mut self, id: AppendId, append: &Append, closes: bool) {
        let Append { stored_bytes, hash, .. } = *append;
        let state = State::Unknown;
        let is_repeat = self.attempts.contains_key(&(id.writer, id.number));
        let attempt =
            Attempt { stored_bytes, hash, closes, state, is_doubtful: false, may_be_late: false };
        let attempt = self.attempts.entry((id.writer, id.number)).or_insert(attempt);
        attempt.is_doubtful = is_repeat && attempt.state == State::Unknown;
        assert_eq!(attempt.hash, hash, "a repeat sends the same");
        attempt.closes = closes;
        if attempt.state == State::Absent {
            attempt.state = State::Unknown;
        }
        if closes && self.closed == Fate::No {
            self.closed = Fate::Unknown;
        }
    }

    pub(crate) fn state(&self, writer: u32, number: u64) -> Option<State> {
        self.attempts.get(&(writer, number)).map(|attempt| attempt.state)
    }

    /// Whether the append was to close the stream.
    pub(crate) fn closes(&self, writer: u32, number: u64) -> bool {
        self.attempts.get(&(writer, number)).is_some_and(|attempt| attempt.closes)
    }

    /// The answer was that the append is new and ends at `end`.
    ///
    /// # Errors
    /// If it had been stored before.
    pub(crate) fn stored(&mut self, id: AppendId, end: u64) -> Result<(), String> {
        self.tail_known = self.tail_known.max(end);
        let (path, attempt) = (self.path.clone(), self.attempt(id));
        if let State::Stored(before) = attempt.state {
            return Err(format!(
                "{path}: {id:?} was stored (up to {before:?}) and its repeat is taken as new, up to {end}"
            ));
        }
        attempt.state = State::Stored(Some(end));
        self.settle_close(id);
        Ok(())
    }

    /// The answer was that the append is there already.
    pub(crate) fn repeated(&mut self, id: AppendId) {
        let attempt = self.attempt(id);
        if attempt.state == State::Unknown {
            attempt.state = State::Stored(None);
        }
        self.settle_close(id);
    }

    /// The answer was that nothing was done.
    pub(crate) fn refused(&mut self, id: AppendId) {
        let attempt = self.attempt(id);
        if attempt.state == State::Unknown && !attempt.is_doubtful {
            attempt.state = State::Absent;
            if attempt.closes && self.closed == Fate::Unknown {
                self.closed = Fate::No;
            }
        }
    }

    /// A request got no answer from one of several nodes: an append, or another.
    pub(crate) fn unanswered(&mut self, append: Option<AppendId>) {
        self.may_change = true;
        if let Some(id) = append {
            self.attempt(id).may_be_late = true;
        }
    }

    fn settle_close(&mut self, id: AppendId) {
        if self.attempt(id).closes {
            self.closed = Fate::Done;
        }
    }

    fn attempt(&mut self, id: AppendId) -> &mut Attempt {
        self.attempts.get_mut(&(id.writer, id.number)).expect("it was begun")
    }

    /// A reader was given these bytes from `from` on.
    pub(crate) fn saw(&mut self, from: u64, stored: &[u8]) {
        let to = from + stored.len() as u64;
        if to > from {
            self.seen.push(Seen { from, to, hash: xxh3_64(stored) });
        }
    }

    /// The greatest number of `writer` that is stored.
    pub(crate) fn last_stored(&self, writer: u32) -> Option<u64> {
        let of_writer = self.attempts.range((writer, 0)..=(writer, u64::MAX));
        let mut stored = of_writer.filter(|(_, a)| matches!(a.state, State::Stored(_)));
        stored.next_back().map(|((_, number), _)| *number)
    }

    /// Ends of appends that are known, for reading from there.
    pub(crate) fn ends(&self) -> Vec<u64> {
        let ends = self.attempts.values().filter_map(|attempt| match attempt.state {
            State::Stored(end) => end,
            State::Unknown | State::Absent => None,
        });
        ends.collect()
    }

    /// Compares all that the stream holds with what is known, and learns from it. To be called when no
    /// request for the stream is under way.
    ///
    /// # Errors
    /// What contradicts.
    pub(crate) fn check(&mut self, ledger: &Ledger, held: Held<'_>) -> Result<Checked, String> {
        let content = held.content;
        let found = parse(self.kind, content)?;
        let own_from = self.check_inherited(ledger, &found)?;
        let mut checked = Checked { bytes: content.len() as u64, ..Checked::default() };
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        let mut there = BTreeSet::new();
        for found in &found[own_from..] {
            if found.id.stream != self.id {
                return Err(format!("{found:?} belongs to another stream"));
            }
            if !there.insert(found.id) {
                return Err(format!("{found:?} is there TWICE"));
            }
            let last = last.entry(found.id.writer).or_default();
            if *last > found.id.number && !self.may_be_late(found.id) {
                return Err(format!("{found:?} comes after number {last} of its writer"));
            }
            *last = found.id.number.max(*last);
            self.check_found(found, &mut checked)?;
        }
        self.check_missing(&found[own_from..], held.is_final, &mut checked)?;
        self.check_seen(content, &mut checked)?;
        self.check_closed(held.is_closed)?;
        self.tail_known = content.len() as u64;
        self.may_change &= !held.is_final;
        Ok(checked)
    }

    /// Whether nothing orders the append: the server does if it distinguishes appends.
    fn may_be_late(&self, id: AppendId) -> bool {
        let attempt = self.attempts.get(&(id.writer, id.number));
        self.style == Style::Plain && attempt.is_some_and(|attempt| attempt.may_be_late)
    }

    /// The index of the first append that is not inherited.
    fn check_inherited(&self, ledger: &Ledger, found: &[Found]) -> Result<usize, String> {
        let Some(fork) = self.fork else { return Ok(0) };
        let count = found.iter().take_while(|found| found.end <= fork.at).count();
        let end = found[..count].last().map_or(0, |found| found.end);
        if end != fork.at {
            return Err(format!("inherited bytes end at {end} and not at {}", fork.at));
        }
        for found in &found[..count] {
            let check = ledger.stands_in_source(found);
            check.map_err(|why| format!("inherited {found:?} is not its source's: {why}"))?;
        }
        Ok(count)
    }

    fn check_found(&mut self, found: &Found, checked: &mut Checked) -> Result<(), String> {
        let attempt = self.attempts.get_mut(&(found.id.writer, found.id.number));
        let attempt = attempt.ok_or_else(|| format!("{found:?} was never sent"))?;
        if (attempt.stored_bytes, attempt.hash) != (found.end - found.start, found.hash) {
            return Err(format!("{found:?} differs from what was sent: {attempt:?}"));
        }
        match attempt.state {
            State::Absent => return Err(format!("{found:?} was refused or gone, and is there")),
            State::Stored(Some(end)) if end != found.end => {
                return Err(format!("{found:?} was acknowledged to end at {end}"));
            }
            State::Stored(_) => checked.appends += 1,
            State::Unknown => checked.settled += 1,
        }
        attempt.state = State::Stored(Some(found.end));
        if attempt.closes {
            // Data and close are one entry: the check of the close below wants both.
            self.closed = Fate::Done;
        }
        Ok(())
    }

    fn check_missing(
        &mut self,
        found: &[Found],
        is_final: bool,
        checked: &mut Checked,
    ) -> Result<(), String> {
        let mut there: Vec<(u32, u64)> = found.iter().map(|f| (f.id.writer, f.id.number)).collect();
        there.sort_unstable();
        for (key, attempt) in &mut self.attempts {
            if there.binary_search(key).is_ok() {
                continue;
            }
            match attempt.state {
                State::Stored(end) => {
                    return Err(format!("LOST: {key:?}, acknowledged up to {end:?}: {attempt:?}"));
                }
                State::Unknown if is_final => {
                    checked.settled += 1;
                    attempt.state = State::Absent;
                    if attempt.closes && self.closed == Fate::Unknown {
                        self.closed = Fate::No;
                    }
                }
                State::Absent | State::Unknown => {}
            }
        }
        Ok(())
    }

    fn check_seen(&mut self, content: &[u8], checked: &mut Checked) -> Result<(), String> {
        for seen in std::mem::take(&mut self.seen) {
            let range = usize::try_from(seen.from).ok().zip(usize::try_from(seen.to).ok());
            let now = range.and_then(|(from, to)| content.get(from..to));
            let now = now.ok_or_else(|| {
                format!("a reader saw {seen:?} and only {} bytes are there", content.len())
            })?;
            if xxh3_64(now) != seen.hash {
                return Err(format!("a reader saw other bytes in {seen:?}"));
            }
            checked.ranges_seen += 1;
        }
        Ok(())
    }

    fn check_closed(&mut self, is_closed: bool) -> Result<(), String> {
        match (self.closed, is_closed) {
            (Fate::Done, false) => Err("it was closed and is open".to_owned()),
            (Fate::No, true) => Err("it is closed and nobody closed it".to_owned()),
            (Fate::Unknown, true) => {
                self.closed = Fate::Done;
                Ok(())
            }
            // The client that asked for the close asks again.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
