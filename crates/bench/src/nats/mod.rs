//! NATS JetStream in its own text protocol, on the sockets of [`crate::load`].
//!
//! A stream of the benchmarks is a subject of one JetStream stream, as its users do with many keys.
//! An append is one `PUB` for each payload, each with a subject to reply to: all are acknowledged one by
//! one, and the append is when all are. They are not one transaction. The reply to the last payload has
//! a subject of its own, so that the end of an append's answers is known without counting them.
//!
//! Refused: the crate `async-nats`, because systems are compared by one load generator, whose own cost
//! is the same for all. What is needed are five verbs.
//!
//! Source: the client protocol's reference and JetStream's wire API in the NATS documentation.

mod admin;
mod frame;

pub(crate) use admin::{make_stream, read_subject};

use crate::api::Batch;
use crate::failure::{Failure, Outcome};
use crate::load::answer::Answer;
use crate::load::socket::Socket;
use frame::Frame;
use std::io::Write;

/// What every subject of the benchmarks begins with; also the name of the JetStream stream.
const STREAM: &str = "bench";

/// Last parts of the subjects that acknowledgements go to.
const MORE: &str = "m";
const LAST: &str = "l";

/// The status of an append that was refused without a code of its own.
const REFUSED: u16 = 500;

/// What a connection sends first; `connection` distinguishes its inbox from others.
pub(crate) fn greeting(connection: usize) -> Vec<u8> {
    format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"0\",\
         \"protocol\":1,\"headers\":true,\"no_responders\":true}}\r\nSUB _B.{connection}.* 1\r\n"
    )
    .into_bytes()
}

/// Appends payloads to the subject of `stream`.
pub(crate) fn put_append(out: &mut Vec<u8>, connection: usize, stream: &str, batch: Batch<'_>) {
    let count = batch.payloads().count();
    for (at, payload) in batch.payloads().enumerate() {
        let reply = if at + 1 == count { LAST } else { MORE };
        let length = payload.len();
        let _ = write!(out, "PUB {STREAM}.{stream} _B.{connection}.{reply} {length}\r\n");
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }
}

/// Takes the answers to one append, if they are all there.
pub(crate) fn take_answer(socket: &mut Socket) -> Outcome<Option<Answer>> {
    let mut refused = None;
    let mut used = 0;
    while let Some((frame, length)) = Frame::parse(&socket.input()[used..])? {
        used += length;
        match frame {
            Frame::Ping => socket.output.extend_from_slice(b"PONG\r\n"),
            Frame::Other => {}
            Frame::Error(text) => return Err(Failure::new(format!("NATS: {text}"))),
            Frame::Message { subject, payload, .. } => {
                refused = refused.or(refusal(payload));
                if subject.rsplit('.').next() == Some(LAST) {
                    socket.consume(used);
                    let status = refused.unwrap_or_default();
                    return Ok(Some(Answer { status, is_success: refused.is_none() }));
                }
            }
        }
    }
    Ok(None)
}

/// Why an append was refused, if it was: the code in the answer's `error`.
fn refusal(payload: &[u8]) -> Option<u16> {
    let answer = serde_json::from_slice::<serde_json::Value>(payload).unwrap_or_default();
    let error = answer.get("error");
    if error.is_none() && answer["seq"].is_u64() {
        return None;
    }
    let code = error.and_then(|error| error["code"].as_u64());
    Some(code.and_then(|code| u16::try_from(code).ok()).unwrap_or(REFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_asks_for_an_answer_to_each_payload() {
        let mut out = Vec::new();
        put_append(&mut out, 7, "a-1", Batch { bytes: b"xxyy", each: 2 });
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "PUB bench.a-1 _B.7.m 2\r\nxx\r\nPUB bench.a-1 _B.7.l 2\r\nyy\r\n");
        let greeting = String::from_utf8(greeting(7)).unwrap();
        assert!(greeting.ends_with("\r\nSUB _B.7.* 1\r\n"), "{greeting}");
    }

    #[test]
    fn an_append_is_answered_when_all_its_payloads_are() {
        let mut socket = Socket::silent().unwrap();
        let first = "INFO {}\r\nMSG _B.7.m 1 9\r\n{\"seq\":1}\r\n";
        let last = "MSG _B.7.l 1 9\r\n{\"seq\":2}\r\n";
        socket.receive(first.as_bytes());
        assert_eq!(take_answer(&mut socket).unwrap(), None);
        socket.receive(last.as_bytes());
        let answer = take_answer(&mut socket).unwrap();
        assert_eq!(answer, Some(Answer { status: 0, is_success: true }));
        assert!(socket.input().is_empty());
    }

    #[test]
    fn one_refusal_refuses_the_append() {
        let mut socket = Socket::silent().unwrap();
        let refused = "{\"error\":{\"code\":400}}";
        let first = format!("MSG _B.7.m 1 {}\r\n{refused}\r\n", refused.len());
        socket.receive(first.as_bytes());
        socket.receive(b"PING\r\nMSG _B.7.l 1 9\r\n{\"seq\":2}\r\n");
        let answer = take_answer(&mut socket).unwrap();
        assert_eq!(answer, Some(Answer { status: 400, is_success: false }));
        assert_eq!(socket.output, b"PONG\r\n");
        assert_eq!(refusal(b""), Some(REFUSED));
    }
}
