//! What can be asked of a stream. A command becomes one entry of its group's log; the bytes of an
//! append travel beside it as the entry's data, so they are copied once.

use crate::{
    Condition, ForkPoint, Layout, Lifetime, Pin, PinToken, RecordTime, Retention, RetentionChange,
    record::{ContentType, StreamRecord},
};
use model::{ByteOffset, EntrySubject, PathHash, StreamId, StreamPath, Timestamp};
use std::hash::{Hash, Hasher};

/// What a command is about. The header of its entry holds that as one number, so that it is known what was
/// lost if the command is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The path at which [`Command::Create`] makes a stream. That stream has the entry's index as its id.
    Path(PathHash),
    /// A stream that is there.
    Stream(StreamId),
    /// No stream: the group alone.
    Group,
}

impl Subject {
    /// What the header of an entry of this kind names.
    #[must_use]
    pub fn of_entry(kind: u8, number: EntrySubject) -> Self {
        match number.get() {
            0 => Self::Group,
            hash if kind == CommandKind::Create as u8 => Self::Path(PathHash::new(hash)),
            stream => Self::Stream(StreamId::new(stream)),
        }
    }

    /// As the header of an entry has it. Ids begin at 1.
    #[must_use]
    pub fn number(self) -> EntrySubject {
        EntrySubject::new(match self {
            Self::Path(hash) => hash.get(),
            Self::Stream(stream) => stream.get(),
            Self::Group => 0,
        })
    }
}

/// The kind is left out: ids are entry indexes, which stay far below most hashes.
impl Hash for Subject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

/// A change to one group. What it is about is named beside it, see [`Subject`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make a stream, with first bytes and closed if asked. PROTOCOL §5.1.
    Create(Box<Create>),
    /// Add bytes, close, or both. PROTOCOL §5.2.
    Append(Append),
    /// Delete the stream; it stays behind, invisible, while forks need its bytes. PROTOCOL §5.3.
    Delete,
    /// The lifetime has run out: as [`Command::Delete`], but decided by the clock.
    Expire,
    /// Sliding lifetime: the stream was last used at this time. Logged rarely and in the
    /// background, so that a crash cannot make a stream expire much too early.
    Touch(Timestamp),
    /// Drop the bytes before an offset.
    Trim(Trim),
    /// Change the settings of the stream.
    Change(Change),
    /// Take a reference on the stream for a fork that is being made.
    Pin(Pin),
    /// Give back the reference that [`Command::Pin`] with this token took.
    Unpin(PinToken),
    /// The reference that a deleted fork of this group held is given back: its unpin is pending no more.
    UnpinDone(PinToken),
    /// Remember so many producers per stream from here on. What is forgotten decides what a repetition is: it has
    /// to be the same when the log is read again.
    KeepProducers(u32),
}

/// The kind of a command, as the entry header has it. Part of the disk format: `docs/format/commands.md` has the
/// register of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandKind {
    /// [`Command::Create`]
    Create = 16,
    /// [`Command::Append`]
    Append = 17,
    /// [`Command::Delete`]
    Delete = 3,
    /// [`Command::Expire`]
    Expire = 4,
    /// [`Command::Touch`]
    Touch = 5,
    /// [`Command::Trim`]
    Trim = 6,
    /// [`Command::Pin`]
    Pin = 18,
    /// [`Command::Unpin`]
    Unpin = 8,
    /// [`Command::UnpinDone`]
    UnpinDone = 9,
    /// [`Command::Change`]
    Change = 12,
    /// [`Command::KeepProducers`]
    KeepProducers = 19,
}

/// The configuration and the first content of a new stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    /// Its name; hashed to this group.
    pub path: StreamPath,
    /// Its content type. A fork that names none has got its source's before it comes here.
    pub content_type: ContentType,
    /// How its bytes are made of records.
    pub layout: Layout,
    /// When it goes away by itself.
    pub lifetime: Lifetime,
    /// Create it closed: the data, if any, is all it will ever hold. PROTOCOL §4.1.
    pub close: bool,
    /// Records in the entry's data: JSON messages, or 1 if there is data, else 0.
    pub record_count: u32,
    /// What is kept of it.
    pub retention: Retention,
    /// The largest record time of its first records, if one was given.
    pub record_time: Option<RecordTime>,
    /// Where it branches off, if it is a fork.
    pub fork: Option<Box<ForkPoint>>,
}

/// A change of a stream's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// What is kept of it. It holds for what is there, too.
    pub retention: RetentionChange,
}

/// Bytes to add, a close, or both, with everything that makes it exactly-once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Append {
    /// The content type that the client sent; it may send none only without data.
    pub content_type: AppendType,
    /// `Stream-Seq`: must be greater, bytewise, than the last one accepted.
    pub stream_seq: Option<Box<str>>,
    /// The idempotent producer that sends this.
    pub producer: Option<Producer>,
    /// Close the stream after the data.
    pub close: bool,
    /// Records in the entry's data; 0 exactly if there is no data.
    pub record_count: u32,
    /// The largest record time of these, if one was given.
    pub record_time: Option<RecordTime>,
    /// What must hold of the stream.
    pub condition: Option<Box<Condition>>,
}

/// The content type of an append.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AppendType {
    /// None was sent.
    #[default]
    Unnamed,
    /// That of the stream, whose media type was sent. A log does not write it out.
    StreamsOwn,
    /// As it was sent, and not compared with the stream's yet, or another one.
    Named(ContentType),
}

impl AppendType {
    /// Recognises that of a stream.
    #[inline(always)]
    pub(crate) fn recognise(&mut self, record: &StreamRecord) {
        if matches!(self, Self::Named(sent) if record.has_type(sent)) {
            *self = Self::StreamsOwn;
        }
    }

    /// Whether data of this type belongs into a stream.
    #[inline(always)]
    pub(crate) fn fits(&self, record: &StreamRecord) -> bool {
        match self {
            Self::Unnamed => false,
            Self::StreamsOwn => true,
            Self::Named(sent) => record.has_type(sent),
        }
    }
}

/// An idempotent producer's numbering of one append. PROTOCOL §5.2.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// `Producer-Id`, 1 to [`model::limits::PRODUCER_ID_BYTES_MAX`] bytes.
    pub id: Box<str>,
    /// `Producer-Epoch`, at most [`model::limits::PRODUCER_NUMBER_MAX`].
    pub epoch: u64,
    /// `Producer-Seq`, at most [`model::limits::PRODUCER_NUMBER_MAX`].
    pub seq: u64,
}

impl Command {
    /// Learns when it is logged.
    #[inline]
    pub fn settle_times(&mut self, at: Timestamp) {
        let time = match self {
            Self::Append(append) => &mut append.record_time,
            Self::Create(create) => &mut create.record_time,
            _ => return,
        };
        time.iter_mut().for_each(|time| time.settle(at));
    }

    /// What the command is about if it is sent to `stream`.
    #[must_use]
    pub fn subject(&self, stream: Option<StreamId>) -> Subject {
        match (self, stream) {
            (Self::Create(create), _) => Subject::Path(create.path.hash()),
            (_, Some(stream)) => Subject::Stream(stream),
            (_, None) => Subject::Group,
        }
    }

    /// Whether it frees space or keeps the group in order, and brings no data: a full disk takes it, too.
    #[must_use]
    pub fn is_upkeep(&self) -> bool {
        match self {
            Self::Create(_) | Self::Append(_) | Self::Pin(_) => false,
            Self::Delete
            | Self::Expire
            | Self::Touch(_)
            | Self::Trim(_)
            | Self::Change(_)
            | Self::Unpin(_)
            | Self::UnpinDone(_)
            | Self::KeepProducers(_) => true,
        }
    }

    /// The kind to write into the entry header.
    #[must_use]
    pub fn kind(&self) -> CommandKind {
        match self {
            Self::Create(_) => CommandKind::Create,
            Self::Append(_) => CommandKind::Append,
            Self::Delete => CommandKind::Delete,
            Self::Expire => CommandKind::Expire,
            Self::Touch(_) => CommandKind::Touch,
            Self::Trim(_) => CommandKind::Trim,
            Self::Change(_) => CommandKind::Change,
            Self::Pin(_) => CommandKind::Pin,
            Self::Unpin(_) => CommandKind::Unpin,
            Self::UnpinDone(_) => CommandKind::UnpinDone,
            Self::KeepProducers(_) => CommandKind::KeepProducers,
        }
    }
}

/// Where a stream begins from now on. Its proposer has looked for a record there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// First retained byte.
    pub to: ByteOffset,
    /// Number of the record that holds it.
    pub first_record: u64,
}
