//! Reads everything at the end, when no fault comes any more.

use super::{Client, Ctx, Heard, Move, Verdict, judge, reading::Reading};
use crate::{
    oracle::{Rule, StreamNo},
    wire::{Ask, offset_text},
};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Auditor {
    left: Vec<StreamNo>,
    position: u64,
    reading: Option<Reading>,
    is_planned: bool,
}

impl Auditor {
    pub(crate) fn new() -> Self {
        Self { left: Vec::new(), position: 0, reading: None, is_planned: false }
    }

    /// The newest stream of each path.
    fn plan(&mut self, ctx: &Ctx<'_>) {
        let mut newest = BTreeMap::new();
        for stream in 0..ctx.oracle.stream_count() {
            newest.insert(ctx.oracle.truth(stream).path.clone(), stream);
        }
        self.left = newest.into_values().collect();
        self.is_planned = true;
    }

    fn next(&mut self) -> Move {
        self.position = 0;
        self.left.pop();
        Move::SleepMs(1)
    }

    /// A stream answers of which nothing is known, or which should be gone.
    fn answers(&mut self, ctx: &mut Ctx<'_>, stream: StreamNo) -> Option<Move> {
        let truth = ctx.oracle.truth(stream);
        let (is_ready, is_gone) = (truth.is_ready, truth.is_gone);
        if is_ready && is_gone && !truth.has_forks && !truth.is_mortal {
            let detail = format!("{} answers at the end", truth.path);
            ctx.oracle.broken(Rule::Undeleted, detail);
        }
        // Made by a request whose answer was lost, or by a fork of an unknown source.
        (!is_ready || is_gone).then(|| self.next())
    }

    fn missing(&mut self, ctx: &mut Ctx<'_>, stream: StreamNo, status: u16) -> Move {
        let truth = ctx.oracle.truth(stream);
        let may_miss = truth.is_gone || truth.may_be_gone || truth.is_mortal || !truth.is_ready;
        if !may_miss || status != 404 && status != 410 {
            let detail = format!("{} answers {status} at the end", truth.path);
            ctx.oracle.broken(Rule::AckedLost, detail);
        }
        ctx.oracle.truth_mut(stream).is_gone = true;
        self.next()
    }
}

impl Client for Auditor {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        if !self.is_planned {
            self.plan(ctx);
        }
        let Some(stream) = self.left.last().copied() else { return Move::Done };
        self.reading = Some(Reading::begin(ctx, stream, Some(self.position)));
        let path = &ctx.oracle.truth(stream).path;
        Move::Ask(Ask::new("GET", path).query(format!("offset={}", offset_text(self.position))))
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let stream = *self.left.last().expect("an audit is under way");
        match judge(ctx, stream, &heard) {
            Verdict::Done(answer) => {
                if let Some(next) = self.answers(ctx, stream) {
                    return next;
                }
                let reading = self.reading.take().expect("a read is under way");
                let Some(reached) = reading.take(ctx, &answer) else { return Move::Done };
                self.position = reached.next;
                if reached.up_to_date {
                    ctx.oracle.truth_mut(stream).was_audited = true;
                    return self.next();
                }
                Move::SleepMs(1)
            }
            Verdict::Refused(_, answer) => self.missing(ctx, stream, answer.status),
            Verdict::Busy | Verdict::Unknown => Move::SleepMs(100),
            Verdict::Damaged => self.next(),
        }
    }
}
