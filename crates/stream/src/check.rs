//! What must be true of a group between two commands.
//!
//! The owner of a [`GroupState`] calls [`GroupState::check`] at the end of each turn in a debug
//! build, and the simulator does so in every run.

use crate::{GroupState, expiries::Noted, record::StreamRecord};

/// Up to this many streams, a check looks at all of them. Beyond it would cost more than the turn.
const CHECKED_STREAMS_MAX: usize = 256;

impl GroupState {
    /// Asserts the invariants of the group.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        self.streams.check_sizes();
        if self.stream_count() > CHECKED_STREAMS_MAX {
            return;
        }
        self.streams.check_paths();
        self.streams.check_copy();
        for record in self.streams.sorted() {
            self.check_record(record);
        }
        self.check_expiries();
    }

    fn check_record(&self, record: &StreamRecord) {
        let id = record.id;
        assert!((1..=self.applied.get()).contains(&id.get()), "no applied entry made stream {id}");
        assert!(record.head <= record.tail, "stream {id} retains what it does not hold");
        let (floor, first) = (record.floor(), record.first_record());
        assert!(record.deleted || floor <= record.head, "stream {id} drops what it retains");
        assert!(first <= record.next_record, "stream {id} retains records that it does not hold");
        record.extra.iter().for_each(|extra| extra.pins.check());
        assert!(
            record.created_at.get() <= record.written_at.get(),
            "stream {id} was written before it was made"
        );
        let (used_at, logged_at) = (record.used_at(), record.logged_used_at());
        assert!(logged_at <= used_at, "stream {id} was used later than last");
        if record.deleted {
            assert!(record.is_pinned(), "stream {id} is deleted, but no fork needs it");
        }
        if let Some(fork) = record.fork() {
            assert!(fork.at <= record.tail, "stream {id} lacks what it inherits");
            assert!(
                !self.pending_unpins.contains_key(&fork.token),
                "stream {id} gave its source back"
            );
        }
    }

    /// A stream that can expire comes up when it does.
    fn check_expiries(&self) {
        let mortal = |record: &&StreamRecord| record.deadline().is_some() && !record.deleted;
        for record in self.streams.sorted().into_iter().filter(mortal) {
            let is_noted = self.expiries.has(record.noted, record.id);
            let is_lost = self.losses.is_lost(record.id);
            let is_near = record.deadline().is_some_and(Noted::is_noted);
            assert!(is_noted || is_lost || !is_near, "stream {} never expires", record.id);
        }
        let noted = |record: &&&StreamRecord| record.noted != Noted::NEVER;
        let count = self.streams.sorted().iter().filter(noted).count();
        assert_eq!(count, self.expiries.len(), "streams that are gone come up");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ContentType, Create, Layout, Lifetime, LoggedCommand, Pin, PinToken};
    use model::{ByteOffset, EntryIndex, GroupId, StreamId, StreamPath, Term, Timestamp};

    /// One stream, number 1, with 10 bytes, a lifetime and a fork that needs it.
    fn group() -> GroupState {
        let mut state = GroupState::new(GroupId::new(0));
        let path = StreamPath::new("a").unwrap();
        let create = Create {
            path: path.clone(),
            content_type: ContentType::new("text/plain"),
            layout: Layout::Bytes,
            lifetime: Lifetime::Ttl { seconds: 60 },
            close: false,
            record_count: 1,
            retention: crate::Retention::default(),
            record_time: None,
            fork: None,
        };
        let token = PinToken { fork_group: GroupId::new(1), term: Term::new(1), nonce: 7 };
        let pin = Pin { token, from: ByteOffset::ZERO, fork_path: path };
        for command in [Command::Create(Box::new(create)), Command::Pin(pin)] {
            let subject = command.subject(Some(StreamId::new(1)));
            let logged = LoggedCommand { subject, command, data_bytes: 10 };
            state.apply(state.applied().next(), Timestamp::new(1000), logged);
        }
        state.check();
        state
    }

    /// What a check says of a group that `harm` has broken; nothing if it finds nothing.
    fn found(harm: impl FnOnce(&mut GroupState)) -> String {
        let mut state = group();
        harm(&mut state);
        let found = std::panic::catch_unwind(|| state.check()).err();
        found.map_or_else(String::new, |said| *said.downcast::<String>().expect("a sentence"))
    }

    fn found_in_record(harm: impl FnOnce(&mut StreamRecord)) -> String {
        found(|state| harm(state.streams.get_mut(StreamId::new(1)).unwrap()))
    }

    #[test]
    fn a_check_names_each_broken_invariant_of_a_group() {
        let future = found(|state| state.applied = EntryIndex::new(0));
        assert_eq!(future, "no applied entry made stream 1");
        assert_eq!(found(|state| state.expiries.clear()), "stream 1 never expires");
        assert_eq!(found(|_| {}), "");
    }

    #[test]
    fn a_check_names_each_broken_invariant_of_a_stream() {
        let head = found_in_record(|record| record.head = ByteOffset::new(11));
        assert_eq!(head, "stream 1 retains what it does not hold");
        let written = found_in_record(|record| record.written_at = Timestamp::new(0).into());
        assert_eq!(written, "stream 1 was written before it was made");
        let used = found_in_record(|record| {
            record.extra_mut().uses.logged_at = Timestamp::new(2000);
        });
        assert_eq!(used, "stream 1 was used later than last");
        let path = found_in_record(|record| record.path = StreamPath::new("b").unwrap());
        assert!(path.contains("\"b\" is not found"), "{path}");
        let purged = found_in_record(|record| (record.deleted, record.extra) = (true, None));
        assert_eq!(purged, "stream 1 is deleted, but no fork needs it");
        let unpinned = found_in_record(|record| record.extra = None);
        assert_eq!(unpinned, "", "a stream needs no fork");
    }
}
