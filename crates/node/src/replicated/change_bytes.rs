//! Changes of streams, and what is known of them, as bytes. `docs/format/cluster.md` has the tables.

use super::field_bytes::{put_bytes, put_key, take_bytes, take_flag, take_key, take_offset};
use crate::{Change, Seen};
use bytes::{Buf, BufMut, Bytes};

const CLOSED: u8 = 1;
const GONE: u8 = 2;
const HAS_DATA: u8 = 4;

pub(super) fn put_seen(seen: Option<Seen>, out: &mut Vec<u8>) {
    out.put_u8(seen.is_some().into());
    if let Some(Seen { tail, next_record, closed }) = seen {
        out.put_u64_le(tail.get());
        out.put_u64_le(next_record);
        out.put_u8(closed.into());
    }
}

pub(super) fn take_seen(bytes: &mut Bytes) -> Option<Option<Seen>> {
    if !take_flag(bytes)? {
        return Some(None);
    }
    let (tail, next_record) = (take_offset(bytes)?, bytes.try_get_u64_le().ok()?);
    Some(Some(Seen { tail, next_record, closed: take_flag(bytes)? }))
}

pub(super) fn put_change(change: &Change, out: &mut Vec<u8>) {
    let flags = [(change.closed, CLOSED), (change.gone, GONE), (change.data.is_some(), HAS_DATA)];
    put_key(change.key, out);
    out.put_u64_le(change.tail.get());
    out.put_u64_le(change.next_record);
    out.put_u8(flags.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum());
    if let Some(data) = &change.data {
        put_bytes(data, out);
    }
}

pub(super) fn take_change(bytes: &mut Bytes) -> Option<Change> {
    let key = take_key(bytes)?;
    let (tail, next_record) = (take_offset(bytes)?, bytes.try_get_u64_le().ok()?);
    let flags = bytes.try_get_u8().ok().filter(|flags| *flags <= CLOSED | GONE | HAS_DATA)?;
    let data = match flags & HAS_DATA {
        0 => None,
        _ => Some(take_bytes(bytes)?).filter(|data| data.len() as u64 <= tail.get()),
    };
    let is_whole = data.is_some() == (flags & HAS_DATA != 0);
    let (closed, gone) = (flags & CLOSED != 0, flags & GONE != 0);
    is_whole.then_some(Change { key, tail, next_record, closed, gone, data })
}
