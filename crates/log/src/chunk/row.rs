//! One row: where a run of a stream's bytes is, which records and times it has, and its checksums.
//!
//! # Room to grow
//! A row says how long it is. What a later version adds comes behind the last field, with a flag. A reader
//! that does not know the flag cannot read that run, but it still finds all others. The six fields that say how
//! long run and table are never change.
//!
//! # Format
//! `docs/format/chunk.md`.

use crate::codec::{put_varint, take_varint};

/// The stream has record times.
const RECORD_TIMES: u8 = 1 << 0;
/// Each append is one record.
const EACH_IS_ONE: u8 = 1 << 1;
/// No stream has more records.
const RECORDS_MAX: u64 = 1 << 53;

/// The longest row of this version.
pub(crate) const ROW_BYTES_MAX: usize = 2 + 1 + 8 * 10 + 2 * 5 + 8;

/// A run of a stream, as a row describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) stream: u64,
    /// Stream offset of the first byte.
    pub(crate) start: u64,
    /// Bytes of the run.
    pub(crate) length: u32,
    /// Bytes of its append table, which follows it.
    pub(crate) table_length: u32,
    /// Position of the run in the file: it follows from the rows before.
    pub(crate) position: u64,
    /// `None` if a newer version wrote the row: then the run cannot be read.
    pub(crate) body: Option<RowBody>,
}

/// What one version of rows says of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowBody {
    pub(crate) first_record: u64,
    pub(crate) records: u64,
    /// Arrivals of the first and of the last append, milliseconds.
    pub(crate) first_at: u64,
    pub(crate) last_at: u64,
    /// If the stream has record times.
    pub(crate) marks: Option<Marks>,
    pub(crate) is_each_one_record: bool,
    /// Of the run's bytes and of its table's.
    pub(crate) data_crc: u32,
    pub(crate) table_crc: u32,
}

/// The largest record time before a run and up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) before: u64,
    pub(crate) last: u64,
}

impl Row {
    /// Stream offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }

    pub(crate) fn table_position(&self) -> u64 {
        self.position + u64::from(self.length)
    }

    /// Where run and table end, and the next run begins.
    pub(crate) fn end_position(&self) -> u64 {
        self.table_position() + u64::from(self.table_length)
    }

    /// Appends the row; `stream_before` is that of the row before in the page, or 0.
    ///
    /// # Panics
    /// If the row is of a newer version, or before the row before.
    pub(crate) fn encode(&self, stream_before: u64, out: &mut Vec<u8>) {
        let body = self.body.expect("only rows of this version are written");
        let mut row = Vec::with_capacity(64);
        row.push(body.flags());
        put_varint(&mut row, self.stream.checked_sub(stream_before).expect("rows come in order"));
        let places = [self.start, u64::from(self.length), u64::from(self.table_length)];
        places.into_iter().for_each(|value| put_varint(&mut row, value));
        body.encode(&mut row);
        put_varint(out, row.len() as u64);
        out.extend_from_slice(&row);
    }

    /// Takes a row off the front of `bytes`; `None` if there is none that makes sense.
    pub(crate) fn decode(bytes: &mut &[u8], stream_before: u64, position: u64) -> Option<Self> {
        let length = usize::try_from(take_varint(bytes)?).ok()?;
        let (mut row, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        let flags = *row.split_off_first()?;
        let row = &mut row;
        let stream = stream_before.checked_add(take_varint(row)?)?;
        let start = take_varint(row)?;
        let length = u32::try_from(take_varint(row)?).ok()?;
        let table_length = u32::try_from(take_varint(row)?).ok()?;
        start.checked_add(u64::from(length))?;
        position.checked_add(u64::from(length))?.checked_add(u64::from(table_length))?;
        let body = match flags & !(RECORD_TIMES | EACH_IS_ONE) {
            0 => {
                let body = RowBody::decode(flags, row)?;
                row.is_empty().then_some(body)
            }
            _ => None,
        };
        Some(Self { stream, start, length, table_length, position, body })
    }
}

impl RowBody {
    fn flags(&self) -> u8 {
        let times = if self.marks.is_some() { RECORD_TIMES } else { 0 };
        times | if self.is_each_one_record { EACH_IS_ONE } else { 0 }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let difference = |later: u64, earlier| later.checked_sub(earlier).expect("times rise");
        let numbers = [self.first_record, self.records, self.first_at];
        numbers.into_iter().for_each(|value| put_varint(out, value));
        put_varint(out, difference(self.last_at, self.first_at));
        if let Some(Marks { before, last }) = self.marks {
            put_varint(out, before);
            put_varint(out, difference(last, before));
        }
        out.extend_from_slice(&self.data_crc.to_le_bytes());
        out.extend_from_slice(&self.table_crc.to_le_bytes());
    }

    fn decode(flags: u8, row: &mut &[u8]) -> Option<Self> {
        let first_record = take_varint(row)?;
        let records = take_varint(row)?;
        let first_at = take_varint(row)?;
        let last_at = first_at.checked_add(take_varint(row)?)?;
        let marks = if flags & RECORD_TIMES == 0 {
            None
        } else {
            let before = take_varint(row)?;
            Some(Marks { before, last: before.checked_add(take_varint(row)?)? })
        };
        let (data_crc, table_crc) = (take_crc(row)?, take_crc(row)?);
        let is_possible = first_record.checked_add(records)? <= RECORDS_MAX;
        let is_each_one_record = flags & EACH_IS_ONE != 0;
        is_possible.then_some(Self {
            first_record,
            records,
            first_at,
            last_at,
            marks,
            is_each_one_record,
            data_crc,
            table_crc,
        })
    }
}

fn take_crc(row: &mut &[u8]) -> Option<u32> {
    let (crc, rest) = row.split_first_chunk()?;
    *row = rest;
    Some(u32::from_le_bytes(*crc))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use env::{Random, SeededRandom};

    pub(crate) fn plain(stream: u64, start: u64, length: u32) -> Row {
        let body = RowBody {
            first_record: 3,
            records: 5,
            first_at: 1_700_000_000_000,
            last_at: 1_700_000_000_009,
            marks: None,
            is_each_one_record: false,
            data_crc: 0x1234_5678,
            table_crc: 0x9abc_def0,
        };
        Row { stream, start, length, table_length: 40, position: 4096, body: Some(body) }
    }

    /// A number of each size alike.
    fn any_size(random: &mut SeededRandom) -> u64 {
        random.next_u64() >> (random.next_u64() % 64)
    }

    pub(crate) fn any(random: &mut SeededRandom) -> Row {
        let mut row = plain(any_size(random), any_size(random) >> 1, any_size(random) as u32);
        row.table_length = any_size(random) as u32;
        let body = row.body.as_mut().unwrap();
        body.first_record = any_size(random) >> 12;
        body.records = any_size(random) >> 12;
        body.first_at = any_size(random) >> 1;
        body.last_at = body.first_at + (any_size(random) >> 1);
        body.is_each_one_record = random.next_u64().is_multiple_of(2);
        if random.next_u64().is_multiple_of(2) {
            let before = any_size(random) >> 1;
            body.marks = Some(Marks { before, last: before + (any_size(random) >> 1) });
        }
        row
    }

    fn encoded(row: &Row, stream_before: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        row.encode(stream_before, &mut bytes);
        bytes
    }

    #[test]
    fn rows_of_all_sizes_come_back() {
        let mut random = SeededRandom::new(1);
        for _ in 0..10_000 {
            let row = any(&mut random);
            let before = any_size(&mut random).min(row.stream);
            let bytes = encoded(&row, before);
            assert!(bytes.len() <= ROW_BYTES_MAX);
            let mut rest = &bytes[..];
            assert_eq!(Row::decode(&mut rest, before, row.position), Some(row));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn the_bytes_of_rows_never_change() {
        let mut bytes = Vec::new();
        plain(5, 100, 10).encode(0, &mut bytes);
        let mut row = plain(7, 1 << 40, 1 << 20);
        let body = row.body.as_mut().unwrap();
        (body.is_each_one_record, body.marks) = (true, Some(Marks { before: 300, last: 301 }));
        row.encode(5, &mut bytes);
        assert!(bytes == include_bytes!("../../testdata/chunk-rows.golden"), "{bytes:02x?}");
    }

    #[test]
    fn a_row_of_a_newer_version_keeps_its_place_and_costs_itself_alone() {
        let row = plain(5, 100, 10);
        let newer = Row { body: None, ..row };
        for flag in 2..8 {
            let mut bytes = encoded(&row, 0);
            bytes[1] |= 1 << flag;
            assert_eq!(Row::decode(&mut &bytes[..], 0, 4096), Some(newer), "flag {flag}");
        }
        let mut bytes = encoded(&row, 0);
        bytes[0] += 1;
        bytes.push(0);
        bytes.extend_from_slice(&encoded(&row, 0));
        let mut rest = &bytes[..];
        assert_eq!(Row::decode(&mut rest, 0, 4096), Some(newer), "a field behind the last");
        assert_eq!(Row::decode(&mut rest, 0, 4096), Some(row), "the next one is read");
    }

    #[test]
    fn rows_that_end_early_or_add_up_to_too_much_are_refused() {
        let row = plain(5, 100, 10);
        let bytes = encoded(&row, 0);
        for length in 0..bytes.len() {
            assert_eq!(Row::decode(&mut &bytes[..length], 0, 4096), None, "{length} bytes");
        }
        assert_eq!(Row::decode(&mut &bytes[..], u64::MAX - 4, 4096), None, "the stream");
        assert_eq!(Row::decode(&mut &bytes[..], 0, u64::MAX - 9), None, "the position");
        let far = encoded(&Row { start: u64::MAX - 9, ..row }, 0);
        assert_eq!(Row::decode(&mut &far[..], 0, 4096), None, "the end of the run");
        let mut many = row;
        many.body.as_mut().unwrap().first_record = RECORDS_MAX;
        assert_eq!(Row::decode(&mut &encoded(&many, 0)[..], 0, 4096), None, "the records");
    }
}
