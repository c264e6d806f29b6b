//! Calls of one group's owner to another's, and their answers, as bytes. `docs/format/cluster.md` has the tables.
//!
//! # Invariants
//! - As those of [`super::request_bytes`]: what was encoded decodes to the same, and no bytes make a decoder panic.

use super::request_bytes::{
    decode_reply, encode_reply, put_bytes, put_option, take_bytes, take_option,
};
use crate::{PinHolder, Reply, ShardAnswer, ShardCall};
use bytes::{Buf, BufMut, Bytes};
use model::{ByteOffset, GroupId, StreamId, StreamKey, StreamPath};
use stream::{Command, CommandKind, ContentType, Outcome, PinToken};

const FORK_SOURCE: u8 = 32;
const PROPOSE: u8 = 33;
const HOLDER: u8 = 34;

/// An answer beside those of requests.
const IS_HOLDER: u8 = 7;

/// Appends a call that its group's leader answers.
///
/// # Panics
/// If it is about bytes that a node reads itself, or a command that no other group logs.
pub fn encode_call(call: &ShardCall, out: &mut Vec<u8>) {
    match call {
        ShardCall::ForkSource { path, offset, content_type } => {
            out.put_u8(FORK_SOURCE);
            put_bytes(path.as_str().as_bytes(), out);
            put_option(offset.map(ByteOffset::get), out);
            out.put_u8(u8::from(content_type.is_some()));
            content_type.iter().for_each(|kind| put_bytes(kind.as_str().as_bytes(), out));
        }
        ShardCall::Propose(key, command) => {
            let is_known = matches!(command, Command::Pin(_) | Command::Unpin(_));
            assert!(is_known, "another group logs references and nothing else: {command:?}");
            out.put_u8(PROPOSE);
            out.put_u16_le(key.group.get());
            out.put_u64_le(key.stream.get());
            out.put_u8(command.kind() as u8);
            command.encode(out);
        }
        ShardCall::Holder { path, token } => {
            out.put_u8(HOLDER);
            put_bytes(path.as_str().as_bytes(), out);
            Command::Unpin(*token).encode(out);
        }
        ShardCall::Locate(..) | ShardCall::Find(..) => unreachable!("a node reads bytes itself"),
    }
}

/// Reads a call. `None` if it is not what [`encode_call`] writes.
#[must_use]
pub fn decode_call(mut bytes: Bytes) -> Option<ShardCall> {
    match bytes.try_get_u8().ok()? {
        FORK_SOURCE => {
            let path = take_path(&mut bytes)?;
            let offset = take_option(&mut bytes)?.map(ByteOffset::new);
            let content_type = match bytes.try_get_u8().ok()? {
                0 => None,
                1 => {
                    let text = take_bytes(&mut bytes)?;
                    Some(ContentType::new(std::str::from_utf8(&text).ok()?))
                }
                _ => return None,
            };
            let call = ShardCall::ForkSource { path, offset, content_type };
            bytes.is_empty().then_some(call)
        }
        PROPOSE => {
            let group = GroupId::new(bytes.try_get_u16_le().ok()?);
            let stream = StreamId::new(bytes.try_get_u64_le().ok()?);
            let command = Command::decode(bytes.try_get_u8().ok()?, &bytes).ok()?;
            let is_known = matches!(command, Command::Pin(_) | Command::Unpin(_));
            is_known.then_some(ShardCall::Propose(StreamKey { group, stream }, command))
        }
        HOLDER => {
            let path = take_path(&mut bytes)?;
            Some(ShardCall::Holder { path, token: take_token(&bytes)? })
        }
        _ => None,
    }
}

fn take_path(bytes: &mut Bytes) -> Option<StreamPath> {
    StreamPath::new(std::str::from_utf8(&take_bytes(bytes)?).ok()?).ok()
}

fn take_token(bytes: &[u8]) -> Option<PinToken> {
    match Command::decode(CommandKind::Unpin as u8, bytes).ok()? {
        Command::Unpin(token) => Some(token),
        _ => None,
    }
}

/// Appends the answer to a call.
///
/// # Panics
/// If the call was about bytes that a node reads itself.
pub fn encode_answer(answer: &ShardAnswer, out: &mut Vec<u8>) {
    let reply = match answer {
        ShardAnswer::ForkSource(Ok((key, info))) => Reply::Head(*key, Box::new(info.clone())),
        ShardAnswer::ForkSource(Err(refusal)) => Reply::Outcome(Outcome::Refused(refusal.clone())),
        ShardAnswer::Outcome(outcome) => Reply::Outcome(outcome.clone()),
        ShardAnswer::Failed(failure) => Reply::Failed(failure.clone()),
        ShardAnswer::Holder(holder) => {
            out.put_u8(IS_HOLDER);
            return out.put_u8(*holder as u8);
        }
        ShardAnswer::Located(_) | ShardAnswer::Found(_) => {
            unreachable!("a node reads bytes itself")
        }
    };
    encode_reply(&reply, out);
}

/// Reads the answer to `call`. `None` if it is none that such a call gets.
#[must_use]
pub fn decode_answer(call: &ShardCall, mut bytes: Bytes) -> Option<ShardAnswer> {
    if bytes.first() == Some(&IS_HOLDER) {
        let holders = [PinHolder::Fork, PinHolder::Undecided, PinHolder::Nobody];
        bytes.advance(1);
        let holder = holders.into_iter().find(|holder| bytes[..] == [*holder as u8])?;
        let is_asked = matches!(call, ShardCall::Holder { .. });
        return is_asked.then_some(ShardAnswer::Holder(holder));
    }
    match (call, decode_reply(bytes)?) {
        (_, Reply::Failed(failure)) => Some(ShardAnswer::Failed(failure)),
        (ShardCall::ForkSource { .. }, Reply::Head(key, info)) => {
            Some(ShardAnswer::ForkSource(Ok((key, *info))))
        }
        (ShardCall::ForkSource { .. }, Reply::Outcome(Outcome::Refused(refusal))) => {
            Some(ShardAnswer::ForkSource(Err(refusal)))
        }
        (ShardCall::Propose(..), Reply::Outcome(outcome)) => Some(ShardAnswer::Outcome(outcome)),
        _ => None,
    }
}
