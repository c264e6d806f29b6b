//! A stream as a sequential object: what one operation after the other does to it.
//!
//! Written from PROTOCOL §5.2 alone, without the code under test: a defect must not be on both sides of
//! a comparison. Every append is distinct by its bytes, so a state is a chain of appends.

use crate::oracle::OpNo;
use std::{collections::BTreeMap, fmt, hash, rc::Rc};
use todc_utils::Specification;

/// One append, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Append {
    /// The number that its bytes begin with, if it has any.
    pub(crate) number: Option<OpNo>,
    /// The bytes as they are stored; none if it only closes.
    pub(crate) stored: Rc<[u8]>,
    pub(crate) close: bool,
    pub(crate) sequence: Option<String>,
    pub(crate) producer: Option<Producer>,
}

/// PROTOCOL §5.2.1
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Producer {
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

/// What the client of an append learned from its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing. If its bytes were met by a reader, they were met at `place`.
    Nothing { place: Option<u64> },
    /// It was added now.
    Added { tail: u64, closed: bool },
    /// It had been added before.
    Repeated { tail: u64, closed: bool },
    /// It had no bytes, and the stream is closed.
    OnlyClosed { tail: u64 },
    /// The stream was closed before.
    WasClosed { tail: u64 },
    /// A `Stream-Seq` at least as high was there before.
    SequenceConflict,
}

/// An operation together with what came of it.
#[derive(Debug, Clone)]
pub(crate) enum Deed {
    /// The state that an earlier part of the history left: the first operation of the next part.
    Carried(Box<State>),
    Append(Rc<Append>, Told),
    /// Bytes were read. Tail and end are known only as far as the answer has them.
    Read {
        start: u64,
        bytes: Rc<[u8]>,
        up_to_date: bool,
        closed: bool,
    },
    /// The answer had the tail, and whether the stream is closed.
    Head {
        tail: u64,
        closed: bool,
    },
}

impl Told {
    /// Where the bytes are, if that is known.
    pub(crate) fn place(self, append: &Append) -> Option<u64> {
        match self {
            Self::Nothing { place } => place,
            Self::Added { tail, .. } => tail.checked_sub(append.stored.len() as u64),
            _ => None,
        }
    }
}

impl Deed {
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// The tail, if the answer has it and the operation changes nothing.
    pub(crate) fn tail_claimed(&self) -> Option<u64> {
        match self {
            Self::Read { up_to_date: false, closed: false, .. } => None,
            Self::Read { .. } | Self::Head { .. } => Some(self.shown_end()),
            Self::Carried(_) | Self::Append(..) => None,
        }
    }

    /// The stream was told to reach to here.
    pub(crate) fn shown_end(&self) -> u64 {
        match self {
            Self::Carried(state) => state.tail,
            Self::Append(_, told) => match told {
                Told::Added { tail, .. }
                | Told::Repeated { tail, .. }
                | Told::OnlyClosed { tail }
                | Told::WasClosed { tail } => *tail,
                Told::Nothing { .. } | Told::SequenceConflict => 0,
            },
            Self::Read { start, bytes, .. } => start + bytes.len() as u64,
            Self::Head { tail, .. } => *tail,
        }
    }

    /// The stream was told to be closed.
    pub(crate) fn shows_end(&self) -> bool {
        match self {
            Self::Carried(state) => state.closed,
            Self::Append(_, told) => match told {
                Told::Added { closed, .. } | Told::Repeated { closed, .. } => *closed,
                Told::OnlyClosed { .. } | Told::WasClosed { .. } => true,
                Told::Nothing { .. } | Told::SequenceConflict => false,
            },
            Self::Read { closed, .. } | Self::Head { closed, .. } => *closed,
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carried(state) => write!(f, "from tail {}", state.tail),
            Self::Append(append, told) => {
                let Append { number, stored, close, sequence, producer } = &**append;
                write!(f, "append {number:?} of {} bytes, close {close}, ", stored.len())?;
                write!(f, "sequence {sequence:?}, {producer:?}: {told:?}")
            }
            Self::Read { start, bytes, up_to_date, closed } => {
                let end = start + bytes.len() as u64;
                write!(f, "read {start}..{end}, up to date {up_to_date}, closed {closed}")
            }
            Self::Head { tail, closed } => write!(f, "head: tail {tail}, closed {closed}"),
        }
    }
}

/// A chain of appends, newest first. States share what they have in common.
#[derive(Debug)]
struct Link {
    start: u64,
    stored: Rc<[u8]>,
    before: Option<Rc<Link>>,
}

impl Drop for Link {
    /// One by one: thousands of links would nest as deep.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(link) = next {
            next = Rc::into_inner(link).and_then(|mut link| link.before.take());
        }
    }
}

/// A stream at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tail: u64,
    /// Stands for the bytes: a hash over the numbers of all appends in their order.
    chain: u64,
    newest: Option<Rc<Link>>,
    closed: bool,
    sequence: Option<String>,
    /// The last append of each producer, and where it ended.
    producers: BTreeMap<String, (Producer, u64)>,
}

/// How the protocol judges an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fresh,
    Repeat,
    Closed,
    Conflict,
    /// Refused for the producer's numbers.
    Misnumbered,
}

impl State {
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    fn judge(&self, append: &Append) -> Verdict {
        let known = append.producer.as_ref().and_then(|producer| self.producers.get(&producer.id));
        let known = known.map(|(last, _)| (last.epoch, last.seq));
        let numbers = append.producer.as_ref().map(|producer| (producer.epoch, producer.seq));
        match (numbers, known) {
            (Some((epoch, _)), Some((known, _))) if epoch < known => return Verdict::Misnumbered,
            (Some((epoch, seq)), Some((known, last))) if epoch == known && seq <= last => {
                return Verdict::Repeat;
            }
            _ => {}
        }
        if self.closed {
            let is_bare = append.close && append.stored.is_empty() && append.producer.is_none();
            return if is_bare { Verdict::Repeat } else { Verdict::Closed };
        }
        if let Some((epoch, seq)) = numbers {
            let expected = known.filter(|(known, _)| *known == epoch).map_or(0, |(_, seq)| seq + 1);
            if seq != expected {
                return Verdict::Misnumbered;
            }
        }
        let is_higher = append.sequence.is_none() || append.sequence > self.sequence;
        if is_higher { Verdict::Fresh } else { Verdict::Conflict }
    }

    /// The state after an append that was judged fresh.
    fn with(&self, append: &Append) -> Self {
        let mut next = self.clone();
        if !append.stored.is_empty() {
            let before = next.newest.take();
            let link = Link { start: self.tail, stored: Rc::clone(&append.stored), before };
            next.newest = Some(Rc::new(link));
            next.tail += append.stored.len() as u64;
            next.chain = hash_of(&(self.chain, append.number));
        }
        next.closed |= append.close;
        if append.sequence.is_some() {
            next.sequence.clone_from(&append.sequence);
        }
        if let Some(producer) = &append.producer {
            next.producers.insert(producer.id.clone(), (producer.clone(), next.tail));
        }
        next
    }

    /// Whether the stream holds `bytes` at `start`.
    fn holds(&self, start: u64, bytes: &[u8]) -> bool {
        let end = start + bytes.len() as u64;
        if end > self.tail {
            return false;
        }
        let mut link = self.newest.as_deref();
        while let Some(at) = link.filter(|at| at.start + at.stored.len() as u64 > start) {
            let (from, to) = (at.start.max(start), end.min(at.start + at.stored.len() as u64));
            if from < to && slice(&at.stored, at.start, from..to) != slice(bytes, start, from..to) {
                return false;
            }
            link = at.before.as_deref();
        }
        true
    }

    /// What a repetition is answered with: the end of the producer's last append, or the tail if it is an older one.
    fn end_of(&self, append: &Append) -> u64 {
        let last = append
            .producer
            .as_ref()
            .and_then(|sent| self.producers.get(&sent.id).filter(|(last, _)| last == sent));
        last.map_or(self.tail, |(_, end)| *end)
    }

    fn after_append(&self, append: &Append, told: Told) -> Option<Self> {
        let verdict = self.judge(append);
        let end = self.tail + append.stored.len() as u64;
        match (told, verdict) {
            // It takes effect where its bytes were met, or it changes nothing.
            (Told::Nothing { place }, Verdict::Fresh) => {
                place.is_none_or(|place| place == self.tail).then(|| self.with(append))
            }
            (Told::Nothing { .. }, _) => Some(self.clone()),
            (Told::Added { tail, closed }, Verdict::Fresh) => {
                (tail == end && closed == append.close).then(|| self.with(append))
            }
            (Told::Repeated { tail, closed }, Verdict::Repeat) => {
                let ends_here = self.closed && tail == self.tail;
                (tail == self.end_of(append) && closed == ends_here).then(|| self.clone())
            }
            (Told::OnlyClosed { tail }, Verdict::Fresh) => {
                (tail == self.tail).then(|| self.with(append))
            }
            (Told::OnlyClosed { tail }, Verdict::Repeat) => {
                (tail == self.end_of(append) && self.closed).then(|| self.clone())
            }
            (Told::WasClosed { tail }, Verdict::Closed) => {
                (tail == self.tail && self.closed).then(|| self.clone())
            }
            (Told::SequenceConflict, Verdict::Conflict) => Some(self.clone()),
            _ => None,
        }
    }

    /// The state after an operation, or `None` if it cannot have been answered so.
    pub(crate) fn after(&self, deed: &Deed) -> Option<Self> {
        match deed {
            Deed::Carried(state) => Some((**state).clone()),
            Deed::Append(append, told) => self.after_append(append, *told),
            Deed::Read { start, bytes, up_to_date, closed } => {
                let ends_here = start + bytes.len() as u64 == self.tail;
                let fits = (!up_to_date || ends_here && *closed == self.closed)
                    && (!closed || ends_here && self.closed)
                    && self.holds(*start, bytes);
                fits.then(|| self.clone())
            }
            Deed::Head { tail, closed } => {
                (*tail == self.tail && *closed == self.closed).then(|| self.clone())
            }
        }
    }
}

/// The part of `bytes`, which begin at `start`, that covers `range`.
fn slice(bytes: &[u8], start: u64, range: std::ops::Range<u64>) -> &[u8] {
    let index = |at: u64| usize::try_from(at - start).expect("an index");
    &bytes[index(range.start)..index(range.end)]
}

fn hash_of(value: &impl hash::Hash) -> u64 {
    // Without random keys: the same run takes the same steps.
    let mut hasher = hash::DefaultHasher::new();
    value.hash(&mut hasher);
    hash::Hasher::finish(&hasher)
}

impl State {
    fn identity(&self) -> impl Eq + hash::Hash + '_ {
        (self.tail, self.chain, self.closed, &self.sequence, &self.producers)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for State {}

impl hash::Hash for State {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// The stream for the checker.
pub(crate) struct StreamModel;

impl Specification for StreamModel {
    type State = State;
    type Operation = Deed;

    fn init() -> State {
        State::default()
    }

    fn apply(deed: &Deed, state: &State) -> (bool, State) {
        match state.after(deed) {
            Some(next) => (true, next),
            None => (false, state.clone()),
        }
    }
}
