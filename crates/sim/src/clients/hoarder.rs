//! Fills the disk and empties it again, through the API alone.
//!
//! It appends to streams of its own until nothing makes room any more, and reads one of them meanwhile. Then it
//! deletes them one by one. On a full disk every deletion is taken. Afterwards an append is taken again.

use super::{Client, Ctx, FORGOTTEN_MS, Heard, Move, Verdict, judge, reading::Reading};
use crate::{
    oracle::{OpNo, Rule, Shape, StreamNo},
    wire::{Answer, Ask, offset_text},
};

/// So many refusals in a row, this far apart: the disk is full, and nothing makes room by itself.
const REFUSALS: u32 = 6;
const REFUSAL_PAUSE_MS: u64 = 400;

/// The next append is taken within this time, once everything is deleted and nothing else goes wrong.
const APPEND_WITHIN_US: u64 = 30_000_000;

#[derive(Debug)]
pub(crate) struct Hoarder {
    name: u64,
    /// Those of this round that may exist, with whether they surely do.
    streams: Vec<(StreamNo, bool)>,
    made: u64,
    stream_count: u64,
    append_bytes: u64,
    step: Step,
    /// Some attempt of the step has an unknown outcome.
    is_tainted: bool,
    /// Refusals since the last append that was taken.
    refusals: u32,
    reading: Option<Reading>,
    /// The streams that had filled the disk were deleted, and no append is taken since.
    is_emptied: bool,
    /// The first refusal since then.
    refused_us: Option<u64>,
    rounds_left: u64,
}

#[derive(Debug, Clone)]
enum Step {
    /// Make a stream, with an append.
    Create(OpNo, Vec<u8>),
    Append(OpNo, Vec<u8>),
    Read,
    Delete,
    /// Decide what comes next.
    Choose,
}

impl Hoarder {
    pub(crate) fn new(name: u64, (stream_count, append_bytes): (u64, u64), rounds: u64) -> Self {
        Self {
            name,
            streams: Vec::new(),
            made: 0,
            stream_count,
            append_bytes,
            step: Step::Choose,
            is_tainted: false,
            refusals: 0,
            reading: None,
            is_emptied: false,
            refused_us: None,
            rounds_left: rounds,
        }
    }

    fn is_full(&self) -> bool {
        self.refusals >= REFUSALS
    }

    fn create(&mut self, ctx: &mut Ctx<'_>) -> Step {
        let path = format!("hoard/{}/{}", self.name, self.made);
        self.made += 1;
        let stream = ctx.oracle.add_stream(&path, Shape::Binary);
        self.streams.push((stream, false));
        let (op, body) = ctx.oracle.new_large_op(stream, self.append_bytes, ctx.dice);
        Step::Create(op, body)
    }

    fn choose(&mut self, ctx: &mut Ctx<'_>) -> Option<Step> {
        if self.streams.is_empty() {
            let is_over = !self.is_emptied && (ctx.is_ending || self.rounds_left == 0);
            return (!is_over).then(|| self.create(ctx));
        }
        if self.is_full() || ctx.is_ending {
            let (last, is_sure) = self.last();
            let reads = is_sure && !ctx.oracle.is_damaged(last) && ctx.dice.percent(30);
            return Some(if reads { Step::Read } else { Step::Delete });
        }
        let sure: Vec<_> = self.streams.iter().filter(|(_, is_sure)| *is_sure).collect();
        if sure.is_empty() || (self.streams.len() as u64) < self.stream_count {
            return Some(self.create(ctx));
        }
        let (stream, _) = **ctx.dice.pick(&sure);
        let (op, body) = ctx.oracle.new_large_op(stream, self.append_bytes, ctx.dice);
        Some(Step::Append(op, body))
    }

    fn last(&self) -> (StreamNo, bool) {
        *self.streams.last().expect("a stream may exist")
    }

    fn stream_of(&self, ctx: &Ctx<'_>, step: &Step) -> StreamNo {
        match step {
            Step::Create(op, _) | Step::Append(op, _) => ctx.oracle.op(*op).stream,
            _ => self.last().0,
        }
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>, step: &Step) -> Ask {
        let stream = self.stream_of(ctx, step);
        let path = ctx.oracle.truth(stream).path.clone();
        let kind = Shape::Binary.content_type();
        match step {
            Step::Create(_, body) => Ask::new("PUT", &path).field("Content-Type", kind).body(body),
            Step::Append(_, body) => Ask::new("POST", &path).field("Content-Type", kind).body(body),
            Step::Read => {
                self.reading = Some(Reading::begin(ctx, stream, Some(0)));
                Ask::new("GET", &path).query(format!("offset={}", offset_text(0)))
            }
            Step::Delete | Step::Choose => {
                ctx.oracle.truth_mut(stream).may_be_gone = true;
                Ask::new("DELETE", &path)
            }
        }
    }

    fn done(&mut self, ctx: &mut Ctx<'_>, step: &Step, answer: &Answer) {
        let stream = self.stream_of(ctx, step);
        match step {
            Step::Create(op, _) | Step::Append(op, _) => {
                self.refusals = 0;
                self.is_emptied = false;
                self.refused_us = None;
                ctx.oracle.truth_mut(stream).is_ready = true;
                let known = self.streams.iter_mut().filter(|(known, _)| *known == stream);
                known.for_each(|(_, is_sure)| *is_sure = true);
                match answer.next_offset() {
                    Some(tail) => ctx.oracle.acked_at(*op, tail),
                    None => ctx.oracle.broken(Rule::Protocol, "an append without an offset"),
                }
            }
            Step::Read => {
                let reading = self.reading.take().expect("a read is under way");
                reading.take(ctx, answer);
            }
            Step::Delete | Step::Choose => self.deleted(ctx),
        }
    }

    fn deleted(&mut self, ctx: &mut Ctx<'_>) {
        let (stream, _) = self.streams.pop().expect("one was deleted");
        ctx.oracle.truth_mut(stream).is_gone = true;
        if self.streams.is_empty() {
            self.is_emptied = self.is_full();
            self.rounds_left = self.rounds_left.saturating_sub(1);
            self.refusals = 0;
        }
    }

    /// Refused for want of room or for another reason that passes.
    fn busy(&mut self, ctx: &mut Ctx<'_>, step: Step, answer: &Answer) -> Move {
        let is_refusal = answer.status == 507;
        self.refusals += u32::from(is_refusal && !self.is_emptied);
        match step {
            Step::Delete => {
                ctx.must_take_delete(answer.status);
                self.step = step;
            }
            Step::Append(..) => {}
            Step::Create(..) => {
                self.must_take_append(ctx, answer);
                // What was surely never made needs no deletion.
                if !self.is_tainted {
                    self.streams.pop();
                }
                self.is_tainted = false;
            }
            step => self.step = step,
        }
        Move::SleepMs(if is_refusal { REFUSAL_PAUSE_MS } else { ctx.dice.between(50, 500) })
    }

    /// An append is refused. Once all that filled the disk is deleted, that must end. One refusal says nothing: its
    /// client may have heard nothing for long before, and is served at the next try.
    fn must_take_append(&mut self, ctx: &mut Ctx<'_>, answer: &Answer) {
        if !self.is_emptied {
            return;
        }
        let refused_us = *self.refused_us.get_or_insert(ctx.clock.now_us);
        let Some(well_since_us) = ctx.well_since_us else { return };
        let since_us = ctx.clock.now_us.saturating_sub(refused_us.max(well_since_us));
        if ctx.is_freed_by_deletes() && since_us > APPEND_WITHIN_US {
            let (status, problem) = (answer.status, answer.problem().unwrap_or_default());
            let detail =
                format!("an append is answered {status} {problem} long after all was deleted");
            ctx.oracle.broken(Rule::FullDisk, detail);
        }
    }

    fn refused(&mut self, ctx: &mut Ctx<'_>, step: &Step, answer: &Answer) -> Move {
        let is_unsure = self.is_tainted || !self.last().1;
        if matches!(step, Step::Delete) && answer.status == 404 && is_unsure {
            self.deleted(ctx);
            self.is_tainted = false;
        } else {
            let problem = answer.problem().unwrap_or_default();
            let detail = format!("hoard: {:.40} is answered {problem}", format!("{step:?}"));
            let is_lost = matches!(answer.status, 404 | 410);
            ctx.oracle.broken(if is_lost { Rule::AckedLost } else { Rule::Protocol }, detail);
        }
        Move::SleepMs(1)
    }
}

impl Client for Hoarder {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if let Step::Choose = self.step {
            self.is_tainted = false;
            match self.choose(ctx) {
                Some(step) => self.step = step,
                None => return Move::Done,
            }
        }
        let step = self.step.clone();
        Move::Ask(self.ask(ctx, &step))
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let step = std::mem::replace(&mut self.step, Step::Choose);
        let stream = self.stream_of(ctx, &step);
        match judge(ctx, stream, &heard) {
            Verdict::Done(answer) => {
                self.done(ctx, &step, &answer);
                Move::SleepMs(ctx.dice.between(1, 20))
            }
            Verdict::Busy => {
                let answer = heard.answer.as_ref().expect("a node that is busy says so");
                self.busy(ctx, step, answer)
            }
            Verdict::Refused(_, answer) => self.refused(ctx, &step, &answer),
            Verdict::Unknown => {
                // Nobody knows of an append, and another one follows. What else was asked is asked again.
                if !matches!(step, Step::Append(..)) {
                    self.is_tainted = true;
                    self.step = step;
                }
                Move::SleepMs(if heard.gave_up { FORGOTTEN_MS } else { ctx.dice.between(1, 900) })
            }
            Verdict::Damaged => {
                self.step = Step::Delete;
                Move::SleepMs(1)
            }
        }
    }
}
