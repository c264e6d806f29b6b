//! A digest of a group's state, so that copies can be compared without sending them.
//!
//! # What
//! The sum of the digests of its rows and of its header: rows come in no order.

use crate::codec::{DecodeError, Reader, Writer};
use model::{EntryIndex, GroupId, StreamId};
use sha2::{Digest, Sha256};

/// The state of a group as a number. Equal states have equal ones; others have equal ones by a chance of about 2^-128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDigest(u128);

impl StateDigest {
    /// That of a group without streams.
    #[must_use]
    pub fn of_header(header: &[u8]) -> Self {
        Self(part([b"header", header]))
    }

    /// A stream of the group.
    pub fn add_row(&mut self, stream: StreamId, row: &[u8]) {
        self.0 = self.0.wrapping_add(part([&stream.get().to_le_bytes(), row]));
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u128 {
        self.0
    }
}

/// The first half of a hash, as a little-endian number.
fn part(of: [&[u8]; 2]) -> u128 {
    let mut hash = Sha256::new();
    of.into_iter().for_each(|bytes| hash.update(bytes));
    let hash = hash.finalize();
    u128::from_le_bytes(hash[..16].try_into().expect("a hash has 32 bytes"))
}

/// What a copy says of its state at the entry that has asked for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckReport {
    /// The group.
    pub group: GroupId,
    /// Which check: [`crate::Meta::checks`] when it was asked for.
    pub number: u64,
    /// The entry.
    pub index: EntryIndex,
    /// The state behind it.
    pub digest: StateDigest,
}

impl CheckReport {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        writer.number(self.group.get().into());
        writer.number(self.number);
        writer.number(self.index.get());
        out.extend_from_slice(&self.digest.0.to_le_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (group, number) = (GroupId::new(reader.short()?), reader.number()?);
        let index = EntryIndex::new(reader.number()?);
        let digest = reader.take(size_of::<u128>())?;
        let digest = u128::from_le_bytes(digest.try_into().expect("so many were taken"));
        Ok(Self { group, number, index, digest: StateDigest(digest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(header: &[u8], rows: &[(u64, &[u8])]) -> StateDigest {
        let mut digest = StateDigest::of_header(header);
        rows.iter().for_each(|(stream, row)| digest.add_row(StreamId::new(*stream), row));
        digest
    }

    #[test]
    fn equal_states_have_equal_digests_in_any_order_of_their_rows() {
        let rows: [(u64, &[u8]); 3] = [(1, b"one"), (2, b"two"), (3, b"")];
        let mut others = rows;
        others.reverse();
        assert_eq!(of(b"h", &rows), of(b"h", &others));
    }

    #[test]
    fn each_difference_changes_the_digest() {
        let rows: [(u64, &[u8]); 2] = [(1, b"one"), (2, b"two")];
        let all = [
            of(b"h", &rows),
            of(b"i", &rows),
            of(b"h", &rows[..1]),
            of(b"h", &[(1, b"two"), (2, b"one")]),
            of(b"h", &[(1, b"one"), (2, b"twp")]),
            of(b"h", &[(1, b"one"), (3, b"two")]),
            of(b"h", &[(1, b"one"), (2, b"two"), (2, b"two")]),
        ];
        for (number, one) in all.iter().enumerate() {
            assert!(!all[..number].contains(one), "{number} is like one before");
        }
    }
}
