//! What must hold, checked against every answer that clients got.
//!
//! # Manner
//! [`crate::history`] searches histories; this module does not. Each append carries its own number in
//! its bytes, so the bytes that a reader meets name their append. Every answer adds *facts* about the
//! stream: the byte at an offset, the least tail, the end. Nothing removes a fact, not even a crash.
//! Every later answer is compared with the facts. Whatever is known without a gap from the start must
//! be a sequence of whole appends, each at most once.
//!
//! # Invariants
//! - An append of unknown outcome may be there or not; once a fact says where, it stays.
//! - An append that was refused is nowhere; an acknowledged one is found by the final audit.

mod lifetime;
mod payload;
mod truth;

pub(crate) use lifetime::Lifetimes;
pub(crate) use truth::{Shape, Truth};

use crate::{dice::Dice, history::History, wire::Ask};
use model::StreamPath;
use std::{collections::BTreeSet, fmt};

/// A stream from its creation to its end: a path that is made again is another one.
pub(crate) type StreamNo = usize;

/// One append that some client sent, however often.
pub(crate) type OpNo = usize;

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An acknowledged append is not where it was acknowledged, or nowhere.
    AckedLost,
    /// What one answer showed, another took back: bytes, a tail, an end, a deletion.
    Unseen,
    /// Stored bytes are not a sequence of whole appends.
    Garbled,
    /// An append is there twice.
    Twice,
    /// An append that was refused is there all the same.
    RefusedApplied,
    /// A closed stream took more bytes or is open again.
    Reopened,
    /// A producer or a conditional writer was judged against a state that forgot it.
    WriterForgotten,
    /// A deleted stream answered.
    Undeleted,
    /// A lifetime ended before it was over, or not when it was.
    Lifetime,
    /// A trimmed stream lacks what is kept, keeps what is not, or shows a record in the wrong place.
    Kept,
    /// An append was accepted in another state than the one that it is for.
    Contended,
    /// A fork does not begin as its source does.
    ForkPrefix,
    /// `Stream-Up-To-Date` where more was there before the request came.
    UpToDate,
    /// A data directory was not opened, although nothing of it is another program's.
    Refused,
    /// Damage spread beyond what was hit, or was not reported as damage.
    Damage,
    /// Requests behind each other on one connection answer otherwise than one at a time.
    Pipelined,
    /// An answer that the protocol does not allow here.
    Protocol,
    /// No order of the operations explains their answers.
    Unordered,
    /// Something grows without bound or never ends.
    Bounds,
    /// What nobody needs any more is kept: watchers, dead bytes, open files, memory.
    Hoarded,
    /// A turn of a shard takes long.
    LongTurn,
    /// A full disk refuses a deletion, or takes nothing although what filled it was deleted.
    FullDisk,
    /// A client got what its grants do not allow, was denied what they do, or learnt of a denial what there is.
    Access,
    /// The program panicked.
    Panic,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.detail)
    }
}

/// What is known of one append's fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Under way, or its answer was lost.
    Unknown,
    /// Surely not applied, whenever it was sent.
    Refused,
    /// Acknowledged; with its place if the answer has it.
    Acked(Option<u64>),
}

/// One append.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) stream: StreamNo,
    /// The bytes as they are stored.
    pub(crate) stored: Vec<u8>,
    /// Where each message of it ends, counted from its start; for text and binary only its own end.
    pub(crate) ends: Vec<usize>,
    pub(crate) fate: Fate,
    pub(crate) place: Option<u64>,
}

/// All facts of a run.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    streams: Vec<Truth>,
    ops: Vec<Op>,
    violation: Option<Violation>,
    /// Appends acknowledged, for the report.
    pub(crate) acked_count: u64,
    /// Bytes that readers compared.
    pub(crate) compared_bytes: u64,
    /// A fault has changed stored bytes: damage answers are possible.
    pub(crate) damage_possible: bool,
    /// The groups that were hit; `None` among them if it is not known which.
    pub(crate) hit_groups: BTreeSet<Option<u16>>,
    /// Groups of the data directory.
    pub(crate) group_count: u16,
    /// Requests and answers of the shared streams.
    pub(crate) history: History,
    /// Streams that answered `damaged`, as indexes.
    pub(crate) damaged: Vec<StreamNo>,
}

impl Oracle {
    pub(crate) fn new(group_count: u16) -> Self {
        Self { group_count, ..Self::default() }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(crate) fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// Records a broken promise; the first one counts.
    pub(crate) fn broken(&mut self, rule: Rule, detail: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { rule, detail: detail.into() });
        }
    }

    pub(crate) fn add_stream(&mut self, path: &str, shape: Shape) -> StreamNo {
        self.streams.push(Truth::new(path, shape));
        self.streams.len() - 1
    }

    pub(crate) fn truth(&self, stream: StreamNo) -> &Truth {
        &self.streams[stream]
    }

    pub(crate) fn truth_mut(&mut self, stream: StreamNo) -> &mut Truth {
        &mut self.streams[stream]
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn op(&self, op: OpNo) -> &Op {
        &self.ops[op]
    }

    /// Makes an append; returns the body to send.
    pub(crate) fn new_op(&mut self, stream: StreamNo, dice: &mut Dice) -> (OpNo, Vec<u8>) {
        let made = payload::make(self.ops.len(), self.streams[stream].shape, dice);
        self.add_op(stream, made)
    }

    /// Makes an append of some `bytes` to a stream that is not JSON; returns the body to send.
    pub(crate) fn new_large_op(
        &mut self,
        stream: StreamNo,
        bytes: u64,
        dice: &mut Dice,
    ) -> (OpNo, Vec<u8>) {
        let made = payload::make_large(self.ops.len(), bytes, dice);
        self.add_op(stream, made)
    }

    fn add_op(&mut self, stream: StreamNo, made: payload::Made) -> (OpNo, Vec<u8>) {
        let number = self.ops.len();
        let op =
            Op { stream, stored: made.stored, ends: made.ends, fate: Fate::Unknown, place: None };
        self.ops.push(op);
        (number, made.body)
    }

    /// The append was accepted just now and ends at `end`.
    pub(crate) fn acked_at(&mut self, op: OpNo, end: u64) {
        self.acked_count += 1;
        let Op { stream, ref stored, .. } = self.ops[op];
        let length = stored.len() as u64;
        let Some(start) = end.checked_sub(length) else {
            return self.broken(Rule::AckedLost, format!("append {op} acknowledged at tail {end}"));
        };
        self.ops[op].fate = Fate::Acked(Some(start));
        let stored = self.ops[op].stored.clone();
        self.observe(stream, start, &stored);
        self.tail_seen(stream, end);
        self.compare_place(op);
    }

    /// The append was accepted now or before; `tail` is the stream's.
    pub(crate) fn acked(&mut self, op: OpNo, tail: u64) {
        self.acked_count += 1;
        let stream = self.ops[op].stream;
        if !matches!(self.ops[op].fate, Fate::Acked(Some(_))) {
            self.ops[op].fate = Fate::Acked(None);
        }
        self.tail_seen(stream, tail);
    }

    /// The append was refused each time that it was sent.
    pub(crate) fn refused(&mut self, op: OpNo) {
        if let Fate::Acked(_) = self.ops[op].fate {
            return;
        }
        self.ops[op].fate = Fate::Refused;
        if self.ops[op].place.is_some() {
            self.broken(Rule::RefusedApplied, format!("append {op} was refused but is stored"));
        }
    }

    fn compare_place(&mut self, op: OpNo) {
        let Op { fate, place, stream, .. } = self.ops[op];
        if let (Fate::Acked(Some(acked)), Some(place)) = (fate, place)
            && acked != place
        {
            let path = &self.streams[stream].path;
            let detail = format!("append {op} of {path} acknowledged at {acked}, found at {place}");
            self.broken(Rule::AckedLost, detail);
        }
    }

    /// An answer says that the stream reaches to `tail` at least.
    pub(crate) fn tail_seen(&mut self, stream: StreamNo, tail: u64) {
        let truth = &mut self.streams[stream];
        truth.floor = truth.floor.max(tail);
        if let Some(end) = truth.closed_at
            && tail > end
        {
            let detail = format!("{} closed at {end} has a tail of {tail}", truth.path);
            self.broken(Rule::Reopened, detail);
        }
    }

    /// An answer says that the stream ends for good at `end`.
    pub(crate) fn closed_seen(&mut self, stream: StreamNo, end: u64) {
        self.tail_seen(stream, end);
        let truth = &mut self.streams[stream];
        let known = *truth.closed_at.get_or_insert(end);
        if known != end || truth.floor > end {
            let detail = format!("{} ends at {end}, before at {known}", truth.path);
            self.broken(Rule::Reopened, detail);
        }
    }

    /// An answer has a tail at which nothing more follows. Its request came when the stream already
    /// reached to `floor`.
    pub(crate) fn up_to_date(&mut self, stream: StreamNo, end: u64, floor: u64) {
        if end < floor {
            let path = &self.streams[stream].path;
            let detail = format!("{path} up to date at {end}, but it reached to {floor} before");
            self.broken(Rule::UpToDate, detail);
        }
        self.tail_seen(stream, end);
    }

    /// An answer shows that the stream is open with `tail`.
    pub(crate) fn open_seen(&mut self, stream: StreamNo, tail: u64, was_closed: bool) {
        if was_closed {
            let detail = format!("{} is open at {tail} again", self.streams[stream].path);
            self.broken(Rule::Reopened, detail);
        }
    }

    /// Somebody read `bytes` at `start`.
    pub(crate) fn observe(&mut self, stream: StreamNo, start: u64, bytes: &[u8]) {
        self.compared_bytes += bytes.len() as u64;
        let truth = &mut self.streams[stream];
        if let Some(at) = truth.learn(start, bytes) {
            let rule = if at < truth.fork_at() { Rule::ForkPrefix } else { Rule::Unseen };
            let detail = format!("{} at {at} holds another byte than before", truth.path);
            return self.broken(rule, detail);
        }
        if let Some((source, at)) = truth.fork
            && start < at
        {
            let count = bytes.len().min(usize::try_from(at - start).expect("a length"));
            self.observe_source(stream, source, start, &bytes[..count]);
        }
        self.parse(stream);
    }

    /// What a fork shows of its source is a fact of the source.
    fn observe_source(&mut self, fork: StreamNo, source: StreamNo, start: u64, bytes: &[u8]) {
        if let Some(at) = self.streams[source].learn(start, bytes) {
            let (fork, source) = (&self.streams[fork].path, &self.streams[source].path);
            let detail = format!("{fork} differs from its source {source} at {at}");
            return self.broken(Rule::ForkPrefix, detail);
        }
        if let Some((older, at)) = self.streams[source].fork
            && start < at
        {
            let count = bytes.len().min(usize::try_from(at - start).expect("a length"));
            self.observe_source(source, older, start, &bytes[..count]);
        }
        self.parse(source);
    }

    /// Cuts what is known without a gap into appends.
    fn parse(&mut self, stream: StreamNo) {
        while let Some(next) = self.streams[stream].unparsed() {
            let (start, bytes) = next;
            let Some(marker) = bytes.get(..payload::marker_bytes(self.streams[stream].shape))
            else {
                return;
            };
            let number = payload::number(marker, self.streams[stream].shape);
            let Some(op) = number.filter(|number| *number < self.ops.len()) else {
                let detail = format!("{} at {start}: no append", self.streams[stream].path);
                return self.broken(Rule::Garbled, detail);
            };
            let known = bytes.len().min(self.ops[op].stored.len());
            let (is_equal, is_whole) = (
                bytes[..known] == self.ops[op].stored[..known],
                known == self.ops[op].stored.len(),
            );
            if !is_equal || self.ops[op].stream != stream {
                let detail = format!("{} at {start}: append {op}?", self.streams[stream].path);
                return self.broken(Rule::Garbled, detail);
            }
            if !is_whole {
                return;
            }
            self.place(stream, op, start);
        }
    }

    fn place(&mut self, stream: StreamNo, op: OpNo, start: u64) {
        let path = self.streams[stream].path.clone();
        if let Some(first) = self.ops[op].place.replace(start) {
            self.broken(Rule::Twice, format!("append {op} of {path} at {first} and at {start}"));
        }
        if self.ops[op].fate == Fate::Refused {
            let detail = format!("append {op} of {path} was refused but is stored at {start}");
            self.broken(Rule::RefusedApplied, detail);
        }
        self.streams[stream].parsed_to = start + self.ops[op].stored.len() as u64;
        self.compare_place(op);
    }

    /// The append that begins at `start` of a stream, if it is known.
    pub(crate) fn op_at(&self, stream: StreamNo, start: u64) -> Option<&Op> {
        self.ops.iter().find(|op| op.stream == stream && op.place == Some(start))
    }

    /// The last known start of an append of the stream that is not behind `at`. Inherited bytes are not
    /// cut into appends, so for them it is the stream's own first byte or 0.
    pub(crate) fn parsed_boundary(&self, stream: StreamNo, at: u64) -> u64 {
        let places = self.ops.iter().filter(|op| op.stream == stream).filter_map(|op| op.place);
        places.filter(|place| *place <= at).max().unwrap_or(0)
    }

    /// An answer says that stored bytes are damaged.
    pub(crate) fn damage_seen(&mut self, stream: StreamNo) {
        if !self.damage_possible {
            let detail = format!("{} is damaged, but no fault did that", self.streams[stream].path);
            return self.broken(Rule::Damage, detail);
        }
        if !self.hit_groups.contains(&None) && !self.was_hit(stream) {
            let path = &self.streams[stream].path;
            let detail = format!("{path} is damaged, but only {:?} were hit", self.hit_groups);
            return self.broken(Rule::Damage, detail);
        }
        if !self.damaged.contains(&stream) {
            self.damaged.push(stream);
        }
    }

    /// Whether something of the stream may have been lost to a fault.
    pub(crate) fn may_be_damaged(&self, stream: StreamNo) -> bool {
        self.damage_possible && (self.hit_groups.contains(&None) || self.was_hit(stream))
    }

    /// Whether the stream's group, or that of a stream whose bytes it shares, was hit.
    fn was_hit(&self, stream: StreamNo) -> bool {
        let truth = &self.streams[stream];
        let path = StreamPath::new(&truth.path).expect("clients use well-formed paths");
        let is_hit = self.hit_groups.contains(&Some(path.group(self.group_count).get()));
        // A fork whose creation was not answered yet may be one of any source.
        let is_unknown = truth.fork.is_none() && truth.path.starts_with("fork/");
        is_hit || is_unknown || truth.fork.is_some_and(|(source, _)| self.was_hit(source))
    }

    pub(crate) fn is_damaged(&self, stream: StreamNo) -> bool {
        self.damaged.contains(&stream)
    }

    /// After every stream that is left was read whole: what was acknowledged is there.
    pub(crate) fn audit(&mut self) {
        for op in 0..self.ops.len() {
            let Op { stream, fate, place, .. } = self.ops[op];
            let truth = &self.streams[stream];
            if truth.is_gone || self.is_damaged(stream) || !truth.was_audited {
                continue;
            }
            if matches!(fate, Fate::Acked(_)) && place.is_none() {
                let detail = format!("append {op} of {} is nowhere", truth.path);
                self.broken(Rule::AckedLost, detail);
            }
        }
    }

    /// A request was sent: if it is one to a shared stream, it is remembered.
    pub(crate) fn asked(&mut self, conn: u32, ask: &Ask) {
        let is_meant = |truth: &&Truth| truth.path.starts_with("shared/") && truth.path == ask.path;
        let Some(truth) = self.streams.iter().find(is_meant) else { return };
        let number = payload::number_in(&ask.body, truth.shape);
        let op = number.map(|number| (number, &self.ops[number].stored[..]));
        self.history.asked(conn, ask, truth.shape, op);
    }

    /// Looks for an order of the operations of each shared stream that was read to its end;
    /// returns how many operations that were.
    pub(crate) fn check_histories(&mut self) -> usize {
        let mut count = 0;
        let mut history = std::mem::take(&mut self.history);
        for stream in 0..self.streams.len() {
            let truth = &self.streams[stream];
            if !truth.path.starts_with("shared/")
                || self.violation.is_some()
                || !truth.was_audited
                || self.is_damaged(stream)
            {
                continue;
            }
            match history.check(&truth.path, |op| self.ops[op].place) {
                Ok(operations) => count += operations,
                Err(what) => {
                    let detail = format!("{} {what}", truth.path);
                    self.broken(Rule::Unordered, detail);
                }
            }
        }
        count
    }
}
