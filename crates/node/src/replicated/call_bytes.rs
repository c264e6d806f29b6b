//! Calls of one group's owner to another's, and their answers, as bytes. `docs/format/cluster.md` has the tables.
//!
//! # Invariants
//! - As those of [`super::request_bytes`]: what was encoded decodes to the same, and no bytes make a decoder panic.

use super::change_bytes::{put_change, put_seen, take_change, take_seen};
use super::field_bytes::{
    put_bytes, put_key, put_option, take_bytes, take_flag, take_key, take_offset, take_option,
};
use super::position_bytes::{
    put_found, put_locate, put_search, take_found, take_locate, take_search,
};
use super::request_bytes::{decode_reply, encode_reply};
use crate::{LocateError, PinHolder, Reply, ShardAnswer, ShardCall};
use bytes::{Buf, BufMut, Bytes};
use cluster::NodeNumber;
use model::{ByteOffset, GroupId, StreamId, StreamPath};
use stream::{Command, CommandKind, ContentType, Outcome, PinToken};

const FORK_SOURCE: u8 = 32;
const PROPOSE: u8 = 33;
const HOLDER: u8 = 34;
const LOCATE: u8 = 35;
const FIND: u8 = 36;
const WATCH: u8 = 37;
const REPLICAS: u8 = 38;

// Answers beside those of requests.
const IS_HOLDER: u8 = 7;
const LOCATED: u8 = 9;
const BEYOND_APPEND: u8 = 10;
const FOUND: u8 = 11;
const WATCHED: u8 = 12;
const IS_REPLICAS: u8 = 13;

/// Appends a call that its group's leader answers.
///
/// # Panics
/// If it is about a command that no other group logs.
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
            put_key(*key, out);
            out.put_u8(command.kind() as u8);
            command.encode(out);
        }
        ShardCall::Holder { path, token } => {
            out.put_u8(HOLDER);
            put_bytes(path.as_str().as_bytes(), out);
            Command::Unpin(*token).encode(out);
        }
        ShardCall::Locate(key, what) => {
            out.put_u8(LOCATE);
            put_key(*key, out);
            put_locate(what, out);
        }
        ShardCall::Find(key, search) => {
            out.put_u8(FIND);
            put_key(*key, out);
            put_search(search, out);
        }
        ShardCall::Replicas(group) => {
            out.put_u8(REPLICAS);
            out.put_u16_le(group.get());
        }
        ShardCall::Watch { group, streams } => {
            out.put_u8(WATCH);
            out.put_u16_le(group.get());
            for (stream, seen) in streams {
                out.put_u64_le(stream.get());
                put_seen(*seen, out);
            }
        }
    }
}

/// Reads a call. `None` if it is not what [`encode_call`] writes.
#[must_use]
pub fn decode_call(mut bytes: Bytes) -> Option<ShardCall> {
    match bytes.try_get_u8().ok()? {
        FORK_SOURCE => {
            let path = take_path(&mut bytes)?;
            let offset = take_option(&mut bytes)?.map(ByteOffset::new);
            let content_type = match take_flag(&mut bytes)? {
                false => None,
                true => {
                    let text = take_bytes(&mut bytes)?;
                    Some(ContentType::new(std::str::from_utf8(&text).ok()?))
                }
            };
            let call = ShardCall::ForkSource { path, offset, content_type };
            bytes.is_empty().then_some(call)
        }
        PROPOSE => {
            let key = take_key(&mut bytes)?;
            let command = Command::decode(bytes.try_get_u8().ok()?, &bytes).ok()?;
            let is_known = matches!(command, Command::Pin(_) | Command::Unpin(_));
            is_known.then_some(ShardCall::Propose(key, command))
        }
        HOLDER => {
            let path = take_path(&mut bytes)?;
            Some(ShardCall::Holder { path, token: take_token(&bytes)? })
        }
        LOCATE => {
            let call = ShardCall::Locate(take_key(&mut bytes)?, take_locate(&mut bytes)?);
            bytes.is_empty().then_some(call)
        }
        FIND => {
            let call = ShardCall::Find(take_key(&mut bytes)?, take_search(&mut bytes)?);
            bytes.is_empty().then_some(call)
        }
        REPLICAS => {
            let group = GroupId::new(bytes.try_get_u16_le().ok()?);
            bytes.is_empty().then_some(ShardCall::Replicas(group))
        }
        WATCH => {
            let group = GroupId::new(bytes.try_get_u16_le().ok()?);
            let mut streams = Vec::new();
            while !bytes.is_empty() {
                let stream = StreamId::new(bytes.try_get_u64_le().ok()?);
                streams.push((stream, take_seen(&mut bytes)?));
            }
            Some(ShardCall::Watch { group, streams })
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
        ShardAnswer::Located(Ok(at)) => {
            out.put_u8(LOCATED);
            return out.put_u64_le(at.get());
        }
        ShardAnswer::Located(Err(LocateError::Beyond { available })) => {
            out.put_u8(BEYOND_APPEND);
            return out.put_u64_le(*available);
        }
        ShardAnswer::Found(Ok(found)) => {
            out.put_u8(FOUND);
            return put_found(*found, out);
        }
        ShardAnswer::Replicas(nodes) => {
            out.put_u8(IS_REPLICAS);
            return nodes.iter().for_each(|node| out.put_u16_le(node.get()));
        }
        ShardAnswer::Watched(changes) => {
            out.put_u8(WATCHED);
            return changes.iter().for_each(|change| put_change(change, out));
        }
        ShardAnswer::Located(Err(LocateError::Failed(failure)))
        | ShardAnswer::Found(Err(failure)) => Reply::Failed(failure.clone()),
    };
    encode_reply(&reply, out);
}

/// Reads the answer to `call`. `None` if it is none that such a call gets.
#[must_use]
pub fn decode_answer(call: &ShardCall, mut bytes: Bytes) -> Option<ShardAnswer> {
    let reply = match *bytes.first()? {
        kind @ (IS_HOLDER | LOCATED | BEYOND_APPEND | FOUND | WATCHED | IS_REPLICAS) => {
            bytes.advance(1);
            let answer = own_answer((call, kind), &mut bytes)?;
            return bytes.is_empty().then_some(answer);
        }
        _ => decode_reply(bytes)?,
    };
    match (call, reply) {
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

/// An answer that no request gets.
fn own_answer((call, kind): (&ShardCall, u8), bytes: &mut Bytes) -> Option<ShardAnswer> {
    Some(match (call, kind) {
        (ShardCall::Holder { .. }, IS_HOLDER) => {
            let kind = bytes.try_get_u8().ok()?;
            let mut holders =
                [PinHolder::Fork, PinHolder::Undecided, PinHolder::Nobody].into_iter();
            ShardAnswer::Holder(holders.find(|holder| *holder as u8 == kind)?)
        }
        (ShardCall::Locate(..), LOCATED) => ShardAnswer::Located(Ok(take_offset(bytes)?)),
        (ShardCall::Locate(..), BEYOND_APPEND) => {
            let available = bytes.try_get_u64_le().ok()?;
            ShardAnswer::Located(Err(LocateError::Beyond { available }))
        }
        (ShardCall::Find(..), FOUND) => ShardAnswer::Found(Ok(take_found(bytes)?)),
        (ShardCall::Replicas(_), IS_REPLICAS) => {
            let mut nodes = Vec::new();
            while !bytes.is_empty() {
                nodes.push(NodeNumber::new(bytes.try_get_u16_le().ok()?));
            }
            ShardAnswer::Replicas(nodes)
        }
        (ShardCall::Watch { group, .. }, WATCHED) => {
            let mut changes = Vec::new();
            while !bytes.is_empty() {
                changes.push(take_change(bytes).filter(|change| change.key.group == *group)?);
            }
            ShardAnswer::Watched(changes)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Failure, FoundRecord, Locate, Search, Seen, testing};
    use log::{Aim, AppendBounds, PlacedAppend, TimeAim};
    use model::{StreamKey, Timestamp};
    use proptest::prelude::*;

    const KEY: StreamKey = StreamKey { group: GroupId::new(3), stream: StreamId::new(4) };

    fn at(offset: u64) -> ByteOffset {
        ByteOffset::new(offset)
    }

    /// Each call with an answer of each kind that it gets.
    fn pairs() -> Vec<(ShardCall, ShardAnswer)> {
        let bounds = AppendBounds { start: at(5), end: at(9), records: 2, at: Timestamp::new(7) };
        let append = PlacedAppend { bounds, first_record: 8, mark: Some(6) };
        let found = FoundRecord { at: at(5), number: 9, append };
        let seen = Seen { tail: at(5), next_record: 2, closed: true };
        let change = |data: Option<&'static [u8]>| Change {
            key: KEY,
            tail: at(9),
            next_record: 3,
            closed: data.is_some(),
            gone: data.is_none(),
            data: data.map(Bytes::from_static),
        };
        let streams = vec![(StreamId::new(4), Some(seen)), (StreamId::new(5), None)];
        let locate = |what| ShardCall::Locate(KEY, what);
        let find = |aim| ShardCall::Find(KEY, Search { aim, json: true });
        let beyond = LocateError::Beyond { available: 3 };
        let (from, to, limit) = (at(1), at(2), at(3));
        vec![
            (locate(Locate::AppendEnd(at(5))), ShardAnswer::Located(Ok(at(6)))),
            (locate(Locate::MessageStart(at(5))), ShardAnswer::Located(Err(beyond))),
            (
                locate(Locate::SubOffset { from, count: 4, json: true, limit }),
                ShardAnswer::Failed(Failure::Trimmed { head: at(5) }),
            ),
            (locate(Locate::IntactEnd { from, to, json: false }), ShardAnswer::Located(Ok(at(2)))),
            (find(Aim::Byte(at(5))), ShardAnswer::Found(Ok(None))),
            (find(Aim::Record(5)), ShardAnswer::Found(Ok(Some(found)))),
            (
                find(Aim::Time(TimeAim::Arrival(Timestamp::new(5)))),
                ShardAnswer::Failed(Failure::NotFound),
            ),
            (find(Aim::Time(TimeAim::Record(5))), ShardAnswer::Found(Ok(None))),
            (
                ShardCall::Watch { group: KEY.group, streams },
                ShardAnswer::Watched(vec![change(None), change(Some(b"bytes"))]),
            ),
            (
                ShardCall::Replicas(KEY.group),
                ShardAnswer::Replicas([1, 3].map(NodeNumber::new).to_vec()),
            ),
            (
                ShardCall::Holder {
                    path: testing::path("a"),
                    token: PinToken {
                        fork_group: GroupId::new(1),
                        term: model::Term::new(2),
                        nonce: 3,
                    },
                },
                ShardAnswer::Holder(PinHolder::Undecided),
            ),
        ]
    }

    #[test]
    fn calls_and_their_answers_come_back() {
        for (call, answer) in pairs() {
            let mut bytes = Vec::new();
            encode_call(&call, &mut bytes);
            let again = decode_call(bytes.into()).expect("it was encoded");
            assert_eq!(format!("{again:?}"), format!("{call:?}"));
            let mut bytes = Vec::new();
            encode_answer(&answer, &mut bytes);
            let again = decode_answer(&call, bytes.clone().into()).expect("it was encoded");
            assert_eq!(format!("{again:?}"), format!("{answer:?}"));
            bytes.push(0);
            assert!(decode_answer(&call, bytes.into()).is_none(), "{answer:?} and a byte more");
        }
    }

    #[test]
    fn a_failure_is_one_whatever_the_call_was() {
        let failure = || Failure::Trimmed { head: at(5) };
        for answer in [
            ShardAnswer::Located(Err(LocateError::Failed(failure()))),
            ShardAnswer::Found(Err(failure())),
        ] {
            let mut bytes = Vec::new();
            encode_answer(&answer, &mut bytes);
            let again = decode_answer(&pairs()[0].0, bytes.into());
            assert!(matches!(again, Some(ShardAnswer::Failed(again)) if again == failure()));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(kind in 30_u8..40, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let call = [&[kind][..], &bytes].concat();
            if let Some(call) = decode_call(call.into()) {
                let mut again = Vec::new();
                encode_call(&call, &mut again);
                prop_assert!(decode_call(again.into()).is_some());
            }
            for (call, _) in pairs() {
                let _ = decode_answer(&call, [&[kind - 30][..], &bytes].concat().into());
                let _ = decode_answer(&call, [&[kind - 23][..], &bytes].concat().into());
            }
        }
    }
}
