//! Links between nodes: frames in order, until a suffix is lost.

use bytes::Bytes;
use cluster::{Class, Frame, Outbox, Parts, Section};
use model::Timestamp;

/// One way between two nodes: a link for each class.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) raft: Lane,
    pub(super) bulk: Lane,
    /// Nothing arrives.
    pub(super) is_cut: bool,
}

/// One link.
#[derive(Debug, Default)]
pub(super) struct Lane {
    outbox: Outbox,
    parts: Parts,
    /// Frames of an earlier connection are lost.
    pub(super) connection: u64,
    /// When the last frame arrives: the next does not overtake it.
    arrives_us: u64,
}

/// Bytes of large transfers that a link carries in a microsecond.
const BULK_BYTES_PER_US: u64 = 4;

pub(super) const CLASSES: [Class; 2] = [Class::Raft, Class::Bulk];

impl Wire {
    pub(super) fn lane(&mut self, class: Class) -> &mut Lane {
        match class {
            Class::Raft => &mut self.raft,
            Class::Bulk => &mut self.bulk,
        }
    }

    pub(super) fn push(&mut self, section: Section) {
        self.lane(section.class()).outbox.push(section);
    }

    /// The connections are lost, with all that was under way; the next ones begin empty.
    pub(super) fn reset(&mut self) {
        CLASSES.into_iter().for_each(|class| self.lane(class).reset());
    }

    /// The next frame of a link, and when it arrives.
    pub(super) fn next_frame(
        &mut self,
        class: Class,
        at: Timestamp,
        (now_us, delay_us): (u64, u64),
    ) -> Option<(u64, Bytes)> {
        let lane = self.lane(class);
        let mut bytes = Vec::new();
        if !lane.outbox.next_frame(at, &mut bytes) {
            return None;
        }
        let carried_us = match class {
            Class::Raft => 0,
            Class::Bulk => bytes.len() as u64 / BULK_BYTES_PER_US,
        };
        lane.arrives_us = (lane.arrives_us + carried_us).max(now_us + delay_us);
        Some((lane.arrives_us, bytes.into()))
    }
}

impl Lane {
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
