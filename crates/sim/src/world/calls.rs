//! Clients and their requests: what they ask, and what reaches them.

use super::{Act, World};
use crate::{
    clients::{Client, Ctx, Cut, Heard, Move},
    events::take_events,
    fault::FaultKind,
    oracle::Rule,
    rules,
    wire::{Answer, AnswerReader, Ask},
};

/// One request of a client.
#[derive(Debug)]
pub(super) struct Call {
    client: usize,
    since_us: u64,
    /// Its connection; `None` if nobody listened.
    pub(super) wire: Option<u32>,
    pub(super) reader: AnswerReader,
    pub(super) is_live: bool,
    events: Vec<u8>,
}

/// Requests of clients that may do everything show that.
fn show_token(next: &mut Move) {
    let asks = match next {
        Move::Ask(ask) => std::slice::from_mut(ask),
        Move::AskAll(asks) => &mut asks[..],
        Move::Listen | Move::SleepMs(_) | Move::Done => &mut [],
    };
    for ask in asks.iter_mut().filter(|ask| !ask.is_anonymous) {
        ask.fields.push(("Authorization", rules::owner()));
    }
}

impl World {
    pub(super) fn wake(&mut self, seat: usize) {
        if self.clock.now_us < self.quiet_until_us {
            let wait = self.quiet_until_us - self.clock.now_us + self.dice.below(10_000);
            return self.after(wait, Act::Wake(seat));
        }
        let next = self.with_client(seat, |client, ctx| client.wake(ctx));
        self.follow(seat, next);
    }

    fn with_client<T>(
        &mut self,
        seat: usize,
        act: impl FnOnce(&mut dyn Client, &mut Ctx<'_>) -> T,
    ) -> T {
        // A start that cannot sync its directories answers reads and logs no use.
        let is_poisoned_at_starts = self.has_fault(FaultKind::FailedStart);
        let may_forget_uses = self.has_fault(FaultKind::FullDisk) || self.may_fail_syncs();
        let may_forget_uses = may_forget_uses || is_poisoned_at_starts;
        let is_small = self.has_fault(FaultKind::SmallDisk);
        let mut ctx = Ctx {
            may_forget_uses: may_forget_uses || is_small,
            is_small_and_well: is_small && self.clock.now_us >= self.sick_until_us,
            well_since_us: self.well_since_us,
            clock: &self.clock,
            dice: &mut self.client_dice,
            oracle: &mut self.oracle,
            is_ending: self.is_ending,
            backward_jumps: self.backward_jumps,
            passing: &self.passing,
        };
        act(&mut *self.seats[seat].client, &mut ctx)
    }

    fn follow(&mut self, seat: usize, mut next: Move) {
        if self.plan.has_access {
            show_token(&mut next);
        }
        match next {
            Move::Ask(ask) if self.speaks_frames() => self.ask_in_frames(seat, &ask),
            Move::Ask(ask) => self.ask(seat, &[ask]),
            Move::AskAll(asks) => self.ask(seat, &asks),
            Move::Listen => {}
            Move::SleepMs(ms) => {
                let us = ms * 1000 + self.dice.below(1000);
                self.after(us, Act::Wake(seat));
            }
            Move::Done => self.seats[seat].is_done = true,
        }
    }

    /// Sends requests behind each other on one connection.
    fn ask(&mut self, client: usize, asks: &[Ask]) {
        let first = self.call_next + 1;
        let mut packet = Vec::new();
        for ask in asks {
            let bytes = ask.render(&mut self.dice);
            self.new_call(ask);
            self.trace.bytes(&bytes);
            packet.extend(bytes);
        }
        let is_live = asks.iter().any(|ask| ask.live);
        let wire = self.wire_for(is_live);
        for (number, ask) in (first..).zip(asks) {
            self.begin_call(number, client, wire, ask);
        }
        let numbers = first..=self.call_next;
        match wire {
            Some(wire) => self.send_requests(wire, numbers.clone(), packet),
            // Nobody listens.
            None => {
                let delay = self.dice.delay_us(500);
                numbers.clone().for_each(|call| self.after(delay, Act::Refused { call }));
            }
        }
        let patience = self.patience_us(is_live);
        numbers.for_each(|call| self.after(patience, Act::GiveUp { call }));
    }

    /// A request on its way to a connection.
    pub(super) fn new_call(&mut self, ask: &Ask) -> u32 {
        self.call_next += 1;
        let number = self.call_next;
        self.note(format_args!("{number} {} {} {:?}", ask.method, ask.path, ask.query));
        self.oracle.asked(number, ask);
        number
    }

    pub(super) fn begin_call(&mut self, number: u32, client: usize, wire: Option<u32>, ask: &Ask) {
        let call = Call {
            client,
            since_us: self.clock.now_us,
            wire,
            reader: AnswerReader::new(ask.method == "HEAD"),
            is_live: ask.live,
            events: Vec::new(),
        };
        self.calls.insert(number, call);
    }

    /// How long a client waits: readers of events leave by themselves, others when they vanish or
    /// when nothing comes for far too long.
    pub(super) fn patience_us(&mut self, is_live: bool) -> u64 {
        if is_live {
            return self.dice.between(100_000, 12_000_000);
        }
        if self.has_fault(FaultKind::Vanish) && self.dice.percent(6) && !self.is_ending {
            return self.dice.below(20_000);
        }
        100_000_000
    }

    pub(super) fn give_up(&mut self, number: u32) {
        let Some(call) = self.calls.get(&number) else { return };
        let (wire, client) = (call.wire, call.client);
        if self.clock.now_us - call.since_us >= 100_000_000 {
            let detail = format!("no answer in 100 s: {:?}", self.seats[client].client);
            return self.oracle.broken(Rule::Bounds, detail);
        }
        self.note(format_args!("{number} given up"));
        if self.reset_in_frames(number) {
            return;
        }
        if let Some(wire) = wire {
            self.hang_up(wire);
        }
    }

    pub(super) fn hear(&mut self, wire: u32, bytes: Vec<u8>, ends: bool, damage: bool) {
        self.trace.bytes(&bytes);
        if self.wires.get(&wire).is_some_and(|end| end.frames.is_some()) {
            return self.hear_frames(wire, &bytes, ends.then_some(damage));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(end) = self.wires.get(&wire) else { return };
            let Some(front) = end.calls.front().copied() else {
                if end.is_over {
                    // A refusal may come before its request: the body of one to HEAD is no answer to anything.
                    break;
                }
                let detail = format!("{} bytes that nobody asked for", rest.len());
                return self.oracle.broken(Rule::Protocol, detail);
            };
            rest = match self.hear_call(front, &rest) {
                Ok(rest) => rest,
                Err((rule, what)) => return self.oracle.broken(rule, what),
            };
            if self.calls.get(&front).is_some_and(|call| call.reader.is_done()) {
                if let Some(end) = self.wires.get_mut(&wire) {
                    end.calls.pop_front();
                }
                self.finish(front, if damage { Cut::ByDamage } else { Cut::No }, false);
            }
        }
        if ends {
            self.ended(wire, damage);
        } else {
            self.perhaps_hang_up(wire);
        }
    }

    /// Gives bytes to the first request of a connection; what is left belongs to the next one.
    fn hear_call(&mut self, number: u32, bytes: &[u8]) -> Result<Vec<u8>, (Rule, String)> {
        let call = self.calls.get_mut(&number).expect("a request that waits");
        let rest = call.reader.feed(bytes).map_err(|what| (Rule::Protocol, what))?;
        if call.reader.answer.field("connection") == Some("close")
            && let Some(end) = call.wire.and_then(|wire| self.wires.get_mut(&wire))
        {
            end.is_closing = true;
            end.is_over = true;
        }
        self.hear_events(number)?;
        Ok(rest)
    }

    /// Gives a client the events that are whole.
    pub(super) fn hear_events(&mut self, number: u32) -> Result<(), (Rule, String)> {
        let call = self.calls.get_mut(&number).expect("a request that waits");
        let seat = call.client;
        if call.is_live && call.reader.answer.status == 200 {
            let body = std::mem::take(&mut call.reader.answer.body);
            call.events.extend_from_slice(&body);
            let events = take_events(&mut call.events).map_err(|what| (Rule::Garbled, what))?;
            for event in events {
                self.with_client(seat, |client, ctx| client.event(ctx, &event));
            }
        }
        Ok(())
    }

    /// A request is over: its client hears what came.
    pub(super) fn finish(&mut self, number: u32, cut: Cut, gave_up: bool) {
        let Some(call) = self.calls.remove(&number) else { return };
        let is_done = call.reader.is_done();
        let answer: Option<Answer> = is_done.then_some(call.reader.answer);
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        let field = |name| answer.as_ref().and_then(|answer| answer.field(name)).unwrap_or("");
        let (next, tag) = (field("stream-next-offset"), field("etag"));
        let failed = answer.as_ref().filter(|answer| answer.status >= 400);
        let problem = failed.and_then(Answer::problem).unwrap_or_default();
        let line = format!("{number} heard {status} {problem} {next} {tag}");
        self.note(format_args!("{line}"));
        self.oracle.history.heard(number, answer.as_ref());
        let heard = Heard { since_us: call.since_us, answer, cut, gave_up };
        let next = self.with_client(call.client, |client, ctx| client.heard(ctx, heard));
        self.follow(call.client, next);
    }
}
