//! Requests that one node passes on to another, and their answers.
//!
//! # Input
//! One byte for what follows: 0 a request, 1 an answer, 2 a question of another group's leader. Then its bytes.

use bytes::Bytes;
use log::Aim;
use model::{ByteOffset, GroupId, ReadFrom, StreamId, StreamKey, StreamPath, Term, TrimBefore};
use node::{Failure, Locate, ReadRequest, Reply, Request, Search, Seen, ShardCall};
use stream::{
    Append, AppendType, Command, ContentType, CreateRequest, Lifetime, Outcome, Pin, PinToken,
    Refusal, Retention,
};

/// What is understood is written again, and understood as the same.
///
/// # Panics
/// If it is not.
pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let bytes = Bytes::copy_from_slice(rest);
    let mut again = Vec::new();
    if *kind == 0 {
        let Some((request, data)) = node::decode_request(bytes) else { return };
        node::encode_request(&request, &data, &mut again);
        let (same, rest) = node::decode_request(again.into()).expect("it was understood");
        assert_eq!((format!("{same:?}"), rest), (format!("{request:?}"), data));
    } else if *kind == 2 {
        let Some(call) = node::decode_call(bytes) else { return };
        node::encode_call(&call, &mut again);
        let same = node::decode_call(again.into()).expect("it was understood");
        assert_eq!(format!("{same:?}"), format!("{call:?}"));
    } else {
        let Some(reply) = node::decode_reply(bytes) else { return };
        node::encode_reply(&reply, &mut again);
        let same = node::decode_reply(again.into()).expect("it was understood");
        assert_eq!(format!("{same:?}"), format!("{reply:?}"));
    }
}

/// Requests and answers of most kinds.
///
/// # Panics
/// Never: the path is one.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let path = || StreamPath::new("a/b").expect("a path");
    let content_type = || ContentType::new("text/plain");
    let append = Append {
        content_type: AppendType::Named(content_type()),
        record_count: 1,
        ..Append::default()
    };
    let create = CreateRequest {
        path: path(),
        content_type: Some(content_type()),
        lifetime: Lifetime::Ttl { seconds: 60 },
        close: false,
        fork: None,
        retention: Retention::DEFAULT,
        record_time: None,
        record_count: 0,
    };
    let read = ReadRequest {
        path: path(),
        from: ReadFrom::At(ByteOffset::new(5)),
        boundary_bytes: 4096,
        first_bytes_max: 0,
        records: None,
    };
    let source = StreamKey { group: GroupId::new(1), stream: StreamId::new(4) };
    let (from, to) = (ByteOffset::new(2), ByteOffset::new(3));
    let requests = [
        Request::Create(Box::new(create)),
        Request::Append { path: path(), append },
        Request::Delete { path: path() },
        Request::Trim { path: path(), before: TrimBefore::Record(3) },
        Request::Read(read),
        Request::Window { key: source, from, to },
    ];
    let replies = [
        Reply::Outcome(Outcome::Deleted),
        Reply::Outcome(Outcome::Refused(Refusal::SeqGap { expected: 1, received: 3 })),
        Reply::Failed(Failure::NoLeader),
        Reply::Failed(Failure::Beyond { tail: ByteOffset::new(4), next_record: 2 }),
    ];
    let of_request = requests.iter().map(|request| {
        let mut seed = vec![0];
        node::encode_request(request, b"data", &mut seed);
        seed
    });
    let of_reply = replies.iter().map(|reply| {
        let mut seed = vec![1];
        node::encode_reply(reply, &mut seed);
        seed
    });
    let token = PinToken { fork_group: GroupId::new(3), term: Term::new(2), nonce: 7 };
    let pin = Pin { token, from: ByteOffset::new(9), fork_path: path() };
    let seen = Seen { tail: to, next_record: 1, closed: false };
    let calls = [
        ShardCall::ForkSource { path: path(), offset: None, content_type: Some(content_type()) },
        ShardCall::Propose(source, Command::Pin(pin)),
        ShardCall::Propose(source, Command::Unpin(token)),
        ShardCall::Holder { path: path(), token },
        ShardCall::Locate(source, Locate::IntactEnd { from, to, json: true }),
        ShardCall::Find(source, Search { aim: Aim::Record(4), json: true }),
        ShardCall::Watch { group: source.group, streams: vec![(source.stream, Some(seen))] },
    ];
    let of_call = calls.iter().map(|call| {
        let mut seed = vec![2];
        node::encode_call(call, &mut seed);
        seed
    });
    of_request.chain(of_reply).chain(of_call).collect()
}
