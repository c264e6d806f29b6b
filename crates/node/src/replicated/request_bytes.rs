//! Forwarded requests and their answers as bytes. `docs/format/cluster.md` has the tables.
//!
//! # Invariants
//! - What was encoded decodes to the same. Only the first bytes of an answered read are left out: its asker has them itself.
//! - No bytes make a decoder panic.

use super::field_bytes::{
    put_bytes, put_key, put_option, take_bytes, take_key, take_offset, take_option,
};
use crate::{Failure, ReadReply, ReadRequest, Reply, Request, Resolved};
use bytes::{Buf, BufMut, Bytes};
use cluster::{MetaCommand, MetaOutcome};
use log::Slice;
use model::{
    Bounds, ByteOffset, GroupId, ReadFrom, ReadRecords, StreamId, StreamKey, StreamPath, TrimBefore,
};
use stream::{
    Append, Command, CommandKind, CreateRequest, Outcome, StreamInfo, messages::JsonError,
};

const CREATE: u8 = 1;
const APPEND: u8 = 2;
const DELETE: u8 = 3;
const CHANGE: u8 = 4;
const TRIM: u8 = 5;
const HEAD: u8 = 6;
const ANNOUNCE: u8 = 7;
const RESOLVE: u8 = 8;
const READ: u8 = 9;
const META: u8 = 10;
const WINDOW: u8 = 11;

const OUTCOME: u8 = 1;
const IS_HEAD: u8 = 2;
const IS_READ: u8 = 3;
const RESOLVED: u8 = 4;
const INVALID_JSON: u8 = 5;
const IS_META: u8 = 6;
// 7 and 9 to 13 answer calls.
const IS_WINDOW: u8 = 8;
/// Not applied, and never will be.
const NO_LEADER: u8 = 16;
/// Nobody can tell whether it is applied.
const UNKNOWN: u8 = 17;
const DISK_FULL: u8 = 18;
const OVERLOADED: u8 = 19;
const TRIMMED: u8 = 20;
const BEYOND: u8 = 21;
const NOT_FOUND: u8 = 22;

/// Appends a request and its data: kind, path with its length, fields with their length, data.
///
/// # Panics
/// If it gets no answer.
pub fn encode_request(request: &Request, data: &[u8], out: &mut Vec<u8>) {
    let mut fields = Vec::new();
    let kind = match request {
        Request::Create(create) => {
            create.encode(&mut fields);
            CREATE
        }
        Request::Append { append, .. } => {
            append.encode(&mut fields);
            APPEND
        }
        Request::Delete { .. } => DELETE,
        Request::Change { change, .. } => {
            Command::Change(*change).encode(&mut fields);
            CHANGE
        }
        Request::Trim { before, .. } => {
            let (kind, number) = match before {
                TrimBefore::Offset(offset) => (0, offset.get()),
                TrimBefore::Record(record) => (1, *record),
            };
            fields.put_u8(kind);
            fields.put_u64_le(number);
            TRIM
        }
        Request::Head { .. } => HEAD,
        Request::Announce { append, .. } => {
            append.encode(&mut fields);
            ANNOUNCE
        }
        Request::Resolve(read) => {
            encode_read(read, &mut fields);
            RESOLVE
        }
        Request::Read(read) => {
            encode_read(read, &mut fields);
            READ
        }
        Request::Meta(command) => {
            fields = command.encode();
            META
        }
        Request::Window { key, from, to } => {
            put_key(*key, &mut fields);
            fields.put_u64_le(from.get());
            fields.put_u64_le(to.get());
            WINDOW
        }
        Request::Watch { .. } | Request::Unwatch { .. } => unreachable!("they get no answer"),
    };
    let path = request.path().map_or("", StreamPath::as_str);
    let has_path = !matches!(kind, META | WINDOW);
    assert_eq!(has_path, !path.is_empty(), "what is forwarded names a path");
    out.put_u8(kind);
    put_bytes(path.as_bytes(), out);
    put_bytes(&fields, out);
    out.extend_from_slice(data);
}

/// Reads a request and its data. `None` if they are not what [`encode_request`] writes.
#[must_use]
pub fn decode_request(mut bytes: Bytes) -> Option<(Request, Bytes)> {
    let kind = bytes.try_get_u8().ok()?;
    let path = take_bytes(&mut bytes)?;
    let mut fields = take_bytes(&mut bytes)?;
    if path.is_empty() {
        return Some((decode_without_path(kind, fields)?, bytes));
    }
    let path = StreamPath::new(std::str::from_utf8(&path).ok()?).ok()?;
    let request = match kind {
        CREATE => {
            let create = CreateRequest::decode(&std::mem::take(&mut fields)).ok()?;
            Request::Create(Some(Box::new(create)).filter(|create| create.path == path)?)
        }
        APPEND => Request::Append { path, append: append_of(&mut fields)? },
        DELETE => Request::Delete { path },
        CHANGE => {
            let change = Command::decode(CommandKind::Change as u8, &std::mem::take(&mut fields));
            let Ok(Command::Change(change)) = change else { return None };
            Request::Change { path, change }
        }
        TRIM => {
            let (kind, number) = (fields.try_get_u8().ok()?, fields.try_get_u64_le().ok()?);
            let before = match kind {
                0 => TrimBefore::Offset(ByteOffset::new(number)),
                1 => TrimBefore::Record(number),
                _ => return None,
            };
            Request::Trim { path, before }
        }
        HEAD => Request::Head { path },
        ANNOUNCE => Request::Announce { path, append: append_of(&mut fields)? },
        RESOLVE => Request::Resolve(decode_read(path, &mut fields)?),
        READ => Request::Read(decode_read(path, &mut fields)?),
        _ => return None,
    };
    fields.is_empty().then_some((request, bytes))
}

fn decode_without_path(kind: u8, mut fields: Bytes) -> Option<Request> {
    match kind {
        META => Some(Request::Meta(Box::new(MetaCommand::decode(&fields).ok()?))),
        WINDOW => {
            let key = take_key(&mut fields)?;
            let (from, to) = (take_offset(&mut fields)?, take_offset(&mut fields)?);
            let is_range = from < to && fields.is_empty();
            is_range.then_some(Request::Window { key, from, to })
        }
        _ => None,
    }
}

fn append_of(fields: &mut Bytes) -> Option<Append> {
    Append::decode(&std::mem::take(fields)).ok()
}

fn encode_read(read: &ReadRequest, out: &mut Vec<u8>) {
    let (kind, number) = match read.from {
        ReadFrom::Begin => (0, 0),
        ReadFrom::Now => (1, 0),
        ReadFrom::At(offset) => (2, offset.get()),
        ReadFrom::Record(record) => (3, record),
        ReadFrom::TailRecords(count) => (4, count),
        ReadFrom::Time(time) => (5, time),
    };
    out.put_u8(kind);
    out.put_u64_le(number);
    out.put_u64_le(read.boundary_bytes);
    let clamps = read.records.map(|records| u8::from(records.clamp));
    out.put_u8(clamps.map_or(0, |clamps| 1 + clamps));
    if let Some(ReadRecords { bounds, .. }) = read.records {
        for bound in [bounds.records_max, bounds.bytes_max, bounds.until] {
            put_option(bound, out);
        }
    }
}

fn decode_read(path: StreamPath, bytes: &mut Bytes) -> Option<ReadRequest> {
    let (kind, number) = (bytes.try_get_u8().ok()?, bytes.try_get_u64_le().ok()?);
    let from = match kind {
        0 if number == 0 => ReadFrom::Begin,
        1 if number == 0 => ReadFrom::Now,
        2 => ReadFrom::At(ByteOffset::new(number)),
        3 => ReadFrom::Record(number),
        4 => ReadFrom::TailRecords(number),
        5 => ReadFrom::Time(number),
        _ => return None,
    };
    let boundary_bytes = bytes.try_get_u64_le().ok().filter(|bytes| *bytes > 0)?;
    let records = match bytes.try_get_u8().ok()? {
        0 => None,
        form @ 1..=2 => {
            let (records_max, bytes_max) = (take_option(bytes)?, take_option(bytes)?);
            let bounds = Bounds { records_max, bytes_max, until: take_option(bytes)? };
            Some(ReadRecords { bounds, clamp: form == 2 })
        }
        _ => return None,
    };
    Some(ReadRequest { path, from, boundary_bytes, first_bytes_max: 0, records })
}

/// Appends an answer.
///
/// # Panics
/// If it holds bytes that are not in memory.
pub fn encode_reply(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Outcome(outcome) => {
            out.put_u8(OUTCOME);
            outcome.encode(out);
        }
        Reply::Head(key, info) => {
            out.put_u8(IS_HEAD);
            put_stream(*key, info, out);
        }
        Reply::Read(read) => {
            out.put_u8(IS_READ);
            put_stream(read.key, &read.info, out);
            out.put_u64_le(read.start.get());
            out.put_u64_le(read.end.get());
            put_option(read.records.map(|(first, _)| first), out);
            put_option(read.records.map(|(_, next)| next), out);
        }
        Reply::Resolved(resolved) => {
            out.put_u8(RESOLVED);
            put_stream(resolved.key, &resolved.info, out);
            out.put_u64_le(resolved.at.get());
            out.put_u64_le(resolved.record);
            put_option(resolved.time, out);
        }
        Reply::InvalidJson(error) => {
            out.put_u8(INVALID_JSON);
            error.encode(out);
        }
        Reply::Meta(outcome) => {
            out.put_u8(IS_META);
            outcome.encode(out);
        }
        Reply::Failed(failure) => encode_failure(failure, out),
        Reply::Window(Slice::Bytes(bytes)) => {
            out.put_u8(IS_WINDOW);
            out.extend_from_slice(bytes);
        }
        Reply::Window(Slice::File { .. }) => unreachable!("a peer's window is read into memory"),
    }
}

fn encode_failure(failure: &Failure, out: &mut Vec<u8>) {
    let (kind, numbers) = match failure {
        // Another node may have what this one cannot do.
        Failure::NoLeader
        | Failure::Poisoned { applied_unknown: false }
        | Failure::Damaged { .. }
        | Failure::Io { .. } => (NO_LEADER, None),
        Failure::Unknown | Failure::Poisoned { applied_unknown: true } => (UNKNOWN, None),
        Failure::DiskFull => (DISK_FULL, None),
        Failure::Overloaded => (OVERLOADED, None),
        Failure::Trimmed { head } => (TRIMMED, Some((head.get(), 0))),
        Failure::Beyond { tail, next_record } => (BEYOND, Some((tail.get(), *next_record))),
        Failure::NotFound => (NOT_FOUND, None),
    };
    out.put_u8(kind);
    if let Some((one, other)) = numbers {
        out.put_u64_le(one);
        out.put_u64_le(other);
    }
}

/// Reads an answer. `None` if it is not what [`encode_reply`] writes.
#[must_use]
pub fn decode_reply(mut bytes: Bytes) -> Option<Reply> {
    let reply = match bytes.try_get_u8().ok()? {
        OUTCOME => Reply::Outcome(Outcome::decode(&std::mem::take(&mut bytes)).ok()?),
        IS_HEAD => {
            let (key, info) = take_stream(&mut bytes)?;
            Reply::Head(key, Box::new(info))
        }
        IS_READ => {
            let (key, info) = take_stream(&mut bytes)?;
            let start = take_offset(&mut bytes)?;
            let end = take_offset(&mut bytes)?;
            let records = take_option(&mut bytes)?.zip(take_option(&mut bytes)?);
            let read = ReadReply { key, info, start, end, first: None, records };
            Reply::Read(Box::new(read).filter_ends()?)
        }
        RESOLVED => {
            let (key, info) = take_stream(&mut bytes)?;
            let at = take_offset(&mut bytes)?;
            let record = bytes.try_get_u64_le().ok()?;
            let time = take_option(&mut bytes)?;
            Reply::Resolved(Box::new(Resolved { key, info, at, record, time }))
        }
        INVALID_JSON => Reply::InvalidJson(JsonError::decode(&std::mem::take(&mut bytes)).ok()?),
        IS_WINDOW => {
            let bytes = Some(std::mem::take(&mut bytes)).filter(|bytes| !bytes.is_empty());
            Reply::Window(Slice::Bytes(bytes?))
        }
        IS_META => Reply::Meta(MetaOutcome::decode(&std::mem::take(&mut bytes)).ok()?),
        kind => Reply::Failed(decode_failure(kind, &mut bytes)?),
    };
    bytes.is_empty().then_some(reply)
}

fn decode_failure(kind: u8, bytes: &mut Bytes) -> Option<Failure> {
    Some(match kind {
        NO_LEADER => Failure::NoLeader,
        UNKNOWN => Failure::Unknown,
        DISK_FULL => Failure::DiskFull,
        OVERLOADED => Failure::Overloaded,
        NOT_FOUND => Failure::NotFound,
        TRIMMED | BEYOND => {
            let (at, number) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u64_le().ok()?);
            let at = ByteOffset::new(at);
            match kind {
                TRIMMED if number == 0 => Failure::Trimmed { head: at },
                BEYOND => Failure::Beyond { tail: at, next_record: number },
                _ => return None,
            }
        }
        _ => return None,
    })
}

impl ReadReply {
    /// An answer that does not end before its start.
    fn filter_ends(self: Box<Self>) -> Option<Box<Self>> {
        (self.start <= self.end).then_some(self)
    }
}

fn put_stream(key: StreamKey, info: &StreamInfo, out: &mut Vec<u8>) {
    let mut encoded = Vec::new();
    info.encode(&mut encoded);
    out.put_u16_le(key.group.get());
    put_bytes(&encoded, out);
}

fn take_stream(bytes: &mut Bytes) -> Option<(StreamKey, StreamInfo)> {
    let group = GroupId::new(bytes.try_get_u16_le().ok()?);
    let info = StreamInfo::decode(&take_bytes(bytes)?).ok()?;
    Some((StreamKey { group, stream: StreamId::new(info.stream.get()) }, info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;

    fn read(from: ReadFrom, records: Option<ReadRecords>) -> ReadRequest {
        let path = testing::path("a");
        ReadRequest { path, from, boundary_bytes: 4096, first_bytes_max: 0, records }
    }

    fn requests() -> Vec<Request> {
        let path = || testing::path("a");
        let bounds = Bounds { records_max: Some(3), bytes_max: None, until: Some(9) };
        let bounded = Some(ReadRecords { bounds, clamp: true });
        let append = || Append { close: true, ..testing::text() };
        let change = stream::Change::default();
        let froms = [
            ReadFrom::Begin,
            ReadFrom::Now,
            ReadFrom::At(ByteOffset::new(7)),
            ReadFrom::Record(8),
            ReadFrom::TailRecords(9),
            ReadFrom::Time(10),
        ];
        let mut all = vec![
            testing::create(&path(), None, Some(testing::fork_of(&path(), None, 3)), b"").request,
            Request::Append { path: path(), append: append() },
            Request::Delete { path: path() },
            Request::Change { path: path(), change },
            Request::Trim { path: path(), before: TrimBefore::Record(5) },
            Request::Trim { path: path(), before: TrimBefore::Offset(ByteOffset::new(6)) },
            Request::Head { path: path() },
            Request::Announce { path: path(), append: append() },
            Request::Resolve(read(ReadFrom::Begin, Some(ReadRecords::default()))),
            Request::Meta(Box::new(MetaCommand::SetReplication(5))),
            Request::Window {
                key: StreamKey { group: GroupId::new(3), stream: StreamId::new(4) },
                from: ByteOffset::new(5),
                to: ByteOffset::new(6),
            },
        ];
        all.extend(froms.map(|from| Request::Read(read(from, bounded))));
        all
    }

    fn info() -> StreamInfo {
        let path = testing::path("a");
        let mut process = testing::Process::open(&env::MemoryDisk::new(), 1);
        process.with_text(&path, b"text");
        process.head(&path).1
    }

    fn replies() -> Vec<Reply> {
        let info = info();
        let key = StreamKey { group: GroupId::new(1), stream: info.stream };
        let at = ByteOffset::new;
        let read = |records| {
            let (info, start, end) = (info.clone(), at(1), at(4));
            Reply::Read(Box::new(ReadReply { key, info, start, end, first: None, records }))
        };
        let found = Resolved { key, info: info.clone(), at: at(2), record: 3, time: Some(4) };
        let failures = [
            Failure::NoLeader,
            Failure::Unknown,
            Failure::DiskFull,
            Failure::Overloaded,
            Failure::Trimmed { head: at(5) },
            Failure::Beyond { tail: at(6), next_record: 7 },
            Failure::NotFound,
        ];
        let mut all = vec![
            Reply::Outcome(Outcome::Created(Box::new(info.clone()))),
            Reply::Head(key, Box::new(info.clone())),
            read(None),
            read(Some((8, 9))),
            Reply::Resolved(Box::new(found)),
            Reply::InvalidJson(JsonError::TooDeep),
            Reply::Meta(MetaOutcome::Joined(cluster::NodeNumber::new(3))),
        ];
        all.extend(failures.map(Reply::Failed));
        all
    }

    /// Each beginning of what was written, and a byte more, is refused or something else.
    fn assert_whole(bytes: &[u8], show: impl Fn(Bytes) -> Option<String>, expected: &str) {
        assert_eq!(show(Bytes::copy_from_slice(bytes)).as_deref(), Some(expected));
        for length in 0..bytes.len() {
            let cut = show(Bytes::copy_from_slice(&bytes[..length]));
            assert_ne!(cut.as_deref(), Some(expected), "cut to {length}");
        }
    }

    #[test]
    fn requests_come_back_with_their_data() {
        for request in requests() {
            let mut bytes = Vec::new();
            encode_request(&request, b"data", &mut bytes);
            let show = |bytes| decode_request(bytes).map(|decoded| format!("{decoded:?}"));
            assert_whole(&bytes, show, &format!("{:?}", (&request, Bytes::from_static(b"data"))));
        }
    }

    #[test]
    fn a_window_comes_back_with_its_bytes() {
        let mut bytes = Vec::new();
        encode_reply(&Reply::Window(Slice::Bytes(Bytes::from_static(b"bytes"))), &mut bytes);
        let Some(Reply::Window(Slice::Bytes(back))) = decode_reply(bytes.into()) else {
            panic!("no window");
        };
        assert_eq!(back, "bytes");
        assert!(decode_reply(Bytes::from_static(&[IS_WINDOW])).is_none(), "at least one byte");
    }

    #[test]
    fn answers_come_back() {
        for reply in replies() {
            let mut bytes = Vec::new();
            encode_reply(&reply, &mut bytes);
            let show = |bytes| decode_reply(bytes).map(|decoded| format!("{decoded:?}"));
            assert_whole(&bytes, show, &format!("{reply:?}"));
            bytes.push(0);
            assert!(decode_reply(bytes.into()).is_none(), "{reply:?} and a byte more");
        }
    }

    #[test]
    fn what_a_node_cannot_do_another_one_may() {
        let told = |failure: Failure| {
            let mut bytes = Vec::new();
            encode_reply(&Reply::Failed(failure), &mut bytes);
            bytes
        };
        let poisoned = |applied_unknown| told(Failure::Poisoned { applied_unknown });
        assert_eq!(poisoned(false), [NO_LEADER]);
        assert_eq!(poisoned(true), [UNKNOWN]);
        assert_eq!(told(Failure::Io { error: "gone".into() }), [NO_LEADER]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = Bytes::from(bytes);
            if let Some((request, data)) = decode_request(bytes.clone()) {
                let mut again = Vec::new();
                encode_request(&request, &data, &mut again);
                prop_assert!(decode_request(again.into()).is_some());
            }
            let _ = decode_reply(bytes);
        }
    }
}
