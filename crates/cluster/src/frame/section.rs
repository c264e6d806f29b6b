//! One section of a frame.
//!
//! # Format
//! A header of 64 bytes and a payload; `docs/format/cluster.md` says which field means what in which kind.

use super::FrameError;
use super::fields::{Fields, SECTION_HEADER_BYTES};
use super::transfer::{END, OFFER, Transfer};
use crate::codec::Reader;
use crate::configuration::Configuration;
use crate::entry_bytes::{ENTRY_HEAD_BYTES, EntryHead, KIND_CHANGE};
use crate::identity::{NodeNumber, ReplicaId};
use crate::link::Class;
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
use bytes::Bytes;
use model::{EntryIndex, GroupId, Term};

/// Something that one node says to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// A message of one replica to another.
    Message {
        /// Their group.
        group: GroupId,
        /// What it says.
        message: GroupMessage,
    },
    /// A request for the leader of the group.
    Forward {
        /// The group.
        group: GroupId,
        /// The sender's number of it.
        request: u64,
        /// All of the sender's requests with lower numbers are settled.
        settled_below: u64,
        /// What the sender's shard encoded; opaque here.
        payload: Bytes,
    },
    /// The answer to [`Section::Forward`].
    Answer {
        /// The number of the request.
        request: u64,
        /// Opaque here.
        payload: Bytes,
    },
    /// A stream that a shard of the receiver watches has changed.
    Changed {
        /// The shard.
        shard: u16,
        /// How it is now; opaque here.
        payload: Bytes,
    },
    /// Asks the leader up to where its group must be applied before a read.
    Barrier {
        /// The group.
        group: GroupId,
        /// The sender's number of it.
        number: u64,
    },
    /// The answer to [`Section::Barrier`].
    Confirmed {
        /// The group.
        group: GroupId,
        /// The number of the barrier.
        number: u64,
        /// What the receiver of the barrier knows.
        confirmation: Confirmation,
    },
    /// A snapshot on its way from a leader to a replica.
    Transfer {
        /// The group.
        group: GroupId,
        /// What one of them says.
        transfer: Transfer,
    },
    /// What a node says of its copies: a [`crate::Report`]. It is decoded by who wants to know it, so that one of a newer
    /// program costs no link.
    Report {
        /// Opaque here.
        payload: Bytes,
    },
    /// The sender's process is about to end: do not let it lead.
    Leave {
        /// The opening of the sender that ends.
        opening: u64,
        /// It leads nothing: send it no more requests, and say when all have their answers.
        is_done: bool,
    },
    /// The answer to [`Section::Leave`]: no request of this shard is at the receiver, and none will be.
    Left {
        /// The opening of the receiver.
        opening: u64,
        /// The shard that says it.
        shard: u16,
        /// How many shards its node has.
        shard_count: u16,
    },
    /// The receiver was removed from the cluster: its process is to end. The sender keeps the links up for as long as that may take.
    Removed {
        /// The receiver's number.
        number: NodeNumber,
    },
    /// One part of a section that does not fit into a frame.
    Part {
        /// Which of the sender's large sections it is a part of.
        number: u64,
        /// Where in that section it begins.
        position: u64,
        /// Bytes of that section.
        total: u64,
        /// The bytes.
        bytes: Bytes,
    },
}

/// The answer to a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    /// Applied up to there, a read is not stale.
    At(EntryIndex),
    /// Somebody else leads, or nobody: ask again.
    NotLeader,
}

const PRE_ASK: u8 = 1;
const ASK: u8 = 2;
const PRE_VOTE: u8 = 3;
const VOTE: u8 = 4;
const APPEND: u8 = 5;
const APPENDED: u8 = 6;
const REJECTED: u8 = 7;
const HEARTBEAT: u8 = 8;
const ALIVE: u8 = 9;
const SNAPSHOT: u8 = 10;
const CAMPAIGN: u8 = 11;
const EMPTY: u8 = 12;
const COMMITTED: u8 = 13;
const FORWARD: u8 = 32;
const ANSWER: u8 = 33;
const BARRIER: u8 = 34;
const CONFIRMED: u8 = 35;
const REPORT: u8 = 41;
const LEAVE: u8 = 42;
const LEFT: u8 = 43;
const CHANGED: u8 = 44;
const REMOVED: u8 = 45;
const PART: u8 = 48;

/// Where a section is in its frame.
pub(super) struct Piece {
    start: usize,
    kind: u8,
    pub(super) end: usize,
}

/// The section at `position`: its place alone.
pub(super) fn piece(frame: &[u8], position: usize) -> Result<Piece, FrameError> {
    let wrong = |what| FrameError::Content { position, what };
    let header = frame.get(position..position + SECTION_HEADER_BYTES);
    let header = header.ok_or(wrong("a section ends behind its frame"))?;
    let fields = Fields::decode(header);
    let end = position + SECTION_HEADER_BYTES + fields.payload_bytes as usize;
    if end > frame.len() {
        return Err(wrong("a section ends behind its frame"));
    }
    Ok(Piece { start: position, kind: fields.kind, end })
}

impl Piece {
    /// Adds what the frame's checksum covers of the section.
    pub(super) fn checksum(&self, crc: u32, frame: &[u8]) -> u32 {
        let payload = self.start + SECTION_HEADER_BYTES;
        let mut crc = crc32c::crc32c_append(crc, &frame[self.start..payload]);
        if self.kind != APPEND {
            return crc32c::crc32c_append(crc, &frame[payload..self.end]);
        }
        let mut position = payload;
        while let Some(head) = frame[..self.end].get(position..position + ENTRY_HEAD_BYTES) {
            crc = crc32c::crc32c_append(crc, head);
            position = position.saturating_add(entry_bytes(head));
        }
        // Less than a header is no entry: it is refused later, with a checksum that is right.
        crc32c::crc32c_append(crc, &frame[position.min(self.end)..self.end])
    }
}

/// Bytes of the entry with this header.
fn entry_bytes(head: &[u8]) -> usize {
    let word = |position: usize| {
        u32::from_le_bytes(head[position..position + 4].try_into().expect("four bytes")) as usize
    };
    ENTRY_HEAD_BYTES + word(32) + word(36)
}

impl Section {
    /// Appends the section.
    ///
    /// # Panics
    /// If entries are without their bytes, or the payload has 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + SECTION_HEADER_BYTES, 0);
        let mut fields = self.fields(out);
        let payload = out.len() - start - SECTION_HEADER_BYTES;
        fields.payload_bytes = u32::try_from(payload).expect("sections are below 4 GiB");
        out[start..start + SECTION_HEADER_BYTES].copy_from_slice(&fields.encode());
    }

    /// Bytes of the section.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let payload = match self {
            Self::Forward { payload, .. }
            | Self::Answer { payload, .. }
            | Self::Changed { payload, .. }
            | Self::Report { payload } => payload.len(),
            Self::Part { bytes, .. } => 8 + bytes.len(),
            Self::Transfer { transfer, .. } => transfer.payload_bytes(),
            Self::Message { message, .. } => match &message.body {
                Body::Append { entries, .. } => entries.iter().map(|entry| entry.bytes.len()).sum(),
                Body::Snapshot(point) => {
                    let mut out = Vec::new();
                    point.configuration.encode(&mut out);
                    out.len()
                }
                _ => 0,
            },
            _ => 0,
        };
        SECTION_HEADER_BYTES + payload
    }

    /// The link for a whole section. Those of one class keep their order.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Transfer { .. } => Class::Bulk,
            _ => Class::Raft,
        }
    }

    /// Whether it need not go at once: an answer to a heartbeat that has asked nothing. Its leader asks every few hundred milliseconds whether
    /// one has come.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        let Self::Message { message, .. } = self else { return false };
        matches!(message.body, Body::Alive { read: 0, .. })
    }

    /// The header's fields; the payload is appended.
    fn fields(&self, out: &mut Vec<u8>) -> Fields {
        let of = |group: GroupId, kind| Fields { group: group.get(), kind, ..Fields::default() };
        match self {
            Self::Message { group, message } => Fields {
                group: group.get(),
                from: message.from.bits(),
                to: message.to.bits(),
                term: message.term.get(),
                ..message_fields(&message.body, out)
            },
            Self::Forward { group, request, settled_below, payload } => {
                out.extend_from_slice(payload);
                Fields { number: *request, index: *settled_below, ..of(*group, FORWARD) }
            }
            Self::Answer { request, payload } => {
                out.extend_from_slice(payload);
                Fields { number: *request, ..of(GroupId::new(0), ANSWER) }
            }
            Self::Changed { shard, payload } => {
                out.extend_from_slice(payload);
                Fields { index: u64::from(*shard), ..of(GroupId::new(0), CHANGED) }
            }
            Self::Barrier { group, number } => Fields { number: *number, ..of(*group, BARRIER) },
            Self::Confirmed { group, number, confirmation } => {
                let (index, flag) = match confirmation {
                    Confirmation::At(index) => (index.get(), false),
                    Confirmation::NotLeader => (0, true),
                };
                Fields { number: *number, index, flag, ..of(*group, CONFIRMED) }
            }
            Self::Transfer { group, transfer } => transfer.fields(*group, out),
            Self::Report { payload } => {
                out.extend_from_slice(payload);
                of(GroupId::new(0), REPORT)
            }
            Self::Leave { opening, is_done } => {
                Fields { number: *opening, flag: *is_done, ..of(GroupId::new(0), LEAVE) }
            }
            Self::Left { opening, shard, shard_count } => {
                let (index, commit) = (u64::from(*shard), u64::from(*shard_count));
                Fields { number: *opening, index, commit, ..of(GroupId::new(0), LEFT) }
            }
            Self::Removed { number } => {
                Fields { number: number.get().into(), ..of(GroupId::new(0), REMOVED) }
            }
            Self::Part { number, position, total, bytes } => {
                out.extend_from_slice(bytes);
                let fields = of(GroupId::new(0), PART);
                Fields { number: *number, index: *position, commit: *total, ..fields }
            }
        }
    }

    pub(super) fn decode(frame: &Bytes, piece: &Piece) -> Result<Self, FrameError> {
        let payload_start = piece.start + SECTION_HEADER_BYTES;
        let fields = Fields::decode(&frame[piece.start..payload_start]);
        let payload = frame.slice(payload_start..piece.end);
        let wrong = |what| FrameError::Content { position: piece.start, what };
        if frame[piece.start + 3] > 1 {
            return Err(wrong("a section is of a newer version"));
        }
        let group = GroupId::new(fields.group);
        let section = match fields.kind {
            FORWARD => {
                let (request, settled_below) = (fields.number, fields.index);
                Self::Forward { group, request, settled_below, payload }
            }
            CHANGED => {
                let shard = u16::try_from(fields.index).map_err(|_| wrong("no shard of a node"))?;
                Self::Changed { shard, payload }
            }
            ANSWER => Self::Answer { request: fields.number, payload },
            BARRIER => Self::Barrier { group, number: fields.number },
            CONFIRMED => {
                let confirmation = match fields.flag {
                    true => Confirmation::NotLeader,
                    false => Confirmation::At(EntryIndex::new(fields.index)),
                };
                Self::Confirmed { group, number: fields.number, confirmation }
            }
            OFFER..=END => {
                let transfer = Transfer::decode(&fields, payload).map_err(wrong)?;
                Self::Transfer { group, transfer }
            }
            REPORT => Self::Report { payload },
            LEAVE => Self::Leave { opening: fields.number, is_done: fields.flag },
            LEFT => left(&fields).ok_or(wrong("no shard of a node"))?,
            REMOVED => {
                let number =
                    u16::try_from(fields.number).map_err(|_| wrong("no number of a node"))?;
                Self::Removed { number: NodeNumber::new(number) }
            }
            PART => Self::Part {
                number: fields.number,
                position: fields.index,
                total: fields.commit,
                bytes: payload,
            },
            _ => Self::Message { group, message: message(&fields, &payload).map_err(wrong)? },
        };
        Ok(section)
    }
}

fn left(fields: &Fields) -> Option<Section> {
    let (shard, shard_count) = (fields.index.try_into().ok()?, fields.commit.try_into().ok()?);
    (shard < shard_count).then_some(Section::Left { opening: fields.number, shard, shard_count })
}

fn message_fields(body: &Body, out: &mut Vec<u8>) -> Fields {
    let of = |kind| Fields { kind, ..Fields::default() };
    let at = |position: &LogPosition, fields: Fields| Fields {
        index: position.index.get(),
        log_term: position.term.get(),
        ..fields
    };
    match body {
        Body::Ask { is_pre, is_transfer, last, commit } => {
            let fields = at(last, of(if *is_pre { PRE_ASK } else { ASK }));
            let (commit, number) = (commit.index.get(), commit.term.get());
            Fields { flag: *is_transfer, commit, number, ..fields }
        }
        Body::Vote { is_pre, is_granted, commit } => {
            let fields = of(if *is_pre { PRE_VOTE } else { VOTE });
            let (commit, number) = (commit.index.get(), commit.term.get());
            Fields { flag: *is_granted, commit, number, ..fields }
        }
        Body::Append { previous, commit, entries } => {
            for entry in entries {
                let EntryBytes::Sent(bytes) = &entry.bytes else {
                    panic!("entry {} is sent without its bytes", entry.at.index)
                };
                out.extend_from_slice(bytes);
            }
            Fields { commit: commit.get(), ..at(previous, of(APPEND)) }
        }
        Body::Appended { index, commit } => {
            Fields { index: index.get(), commit: commit.get(), ..of(APPENDED) }
        }
        Body::Rejected { index, hint, commit } => {
            let fields = at(hint, of(REJECTED));
            Fields { number: index.get(), commit: commit.get(), ..fields }
        }
        Body::Heartbeat { commit, read } => {
            Fields { commit: commit.get(), number: *read, ..of(HEARTBEAT) }
        }
        Body::Committed { commit } => Fields { commit: commit.get(), ..of(COMMITTED) },
        Body::Alive { commit, read } => Fields { commit: commit.get(), number: *read, ..of(ALIVE) },
        Body::Snapshot(point) => {
            point.configuration.encode(out);
            at(&point.last, of(SNAPSHOT))
        }
        Body::Campaign => of(CAMPAIGN),
        Body::Empty => of(EMPTY),
    }
}

fn message(fields: &Fields, payload: &Bytes) -> Result<GroupMessage, &'static str> {
    let replica = |bits| ReplicaId::from_bits(bits).ok_or("no replica's id");
    let commit = EntryIndex::new(fields.commit);
    let committed = LogPosition::new(fields.commit, fields.number);
    let body = match fields.kind {
        PRE_ASK | ASK => Body::Ask {
            is_pre: fields.kind == PRE_ASK,
            is_transfer: fields.flag,
            last: fields.position(),
            commit: committed,
        },
        PRE_VOTE | VOTE => Body::Vote {
            is_pre: fields.kind == PRE_VOTE,
            is_granted: fields.flag,
            commit: committed,
        },
        APPEND => Body::Append { previous: fields.position(), commit, entries: entries(payload)? },
        APPENDED => Body::Appended { index: EntryIndex::new(fields.index), commit },
        REJECTED => Body::Rejected {
            index: EntryIndex::new(fields.number),
            hint: fields.position(),
            commit,
        },
        HEARTBEAT => Body::Heartbeat { commit, read: fields.number },
        COMMITTED => Body::Committed { commit },
        ALIVE => Body::Alive { commit, read: fields.number },
        SNAPSHOT => {
            let configuration = configuration(payload)?;
            Body::Snapshot(SnapshotPoint { last: fields.position(), configuration })
        }
        CAMPAIGN => Body::Campaign,
        EMPTY => Body::Empty,
        _ => return Err("a section of an unknown kind"),
    };
    let (from, to) = (replica(fields.from)?, replica(fields.to)?);
    Ok(GroupMessage { from, to, term: Term::new(fields.term), body })
}

fn configuration(payload: &[u8]) -> Result<Configuration, &'static str> {
    let mut reader = Reader::new(payload);
    let configuration = Configuration::read(&mut reader);
    let configuration = configuration.map_err(|_| "a configuration makes no sense")?;
    reader.end().map_err(|_| "bytes behind a configuration")?;
    Ok(configuration)
}

fn entries(payload: &Bytes) -> Result<Vec<SentEntry>, &'static str> {
    let mut entries = Vec::new();
    let mut position = 0;
    while position < payload.len() {
        let head = payload.get(position..position + ENTRY_HEAD_BYTES);
        let end = position + entry_bytes(head.ok_or("an entry ends behind its section")?);
        if end > payload.len() {
            return Err("an entry ends behind its section");
        }
        let bytes = payload.slice(position..end);
        let head = EntryHead::decode(&bytes).map_err(|_| "an entry's header makes no sense")?;
        let is_change = head.kind == KIND_CHANGE;
        entries.push(SentEntry { at: head.at, is_change, bytes: EntryBytes::Sent(bytes) });
        position = end;
    }
    Ok(entries)
}
