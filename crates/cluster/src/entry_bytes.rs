//! An entry on its way to another replica: header, command, data.
//!
//! # Why the checksums are in it
//! They are made once, by the proposer, and travel to every disk. So a bit that flips in a buffer, in a
//! network card or in a peer's memory is found before it is acknowledged.
//!
//! # Format
//! `docs/format/cluster.md`. A header of 56 bytes, then the command, then the data.

use crate::codec::DecodeError;
use crate::message::LogPosition;
use bytes::Bytes;
use model::{EntrySubject, Timestamp};

/// The kind of the entry with which a leader begins its term. It has neither command nor data.
pub const KIND_NOOP: u8 = 0;

/// The kind of an entry whose command is a [`crate::Change`].
pub const KIND_CHANGE: u8 = 250;

/// The kind of an entry whose command is a [`crate::MetaCommand`].
pub const KIND_META: u8 = 251;

/// The kind of an entry that asks each copy for a digest of its state. Its command is the number of the check, 8 bytes, little-endian.
pub const KIND_CHECK: u8 = 252;

/// Bytes of the header.
pub const ENTRY_HEAD_BYTES: usize = 56;

/// What an entry's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHead {
    /// Index and term.
    pub at: LogPosition,
    /// What the command is about.
    pub subject: EntrySubject,
    /// Wall-clock time for `apply`.
    pub time: Timestamp,
    /// Tag of the command.
    pub kind: u8,
    /// Bytes of the command.
    pub command_bytes: u32,
    /// Bytes of the data.
    pub data_bytes: u32,
    /// CRC-32C of the command.
    pub command_crc: u32,
    /// CRC-32C of the data.
    pub data_crc: u32,
}

impl EntryHead {
    /// The header of an entry with this command and no data.
    ///
    /// # Panics
    /// If the command has 4 GiB.
    #[must_use]
    pub fn of_command(at: LogPosition, time: Timestamp, kind: u8, command: &[u8]) -> Self {
        Self {
            at,
            subject: EntrySubject::new(0),
            time,
            kind,
            command_bytes: u32::try_from(command.len()).expect("commands are below 64 MiB"),
            data_bytes: 0,
            command_crc: crc32c::crc32c(command),
            data_crc: crc32c::crc32c(&[]),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_HEAD_BYTES] {
        let mut out = [0; ENTRY_HEAD_BYTES];
        let mut put = |position: usize, value: &[u8]| {
            out[position..position + value.len()].copy_from_slice(value);
        };
        put(0, &self.at.index.get().to_le_bytes());
        put(8, &self.at.term.get().to_le_bytes());
        put(16, &self.subject.get().to_le_bytes());
        put(24, &self.time.get().to_le_bytes());
        put(32, &self.command_bytes.to_le_bytes());
        put(36, &self.data_bytes.to_le_bytes());
        put(40, &self.command_crc.to_le_bytes());
        put(44, &self.data_crc.to_le_bytes());
        put(48, &[self.kind]);
        out
    }

    /// The header of an entry, all of whose bytes these are.
    ///
    /// # Errors
    /// [`DecodeError`]: too short or too long, or of a newer version. Command and data are not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(head) = bytes.first_chunk::<ENTRY_HEAD_BYTES>() else {
            return Err(DecodeError { position: bytes.len() });
        };
        let long = |position: usize| {
            u64::from_le_bytes(head[position..position + 8].try_into().expect("eight bytes"))
        };
        let word = |position: usize| {
            u32::from_le_bytes(head[position..position + 4].try_into().expect("four bytes"))
        };
        let head_of = Self {
            at: LogPosition::new(long(0), long(8)),
            subject: EntrySubject::new(long(16)),
            time: Timestamp::new(long(24)),
            kind: head[48],
            command_bytes: word(32),
            data_bytes: word(36),
            command_crc: word(40),
            data_crc: word(44),
        };
        if head[49..].iter().any(|byte| *byte != 0) {
            return Err(DecodeError { position: 49 });
        }
        if head_of.bytes() != bytes.len() as u64 {
            return Err(DecodeError { position: 32 });
        }
        Ok(head_of)
    }

    /// Bytes of the whole entry.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        ENTRY_HEAD_BYTES as u64 + u64::from(self.command_bytes) + u64::from(self.data_bytes)
    }

    /// The command of the entry whose bytes these are.
    ///
    /// # Panics
    /// If this is the header of another entry.
    #[must_use]
    pub fn command<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + self.command_bytes as usize]
    }

    /// The data of the entry whose bytes these are.
    ///
    /// # Panics
    /// If this is the header of another entry.
    #[must_use]
    pub fn data<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[ENTRY_HEAD_BYTES + self.command_bytes as usize..]
    }

    /// Whether command and data are those that the proposer had.
    ///
    /// # Panics
    /// If this is the header of another entry.
    #[must_use]
    pub fn is_intact(&self, bytes: &[u8]) -> bool {
        crc32c::crc32c(self.command(bytes)) == self.command_crc
            && crc32c::crc32c(self.data(bytes)) == self.data_crc
    }
}

/// An entry that has a command and no data, as it travels.
#[must_use]
pub fn entry_of_command(at: LogPosition, time: Timestamp, kind: u8, command: &[u8]) -> Bytes {
    let mut out = EntryHead::of_command(at, time, kind, command).encode().to_vec();
    out.extend_from_slice(command);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Bytes {
        entry_of_command(LogPosition::new(7, 3), Timestamp::new(1_000), KIND_CHANGE, b"leave")
    }

    #[test]
    fn an_entry_has_golden_bytes() {
        let golden = [
            7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0,
            0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0xb2, 0x27, 0x8c, 0x97, 0, 0, 0, 0, 250, 0, 0, 0,
            0, 0, 0, 0, b'l', b'e', b'a', b'v', b'e',
        ];
        assert_eq!(entry()[..], golden);
        let head = EntryHead::decode(&golden).unwrap();
        assert_eq!((head.at, head.kind), (LogPosition::new(7, 3), KIND_CHANGE));
        assert_eq!((head.command(&golden), head.data(&golden)), (&b"leave"[..], &b""[..]));
        assert!(head.is_intact(&golden));
    }

    #[test]
    fn a_flipped_bit_of_the_payload_is_found() {
        let mut bytes = entry().to_vec();
        let head = EntryHead::decode(&bytes).unwrap();
        bytes[ENTRY_HEAD_BYTES] ^= 1;
        assert!(!head.is_intact(&bytes));
    }

    #[test]
    fn other_lengths_and_bytes_of_a_newer_version_are_refused() {
        let bytes = entry();
        assert_eq!(EntryHead::decode(&bytes[..10]), Err(DecodeError { position: 10 }));
        assert_eq!(EntryHead::decode(&bytes[..60]), Err(DecodeError { position: 32 }));
        let mut newer = bytes.to_vec();
        newer[49] = 1;
        assert_eq!(EntryHead::decode(&newer), Err(DecodeError { position: 49 }));
    }
}
