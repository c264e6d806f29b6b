//! Deliberate defects, one for each checker: a checker that never fires proves nothing.

use crate::oracle::Rule;
use log::Slice;
use model::{ByteOffset, TrimBefore};
use node::{ReadReply, Reply, Request, Stamp};
use stream::{Keep, Outcome};

/// A defect built into the simulated server or its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Syncs return before anything is durable.
    LyingSync,
    /// The newest synced block of a WAL is lost when the power goes.
    LostBlock,
    /// Each append is given to the node twice.
    DoubleApply,
    /// Appends lose their producer fields on the way.
    NoProducer,
    /// Appends lose their `Stream-Seq` on the way.
    NoSequence,
    /// Reads end early and say that they are up to date.
    StaleRead,
    /// Closed streams look open.
    Unclosed,
    /// Closing appends do not close.
    LostClose,
    /// Deletions are answered and not carried out.
    LostDelete,
    /// The clock of reads runs ahead.
    EarlyExpiry,
    /// The clock does not move for lifetimes.
    LateExpiry,
    /// Every wall clock is believed.
    Gullible,
    /// Forks show a wrong byte.
    WrongPrefix,
    /// Intact streams are said to be damaged.
    FalseDamage,
    /// A refused append is applied all the same.
    RefusalIgnored,
    /// Repeats of an append are answered with a tail that the stream never had.
    WrongRepeat,
    /// Commits are never run.
    StalledSync,
    /// The last byte that a short write took is lost.
    LostBytes,
    /// Connections do not hear that their clients have gone.
    DeafToEnds,
    /// Connections never hear that time passes.
    Timeless,
    /// A request is judged before the append that it follows on its connection.
    EarlyRead,
    /// The answers to two pipelined appends change places.
    SwappedAnswers,
    /// A block that cannot be read is an error like any other.
    BrittleReads,
    /// A block of which one read failed is taken for lost.
    StickyReads,
    /// Names that cannot be changed or made durable are taken for changed.
    SwallowedErrors,
    /// A new chunk has no name from the removal of the first that it replaces to the end of its job.
    LateRename,
    /// Stored bytes are served from memory in which those of the read before are.
    StaleMemory,
    /// The log takes the disk for one with endless room, and keeps none for what frees some.
    NoReserve,
    /// Each write to a WAL writes the blocks before it again, as they were.
    RewrittenBlocks,
    /// A sync that fails is tried again, and its success is believed.
    RetriedSync,
    /// Bytes of a chunk that cannot be read are taken for zeroes.
    ZeroedReads,
    /// A file that cannot be opened or removed is an error like any other.
    BrittleNames,
    /// What appends want of the state of their stream is lost on the way.
    Unconditional,
    /// Trims take the append too that they should keep.
    GreedyTrim,
    /// New bounds of streams are answered and not set.
    DeafToBounds,
    /// Appends get old in half the time.
    ShortAges,
    /// Reads say the number of the record before.
    MiscountedRecords,
    /// What a batch of the log says of the one before never reaches the disk.
    LostLists,
    /// Shards do not hear that nobody wants their changes any more.
    DeafToUnwatch,
    /// Chunks, checkpoints and segments are written on the loop.
    WorkOnLoop,
    /// Each file that was opened stays open.
    KeptFiles,
    /// Recent bytes are kept beyond the bound of memory.
    EndlessMemory,
    /// There is never room for a merge.
    NoMerges,
    /// Files of chunks are not removed.
    KeptChunks,
    /// A name that cannot be given or made durable is an error like any other.
    BrittleSyncs,
    /// A file that could not be opened once is taken for lost.
    StickyOpens,
    /// A segment of a WAL that cannot be opened is an error like any other.
    BrittleSegments,
    /// What a merge has left half-written cannot be removed beside a file that has become unreadable.
    BrittleLeftovers,
    /// Parts of one answer of HTTP/2 are sent as parts of another.
    CrossedBodies,
    /// Windows that clients of HTTP/2 give back are not seen.
    DeafToWindows,
    /// The access file is not looked at.
    OpenDoor,
    /// Tokens do not end.
    EndlessTokens,
    /// A grant below a prefix is one of everything.
    WideGrants,
    /// An access file that has changed is not read.
    DeafToReloads,
}

impl Mutant {
    /// All mutants with the rules that may find them out.
    pub const ALL: &'static [(Self, &'static [Rule])] = &[
        (Self::LyingSync, &[Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten, Rule::Damage]),
        (Self::LostBlock, &[Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten, Rule::UpToDate]),
        (Self::DoubleApply, &[Rule::Twice, Rule::AckedLost, Rule::WriterForgotten, Rule::Garbled]),
        (Self::NoProducer, &[Rule::Twice, Rule::WriterForgotten, Rule::Protocol]),
        (Self::NoSequence, &[Rule::Twice, Rule::WriterForgotten]),
        (Self::StaleRead, &[Rule::UpToDate]),
        (Self::Unclosed, &[Rule::Reopened]),
        (Self::LostClose, &[Rule::Reopened, Rule::Protocol]),
        (Self::LostDelete, &[Rule::Undeleted]),
        (Self::EarlyExpiry, &[Rule::Lifetime]),
        (Self::LateExpiry, &[Rule::Lifetime]),
        (Self::Gullible, &[Rule::Lifetime, Rule::Kept]),
        (Self::WrongPrefix, &[Rule::ForkPrefix, Rule::Unseen, Rule::Garbled]),
        (Self::FalseDamage, &[Rule::Damage]),
        (Self::RefusalIgnored, &[Rule::RefusedApplied]),
        (Self::WrongRepeat, &[Rule::Unordered]),
        (Self::StalledSync, &[Rule::Bounds]),
        (Self::LostBytes, &[Rule::Protocol, Rule::Garbled, Rule::Unseen, Rule::Bounds]),
        (Self::DeafToEnds, &[Rule::Bounds]),
        (Self::Timeless, &[Rule::Bounds]),
        (Self::EarlyRead, &[Rule::Pipelined]),
        (Self::SwappedAnswers, &[Rule::Pipelined]),
        (Self::BrittleReads, &[Rule::Refused]),
        (Self::StickyReads, &[Rule::Damage]),
        (Self::LateRename, &[Rule::AckedLost, Rule::Unseen, Rule::Damage]),
        (Self::StaleMemory, &[Rule::Garbled, Rule::Unseen, Rule::ForkPrefix]),
        (Self::SwallowedErrors, &[Rule::AckedLost, Rule::Unseen, Rule::Damage, Rule::Refused]),
        (Self::NoReserve, &[Rule::FullDisk]),
        (
            Self::RewrittenBlocks,
            &[Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten, Rule::Damage],
        ),
        (Self::ZeroedReads, &[Rule::Unseen, Rule::Garbled, Rule::ForkPrefix]),
        (Self::BrittleNames, &[Rule::Refused]),
        (Self::Unconditional, &[Rule::Contended, Rule::Kept]),
        (Self::GreedyTrim, &[Rule::Kept]),
        (Self::DeafToBounds, &[Rule::Kept]),
        (Self::ShortAges, &[Rule::Kept]),
        (Self::MiscountedRecords, &[Rule::Kept]),
        (Self::LostLists, &[Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten]),
        (Self::DeafToUnwatch, &[Rule::Hoarded]),
        (Self::WorkOnLoop, &[Rule::LongTurn]),
        (Self::KeptFiles, &[Rule::Hoarded]),
        (Self::EndlessMemory, &[Rule::Hoarded]),
        (Self::NoMerges, &[Rule::Hoarded]),
        (Self::KeptChunks, &[Rule::Hoarded]),
        (Self::BrittleSyncs, &[Rule::Refused]),
        (Self::StickyOpens, &[Rule::Damage]),
        (Self::BrittleSegments, &[Rule::Refused]),
        (Self::BrittleLeftovers, &[Rule::Refused]),
        (Self::CrossedBodies, &[Rule::Garbled, Rule::Unseen, Rule::Bounds]),
        (Self::DeafToWindows, &[Rule::Bounds]),
        (Self::RetriedSync, &[Rule::AckedLost, Rule::Unseen, Rule::WriterForgotten, Rule::Damage]),
        (Self::OpenDoor, &[Rule::Access]),
        (Self::EndlessTokens, &[Rule::Access]),
        (Self::WideGrants, &[Rule::Access]),
        (Self::DeafToReloads, &[Rule::Access]),
    ];

    /// Whether it hides errors of the disk.
    pub(crate) fn is_of_disk(self) -> bool {
        let reads = matches!(self, Self::BrittleReads | Self::StickyReads | Self::ZeroedReads);
        let names = matches!(self, Self::SwallowedErrors | Self::LateRename | Self::BrittleNames);
        let writes = matches!(self, Self::RewrittenBlocks | Self::RetriedSync | Self::LostLists);
        let files = matches!(self, Self::KeptFiles | Self::StickyOpens | Self::BrittleSegments);
        reads
            || names
            || writes
            || files
            || matches!(self, Self::NoReserve | Self::NoMerges | Self::KeptChunks)
            || matches!(self, Self::BrittleSyncs | Self::BrittleLeftovers)
    }

    /// Whether it changes frames of HTTP/2.
    pub(crate) fn is_of_frames(self) -> bool {
        matches!(self, Self::CrossedBodies | Self::DeafToWindows)
    }

    /// Whether it changes who may do what.
    #[must_use]
    pub fn is_of_access(self) -> bool {
        matches!(
            self,
            Self::OpenDoor | Self::EndlessTokens | Self::WideGrants | Self::DeafToReloads
        )
    }

    /// Whether it mixes up pipelined requests.
    pub(crate) fn is_disorder(self) -> bool {
        matches!(self, Self::EarlyRead | Self::SwappedAnswers)
    }

    /// Changes a request on its way into the node.
    pub(crate) fn change_request(
        self,
        now: Stamp,
        request: Request,
        data: &[u8],
    ) -> (Stamp, Request) {
        let request = match (self, request) {
            (Self::NoProducer, Request::Append { path, mut append }) => {
                append.producer = None;
                Request::Append { path, append }
            }
            (Self::NoSequence, Request::Append { path, mut append }) => {
                append.stream_seq = None;
                Request::Append { path, append }
            }
            (Self::LostClose, Request::Append { path, mut append }) if !data.is_empty() => {
                append.close = false;
                Request::Append { path, append }
            }
            (Self::Unconditional, Request::Append { path, mut append }) => {
                append.condition = None;
                Request::Append { path, append }
            }
            (Self::GreedyTrim, Request::Trim { path, before: TrimBefore::Record(number) }) => {
                Request::Trim { path, before: TrimBefore::Record(number + 1) }
            }
            (Self::DeafToBounds, Request::Change { path, .. }) => {
                Request::Change { path, change: stream::Change::default() }
            }
            (Self::ShortAges, Request::Change { path, mut change }) => {
                if let Some(Keep::AtLeast(seconds)) = &mut change.retention.age_seconds {
                    *seconds /= 2;
                }
                Request::Change { path, change }
            }
            (Self::LostDelete, Request::Delete { path }) => Request::Head { path },
            (_, request) => request,
        };
        let is_use = matches!(&request, Request::Read { .. } | Request::Head { .. });
        let wall = match self {
            Self::EarlyExpiry if is_use => now.wall.plus_ms(5_000),
            _ => now.wall,
        };
        (Stamp { wall, ..now }, request)
    }

    /// Whether the reply to a request may be changed: not what a live reader reads to catch up.
    pub(crate) fn may_change_reply_to(self, request: &Request, event_boundary_bytes: u64) -> bool {
        match request {
            Request::Read(read) => read.boundary_bytes != event_boundary_bytes,
            Request::Head { .. } => self != Self::LostDelete,
            // Without a reply of its own, it would change the next one of the same exchange.
            Request::Watch { .. } | Request::Unwatch { .. } => false,
            _ => true,
        }
    }

    /// Changes a reply on its way to the client.
    pub(crate) fn change_reply(self, reply: &mut Reply) {
        match (self, &mut *reply) {
            (Self::StaleRead, Reply::Read(read)) => shorten(read),
            // At the tail the session would ask again without end.
            (Self::Unclosed, Reply::Read(read)) if read.end > read.start => {
                read.info.closed = false;
            }
            (Self::Unclosed, Reply::Head(_, info)) => info.closed = false,
            (Self::LostDelete, Reply::Head(..)) => *reply = Reply::Outcome(Outcome::Deleted),
            (Self::FalseDamage, Reply::Read(read)) if read.end.get() % 7 == 3 => {
                let file = "wal".to_owned();
                *reply = Reply::Failed(node::Failure::Damaged { file, position: 1 });
            }
            (Self::RefusalIgnored, Reply::Outcome(Outcome::Appended(accepted)))
                if accepted.tail.get() % 5 == 0 =>
            {
                *reply = Reply::Failed(node::Failure::Overloaded);
            }
            (Self::MiscountedRecords, Reply::Read(read)) => {
                read.records = read.records.map(|(start, next)| (start.saturating_sub(1), next));
            }
            (Self::WrongRepeat, Reply::Outcome(Outcome::Appended(accepted)))
                if accepted.duplicate && !accepted.closed && accepted.tail.get() > 0 =>
            {
                accepted.tail = ByteOffset::new(accepted.tail.get() - 1);
            }
            _ => {}
        }
    }

    /// Changes stored bytes that were in memory; `stale` are those of the read before.
    pub(crate) fn change_memory(self, reply: &mut Reply, stale: &mut Option<Slice>) {
        let slice = match reply {
            Reply::Window(slice) => Some(slice),
            Reply::Read(read) => read.first.as_mut(),
            _ => None,
        };
        if let (Self::StaleMemory, Some(slice @ Slice::Bytes(_))) = (self, slice) {
            let before = stale.replace(slice.clone());
            if let Some(before) = before.filter(|before| before.len() == slice.len()) {
                *slice = before;
            }
        }
    }

    /// Changes stored bytes of a fork on their way to the client.
    pub(crate) fn change_fork(self, slice: &mut Slice) {
        if self == Self::WrongPrefix
            && let Ok(bytes) = slice.to_bytes()
        {
            let mut bytes = bytes.to_vec();
            for byte in bytes.iter_mut().skip(1).take(1) {
                *byte ^= 1;
            }
            *slice = Slice::Bytes(bytes.into());
        }
    }
}

/// Cuts the last byte. A read that became empty would be asked again without end, by a long-poll whose watch
/// tells of the rest. A cut JSON message would be found for being no JSON.
fn shorten(read: &mut ReadReply) {
    if read.info.content_type.is_json() || read.end.since(read.start) < 2 {
        return;
    }
    read.end = ByteOffset::new(read.end.get() - 1);
    read.info.tail = read.end;
}
