//! Simulated clients. Each is a machine of its own: it wakes, sends a request or sleeps, and gets the
//! answer. It passes every answer to the oracle.

mod auditor;
mod contender;
mod forker;
mod guest;
mod hoarder;
mod keeper;
mod mortal;
mod owner;
mod pipeliner;
mod reader;
mod reading;
mod writer;

pub(crate) use auditor::Auditor;
pub(crate) use contender::Contender;
pub(crate) use forker::Forker;
pub(crate) use guest::Guest;
pub(crate) use hoarder::Hoarder;
pub(crate) use keeper::Keeper;
pub(crate) use mortal::Mortal;
pub(crate) use owner::Owner;
pub(crate) use pipeliner::Pipeliner;
pub(crate) use reader::Reader;
pub(crate) use reading::unframed;
pub(crate) use writer::{Manner, Writer};

use crate::{
    clock::SimClock,
    dice::Dice,
    events::Event,
    oracle::{Oracle, Rule, StreamNo},
    passing::Passing,
    wire::{Answer, Ask},
};
use std::fmt;

/// Longer than any request that its client gave up can still be on its way.
pub(crate) const FORGOTTEN_MS: u64 = 30_000;

/// What a client sees of the world.
pub(crate) struct Ctx<'a> {
    pub(crate) clock: &'a SimClock,
    pub(crate) dice: &'a mut Dice,
    pub(crate) oracle: &'a mut Oracle,
    /// The run ends: begin nothing new.
    pub(crate) is_ending: bool,
    /// How often the wall clock has gone backwards.
    pub(crate) backward_jumps: u64,
    /// When the passing token was in the access file.
    pub(crate) passing: &'a Passing,
    /// The disk may be full or have failed: uses that could not be logged were answered all the
    /// same, and a crash may forget them.
    pub(crate) may_forget_uses: bool,
    /// The disk has little room. Nothing else fills it, and whatever else failed of it fails no more.
    pub(crate) is_small_and_well: bool,
    /// When the last fault ended; `None` while there are some.
    pub(crate) well_since_us: Option<u64>,
}

impl Ctx<'_> {
    /// Whether deletes alone make room on the disk, and nothing hinders them.
    pub(crate) fn is_freed_by_deletes(&self) -> bool {
        self.is_small_and_well && !self.oracle.damage_possible
    }

    /// A deletion was not carried out and is answered with `status`: room is kept for deletions.
    pub(crate) fn must_take_delete(&mut self, status: u16) {
        if status == 507 && self.is_freed_by_deletes() {
            self.oracle.broken(Rule::FullDisk, "a full disk refuses a deletion");
        }
    }
}

/// What a client does next.
#[derive(Debug)]
pub(crate) enum Move {
    Ask(Ask),
    /// All in one packet; the answers come one by one.
    AskAll(Vec<Ask>),
    /// Answers are still to come.
    Listen,
    SleepMs(u64),
    Done,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Heard {
    /// When it was sent.
    pub(crate) since_us: u64,
    /// `None` if the connection ended before the answer did.
    pub(crate) answer: Option<Answer>,
    /// Whether the server has cut it short.
    pub(crate) cut: Cut,
    /// The client gave up: the request may still be under way.
    pub(crate) gave_up: bool,
}

/// Whether a server has cut an answer short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    No,
    /// Stored bytes are damaged.
    ByDamage,
    /// HTTP/2 does not say why.
    Unexplained,
}

pub(crate) trait Client: fmt::Debug {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move;
    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move;
    /// One event of a live answer.
    fn event(&mut self, ctx: &mut Ctx<'_>, event: &Event) {
        ctx.oracle.broken(Rule::Protocol, format!("{self:?} got an event {event:?}"));
    }
}

/// What an answer means for the request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// 2xx
    Done(Answer),
    /// Not applied; worth another try.
    Busy,
    /// Nobody knows.
    Unknown,
    /// Not applied and never will be: the name of the problem.
    Refused(String, Answer),
    /// Stored bytes of the stream are damaged.
    Damaged,
}

pub(crate) fn judge(ctx: &mut Ctx<'_>, stream: StreamNo, heard: &Heard) -> Verdict {
    let Some(answer) = &heard.answer else {
        let may_be_damage = heard.cut == Cut::Unexplained && ctx.oracle.may_be_damaged(stream);
        if heard.cut == Cut::ByDamage || may_be_damage {
            ctx.oracle.damage_seen(stream);
            return Verdict::Damaged;
        }
        return Verdict::Unknown;
    };
    match answer.status {
        200..300 => Verdict::Done(answer.clone()),
        408 | 429 | 503 | 507 => Verdict::Busy,
        500 => judge_500(ctx, stream, answer),
        _ => Verdict::Refused(answer.problem().unwrap_or_default(), answer.clone()),
    }
}

fn judge_500(ctx: &mut Ctx<'_>, stream: StreamNo, answer: &Answer) -> Verdict {
    // The answer to a HEAD has no body that could show it.
    let problem = answer.problem();
    match problem.as_deref() {
        Some("stream-damaged") | None => {
            ctx.oracle.damage_seen(stream);
            Verdict::Damaged
        }
        Some(_) if answer.applied() == Some(false) => Verdict::Busy,
        Some(_) => Verdict::Unknown,
    }
}

/// A pause between requests, mostly short.
pub(crate) fn pause(dice: &mut Dice) -> Move {
    Move::SleepMs(if dice.percent(10) { dice.between(500, 5_000) } else { dice.between(1, 300) })
}
