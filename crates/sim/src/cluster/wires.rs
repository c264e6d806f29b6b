//! Links between nodes: frames in order, until a suffix is lost.

use bytes::Bytes;
use cluster::{Frame, Outbox, Parts, Section};
use model::Timestamp;

/// One way between two nodes.
#[derive(Debug, Default)]
pub(super) struct Wire {
    outbox: Outbox,
    parts: Parts,
    /// Nothing arrives.
    pub(super) is_cut: bool,
    /// Frames of an earlier connection are lost.
    pub(super) connection: u64,
    /// When the last frame arrives: the next does not overtake it.
    arrives_us: u64,
}

impl Wire {
    pub(super) fn push(&mut self, section: Section) {
        self.outbox.push(section);
    }

    /// The next frame, and when it arrives.
    pub(super) fn next_frame(
        &mut self,
        at: Timestamp,
        (now_us, delay_us): (u64, u64),
    ) -> Option<(u64, Bytes)> {
        let mut bytes = Vec::new();
        if !self.outbox.next_frame(at, &mut bytes) {
            return None;
        }
        self.arrives_us = self.arrives_us.max(now_us + delay_us);
        Some((self.arrives_us, bytes.into()))
    }

    /// The connection is lost, with all that was under way; the next one begins empty.
    pub(super) fn reset(&mut self) {
        self.connection += 1;
        (self.outbox, self.parts, self.arrives_us) = (Outbox::new(), Parts::default(), 0);
    }

    /// Whole sections of a frame that has arrived.
    pub(super) fn arrive(&mut self, bytes: &Bytes) -> Vec<Section> {
        let frame = Frame::decode(bytes).expect("a frame is as it was sent");
        let mut sections = Vec::new();
        for section in frame.sections {
            match section {
                Section::Part { .. } => {
                    let whole = self.parts.take(&section).expect("parts come in order");
                    sections.extend(whole);
                }
                section => sections.push(section),
            }
        }
        sections
    }
}
