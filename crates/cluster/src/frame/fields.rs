//! The header of a section.

use crate::message::LogPosition;

pub(super) const SECTION_HEADER_BYTES: usize = 64;

/// The fields of a header, by place. What a kind does not use is 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fields {
    pub(super) group: u16,
    pub(super) kind: u8,
    /// One bit: a vote is granted, an election was asked for, a barrier found no leader.
    pub(super) flag: bool,
    pub(super) payload_bytes: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) term: u64,
    pub(super) index: u64,
    pub(super) log_term: u64,
    pub(super) commit: u64,
    pub(super) number: u64,
}

impl Fields {
    pub(super) fn encode(&self) -> [u8; SECTION_HEADER_BYTES] {
        let mut out = [0; SECTION_HEADER_BYTES];
        out[..2].copy_from_slice(&self.group.to_le_bytes());
        out[2] = self.kind;
        out[3] = u8::from(self.flag);
        out[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        let longs =
            [self.from, self.to, self.term, self.index, self.log_term, self.commit, self.number];
        for (at, long) in longs.iter().enumerate() {
            out[8 + at * 8..16 + at * 8].copy_from_slice(&long.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let long = |at: usize| {
            let range = 8 + at * 8..16 + at * 8;
            u64::from_le_bytes(bytes[range].try_into().expect("eight bytes"))
        };
        Self {
            group: u16::from_le_bytes([bytes[0], bytes[1]]),
            kind: bytes[2],
            flag: bytes[3] > 0,
            payload_bytes: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
            from: long(0),
            to: long(1),
            term: long(2),
            index: long(3),
            log_term: long(4),
            commit: long(5),
            number: long(6),
        }
    }

    pub(super) fn position(&self) -> LogPosition {
        LogPosition::new(self.index, self.log_term)
    }
}
