//! Makes forks of other clients' streams, of forks too; reads, appends and deletes them.

use super::{Client, Ctx, FORGOTTEN_MS, Heard, Move, Verdict, judge, pause, reading::Reading};
use crate::{
    oracle::{OpNo, Rule, Shape, StreamNo},
    wire::{Answer, Ask, offset_text},
};

#[derive(Debug)]
pub(crate) struct Forker {
    name: String,
    made: u64,
    left: u64,
    fork: Option<Fork>,
    step: Step,
    reading: Option<Reading>,
    tainted: bool,
}

#[derive(Debug)]
struct Fork {
    stream: StreamNo,
    source: StreamNo,
    fields: Vec<(&'static str, String)>,
    /// Where it must branch off, if that is known beforehand.
    expected: Option<u64>,
    /// The place that was asked for may not exist.
    may_be_refused: bool,
    op: Option<(OpNo, Vec<u8>)>,
    steps_left: u64,
    position: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Create,
    Read,
    Append(OpNo, Vec<u8>),
    Delete,
    Probe,
}

impl Forker {
    pub(crate) fn new(name: String, left: u64) -> Self {
        let step = Step::Create;
        Self { name, made: 0, left, fork: None, step, reading: None, tainted: false }
    }

    /// Chooses a source and a place in it.
    fn plan(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let fits = |stream: &StreamNo| {
            let truth = ctx.oracle.truth(*stream);
            let is_there = truth.is_ready && !truth.is_gone && !truth.is_mortal;
            // A client that fills the disk must be able to free it by deletes alone.
            let is_kept = truth.path.starts_with("hoard/");
            is_there && !is_kept && !ctx.oracle.is_damaged(*stream)
        };
        let sources: Vec<StreamNo> = (0..ctx.oracle.stream_count()).filter(fits).collect();
        if sources.is_empty() {
            return false;
        }
        let source = *ctx.dice.pick(&sources);
        self.made += 1;
        let path = format!("{}/{}", self.name, self.made);
        let truth = ctx.oracle.truth_mut(source);
        truth.has_forks = true;
        let (shape, floor, from) = (truth.shape, truth.floor, truth.path.clone());
        let stream = ctx.oracle.add_stream(&path, shape);
        let mut fork = Fork {
            stream,
            source,
            fields: vec![("Stream-Forked-From", format!("/v1/stream/{from}"))],
            expected: None,
            may_be_refused: false,
            op: None,
            steps_left: ctx.dice.between(0, 8),
            position: 0,
        };
        if ctx.dice.percent(70) {
            fork.choose_place(ctx, shape, floor);
        }
        if ctx.dice.percent(30) {
            fork.op = Some(ctx.oracle.new_op(stream, ctx.dice));
        }
        if ctx.dice.percent(70) {
            fork.fields.push(("Content-Type", shape.content_type().to_owned()));
        }
        self.fork = Some(fork);
        true
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>) -> Move {
        let fork = self.fork.as_ref().expect("a fork was planned");
        let truth = ctx.oracle.truth(fork.stream);
        let (path, kind) = (truth.path.clone(), truth.shape.content_type());
        Move::Ask(match &self.step {
            Step::Create => {
                let body = fork.op.as_ref().map(|(_, body)| body.clone()).unwrap_or_default();
                let mut ask = Ask::new("PUT", &path).body(&body);
                ask.fields.extend(fork.fields.iter().cloned());
                ask
            }
            Step::Read => {
                let from = if ctx.dice.percent(60) { 0 } else { fork.position };
                self.reading = Some(Reading::begin(ctx, fork.stream, Some(from)));
                Ask::new("GET", &path).query(format!("offset={}", offset_text(from)))
            }
            Step::Append(_, body) => Ask::new("POST", &path).field("Content-Type", kind).body(body),
            Step::Delete => {
                ctx.oracle.truth_mut(fork.stream).may_be_gone = true;
                Ask::new("DELETE", &path)
            }
            Step::Probe => Ask::new("GET", &path),
        })
    }

    fn done(&mut self, ctx: &mut Ctx<'_>, answer: &Answer) {
        let fork = self.fork.as_mut().expect("a fork was planned");
        match (&self.step, answer.next_offset()) {
            (Step::Create, Some(tail)) => fork.begin(ctx, tail),
            (Step::Read, Some(_)) => {
                let reading = self.reading.take().expect("a read is under way");
                if let Some(reached) = reading.take(ctx, answer) {
                    fork.position = reached.next;
                }
            }
            (Step::Append(op, _), Some(tail)) => ctx.oracle.acked_at(*op, tail),
            (Step::Delete, _) => {
                ctx.oracle.truth_mut(fork.stream).is_gone = true;
                self.step = Step::Probe;
                return;
            }
            (step, _) => {
                let path = &ctx.oracle.truth(fork.stream).path;
                let detail = format!("{path}: {step:?} was answered {}", answer.status);
                ctx.oracle.broken(Rule::Undeleted, detail);
            }
        }
        self.choose(ctx);
    }

    fn choose(&mut self, ctx: &mut Ctx<'_>) {
        self.tainted = false;
        let fork = self.fork.as_mut().expect("a fork was planned");
        if fork.steps_left == 0 && ctx.dice.percent(50) {
            self.step = Step::Delete;
            return;
        }
        if fork.steps_left == 0 {
            self.fork = None;
            self.step = Step::Create;
            return;
        }
        fork.steps_left -= 1;
        self.step = if ctx.dice.percent(60) {
            Step::Read
        } else {
            let (op, body) = ctx.oracle.new_op(fork.stream, ctx.dice);
            Step::Append(op, body)
        };
    }

    fn refused(&mut self, ctx: &mut Ctx<'_>, problem: &str, answer: &Answer) {
        let fork = self.fork.as_ref().expect("a fork was planned");
        let (truth, source) = (ctx.oracle.truth(fork.stream), ctx.oracle.truth(fork.source));
        let source_may_be_gone = source.may_be_gone || source.is_gone;
        let fits = match (&self.step, problem) {
            (Step::Create, "fork-source-not-found" | "fork-source-gone") => source_may_be_gone,
            (Step::Create, "invalid-fork") => fork.may_be_refused,
            (Step::Create, "fork-too-deep") => true,
            // The path of the source may hold another stream by now, of another kind or length.
            (Step::Create, "content-type-mismatch" | "configuration-mismatch") => {
                source_may_be_gone
            }
            (Step::Delete, "stream-not-found") => self.tainted,
            (Step::Delete, "stream-gone") => self.tainted && truth.has_forks,
            (Step::Probe, "stream-not-found") => true,
            (Step::Probe, "stream-gone") => truth.has_forks,
            _ => false,
        };
        let is_excused = matches!(self.step, Step::Create) && source_may_be_gone;
        if !fits && !is_excused {
            let detail =
                format!("{}: {:?} refused: {} {problem}", truth.path, self.step, answer.status);
            let rule = if truth.is_ready { Rule::AckedLost } else { Rule::ForkPrefix };
            ctx.oracle.broken(rule, detail);
        }
        if let (Step::Create, Some((op, _)), false) = (&self.step, &fork.op, self.tainted) {
            ctx.oracle.refused(*op);
        }
        ctx.oracle.truth_mut(fork.stream).is_gone = true;
        self.fork = None;
        self.step = Step::Create;
    }
}

impl Fork {
    /// Any byte, or the start of a known append; with a sub-offset or without.
    fn choose_place(&mut self, ctx: &mut Ctx<'_>, shape: Shape, floor: u64) {
        let mut at = ctx.dice.between(0, floor);
        let mut sub = 0;
        self.expected = Some(at);
        if shape == Shape::Json || ctx.dice.percent(50) {
            at = ctx.oracle.parsed_boundary(self.source, at);
            self.expected = Some(at);
            if let Some(op) = ctx.oracle.op_at(self.source, at).filter(|_| ctx.dice.percent(60)) {
                let count = match shape {
                    Shape::Json => op.ends.len() as u64,
                    _ => op.stored.len() as u64,
                };
                sub = ctx.dice.between(1, count + 1);
                let index = usize::try_from(sub - 1).expect("an index");
                let end = match shape {
                    Shape::Json => op.ends.get(index).map(|end| at + *end as u64),
                    _ => (sub <= count).then_some(at + sub),
                };
                self.expected = end;
                self.may_be_refused = end.is_none();
            }
        }
        self.fields.push(("Stream-Fork-Offset", offset_text(at)));
        if sub > 0 {
            self.fields.push(("Stream-Fork-Sub-Offset", sub.to_string()));
        }
    }

    /// The fork is there, with `tail`.
    fn begin(&self, ctx: &mut Ctx<'_>, tail: u64) {
        let own = self.op.as_ref().map_or(0, |(op, _)| ctx.oracle.op(*op).stored.len() as u64);
        let Some(at) = tail.checked_sub(own) else {
            ctx.oracle.broken(Rule::ForkPrefix, "a fork shorter than its own bytes");
            return;
        };
        let path = ctx.oracle.truth(self.stream).path.clone();
        let source = ctx.oracle.truth(self.source);
        let is_sure = !source.may_be_gone && !source.is_gone;
        if is_sure && self.expected.is_some_and(|expected| expected != at) {
            let detail = format!("{path} branches off at {at}, not at {:?}", self.expected);
            ctx.oracle.broken(Rule::ForkPrefix, detail);
        }
        // If the source's path was made again meanwhile, it is unknown which one it is a fork of.
        if !is_sure {
            let truth = ctx.oracle.truth_mut(self.stream);
            truth.is_gone = true;
            truth.has_forks = true;
            return;
        }
        ctx.oracle.truth_mut(self.stream).set_fork(self.source, at);
        ctx.oracle.tail_seen(self.source, at);
        ctx.oracle.truth_mut(self.stream).is_ready = true;
        match &self.op {
            Some((op, _)) => ctx.oracle.acked_at(*op, tail),
            None => ctx.oracle.tail_seen(self.stream, tail),
        }
    }
}

impl Client for Forker {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if ctx.is_ending {
            return Move::Done;
        }
        if let Some(fork) = &self.fork {
            let truth = ctx.oracle.truth(fork.stream);
            let is_lost = truth.is_gone && !matches!(self.step, Step::Probe);
            if is_lost || ctx.oracle.is_damaged(fork.stream) {
                self.fork = None;
                self.step = Step::Create;
            }
        }
        if self.fork.is_none() {
            if self.left == 0 {
                return Move::Done;
            }
            if !self.plan(ctx) {
                return Move::SleepMs(1_000);
            }
            self.left -= 1;
            self.tainted = false;
        }
        self.ask(ctx)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let fork = self.fork.as_ref().expect("a fork was planned");
        let stream = fork.stream;
        // A first creation that fails for damage fails for that of its source.
        let is_first = matches!(self.step, Step::Create) && !self.tainted;
        let hit = if is_first { fork.source } else { stream };
        match judge(ctx, hit, &heard) {
            Verdict::Done(answer) => {
                self.done(ctx, &answer);
                pause(ctx.dice)
            }
            Verdict::Refused(problem, answer) => {
                self.refused(ctx, &problem, &answer);
                pause(ctx.dice)
            }
            Verdict::Busy => Move::SleepMs(ctx.dice.between(100, 2_000)),
            Verdict::Unknown => {
                match self.step {
                    Step::Create | Step::Delete => self.tainted = true,
                    Step::Read | Step::Append(..) => self.choose(ctx),
                    Step::Probe => {}
                }
                Move::SleepMs(if heard.gave_up { FORGOTTEN_MS } else { ctx.dice.between(1, 900) })
            }
            Verdict::Damaged => {
                ctx.oracle.truth_mut(stream).is_gone |= matches!(self.step, Step::Create);
                self.fork = None;
                self.step = Step::Create;
                pause(ctx.dice)
            }
        }
    }
}
