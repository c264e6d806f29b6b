//! The listeners of one shard, and the handshakes in front of those that speak TLS.

use super::{
    handshakes::{Arrived, Handshakes},
    sockets::Sockets,
};
use crate::tls::{Tls, TlsStream};
use mio::{Interest, Registry, Token, net::TcpListener, net::TcpStream};
use model::Monotonic;
use node::Stamp;
use session::Peer;
use std::io;
use std::net::SocketAddr;

/// The token of the first listener; the others have those below.
const LISTEN: usize = usize::MAX - 1;

/// Listeners that one shard may have.
const LISTENERS_MAX: usize = 64;

/// Connections accepted in one turn at most, so that a flood of them does not starve the others.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// How long nobody is accepted after the system or a limit has refused one.
const PAUSE_MS: u64 = 100;

/// The same while all places of handshakes are taken.
const PAUSE_FULL_MS: u64 = 10;

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    /// Whether TLS is spoken there.
    pub(crate) is_tls: bool,
}

#[derive(Debug)]
struct Door {
    listener: Listener,
    /// There may be more connections than were accepted.
    is_pending: bool,
    again: Monotonic,
}

/// A connection that a session can serve.
pub(super) struct Guest {
    pub(super) socket: TcpStream,
    pub(super) tls: Option<TlsStream>,
    pub(super) peer: Peer,
}

/// All ways into one shard.
#[derive(Debug)]
pub(super) struct Doors {
    doors: Vec<Door>,
    pub(super) handshakes: Handshakes,
    /// What new connections with TLS are made with.
    pub(super) tls: Option<Tls>,
}

impl Doors {
    pub(super) fn new(
        listeners: Vec<Listener>,
        handshakes: Handshakes,
        tls: Option<Tls>,
        now: Monotonic,
    ) -> Self {
        let door = |listener| Door { listener, is_pending: false, again: now };
        let doors = listeners.into_iter().map(door).collect();
        Self { doors, handshakes, tls }
    }

    /// Listens; comes before the first turn.
    pub(super) fn listen(&mut self, registry: &Registry) -> io::Result<()> {
        for (number, door) in self.doors.iter_mut().enumerate() {
            let token = Token(LISTEN - number);
            registry.register(&mut door.listener.socket, token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Takes up an event; `false` if its token is none of a door's.
    pub(super) fn note_event(&mut self, token: Token) -> bool {
        if let Some(place) = Handshakes::place_of(token) {
            self.handshakes.note_ready(place);
            return true;
        }
        let is_door = (LISTEN - LISTENERS_MAX + 1..=LISTEN).contains(&token.0);
        if let Some(door) = is_door.then(|| self.doors.get_mut(LISTEN - token.0)).flatten() {
            door.is_pending = true;
        }
        is_door
    }

    /// Whether connections wait that may be accepted now.
    pub(super) fn is_pending(&self, now: Monotonic) -> bool {
        self.doors.iter().any(|door| door.is_pending && now >= door.again)
    }

    /// When connections that wait may be accepted again, if the loop has to wake for it.
    pub(super) fn next_accept(&self) -> Option<Monotonic> {
        self.doors.iter().filter(|door| door.is_pending).map(|door| door.again).min()
    }

    /// Whether there is work without any event.
    pub(super) fn is_behind(&self) -> bool {
        self.handshakes.is_behind()
    }

    /// Accepts connections and continues handshakes, as much as a turn has room for.
    pub(super) fn run(&mut self, sockets: &mut Sockets, now: Stamp, guests: &mut Vec<Guest>) {
        for number in 0..self.doors.len() {
            let door = &self.doors[number];
            if door.is_pending && now.monotonic >= door.again {
                self.accept(number, sockets, now.monotonic, guests);
            }
        }
        if !self.handshakes.is_behind() {
            return;
        }
        let mut arrived = Vec::new();
        let (buffer, registry) = sockets.for_handshakes();
        self.handshakes.run(registry, buffer, now.wall, &mut arrived);
        for Arrived { socket, stream, address } in arrived {
            let names = stream.client_names().into();
            let peer = Peer { address: address.ip(), is_tls: true, names };
            guests.push(Guest { socket, tls: Some(stream), peer });
        }
    }

    fn accept(
        &mut self,
        number: usize,
        sockets: &mut Sockets,
        now: Monotonic,
        guests: &mut Vec<Guest>,
    ) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let is_tls = self.doors[number].listener.is_tls;
            if is_tls && !self.handshakes.has_room(sockets.registry(), now) {
                self.doors[number].again = now.plus_ms(PAUSE_FULL_MS);
                return;
            }
            let door = &mut self.doors[number];
            match door.listener.socket.accept() {
                Ok((socket, address)) if is_tls => self.begin((socket, address), sockets, now),
                Ok((socket, address)) => {
                    let peer = Peer { address: address.ip(), is_tls: false, names: [].into() };
                    guests.push(Guest { socket, tls: None, peer });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    door.is_pending = false;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of descriptors or memory: existing connections are still served.
                    tracing::warn!(%error, "cannot accept connections, trying again in 100 ms");
                    door.again = now.plus_ms(PAUSE_MS);
                    return;
                }
            }
        }
    }

    fn begin(&mut self, client: (TcpStream, SocketAddr), sockets: &mut Sockets, now: Monotonic) {
        let Some(tls) = &self.tls else { return };
        let _ = client.0.set_nodelay(true);
        if let Err(error) = self.handshakes.begin(sockets.registry(), tls, client, now) {
            tracing::warn!(%error, "a connection cannot be waited for");
        }
    }

    /// Ends handshakes that take too long.
    pub(super) fn tick(&mut self, registry: &Registry, now: Monotonic) {
        self.handshakes.end_late(registry, now);
    }

    /// Nobody new.
    pub(super) fn close(&mut self, registry: &Registry) {
        for mut door in self.doors.drain(..) {
            let _ = registry.deregister(&mut door.listener.socket);
        }
        self.handshakes.end_all(registry);
    }
}
