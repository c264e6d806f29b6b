//! Forks: streams that begin with bytes of another stream, shared instead of copied.
//!
//! # How a fork is made
//! Source and fork may live in different groups, whose logs know nothing of each other. So it takes
//! three steps, each an entry of one log:
//! 1. `Pin` in the source's group takes a reference under a [`PinToken`];
//! 2. `Create` in the fork's group makes the fork, which holds that token;
//! 3. `Unpin` in the source's group gives the reference back, if step 2 was refused, or later when
//!    the fork is deleted.
//!
//! A crash between 1 and 2 leaves a pin whose fork was never created. When the group opens again, its
//! owner asks the fork's group and gives the reference back. A crash between the fork's deletion and 3
//! loses nothing: the deleted fork's group keeps the pending unpin in its state until `UnpinDone`.
//!
//! # Reading
//! A fork keeps its whole [`Lineage`], so a read of any inherited byte goes straight to the stream
//! that stores it, however long the chain is.

use crate::Lifetime;
use model::{ByteOffset, GroupId, StreamKey, StreamPath, Term};
use std::sync::Arc;

/// What a client asked for; a repeated `PUT` must ask for the same. PROTOCOL §4.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkRequest {
    /// Path of the source stream.
    pub source: StreamPath,
    /// `Stream-Fork-Offset`; `None` is the source's tail at that moment.
    pub offset: Option<ByteOffset>,
    /// `Stream-Fork-Sub-Offset`: JSON messages, or bytes, past the offset.
    pub sub_offset: u64,
}

/// Names one reference that a fork holds on its source: unique, made by the fork's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinToken {
    /// The group of the fork.
    pub fork_group: GroupId,
    /// The term of that group's leader when it began to make the fork.
    pub term: Term,
    /// Random; 64 bits make a clash within one source's pins as good as impossible.
    pub nonce: u64,
}

/// A reference to take on a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Its name.
    pub token: PinToken,
    /// The first byte that the fork needs.
    pub from: ByteOffset,
    /// The path of the fork that is to come, so that an orphaned pin can be found out.
    pub fork_path: StreamPath,
}

/// Where a fork branches off, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// What was asked for.
    pub request: ForkRequest,
    /// The source stream.
    pub source: StreamKey,
    /// The reference held on it.
    pub token: PinToken,
    /// First byte that the fork does not share.
    pub at: ByteOffset,
    /// First byte that the source still retains.
    pub head: ByteOffset,
    /// Number of the record at `head`.
    pub head_record: u64,
    /// Number of the first record that the fork does not share. One that it shares in part counts as shared.
    pub records: u64,
    /// The largest record time up to `at`, if the source has record times.
    pub mark: Option<u64>,
    /// The lifetime that the request named, before the source's was inherited.
    pub lifetime: Lifetime,
    /// Where the shared bytes are.
    pub lineage: Lineage,
}

/// A part of a fork's inherited bytes that one stream stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// After its last byte.
    pub end: ByteOffset,
    /// Number of the first record behind it.
    pub next_record: u64,
    /// The stream that stores it.
    pub owner: StreamKey,
}

/// Which stream stores which part of a fork's inherited bytes, in order, without gaps from 0.
///
/// Shared between a fork's state and the reads under way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage(Arc<[Span]>);

impl Lineage {
    /// The lineage of a fork of `source`, which has `own` lineage itself, at `at`; the number of the first record behind
    /// that is `next_record`.
    #[must_use]
    pub fn of_fork(own: &Self, source: StreamKey, (at, next_record): (ByteOffset, u64)) -> Self {
        let mut spans: Vec<Span> =
            own.0.iter().copied().take_while(|span| span.end <= at).collect();
        let inherited = spans.last().map_or(ByteOffset::ZERO, |span| span.end);
        if inherited < at {
            let owner = own.span_at(inherited).map_or(source, |span| span.owner);
            spans.push(Span { end: at, next_record, owner });
        }
        Self::from_spans(spans)
    }

    /// Makes a lineage of spans in rising order.
    ///
    /// # Panics
    /// If their ends do not rise, or their records fall.
    #[must_use]
    pub fn from_spans(spans: Vec<Span>) -> Self {
        let rises =
            |pair: &[Span]| pair[0].end < pair[1].end && pair[0].next_record <= pair[1].next_record;
        assert!(spans.windows(2).all(rises), "lineage spans must rise");
        Self(spans.into())
    }

    /// The spans in rising order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.0
    }

    /// The inherited span that holds the byte at `offset`; `None` if that byte is the stream's own.
    #[must_use]
    pub fn span_at(&self, offset: ByteOffset) -> Option<Span> {
        let position = self.0.partition_point(|span| span.end <= offset);
        self.0.get(position).copied()
    }

    /// The inherited span that holds the record with this number; `None` if it is the stream's own.
    #[must_use]
    pub fn span_of_record(&self, number: u64) -> Option<Span> {
        let position = self.0.partition_point(|span| span.next_record <= number);
        self.0.get(position).copied()
    }

    /// Number of streams in the chain before this one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::StreamId;

    fn key(stream: u64) -> StreamKey {
        StreamKey { group: GroupId::new(0), stream: StreamId::new(stream) }
    }

    fn at(bytes: u64) -> ByteOffset {
        ByteOffset::new(bytes)
    }

    fn span(end: u64, next_record: u64, stream: u64) -> Span {
        Span { end: at(end), next_record, owner: key(stream) }
    }

    #[test]
    fn a_fork_of_a_fork_goes_straight_to_the_owner_of_each_byte_and_record() {
        let first = Lineage::of_fork(&Lineage::default(), key(1), (at(10), 2));
        let second = Lineage::of_fork(&first, key(2), (at(15), 7));
        assert_eq!(second.spans(), &[span(10, 2, 1), span(15, 7, 2)]);
        let owners = [9, 10, 15].map(|byte| second.span_at(at(byte)).map(|span| span.owner));
        assert_eq!(owners, [Some(key(1)), Some(key(2)), None]);
        let owners = [1, 2, 6, 7].map(|n| second.span_of_record(n).map(|span| span.owner));
        assert_eq!(owners, [Some(key(1)), Some(key(2)), Some(key(2)), None]);
    }

    #[test]
    fn a_fork_inside_the_inherited_part_skips_the_middle_stream() {
        let first = Lineage::of_fork(&Lineage::default(), key(1), (at(10), 5));
        let second = Lineage::of_fork(&first, key(2), (at(4), 2));
        assert_eq!(second.spans(), &[span(4, 2, 1)]);
    }

    #[test]
    fn a_fork_at_zero_inherits_nothing() {
        assert_eq!(Lineage::of_fork(&Lineage::default(), key(1), (at(0), 0)).depth(), 0);
    }
}
