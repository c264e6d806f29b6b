//! Records of a stream by number, by byte and by time.
//!
//! # How
//! The log finds the append ([`log::ShardLog::try_find`]). Where a record is a JSON message, its bytes are scanned for
//! the messages in front of the one that is wanted. Either may take a job.

use crate::{
    Search, ShardAnswer, ShardCore, Stamp,
    lookup::{Found, NotFound, Question},
    proposed::ReplyTo,
    reads::{Asker, PendingRead},
};
use log::{Aim, Extent, PlacedAppend, Read, ReadError, ReadMode};
use model::{ByteOffset, StreamKey};

impl ShardCore {
    /// Looks for a record in bytes of this shard; `None` if it takes a job.
    pub(crate) fn search(
        &mut self,
        now: Stamp,
        key: StreamKey,
        search: Search,
        reply_to: ReplyTo,
    ) -> Option<ShardAnswer> {
        match self.log.try_find(key, search.aim) {
            Ok(Read::Ready(append)) => self.search_append(now, key, (search, append), reply_to),
            Ok(Read::Job(extent)) => {
                let asker = Asker::Record { search, reply_to };
                self.reads.add(PendingRead { key, asker }, Question::Append, extent);
                None
            }
            Err(error) => Some(self.not_found(now, key, search, error)),
        }
    }

    /// Looks for the record in its append.
    fn search_append(
        &mut self,
        now: Stamp,
        key: StreamKey,
        (search, append): (Search, Option<PlacedAppend>),
        reply_to: ReplyTo,
    ) -> Option<ShardAnswer> {
        let Some(append) = append else { return Some(ShardAnswer::Found(Ok(None))) };
        if let Some(found) = search.without_scan(append) {
            return Some(ShardAnswer::Found(Ok(Some(found))));
        }
        let mut question = Question::Record { search, append, scan: None, last: None };
        let extent = match self.log.extent(key, append.bounds.start, 1) {
            Ok(Some(extent)) => extent,
            Ok(None) => {
                let missing = self.view(now).missing(key, append.bounds.start);
                return Some(ShardAnswer::Found(Err(missing)));
            }
            Err(error) => return Some(self.not_found(now, key, search, error)),
        };
        let asked = question.ask(&extent, ReadMode::Inline);
        self.log.note_extent(key, &extent);
        match asked {
            Ok(Some(Found::Record(found))) => Some(ShardAnswer::Found(Ok(Some(found)))),
            Ok(other) => unreachable!("a record was asked for, and not {other:?}"),
            Err(NotFound { error, .. }) if error.would_block() => {
                self.add_search(key, (search, question), extent, reply_to);
                None
            }
            Err(NotFound { error, .. }) => Some(self.not_found(now, key, search, error)),
        }
    }

    fn add_search(
        &mut self,
        key: StreamKey,
        (search, question): (Search, Question),
        extent: Extent,
        reply_to: ReplyTo,
    ) {
        let asker = Asker::Record { search, reply_to };
        self.reads.add(PendingRead { key, asker }, question, extent);
    }

    fn not_found(
        &mut self,
        now: Stamp,
        key: StreamKey,
        search: Search,
        error: ReadError,
    ) -> ShardAnswer {
        let is_time = matches!(search.aim, Aim::Time(_));
        if is_time && matches!(error, ReadError::NotFound) {
            return ShardAnswer::Found(Ok(None));
        }
        let at = if let Aim::Byte(at) = search.aim { at } else { ByteOffset::ZERO };
        let failure = self.view(now).failure_of(key, at, error);
        self.damage.note_failure(key, &failure);
        ShardAnswer::Found(Err(failure))
    }

    /// A job has looked: the answer, or `None` if it takes another one.
    pub(crate) fn record_found(
        &mut self,
        now: Stamp,
        key: StreamKey,
        (search, reply_to): (Search, ReplyTo),
        found: Result<Found, NotFound>,
    ) -> Option<ShardAnswer> {
        match found {
            Ok(Found::Append(append)) => self.search_append(now, key, (search, append), reply_to),
            Ok(Found::Record(found)) => Some(ShardAnswer::Found(Ok(Some(found)))),
            Ok(other) => unreachable!("a record was asked for, and not {other:?}"),
            Err(NotFound { error, .. }) => Some(self.not_found(now, key, search, error)),
        }
    }
}
