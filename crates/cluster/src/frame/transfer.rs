//! What the two ends of a snapshot's way say to each other.
//!
//! # How
//! The leader offers. The receiver sends what it has, the leader sends a head and files (`docs/format/snapshot.md`). Both
//! are one row of bytes, sent in pieces. The other end says up to where it has written them: no more than a window is under
//! way. An offer that is repeated asks where the other end is, so a lost link costs no more than what was on it.

use super::fields::{Fields, SECTION_HEADER_BYTES};
use crate::identity::ReplicaId;
use bytes::Bytes;
use model::GroupId;

/// Bytes of one piece at most: a frame has room for it beside others.
pub const PIECE_BYTES_MAX: usize = 64 << 10;

pub(super) const OFFER: u8 = 37;
pub(super) const PIECE: u8 = 38;
pub(super) const GOT: u8 = 39;
pub(super) const END: u8 = 40;

/// One end of a transfer says something to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The sender of this.
    pub from: ReplicaId,
    /// To whom.
    pub to: ReplicaId,
    /// The leader's number of it.
    pub number: u64,
    /// What it says.
    pub says: TransferSays,
}

/// What one end of a transfer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferSays {
    /// The leader has a snapshot. Said again it asks where the receiver is.
    Offer {
        /// It has all that the receiver has said of itself: one that does not know of it has lost it.
        is_begun: bool,
        /// Up to where it has that.
        position: u64,
    },
    /// Bytes.
    Piece {
        /// Where they begin.
        position: u64,
        /// Length of what comes first, by itself: the leader's head, or all that the receiver has to say.
        first_bytes: u64,
        /// They.
        bytes: Bytes,
    },
    /// All bytes before `position` are in their place. If it was asked: the next one to be sent is this.
    Got {
        /// The first byte that is not.
        position: u64,
        /// An offer has asked.
        is_asked: bool,
    },
    /// It is over, or does not continue for now.
    End(TransferEnd),
}

/// How far a transfer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferEnd {
    /// All is with the receiver, durable: it waits for the word of the group's leader.
    Whole,
    /// The receiver has too much to do, or is installing: ask later.
    Busy,
    /// It came to nothing. A leader that wants it begins again.
    Lost,
}

impl TransferEnd {
    fn code(self) -> u64 {
        match self {
            Self::Whole => 1,
            Self::Busy => 2,
            Self::Lost => 3,
        }
    }

    fn of_code(code: u64) -> Option<Self> {
        [Self::Whole, Self::Busy, Self::Lost].into_iter().find(|end| end.code() == code)
    }
}

impl Transfer {
    pub(super) fn payload_bytes(&self) -> usize {
        match &self.says {
            TransferSays::Piece { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    pub(super) fn fields(&self, group: GroupId, out: &mut Vec<u8>) -> Fields {
        let (from, to) = (self.from.bits(), self.to.bits());
        let of = Fields { group: group.get(), from, to, number: self.number, ..Fields::default() };
        match &self.says {
            TransferSays::Offer { is_begun, position } => {
                Fields { kind: OFFER, flag: *is_begun, index: *position, ..of }
            }
            TransferSays::Piece { position, first_bytes, bytes } => {
                out.extend_from_slice(bytes);
                Fields { kind: PIECE, index: *position, commit: *first_bytes, ..of }
            }
            TransferSays::Got { position, is_asked } => {
                Fields { kind: GOT, flag: *is_asked, index: *position, ..of }
            }
            TransferSays::End(end) => Fields { kind: END, index: end.code(), ..of },
        }
    }

    pub(super) fn decode(fields: &Fields, payload: Bytes) -> Result<Self, &'static str> {
        let replica = |bits| ReplicaId::from_bits(bits).ok_or("no replica's id");
        let (position, flag) = (fields.index, fields.flag);
        let says = match fields.kind {
            OFFER => TransferSays::Offer { is_begun: flag, position },
            PIECE => {
                if payload.is_empty() || payload.len() > PIECE_BYTES_MAX {
                    return Err("a piece of a snapshot is empty or too large");
                }
                if position.checked_add(payload.len() as u64).is_none() {
                    return Err("a piece of a snapshot has no place");
                }
                TransferSays::Piece { position, first_bytes: fields.commit, bytes: payload }
            }
            GOT => TransferSays::Got { position, is_asked: flag },
            END => {
                let end = TransferEnd::of_code(position);
                TransferSays::End(end.ok_or("a snapshot ends in an unknown way")?)
            }
            _ => return Err("a section of an unknown kind"),
        };
        let (from, to) = (replica(fields.from)?, replica(fields.to)?);
        Ok(Self { from, to, number: fields.number, says })
    }
}

const _: () = assert!(PIECE_BYTES_MAX < super::ROOM / 2 - SECTION_HEADER_BYTES);
