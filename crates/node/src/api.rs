//! What goes into a shard and what comes out.

use crate::{
    FetchDone, FetchJob, FoundRecord, PeerEvent, ReadDone, ReadJob, Search, Seen, ToPeer,
    TransferDone, TransferJob,
};
use bytes::Bytes;
use cluster::{MetaCommand, MetaOutcome, NodeNumber};
use log::{ReadError, Slice, SyncDone, SyncJob, WorkDone, WorkJob};
use model::{
    ByteOffset, GroupId, Monotonic, ReadFrom, ReadRecords, ShardId, StreamId, StreamKey,
    StreamPath, Timestamp, TrimBefore,
};
use stream::{
    Append, Command, ContentType, CreateRequest, Outcome, PinToken, Refusal, StreamInfo,
    messages::JsonError,
};

/// Room that a delete or a use wants in the log, at most.
pub(crate) const UPKEEP_COMMAND_BYTES_MAX: u64 = 64;

/// The time of an event on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Wall clock: lifetimes and what is recorded.
    pub wall: Timestamp,
    /// Monotonic clock: waits.
    pub monotonic: Monotonic,
}

/// Names the waiter for a reply. The shard that is asked carries it and returns it with the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The shard that gets the reply.
    pub shard: ShardId,
    /// What that shard knows the request by. It means nothing to the shard that is asked.
    pub exchange: [u32; 3],
}

/// The shard of tickets of peers: no node has so many.
const PEERS: ShardId = ShardId::new(u16::MAX);

impl Ticket {
    /// A request of another node, by the number under which it is served.
    pub(crate) fn of_peer(number: u64) -> Self {
        Self { shard: PEERS, exchange: [number as u32, (number >> 32) as u32, 0] }
    }

    /// The number of a request of another node.
    #[inline]
    pub(crate) fn peer(self) -> Option<u64> {
        let [low, high, _] = self.exchange.map(u64::from);
        (self.shard == PEERS).then_some(high << 32 | low)
    }
}

/// Everything that can happen to a shard.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client's request for a group of this shard.
    Request {
        /// The waiter for the reply.
        ticket: Ticket,
        /// What is asked.
        request: Request,
        /// The data of a write, in stored form; for a fork without content type as it came.
        /// Empty for all other requests.
        data: &'a [u8],
    },
    /// A message from another shard of the same process.
    Shard(Box<ShardMessage>),
    /// A sync job is done.
    Synced(SyncDone),
    /// A background job is done.
    Worked(WorkDone),
    /// A read job is done.
    ReadDone(Box<ReadDone>),
    /// Something of another node, or the time of replicas: see [`PeerEvent`]. A node alone has none.
    Peer(Box<PeerEvent>),
    /// A fetch job is done.
    Fetched(Box<FetchDone>),
    /// A transfer job is done.
    Transferred(Box<TransferDone>),
    /// Some time has passed.
    Tick,
    /// A turn has begun, and there is work left of an earlier one.
    Continue,
}

/// What a client asks of a stream. Its data travels beside it: see [`Event::Request`].
#[derive(Debug)]
pub enum Request {
    /// Make a stream or make sure that it exists.
    Create(Box<CreateRequest>),
    /// Add data, close, or both.
    Append {
        /// The stream's path.
        path: StreamPath,
        /// All but the data.
        append: Append,
    },
    /// Delete a stream.
    Delete {
        /// Its path.
        path: StreamPath,
    },
    /// Describe a stream; does not count as use.
    Head {
        /// Its path.
        path: StreamPath,
    },
    /// Say whether an append would fail, before its data is sent. The reply is as to `Head` if it
    /// may succeed. Does not count as use.
    Announce {
        /// The stream's path.
        path: StreamPath,
        /// The append; it will bring data.
        append: Append,
    },
    /// Change a stream's settings.
    Change {
        /// Its path.
        path: StreamPath,
        /// What changes.
        change: stream::Change,
    },
    /// Drop the beginning of a stream.
    Trim {
        /// Its path.
        path: StreamPath,
        /// What it keeps.
        before: TrimBefore,
    },
    /// Say where a read would begin. Does not count as use.
    Resolve(ReadRequest),
    /// Begin a read: resolve where it starts and ends.
    Read(ReadRequest),
    /// Fetch stored bytes that a [`ReadReply`] promised.
    Window {
        /// The stream that stores them.
        key: StreamKey,
        /// First byte.
        from: ByteOffset,
        /// End of what is wanted; the reply may be shorter.
        to: ByteOffset,
    },
    /// Change what the cluster knows of itself, in the group of that: its number is the number of groups.
    Meta(Box<MetaCommand>),
    /// Notify the ticket's shard of every change of the stream from now on.
    Watch {
        /// The stream.
        key: StreamKey,
    },
    /// Notify it no more.
    Unwatch {
        /// The stream.
        key: StreamKey,
    },
}

/// A read of a stream.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The stream's path.
    pub path: StreamPath,
    /// Where to start.
    pub from: ReadFrom,
    /// The answer ends at the next multiple of this offset at the latest. For JSON it ends with the
    /// append that holds that multiple.
    pub boundary_bytes: u64,
    /// A longer answer comes without its first bytes. Its reader is to wait for its turn, and would drop them.
    pub first_bytes_max: u64,
    /// What is wanted of records, if anything.
    pub records: Option<ReadRecords>,
}

impl Request {
    /// The path that the request is for, if it names one.
    #[must_use]
    pub fn path(&self) -> Option<&StreamPath> {
        match self {
            Self::Create(create) => Some(&create.path),
            Self::Append { path, .. } | Self::Announce { path, .. } => Some(path),
            Self::Delete { path } | Self::Head { path } => Some(path),
            Self::Read(read) | Self::Resolve(read) => Some(&read.path),
            Self::Change { path, .. } | Self::Trim { path, .. } => Some(path),
            Self::Window { .. } | Self::Watch { .. } | Self::Unwatch { .. } => None,
            Self::Meta(_) => None,
        }
    }

    /// Whether it changes nothing, so that any copy of its group may answer it that has applied enough. A read of a stream
    /// with a sliding lifetime is a use.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Head { .. } | Self::Announce { .. } | Self::Resolve(_) | Self::Read(_) => true,
            Self::Window { .. } | Self::Watch { .. } | Self::Unwatch { .. } => true,
            Self::Create(_) | Self::Append { .. } | Self::Delete { .. } => false,
            Self::Change { .. } | Self::Trim { .. } | Self::Meta(_) => false,
        }
    }

    /// The path that it changes, if it names one.
    pub(crate) fn written_path(&self) -> Option<&StreamPath> {
        self.path().filter(|_| !self.is_read())
    }

    /// What it writes is for; a full disk takes upkeep, too.
    pub(crate) fn purpose(&self) -> log::Purpose {
        match self {
            Self::Create(_) | Self::Append { .. } => log::Purpose::Data,
            _ => log::Purpose::Upkeep,
        }
    }

    /// Room that a write wants in the log, without its data, at most; `None` for requests that
    /// write nothing.
    pub(crate) fn command_bytes(&self) -> Option<u64> {
        // Names, content types and producers are bounded far below this.
        const COMMAND_BYTES_MAX: u64 = 64 << 10;
        // So are addresses of members.
        const META_COMMAND_BYTES_MAX: u64 = 1 << 10;
        match self {
            Self::Create(_) | Self::Append { .. } => Some(COMMAND_BYTES_MAX),
            Self::Meta(_) => Some(META_COMMAND_BYTES_MAX),
            Self::Delete { .. } | Self::Change { .. } => Some(UPKEEP_COMMAND_BYTES_MAX),
            _ => None,
        }
    }
}

/// The answer to a request; exactly one comes for each ticket, except for `Watch` and `Unwatch`,
/// which have none.
#[derive(Debug)]
pub enum Reply {
    /// A change was made, had been made, or was refused.
    Outcome(Outcome),
    /// To `Head`, and to `Announce` of an append that may succeed.
    Head(StreamKey, Box<StreamInfo>),
    /// To `Read`.
    Read(Box<ReadReply>),
    /// To `Resolve`.
    Resolved(Box<Resolved>),
    /// To `Window`: at least one byte.
    Window(Slice),
    /// To `Meta`.
    Meta(MetaOutcome),
    /// The body of a fork is not what its inherited content type asks for.
    InvalidJson(JsonError),
    /// It could not be carried out.
    Failed(Failure),
}

/// A resolved read.
#[derive(Debug)]
pub struct ReadReply {
    /// The stream.
    pub key: StreamKey,
    /// What it is.
    pub info: StreamInfo,
    /// First byte of the answer.
    pub start: ByteOffset,
    /// End of the answer; the tail, if that is in reach.
    pub end: ByteOffset,
    /// The first bytes of the answer, if they were at hand.
    pub first: Option<Slice>,
    /// Numbers of the record at the start and of the one at the end, if they were asked for.
    pub records: Option<(u64, u64)>,
}

/// Where a read would begin.
#[derive(Debug)]
pub struct Resolved {
    /// The stream.
    pub key: StreamKey,
    /// What it is.
    pub info: StreamInfo,
    /// Its first byte.
    pub at: ByteOffset,
    /// Number of the record there.
    pub record: u64,
    /// The time of that record, unless it is still to come.
    pub time: Option<u64>,
}

/// Why a request could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No room for a new log segment. Not applied.
    DiskFull,
    /// The shard has stopped after a failed write or sync. `applied_unknown` if the request was
    /// already on its way to the disk.
    Poisoned {
        /// The request may or may not survive.
        applied_unknown: bool,
    },
    /// Too much is waiting for the disk. Not applied.
    Overloaded,
    /// The group has no leader, or another node leads it. Not applied, and never will be.
    NoLeader,
    /// Its entry was not seen committed in time. It may or may not be applied.
    Unknown,
    /// Stored bytes are damaged.
    Damaged {
        /// The file.
        file: String,
        /// Byte position in it.
        position: u64,
    },
    /// The bytes were trimmed; reading starts at `head`.
    Trimmed {
        /// First retained byte.
        head: ByteOffset,
    },
    /// The stream has no such record or byte yet.
    Beyond {
        /// After its last byte.
        tail: ByteOffset,
        /// Number of the record that comes next.
        next_record: u64,
    },
    /// The stream went away while it was read.
    NotFound,
    /// The disk refused a read.
    Io {
        /// What it said.
        error: String,
    },
}

/// Damaged bytes that a read met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadDamage {
    /// The stream that stores them.
    pub key: StreamKey,
    /// The file.
    pub file: String,
    /// Byte position in it.
    pub position: u64,
}

impl Failure {
    /// The log does not hold a byte that was seen.
    pub(crate) fn lost(key: StreamKey, at: ByteOffset) -> Self {
        let file = format!("the log of group {}, stream {}", key.group, key.stream);
        Self::Damaged { file, position: at.get() }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged { file, position } => {
                Self::Damaged { file: file.display().to_string(), position }
            }
            ReadError::Trimmed { head } => Self::Trimmed { head },
            ReadError::NotFound | ReadError::PastTail { .. } => Self::NotFound,
            ReadError::Io(error) => Self::Io { error: error.to_string() },
        }
    }
}

/// Everything that a shard wants done.
#[derive(Debug)]
pub enum Output {
    /// Answer a client.
    Reply {
        /// Which.
        ticket: Ticket,
        /// With what.
        reply: Reply,
    },
    /// Hand a message to another shard of this process.
    Shard {
        /// Its shard.
        to: ShardId,
        /// The message.
        message: Box<ShardMessage>,
    },
    /// Notify a shard that watches a stream.
    Changed {
        /// The shard.
        to: ShardId,
        /// What changed.
        change: Change,
    },
    /// Write and sync, then give the result back. One at a time, in order.
    Sync(SyncJob),
    /// Run in the background, then give the result back.
    Work(Box<WorkJob>),
    /// Run on a thread that may wait for the disk, then give the result back. Clients wait for it.
    Read(Box<ReadJob>),
    /// Say this to another node, before the syncs that come later. A node alone says nothing.
    Peer(Box<ToPeer>),
    /// Run on a thread that may wait for the disk, then give the result back. Peers wait for it.
    Fetch(Box<FetchJob>),
    /// Run in the background, then give the result back. It may take seconds, and nobody waits for it.
    Transfer(Box<TransferJob>),
}

/// A durable change of a watched stream.
#[derive(Debug, Clone)]
pub struct Change {
    /// The stream.
    pub key: StreamKey,
    /// Its tail.
    pub tail: ByteOffset,
    /// Number of the record that comes next.
    pub next_record: u64,
    /// It is closed.
    pub closed: bool,
    /// It is deleted or expired; this is the last change.
    pub gone: bool,
    /// The bytes that end at `tail`, if they are few enough to be shared.
    pub data: Option<Bytes>,
}

/// Between the shards of one process.
#[derive(Debug)]
pub enum ShardMessage {
    /// Please do this for a group of yours.
    Call {
        /// Where the result goes.
        from: ShardId,
        /// The caller's operation.
        operation: u64,
        /// What to do.
        call: ShardCall,
    },
    /// Here is what came of it.
    Return {
        /// The caller's operation.
        operation: u64,
        /// The result.
        result: ShardAnswer,
    },
}

/// What one shard may ask of another.
#[derive(Debug, Clone)]
pub enum ShardCall {
    /// Resolve a position in stored bytes.
    Locate(StreamKey, Locate),
    /// Look for a record in stored bytes.
    Find(StreamKey, Search),
    /// Check the source of a fork.
    ForkSource {
        /// Path of the source.
        path: StreamPath,
        /// The fork offset; `None` for the tail.
        offset: Option<ByteOffset>,
        /// The content type that the fork asks for.
        content_type: Option<ContentType>,
    },
    /// Log a command (`Pin`, `Unpin`).
    Propose(StreamKey, Command),
    /// Say whether a fork holds a reference.
    Holder {
        /// Path of the fork.
        path: StreamPath,
        /// The reference.
        token: PinToken,
    },
    /// Say which nodes have a part in a group.
    Replicas(GroupId),
    /// Tell another node of changes of streams, for some seconds.
    Watch {
        /// Their group.
        group: GroupId,
        /// The streams, and how they are as far as that node knows.
        streams: Vec<(StreamId, Option<Seen>)>,
    },
}

impl ShardCall {
    /// The group that it is about, of `group_count` groups.
    pub(crate) fn group(&self, group_count: u16) -> GroupId {
        match self {
            Self::Locate(key, _) | Self::Find(key, _) | Self::Propose(key, _) => key.group,
            Self::ForkSource { path, .. } | Self::Holder { path, .. } => path.group(group_count),
            Self::Watch { group, .. } | Self::Replicas(group) => *group,
        }
    }
}

/// A question about positions that only the shard that stores the bytes can answer.
#[derive(Debug, Clone, Copy)]
pub enum Locate {
    /// End of the first append that ends at or after this byte.
    AppendEnd(ByteOffset),
    /// Start of the JSON message that holds this byte.
    MessageStart(ByteOffset),
    /// The position `count` bytes or messages after `from`, inside the append that holds `from`
    /// and before `limit`.
    SubOffset {
        /// The anchor.
        from: ByteOffset,
        /// How many.
        count: u64,
        /// Messages, not bytes.
        json: bool,
        /// No further than this.
        limit: ByteOffset,
    },
    /// How far after `from`, at most to `to`, the bytes can be read: short of `to` only if damage
    /// is known.
    IntactEnd {
        /// The first byte wanted.
        from: ByteOffset,
        /// Behind the last byte wanted.
        to: ByteOffset,
        /// Only whole appends count.
        json: bool,
    },
}

/// The result of a [`ShardCall`].
#[derive(Debug)]
pub enum ShardAnswer {
    /// To `Locate`.
    Located(Result<ByteOffset, LocateError>),
    /// To `Find`: `None` if nothing is at or after the time.
    Found(Result<Option<FoundRecord>, Failure>),
    /// To `ForkSource`: the source, and its key.
    ForkSource(Result<(StreamKey, StreamInfo), Refusal>),
    /// To `Propose`.
    Outcome(Outcome),
    /// To `Holder`.
    Holder(PinHolder),
    /// To `Replicas`.
    Replicas(Vec<NodeNumber>),
    /// To `Watch`: the present state of each stream of which the asker does not know it.
    Watched(Vec<Change>),
    /// It could not be done.
    Failed(Failure),
}

/// What becomes of a reference on a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinHolder {
    /// A fork holds it, or is giving it back.
    Fork,
    /// A fork that is on its way may hold it.
    Undecided,
    /// No fork holds it or ever will.
    Nobody,
}

/// Why a position could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocateError {
    /// A sub-offset beyond what the append holds.
    Beyond {
        /// How much it holds.
        available: u64,
    },
    /// The bytes could not be read.
    Failed(Failure),
}
