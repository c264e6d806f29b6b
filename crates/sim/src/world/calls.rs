//! Clients and their connections: what they ask, and what reaches them.

use super::{Act, World};
use crate::{
    clients::{Client, Ctx, Heard, Move},
    events::take_events,
    fault::FaultKind,
    oracle::Rule,
    plane::Mail,
    wire::{Answer, AnswerReader, Ask},
};

/// One request of a client.
#[derive(Debug)]
pub(super) struct Call {
    client: usize,
    since_us: u64,
    pub(super) shard: usize,
    reader: AnswerReader,
    is_live: bool,
    events: Vec<u8>,
    /// When the last bytes for it arrive.
    pub(super) hears_at: u64,
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
        let may_forget_uses =
            self.has_fault(FaultKind::FullDisk) || self.has_fault(FaultKind::FailedSync);
        let mut ctx = Ctx {
            may_forget_uses,
            clock: &self.clock,
            dice: &mut self.client_dice,
            oracle: &mut self.oracle,
            is_ending: self.is_ending,
            backward_jumps: self.backward_jumps,
        };
        act(&mut *self.seats[seat].client, &mut ctx)
    }

    fn follow(&mut self, seat: usize, next: Move) {
        match next {
            Move::Ask(ask) => self.ask(seat, &ask),
            Move::SleepMs(ms) => {
                let us = ms * 1000 + self.dice.below(1000);
                self.after(us, Act::Wake(seat));
            }
            Move::Done => self.seats[seat].is_done = true,
        }
    }

    fn ask(&mut self, client: usize, ask: &Ask) {
        self.conn_next += 1;
        let conn = self.conn_next;
        let bytes = ask.render(&mut self.dice);
        self.note(format_args!("{conn} {} {} {:?}", ask.method, ask.path, ask.query));
        self.trace.bytes(&bytes);
        self.oracle.asked(conn, ask);
        let delay = self.dice.delay_us(500);
        let shards = self.process.as_ref().map_or(1, |process| process.shards.len());
        let shard = usize::try_from(self.dice.below(shards as u64)).expect("an index");
        self.calls.insert(
            conn,
            Call {
                client,
                since_us: self.clock.now_us,
                shard,
                reader: AnswerReader::new(ask.method == "HEAD"),
                is_live: ask.live,
                events: Vec::new(),
                hears_at: 0,
            },
        );
        let mail = Mail::Raw { conn, bytes };
        match self.process.as_ref().filter(|process| !process.is_stopping) {
            Some(process) => {
                let life = process.life;
                self.after(delay, Act::Deliver { life, shard, mail });
            }
            // Nobody listens.
            None => {
                let refused = Act::Hear { conn, bytes: Vec::new(), ends: true, damage: false };
                self.after(delay, refused);
            }
        }
        let patience = self.patience_us(ask.live);
        self.after(patience, Act::GiveUp { conn });
    }

    /// How long a client waits: readers of events leave by themselves, others when they vanish or
    /// when nothing comes for far too long.
    fn patience_us(&mut self, is_live: bool) -> u64 {
        if is_live {
            return self.dice.between(100_000, 12_000_000);
        }
        if self.has_fault(FaultKind::Vanish) && self.dice.percent(6) && !self.is_ending {
            return self.dice.below(20_000);
        }
        100_000_000
    }

    pub(super) fn give_up(&mut self, conn: u32) {
        let Some(call) = self.calls.get(&conn) else { return };
        let (shard, client) = (call.shard, call.client);
        if self.clock.now_us - call.since_us >= 100_000_000 {
            let detail = format!("no answer in 100 s: {:?}", self.seats[client].client);
            return self.oracle.broken(Rule::Bounds, detail);
        }
        self.note(format_args!("{conn} given up"));
        if let Some(process) = &self.process {
            let life = process.life;
            if shard < process.shards.len() {
                self.after(100, Act::Deliver { life, shard, mail: Mail::Gone { conn } });
            }
        }
        self.close(conn, false, true);
    }

    pub(super) fn hear(&mut self, conn: u32, bytes: &[u8], ends: bool, damage: bool) {
        let Some(call) = self.calls.get_mut(&conn) else { return };
        if let Err(what) = call.reader.feed(bytes) {
            self.oracle.broken(Rule::Protocol, what);
            return;
        }
        self.trace.bytes(bytes);
        let seat = call.client;
        if call.is_live && call.reader.answer.status == 200 {
            let body = std::mem::take(&mut call.reader.answer.body);
            call.events.extend_from_slice(&body);
            match take_events(&mut call.events) {
                Ok(events) => {
                    for event in events {
                        self.with_client(seat, |client, ctx| client.event(ctx, &event));
                    }
                }
                Err(what) => self.oracle.broken(Rule::Garbled, what),
            }
        }
        let is_done = self.calls.get(&conn).is_some_and(|call| call.reader.is_done());
        if ends || is_done {
            self.close(conn, damage, false);
        }
    }

    /// The connection is over: the client hears what came.
    fn close(&mut self, conn: u32, cut_by_damage: bool, gave_up: bool) {
        let Some(call) = self.calls.remove(&conn) else { return };
        let is_done = call.reader.is_done();
        let answer: Option<Answer> = is_done.then_some(call.reader.answer);
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        let field = |name| answer.as_ref().and_then(|answer| answer.field(name)).unwrap_or("");
        let (next, tag) = (field("stream-next-offset"), field("etag"));
        let line = format!("{conn} heard {status} {next} {tag}");
        self.note(format_args!("{line}"));
        self.oracle.history.heard(conn, answer.as_ref());
        let heard = Heard { since_us: call.since_us, answer, cut_by_damage, gave_up };
        let next = self.with_client(call.client, |client, ctx| client.heard(ctx, heard));
        self.follow(call.client, next);
    }

    /// The connections to the shards for which `is_lost` end, after what was sent on them.
    pub(crate) fn lose_connections(&mut self, is_lost: impl Fn(usize) -> bool) {
        let lost = self.calls.iter().filter(|(_, call)| is_lost(call.shard));
        let conns: Vec<(u32, u64)> = lost.map(|(conn, call)| (*conn, call.hears_at)).collect();
        for (conn, hears_at) in conns {
            let at = hears_at.max(self.clock.now_us) + self.dice.below(2_000);
            self.at(at, Act::Hear { conn, bytes: Vec::new(), ends: true, damage: false });
        }
    }
}
