//! Puts large sections together again.

use super::section::{Section, piece};
use super::{FrameError, SECTION_BYTES_MAX};
use bytes::{Bytes, BytesMut};

/// The large section of one link that is on its way.
///
/// Parts of one section come in order, and one section at a time: that is how
/// [`super::Outbox`] sends them.
#[derive(Debug, Default)]
pub struct Parts {
    number: u64,
    total: u64,
    bytes: BytesMut,
}

impl Parts {
    /// Takes a part, and returns the section if it was the last one.
    ///
    /// # Errors
    /// [`FrameError::Content`]: a part is missing, or too many bytes are promised.
    pub fn take(&mut self, part: &Section) -> Result<Option<Section>, FrameError> {
        let wrong = |what| Err(FrameError::Content { position: 0, what });
        let Section::Part { number, position, total, bytes } = part else {
            return wrong("this is no part");
        };
        if *position == 0 && self.bytes.is_empty() {
            if *total > SECTION_BYTES_MAX as u64 {
                return wrong("a section is too large");
            }
            (self.number, self.total) = (*number, *total);
        }
        let held = self.bytes.len() as u64;
        let is_next = *number == self.number && *total == self.total && *position == held;
        if !is_next || held + bytes.len() as u64 > self.total || bytes.is_empty() {
            return wrong("a part does not follow the one before");
        }
        // Memory grows with what has arrived, not with what is promised.
        self.bytes.extend_from_slice(bytes);
        if (self.bytes.len() as u64) < self.total {
            return Ok(None);
        }
        let whole: Bytes = self.bytes.split().freeze();
        let place = piece(&whole, 0)?;
        if place.end != whole.len() {
            return wrong("the parts are no section");
        }
        match Section::decode(&whole, &place)? {
            Section::Part { .. } => wrong("a part of a part"),
            section => Ok(Some(section)),
        }
    }

    /// Bytes that wait for the rest of their section.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.len()
    }
}
