//! The only writer of a path: creates, appends, deletes and creates again.

use super::{Client, Ctx, FORGOTTEN_MS, Heard, Move, Verdict, judge, pause, reading::Reading};
use crate::{
    oracle::{OpNo, Rule, Shape, StreamNo},
    wire::{Answer, Ask, offset_text},
};

#[derive(Debug)]
pub(crate) struct Owner {
    path: String,
    shape: Shape,
    stream: Option<StreamNo>,
    next: Step,
    sent: Option<Step>,
    under_way: Option<Reading>,
    position: u64,
    tainted: bool,
    lives_left: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Create {
        op: Option<OpNo>,
        body: Vec<u8>,
    },
    Append {
        op: OpNo,
        body: Vec<u8>,
    },
    Read,
    Delete,
    /// Deleted: it must not answer.
    Probe,
    Choose,
}

impl Owner {
    pub(crate) fn new(path: String, shape: Shape, lives: u64) -> Self {
        Self {
            path,
            shape,
            stream: None,
            next: Step::Choose,
            sent: None,
            under_way: None,
            position: 0,
            tainted: false,
            lives_left: lives,
        }
    }

    fn choose(&mut self, ctx: &mut Ctx<'_>) -> Option<Step> {
        let Some(stream) = self.stream.filter(|stream| !ctx.oracle.truth(*stream).is_gone) else {
            if ctx.is_ending || self.lives_left == 0 {
                return None;
            }
            self.lives_left -= 1;
            self.position = 0;
            let stream = ctx.oracle.add_stream(&self.path, self.shape);
            self.stream = Some(stream);
            if ctx.dice.percent(50) {
                let (op, body) = ctx.oracle.new_op(stream, ctx.dice);
                return Some(Step::Create { op: Some(op), body });
            }
            return Some(Step::Create { op: None, body: Vec::new() });
        };
        if ctx.is_ending || ctx.oracle.is_damaged(stream) {
            return None;
        }
        Some(match ctx.dice.below(100) {
            0..55 => {
                let (op, body) = ctx.oracle.new_op(stream, ctx.dice);
                Step::Append { op, body }
            }
            55..85 => Step::Read,
            _ => Step::Delete,
        })
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>, step: &Step) -> Move {
        let stream = self.stream.expect("a stream was chosen");
        let kind = self.shape.content_type();
        Move::Ask(match step {
            Step::Create { body, .. } => {
                Ask::new("PUT", &self.path).field("Content-Type", kind).body(body)
            }
            Step::Append { body, .. } => {
                Ask::new("POST", &self.path).field("Content-Type", kind).body(body)
            }
            Step::Read => {
                let from = if ctx.dice.percent(50) { 0 } else { self.position };
                self.under_way = Some(Reading::begin(ctx, stream, Some(from)));
                Ask::new("GET", &self.path).query(format!("offset={}", offset_text(from)))
            }
            Step::Delete => {
                ctx.oracle.truth_mut(stream).may_be_gone = true;
                Ask::new("DELETE", &self.path)
            }
            Step::Probe | Step::Choose => {
                Ask::new(if ctx.dice.percent(50) { "GET" } else { "HEAD" }, &self.path)
            }
        })
    }

    fn done(&mut self, ctx: &mut Ctx<'_>, step: Step, answer: &Answer) {
        let stream = self.stream.expect("a stream was chosen");
        let tail = answer.next_offset();
        match (step, tail) {
            (Step::Create { op, .. }, Some(tail)) => {
                if answer.status == 200 && !self.tainted {
                    let detail = format!("{} was there before it was made", self.path);
                    ctx.oracle.broken(Rule::Undeleted, detail);
                }
                ctx.oracle.truth_mut(stream).is_ready = true;
                match op {
                    Some(op) => ctx.oracle.acked_at(op, tail),
                    None => ctx.oracle.up_to_date(stream, tail, 0),
                }
                if op.is_none() && tail != 0 {
                    let detail = format!("{} is new and has a tail of {tail}", self.path);
                    ctx.oracle.broken(Rule::Undeleted, detail);
                }
            }
            (Step::Append { op, .. }, Some(tail)) => ctx.oracle.acked_at(op, tail),
            (Step::Read, Some(_)) => {
                let reading = self.under_way.take().expect("a read is under way");
                if let Some(reached) = reading.take(ctx, answer) {
                    self.position = reached.next;
                }
            }
            (Step::Delete, _) => {
                ctx.oracle.truth_mut(stream).is_gone = true;
                self.next = Step::Probe;
            }
            (Step::Probe, _) => {
                ctx.oracle.broken(Rule::Undeleted, format!("{} answers after deletion", self.path));
            }
            (step, _) => {
                let detail = format!("{}: {step:?} answered without an offset", self.path);
                ctx.oracle.broken(Rule::Protocol, detail);
            }
        }
    }

    fn refused(&mut self, ctx: &mut Ctx<'_>, step: &Step, answer: &Answer) -> Move {
        let stream = self.stream.expect("a stream was chosen");
        let truth = ctx.oracle.truth(stream);
        let has_forks = truth.has_forks || self.had_forks(ctx);
        let fits = match (step, answer.status) {
            (Step::Probe, 404) => true,
            (Step::Probe, 410) => has_forks,
            // The first attempt had been carried out.
            (Step::Delete, 404) => self.tainted,
            (Step::Delete, 410) => self.tainted && has_forks,
            (Step::Create { .. }, 409) => {
                has_forks && answer.problem().as_deref() == Some("path-blocked")
            }
            _ => false,
        };
        if !fits {
            let what = format!("{} {}", answer.status, answer.problem().unwrap_or_default());
            let rule = match answer.status {
                404 | 410 => Rule::AckedLost,
                _ => Rule::Protocol,
            };
            let step = match step {
                Step::Create { .. } => "create",
                Step::Append { .. } => "append",
                Step::Read => "read",
                Step::Delete => "delete",
                Step::Probe | Step::Choose => "probe",
            };
            ctx.oracle.broken(rule, format!("{step} of {}: {what}", self.path));
        }
        match step {
            Step::Create { .. } => {
                self.next = step.clone();
                return Move::SleepMs(ctx.dice.between(1_000, 10_000));
            }
            Step::Delete => ctx.oracle.truth_mut(stream).is_gone = true,
            _ => {}
        }
        pause(ctx.dice)
    }

    /// Whether an earlier life of the path had forks.
    fn had_forks(&self, ctx: &Ctx<'_>) -> bool {
        (0..ctx.oracle.stream_count()).any(|stream| {
            let truth = ctx.oracle.truth(stream);
            truth.path == self.path && truth.has_forks
        })
    }
}

impl Client for Owner {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if ctx.is_ending && !matches!(self.next, Step::Probe) {
            return Move::Done;
        }
        let step = match std::mem::replace(&mut self.next, Step::Choose) {
            Step::Choose => {
                self.tainted = false;
                match self.choose(ctx) {
                    Some(step) => step,
                    None => return Move::Done,
                }
            }
            step => step,
        };
        let ask = self.ask(ctx, &step);
        self.sent = Some(step);
        ask
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let stream = self.stream.expect("a stream was chosen");
        let step = self.sent.take().expect("an answer belongs to a request");
        let status = heard.answer.as_ref().map_or(0, |answer| answer.status);
        match judge(ctx, stream, &heard) {
            Verdict::Done(answer) => {
                self.done(ctx, step, &answer);
                pause(ctx.dice)
            }
            Verdict::Refused(_, answer) => self.refused(ctx, &step, &answer),
            Verdict::Busy => {
                if let Step::Delete = step {
                    ctx.must_take_delete(status);
                }
                self.next = step;
                Move::SleepMs(ctx.dice.between(100, 2_000))
            }
            Verdict::Unknown => {
                if !matches!(step, Step::Append { .. } | Step::Read) {
                    self.tainted = true;
                    self.next = step;
                }
                // A deletion that arrives late must not hit the next stream of this path.
                Move::SleepMs(if heard.gave_up { FORGOTTEN_MS } else { ctx.dice.between(1, 900) })
            }
            Verdict::Damaged => Move::Done,
        }
    }
}
