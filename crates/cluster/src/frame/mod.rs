//! Frames: what two nodes send each other once they know each other.
//!
//! # What
//! A frame is a header and sections. A section is a message of one group, a forwarded request or its
//! answer, or a barrier. Others are part of a snapshot's way, or of a section that is too large for one frame. So all
//! that one turn of a shard has to say to a peer is one frame and one write.
//!
//! # Checksums
//! The frame's checksum covers all but the commands and data of entries: those have their proposer's,
//! which travel on to the disk ([`crate::EntryHead`]).
//!
//! # Bounds
//! A frame has at most [`FRAME_BYTES_MAX`]. A larger section goes in parts, and other sections go
//! between them: a heartbeat never waits behind 64 MiB.
//!
//! # Format
//! `docs/format/cluster.md`. It is negotiated for each link, so no frame has a version.

mod fields;
mod outbox;
mod parts;
mod section;
#[cfg(test)]
mod tests;
mod transfer;

pub use outbox::Outbox;
pub use parts::Parts;
pub use section::{Confirmation, Section};
pub use transfer::{PIECE_BYTES_MAX, Transfer, TransferEnd, TransferSays};

use bytes::Bytes;
use model::Timestamp;
use std::fmt;

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 24;

/// Largest frame, header included.
pub const FRAME_BYTES_MAX: usize = 256 << 10;

/// Largest section: the largest entry with its header, in a message of its own.
pub const SECTION_BYTES_MAX: usize = (1 << 30) + (1 << 26) + (1 << 10);

/// Largest frame's payload that holds sections in one piece.
const ROOM: usize = FRAME_BYTES_MAX - FRAME_HEADER_BYTES;

const _: () = assert!(SECTION_BYTES_MAX < u32::MAX as usize);

/// Why bytes are no frame. The link is closed: nothing behind them can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// It says that it is larger than a frame may be, or smaller than its header.
    Length {
        /// What it says.
        bytes: u32,
    },
    /// Its checksum is wrong.
    Checksum,
    /// Its checksum is right, and it makes no sense all the same: a newer version, or a fault of the sender.
    Content {
        /// Position in the frame.
        position: usize,
        /// What makes no sense.
        what: &'static str,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { bytes } => write!(f, "a frame of {bytes} bytes"),
            Self::Checksum => f.write_str("a frame's checksum is wrong"),
            Self::Content { position, what } => write!(f, "at {position} of a frame: {what}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// A frame that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The sender's wall clock when it was made.
    pub at: Timestamp,
    /// What it holds, in order.
    pub sections: Vec<Section>,
}

impl Frame {
    /// How many bytes the frame at the start of `bytes` has; `None` if too few are there to know.
    ///
    /// # Errors
    /// [`FrameError::Length`].
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some(length) = bytes.first_chunk().map(|word| u32::from_le_bytes(*word)) else {
            return Ok(None);
        };
        let is_possible = (FRAME_HEADER_BYTES..=FRAME_BYTES_MAX).contains(&(length as usize));
        if is_possible {
            Ok(Some(length as usize))
        } else {
            Err(FrameError::Length { bytes: length })
        }
    }

    /// The frame in `bytes`, which are as many as [`Frame::length`] says. Entries share its memory.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(bytes: &Bytes) -> Result<Self, FrameError> {
        let length = Self::length(bytes)?;
        if length != Some(bytes.len()) {
            return Err(FrameError::Length { bytes: bytes.len() as u32 });
        }
        let word = |position: usize| {
            u32::from_le_bytes(bytes[position..position + 4].try_into().expect("four bytes"))
        };
        let at = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let mut crc = crc32c::crc32c(&bytes[..4]);
        crc = crc32c::crc32c_append(crc, &bytes[8..FRAME_HEADER_BYTES]);
        let mut position = FRAME_HEADER_BYTES;
        let pieces_max = (bytes.len() - FRAME_HEADER_BYTES) / fields::SECTION_HEADER_BYTES;
        let mut pieces = Vec::with_capacity(pieces_max.min(word(16) as usize));
        while position < bytes.len() {
            let piece = section::piece(bytes, position)?;
            crc = piece.checksum(crc, bytes);
            position = piece.end;
            pieces.push(piece);
        }
        if crc != word(4) {
            return Err(FrameError::Checksum);
        }
        if word(16) as usize != pieces.len() || word(20) != 0 {
            return Err(FrameError::Content {
                position: 16,
                what: "the header is of a newer version",
            });
        }
        let mut sections = Vec::with_capacity(pieces.len());
        for piece in pieces {
            sections.push(Section::decode(bytes, &piece)?);
        }
        Ok(Self { at: Timestamp::new(at), sections })
    }
}

/// Seals the frame in `out`, whose sections begin behind its header.
fn seal(out: &mut [u8], at: Timestamp, section_count: u32) {
    let length = u32::try_from(out.len()).expect("a frame is small");
    assert!(out.len() <= FRAME_BYTES_MAX, "a frame has {length} bytes");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[8..16].copy_from_slice(&at.get().to_le_bytes());
    out[16..20].copy_from_slice(&section_count.to_le_bytes());
    let mut crc = crc32c::crc32c(&out[..4]);
    crc = crc32c::crc32c_append(crc, &out[8..FRAME_HEADER_BYTES]);
    let mut position = FRAME_HEADER_BYTES;
    while position < out.len() {
        let piece = section::piece(out, position).expect("it was just written");
        crc = piece.checksum(crc, out);
        position = piece.end;
    }
    out[4..8].copy_from_slice(&crc.to_le_bytes());
}
