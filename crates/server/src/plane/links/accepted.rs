//! Links that other nodes have dialled: this shard receives on them.

use super::wire::{
    ACCEPTED, HELLO_TIMEOUT_MS, JOIN_MS, REMOVED_MS, SILENCE_MS, STRANGERS_MAX, TURN_BYTES, Wire,
    is_not_ready, prepare,
};
use cluster::{
    Class, Hello, Inbound, JoinAnswer, JoinQuestion, LinkError, NodeNumber, Refusal, Section,
};
use mio::{Interest, Registry, Token, net::TcpListener, net::TcpStream};
use model::Monotonic;
use node::PeerEvent;
use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;

/// Links accepted in one turn at most.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// How long nobody is accepted after the system has refused one.
const PAUSE_MS: u64 = 100;

/// Refusals that are logged, each once. More would be a stranger who wants to fill the log.
const REFUSALS_LOGGED_MAX: usize = 64;

/// Links by slot, and the listener that they come from.
#[derive(Debug)]
pub(super) struct Accepted {
    listener: TcpListener,
    is_pending: bool,
    again: Monotonic,
    slots: Vec<Option<Link>>,
    /// Slots that may have something to read.
    ready: Vec<usize>,
    /// Links that were ever accepted.
    count: u64,
    /// What nodes ask that want to join, and the number of each one's link.
    questions: Vec<(u64, JoinQuestion)>,
    /// Refusals that were logged.
    refused: BTreeSet<(IpAddr, String)>,
}

#[derive(Debug)]
struct Link {
    number: u64,
    socket: TcpStream,
    address: IpAddr,
    /// What is left to send of an answer.
    unsent: Vec<u8>,
    end: Inbound,
    began: Monotonic,
    heard_at: Monotonic,
    /// Its node was removed.
    ends_at: Option<Monotonic>,
    is_ready: bool,
}

/// Why a link is over.
#[derive(Debug)]
enum End {
    /// The peer has closed it, or its machine has.
    Closed,
    /// This node does not want it.
    Refused(LinkError),
}

impl Accepted {
    pub(super) fn new(mut listener: TcpListener, registry: &Registry) -> io::Result<Self> {
        registry.register(&mut listener, Token(ACCEPTED - 1), Interest::READABLE)?;
        let (slots, ready, count, questions, refused) = Default::default();
        let again = Monotonic::new(0);
        Ok(Self { listener, is_pending: true, again, slots, ready, count, questions, refused })
    }

    /// Takes up an event of a slot, or of the listener.
    pub(super) fn note_event(&mut self, slot: Option<usize>) -> bool {
        let Some(slot) = slot else {
            self.is_pending = true;
            return true;
        };
        if let Some(link) = self.slots.get_mut(slot).and_then(Option::as_mut)
            && !link.is_ready
        {
            link.is_ready = true;
            self.ready.push(slot);
        }
        true
    }

    pub(super) fn is_behind(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn run(&mut self, wire: &mut Wire, now: Monotonic, heard: &mut Vec<PeerEvent>) {
        if self.is_pending && now >= self.again {
            self.accept(wire, now);
        }
        for slot in std::mem::take(&mut self.ready) {
            match self.receive(slot, wire, now, heard) {
                Ok(true) => self.ready.push(slot),
                Ok(false) => {}
                Err(end) => self.close(slot, wire, &end),
            }
        }
    }

    fn accept(&mut self, wire: &mut Wire, now: Monotonic) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.listener.accept() {
                Ok((socket, address)) => self.add(socket, address.ip(), wire, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_pending = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept links of nodes, trying again in 100 ms");
                    self.again = now.plus_ms(PAUSE_MS);
                    return;
                }
            }
        }
    }

    fn add(&mut self, mut socket: TcpStream, address: IpAddr, wire: &mut Wire, now: Monotonic) {
        self.make_room(wire);
        prepare(&socket);
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.slots.len());
        let token = Token(ACCEPTED + slot);
        if wire.registry.register(&mut socket, token, Interest::READABLE).is_err() {
            return;
        }
        let hello = wire.peers.hello(wire.shard, Class::Raft, &mut wire.random);
        let end = Inbound::new(hello, wire.peers.secret());
        self.count += 1;
        // What has come already makes no event.
        let link = Link {
            number: self.count,
            socket,
            address,
            unsent: Vec::new(),
            end,
            began: now,
            heard_at: now,
            ends_at: None,
            is_ready: true,
        };
        self.ready.push(slot);
        if slot == self.slots.len() {
            self.slots.push(Some(link));
        } else {
            self.slots[slot] = Some(link);
        }
    }

    /// The oldest of too many strangers makes room.
    fn make_room(&mut self, wire: &mut Wire) {
        let strangers = self.slots.iter().enumerate().filter_map(|(slot, link)| {
            link.as_ref().filter(|link| link.end.peer().is_none()).map(|link| (link.began, slot))
        });
        let strangers: Vec<(Monotonic, usize)> = strangers.collect();
        if strangers.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = strangers.into_iter().min()
        {
            self.close(oldest, wire, &End::Closed);
        }
    }

    /// Reads what there is, up to what a turn may. Whether there may be more.
    fn receive(
        &mut self,
        slot: usize,
        wire: &mut Wire,
        now: Monotonic,
        heard: &mut Vec<PeerEvent>,
    ) -> Result<bool, End> {
        let mut read_bytes = 0;
        while read_bytes < TURN_BYTES {
            let Some(link) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
                return Ok(false);
            };
            let count = match link.socket.read(&mut wire.buffer) {
                Ok(0) => return Err(End::Closed),
                Ok(count) => count,
                Err(error) if is_not_ready(&error) => {
                    link.is_ready = false;
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(End::Closed),
            };
            read_bytes += count;
            link.heard_at = now;
            let peers = &wire.peers;
            let step = link.end.handle(&wire.buffer[..count], &|hello| peers.check(hello));
            // A new socket takes the few bytes of an answer, or is of no use.
            if !step.send.is_empty() && link.socket.write_all(&step.send).is_err() {
                return Err(End::Closed);
            }
            let number = link.number;
            self.questions.extend(step.question.map(|question| (number, question)));
            if let Some(hello) = step.up.filter(|hello| hello.number.is_some()) {
                wire.peers.note_receiving(&hello);
                self.end_older(slot, &hello, wire);
            }
            if let Some(from) = self.peer(slot) {
                for section in step.sections {
                    match section {
                        Section::Removed { number } => wire.peers.note_removed(number),
                        section => heard.push(PeerEvent::Section { from, section }),
                    }
                }
            }
            if let Some(error) = step.end {
                return Err(End::Refused(error));
            }
        }
        Ok(true)
    }

    fn peer(&self, slot: usize) -> Option<NodeNumber> {
        self.slots.get(slot)?.as_ref()?.end.peer()?.number
    }

    /// What nodes ask that want to join, each with the number of its link.
    pub(super) fn take_questions(&mut self) -> Vec<(u64, JoinQuestion)> {
        std::mem::take(&mut self.questions)
    }

    /// Answers a node that wants to join, if its link is still there.
    pub(super) fn answer(&mut self, number: u64, answer: &JoinAnswer) {
        let mut links = self.slots.iter_mut().flatten();
        if let Some(link) = links.find(|link| link.number == number) {
            link.unsent = answer.encode();
            link.flush();
        }
    }

    /// A node that dials again has lost its old link, known here or not.
    fn end_older(&mut self, slot: usize, hello: &Hello, wire: &mut Wire) {
        let is_same = |other: &Hello| {
            (other.number, other.shard.0, other.class) == (hello.number, hello.shard.0, hello.class)
        };
        let older = (0..self.slots.len()).find(|other| {
            let link = self.slots[*other].as_ref();
            *other != slot && link.and_then(|link| link.end.peer()).is_some_and(is_same)
        });
        if let Some(older) = older {
            self.close(older, wire, &End::Closed);
        }
    }

    /// Links of nodes that were removed end, at the latest after a while.
    pub(super) fn note_removed(&mut self, wire: &Wire, now: Monotonic) {
        for link in self.slots.iter_mut().flatten() {
            let checked = link.end.peer().map_or(Ok(()), |hello| wire.peers.check(hello));
            if matches!(checked, Err(Refusal::Removed { .. })) {
                link.ends_at.get_or_insert(now.plus_ms(REMOVED_MS));
            }
        }
    }

    /// Ends links of nodes that say nothing or were removed, and of strangers that take too long.
    pub(super) fn end_silent(&mut self, wire: &mut Wire, now: Monotonic) {
        for slot in 0..self.slots.len() {
            let Some(link) = &mut self.slots[slot] else { continue };
            link.flush();
            let is_over = link.ends_at.is_some_and(|at| now >= at);
            let is_late = match link.end.peer() {
                None => now.ms_since(link.began) > HELLO_TIMEOUT_MS,
                Some(joiner) if joiner.number.is_none() => now.ms_since(link.began) > JOIN_MS,
                Some(_) => now.ms_since(link.heard_at) > SILENCE_MS,
            };
            if is_over || is_late {
                self.close(slot, wire, &End::Closed);
            }
        }
    }

    fn close(&mut self, slot: usize, wire: &mut Wire, end: &End) {
        let Some(mut link) = self.slots[slot].take() else { return };
        let _ = wire.registry.deregister(&mut link.socket);
        if let Some(hello) = link.end.peer() {
            wire.peers.note_received(hello);
        }
        if let End::Refused(error) = end {
            self.log_refusal(link.address, error);
        }
    }

    fn log_refusal(&mut self, address: IpAddr, error: &LinkError) {
        let why = match error {
            LinkError::Refused(Refusal::NotANode) => {
                "it is no node of a Thalweg cluster".to_owned()
            }
            error => error.to_string(),
        };
        let is_known = self.refused.contains(&(address, why.clone()));
        if is_known || self.refused.len() >= REFUSALS_LOGGED_MAX {
            return;
        }
        tracing::warn!(%address, why, "a link was refused; the same is not logged again");
        self.refused.insert((address, why));
    }
}

impl Link {
    /// Sends what the socket takes. A joiner that takes nothing is closed as one that says nothing.
    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}
