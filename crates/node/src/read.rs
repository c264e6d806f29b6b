//! Reads: where an answer starts and ends, and its first bytes.
//!
//! # Stable boundaries
//! An answer ends at the tail or at the next multiple of the boundary, whichever comes first. For JSON
//! streams it ends with the append that holds that multiple, because an answer is a complete array. So
//! wherever readers start, they end at the same places, and caches can share the pieces.
//!
//! # Beyond the tail
//! A reader whose offset lies beyond the tail has seen more than the server has. It gets nothing and
//! keeps its offset: a lower one would repeat what it has seen as something new.
//!
//! # Inherited bytes
//! A fork's inherited bytes are stored by other streams, perhaps of another shard. Positions inside
//! them are asked of their owner by [`Locate`]; their bytes are fetched by windows that name it.
//!
//! # Damage
//! The length of an answer is promised before its bytes are read. So each owner of some of them is
//! asked first how far they are intact. The answer then ends before known damage instead of being cut
//! there. The next read starts at the damage and gets an error.

use crate::{
    Failure, FoundRecord, Locate, LocateError, ReadReply, ReadRequest, Reply, ShardAnswer,
    ShardCall, Ticket,
    again::Again,
    finder::{Finder, Learned},
    records::{RecordSteps, Start},
    step::{Step, View},
};
use log::{Aim, Read, Slice};
use model::{ByteOffset, ReadFrom, StreamKey};
use stream::StreamInfo;

/// A read on its way.
#[derive(Debug)]
pub(crate) struct ReadSteps {
    ticket: Ticket,
    stage: Stage,
    again: Option<Box<Again>>,
}

#[derive(Debug)]
enum Stage {
    /// Its use of the stream is being logged.
    Asked(ReadRequest),
    /// What is asked of records is being looked for.
    Finding(Box<RecordSteps>, Sizes),
    Resolving(Ends),
    /// The ends are known, and the number of the record at the end is being looked for.
    Numbering(Box<Numbering>),
    Ended,
}

/// An answer that lacks the number of the record at its end.
#[derive(Debug)]
struct Numbering {
    ends: Ends,
    /// Its start and its end.
    known: (ByteOffset, ByteOffset),
    finder: Finder,
}

/// The ends of an answer, as far as they are known.
#[derive(Debug)]
struct Ends {
    key: StreamKey,
    info: StreamInfo,
    start: Position,
    end: Position,
    /// Up to here the owners of the bytes have no doubt: from `start`, once it is known.
    intact: ByteOffset,
    /// A longer answer gets no first bytes.
    first_bytes_max: u64,
    numbers: Option<Numbers>,
    /// The answer ends here at most.
    cap: Option<ByteOffset>,
}

/// Numbers of records at the ends of an answer.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    start: u64,
    /// That of a byte at which the answer may end.
    cap: Option<(ByteOffset, u64)>,
}

/// What a read says of the size of its answer.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    boundary_bytes: u64,
    first_bytes_max: u64,
}

impl Sizes {
    fn of(read: &ReadRequest) -> Self {
        Self { boundary_bytes: read.boundary_bytes, first_bytes_max: read.first_bytes_max }
    }
}

#[derive(Debug, Clone, Copy)]
enum Position {
    Known(ByteOffset),
    /// To be asked of the owner of this byte.
    Near(ByteOffset),
}

impl ReadSteps {
    /// A read that waits until its use of the stream is logged.
    pub(crate) fn after_use(ticket: Ticket, read: ReadRequest) -> Self {
        Self { ticket, stage: Stage::Asked(read), again: None }
    }

    /// A read whose use need not be logged. Most are answered at once.
    pub(crate) fn new(view: &mut View<'_>, ticket: Ticket, read: &ReadRequest) -> (Self, Step) {
        let mut steps = Self { ticket, stage: Stage::Ended, again: None };
        let step = steps.begin_first(view, read);
        (steps, step)
    }

    pub(crate) fn step(&mut self, view: &mut View<'_>, answer: ShardAnswer) -> Step {
        let step = self.next_step(view, answer);
        let Some(mut again) = self.again.take() else { return step };
        let step = again.instead_of(&step).map(|read| self.begin(view, read)).unwrap_or(step);
        self.again = Some(again);
        step
    }

    fn next_step(&mut self, view: &mut View<'_>, answer: ShardAnswer) -> Step {
        let mut ends = match std::mem::replace(&mut self.stage, Stage::Ended) {
            // A use that could not be logged (the disk is full, or has failed) is answered too, as
            // is one that waited in vain (`write_queue`).
            Stage::Asked(read) => return self.begin_first(view, &read),
            Stage::Finding(records, sizes) => {
                return self.learn_record(view, (records, sizes), answer);
            }
            Stage::Numbering(numbering) => return self.learn_number(view, *numbering, answer),
            Stage::Resolving(ends) => ends,
            Stage::Ended => unreachable!("a read that has ended got {answer:?}"),
        };
        if let Err(failure) = ends.learn(located(answer)) {
            let failure = ends.not_missing(view, ends.asked_at(), failure);
            return Step::Reply(self.ticket, Reply::Failed(failure));
        }
        self.advance(view, ends)
    }

    /// Begins, and keeps what begins it again if that does not answer yet.
    fn begin_first(&mut self, view: &mut View<'_>, read: &ReadRequest) -> Step {
        let step = self.begin(view, read);
        if !matches!(self.stage, Stage::Ended) {
            self.again = Again::of(read);
        }
        step
    }

    /// Resolves what can be resolved at once.
    fn begin(&mut self, view: &mut View<'_>, read: &ReadRequest) -> Step {
        let state = view.state_of(&read.path);
        let info = match state.resolve(&read.path, view.now.wall) {
            Ok(info) => info,
            Err(refusal) => return Step::Refuse(self.ticket, read.path.clone(), refusal),
        };
        let key = StreamKey { group: state.group(), stream: info.stream };
        if read.wants_records() {
            return self.begin_records(view, (key, info), read);
        }
        let start = match read.from {
            ReadFrom::Begin => info.head,
            ReadFrom::At(offset) => offset,
            _ => info.tail,
        };
        if start < info.head {
            let failure = Failure::Trimmed { head: info.head };
            return Step::Reply(self.ticket, Reply::Failed(failure));
        }
        if start > info.tail {
            let nothing = ReadReply { key, info, start, end: start, first: None, records: None };
            return Step::Reply(self.ticket, Reply::Read(Box::new(nothing)));
        }
        let (start, end) = plan(view, (key, &info), start, read.boundary_bytes);
        let (intact, first_bytes_max) = (ByteOffset::ZERO, read.first_bytes_max);
        let (numbers, cap) = (None, None);
        self.advance(view, Ends { key, info, start, end, intact, first_bytes_max, numbers, cap })
    }

    /// Looks for the records that a read is about.
    fn begin_records(
        &mut self,
        view: &mut View<'_>,
        (key, info): (StreamKey, StreamInfo),
        read: &ReadRequest,
    ) -> Step {
        let wanted = read.records.unwrap_or_default();
        let start = match Start::of(&info, read.from, wanted.clamp) {
            Ok(start) => start,
            Err(failure) => return Step::Reply(self.ticket, Reply::Failed(failure)),
        };
        let records = Box::new(RecordSteps::new(key, info, start, wanted.bounds));
        self.find_records(view, records, Sizes::of(read))
    }

    fn find_records(
        &mut self,
        view: &mut View<'_>,
        records: Box<RecordSteps>,
        sizes: Sizes,
    ) -> Step {
        if let Some((owner, search)) = records.question() {
            self.stage = Stage::Finding(records, sizes);
            return Step::Ask(ShardCall::Find(owner, search));
        }
        let RecordSteps { key, info, start: (start, number), cap, .. } = *records;
        if start > info.tail {
            let records = Some((number, number));
            let nothing = ReadReply { key, info, start, end: start, first: None, records };
            return Step::Reply(self.ticket, Reply::Read(Box::new(nothing)));
        }
        let (_, mut end) = plan(view, (key, &info), start, sizes.boundary_bytes);
        let stable = match end {
            Position::Known(end) | Position::Near(end) => end,
        };
        let known = cap.and_then(|(end, number)| Some((end, number?)));
        let numbers = Some(Numbers { start: number, cap: known });
        if let Some((cap, _)) = cap.filter(|(cap, _)| *cap <= stable) {
            end = Position::Known(cap);
        }
        let (start, intact) = (Position::Known(start), ByteOffset::ZERO);
        let first_bytes_max = sizes.first_bytes_max;
        let cap = cap.map(|(end, _)| end);
        self.advance(view, Ends { key, info, start, end, intact, first_bytes_max, numbers, cap })
    }

    fn learn_record(
        &mut self,
        view: &mut View<'_>,
        (mut records, sizes): (Box<RecordSteps>, Sizes),
        answer: ShardAnswer,
    ) -> Step {
        match found(answer).and_then(|found| records.learn(found)) {
            Ok(()) => self.find_records(view, records, sizes),
            Err(failure) => view.not_found(self.ticket, (records.key, records.aim()), failure),
        }
    }

    fn learn_number(
        &mut self,
        view: &mut View<'_>,
        numbering: Numbering,
        answer: ShardAnswer,
    ) -> Step {
        let Numbering { ends, known, mut finder } = numbering;
        let learned = found(answer).and_then(|found| finder.learn(ends.key, &ends.info, found));
        match learned {
            Ok(Learned::Found(found)) => {
                let number = found.map_or(ends.info.next_record, |found| found.number);
                self.answer(view, ends, known, Some(number))
            }
            Ok(Learned::AskNext) => unreachable!("a byte has one owner"),
            Err(failure) => view.not_found(self.ticket, (ends.key, finder.aim()), failure),
        }
    }

    /// Asks what is not known yet, or answers.
    fn advance(&mut self, view: &mut View<'_>, mut ends: Ends) -> Step {
        let (start, end) = match ends.next_question(view) {
            Ok((owner, what)) => {
                self.stage = Stage::Resolving(ends);
                return Step::Ask(ShardCall::Locate(owner, what));
            }
            Err(known) => known,
        };
        let end_number = match ends.numbers {
            None => None,
            Some(Numbers { start: number, .. }) if start == end => Some(number),
            Some(_) if end == ends.info.tail => Some(ends.info.next_record),
            Some(Numbers { cap: Some((cap, number)), .. }) if cap == end => Some(number),
            Some(_) => {
                let finder = Finder::new(&ends.info, Aim::Byte(end));
                let (owner, search) = finder.question(ends.key, &ends.info);
                let known = (start, end);
                self.stage = Stage::Numbering(Box::new(Numbering { ends, known, finder }));
                return Step::Ask(ShardCall::Find(owner, search));
            }
        };
        self.answer(view, ends, (start, end), end_number)
    }

    /// Answers; `number` is that of the record at the end, if it was asked for.
    fn answer(
        &mut self,
        view: &mut View<'_>,
        ends: Ends,
        (start, end): (ByteOffset, ByteOffset),
        number: Option<u64>,
    ) -> Step {
        let reply = match ends.first_window(view, start, end) {
            Ok(first) => {
                let Ends { key, info, numbers, .. } = ends;
                let records = numbers.map(|numbers| numbers.start).zip(number);
                Reply::Read(Box::new(ReadReply { key, info, start, end, first, records }))
            }
            Err(failure) => Reply::Failed(failure),
        };
        Step::Reply(self.ticket, reply)
    }
}

impl ReadRequest {
    /// Whether it is about records and not bytes alone.
    fn wants_records(&self) -> bool {
        self.records.is_some()
            || matches!(
                self.from,
                ReadFrom::Record(_) | ReadFrom::TailRecords(_) | ReadFrom::Time(_)
            )
    }
}

/// The record that another shard has found.
pub(crate) fn found(answer: ShardAnswer) -> Result<Option<FoundRecord>, Failure> {
    match answer {
        ShardAnswer::Found(found) => found,
        ShardAnswer::Failed(failure) => Err(failure),
        other => unreachable!("a record was asked for, and the answer is {other:?}"),
    }
}

fn located(answer: ShardAnswer) -> Result<ByteOffset, Failure> {
    match answer {
        ShardAnswer::Located(Ok(offset)) => Ok(offset),
        ShardAnswer::Located(Err(LocateError::Failed(failure))) | ShardAnswer::Failed(failure) => {
            Err(failure)
        }
        other => unreachable!("a read asked for a position and got {other:?}"),
    }
}

fn plan(
    view: &View<'_>,
    (key, info): (StreamKey, &StreamInfo),
    start: ByteOffset,
    boundary_bytes: u64,
) -> (Position, Position) {
    let boundary = ByteOffset::new((start.get() / boundary_bytes + 1) * boundary_bytes);
    let json = info.layout.is_json();
    let end = match boundary {
        _ if boundary >= info.tail => Position::Known(info.tail),
        _ if json => Position::Near(boundary),
        _ => Position::Known(boundary),
    };
    let inside = json && start > info.head && start < info.tail;
    if inside && !is_append_start(view, (key, info), start) {
        return (Position::Near(start), end);
    }
    (Position::Known(start), end)
}

/// Whether `start` is known here to be the start of an append, hence of a message.
fn is_append_start(
    view: &View<'_>,
    (key, info): (StreamKey, &StreamInfo),
    start: ByteOffset,
) -> bool {
    info.lineage.span_at(start).is_none()
        && matches!(
            view.log.try_append_at(key, start),
            Ok(Read::Ready(Some(append))) if append.start == start
        )
}

impl Ends {
    /// What has to be asked, and of which stream's owner; else the start and the end.
    fn next_question(
        &mut self,
        view: &View<'_>,
    ) -> Result<(StreamKey, Locate), (ByteOffset, ByteOffset)> {
        match (self.start, self.end) {
            (Position::Near(at), _) => Ok((self.owner_of(at).0, Locate::MessageStart(at))),
            (_, Position::Near(at)) => Ok((self.owner_before(at).0, Locate::AppendEnd(at))),
            (Position::Known(start), Position::Known(end)) => {
                self.intact = self.intact.max(start);
                self.next_doubt(view, end).ok_or((start, end))
            }
        }
    }

    /// The next stream whose bytes of this answer may be damaged or not here yet. Its owner must be asked. It is of another
    /// shard, or damage of it is known, or it is of a group that is led elsewhere.
    fn next_doubt(&mut self, view: &View<'_>, end: ByteOffset) -> Option<(StreamKey, Locate)> {
        while self.intact < end {
            let (owner, limit) = self.owner_of(self.intact);
            let to = limit.min(end);
            let is_here = view.groups.is_here(owner.group);
            if !is_here || view.may_lack_bytes(owner) || view.may_be_behind(owner, to) {
                let json = self.info.layout.is_json();
                return Some((owner, Locate::IntactEnd { from: self.intact, to, json }));
            }
            self.intact = to;
        }
        None
    }

    /// Takes the answer to the last question. A failure is the read's, unless bytes before it are intact.
    fn learn(&mut self, located: Result<ByteOffset, Failure>) -> Result<(), Failure> {
        match (self.start, self.end, located) {
            (Position::Known(start), Position::Known(_), Err(_)) if self.intact > start => {
                self.end = Position::Known(self.intact);
            }
            (_, _, Err(failure)) => return Err(failure),
            (Position::Near(_), _, Ok(at)) => self.start = Position::Known(at),
            (_, Position::Near(near), Ok(at)) => {
                let (_, limit) = self.owner_before(near);
                // The append that holds the boundary may reach beyond the bounds of the answer.
                let end = at.min(limit);
                self.end = Position::Known(self.cap.map_or(end, |cap| cap.min(end)));
            }
            (_, Position::Known(end), Ok(at)) => {
                let (_, limit) = self.owner_of(self.intact);
                self.intact = at;
                if at < limit.min(end) {
                    self.end = Position::Known(at);
                }
            }
        }
        Ok(())
    }

    /// The byte that the last question was about.
    fn asked_at(&self) -> ByteOffset {
        match (self.start, self.end) {
            (Position::Near(at), _) => at,
            (_, Position::Near(end)) => ByteOffset::new(end.get() - 1),
            _ => self.intact,
        }
    }

    /// The first bytes of an answer, if they are at hand: stored here, and in memory.
    fn first_window(
        &self,
        view: &mut View<'_>,
        start: ByteOffset,
        end: ByteOffset,
    ) -> Result<Option<Slice>, Failure> {
        let (owner, limit) = self.owner_of(start);
        let to = end.min(limit);
        let is_left_out = end.since(start) > self.first_bytes_max;
        let is_here = view.groups.is_here(owner.group) && !view.may_be_behind(owner, to);
        if start == end || is_left_out || !is_here {
            return Ok(None);
        }
        match view.window(owner, start, to) {
            Ok(Read::Ready(slice)) => Ok(Some(slice)),
            Ok(Read::Job(_)) => Ok(None),
            Err(failure) => {
                let failure = self.not_missing(view, start, failure);
                view.damage.note_failure(owner, &failure);
                Err(failure)
            }
        }
    }

    /// A byte that a fork inherits is there as long as the fork is: if it is not, it was lost.
    fn not_missing(&self, view: &View<'_>, at: ByteOffset, failure: Failure) -> Failure {
        let (owner, _) = self.owner_of(at);
        let has_fork = || view.groups.get(self.key.group).state.info(self.key.stream).is_some();
        match failure {
            Failure::NotFound if owner != self.key && has_fork() => Failure::lost(owner, at),
            failure => failure,
        }
    }

    fn owner_of(&self, offset: ByteOffset) -> (StreamKey, ByteOffset) {
        owner_of(self.key, &self.info, offset)
    }

    /// The owner of the byte before `end`, the end of an answer, and the end of the owner's bytes. A
    /// fork's own bytes may begin at `end`.
    fn owner_before(&self, end: ByteOffset) -> (StreamKey, ByteOffset) {
        self.owner_of(ByteOffset::new(end.get() - 1))
    }
}

/// The owner of the byte at `offset` of a stream, and the end of the owner's bytes.
pub(crate) fn owner_of(
    key: StreamKey,
    info: &StreamInfo,
    offset: ByteOffset,
) -> (StreamKey, ByteOffset) {
    match info.lineage.span_at(offset) {
        Some(span) => (span.owner, span.end),
        None => (key, info.tail),
    }
}

impl ReadReply {
    /// The owner of the byte at `offset` of the answer, and the end of the owner's bytes.
    #[must_use]
    pub fn owner_of(&self, offset: ByteOffset) -> (StreamKey, ByteOffset) {
        let (owner, limit) = owner_of(self.key, &self.info, offset);
        (owner, limit.min(self.end))
    }
}
