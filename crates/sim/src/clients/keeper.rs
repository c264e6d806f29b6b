//! The only writer of a stream whose beginning goes away: by trims that it asks for, and by bounds that it sets.
//!
//! It knows every append of the stream, so it knows what any record and any offset holds. How far the beginning has gone
//! it knows by two bounds. It has gone as far as was seen, and at most as far as a trim or a bound has asked for.

mod answers;
mod book;

use super::{Client, Ctx, Heard, Move, Verdict, judge, pause};
use crate::{
    oracle::{Rule, Shape, StreamNo},
    wire::{Answer, Ask, offset_text},
};
use book::{Book, Bounds, Piece};

/// How often a stream is looked at in the end, a second apart, until its bounds hold.
const LOOKS_MAX: u32 = 60;

#[derive(Debug)]
pub(crate) struct Keeper {
    path: String,
    shape: Shape,
    stream: Option<StreamNo>,
    book: Book,
    left: u64,
    next: Step,
    sent: Option<Step>,
    fork: Option<Fork>,
    forks: u64,
    looks: u32,
    sequence: u64,
}

/// A fork that shares the stream's bytes up to some offset.
#[derive(Debug, Clone)]
struct Fork {
    stream: StreamNo,
    path: String,
    at: u64,
    /// Where it begins, once that was seen.
    head: Option<u64>,
    is_made: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Create {
        bounds: Bounds,
    },
    Append {
        piece: Piece,
        wanted: Wanted,
    },
    Trim {
        to: u64,
        field: (&'static str, String),
    },
    Change {
        bounds: Bounds,
    },
    Look,
    ReadBegin,
    ReadRecord {
        number: u64,
        count_max: Option<u64>,
    },
    ReadTail {
        count: u64,
    },
    /// Before what is known to be kept.
    ReadGone,
    Resolve {
        number: u64,
    },
    Fork(Fork),
    ReadFork,
    Choose,
}

/// What an append asks of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Record { fits: bool },
}

impl Keeper {
    pub(crate) fn new(path: String, shape: Shape, left: u64) -> Self {
        Self {
            path,
            shape,
            stream: None,
            book: Book::default(),
            left,
            next: Step::Choose,
            sent: None,
            fork: None,
            forks: 0,
            looks: 0,
            sequence: 0,
        }
    }

    fn choose(&mut self, ctx: &mut Ctx<'_>) -> Step {
        let (tail, next_record) = (self.book.tail(), self.book.next_record());
        match ctx.dice.below(100) {
            0..40 => self.new_append(ctx),
            40..48 => {
                let to = ctx.dice.between(0, tail);
                let field = ("Stream-Trim-Before", offset_text(to));
                Step::Trim { to: self.book.floor_of(to), field }
            }
            48..54 => {
                let number = ctx.dice.between(0, next_record);
                let field = ("Stream-Trim-Before-Record", number.to_string());
                Step::Trim { to: self.book.floor_of(self.book.start_of(number)), field }
            }
            54..58 => Step::Change { bounds: Bounds::draw(ctx) },
            58..64 => Step::Look,
            64..72 => Step::ReadBegin,
            72..80 => {
                let number = ctx.dice.between(0, next_record);
                let count_max = ctx.dice.percent(50).then(|| ctx.dice.between(1, 4));
                Step::ReadRecord { number, count_max }
            }
            80..85 => Step::ReadTail { count: ctx.dice.between(0, 9) },
            85..88 => Step::ReadGone,
            88..92 => Step::Resolve { number: ctx.dice.between(0, next_record) },
            _ => match &self.fork {
                Some(_) if ctx.dice.percent(80) => Step::ReadFork,
                _ => {
                    self.forks += 1;
                    let path = format!("{}/{}", self.path, self.forks);
                    let at = self.book.floor_of(ctx.dice.between(0, tail));
                    let stream = ctx.oracle.add_stream(&path, self.shape);
                    let source = self.stream.expect("a stream was made");
                    ctx.oracle.truth_mut(stream).set_fork(source, at);
                    Step::Fork(Fork { stream, path, at, head: None, is_made: false })
                }
            },
        }
    }

    fn new_append(&mut self, ctx: &mut Ctx<'_>) -> Step {
        let now = ctx.clock.time_since(ctx.clock.now_us);
        let piece = self.book.draw(self.shape, ctx.dice, now);
        let wanted = match ctx.dice.below(10) {
            0 => Wanted::Record { fits: false },
            1..4 => Wanted::Record { fits: true },
            _ => Wanted::Nothing,
        };
        self.sequence += 1;
        Step::Append { piece, wanted }
    }

    fn ask(&mut self, step: &Step) -> Ask {
        let kind = self.shape.content_type();
        match step {
            Step::Create { bounds } => {
                self.book.may_keep(*bounds);
                bounds.fields(Ask::new("PUT", &self.path).field("Content-Type", kind))
            }
            Step::Append { piece, wanted } => {
                let ask = Ask::new("POST", &self.path).field("Content-Type", kind);
                let ask = ask.body(&piece.body(self.shape)).field("Producer-Id", "keeper");
                let ask = ask.field("Producer-Epoch", "0");
                let ask = ask.field("Producer-Seq", (self.sequence - 1).to_string());
                match wanted {
                    Wanted::Nothing => ask.field("Stream-Record-Numbers", "true"),
                    Wanted::Record { fits } => {
                        let number = piece.first_record + u64::from(!fits);
                        ask.field("Stream-Record-Match", number.to_string())
                    }
                }
            }
            Step::Trim { to, field: (name, value) } => {
                self.book.may_trim(*to);
                Ask::new("PATCH", &self.path).field(name, value.as_str())
            }
            Step::Change { bounds } => {
                self.book.may_keep(*bounds);
                bounds.fields(Ask::new("PATCH", &self.path))
            }
            Step::Look => Ask::new("HEAD", &self.path),
            Step::ReadBegin => self.get("offset=-1".into()),
            Step::ReadRecord { number, count_max: None } => self.get(format!("record={number}")),
            Step::ReadRecord { number, count_max: Some(count) } => {
                self.get(format!("record={number}&max_records={count}"))
            }
            Step::ReadTail { count } => self.get(format!("tail_records={count}")),
            Step::ReadGone => {
                self.get(format!("offset={}", offset_text(self.book.head().saturating_sub(1))))
            }
            Step::Resolve { number } => {
                Ask::new("HEAD", &self.path).query(format!("record={number}"))
            }
            Step::Fork(fork) => Ask::new("PUT", &fork.path)
                .field("Stream-Forked-From", format!("/v1/stream/{}", self.path))
                .field("Stream-Fork-Offset", offset_text(fork.at)),
            Step::ReadFork => {
                let fork = self.fork.as_ref().expect("a fork was chosen");
                Ask::new("GET", &fork.path).query("offset=-1".into())
            }
            Step::Choose => unreachable!("nothing was chosen"),
        }
    }

    fn get(&self, query: String) -> Ask {
        Ask::new("GET", &self.path).query(query)
    }

    /// All is sent: the bounds must hold soon.
    fn look_in_the_end(&mut self, ctx: &mut Ctx<'_>) -> Option<Step> {
        if !ctx.clock.has_jumped() {
            self.book.expect_old_to_go();
        }
        if self.book.head() >= self.book.owed() || ctx.oracle.damage_possible {
            return None;
        }
        self.looks += 1;
        if self.looks > LOOKS_MAX {
            let (head, owed) = (self.book.head(), self.book.owed());
            let detail = format!("{} begins at {head} and has to at {owed}", self.path);
            ctx.oracle.broken(Rule::Kept, detail);
            return None;
        }
        Some(Step::Look)
    }
}

impl Client for Keeper {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        self.book.pass(ctx.clock.time_since(ctx.clock.now_us));
        if self.stream.is_some_and(|stream| ctx.oracle.is_damaged(stream)) {
            return Move::Done;
        }
        let step = match std::mem::replace(&mut self.next, Step::Choose) {
            Step::Choose if self.stream.is_none() && ctx.is_ending => return Move::Done,
            Step::Choose if self.stream.is_none() => {
                self.stream = Some(ctx.oracle.add_stream(&self.path, self.shape));
                Step::Create { bounds: Bounds::draw(ctx) }
            }
            Step::Choose if self.left == 0 || ctx.is_ending => match self.look_in_the_end(ctx) {
                Some(step) => step,
                None => return Move::Done,
            },
            Step::Choose => {
                self.left -= 1;
                self.choose(ctx)
            }
            step => step,
        };
        let ask = self.ask(&step);
        self.sent = Some(step);
        Move::Ask(ask)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        self.book.pass(ctx.clock.time_since(ctx.clock.now_us));
        let stream = self.stream.expect("a stream was made");
        let step = self.sent.take().expect("an answer belongs to a request");
        let stream = match (&step, &self.fork) {
            (Step::ReadFork, Some(fork)) => fork.stream,
            _ => stream,
        };
        match judge(ctx, stream, &heard) {
            Verdict::Done(answer) => self.done(ctx, step, &answer),
            Verdict::Refused(problem, answer) => self.refused(ctx, &step, (&problem, &answer)),
            Verdict::Busy | Verdict::Unknown => match step {
                // What changes the stream is sent until it is known to be done.
                Step::Create { .. }
                | Step::Append { .. }
                | Step::Trim { .. }
                | Step::Change { .. } => {
                    self.next = step;
                }
                _ => {}
            },
            Verdict::Damaged => return Move::Done,
        }
        let is_ended = matches!(self.next, Step::Choose) && (self.left == 0 || ctx.is_ending);
        if is_ended { Move::SleepMs(1_000) } else { pause(ctx.dice) }
    }
}

/// The offset in a field.
fn offset_in(answer: &Answer, name: &str) -> Option<u64> {
    crate::wire::parse_offset(answer.field(name)?)
}

/// The number in a field.
fn number_in(answer: &Answer, name: &str) -> Option<u64> {
    answer.field(name)?.parse().ok()
}
