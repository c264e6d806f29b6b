//! One connection that writes.

use super::appends::{Sent, begin, settle};
use super::{REFUSAL_PAUSE, Round};
use crate::doors::Place;
use crate::http::{Answer, Connection, offset, reference, request};
use crate::ledger::{Fate, Fork, Stream, Style, lock};
use crate::numbers::Numbers;
use crate::record::{Kind, append};
use crate::report::add;
use std::io;
use std::sync::{Arc, Mutex};

/// Open streams that a worker keeps at a time.
const STREAMS_PER_WORKER: usize = 5;
/// Closed streams that a worker keeps to be verified; an older one is deleted.
const CLOSED_PER_WORKER: usize = 6;
/// Workers that make a stream for all when they know of none.
const SHARED_MAKERS: u32 = 6;
/// A stream of this length is closed, so that a long run reads what a short one does.
const STREAM_BYTES_MAX: u64 = 400 << 10;
/// Requests that go out before the first is answered.
const PIPELINE_MAX: u64 = 8;
/// Longest chain of forks: below what the server takes.
const FORK_DEPTH_MAX: u32 = 4;

type Shared = Arc<Mutex<Stream>>;

/// One connection that writes.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    round: &'a Round<'a>,
    index: u32,
    numbers: Numbers,
    place: Place,
    connection: Option<Connection>,
    own: Vec<Shared>,
    shared: Vec<Shared>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(round: &'a Round<'a>, index: u32) -> Self {
        let all = round.ledger.all();
        let of = |owner: Option<u32>| {
            let wanted = |stream: &&Shared| {
                let stream = lock(stream);
                stream.owner == owner && !stream.is_replaced && !is_over(&stream)
            };
            all.iter().filter(wanted).cloned().collect()
        };
        let (own, shared) = (of(Some(index)), of(None));
        let numbers = round.numbers(u64::from(index));
        let place = round.doors.place(index);
        Self { round, index, numbers, place, connection: None, own, shared }
    }

    /// Works until told to stop or until all servers are gone.
    pub(super) fn run(mut self) {
        while self.round.is_running() {
            let Some(here) = self.round.leave(&mut self.connection, self.place) else { return };
            self.place = here;
            let Err(error) = self.step() else { continue };
            self.connection = None;
            let Some(next) = self.round.after_break(self.place, &error) else { return };
            self.place = next;
        }
    }

    fn step(&mut self) -> io::Result<()> {
        self.own.retain(|stream| !is_over(&lock(stream)));
        let is_closed = |stream: &Shared| lock(stream).closed == Fate::Done;
        let (closed, open): (Vec<Shared>, Vec<Shared>) =
            self.own.iter().cloned().partition(is_closed);
        if closed.len() > CLOSED_PER_WORKER
            && let Some(first) = closed.iter().find(|stream| !lock(stream).may_change)
        {
            return self.delete(first);
        }
        if open.len() < STREAMS_PER_WORKER || self.numbers.chance(1) {
            return self.create();
        }
        if self.numbers.chance(30) && (!self.shared.is_empty() || self.index < SHARED_MAKERS) {
            return self.step_shared();
        }
        let stream = Arc::clone(self.numbers.pick(&open));
        self.step_own(&stream)
    }

    /// Appends to a stream of all, or replaces one that is full.
    fn step_shared(&mut self) -> io::Result<()> {
        self.shared.retain(|stream| lock(stream).closed != Fate::Done);
        if self.shared.is_empty() {
            return self.create_shared();
        }
        let stream = Arc::clone(self.numbers.pick(&self.shared));
        let (is_full, is_created) = {
            let stream = lock(&stream);
            (stream.tail_known > STREAM_BYTES_MAX, stream.created == Fate::Done)
        };
        if !is_created {
            return self.put(&stream);
        }
        if is_full || lock(&stream).closed == Fate::Unknown {
            return self.close(&stream);
        }
        let count = self.numbers.within(1, PIPELINE_MAX + 1);
        let numbers: Vec<Sent> = {
            let mut stream = lock(&stream);
            let first = stream.writers[0].next;
            stream.writers[0].next += count;
            let sent = |number| Sent { id: stream.append_id(self.index, number), is_repeat: false };
            (first..first + count).map(sent).collect()
        };
        self.burst(&stream, &numbers, false)
    }

    fn step_own(&mut self, stream: &Shared) -> io::Result<()> {
        let (created, closed, deleted, has_pending, tail, style, may_change) = {
            let s = lock(stream);
            let has_pending = s.writers.iter().any(|writer| !writer.pending.is_empty());
            (s.created, s.closed, s.deleted, has_pending, s.tail_known, s.style, s.may_change)
        };
        if deleted == Fate::Unknown {
            return self.delete(stream);
        }
        if created == Fate::Unknown {
            return self.put(stream);
        }
        if closed == Fate::Done {
            return Ok(());
        }
        if has_pending {
            return self.append_own(stream, false);
        }
        if closed == Fate::Unknown {
            return self.close(stream);
        }
        match self.numbers.within(0, 1000) {
            0..5 if !may_change => self.delete(stream),
            5..15 => self.close(stream),
            15..30 => self.append_own(stream, true),
            30..50 if style == Style::Producer => {
                begin_epoch(&mut lock(stream), &mut self.numbers);
                Ok(())
            }
            _ if tail > STREAM_BYTES_MAX => self.append_own(stream, true),
            _ => self.append_own(stream, false),
        }
    }

    /// Repeats what is pending and adds new appends; the last one may close the stream.
    fn append_own(&mut self, stream: &Shared, closes: bool) -> io::Result<()> {
        let (sent, closes) = {
            let mut stream = lock(stream);
            let writer = match stream.style {
                Style::Producer => {
                    let pending = stream.writers.iter().position(|w| !w.pending.is_empty());
                    pending.unwrap_or_else(|| self.numbers.below(stream.writers.len()))
                }
                Style::Plain | Style::Sequenced => 0,
            };
            let style = stream.style;
            let state = &mut stream.writers[writer];
            let mut sent: Vec<(u64, bool)> = state.pending.iter().map(|n| (*n, true)).collect();
            let new = match style {
                Style::Sequenced => u64::from(sent.is_empty()),
                _ if closes || !sent.is_empty() => u64::from(sent.is_empty()),
                _ => self.numbers.within(1, PIPELINE_MAX + 1),
            };
            sent.extend((state.next..state.next + new).map(|number| (number, false)));
            if style != Style::Plain {
                state.pending.extend(state.next..state.next + new);
            }
            state.next += new;
            let writer = u32::try_from(writer).expect("two writers");
            let closes = closes || sent.iter().any(|(number, _)| stream.closes(writer, *number));
            let sent = sent.into_iter().map(|(number, is_repeat)| Sent {
                id: stream.append_id(writer, number),
                is_repeat,
            });
            (sent.collect::<Vec<Sent>>(), closes)
        };
        self.burst(stream, &sent, closes)
    }

    /// Sends appends one behind the other and books the answers as they come.
    fn burst(&mut self, stream: &Shared, sent: &[Sent], closes: bool) -> io::Result<()> {
        let mut requests = Vec::new();
        {
            let mut stream = lock(stream);
            for (at, one) in sent.iter().enumerate() {
                let closes = closes && at + 1 == sent.len();
                requests.extend(begin(self.round, &mut stream, *one, closes));
            }
        }
        let mut answered = 0;
        let result = self.with_connection(|connection| {
            connection.send(&requests)?;
            Ok(())
        });
        let result = result.and_then(|()| {
            for one in sent {
                let answer = self.with_connection(Connection::answer)?;
                answered += 1;
                let is_refused = !answer.is_success();
                let booked = settle(self.round, &mut lock(stream), *one, &answer);
                booked.unwrap_or_else(|what| self.round.report.violation(what));
                if is_refused {
                    std::thread::sleep(REFUSAL_PAUSE);
                }
            }
            Ok(())
        });
        let unanswered = &sent[answered..];
        add(&self.round.report.unknown, unanswered.len() as u64);
        if self.round.doors.are_several() {
            unanswered.iter().for_each(|one| lock(stream).unanswered(Some(one.id)));
        }
        result
    }

    fn create(&mut self) -> io::Result<()> {
        let styles = [Style::Plain, Style::Producer, Style::Producer, Style::Sequenced];
        let (kind, style) = (*self.numbers.pick(&Kind::ALL), *self.numbers.pick(&styles));
        let fork = if self.numbers.chance(25) { self.fork_source() } else { None };
        let kind = fork.map_or(kind, |(_, kind)| kind);
        let has_first = fork.is_none() && self.numbers.chance(40);
        let old = if self.numbers.chance(30) { self.replaceable() } else { None };
        let index = self.index;
        let stream = self.round.ledger.add(|id| {
            let path = old.as_ref().map_or(format!("/w{index}/{id}"), |old| lock(old).path.clone());
            let mut stream = Stream::new(id, path, kind, style);
            stream.owner = Some(index);
            stream.has_first = has_first;
            stream.fork = fork.map(|(fork, _)| fork);
            stream.tail_known = stream.fork.map_or(0, |fork| fork.at);
            stream
        });
        if let Some(old) = old {
            lock(&old).is_replaced = true;
        }
        self.own.push(Arc::clone(&stream));
        self.put(&stream)
    }

    fn create_shared(&mut self) -> io::Result<()> {
        let kind = *self.numbers.pick(&Kind::ALL);
        let make = |id| Stream::new(id, format!("/shared/{id}"), kind, Style::Plain);
        let stream = self.round.ledger.add(make);
        self.shared.push(Arc::clone(&stream));
        self.put(&stream)
    }

    /// A stream of this worker to fork, at the end of one of its appends.
    fn fork_source(&mut self) -> Option<(Fork, Kind)> {
        if self.own.is_empty() {
            return None;
        }
        let source = Arc::clone(self.numbers.pick(&self.own));
        let source = lock(&source);
        let depth = source.fork.map_or(1, |fork| fork.depth + 1);
        let usable = source.created == Fate::Done && source.deleted == Fate::No;
        let ends = source.ends();
        if !usable || depth > FORK_DEPTH_MAX || ends.is_empty() {
            return None;
        }
        let at = *self.numbers.pick(&ends);
        Some((Fork { source: source.id, at, depth }, source.kind))
    }

    /// A deleted stream whose path can be used again.
    fn replaceable(&mut self) -> Option<Shared> {
        let all = self.round.ledger.all();
        let wanted = |stream: &&Shared| {
            let stream = lock(stream);
            let is_free = stream.deleted == Fate::Done && !stream.is_replaced && !stream.may_change;
            stream.owner == Some(self.index) && is_free
        };
        let found: Vec<Shared> = all.iter().filter(wanted).cloned().collect();
        (!found.is_empty()).then(|| Arc::clone(self.numbers.pick(&found)))
    }

    /// Creates the stream, or repeats that.
    fn put(&mut self, stream: &Shared) -> io::Result<()> {
        let (bytes, first, is_repeat) = {
            let mut s = lock(stream);
            let is_repeat = s.created == Fate::Unknown;
            s.created = Fate::Unknown;
            let source =
                s.fork.map(|fork| self.round.ledger.get(fork.source).expect("made before"));
            let source = source.map(|source| reference(&lock(&source).path));
            let mut fields = vec![("Content-Type", s.kind.media_type().to_owned())];
            if let (Some(source), Some(fork)) = (source, s.fork) {
                fields.push(("Stream-Forked-From", source));
                fields.push(("Stream-Fork-Offset", offset(fork.at)));
            }
            let mut body = Vec::new();
            let first = s.has_first.then(|| s.append_id(0, 0));
            if let Some(id) = first {
                let append = append(s.kind, id, self.round.ledger.seed);
                s.begin(id, &append, false);
                // Producers and sequences do not know of it: their numbers begin behind it.
                s.writers[0].next = s.writers[0].next.max(1);
                s.writers[0].epoch_start = s.writers[0].epoch_start.max(1);
                body = append.body;
            }
            let fields: Vec<_> = fields.iter().map(|(name, v)| (*name, v.as_str())).collect();
            (request("PUT", &s.path, &fields, &body), first, is_repeat)
        };
        let answer = self.call(stream, &bytes)?;
        let mut s = lock(stream);
        match answer.status {
            201 | 200 => {
                if answer.status == 200 && !is_repeat && s.owner.is_some() {
                    let what = format!("{}: a new stream is said to exist", s.path);
                    self.round.report.violation(what);
                }
                s.created = Fate::Done;
                if let Some(id) = first {
                    s.repeated(id);
                }
                add(&self.round.report.lifecycle, 1);
            }
            // The path of a deleted stream that forks still read.
            409 if answer.code() == "path-blocked" => drop_replacement(self.round, &mut s),
            // A fork's creation reads from its source. What is there after the restart must be intact.
            500 if answer.code() == "stream-damaged"
                && s.fork.is_some()
                && self.round.has_lost_disk() =>
            {
                self.note_refused();
            }
            _ => self.refusal(&mut s, &answer, "a create"),
        }
        Ok(())
    }

    fn close(&mut self, stream: &Shared) -> io::Result<()> {
        let bytes = {
            let mut stream = lock(stream);
            if stream.closed == Fate::No {
                stream.closed = Fate::Unknown;
            }
            request("POST", &stream.path, &[("Stream-Closed", "true")], b"")
        };
        let answer = self.call(stream, &bytes)?;
        let mut stream = lock(stream);
        if answer.status == 204 && answer.closed {
            stream.closed = Fate::Done;
            add(&self.round.report.lifecycle, 1);
        } else {
            self.refusal(&mut stream, &answer, "a close");
        }
        Ok(())
    }

    fn delete(&mut self, stream: &Shared) -> io::Result<()> {
        // A fork whose create is repeated must find its source, not the next stream of that path.
        let id = lock(stream).id;
        let awaits = |own: &Stream| {
            own.created == Fate::Unknown && own.fork.is_some_and(|fork| fork.source == id)
        };
        let waiting = self.own.iter().find(|own| awaits(&lock(own))).cloned();
        if let Some(fork) = waiting {
            return self.put(&fork);
        }
        let (bytes, is_repeat) = {
            let mut stream = lock(stream);
            let is_repeat = stream.deleted == Fate::Unknown;
            stream.deleted = Fate::Unknown;
            (request("DELETE", &stream.path, &[], b""), is_repeat)
        };
        let answer = self.call(stream, &bytes)?;
        let mut stream = lock(stream);
        match answer.status {
            204 => {
                stream.deleted = Fate::Done;
                add(&self.round.report.lifecycle, 1);
            }
            404 | 410 if is_repeat => stream.deleted = Fate::Done,
            _ => self.refusal(&mut stream, &answer, "a delete"),
        }
        Ok(())
    }

    /// A create, close or delete was not done: it will be repeated.
    fn refusal(&self, stream: &mut Stream, answer: &Answer, what: &str) {
        if answer.code() == "write-unknown" && self.round.doors.are_several() {
            stream.unanswered(None);
        }
        if self.round.is_refusal(answer) {
            return self.note_refused();
        }
        let what = format!("{}: {what} was answered {}", stream.path, answer.shown());
        self.round.report.violation(what);
    }

    fn note_refused(&self) {
        add(&self.round.report.refused, 1);
        std::thread::sleep(REFUSAL_PAUSE);
    }

    /// Creates, closes or deletes.
    fn call(&mut self, stream: &Shared, bytes: &[u8]) -> io::Result<Answer> {
        let result = self.with_connection(|connection| connection.call(bytes));
        add(&self.round.report.unknown, u64::from(result.is_err()));
        if result.is_err() && self.round.doors.are_several() {
            lock(stream).unanswered(None);
        }
        result
    }

    fn with_connection<T>(
        &mut self,
        run: impl FnOnce(&mut Connection) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.connection.is_none() {
            self.connection = Some(self.round.doors.open(&mut self.place)?);
        }
        run(self.connection.as_mut().expect("opened above"))
    }
}

/// Nothing more can be done with it.
fn is_over(stream: &Stream) -> bool {
    stream.deleted == Fate::Done
}

/// A producer starts again under a greater epoch, at sequence 0.
fn begin_epoch(stream: &mut Stream, numbers: &mut Numbers) {
    let writer = numbers.below(stream.writers.len());
    let writer = &mut stream.writers[writer];
    writer.epoch += 1;
    writer.epoch_start = writer.next;
}

/// The path stays with the stream that was deleted.
fn drop_replacement(round: &Round<'_>, stream: &mut Stream) {
    stream.created = Fate::No;
    stream.deleted = Fate::Done;
    add(&round.report.refused, 1);
}
