//! What a shard's streams have lost, for an operator who wants to know and may accept it.
//!
//! # Driving it
//! On a node that serves nobody: [`ShardCore::examine`], then [`ShardCore::accept_loss`] for files that it names.

use crate::ShardCore;
use log::{ChunkLoss, LostPart, LostRange, ReadError};
use model::{ByteOffset, GroupId, StreamId, StreamKey, StreamPath};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

/// What a stream has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamLoss {
    /// Its path.
    pub path: StreamPath,
    /// Ranges of offsets, in order.
    pub ranges: Vec<LostRange>,
    /// Its tail.
    pub tail: ByteOffset,
}

/// What a shard has lost.
#[derive(Debug, Default)]
pub struct Losses {
    /// Parts of chunk files.
    pub chunks: Vec<ChunkLoss>,
    /// Streams that lack bytes.
    pub streams: Vec<StreamLoss>,
}

impl ShardCore {
    /// Looks at all chunks, and finds out which streams lack which bytes for what is damaged in them.
    ///
    /// # Errors
    /// Any error of the underlying disk; damage is none.
    pub fn examine(&self) -> io::Result<Losses> {
        let chunks = self.log.examine()?;
        let mut streams = Vec::new();
        let groups: BTreeSet<GroupId> = chunks.iter().map(|loss| loss.group).collect();
        for group in groups {
            let of_group = chunks.iter().filter(|loss| loss.group == group);
            self.lost_of_group(group, &Damaged::of(of_group), &mut streams)?;
        }
        Ok(Losses { chunks, streams })
    }

    fn lost_of_group(
        &self,
        group: GroupId,
        damaged: &Damaged,
        found: &mut Vec<StreamLoss>,
    ) -> io::Result<()> {
        for stored in self.groups.get(group).state.stored() {
            let ranges = damaged.ranges.get(&stored.stream);
            if ranges.is_none() && !damaged.hits_anybody {
                continue;
            }
            let key = StreamKey { group, stream: stored.stream };
            let whole = (stored.head, stored.tail);
            let ranges = self.log.gaps(key, whole, ranges.map_or(&[], |ranges| &ranges[..]));
            let ranges = ranges.map_err(|error| match error {
                ReadError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })?;
            if !ranges.is_empty() {
                found.push(StreamLoss { path: stored.path.clone(), ranges, tail: stored.tail });
            }
        }
        Ok(())
    }

    /// Accepts what is lost of a chunk that [`ShardCore::examine`] has named: what is intact is copied, and the file goes.
    ///
    /// # Errors
    /// Any error of the underlying disk, and `StorageFull` if there is no room for the copy. The file is there then.
    pub fn accept_loss(&mut self, group: GroupId, file: &Path) -> io::Result<()> {
        self.log.accept_loss(group, file)
    }
}

/// What is damaged in the chunks of a group.
#[derive(Debug, Default)]
struct Damaged {
    /// Bytes of streams, in order.
    ranges: BTreeMap<StreamId, Vec<LostRange>>,
    /// What is lost may be of any stream.
    hits_anybody: bool,
}

impl Damaged {
    fn of<'a>(losses: impl Iterator<Item = &'a ChunkLoss>) -> Self {
        let mut damaged = Self::default();
        for loss in losses {
            match loss.lost {
                LostPart::Headers | LostPart::Rows(_) => damaged.hits_anybody = true,
                LostPart::Bytes { stream, from, to, .. } => {
                    damaged.ranges.entry(stream).or_default().push((from, to));
                }
                LostPart::AppendEnds { .. } => {}
            }
        }
        damaged
    }
}
