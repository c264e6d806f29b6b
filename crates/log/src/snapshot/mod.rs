//! A group's state on its way to another replica: the newest checkpoint, and the bytes that the receiver lacks.
//!
//! # Why
//! A follower that was away for ten minutes lacks ten minutes of bytes and not the whole group. So it says up to where it
//! has each stream, and gets what lies behind that. Chunks are the same bytes in every directory of a lineage. One that
//! the receiver lacks as a whole is sent as it is, of others what it lacks is copied into a chunk that has no name here.
//!
//! # Driving it
//! 1. The receiver: [`crate::ShardLog::tails`], a job, says what it has. One that is damaged finds out first what of it is whole:
//!    [`crate::ShardLog::sift`].
//! 2. The sender: [`crate::ShardLog::export`], a job, makes an [`Export`]: a [`SnapshotHead`] and files to read from.
//! 3. The receiver writes these files, and installs them: [`crate::ShardLog::begin_install`].
//!
//! # Invariants
//! - An export holds all bytes that the checkpoint's rows name, but for those that the receiver has and those that were
//!   trimmed since, which it lists. Otherwise there is no export.
//! - A chunk of an export never names entries behind the checkpoint, nor any that the receiver has in chunks.

mod codec;
mod coverage;
mod export;
mod install;
mod parts;
mod sift;
mod tails;

pub use export::{Export, ExportError, ExportFile, ExportJob};
pub use install::{Install, InstallError, InstallFile, Installed};
pub(crate) use install::{InstallDone, InstallEnd, InstallTask, Installing};
pub(crate) use parts::Parts;
pub(crate) use sift::{SiftDone, SiftTask, Sifting, ToSift};
pub use tails::{Tails, TailsJob};

use crate::checkpoint_rows::CheckpointRow;
use crate::chunk::file::ChunkFile;
use crate::read::{ReadError, ReadMode};
use model::{ByteOffset, EntryIndex, GroupId, StreamId, Term};
use std::io;
use std::ops::Range;

/// Offsets of the bytes that a group keeps of a stream, by its row in a checkpoint. `None` if the row cannot be read.
pub type RowEnds = fn(&CheckpointRow<'_>) -> Option<Range<u64>>;

/// What an export is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHead {
    /// The group.
    pub group: GroupId,
    /// The last entry that its checkpoint covers.
    pub index: EntryIndex,
    /// The term of that entry.
    pub term: Term,
    /// The directory whose checkpoint it is: its checksums are seeded with that.
    pub store: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of each chunk.
    pub chunk_bytes: Vec<u64>,
    /// Streams that were trimmed since, and where what is kept of them begins. In order.
    pub trimmed: Vec<(StreamId, ByteOffset)>,
}

/// Compares all checksums of a chunk, those of both copies of its pages, too, whatever was found intact before. What is damaged in
/// it may be what nobody wants.
fn is_intact(chunk: &ChunkFile) -> io::Result<bool> {
    chunk.check_again();
    let mut rows = Vec::new();
    let is_whole = chunk.check_rows(|row| rows.push(row))?.is_empty();
    if !is_whole || !chunk.check_index()?.is_empty() {
        return Ok(false);
    }
    for row in rows {
        let run = (row.position, u64::from(row.length));
        let table = (row.table_position(), u64::from(row.table_length));
        for part in [run, table] {
            match chunk.verify(&row, part, ReadMode::Blocking) {
                Ok(()) => {}
                Err(ReadError::Damaged { .. }) => return Ok(false),
                Err(ReadError::Io(error)) => return Err(error),
                Err(other) => panic!("a chunk was read by its own rows: {other}"),
            }
        }
    }
    Ok(true)
}
