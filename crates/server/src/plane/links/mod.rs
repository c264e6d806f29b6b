//! The links of one shard to other nodes, beside the connections of its clients.
//!
//! # What
//! A shard dials each other member of the cluster twice and sends on these links: one is for what must not wait, and the other one for
//! long transfers. It receives on links that it has accepted. A node that is to join asks on such a link.
//! Bytes become sections and sections bytes in `cluster::{Inbound, Outbound}`. Here are the sockets, who may have one, and
//! when one is given up.
//!
//! # Driving it
//! [`Links::note_event`] for events of its tokens. [`Links::run`] once a turn, then [`Links::take_heard`] for the core.
//! [`Links::push`] for what the core says, and [`Links::flush`] before a sync that runs on this thread and at the end.
//!
//! # Bounds
//! - Sockets whose peer has proved nothing: `STRANGERS_MAX`. One more takes the place of the oldest.
//! - A node has one link for each of its shards and classes: a new one ends the old one.
//! - A turn reads `TURN_BYTES` of a link at most, and what waits to be sent is bounded by `cluster::Outbound`.

mod accepted;
mod dialled;
#[cfg(test)]
mod tests;
mod wire;

use crate::cluster::Peers;
use accepted::Accepted;
use cluster::{JoinAnswer, JoinQuestion};
use dialled::Dialled;
use env::RealRandom;
use mio::{Registry, Token, net::TcpListener};
use model::Monotonic;
use node::{PEER_TICK_MS, PeerEvent, Stamp, ToPeer};
use std::io;
use std::sync::Arc;
use wire::{ACCEPTED, DIALLED, READ_BYTES, Wire};

/// All links of one shard.
#[derive(Debug)]
pub(super) struct Links {
    wire: Wire,
    accepted: Accepted,
    dialled: Dialled,
    heard: Vec<PeerEvent>,
    next_tick: Monotonic,
    /// The last [`Links::run`] was a tick.
    has_ticked: bool,
    /// How often the members had changed when they were looked at.
    changes: u64,
}

impl Links {
    /// # Errors
    /// If the readiness interface refuses the listener.
    pub(super) fn new(
        (peers, listener): (Arc<Peers>, TcpListener),
        registry: &Registry,
        shard: (u16, u16),
        now: Monotonic,
    ) -> io::Result<Self> {
        let accepted = Accepted::new(listener, registry)?;
        let (changes, dialled) = (peers.changes(), Dialled::new(&peers, now));
        let registry = registry.try_clone()?;
        let buffer = vec![0; READ_BYTES];
        let wire = Wire { peers, registry, shard, random: RealRandom, buffer };
        Ok(Self {
            wire,
            accepted,
            dialled,
            heard: Vec::new(),
            next_tick: now,
            has_ticked: false,
            changes,
        })
    }

    /// Takes up an event; `false` if its token is none of a link's.
    pub(super) fn note_event(&mut self, token: Token) -> bool {
        match token.0 {
            place if place < ACCEPTED - 1 => false,
            place if place >= 2 * DIALLED => false,
            place if place >= DIALLED => self.dialled.note_event(place - DIALLED),
            place => self.accepted.note_event(place.checked_sub(ACCEPTED)),
        }
    }

    /// Accepts, dials, receives, and gives up what is silent.
    pub(super) fn run(&mut self, now: Stamp) {
        self.accepted.run(&mut self.wire, now.monotonic, &mut self.heard);
        self.dialled.run(&mut self.wire, now, &mut self.heard);
        self.has_ticked = now.monotonic >= self.next_tick;
        if self.has_ticked {
            // What the loop itself has lost is not made up for. Nor does it count as silence of others: what they have said
            // meanwhile may not be read yet.
            let is_late = now.monotonic.ms_since(self.next_tick) > PEER_TICK_MS;
            self.next_tick = now.monotonic.plus_ms(PEER_TICK_MS);
            if !is_late {
                self.accepted.end_silent(&mut self.wire, now.monotonic);
            }
            let changes = self.wire.peers.changes();
            if std::mem::replace(&mut self.changes, changes) != changes {
                self.accepted.note_removed(&self.wire, now.monotonic);
                self.dialled.renew(&self.wire, now.monotonic);
            }
            self.dialled.tick(&mut self.wire, now, &mut self.heard);
            self.heard.push(PeerEvent::Tick);
        }
    }

    /// All other nodes.
    pub(super) fn peers(&self) -> &Arc<Peers> {
        &self.wire.peers
    }

    /// What came since the last call, in order.
    pub(super) fn take_heard(&mut self) -> Vec<PeerEvent> {
        std::mem::take(&mut self.heard)
    }

    /// What nodes ask that want to join, each with the number of its link.
    pub(super) fn take_questions(&mut self) -> Vec<(u64, JoinQuestion)> {
        self.accepted.take_questions()
    }

    /// Answers a node that wants to join.
    pub(super) fn answer(&mut self, link: u64, answer: &JoinAnswer) {
        self.accepted.answer(link, answer);
    }

    /// Says something to a node. Without a link it is dropped: replicas repeat what matters.
    pub(super) fn push(&mut self, to: ToPeer, now: Stamp) {
        self.dialled.push(&mut self.wire, to, (now, &mut self.heard));
    }

    /// Sends what the sockets take.
    pub(super) fn flush(&mut self, now: Stamp) {
        self.dialled.flush(&mut self.wire, now, &mut self.heard);
    }

    /// Whether the last [`Links::run`] was a tick.
    pub(super) fn has_ticked(&self) -> bool {
        self.has_ticked
    }

    /// When [`Links::run`] has something to do without any event.
    pub(super) fn next_deadline(&self) -> Monotonic {
        self.next_tick
    }

    /// Whether there is something to do at once.
    pub(super) fn is_behind(&self) -> bool {
        !self.heard.is_empty() || self.accepted.is_behind() || self.dialled.is_behind()
    }
}
