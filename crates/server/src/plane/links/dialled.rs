//! Links that this shard has dialled: it sends on them.

use super::wire::{DIALLED, HELLO_TIMEOUT_MS, KEEP_ALIVE_MS, Wire, is_not_ready, prepare};
use crate::cluster::Peers;
use cluster::{Class, Hello, NodeNumber, Outbound, Refusal};
use env::Random;
use mio::{Interest, Token, net::TcpStream};
use model::Monotonic;
use node::{PeerEvent, Stamp, ToPeer};
use std::io::{Read as _, Write as _};

/// How long a node waits before it dials again, at first and at last.
const BACKOFF_MS_MIN: u64 = 100;
const BACKOFF_MS_MAX: u64 = 5000;

/// The links to all other members, one each.
#[derive(Debug)]
pub(super) struct Dialled {
    links: Vec<Link>,
    has_event: bool,
}

#[derive(Debug)]
struct Link {
    node: NodeNumber,
    state: State,
    backoff_ms: u64,
    has_event: bool,
}

#[derive(Debug)]
enum State {
    Waiting { until: Monotonic },
    Open(Box<Open>),
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
    pub(super) fn new(nodes: &[NodeNumber], now: Monotonic) -> Self {
        let link = |node: &NodeNumber| Link {
            node: *node,
            state: State::Waiting { until: now },
            backoff_ms: BACKOFF_MS_MIN,
            has_event: false,
        };
        Self { links: nodes.iter().map(link).collect(), has_event: false }
    }

    pub(super) fn note_event(&mut self, place: usize) -> bool {
        if let Some(link) = self.links.get_mut(place) {
            link.has_event = true;
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
        for link in &mut self.links {
            if std::mem::take(&mut link.has_event) {
                link.handle_event(wire, now, heard);
            }
        }
    }

    /// Dials, keeps links alive, and gives up what takes too long.
    pub(super) fn tick(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        for (place, link) in self.links.iter_mut().enumerate() {
            match &mut link.state {
                State::Waiting { until } if now.monotonic >= *until => link.dial(place, wire, now),
                State::Waiting { .. } => {}
                State::Open(open) if open.end.peer().is_none() => {
                    if now.monotonic.ms_since(open.since) > HELLO_TIMEOUT_MS {
                        link.lose(wire, now, heard, "it does not answer".to_owned());
                    }
                }
                State::Open(open) => {
                    if now.monotonic.ms_since(open.sent_at) > KEEP_ALIVE_MS {
                        open.end.keep_alive(now.wall);
                    }
                    link.flush(wire, now, heard);
                }
            }
        }
    }

    pub(super) fn push(
        &mut self,
        wire: &mut Wire,
        ToPeer { to, section }: ToPeer,
        (now, heard): (Stamp, &mut Vec<PeerEvent>),
    ) {
        let Some(link) = self.links.iter_mut().find(|link| link.node == to) else { return };
        let State::Open(open) = &mut link.state else { return };
        if open.end.peer().is_none() {
            return;
        }
        if let Err(error) = open.end.push(section) {
            link.lose(wire, now, heard, error.to_string());
        }
    }

    pub(super) fn flush(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        for link in &mut self.links {
            link.flush(wire, now, heard);
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

impl Link {
    fn dial(&mut self, place: usize, wire: &mut Wire, now: Stamp) {
        let Some(address) = wire.peers.address(self.node) else {
            let why = "its name is not known to any name server that this node asks".to_owned();
            return self.wait(wire, now, (false, why));
        };
        let opened = TcpStream::connect(address).and_then(|mut socket| {
            prepare(&socket);
            let interest = Interest::READABLE | Interest::WRITABLE;
            wire.registry.register(&mut socket, Token(DIALLED + place), interest)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                let hello = wire.peers.hello(wire.shard, Class::Raft, &mut wire.random);
                let end = Outbound::new(hello, wire.peers.secret());
                let (since, sent_at) = (now.monotonic, now.monotonic);
                let open = Open { socket, end, since, sent_at, is_full: true };
                self.state = State::Open(Box::new(open));
            }
            Err(error) => self.wait(wire, now, (false, format!("it cannot be dialled: {error}"))),
        }
    }

    fn handle_event(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        let State::Open(open) = &mut self.state else { return };
        if let Ok(Some(error)) = open.socket.take_error() {
            return self.lose(wire, now, heard, format!("it cannot be reached: {error}"));
        }
        open.is_full = false;
        let (peers, wanted) = (&wire.peers, self.node);
        let check = |hello: &Hello| check(wanted, hello, peers);
        match open.receive(&mut wire.buffer, &check) {
            Ok(None) => {}
            Ok(Some(hello)) => {
                self.backoff_ms = BACKOFF_MS_MIN;
                wire.peers.note_sending(&hello);
                let (node, opening) = (self.node, hello.epoch);
                tracing::info!(%node, "a link to a node is up");
                heard.push(PeerEvent::Up { node, opening });
            }
            Err(why) => return self.lose(wire, now, heard, why),
        }
        self.flush(wire, now, heard);
    }

    fn flush(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>) {
        let State::Open(open) = &mut self.state else { return };
        if let Err(why) = open.send(now) {
            self.lose(wire, now, heard, why);
        }
    }

    /// The link is over.
    fn lose(&mut self, wire: &mut Wire, now: Stamp, heard: &mut Vec<PeerEvent>, why: String) {
        let State::Open(open) = &mut self.state else { return };
        let _ = wire.registry.deregister(&mut open.socket);
        let was_up = open.end.peer().is_some();
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
        let jitter_ms = wire.random.next_u64() % (self.backoff_ms / 4);
        self.state = State::Waiting { until: now.monotonic.plus_ms(self.backoff_ms + jitter_ms) };
        self.backoff_ms = (2 * self.backoff_ms).min(BACKOFF_MS_MAX);
    }
}

impl Open {
    /// Reads what the peer says before it welcomes this node; its hello, if it has done so just now.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        check: &dyn Fn(&Hello) -> Result<(), Refusal>,
    ) -> Result<Option<Hello>, String> {
        let mut up = None;
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err("it has closed the link".to_owned()),
                Ok(count) => match self.end.handle(&buffer[..count], check) {
                    Ok(Some(hello)) => up = Some(hello),
                    Ok(None) => {}
                    Err(error) => return Err(error.to_string()),
                },
                Err(error) if is_not_ready(&error) => return Ok(up),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("it cannot be reached: {error}")),
            }
        }
    }

    /// Sends what the socket takes.
    fn send(&mut self, now: Stamp) -> Result<(), String> {
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
                Err(error) => return Err(format!("it cannot be reached: {error}")),
            }
        }
        Ok(())
    }
}
