//! Links that this shard has dialled: it sends on them.

use super::wire::{
    DIALLED, HELLO_TIMEOUT_MS, KEEP_ALIVE_MS, REMOVED_MS, Wire, is_not_ready, prepare,
};
use crate::cluster::Peers;
use cluster::{Class, HEARTBEAT_TICKS, Hello, LinkError, NodeNumber, Outbound, Refusal, Section};
use env::Random;
use mio::{Interest, Token, net::TcpStream};
use model::Monotonic;
use node::{PeerEvent, Stamp, ToPeer};
use std::fmt;
use std::io::{self, Read as _, Write as _};

/// How long a node waits before it dials again, at first and at last.
const BACKOFF_MS_MIN: u64 = 100;
const BACKOFF_MS_MAX: u64 = 500;

/// Ticks until what may wait goes out by itself. Leaders beat in every second one, so it mostly goes with their heartbeats.
const WAIT_TICKS_MAX: u32 = HEARTBEAT_TICKS;

/// The classes of a node's links, each at its place.
const CLASSES: [Class; 2] = [Class::Raft, Class::Bulk];

/// The links to all other members.
#[derive(Debug)]
pub(super) struct Dialled {
    /// Members that there are or were: a place is that of one node.
    ways: Vec<Way>,
    has_event: bool,
}

/// The two links to one node. They come up and are lost together: only the sections of one link have an order.
#[derive(Debug)]
struct Way {
    node: NodeNumber,
    state: State,
    backoff_ms: u64,
    /// The node was removed.
    ends_at: Option<Monotonic>,
    /// By class.
    events: [bool; 2],
    flush: Flush,
}

/// Whether what was said to a node goes out at the end of this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    Now,
    /// All that there is may wait; so many ticks ago something was said.
    Later {
        ticks: u32,
    },
}

#[derive(Debug)]
enum State {
    Waiting {
        until: Monotonic,
    },
    Open(Box<[Open; 2]>),
    /// The node is no member any more.
    Gone,
}

#[derive(Debug)]
struct Open {
    socket: TcpStream,
    end: Outbound,
    since: Monotonic,
    sent_at: Monotonic,
    /// The socket takes nothing until it says so.
    is_full: bool,
}

impl Dialled {
    pub(super) fn new(peers: &Peers, now: Monotonic) -> Self {
        let mut dialled = Self { ways: Vec::new(), has_event: false };
        dialled.add(&peers.others(), now);
        dialled
    }

    fn add(&mut self, nodes: &[NodeNumber], now: Monotonic) {
        for node in nodes {
            if self.ways.iter().all(|way| way.node != *node) {
                let (state, backoff_ms) = (State::Waiting { until: now }, BACKOFF_MS_MIN);
                let (events, flush) = ([false; 2], Flush::Now);
                self.ways.push(Way {
                    node: *node,
                    state,
                    backoff_ms,
                    ends_at: None,
                    events,
                    flush,
                });
            }
        }
    }

    /// Members have come or gone.
    pub(super) fn renew(&mut self, wire: &Wire, now: Monotonic) {
        let nodes = wire.peers.others();
        for way in self.ways.iter_mut().filter(|way| !nodes.contains(&way.node)) {
            way.end_removed(now);
        }
        self.add(&nodes, now);
    }

    pub(super) fn note_event(&mut self, place: usize) -> bool {
        if let Some(way) = self.ways.get_mut(place / CLASSES.len()) {
            way.events[place % CLASSES.len()] = true;
            self.has_event = true;
        }
        true
    }

    pub(super) fn is_behind(&self) -> bool {
        self.has_event
    }

    pub(super) fn run(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        if !std::mem::take(&mut self.has_event) {
            return;
        }
        for way in &mut self.ways {
            let events = std::mem::take(&mut way.events);
            for place in (0..CLASSES.len()).filter(|place| events[*place]) {
                way.handle_event(place, wire, now, heard);
            }
        }
    }

    /// Dials, keeps links alive, and gives up what takes too long.
    pub(super) fn tick(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        for (place, way) in self.ways.iter_mut().enumerate() {
            way.tick(place, wire, now, heard);
        }
    }

    pub(super) fn push(
        &mut self,
        wire: &mut Wire,
        ToPeer { to, section }: ToPeer,
        (now, heard): (Stamp, &mut Vec<PeerEvent>),
    ) {
        let Some(way) = self.ways.iter_mut().find(|way| way.node == to) else { return };
        if !way.is_up() {
            return;
        }
        let State::Open(open) = &mut way.state else { return };
        if !section.may_wait() {
            way.flush = Flush::Now;
        }
        let place = CLASSES.iter().position(|class| *class == section.class());
        if let Err(error) = open[place.unwrap_or(0)].end.push(section) {
            way.lose(wire, now, heard, error.to_string());
        }
    }

    #[cfg(test)]
    pub(super) fn has_unsent(&self) -> bool {
        self.ways.iter().any(Way::has_unsent)
    }

    pub(super) fn flush(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        for way in self.ways.iter_mut().filter(|way| way.flush == Flush::Now) {
            way.flush(wire, now, heard);
        }
    }
}

/// Whether the node that has answered is the one that was dialled. It knows the secret, and may be another one, or an old
/// copy of its disk, all the same.
fn check(wanted: NodeNumber, hello: &Hello, peers: &Peers) -> Result<(), Refusal> {
    match hello.number {
        Some(found) if found != wanted => Err(Refusal::OtherNode { found, wanted }),
        _ => peers.check(hello),
    }
}

impl Way {
    /// Whether frames can be sent.
    fn is_up(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.iter().all(|it| it.end.peer().is_some()))
    }

    fn has_unsent(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.iter().any(|it| it.end.has_unsent()))
    }

    /// The node was removed. If that can be said to it, its links stay up until it ends them, or for a while.
    fn end_removed(&mut self, now: Monotonic) {
        if self.ends_at.is_some() {
            return;
        }
        let removed = Section::Removed { number: self.node };
        let is_up = self.is_up();
        let has_said = match &mut self.state {
            State::Open(open) if is_up => open[0].end.push(removed).is_ok(),
            _ => false,
        };
        self.flush = Flush::Now;
        self.ends_at = Some(if has_said { now.plus_ms(REMOVED_MS) } else { now });
    }

    fn tick(&mut self, place: usize, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        let is_gone = matches!(self.state, State::Gone);
        if !is_gone && self.ends_at.is_some_and(|at| now.monotonic >= at) {
            self.lose(wire, now, heard, "it is no member any more".to_owned());
            self.state = State::Gone;
        }
        let is_up = self.is_up();
        match &mut self.state {
            State::Waiting { until } if now.monotonic >= *until => self.dial(place, wire, now),
            State::Waiting { .. } | State::Gone => {}
            State::Open(open) if !is_up => {
                if now.monotonic.ms_since(open[0].since) > HELLO_TIMEOUT_MS {
                    self.lose(wire, now, heard, "it does not answer".to_owned());
                }
            }
            State::Open(open) => {
                for open in open.iter_mut() {
                    if now.monotonic.ms_since(open.sent_at) > KEEP_ALIVE_MS {
                        open.end.keep_alive(now.wall);
                        self.flush = Flush::Now;
                    }
                }
                self.count_tick();
            }
        }
    }

    /// What waits has waited for one tick more.
    fn count_tick(&mut self) {
        let has_unsent = self.has_unsent();
        if let Flush::Later { ticks } = &mut self.flush {
            *ticks += u32::from(has_unsent);
            if *ticks >= WAIT_TICKS_MAX {
                self.flush = Flush::Now;
            }
        }
    }

    fn dial(&mut self, place: usize, wire: &mut Wire, now: Stamp) {
        let Some(address) = wire.peers.address(self.node) else {
            let why = "its name is not known to any name server that this node asks".to_owned();
            return self.wait(wire, now, (false, why));
        };
        let mut open = |at: usize| {
            let mut socket = TcpStream::connect(address)?;
            prepare(&socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let token = Token(DIALLED + place * CLASSES.len() + at);
            wire.registry.register(&mut socket, token, interest)?;
            let hello = wire.peers.hello(wire.shard, CLASSES[at], &mut wire.random);
            let end = Outbound::new(hello, wire.peers.secret());
            let (since, sent_at) = (now.monotonic, now.monotonic);
            Ok::<_, std::io::Error>(Open { socket, end, since, sent_at, is_full: true })
        };
        match open(0).and_then(|raft| Ok([raft, open(1)?])) {
            Ok(both) => self.state = State::Open(Box::new(both)),
            Err(error) => self.wait(wire, now, (false, format!("it cannot be dialled: {error}"))),
        }
    }

    fn handle_event(
        &mut self,
        place: usize,
        wire: &mut Wire,
        now: Stamp,
        heard: &mut Vec<PeerEvent>,
    ) {
        let was_up = self.is_up();
        let State::Open(open) = &mut self.state else { return };
        let open = &mut open[place];
        if let Ok(Some(error)) = open.socket.take_error() {
            return self.lose(wire, now, heard, Lost::Unreachable(error).to_string());
        }
        open.is_full = false;
        let (peers, wanted) = (&wire.peers, self.node);
        let check = |hello: &Hello| check(wanted, hello, peers);
        match open.receive(&mut wire.buffer, &check) {
            Ok(None) => {}
            Ok(Some(hello)) if !was_up && self.is_up() => {
                self.backoff_ms = BACKOFF_MS_MIN;
                wire.peers.note_sending(&hello);
                let (node, opening) = (self.node, hello.epoch);
                tracing::info!(%node, "the links to a node are up");
                heard.push(PeerEvent::Up { node, opening });
            }
            Ok(Some(_)) => {}
            Err(lost) => {
                if let Lost::Refused(LinkError::Refused(Refusal::Removed { number })) = lost {
                    wire.peers.note_removed(number);
                }
                return self.lose(wire, now, heard, lost.to_string());
            }
        }
        self.flush(wire, now, heard);
    }

    fn flush(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        self.flush = Flush::Later { ticks: 0 };
        let State::Open(open) = &mut self.state else { return };
        let failed = open.iter_mut().find_map(|open| open.send(now).err());
        if let Some(lost) = failed {
            self.lose(wire, now, heard, lost.to_string());
        }
    }

    /// The links are over, both of them.
    fn lose(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>, why: String) {
        let was_up = self.is_up();
        let State::Open(open) = &mut self.state else { return };
        for open in open.iter_mut() {
            let _ = wire.registry.deregister(&mut open.socket);
        }
        if was_up {
            heard.push(PeerEvent::Down { node: self.node });
        }
        self.wait(wire, now, (was_up, why));
    }

    /// Waits before the next try, each time longer.
    fn wait(&mut self, wire: &mut Wire, now: Stamp, (was_up, why): (bool, String)) {
        let node = self.node;
        if wire.peers.note_trouble(node, was_up, why.clone()) {
            tracing::warn!(%node, why, "there is no link to a node; the same is not logged again");
        }
        if self.ends_at.is_some() {
            self.state = State::Gone;
            return;
        }
        let jitter_ms = wire.random.next_u64() % (self.backoff_ms / 4);
        self.state = State::Waiting { until: now.monotonic.plus_ms(self.backoff_ms + jitter_ms) };
        self.backoff_ms = (2 * self.backoff_ms).min(BACKOFF_MS_MAX);
    }
}

/// Why the socket of a link is of no use any more.
enum Lost {
    Refused(LinkError),
    Closed,
    Unreachable(io::Error),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Closed => f.write_str("it has closed the link"),
            Self::Unreachable(error) => write!(f, "it cannot be reached: {error}"),
        }
    }
}

impl Open {
    /// Reads what the peer says before it welcomes this node; its hello, if it has done so just now.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        check: &dyn Fn(&Hello) -> Result<(), Refusal>,
    ) -> Result<Option<Hello>, Lost> {
        let mut up = None;
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err(Lost::Closed),
                Ok(count) => match self.end.handle(&buffer[..count], check) {
                    Ok(Some(hello)) => up = Some(hello),
                    Ok(None) => {}
                    Err(error) => return Err(Lost::Refused(error)),
                },
                Err(error) if is_not_ready(&error) => return Ok(up),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Unreachable(error)),
            }
        }
    }

    /// Sends what the socket takes.
    fn send(&mut self, now: Stamp) -> Result<(), Lost> {
        while !self.is_full {
            let bytes = self.end.unsent(now.wall);
            if bytes.is_empty() {
                return Ok(());
            }
            match self.socket.write(bytes) {
                Ok(count) => {
                    self.end.sent(count);
                    self.sent_at = now.monotonic;
                }
                Err(error) if is_not_ready(&error) => self.is_full = true,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Unreachable(error)),
            }
        }
        Ok(())
    }
}
