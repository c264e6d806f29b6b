//! Connections of clients that speak HTTP/2: many requests at a time, windows, and answers that are left for a while.

use super::{Act, WireEnd, World};
use crate::{
    clients::Cut,
    frames::{Frames, FramesEnd, News},
    oracle::Rule,
    wire::Ask,
};

/// Requests that clients have under way on one connection.
const AT_A_TIME_MAX: usize = 12;

impl World {
    /// Whether the next request goes over HTTP/2.
    pub(super) fn speaks_frames(&mut self) -> bool {
        let percent = self.plan.http2_percent;
        percent > 0 && self.frames_dice.percent(percent)
    }

    pub(super) fn ask_in_frames(&mut self, client: usize, ask: &Ask) {
        let number = self.new_call(ask);
        let fields = ask.fields_of_frames(&mut self.frames_dice);
        let wire = self.frames_wire();
        self.begin_call(number, client, wire, ask);
        let patience = self.patience_us(ask.live);
        self.after(patience, Act::GiveUp { call: number });
        let Some((wire, end)) = wire.and_then(|wire| Some((wire, self.wires.get_mut(&wire)?)))
        else {
            let delay = self.dice.delay_us(500);
            return self.after(delay, Act::Refused { call: number });
        };
        end.calls.push_back(number);
        if let Some(frames) = &mut end.frames {
            frames.ask(number, ask, &fields);
        }
        // What others had asked before may come first.
        let wait = self.frames_dice.below(50);
        self.after(wait, Act::TakeFrames { wire });
    }

    /// A connection for a request: one of those that are open, or a new one. `None` if nobody listens.
    fn frames_wire(&mut self) -> Option<u32> {
        let process = self.process.as_ref().filter(|process| !process.is_stopping)?;
        let (life, shard_count) = (process.life, process.shards.len());
        let free = self.wires.iter().filter(|(_, end)| {
            let has_room = end.calls.len() < AT_A_TIME_MAX;
            end.life == life && end.frames.is_some() && !end.is_closing && has_room
        });
        let free: Vec<u32> = free.map(|(wire, _)| *wire).collect();
        if !free.is_empty() && self.frames_dice.percent(90) {
            return Some(*self.frames_dice.pick(&free));
        }
        let frames = Frames::new(&mut self.frames_dice);
        Some(self.new_wire(life, shard_count, Some(frames)))
    }

    /// Bytes of a server have come; `end` says whether it has ended the connection, and whether for damage.
    pub(super) fn hear_frames(&mut self, wire: u32, bytes: &[u8], end: Option<bool>) {
        let Some(frames) = self.wires.get_mut(&wire).and_then(|end| end.frames.as_mut()) else {
            return;
        };
        frames.client.receive(bytes);
        if end.is_some() {
            frames.client.end_input();
        }
        self.move_frames(wire);
        if let Some(by_damage) = end {
            self.ended(wire, by_damage);
        }
    }

    /// All answers are taken again.
    pub(super) fn take_frames(&mut self, wire: u32) {
        let Some(frames) = self.wires.get_mut(&wire).and_then(|end| end.frames.as_mut()) else {
            return;
        };
        frames.client.exchanges.iter_mut().for_each(|exchange| exchange.is_stalled = false);
        self.move_frames(wire);
    }

    /// Sends what a client has to say, and gives its requests what has come.
    fn move_frames(&mut self, wire: u32) {
        self.perhaps_leave(wire);
        self.send_frames(wire);
        let Some(frames) = self.wires.get_mut(&wire).and_then(|end| end.frames.as_mut()) else {
            return;
        };
        let (news, is_over) = (frames.news(), frames.client.is_over);
        for news in news {
            if let Err((rule, what)) = self.take_news(wire, news) {
                return self.oracle.broken(rule, what);
            }
        }
        let is_spent = self.wires.get(&wire).is_some_and(WireEnd::is_spent);
        if is_over || is_spent {
            self.hang_up(wire);
        } else {
            self.perhaps_hang_up(wire);
        }
    }

    /// A client leaves one of its answers for a while.
    fn perhaps_leave(&mut self, wire: u32) {
        let Some(frames) = self.wires.get_mut(&wire).and_then(|end| end.frames.as_mut()) else {
            return;
        };
        let is_last = frames.client.exchanges.last_mut().filter(|_| frames.may_leave);
        let Some(exchange) = is_last else { return };
        if self.frames_dice.percent(5) {
            exchange.is_stalled = true;
            let wait = self.frames_dice.delay_us(20_000);
            self.after(wait, Act::TakeFrames { wire });
        }
    }

    fn send_frames(&mut self, wire: u32) {
        loop {
            let Some(frames) = self.wires.get_mut(&wire).and_then(|end| end.frames.as_mut()) else {
                return;
            };
            frames.client.poll();
            let bytes = frames.client.take_output();
            if bytes.is_empty() {
                return;
            }
            self.trace.bytes(&bytes);
            self.send_bytes(wire, bytes.to_vec());
        }
    }

    fn take_news(&mut self, wire: u32, news: News) -> Result<(), (Rule, String)> {
        let Some(call) = self.calls.get_mut(&news.call) else { return Ok(()) };
        let protocol = |what| (Rule::Protocol, what);
        if let Some((status, fields)) = news.head {
            call.reader.take_head(status, fields).map_err(protocol)?;
        }
        call.reader.take_body(&news.body);
        if news.end == Some(FramesEnd::Complete) {
            call.reader.end().map_err(protocol)?;
        }
        self.hear_events(news.call)?;
        let Some(how) = news.end else { return Ok(()) };
        let mut lives = false;
        if let Some(end) = self.wires.get_mut(&wire) {
            end.calls.retain(|call| *call != news.call);
            end.is_closing |= how != FramesEnd::Complete;
            lives = self.process.as_ref().is_some_and(|process| process.life == end.life);
        }
        match how {
            FramesEnd::Complete => self.finish(news.call, Cut::No, false),
            FramesEnd::Broken(cut) => self.finish(news.call, cut, lives),
        }
        Ok(())
    }

    /// A client gives a request up and, mostly, keeps its connection. `false` if it does not.
    pub(super) fn reset_in_frames(&mut self, number: u32) -> bool {
        let Some(wire) = self.calls.get(&number).and_then(|call| call.wire) else { return false };
        let Some(end) = self.wires.get_mut(&wire) else { return false };
        let Some(frames) = &mut end.frames else { return false };
        if self.frames_dice.percent(20) {
            return false;
        }
        if !frames.reset(number) {
            return false;
        }
        end.calls.retain(|call| *call != number);
        let is_spent = end.is_spent();
        self.send_frames(wire);
        if is_spent {
            self.hang_up(wire);
        }
        self.finish(number, Cut::No, true);
        true
    }
}
