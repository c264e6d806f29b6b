//! Connections as clients have them: who shares one, what is sent on it when, and how it ends.
//!
//! A client keeps its connection open, shares it with others, sends requests behind each other without waiting
//! for answers, in pieces, and sometimes closes its half. Which of these, the seed decides.

use super::{Act, World};
use crate::{clients::Cut, frames::Frames, plane::Mail};
use std::{collections::VecDeque, ops::RangeInclusive};

/// Requests that clients send behind each other on one connection.
const PIPELINED_MAX: usize = 4;

/// One connection.
#[derive(Debug)]
pub(super) struct WireEnd {
    pub(super) life: u64,
    pub(super) shard: usize,
    /// Requests whose answers have not come, in order.
    pub(super) calls: VecDeque<u32>,
    /// It takes no further requests.
    pub(super) is_closing: bool,
    /// An answer said that it is the last one.
    pub(super) is_over: bool,
    /// When the last bytes for it arrive.
    pub(super) hears_at: u64,
    /// When the last bytes of its client arrive.
    sends_at: u64,
    /// It speaks HTTP/2.
    pub(super) frames: Option<Box<Frames>>,
}

impl WireEnd {
    /// Whether it is of no more use: all its requests are over, and it takes no others.
    pub(super) fn is_spent(&self) -> bool {
        self.is_closing && self.calls.is_empty()
    }
}

impl World {
    /// A connection for a request: one of those that are open, or a new one. `None` if nobody listens.
    pub(super) fn wire_for(&mut self, is_live: bool) -> Option<u32> {
        let process = self.process.as_ref().filter(|process| !process.is_stopping)?;
        let (life, shard_count) = (process.life, process.shards.len());
        let is_free = |end: &WireEnd, calls: &Self| {
            end.life == life
                && end.frames.is_none()
                && !end.is_closing
                && end.calls.len() < PIPELINED_MAX
                && (!is_live || end.calls.is_empty())
                && !end.calls.iter().any(|call| calls.calls[call].is_live)
        };
        let free = self.wires.iter().filter(|(_, end)| is_free(end, self));
        let free: Vec<u32> = free.map(|(wire, _)| *wire).collect();
        if !free.is_empty() && self.dice.percent(60) {
            return Some(*self.dice.pick(&free));
        }
        Some(self.new_wire(life, shard_count, None))
    }

    /// Opens a connection.
    pub(super) fn new_wire(
        &mut self,
        life: u64,
        shard_count: usize,
        frames: Option<Box<Frames>>,
    ) -> u32 {
        if self.is_ending && self.wires.len() >= self.plane.sessions.connections_max {
            self.hang_up_idle();
        }
        let shard = usize::try_from(self.dice.below(shard_count as u64)).expect("an index");
        self.wire_next += 1;
        let wire = self.wire_next;
        let now = self.clock.now_us;
        let end = WireEnd {
            life,
            shard,
            calls: VecDeque::new(),
            is_closing: false,
            is_over: false,
            hears_at: now,
            sends_at: now,
            frames,
        };
        self.wires.insert(wire, end);
        self.send(wire, Mail::Open { wire });
        wire
    }

    /// Sends something to the shard of a connection, behind what was sent before.
    fn send(&mut self, wire: u32, mail: Mail) {
        let delay = self.dice.delay_us(250);
        let Some(end) = self.wires.get_mut(&wire) else { return };
        end.sends_at = end.sends_at.max(self.clock.now_us + delay);
        let (at, life, shard) = (end.sends_at, end.life, end.shard);
        self.at(at, Act::Deliver { life, shard, mail: Box::new(mail) });
    }

    /// Sends requests, perhaps in pieces, perhaps as the last ones.
    pub(super) fn send_requests(&mut self, wire: u32, calls: RangeInclusive<u32>, bytes: Vec<u8>) {
        if let Some(end) = self.wires.get_mut(&wire) {
            end.calls.extend(calls);
        }
        self.send_bytes(wire, bytes);
        if self.dice.percent(4) {
            self.send(wire, Mail::HalfClosed { wire });
            if let Some(end) = self.wires.get_mut(&wire) {
                end.is_closing = true;
            }
        }
    }

    /// Sends bytes, perhaps in pieces.
    pub(super) fn send_bytes(&mut self, wire: u32, mut bytes: Vec<u8>) {
        while bytes.len() > 1 && self.dice.percent(15) {
            let count = self.dice.between(1, bytes.len() as u64 - 1);
            let rest = bytes.split_off(usize::try_from(count).expect("an index"));
            let piece = std::mem::replace(&mut bytes, rest);
            self.send(wire, Mail::Bytes { wire, bytes: piece });
        }
        self.send(wire, Mail::Bytes { wire, bytes });
    }

    /// A client takes no more of its answer for a while.
    pub(super) fn stall(&mut self, wire: u32) {
        let wait = if self.dice.percent(3) {
            self.dice.between(100_000, 3_000_000)
        } else {
            self.dice.delay_us(2_000)
        };
        let Some(end) = self.wires.get(&wire) else { return };
        let (life, shard) = (end.life, end.shard);
        self.after(wait, Act::Deliver { life, shard, mail: Box::new(Mail::Writable { wire }) });
    }

    /// A connection without requests may be kept, or closed by its client.
    pub(super) fn perhaps_hang_up(&mut self, wire: u32) {
        let is_idle = self.wires.get(&wire).is_some_and(|end| end.calls.is_empty());
        if is_idle && self.dice.percent(25) {
            self.hang_up(wire);
        }
    }

    /// Clients close their connections without requests: those would keep the last clients out.
    fn hang_up_idle(&mut self) {
        let idle = self.wires.iter().filter(|(_, end)| end.calls.is_empty()).map(|(wire, _)| *wire);
        for wire in idle.collect::<Vec<_>>() {
            self.hang_up(wire);
        }
    }

    /// The client goes; waiting requests of the connection get no answer.
    pub(super) fn hang_up(&mut self, wire: u32) {
        self.send(wire, Mail::Gone { wire });
        let Some(end) = self.wires.remove(&wire) else { return };
        for call in end.calls {
            self.finish(call, Cut::No, true);
        }
    }

    /// The shard has ended a connection.
    pub(super) fn ended(&mut self, wire: u32, by_damage: bool) {
        self.send(wire, Mail::Gone { wire });
        let Some(end) = self.wires.remove(&wire) else { return };
        let lives = self.process.as_ref().is_some_and(|process| process.life == end.life);
        for (place, call) in end.calls.into_iter().enumerate() {
            // Requests behind the first one may still be under way.
            let cut = if by_damage && place == 0 { Cut::ByDamage } else { Cut::No };
            self.finish(call, cut, lives);
        }
    }

    /// The connections to the shards for which `is_lost` end, after what was sent on them.
    pub(crate) fn lose_connections(&mut self, is_lost: impl Fn(usize) -> bool) {
        let lost = self.wires.iter().filter(|(_, end)| is_lost(end.shard));
        let lost: Vec<(u32, u64)> = lost.map(|(wire, end)| (*wire, end.hears_at)).collect();
        for (wire, hears_at) in lost {
            let at = hears_at.max(self.clock.now_us) + self.dice.below(2_000);
            let (bytes, ends, damage) = (Vec::new(), true, false);
            self.at(at, Act::Hear { wire, bytes, ends, damage });
        }
    }

    /// Connections that clients have open to a shard.
    pub(super) fn open_wires(&self, shard: usize) -> usize {
        self.wires.values().filter(|end| end.shard == shard).count()
    }
}
