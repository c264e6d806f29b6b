//! What waits to be sent on one link, and the frames that it becomes.

use super::fields::SECTION_HEADER_BYTES;
use super::section::Section;
use super::{FRAME_HEADER_BYTES, ROOM, SECTION_BYTES_MAX, seal};
use bytes::Bytes;
use model::{GroupId, Timestamp};
use std::collections::VecDeque;

/// Bytes of one part: with its header half a frame, so that what comes between has room.
const PART_BYTES: usize = ROOM / 2 - SECTION_HEADER_BYTES;

/// Bytes of small sections in one frame: beside them there is room for a part.
const SMALL_BYTES: usize = ROOM - ROOM / 2;

/// Sections on their way to one peer.
///
/// Small ones go in order. A large one goes in parts, one part in a frame. What its group says behind it
/// waits for it, and its end waits for what its group has said before. So entries do not overtake each other, and no
/// request one that came before it for the same stream. What other groups say passes.
#[derive(Debug, Default)]
pub struct Outbox {
    small: VecDeque<Section>,
    small_bytes: usize,
    /// Large sections, and what must not overtake them.
    behind: VecDeque<Section>,
    behind_bytes: usize,
    /// The large section that is being sent, and how much of it was.
    sending: Option<(Option<GroupId>, Bytes, usize)>,
    large: u64,
}

impl Outbox {
    /// Nothing to send.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a section.
    ///
    /// # Panics
    /// If it is larger than [`SECTION_BYTES_MAX`], or entries are without their bytes.
    pub fn push(&mut self, section: Section) {
        let bytes = section.encoded_bytes();
        assert!(bytes <= SECTION_BYTES_MAX, "a section has {bytes} bytes");
        let is_large = bytes > PART_BYTES;
        if is_large || self.must_wait(&section) {
            self.behind_bytes += bytes;
            self.behind.push_back(section);
        } else {
            self.small_bytes += bytes;
            self.small.push_back(section);
        }
    }

    /// Whether something of the same group is large and not sent.
    fn must_wait(&self, section: &Section) -> bool {
        let Some(group) = ordered_group(section) else { return false };
        let is_sending = self.sending.as_ref().is_some_and(|(of, ..)| *of == Some(group));
        is_sending || self.behind.iter().any(|waiting| ordered_group(waiting) == Some(group))
    }

    /// Bytes that wait.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let sending = self.sending.as_ref().map_or(0, |(_, bytes, sent)| bytes.len() - sent);
        self.small_bytes + self.behind_bytes + sending
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.small.is_empty() && self.behind.is_empty() && self.sending.is_none()
    }

    /// Appends the next frame to `out`. Returns whether there was one.
    pub fn next_frame(&mut self, at: Timestamp, out: &mut Vec<u8>) -> bool {
        if self.is_empty() {
            return false;
        }
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES, 0);
        let mut count = 0;
        while let Some(section) = self.small.front() {
            let bytes = section.encoded_bytes();
            if out.len() - start - FRAME_HEADER_BYTES + bytes > SMALL_BYTES {
                break;
            }
            section.encode(out);
            self.small_bytes -= bytes;
            self.small.pop_front();
            count += 1;
        }
        if let Some(part) = self.next_part() {
            part.encode(out);
            count += 1;
        }
        seal(&mut out[start..], at, count);
        true
    }

    /// Appends a frame without a section: it says that the sender is there.
    pub fn empty_frame(at: Timestamp, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES, 0);
        seal(&mut out[start..], at, 0);
    }

    /// Whether something small of the group is not sent, which may have come before a large one.
    fn has_small(&self, group: Option<GroupId>) -> bool {
        group.is_some() && self.small.iter().any(|section| ordered_group(section) == group)
    }

    /// The next part of a large section, or what has waited behind one.
    fn next_part(&mut self) -> Option<Section> {
        if self.sending.is_none() {
            let section = self.behind.pop_front()?;
            self.behind_bytes -= section.encoded_bytes();
            if section.encoded_bytes() <= PART_BYTES {
                return Some(section);
            }
            let mut bytes = Vec::with_capacity(section.encoded_bytes());
            section.encode(&mut bytes);
            self.large += 1;
            self.sending = Some((ordered_group(&section), bytes.into(), 0));
        }
        let (group, bytes, from) = self.sending.take()?;
        let end = (from + PART_BYTES).min(bytes.len());
        let (position, total) = (from as u64, bytes.len() as u64);
        let part = bytes.slice(from..end);
        if end < bytes.len() {
            self.sending = Some((group, bytes, end));
        } else if self.has_small(group) {
            self.sending = Some((group, bytes, from));
            return None;
        }
        Some(Section::Part { number: self.large, position, total, bytes: part })
    }
}

/// The group whose order the section must keep.
fn ordered_group(section: &Section) -> Option<GroupId> {
    use crate::message::Body;
    match section {
        Section::Message { group, message } => match message.body {
            Body::Append { .. } | Body::Snapshot(_) => Some(*group),
            _ => None,
        },
        Section::Forward { group, .. } => Some(*group),
        _ => None,
    }
}
