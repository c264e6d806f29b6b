//! What goes into the log and what the log remembers of it.

use bytes::Bytes;
use model::{ByteOffset, EntryIndex, EntrySubject, GroupId, Term, Timestamp};

/// An entry to append. The log gives it the next index of its group.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// The group whose log grows; it must belong to the shard.
    pub group: GroupId,
    /// Raft term under which the entry is written.
    pub term: Term,
    /// What the command is about.
    pub subject: EntrySubject,
    /// Wall-clock time that `apply` will see.
    pub at: Timestamp,
    /// Tag of the command; the log does not interpret it.
    pub kind: u8,
    /// The encoded command, without the data.
    pub command: &'a [u8],
    /// Bytes that a stream may take over, in wire format.
    pub data: &'a [u8],
}

/// An entry that the log has, with what it carries as `B`: see [`NewEntry`] for the fields. Only the log
/// makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<B> {
    /// The group that it belongs to.
    pub group: GroupId,
    /// Its position in the group's log.
    pub index: EntryIndex,
    /// Raft term under which it was written.
    pub term: Term,
    /// What the command is about.
    pub subject: EntrySubject,
    /// Wall-clock time for `apply`.
    pub at: Timestamp,
    /// Tag of the command.
    pub kind: u8,
    /// The encoded command, without the data.
    pub command: B,
    /// Bytes that a stream may take over. Replayed, they are as they are on disk: their number is the one
    /// that was written, but they may be damaged. That is reported behind the entry, as
    /// `DamageKind::EntryData`.
    pub data: B,
    pub(crate) place: DataPlace,
}

/// An entry that a sync has made durable. What it carries shares its batch's memory.
pub type DurableEntry = Entry<Bytes>;

/// What a replica must not forget over a restart, beside its entries. The log keeps the last one of each replicated
/// group; what it means is the owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The last term that the replica has seen.
    pub term: Term,
    /// For whom it voted in that term; 0 for nobody.
    pub vote: u64,
    /// The last entry that it knows as committed.
    pub commit: EntryIndex,
}

/// The place of an entry's data in the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataPlace {
    pub(crate) slot: u16,
    pub(crate) position: u32,
    pub(crate) crc: u32,
}

/// One append of a stream: the unit that was written atomically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendBounds {
    /// Offset of its first byte.
    pub start: ByteOffset,
    /// Offset after its last byte.
    pub end: ByteOffset,
    /// Records that it holds.
    pub records: u32,
    /// Wall-clock time of the append.
    pub at: Timestamp,
}
