//! Every question that can be asked of a group, answered by both.

use crate::{
    pair::{Pair, path},
    steps::PATHS,
};
use model::{ByteOffset, StreamId, StreamPath};
use proptest::{prelude::*, test_runner::TestCaseError};
use thalweg_stream::{Pin, StreamInfo};

impl Pair {
    /// Compares all that can be seen from outside.
    pub(crate) fn compare(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.real.applied().get(), self.reference.applied);
        prop_assert_eq!(self.real.stream_count(), self.reference.streams.len());
        for number in 0..PATHS.len() {
            self.compare_path(&path(number))?;
        }
        for (stream, _) in &self.created {
            self.compare_stream(*stream)?;
        }
        self.compare_stream(StreamId::new(self.reference.applied + 1))?;
        self.compare_references()
    }

    fn compare_path(&self, path: &StreamPath) -> Result<(), TestCaseError> {
        let found = self.real.resolve(path, self.now);
        let expected = self.reference.resolve(path, self.now);
        prop_assert_eq!(&found, &expected, "{:?}", path);
        let id = self.real.resolve_id(path, self.now);
        prop_assert_eq!(id, expected.map(|info| info.stream));
        prop_assert_eq!(self.real.damaged_stream(path), None);
        if let Ok(info) = found {
            self.compare_bytes(&info)?;
        }
        let holder = self.reference.find(path);
        let expired = holder.filter(|stream| !stream.deleted && stream.is_expired(self.now));
        let expired_holder = self.real.expired_holder(path, self.now);
        prop_assert_eq!(expired_holder, expired.map(|stream| stream.id));
        let its_token = holder.and_then(|stream| stream.fork.as_ref()).map(|fork| fork.token);
        for token in &self.tokens {
            let holds =
                its_token == Some(*token) || self.reference.pending_unpins.contains_key(token);
            prop_assert_eq!(self.real.holds_token(path, *token), holds);
        }
        Ok(())
    }

    /// The bytes that a reader gets: each from the stream that stores it.
    fn compare_bytes(&self, info: &StreamInfo) -> Result<(), TestCaseError> {
        let stream = self.reference.get(info.stream).expect("was resolved");
        let written = self.reference.get(info.stream).map(|stream| stream.content_type.as_str());
        prop_assert_eq!(Some(info.content_type.as_str()), written);
        for at in info.head.get()..info.tail.get() {
            let owner = info.lineage.span_at(ByteOffset::new(at));
            let owner = owner.map_or(info.stream, |span| span.owner.stream);
            let byte = self.stored.get(&(owner, at)).copied();
            let expected = Some(stream.bytes[at as usize]);
            prop_assert_eq!(byte, expected, "{} of {}, in {}", at, info.stream, owner);
        }
        Ok(())
    }

    fn compare_stream(&self, stream: StreamId) -> Result<(), TestCaseError> {
        let expected = self.reference.get(stream);
        let alive = expected.filter(|stream| !stream.deleted);
        prop_assert_eq!(self.real.info(stream), alive.map(|stream| stream.info()));
        let floor = expected.map(|stream| ByteOffset::new(stream.floor(None) as u64));
        prop_assert_eq!(self.real.floor(stream), floor);
        prop_assert_eq!(self.real.floor_or_lost(stream), floor);
        let is_due = alive.is_some_and(|stream| stream.is_expired(self.now));
        prop_assert_eq!(self.real.is_due(stream, self.now), is_due);
        Ok(())
    }

    fn compare_references(&self) -> Result<(), TestCaseError> {
        let unpins: Vec<_> =
            self.reference.pending_unpins.iter().map(|(t, key)| (*t, *key)).collect();
        prop_assert_eq!(self.real.pending_unpins().collect::<Vec<_>>(), unpins);
        let pins = |stream: &crate::reference::Stream| {
            let id = stream.id;
            stream.pins.clone().into_iter().map(move |pin| (id, pin)).collect::<Vec<_>>()
        };
        let pins: Vec<(StreamId, Pin)> = self.reference.streams.iter().flat_map(pins).collect();
        prop_assert_eq!(self.real.pins(), pins);
        Ok(())
    }
}
