//! Two defects of pipelining: a request is judged before the one that it follows, and answers change places.
//!
//! Both act where the session meets the node, as if the session had asked too early or mixed up its replies.

use crate::mutant::Mutant;
use model::{ByteOffset, StreamPath};
use node::{Reply, Request, Ticket};
use std::collections::BTreeMap;
use stream::Outcome;

/// What the session knows an exchange by: a connection in two numbers, and a number in it.
type Exchange = [u32; 3];

#[derive(Debug)]
pub(super) struct Disorder {
    mutant: Option<Mutant>,
    /// Appends whose replies have not come, with the length of their data.
    appends: BTreeMap<Exchange, (StreamPath, u64)>,
    /// The append that was answered just now, and the tail before it.
    answered: Option<(Exchange, StreamPath, ByteOffset)>,
    /// Requests that are judged too early, with the tail of then.
    early: BTreeMap<Exchange, ByteOffset>,
    /// The append that was asked just now.
    last: Option<(Exchange, StreamPath)>,
    swapped: BTreeMap<Exchange, Exchange>,
}

impl Disorder {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        Self {
            mutant: mutant.filter(|mutant| mutant.is_disorder()),
            appends: BTreeMap::new(),
            answered: None,
            early: BTreeMap::new(),
            last: None,
            swapped: BTreeMap::new(),
        }
    }

    /// The session took an input and all asks that came of it.
    pub(super) fn end_input(&mut self) {
        (self.answered, self.last) = (None, None);
    }

    /// The session asks. Asks between two calls of [`Disorder::end_input`] were pipelined.
    pub(super) fn asked(&mut self, ticket: Ticket, request: &Request, data_bytes: u64) {
        if self.mutant.is_none() {
            return;
        }
        let exchange = ticket.exchange;
        match request {
            Request::Append { path, .. } => {
                self.appends.insert(exchange, (path.clone(), data_bytes));
                let last = self.last.replace((exchange, path.clone()));
                if let Some((before, of)) = last
                    && before[..2] == exchange[..2]
                    && of == *path
                    && self.mutant == Some(Mutant::SwappedAnswers)
                {
                    self.swapped.insert(exchange, before);
                    self.swapped.insert(before, exchange);
                    self.last = None;
                }
            }
            Request::Head { path } => {
                if let Some((before, of, tail)) = &self.answered
                    && before[..2] == exchange[..2]
                    && of == path
                {
                    self.early.insert(exchange, *tail);
                }
            }
            _ => {}
        }
    }

    /// Changes a reply on its way to the session; returns for which exchange it is taken.
    pub(super) fn replied(&mut self, ticket: Ticket, reply: &mut Reply) -> Ticket {
        let append = self.appends.remove(&ticket.exchange);
        match (self.mutant, reply) {
            (Some(Mutant::EarlyRead), Reply::Outcome(Outcome::Appended(accepted))) => {
                let append = append.filter(|_| !accepted.duplicate && !accepted.close_only);
                self.answered = append.map(|(path, bytes)| {
                    (ticket.exchange, path, ByteOffset::new(accepted.tail.get() - bytes))
                });
            }
            (Some(Mutant::EarlyRead), Reply::Head(_, info)) => {
                if let Some(tail) = self.early.remove(&ticket.exchange) {
                    info.tail = tail;
                }
            }
            _ => {}
        }
        let exchange = self.swapped.remove(&ticket.exchange).unwrap_or(ticket.exchange);
        Ticket { exchange, ..ticket }
    }
}
