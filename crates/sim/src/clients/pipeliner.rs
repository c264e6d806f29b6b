//! The only user of a path, which sends many requests in one packet: each must answer as it would alone.
//!
//! # Manner
//! The client keeps every state that the stream may be in. A request takes each of them to another one. An
//! answer removes the states that it contradicts, and a lost answer keeps the states before and after its
//! request. If no state is left, some answer is not what requests one at a time would get.
//!
//! # Invariants
//! - After a lost answer it only looks, until an answer says what there is: so there are few states.

use super::{Client, Ctx, FORGOTTEN_MS, Heard, Move, Verdict, judge, pause, unframed};
use crate::{
    dice::Dice,
    oracle::{Rule, Shape, StreamNo},
    wire::{Answer, Ask},
};
use std::collections::{BTreeSet, VecDeque};

/// The stored bytes of the stream; `None` if there is no stream.
type State = Option<Vec<u8>>;

#[derive(Debug)]
pub(crate) struct Pipeliner {
    path: String,
    shape: Shape,
    stream: Option<StreamNo>,
    states: BTreeSet<State>,
    /// Requests whose answers have not come.
    sent: VecDeque<Deed>,
    /// An answer was lost: it looks before it writes again.
    is_unsure: bool,
    /// A request may be carried out later.
    is_haunted: bool,
    is_damaged: bool,
    packets_left: u64,
    bodies: u64,
}

#[derive(Debug, Clone)]
enum Deed {
    Create(Option<Body>),
    Append(Body),
    Read,
    Head,
    Delete,
}

#[derive(Debug, Clone)]
struct Body {
    sent: Vec<u8>,
    stored: Vec<u8>,
}

impl Pipeliner {
    pub(crate) fn new(path: String, shape: Shape, packets: u64) -> Self {
        Self {
            path,
            shape,
            stream: None,
            states: BTreeSet::from([None]),
            sent: VecDeque::new(),
            is_unsure: false,
            is_haunted: false,
            is_damaged: false,
            packets_left: packets,
            bodies: 0,
        }
    }

    fn packet(&mut self, dice: &mut Dice) -> Vec<Deed> {
        if self.is_unsure {
            return vec![Deed::Read, Deed::Head];
        }
        if dice.percent(40) {
            let append = Deed::Append(self.body(dice));
            return vec![Deed::Create(None), append, Deed::Read, Deed::Delete, Deed::Create(None)];
        }
        (0..dice.between(2, 9)).map(|_| self.deed(dice)).collect()
    }

    fn deed(&mut self, dice: &mut Dice) -> Deed {
        match dice.below(100) {
            0..12 => Deed::Create(None),
            12..18 => Deed::Create(Some(self.body(dice))),
            18..60 => Deed::Append(self.body(dice)),
            60..75 => Deed::Read,
            75..92 => Deed::Head,
            _ => Deed::Delete,
        }
    }

    /// No two bodies are alike.
    fn body(&mut self, dice: &mut Dice) -> Body {
        self.bodies += 1;
        let length = if dice.percent(4) { dice.below(9_000) } else { dice.below(200) };
        let padding = "x".repeat(usize::try_from(length).expect("a length"));
        let number = self.bodies;
        if self.shape == Shape::Json {
            let sent = format!("{{\"n\":{number},\"p\":\"{padding}\"}}");
            return Body { stored: format!("{sent},").into(), sent: sent.into() };
        }
        let sent = format!("{number:08x}{padding}").into_bytes();
        Body { stored: sent.clone(), sent }
    }

    fn ask(&self, deed: &Deed) -> Ask {
        let kind = self.shape.content_type();
        match deed {
            Deed::Create(body) => {
                let ask = Ask::new("PUT", &self.path).field("Content-Type", kind);
                ask.body(body.as_ref().map_or(&[][..], |body| &body.sent))
            }
            Deed::Append(body) => {
                Ask::new("POST", &self.path).field("Content-Type", kind).body(&body.sent)
            }
            Deed::Read => Ask::new("GET", &self.path).query("offset=-1".into()),
            Deed::Head => Ask::new("HEAD", &self.path),
            Deed::Delete => Ask::new("DELETE", &self.path),
        }
    }

    /// Takes an answer to `deed`: states that contradict it are out.
    fn narrow(&mut self, ctx: &mut Ctx<'_>, deed: &Deed, answer: &Answer) {
        let explains = |state: &State| self.explains(state, deed, answer);
        let left: Vec<State> =
            self.states.iter().filter(|state| explains(state)).cloned().collect();
        if left.is_empty() && self.is_of_loss(ctx, deed, answer) {
            self.states = BTreeSet::from([after(None, deed)]);
            return;
        }
        if left.is_empty() {
            let lengths: Vec<Option<usize>> =
                self.states.iter().map(|state| state.as_ref().map(Vec::len)).collect();
            let (next, problem) = (answer.next_offset(), answer.problem());
            let detail = format!(
                "{}: {:.60} of {lengths:?} bytes answers {} {problem:?} {next:?}",
                self.path,
                format!("{deed:?}"),
                answer.status
            );
            return ctx.oracle.broken(Rule::Pipelined, detail);
        }
        self.states = left.into_iter().map(|state| after(state, deed)).collect();
    }

    /// Whether a loss explains it. If nothing that is left names the path, to create there makes another stream. If its
    /// deletion was lost, there is something to delete.
    fn is_of_loss(&self, ctx: &Ctx<'_>, deed: &Deed, answer: &Answer) -> bool {
        let is_lost = self.stream.is_some_and(|stream| ctx.oracle.may_be_damaged(stream));
        let is_explained = match deed {
            Deed::Create(_) => self.explains(&None, deed, answer),
            Deed::Delete => answer.status == 204,
            _ => false,
        };
        is_lost && is_explained
    }

    /// Whether a stream in `state` answers so.
    fn explains(&self, state: &State, deed: &Deed, answer: &Answer) -> bool {
        let next = answer.next_offset();
        let Some(stored) = state else {
            return match deed {
                Deed::Create(body) => {
                    let length = body.as_ref().map_or(0, |body| body.stored.len() as u64);
                    answer.status == 201 && next == Some(length)
                }
                _ => answer.status == 404,
            };
        };
        let length = stored.len() as u64;
        match deed {
            Deed::Create(_) | Deed::Head => answer.status == 200 && next == Some(length),
            Deed::Append(body) => {
                answer.status == 204 && next == Some(length + body.stored.len() as u64)
            }
            Deed::Read => answer.status == 200 && self.is_start(stored, answer),
            Deed::Delete => answer.status == 204,
        }
    }

    /// Whether an answer to a read has the first of the stored bytes, and says truly whether that is all.
    fn is_start(&self, stored: &[u8], answer: &Answer) -> bool {
        let is_array = self.shape == Shape::Json && !answer.body.is_empty();
        let read = if is_array { unframed(&answer.body) } else { answer.body.clone() };
        let is_all = read.len() == stored.len();
        stored.starts_with(&read)
            && answer.next_offset() == Some(read.len() as u64)
            && answer.is("stream-up-to-date") == is_all
            && (is_all || !read.is_empty())
    }

    /// Nobody knows whether `deed` was done.
    fn widen(&mut self, deed: &Deed) {
        let done: Vec<State> = self.states.iter().map(|state| after(state.clone(), deed)).collect();
        self.states.extend(done);
        self.is_unsure = true;
    }
}

fn after(state: State, deed: &Deed) -> State {
    match (state, deed) {
        (None, Deed::Create(body)) => {
            Some(body.as_ref().map_or(vec![], |body| body.stored.clone()))
        }
        (Some(mut stored), Deed::Append(body)) => {
            stored.extend_from_slice(&body.stored);
            Some(stored)
        }
        (_, Deed::Delete) => None,
        (state, _) => state,
    }
}

impl Client for Pipeliner {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if ctx.is_ending || self.is_damaged || self.packets_left == 0 {
            return Move::Done;
        }
        self.packets_left -= 1;
        if self.stream.is_none() {
            let stream = ctx.oracle.add_stream(&self.path, self.shape);
            ctx.oracle.truth_mut(stream).may_be_gone = true;
            self.stream = Some(stream);
        }
        let packet = self.packet(ctx.dice);
        let asks = packet.iter().map(|deed| self.ask(deed)).collect();
        self.sent.extend(packet);
        self.is_haunted = false;
        Move::AskAll(asks)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let deed = self.sent.pop_front().expect("an answer belongs to a request");
        let stream = self.stream.expect("a request names a stream");
        let verdict = judge(ctx, stream, &heard);
        // A write whose sync failed may be there after the next start, and not before.
        let is_undecided = matches!(verdict, Verdict::Unknown) && heard.answer.is_some();
        self.is_haunted |= heard.gave_up || is_undecided;
        match verdict {
            // Requests of the same packet are answered after one that said so: nobody knows what they met.
            _ if self.is_damaged => {}
            Verdict::Done(_) | Verdict::Refused(..) if self.is_haunted => self.widen(&deed),
            Verdict::Done(answer) | Verdict::Refused(_, answer) => {
                self.narrow(ctx, &deed, &answer);
                // Only a look at everything makes it sure again.
                self.is_unsure &= !matches!(deed, Deed::Head);
            }
            Verdict::Busy => {}
            Verdict::Unknown => self.widen(&deed),
            Verdict::Damaged => self.is_damaged = true,
        }
        if !self.sent.is_empty() {
            return Move::Listen;
        }
        if self.is_haunted { Move::SleepMs(FORGOTTEN_MS) } else { pause(ctx.dice) }
    }
}
