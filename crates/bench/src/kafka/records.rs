//! Record batches, magic 2: a head of 61 bytes with a checksum over all that follows it, then records.
//!
//! | bytes | what |
//! |---|---|
//! | 8, 4 | offset of the first record; length of all that follows |
//! | 4, 1, 4 | epoch of the leader; magic 2; CRC-32C of all that follows |
//! | 2, 4 | attributes (no compression); offset of the last record, relative to the first |
//! | 8, 8 | time of the first record and of the latest |
//! | 8, 2, 4 | producer, its epoch, its first sequence number; all −1 |
//! | 4 | count of records |
//!
//! A record: its length; attributes; time and offset, relative to the batch's; key; value; headers.

use super::wire::{Fields, put_varint, set_length};
use crate::api::Batch;
use crate::failure::{Failure, Outcome};

/// The places of the length and the checksum in a batch, and the start of what they cover.
const LENGTH_AT: usize = 8;
const CHECKSUM_AT: usize = 17;
const COVERED_FROM: usize = 21;

/// Bytes of a record beside its payload, at most: seven numbers.
const RECORD_EXTRA_BYTES: usize = 32;

/// Writes `batch` as one record batch.
pub(super) fn put(out: &mut Vec<u8>, batch: Batch<'_>, time_ms: i64) {
    let start = out.len();
    let count = i32::try_from(batch.payloads().count()).expect("batches are short");
    out.extend([0; LENGTH_AT + 4]);
    out.extend((-1_i32).to_be_bytes());
    out.push(2);
    out.extend([0; 4]);
    out.extend(0_i16.to_be_bytes());
    out.extend((count - 1).to_be_bytes());
    out.extend(time_ms.to_be_bytes());
    out.extend(time_ms.to_be_bytes());
    out.extend((-1_i64).to_be_bytes());
    out.extend((-1_i16).to_be_bytes());
    out.extend((-1_i32).to_be_bytes());
    out.extend(count.to_be_bytes());
    let mut head = Vec::with_capacity(RECORD_EXTRA_BYTES);
    for (at, payload) in batch.payloads().enumerate() {
        put_record(out, &mut head, at as i64, payload);
    }
    set_length(out, start + LENGTH_AT);
    let checksum = crc32c::crc32c(&out[start + COVERED_FROM..]);
    out[start + CHECKSUM_AT..start + COVERED_FROM].copy_from_slice(&checksum.to_be_bytes());
}

/// One record without key and headers; `head` is scratch space.
fn put_record(out: &mut Vec<u8>, head: &mut Vec<u8>, at: i64, payload: &[u8]) {
    head.clear();
    head.push(0);
    put_varint(head, 0);
    put_varint(head, at);
    put_varint(head, -1);
    put_varint(head, payload.len() as i64);
    put_varint(out, (head.len() + payload.len() + 1) as i64);
    out.extend_from_slice(head);
    out.extend_from_slice(payload);
    out.push(0);
}

/// Adds the values of all records from `offset` on to `values`; the offset behind the last. A batch
/// that is cut off at the end is left for the next read.
pub(super) fn read(stored: &[u8], offset: i64, values: &mut Vec<u8>) -> Outcome<i64> {
    let (mut rest, mut next) = (Fields(stored), offset);
    while let Some(first) = rest.i64() {
        let Some(batch) = rest.sized() else { break };
        let broken = || Failure::new(format!("Kafka gave a broken batch at offset {first}"));
        let batch = covered(batch).ok_or_else(broken)?;
        next = read_batch(batch, first, next, values).ok_or_else(broken)?;
    }
    Ok(next)
}

/// What the checksum of a batch covers, if it is right.
fn covered(batch: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(batch);
    let _epoch = fields.i32()?;
    let magic = fields.i8()?;
    let checksum = fields.i32()?.cast_unsigned();
    (magic == 2 && crc32c::crc32c(fields.0) == checksum).then_some(fields.0)
}

fn read_batch(batch: &[u8], first: i64, from: i64, values: &mut Vec<u8>) -> Option<i64> {
    let mut fields = Fields(batch);
    // Compressed batches and those of transactions are none of ours.
    if fields.i16()? != 0 {
        return None;
    }
    let last = first + i64::from(fields.i32()?);
    fields.bytes(8 + 8 + 8 + 2 + 4)?;
    for _ in 0..fields.i32()? {
        let length = usize::try_from(fields.varint()?).ok()?;
        let mut record = Fields(fields.bytes(length)?);
        record.i8()?;
        record.varint()?;
        let offset = first + record.varint()?;
        let key_length = usize::try_from(record.varint()?).unwrap_or_default();
        record.bytes(key_length)?;
        let value_length = usize::try_from(record.varint()?).unwrap_or_default();
        let value = record.bytes(value_length)?;
        if offset >= from {
            values.extend_from_slice(value);
        }
    }
    Some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: i64, bytes: &[u8], each: usize) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, Batch { bytes, each }, 1_700_000_000_000);
        out[..8].copy_from_slice(&first.to_be_bytes());
        out
    }

    #[test]
    fn values_come_back_in_order_from_an_offset_on() {
        let stored = [batch(0, b"aabbcc", 2), batch(3, b"dd", 2)].concat();
        let read_from = |offset| {
            let mut values = Vec::new();
            let next = read(&stored, offset, &mut values).unwrap();
            (next, String::from_utf8(values).unwrap())
        };
        assert_eq!(read_from(0), (4, "aabbccdd".to_owned()));
        assert_eq!(read_from(2), (4, "ccdd".to_owned()));
    }

    #[test]
    fn a_batch_that_is_cut_off_is_left() {
        let stored = [batch(0, b"aa", 2), batch(1, b"bb", 2)].concat();
        let first = stored.len() / 2;
        for cut in first..stored.len() {
            let mut values = Vec::new();
            assert_eq!(read(&stored[..cut], 0, &mut values).unwrap(), 1, "{cut}");
            assert_eq!(values, b"aa");
        }
    }

    #[test]
    fn any_changed_byte_is_found() {
        let stored = batch(0, b"aabb", 2);
        for at in LENGTH_AT + 8..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 4;
            assert!(read(&changed, 0, &mut Vec::new()).is_err(), "{at}");
        }
    }

    #[test]
    fn the_format_is_kafkas() {
        let bytes = batch(0, b"v", 1);
        assert_eq!(bytes.len(), 61 + 8);
        // Length 7 (zigzag 14), attributes, time, offset, no key, value of one byte, no headers.
        assert_eq!(bytes[61..], [14, 0, 0, 0, 1, 2, b'v', 0]);
    }
}
