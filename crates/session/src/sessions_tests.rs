//! Each test breaks one invariant of a session, and the check names it.

use crate::{
    Admission, ConnId, Options, Sessions,
    connection::{Pending, State},
};
use model::{ByteOffset, GroupId, Monotonic, ShardId, StreamId, StreamKey, Timestamp};
use node::Stamp;
use std::sync::Arc;

/// A session with one connection.
fn sessions() -> (Sessions, ConnId) {
    let now = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };
    let (shard, admission) = (ShardId::new(0), Arc::new(Admission::default()));
    let mut sessions = Sessions::new(shard, Options::default(), admission, (now, 1));
    let id = sessions.open(crate::transport::Peer::default());
    sessions.check();
    (sessions, id)
}

#[test]
#[should_panic(expected = "compressors at work are counted")]
fn a_compressor_that_nobody_uses_is_found() {
    let (mut sessions, _) = sessions();
    sessions.gzip_count = 1;
    sessions.check();
}

#[test]
#[should_panic(expected = "continues in a later turn")]
fn a_connection_that_no_turn_continues_is_found() {
    let (mut sessions, id) = sessions();
    sessions.connections.get_mut(id).unwrap().yielded = true;
    sessions.check();
}

#[test]
#[should_panic(expected = "queued bytes are counted")]
fn an_answer_that_is_not_counted_is_found() {
    let (mut sessions, id) = sessions();
    sessions.connections.get_mut(id).unwrap().queued_bytes = 1;
    sessions.check();
}

#[test]
#[should_panic(expected = "is live where it says")]
fn a_live_reader_of_nothing_is_found() {
    let (mut sessions, id) = sessions();
    let key = StreamKey { group: GroupId::new(0), stream: StreamId::new(1) };
    sessions.live.add_poll(key, id, ByteOffset::ZERO);
    sessions.check();
}

#[test]
#[should_panic(expected = "a reader waits twice for its turn")]
fn a_reader_that_waits_twice_is_found() {
    let (mut sessions, id) = sessions();
    sessions.connections.get_mut(id).unwrap().is_queued = true;
    sessions.fair.queue(id);
    sessions.check();
    sessions.fair.queue(id);
    sessions.check();
}

#[test]
#[should_panic(expected = "kept requests have their turn")]
fn a_request_ahead_that_nothing_will_answer_is_found() {
    let (mut sessions, id) = sessions();
    sessions.connections.get_mut(id).unwrap().ask_ahead(1);
    sessions.check();
}

#[test]
#[should_panic(expected = "requests ahead are answered in the order of their numbers")]
fn requests_ahead_that_changed_places_are_found() {
    let (mut sessions, id) = sessions();
    let connection = sessions.connections.get_mut(id).unwrap();
    connection.state = State::Waiting(Pending::Head);
    connection.ask_ahead(2);
    connection.ask_ahead(1);
    sessions.check();
}
