//! What of a stream is dropped: what lies before its head, and what neither it nor a fork needs.
//!
//! The *head* is where readers of the stream begin. The *floor* is the first byte that is kept: forks may need
//! bytes before the head. A deleted stream has no readers, so its floor is what forks need.
//!
//! # Invariants
//! - `floor <= head <= tail`. The head never falls.
//! - The number of the record at the head is the state's, not the log's: what was before it may be gone.

use crate::{
    Applied, Effect, GroupState, Outcome, Pin, PinToken, Refusal, Trim,
    pins::Pinned,
    record::{NO_EXTRA, StreamRecord},
};
use model::{ByteOffset, StreamId};

impl StreamRecord {
    /// The first byte that the stream or a fork of it needs.
    pub(crate) fn floor(&self) -> ByteOffset {
        let needed = self.extra.as_deref().unwrap_or(&NO_EXTRA).pins.first_needed();
        match needed {
            Some(needed) if self.deleted => needed.min(self.tail),
            Some(needed) => needed.min(self.head),
            None => self.head,
        }
    }

    /// Number of the record at the head.
    pub(crate) fn first_record(&self) -> u64 {
        self.extra.as_deref().unwrap_or(&NO_EXTRA).head_record
    }

    /// What becomes free if the floor was at `before`.
    pub(crate) fn rise_from(&self, before: ByteOffset) -> Option<Effect> {
        let floor = self.floor();
        (floor > before).then_some(Effect::Trim(self.id, floor))
    }
}

impl GroupState {
    pub(crate) fn apply_trim(&mut self, stream: StreamId, trim: Trim) -> Applied {
        let record = match self.record_to_change(stream) {
            Ok(record) => record,
            Err(refusal) => return Applied::refuse(refusal),
        };
        let before = record.floor();
        if trim.to > record.head {
            let is_all = trim.to >= record.tail;
            let first_record = if is_all { record.next_record } else { trim.first_record };
            record.head = trim.to.min(record.tail);
            let first_record = first_record.clamp(record.first_record(), record.next_record);
            record.extra_mut().head_record = first_record;
        }
        let outcome = Outcome::Trimmed { head: record.head, first_record: record.first_record() };
        Applied { effect: record.rise_from(before), ..Applied::answer(outcome) }
    }

    pub(crate) fn apply_pin(&mut self, stream: StreamId, pin: Pin) -> Applied {
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::ForkSourceNotFound);
        };
        if record.deleted {
            return Applied::refuse(Refusal::ForkSourceGone);
        }
        let Pin { token, from, fork_path } = pin;
        // What lies before the head of this moment may be gone: the fork learns where the head is.
        let from = from.max(record.floor());
        record.extra_mut().pins.add(token, Pinned { from, fork_path });
        Applied::answer(Outcome::Pinned { head: record.head, first_record: record.first_record() })
    }

    pub(crate) fn apply_unpin(&mut self, stream: StreamId, token: PinToken) -> Applied {
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::answer(Outcome::Done);
        };
        let before = record.floor();
        if let Some(extra) = &mut record.extra {
            extra.pins.remove(token);
        }
        let is_unused = record.deleted && !record.is_pinned();
        let rise = record.rise_from(before);
        let effect = if is_unused { self.purge(stream) } else { rise };
        Applied { effect, ..Applied::answer(Outcome::Done) }
    }
}
