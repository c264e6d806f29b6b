//! One life of an engine: what its caller and its driver do, until it ends.

use super::{
    model::{Act, CURSORS, Model, draw_entries, draw_stream},
    mutant::EngineMutant,
    scene::Scene,
};
use ::engine::{Class, Driver, Durability, Ends, Engine, Ticket, WriteError};
use std::collections::VecDeque;

/// Bytes that a full disk has left.
const ROOM_BYTES: u64 = 20_000;

/// Steps after power loss was ordered, and changes of the disk before it comes.
const STEPS_BEFORE_POWER_LOSS: u64 = 80;

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The engine is closed or dropped.
    Order,
    /// The process dies; the page cache stays.
    Kill,
    /// What was not synced may be lost.
    Power,
}

/// What was tried since an opening, and what of it is certain.
#[derive(Debug)]
pub(super) struct Life {
    /// What the opening found.
    pub(super) base: Model,
    /// What was tried since, in order.
    pub(super) acts: Vec<Act>,
    /// Streams of acts that found no room.
    pub(super) refused: Vec<&'static str>,
    /// How many of the acts survive the death of the process, and power loss.
    pub(super) acked: usize,
    pub(super) durable: usize,
    /// `base` with all acts, and with those that are acknowledged.
    now: Model,
    acked_model: Model,
    durability: Durability,
    /// Begun appends that were not acknowledged yet, with the number of acts up to each.
    tickets: VecDeque<(usize, Ticket)>,
    has_failed: bool,
}

type Hands = (Engine, Driver);

impl Life {
    pub(super) fn new(base: Model, durability: Durability) -> Self {
        Self {
            now: base.clone(),
            acked_model: base.clone(),
            base,
            acts: Vec::new(),
            refused: Vec::new(),
            acked: 0,
            durable: 0,
            durability,
            tickets: VecDeque::new(),
            has_failed: false,
        }
    }

    /// Lives until the end, which it returns.
    pub(super) fn live(&mut self, world: &mut Scene, mut hands: Hands) -> Result<End, String> {
        let ends = [End::Order, End::Order, End::Kill, End::Kill, End::Power, End::Power];
        let end = *world.dice.pick(&ends);
        for _ in 0..world.dice.between(20, 300) {
            self.step(world, &mut hands)?;
        }
        if end == End::Power {
            world.disk.power_off_after(world.dice.below(STEPS_BEFORE_POWER_LOSS));
            for _ in 0..STEPS_BEFORE_POWER_LOSS {
                self.step(world, &mut hands)?;
            }
        }
        if end == End::Order {
            self.end_in_order(world, hands);
        } else {
            world.disk.power_off_after(0);
            drop(hands);
        }
        world.disk.set_capacity(None);
        if end == End::Power {
            world.disk.crash(&mut world.dice);
        } else {
            world.disk.kill_process();
        }
        Ok(end)
    }

    fn end_in_order(&mut self, world: &mut Scene, (engine, mut driver): Hands) {
        driver.end_commit();
        if world.dice.percent(50) && engine.close().is_ok() {
            self.acknowledge(self.acts.len());
            self.durable = self.acked;
        }
    }

    fn step(&mut self, world: &mut Scene, hands: &mut Hands) -> Result<(), String> {
        world.clock.step();
        let (engine, driver) = hands;
        match world.dice.below(100) {
            0..45 => self.begin_append(world, engine)?,
            45..58 => {
                driver.end_commit();
                self.call(world, engine)?;
            }
            58..66 => _ = driver.begin_commit(),
            66..74 => _ = driver.end_commit(),
            74..79 => _ = driver.begin_work(),
            79..84 => {
                let worked = driver.end_work();
                self.judge(worked.map(drop))?;
            }
            84..88 => {
                driver.end_commit();
                self.sync(world, engine, driver)?;
            }
            88..96 => {
                driver.end_commit();
                self.read(world, engine)?;
            }
            96..98 => fill_or_empty(world),
            _ if world.dice.percent(15) => world.disk.fail_next_sync(world.dice.between(1, 3)),
            _ => {}
        }
        self.poll(engine)
    }

    /// What is wrong with a call's result, if anything is.
    fn judge(&mut self, result: Result<(), WriteError>) -> Result<(), String> {
        match result {
            Err(error) if error.class() == Class::Rejected => Err(format!("refused: {error}")),
            Err(error) if error.class() == Class::Fatal => {
                self.has_failed = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records an act whose call has returned, or begun.
    fn record(&mut self, act: Act, result: Result<(), WriteError>) -> Result<(), String> {
        let class = result.as_ref().err().map(WriteError::class);
        if class == Some(Class::Retry) {
            self.refused.push(act.stream());
        } else {
            self.now.apply(&act);
            self.acts.push(act);
        }
        self.judge(result)
    }

    fn acknowledge(&mut self, upto: usize) {
        for act in &self.acts[self.acked.min(upto)..upto] {
            self.acked_model.apply(act);
        }
        self.acked = self.acked.max(upto);
        if self.durability == Durability::Each {
            self.durable = self.acked;
        }
    }

    fn begin_append(&mut self, world: &mut Scene, engine: &Engine) -> Result<(), String> {
        let stream = draw_stream(&mut world.dice);
        let entries = draw_entries(&mut world.dice, self.acts.len() as u64);
        let slices: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        let begun = engine.begin_append(stream, &slices);
        let expected = self.now.tail(stream);
        world.note(format_args!("append {} to {stream}: {begun:?}", entries.len()));
        let result = begun.as_ref().map(drop).map_err(Clone::clone);
        self.record(Act::Append { stream, entries }, result)?;
        let Ok(ticket) = begun else { return Ok(()) };
        if ticket.first_id() != expected && !self.has_failed {
            return Err(format!("{stream}: id {} for entry {expected}", ticket.first_id()));
        }
        self.tickets.push_back((self.acts.len(), ticket));
        if world.plan.mutant == Some(EngineMutant::EarlyAck) {
            self.acknowledge(self.acts.len());
        }
        Ok(())
    }

    fn poll(&mut self, engine: &Engine) -> Result<(), String> {
        while let Some((acts, ticket)) = self.tickets.front().copied() {
            match engine.poll(ticket) {
                Ok(true) => self.acknowledge(acts),
                Ok(false) => return Ok(()),
                Err(error) => return self.judge(Err(error)),
            }
            self.tickets.pop_front();
        }
        Ok(())
    }

    /// A call that returns when it is acknowledged.
    fn call(&mut self, world: &mut Scene, engine: &Engine) -> Result<(), String> {
        let (stream, cursor) = (draw_stream(&mut world.dice), *world.dice.pick(&CURSORS));
        let Ends { head, tail: visible } = engine.ends(stream);
        let act = match world.dice.below(10) {
            0..4 if visible > 0 => {
                Act::Commit { cursor, stream, next: world.dice.between(0, visible) }
            }
            // One that changes nothing returns at once and says nothing of what came before it.
            4..6 if visible > head => {
                Act::Trim { stream, upto: world.dice.between(head + 1, visible) }
            }
            _ => Act::Append {
                stream,
                entries: draw_entries(&mut world.dice, self.acts.len() as u64),
            },
        };
        let result = match &act {
            Act::Append { stream, entries } => {
                let slices: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
                engine.append_batch(stream, &slices).map(drop)
            }
            Act::Commit { cursor, stream, next } => engine.commit_cursor(cursor, stream, *next),
            Act::Trim { stream, upto } => engine.trim(stream, *upto),
        };
        world.note(format_args!("call on {stream}: {result:?}"));
        let is_ok = result.is_ok();
        self.record(act, result)?;
        if is_ok {
            self.acknowledge(self.acts.len());
        }
        Ok(())
    }

    fn sync(&mut self, world: &mut Scene, engine: &Engine, driver: &Driver) -> Result<(), String> {
        let is_periodic = matches!(self.durability, Durability::Periodic(_));
        let synced = if is_periodic { driver.sync() } else { engine.sync() };
        world.note(format_args!("sync: {synced:?}"));
        if synced.is_ok() {
            self.acknowledge(self.acts.len());
            self.durable = self.acked;
        }
        self.judge(synced)
    }

    /// What is visible is what was written, holds all that was acknowledged, and stays.
    fn read(&mut self, world: &mut Scene, engine: &Engine) -> Result<(), String> {
        let stream = draw_stream(&mut world.dice);
        let ends = engine.ends(stream);
        let (least, most) = (self.acked_model.tail(stream), self.now.tail(stream));
        if !(least..=most).contains(&ends.tail) && !self.may_hide(engine) {
            return Err(format!("{stream} ends at {}, not in {least}..={most}", ends.tail));
        }
        self.acknowledge_visible(stream, ends.tail);
        if ends.head < ends.tail {
            let from = world.dice.between(ends.head, ends.tail - 1);
            world.note(format_args!("read {stream} from {from} of {ends:?}"));
            self.now
                .compare(engine, (stream, from))
                .map_err(|e| format!("{stream} at {from}: {e}"))?;
        }
        let is_settled = self.acked == self.acts.len() && !self.has_failed;
        if is_settled && !self.acked_model.matches(engine) && !self.may_hide(engine) {
            return Err("ends or cursors are not those that were acknowledged".to_owned());
        }
        Ok(())
    }

    /// After a failed write, reads of an engine that postpones syncs end before what is not in the log.
    fn may_hide(&mut self, engine: &Engine) -> bool {
        self.has_failed |= engine.sync().is_err();
        self.has_failed && self.durability != Durability::Each
    }

    /// With each append synced, what can be read stays.
    fn acknowledge_visible(&mut self, stream: &str, visible: u64) {
        if self.durability != Durability::Each {
            return;
        }
        let mut tail = self.acked_model.tail(stream);
        let later = self.acts[self.acked..].iter().position(|act| {
            if let Act::Append { stream: of, entries } = act
                && *of == stream
            {
                tail += entries.len() as u64;
            }
            tail >= visible
        });
        if let Some(position) = later.filter(|_| self.acked_model.tail(stream) < visible) {
            self.acknowledge(self.acked + position + 1);
        }
    }
}

fn fill_or_empty(world: &mut Scene) {
    let is_full = world.dice.percent(40);
    let bytes = is_full.then(|| world.disk.used_bytes() + ROOM_BYTES);
    world.disk.set_capacity(bytes);
}
