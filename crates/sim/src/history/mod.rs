//! What clients asked and heard of each shared stream, in order, and whether it is linearizable.
//!
//! # What and why
//! The oracle's rules each look at one promise. This module looks at all answers of a stream at once,
//! and asks for an order of the operations, each between its request and its answer. A stream that
//! does one after the other in that order must answer the same (Herlihy and Wing, 1990). The search is
//! that of Wing and Gong with Lowe's memory of states, from the crate `todc-utils`.
//!
//! # How it is driven
//! [`History::asked`] and [`History::heard`] record a request and its answer from the wire,
//! [`History::event`] a piece of a live answer; `check` judges everything at the end.
//!
//! # Invariants
//! - An operation whose answer was lost has no end: it may take effect at any later time, or never.
//! - An operation that was refused for now (429, 503, 507) is left out: it must not have any effect.
//! - Moments are counted, not measured: no two things happen at the same one.

mod check;
mod model;
#[cfg(test)]
mod tests;

pub(crate) use model::{Append, Deed, Producer, Told};

use crate::{
    clients::unframed,
    oracle::{OpNo, Shape},
    wire::{Answer, Ask},
};
use std::{collections::BTreeMap, fmt, rc::Rc};

/// A point in the order of everything that clients did.
pub(crate) type Moment = u64;

/// One request and what came of it.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) called: Moment,
    /// `None` if no answer arrived.
    pub(crate) answered: Option<Moment>,
    pub(crate) deed: Deed,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answered {
            Some(answered) => write!(f, "{}..{answered} {}", self.called, self.deed),
            None => write!(f, "{}.. {}", self.called, self.deed),
        }
    }
}

/// A request that was sent and has no answer yet.
#[derive(Debug)]
struct OpenCall {
    path: String,
    shape: Shape,
    called: Moment,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Append(Rc<Append>),
    Read,
    /// A creation shows as much as a HEAD: no client asks for anything else before it.
    Head,
}

/// The operations of all shared streams, by path.
#[derive(Debug, Default)]
pub(crate) struct History {
    moments: Moment,
    open_calls: BTreeMap<u32, OpenCall>,
    streams: BTreeMap<String, Vec<Operation>>,
}

impl History {
    pub(crate) fn moment(&mut self) -> Moment {
        self.moments += 1;
        self.moments
    }

    /// A request was sent; `op` is the append in its body. The events of a live answer are recorded instead of the answer.
    pub(crate) fn asked(&mut self, conn: u32, ask: &Ask, shape: Shape, op: Option<(OpNo, &[u8])>) {
        if ask.live {
            return;
        }
        let called = self.moment();
        let kind = match ask.method {
            "POST" => Kind::Append(Rc::new(append_of(ask, op))),
            "GET" => Kind::Read,
            _ => Kind::Head,
        };
        self.open_calls.insert(conn, OpenCall { path: ask.path.clone(), shape, called, kind });
    }

    /// The answer came, or nothing more will.
    pub(crate) fn heard(&mut self, conn: u32, answer: Option<&Answer>) {
        let Some(OpenCall { path, shape, called, kind }) = self.open_calls.remove(&conn) else {
            return;
        };
        let done = answer.filter(|answer| (200..300).contains(&answer.status));
        let deed = match kind {
            Kind::Append(append) => shown(&append, answer).map(|told| Deed::Append(append, told)),
            Kind::Read => done.and_then(|answer| read(answer, shape)),
            Kind::Head => done.and_then(head),
        };
        let Some(deed) = deed else { return };
        let is_lost = matches!(deed, Deed::Append(_, Told::Nothing { .. }));
        let answered = (!is_lost).then(|| self.moment());
        self.streams.entry(path).or_default().push(Operation { called, answered, deed });
    }

    /// A live answer that was asked for at `called` brought a piece.
    pub(crate) fn event(&mut self, path: &str, called: Moment, deed: Deed) {
        let answered = Some(self.moment());
        let operation = Operation { called, answered, deed };
        self.streams.entry(path.to_owned()).or_default().push(operation);
    }

    /// A request that was sent at `called` may take effect at any time, or never: no answer came.
    pub(crate) fn lost(&mut self, path: &str, called: Moment, append: Rc<Append>) {
        let deed = Deed::Append(append, Told::Nothing { place: None });
        let operation = Operation { called, answered: None, deed };
        self.streams.entry(path.to_owned()).or_default().push(operation);
    }

    /// The operations of a stream in the order of their requests; those that are still under way
    /// will never be answered.
    fn take(&mut self, path: &str) -> Vec<Operation> {
        for conn in self.open_calls.keys().copied().collect::<Vec<_>>() {
            self.heard(conn, None);
        }
        let mut operations = self.streams.remove(path).unwrap_or_default();
        operations.sort_by_key(|operation| operation.called);
        operations
    }
}

fn append_of(ask: &Ask, op: Option<(OpNo, &[u8])>) -> Append {
    let field = |name: &str| {
        let found = ask.fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    let number_in = |name| field(name).and_then(|text| text.parse().ok());
    let producer =
        match (field("Producer-Id"), number_in("Producer-Epoch"), number_in("Producer-Seq")) {
            (Some(id), Some(epoch), Some(seq)) => Some(Producer { id, epoch, seq }),
            _ => None,
        };
    let close = field("Stream-Closed").is_some();
    let number = op.map(|(number, _)| number);
    let stored = op.map_or(&[][..], |(_, stored)| stored).into();
    Append { number, stored, close, sequence: field("Stream-Seq"), producer }
}

/// What an answer shows of an append; `None` if it had no effect and shows nothing of the stream.
fn shown(append: &Append, answer: Option<&Answer>) -> Option<Told> {
    let Some(answer) = answer else { return Some(Told::Nothing { place: None }) };
    let closed = answer.is("stream-closed");
    match (answer.status, answer.next_offset(), answer.problem().as_deref()) {
        (200 | 204, Some(tail), _) if append.stored.is_empty() => Some(Told::OnlyClosed { tail }),
        (204, Some(tail), _) if append.producer.is_some() => Some(Told::Repeated { tail, closed }),
        (200 | 204, Some(tail), _) => Some(Told::Added { tail, closed }),
        (409, Some(tail), Some("stream-closed")) => Some(Told::WasClosed { tail }),
        (409, _, Some("stream-seq-conflict")) => Some(Told::SequenceConflict),
        (500, ..) if answer.applied() != Some(false) => Some(Told::Nothing { place: None }),
        _ => None,
    }
}

fn read(answer: &Answer, shape: Shape) -> Option<Deed> {
    let stored: Rc<[u8]> = match shape {
        Shape::Json if !answer.body.is_empty() => unframed(&answer.body).into(),
        _ => answer.body[..].into(),
    };
    let start = answer.next_offset()?.checked_sub(stored.len() as u64)?;
    let (up_to_date, closed) = (answer.is("stream-up-to-date"), answer.is("stream-closed"));
    Some(Deed::Read { start, bytes: stored, up_to_date, closed })
}

fn head(answer: &Answer) -> Option<Deed> {
    Some(Deed::Head { tail: answer.next_offset()?, closed: answer.is("stream-closed") })
}
