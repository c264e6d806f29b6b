//! Kafka in its own binary protocol, on the sockets of [`crate::load`].
//!
//! A set of streams is a topic, a stream a partition of it. An append is one produce request with one
//! record batch, `acks=all`, and is acknowledged or refused whole. There is no compression and no idempotent
//! producer.
//!
//! Refused: a client crate, because systems are compared by one load generator, whose own cost is the
//! same for all. What is needed are three requests, in versions of fixed layout that brokers of
//! release 4 take: produce 7, fetch 4, create topics 2.
//!
//! Source: the Kafka protocol guide, and its page on the message format (record batch, magic 2).

mod admin;
mod records;
mod wire;

pub(crate) use admin::{make_topic, read_partition};

use crate::api::Batch;
use crate::failure::{Failure, Outcome};
use crate::load::answer::Answer;
use crate::load::socket::Socket;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::{Fields, Request};

const PRODUCE: (i16, i16) = (0, 7);

/// All replicas that are in sync, of which there is one.
const ACKS_ALL: i16 = -1;
const TIMEOUT_MS: i32 = 30_000;

/// Appends payloads to the partition of `stream`.
pub(crate) fn put_append(out: &mut Vec<u8>, stream: &str, batch: Batch<'_>) {
    let (topic, partition) = partition_of(stream);
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time_ms = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
    let mut request = Request::start(out, PRODUCE);
    request.null_text();
    request.i16(ACKS_ALL);
    request.i32(TIMEOUT_MS);
    request.i32(1);
    request.text(topic);
    request.i32(1);
    request.i32(partition);
    request.sized(|out| records::put(out, batch, time_ms));
    request.end();
}

/// The topic and the partition of a stream, whose name is `TOPIC-NUMBER`.
fn partition_of(stream: &str) -> (&str, i32) {
    let (topic, number) = stream.rsplit_once('-').expect("names of streams have a number");
    (topic, number.parse().expect("names of streams have a number"))
}

/// Takes the answer to one append, if it is whole.
pub(crate) fn take_answer(socket: &mut Socket) -> Outcome<Option<Answer>> {
    let Some((answer, length)) = wire::whole(socket.input())? else { return Ok(None) };
    let code = error_of(answer).ok_or_else(|| Failure::new("Kafka answered an append in part"))?;
    socket.consume(length);
    Ok(Some(Answer { status: code.unsigned_abs(), is_success: code == 0 }))
}

/// The error of the one partition that was produced to; 0 is none.
fn error_of(answer: &[u8]) -> Option<i16> {
    let mut fields = Fields(answer);
    let _correlation = fields.i32()?;
    let _topics = fields.i32()?;
    fields.text()?;
    let _partitions = fields.i32()?;
    let _partition = fields.i32()?;
    fields.i16()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to an append to partition 3 of topic `a`.
    fn answer(code: i16) -> Vec<u8> {
        let mut body = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 3];
        body.extend(code.to_be_bytes());
        body.extend([0; 28]);
        let length = u32::try_from(body.len()).unwrap();
        [length.to_be_bytes().as_slice(), &body].concat()
    }

    #[test]
    fn a_stream_is_a_partition() {
        assert_eq!(partition_of("a-b-00000012"), ("a-b", 12));
    }

    #[test]
    fn an_append_says_where_it_goes_and_how_long_it_is() {
        let mut out = Vec::new();
        put_append(&mut out, "a-00000003", Batch { bytes: b"xxyy", each: 2 });
        let (request, length) = wire::whole(&out).unwrap().unwrap();
        assert_eq!(length, out.len());
        let mut fields = Fields(request);
        assert_eq!((fields.i16(), fields.i16()), (Some(0), Some(7)));
        fields.i32();
        fields.text();
        assert_eq!((fields.i16(), fields.i16()), (Some(-1), Some(ACKS_ALL)));
        assert_eq!((fields.i32(), fields.i32()), (Some(TIMEOUT_MS), Some(1)));
        assert_eq!((fields.text(), fields.i32(), fields.i32()), (Some("a"), Some(1), Some(3)));
        let stored = fields.sized().unwrap();
        let mut found = Vec::new();
        assert!(fields.0.is_empty());
        assert_eq!(records::read(stored, 0, &mut found).unwrap(), 2);
        assert_eq!(found, b"xxyy");
    }

    #[test]
    fn an_answer_is_taken_when_it_is_whole() {
        let mut socket = Socket::silent().unwrap();
        let both = [answer(0), answer(7)].concat();
        let half = both.len() / 2 - 1;
        socket.receive(&both[..half]);
        assert_eq!(take_answer(&mut socket).unwrap(), None);
        socket.receive(&both[half..]);
        let mut take = || take_answer(&mut socket).unwrap();
        assert_eq!(take(), Some(Answer { status: 0, is_success: true }));
        assert_eq!(take(), Some(Answer { status: 7, is_success: false }));
        assert_eq!(take(), None);
    }
}
