//! What recovery and background work found to be damaged.

use model::{EntryIndex, EntrySubject, GroupId, PathHash, StreamId};
use std::fmt;
use std::path::{Path, PathBuf};

/// One place where stored bytes are not what was written. Intact data around it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What is lost.
    pub kind: DamageKind,
    /// The group, if the intact parts tell it.
    pub group: Option<GroupId>,
    /// The stream, if the intact parts tell it. For an entry the owner of the log may find it by the subject.
    pub stream: Option<StreamId>,
    /// What the entry is about ([`crate::NewEntry::subject`]), if it is of one entry and known.
    pub subject: Option<EntrySubject>,
    /// Tag of the entry's command ([`crate::NewEntry::kind`]), if it is of one entry and known.
    pub entry_kind: Option<u8>,
    /// Hash of the stream's path, if a checkpoint row or the owner tells it.
    pub path_hash: Option<PathHash>,
    /// First and last index of the entries concerned, if the intact parts tell them.
    pub entries: Option<(EntryIndex, EntryIndex)>,
    /// Bytes of stream data that are lost, as far as the intact parts tell.
    pub lost_bytes: u64,
    /// The damaged file.
    pub file: PathBuf,
    /// Byte position in the file where the damage starts.
    pub position: u64,
    /// The last file in which it may be, if it may reach into others: batches are missing between two that are there.
    pub last_file: Option<PathBuf>,
}

impl Damage {
    /// A damage of which only the place is known.
    #[must_use]
    pub fn at(kind: DamageKind, file: &Path, position: u64) -> Self {
        Self {
            kind,
            group: None,
            stream: None,
            subject: None,
            entry_kind: None,
            path_hash: None,
            entries: None,
            lost_bytes: 0,
            file: file.to_owned(),
            position,
            last_file: None,
        }
    }
}

/// Which part of a file is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    /// One of the two copies of `FORMAT`: the other one is read, nothing is lost.
    FormatCopy,
    /// Header of a WAL batch; the entries that can be found are kept.
    BatchHeader,
    /// A block of a WAL cannot be read, and nothing that is known of was lost: it held what chunks and checkpoints
    /// have, or it is behind the newest batch. The last batch is lost if it was there.
    UnreadableBlock,
    /// Header of one WAL entry: that entry is lost.
    EntryHeader,
    /// Command of one WAL entry: that entry is lost.
    EntryPayload,
    /// Data of one WAL entry: it was applied, and reads of its bytes answer that they are damaged.
    EntryData,
    /// One flipped bit of a header or row was found and put right, or one of two copies is damaged: nothing is
    /// lost.
    HeaderRepaired,
    /// A WAL segment between others is not there, or a segment cannot be opened.
    SegmentMissing,
    /// Indexes that no WAL holds although later ones exist.
    EntriesMissing,
    /// Both headers of a chunk: the chunk is left in place, unused.
    ChunkHeader,
    /// Data of one append, met while it was copied into a new chunk: its bytes are lost.
    StreamData,
    /// Both copies of a page of a chunk's rows: the runs in it are lost.
    ChunkRow,
    /// Both headers of a checkpoint: the group starts from the WAL alone.
    CheckpointHeader,
    /// One row of a checkpoint's table: one unknown stream is lost.
    CheckpointRow,
    /// Payload of one checkpoint row: that stream is lost.
    CheckpointPayload,
    /// Command or data of an entry of a replicated group that is not known as committed: it was not applied, and keeps its
    /// index and term.
    UncommittedEntry,
    /// The note of a replicated group is nowhere: what its replica has promised is not known.
    NoteMissing,
}

impl DamageKind {
    /// Whether an entry may be missing of which nobody knows what it did, or what a checkpoint says of a stream. Chunks
    /// hold bytes and nothing else.
    pub(crate) fn may_hide_entries(self) -> bool {
        match self {
            Self::BatchHeader | Self::EntryHeader | Self::EntryPayload => true,
            Self::SegmentMissing | Self::EntriesMissing => true,
            Self::CheckpointHeader | Self::CheckpointRow | Self::CheckpointPayload => true,
            Self::FormatCopy | Self::UnreadableBlock | Self::HeaderRepaired => false,
            Self::NoteMissing | Self::UncommittedEntry => false,
            Self::EntryData | Self::StreamData | Self::ChunkHeader | Self::ChunkRow => false,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} damaged in {} at {}", self.kind, self.file.display(), self.position)?;
        if let Some(group) = self.group {
            write!(f, ", group {group}")?;
        }
        if let Some(stream) = self.stream {
            write!(f, ", stream {stream}")?;
        }
        if let Some((first, last)) = self.entries {
            write!(f, ", entries {first} to {last}")?;
        }
        write!(f, ", {} bytes of data lost", self.lost_bytes)
    }
}
