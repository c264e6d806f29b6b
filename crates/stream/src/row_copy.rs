//! The rows of a checkpoint, copied in slices while the streams change.
//!
//! # Why
//! A group may have half a million streams. To encode all of them takes a quarter of a second, in which the loop would
//! serve nobody. A checkpoint must show all streams at the same index, so what is not copied yet is copied before it
//! changes. Refused: rows as they are when their turn comes, with later entries replayed on top. Entries are no
//! repeatable changes, and each row would need an index of its own.
//!
//! # Driving it
//! [`GroupState::begin_rows`] at the index of the checkpoint, then [`GroupState::copy_rows`] until it says that all are
//! copied. Commands may be applied in between. Rows come in no order.
//!
//! # Invariants
//! - Each stream that was there at the beginning is copied once, as it was then. No other stream is.

use crate::{
    GroupState, StreamRow,
    checkpoint::encode_row,
    table::{Copying, StreamTable},
};
use model::TablePlace;

/// Up to this many streams, debug builds compare what was copied with what was there at the beginning.
const COMPARED_STREAMS_MAX: usize = 256;

/// Places of the table that are looked at for each row that a slice may copy: a table may be nearly empty.
const LOOKS_PER_ROW: usize = 8;

impl GroupState {
    /// Begins to copy the rows of all streams as they are now. A copy that is under way is given up.
    pub fn begin_rows(&mut self) {
        let is_compared = cfg!(debug_assertions) && self.streams.len() <= COMPARED_STREAMS_MAX;
        let expected = if is_compared { self.streams.sorted() } else { Vec::new() };
        let expected = expected.into_iter().map(|record| (record.id, record.clone())).collect();
        self.streams.begin_copy(is_compared.then_some(expected));
    }

    /// Copies at most `count_max` rows, those that changes have made necessary first; whether all are copied then.
    ///
    /// # Panics
    /// If no copy is under way.
    pub fn copy_rows(&mut self, count_max: usize, mut take: impl FnMut(StreamRow)) -> bool {
        let mut copy = self.streams.take_copy().expect("a copy was begun");
        let early_count = copy.early.len().min(count_max);
        for record in copy.early.split_off(copy.early.len() - early_count) {
            let row = encode_row(&record);
            check_row(&mut copy, &row);
            take(row);
        }
        let mut rows_left = count_max - early_count;
        for _ in 0..count_max * LOOKS_PER_ROW {
            if copy.left_count == 0 || rows_left == 0 {
                break;
            }
            if let Some(row) = copy_at(&mut self.streams, copy.next_place) {
                copy.left_count -= 1;
                rows_left -= 1;
                check_row(&mut copy, &row);
                take(row);
            }
            copy.next_place = self.streams.after(copy.next_place);
        }
        let is_done = copy.left_count == 0 && copy.early.is_empty();
        if is_done {
            let is_missing = copy.expected.is_some_and(|expected| !expected.is_empty());
            assert!(!is_missing, "streams of the beginning were not copied");
        } else {
            self.streams.put_copy(copy);
        }
        is_done
    }
}

/// Copies the record at a place, unless it is copied or came later.
fn copy_at(streams: &mut StreamTable, place: TablePlace) -> Option<StreamRow> {
    let number = streams.copy_number();
    let record = streams.at_mut(place).filter(|record| record.copied_in != number)?;
    record.copied_in = number;
    Some(encode_row(record))
}

/// Asserts that a row is that of the beginning.
fn check_row(copy: &mut Copying, row: &StreamRow) {
    if let Some(expected) = &mut copy.expected {
        let expected = expected.remove(&row.stream).map(|record| encode_row(&record));
        assert!(expected.as_ref() == Some(row), "a row differs from that at the beginning");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Append, Command, ContentType, Create, Lifetime, LoggedCommand};
    use model::{GroupId, StreamId, StreamPath, Timestamp};

    fn apply(state: &mut GroupState, stream: u64, command: Command) {
        let subject = command.subject(Some(StreamId::new(stream)));
        let logged = LoggedCommand { subject, command, data_bytes: 5 };
        state.apply(state.applied().next(), Timestamp::new(1000), logged);
    }

    fn create(state: &mut GroupState) {
        let create = Create {
            path: StreamPath::new(&format!("s{}", state.applied())).unwrap(),
            content_type: ContentType::new("text/plain"),
            layout: crate::Layout::Bytes,
            lifetime: Lifetime::Forever,
            close: false,
            record_count: 1,
            retention: crate::Retention::default(),
            record_time: None,
            fork: None,
        };
        apply(state, 0, Command::Create(Box::new(create)));
    }

    fn group(stream_count: u64) -> GroupState {
        let mut state = GroupState::new(GroupId::new(0));
        (0..stream_count).for_each(|_| create(&mut state));
        state
    }

    /// Does something to many streams, old and new.
    fn change(state: &mut GroupState, round: u64) {
        let content_type = crate::AppendType::StreamsOwn;
        for stream in (round % 7 + 1..200).step_by(7) {
            let append = Append { content_type: content_type.clone(), ..Append::default() };
            apply(state, stream, Command::Append(append));
        }
        for stream in (round % 11 + 1..200).step_by(11) {
            apply(state, stream, Command::Delete);
        }
        // The table grows and is tidied up: records change their places.
        let count = if round < 12 { 40 } else { 0 };
        (0..count).for_each(|_| create(state));
    }

    #[test]
    fn rows_are_those_of_the_beginning_whatever_changes_between_slices() {
        for count_max in [1, 2, 17, 1000] {
            let mut state = group(200);
            for _ in 0..3 {
                let expected = state.encode_rows();
                let mut rows = Vec::new();
                state.begin_rows();
                let mut round = 0;
                while !state.copy_rows(count_max, |row| rows.push(row)) {
                    state.check();
                    change(&mut state, round);
                    round += 1;
                }
                assert_eq!(count_max >= 1000, round == 0, "{round} rounds");
                rows.sort_unstable_by_key(|row| row.stream);
                assert_eq!(rows, expected);
                change(&mut state, 5);
            }
        }
    }

    #[test]
    fn a_slice_copies_no_more_than_it_may() {
        let mut state = group(100);
        state.begin_rows();
        let (mut slices, mut rows) = (0, 0);
        loop {
            let mut count = 0;
            let is_done = state.copy_rows(9, |_| count += 1);
            assert!(count <= 9, "{count} rows in one slice");
            (slices, rows) = (slices + 1, rows + count);
            if is_done {
                break;
            }
        }
        assert!(rows == 100 && slices >= 12, "{rows} rows in {slices} slices");
    }

    #[test]
    fn a_group_without_streams_has_no_rows() {
        let mut state = group(0);
        state.begin_rows();
        assert!(state.copy_rows(1, |_| panic!("there is none")));
    }
}
