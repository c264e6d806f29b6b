//! Where clients come in: one address for each node.
//!
//! # How
//! A scenario says that it will harm a node before it does: [`Doors::fall`]. A connection to it may break from then on, and its
//! client continues at the next door that is open. A node that starts again may have another address, and its
//! door is open again: [`Doors::stand`]. A connection that breaks at a door that was open all the time
//! contradicts.

use crate::http::Connection;
use crate::ledger::lock;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

/// Where clients come in.
#[derive(Debug)]
pub(crate) struct Doors(Vec<Mutex<Door>>);

#[derive(Debug, Clone, Copy)]
struct Door {
    address: SocketAddr,
    has_fallen: bool,
    /// How often it fell.
    falls: u64,
}

/// The door of a client, and how often that had fallen when its connection was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) door: usize,
    falls: u64,
}

impl Doors {
    /// The doors of nodes that all run.
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self::of(addresses.into_iter().map(Some))
    }

    /// A door for each node; that of a node which does not run yet, or any more, has fallen.
    pub(crate) fn of(addresses: impl IntoIterator<Item = Option<SocketAddr>>) -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let door = |address: Option<SocketAddr>| {
            let has_fallen = address.is_none();
            let address = address.unwrap_or(nowhere);
            Mutex::new(Door { address, has_fallen, falls: u64::from(has_fallen) })
        };
        Self(addresses.into_iter().map(door).collect())
    }

    /// Whether there are several, so that a request without an answer may still arrive.
    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// The node is about to be harmed.
    pub(crate) fn fall(&self, door: usize) {
        let mut door = lock(&self.0[door]);
        door.has_fallen = true;
        door.falls += 1;
    }

    /// All nodes are about to be harmed.
    pub(crate) fn fall_all(&self) {
        (0..self.0.len()).for_each(|door| self.fall(door));
    }

    /// The node runs and is reached there.
    pub(crate) fn stand(&self, door: usize, address: SocketAddr) {
        let mut door = lock(&self.0[door]);
        door.has_fallen = false;
        door.address = address;
    }

    /// Whether some node was harmed and does not run again.
    pub(crate) fn has_fallen_one(&self) -> bool {
        self.0.iter().any(|door| lock(door).has_fallen)
    }

    /// Whether the door has fallen at any time.
    pub(crate) fn has_ever_fallen(&self, door: usize) -> bool {
        lock(&self.0[door]).falls > 0
    }

    /// The place of the client with this number, spread over all doors that are open; over all of them if none is.
    pub(crate) fn place(&self, client: u32) -> Place {
        let all = 0..self.0.len();
        let mut open: Vec<usize> =
            all.clone().filter(|door| !lock(&self.0[*door]).has_fallen).collect();
        if open.is_empty() {
            open = all.collect();
        }
        self.at(open[client as usize % open.len()])
    }

    fn at(&self, door: usize) -> Place {
        Place { door, falls: lock(&self.0[door]).falls }
    }

    /// Opens a connection, and notes in `place` when.
    pub(crate) fn open(&self, place: &mut Place) -> io::Result<Connection> {
        let Door { address, falls, .. } = *lock(&self.0[place.door]);
        place.falls = falls;
        Connection::open(address)
    }

    /// Where a client continues whose connection broke; nothing if no door is open.
    ///
    /// # Errors
    /// If its door stood all the time.
    pub(crate) fn next(&self, place: Place) -> Result<Option<Place>, ()> {
        let door = *lock(&self.0[place.door]);
        if !door.has_fallen && door.falls == place.falls {
            return Err(());
        }
        let count = self.0.len();
        let others = (1..=count).map(|step| (place.door + step) % count);
        let standing = others.into_iter().find(|door| !lock(&self.0[*door]).has_fallen);
        Ok(standing.map(|door| self.at(door)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doors(count: u16) -> Doors {
        Doors::new((1..=count).map(|port| SocketAddr::from(([127, 0, 0, 1], port))))
    }

    #[test]
    fn a_client_goes_on_where_a_node_runs() {
        let doors = doors(3);
        let place = doors.place(4);
        assert_eq!((place.door, doors.next(place).is_err()), (1, true));
        doors.fall(1);
        assert_eq!(doors.next(place).unwrap().unwrap().door, 2);
        doors.fall(2);
        assert_eq!(doors.next(place).unwrap().unwrap().door, 0);
        doors.fall_all();
        assert!(doors.next(place).unwrap().is_none());
    }

    #[test]
    fn nobody_begins_at_a_node_that_does_not_run() {
        let doors = Doors::of([None, Some(SocketAddr::from(([127, 0, 0, 1], 1))), None]);
        assert!((0..6).all(|client| doors.place(client).door == 1));
        doors.stand(2, SocketAddr::from(([127, 0, 0, 1], 3)));
        assert_eq!((doors.place(0).door, doors.place(1).door), (1, 2));
        doors.fall_all();
        assert_eq!(doors.place(5).door, 2);
    }

    #[test]
    fn a_break_is_excused_if_the_node_fell_since_the_connection_was_opened() {
        let doors = doors(2);
        let mut place = doors.place(0);
        doors.fall(0);
        doors.stand(0, SocketAddr::from(([127, 0, 0, 1], 9)));
        assert_eq!(doors.next(place).unwrap().unwrap().door, 1);
        let _ = doors.open(&mut place);
        assert!(doors.next(place).is_err());
        assert!(doors.has_ever_fallen(0) && !doors.has_fallen_one());
    }
}
