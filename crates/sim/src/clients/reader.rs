//! Readers of streams that are never deleted: they keep their offset over everything.

use super::{
    Client, Ctx, Heard, Move, Verdict, judge, pause,
    reading::{EventReading, Reading},
};
use crate::{
    events::Event,
    oracle::{Rule, StreamNo},
    wire::{Ask, offset_text},
};

#[derive(Debug)]
pub(crate) struct Reader {
    stream: StreamNo,
    /// `None` before the first answer to `offset=-1` or `offset=now`.
    position: Option<u64>,
    from_now: bool,
    under_way: Under,
    /// The end was seen; it looks again now and then whether that holds.
    at_end: bool,
}

#[derive(Debug)]
enum Under {
    Nothing,
    Read(Reading, bool),
    Head(u64, bool),
    Events(EventReading),
}

impl Reader {
    pub(crate) fn new(stream: StreamNo, from_now: bool) -> Self {
        Self { stream, position: None, from_now, under_way: Under::Nothing, at_end: false }
    }

    fn offset(&self) -> String {
        match self.position {
            Some(position) => offset_text(position),
            None if self.from_now => "now".into(),
            None => "-1".into(),
        }
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>) -> Move {
        let truth = ctx.oracle.truth(self.stream);
        let (path, floor, closed) = (truth.path.clone(), truth.floor, truth.closed_at.is_some());
        let ask = Ask::new("GET", &path);
        let offset = self.offset();
        let move_ = match ctx.dice.below(100) {
            0..8 => {
                self.under_way = Under::Head(floor, closed);
                Ask::new("HEAD", &path)
            }
            8..20 => {
                // Anywhere, as a client does that counts offsets by itself.
                let at = ctx.dice.between(0, floor);
                self.under_way = Under::Read(Reading::begin(ctx, self.stream, Some(at)), false);
                ask.query(format!("offset={}", offset_text(at)))
            }
            20..50 => {
                let from = self.from();
                self.under_way = Under::Read(Reading::begin(ctx, self.stream, from), true);
                ask.query(format!("offset={offset}"))
            }
            50..75 => {
                let from = self.from();
                self.under_way = Under::Read(Reading::begin(ctx, self.stream, from), true);
                ask.query(format!("offset={offset}&live=long-poll"))
            }
            _ => {
                let base64 = ctx.dice.percent(30);
                let events = EventReading::begin(ctx, self.stream, self.from(), base64);
                self.under_way = Under::Events(events);
                let encoding = if base64 { "&encoding=base64" } else { "" };
                // As a browser does: the query stays that of its first connection.
                let comes_back = self.position.is_some() && ctx.dice.percent(50);
                let (offset, last) =
                    if comes_back { ("-1", Some(offset)) } else { (&*offset, None) };
                let mut ask = ask.query(format!("offset={offset}&live=sse{encoding}"));
                if let Some(last) = last {
                    ask = ask.field("Last-Event-ID", last);
                }
                ask.live = true;
                ask
            }
        };
        Move::Ask(move_)
    }

    fn from(&self) -> Option<u64> {
        self.position.or((!self.from_now).then_some(0))
    }
}

impl Client for Reader {
    fn wake(&mut self, ctx: &mut Ctx<'_>) -> Move {
        let truth = ctx.oracle.truth(self.stream);
        if ctx.is_ending {
            return Move::Done;
        }
        if !truth.is_ready {
            return Move::SleepMs(300);
        }
        self.ask(ctx)
    }

    fn heard(&mut self, ctx: &mut Ctx<'_>, heard: Heard) -> Move {
        let under_way = std::mem::replace(&mut self.under_way, Under::Nothing);
        if let Under::Events(events) = &under_way {
            self.position = events.position;
            self.at_end = events.is_closed;
        }
        match (judge(ctx, self.stream, &heard), under_way) {
            (Verdict::Done(answer), Under::Read(reading, is_own)) => {
                let reached = reading.take(ctx, &answer);
                if let Some(reached) = reached.filter(|_| is_own) {
                    self.position = Some(reached.next);
                    self.at_end = reached.closed;
                }
            }
            // Only a browser that comes back after the end of a stream gets this.
            (Verdict::Done(answer), Under::Events(events)) if answer.status == 204 => {
                self.at_end = answer.is("stream-closed") && answer.next_offset() == events.position;
                if !self.at_end {
                    ctx.oracle.broken(Rule::Protocol, "204 to a reader of events before the end");
                }
            }
            (Verdict::Done(answer), Under::Head(floor, was_closed)) => {
                let Some(tail) = answer.next_offset() else {
                    ctx.oracle.broken(Rule::Protocol, "HEAD without Stream-Next-Offset");
                    return Move::Done;
                };
                ctx.oracle.up_to_date(self.stream, tail, floor);
                if answer.is("stream-closed") {
                    ctx.oracle.closed_seen(self.stream, tail);
                } else {
                    ctx.oracle.open_seen(self.stream, tail, was_closed);
                }
            }
            (Verdict::Refused(problem, _), _) => {
                let path = &ctx.oracle.truth(self.stream).path;
                let detail = format!("a read of {path} at {:?}: {problem}", self.position);
                ctx.oracle.broken(Rule::Unseen, detail);
            }
            (Verdict::Damaged, _) => return Move::SleepMs(ctx.dice.between(1_000, 10_000)),
            _ => {}
        }
        if self.at_end { Move::SleepMs(ctx.dice.between(2_000, 20_000)) } else { pause(ctx.dice) }
    }

    fn event(&mut self, ctx: &mut Ctx<'_>, event: &Event) {
        match &mut self.under_way {
            Under::Events(events) => events.take(ctx, event),
            other => {
                let detail = format!("an event for {other:?}");
                ctx.oracle.broken(Rule::Protocol, detail);
            }
        }
    }
}
