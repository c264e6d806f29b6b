//! Questions about stored bytes to another node, and their answers, as bytes. `docs/format/cluster.md` has the tables.

use super::field_bytes::{put_option, take_flag, take_offset, take_option};
use crate::{FoundRecord, Locate, Search};
use bytes::{Buf, BufMut, Bytes};
use log::{Aim, AppendBounds, PlacedAppend, TimeAim};
use model::{ByteOffset, Timestamp};

const APPEND_END: u8 = 0;
const MESSAGE_START: u8 = 1;
const SUB_OFFSET: u8 = 2;
const INTACT_END: u8 = 3;

const BYTE: u8 = 0;
const RECORD: u8 = 1;
const ARRIVAL: u8 = 2;
const RECORD_TIME: u8 = 3;

pub(super) fn put_locate(what: &Locate, out: &mut Vec<u8>) {
    match *what {
        Locate::AppendEnd(at) => {
            out.put_u8(APPEND_END);
            out.put_u64_le(at.get());
        }
        Locate::MessageStart(at) => {
            out.put_u8(MESSAGE_START);
            out.put_u64_le(at.get());
        }
        Locate::SubOffset { from, count, json, limit } => {
            out.put_u8(SUB_OFFSET);
            out.put_u64_le(from.get());
            out.put_u64_le(count);
            out.put_u8(json.into());
            out.put_u64_le(limit.get());
        }
        Locate::IntactEnd { from, to, json } => {
            out.put_u8(INTACT_END);
            out.put_u64_le(from.get());
            out.put_u64_le(to.get());
            out.put_u8(json.into());
        }
    }
}

pub(super) fn take_locate(bytes: &mut Bytes) -> Option<Locate> {
    Some(match bytes.try_get_u8().ok()? {
        APPEND_END => Locate::AppendEnd(take_offset(bytes)?),
        MESSAGE_START => Locate::MessageStart(take_offset(bytes)?),
        SUB_OFFSET => {
            let (from, count) = (take_offset(bytes)?, bytes.try_get_u64_le().ok()?);
            let json = take_flag(bytes)?;
            Locate::SubOffset { from, count, json, limit: take_offset(bytes)? }
        }
        INTACT_END => {
            let (from, to) = (take_offset(bytes)?, take_offset(bytes)?);
            let json = take_flag(bytes)?;
            (from <= to).then_some(Locate::IntactEnd { from, to, json })?
        }
        _ => return None,
    })
}

pub(super) fn put_search(search: &Search, out: &mut Vec<u8>) {
    let (kind, number) = match search.aim {
        Aim::Byte(at) => (BYTE, at.get()),
        Aim::Record(number) => (RECORD, number),
        Aim::Time(TimeAim::Arrival(at)) => (ARRIVAL, at.get()),
        Aim::Time(TimeAim::Record(time)) => (RECORD_TIME, time),
    };
    out.put_u8(kind);
    out.put_u64_le(number);
    out.put_u8(search.json.into());
}

pub(super) fn take_search(bytes: &mut Bytes) -> Option<Search> {
    let (kind, number) = (bytes.try_get_u8().ok()?, bytes.try_get_u64_le().ok()?);
    let aim = match kind {
        BYTE => Aim::Byte(ByteOffset::new(number)),
        RECORD => Aim::Record(number),
        ARRIVAL => Aim::Time(TimeAim::Arrival(Timestamp::new(number))),
        RECORD_TIME => Aim::Time(TimeAim::Record(number)),
        _ => return None,
    };
    Some(Search { aim, json: take_flag(bytes)? })
}

pub(super) fn put_found(found: Option<FoundRecord>, out: &mut Vec<u8>) {
    out.put_u8(found.is_some().into());
    let Some(FoundRecord { at, number, append }) = found else { return };
    let AppendBounds { start, end, records, at: arrival } = append.bounds;
    out.put_u64_le(at.get());
    out.put_u64_le(number);
    out.put_u64_le(start.get());
    out.put_u64_le(end.get());
    out.put_u32_le(records);
    out.put_u64_le(arrival.get());
    out.put_u64_le(append.first_record);
    put_option(append.mark, out);
}

pub(super) fn take_found(bytes: &mut Bytes) -> Option<Option<FoundRecord>> {
    if !take_flag(bytes)? {
        return Some(None);
    }
    let (at, number) = (take_offset(bytes)?, bytes.try_get_u64_le().ok()?);
    let (start, end) = (take_offset(bytes)?, take_offset(bytes)?);
    let records = bytes.try_get_u32_le().ok()?;
    let arrival = Timestamp::new(bytes.try_get_u64_le().ok()?);
    let bounds = AppendBounds { start, end, records, at: arrival };
    let first_record = bytes.try_get_u64_le().ok()?;
    let append = PlacedAppend { bounds, first_record, mark: take_option(bytes)? };
    Some(Some(FoundRecord { at, number, append }))
}
