//! Between our values and the library's.
//!
//! The library is `raft` 0.7.0, the engine under TiKV (docs/adr/0080). Its messages are protobuf structs. They
//! are filled and read here, in memory, and never encoded. The one exception is inside the library: it encodes a
//! change of the configuration that this process proposes, and reads it back at once to look for conflicts.

use crate::configuration::{Change, Configuration, Part};
use crate::identity::ReplicaId;
use crate::message::{Body, EntryBytes, GroupMessage, LogPosition, SentEntry, SnapshotPoint};
use bytes::Bytes;
use model::{EntryIndex, Term};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry,
    EntryType, Message, MessageType, Snapshot,
};

/// What the library writes into the request for a vote that a transfer asked for.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// The configuration as the library has it.
pub(crate) fn conf_state(configuration: &Configuration) -> ConfState {
    let bits = |list: &[ReplicaId]| list.iter().map(|id| id.bits()).collect::<Vec<_>>();
    ConfState {
        voters: bits(&configuration.voters),
        learners: bits(&configuration.learners),
        voters_outgoing: bits(&configuration.outgoing),
        learners_next: bits(&configuration.learners_next),
        ..ConfState::default()
    }
}

/// The configuration as we have it. The library knows nothing of the revision.
///
/// # Panics
/// If a number is no replica's: the library knows only those that we named.
pub(crate) fn configuration(state: &ConfState, revision: u64) -> Configuration {
    let ids = |list: &[u64]| {
        let mut ids: Vec<ReplicaId> = list.iter().map(|bits| replica(*bits)).collect();
        ids.sort_unstable();
        ids
    };
    Configuration {
        voters: ids(&state.voters),
        learners: ids(&state.learners),
        outgoing: ids(&state.voters_outgoing),
        learners_next: ids(&state.learners_next),
        revision,
    }
}

fn replica(bits: u64) -> ReplicaId {
    ReplicaId::from_bits(bits).expect("the library knows only ids that it was given")
}

/// A change as the library applies it.
pub(crate) fn conf_change(change: &Change, transition: ConfChangeTransition) -> ConfChangeV2 {
    let mut conf_change = ConfChangeV2::default();
    let Change::Enter { parts, .. } = change else { return conf_change };
    conf_change.set_transition(transition);
    let singles = parts.iter().map(|(id, part)| {
        let mut single = ConfChangeSingle { node_id: id.bits(), ..ConfChangeSingle::default() };
        single.set_change_type(match part {
            Part::Voter => ConfChangeType::AddNode,
            Part::Learner => ConfChangeType::AddLearnerNode,
            Part::Gone => ConfChangeType::RemoveNode,
        });
        single
    });
    conf_change.set_changes(singles.collect::<Vec<_>>().into());
    conf_change
}

/// A snapshot. Its contents travel beside it: only the configuration's revision is in its data.
pub(crate) fn snapshot(point: &SnapshotPoint) -> Snapshot {
    let data = Bytes::copy_from_slice(&point.configuration.revision.to_le_bytes());
    let mut snapshot = Snapshot { data, ..Snapshot::default() };
    let metadata = snapshot.mut_metadata();
    metadata.index = point.last.index.get();
    metadata.term = point.last.term.get();
    metadata.set_conf_state(conf_state(&point.configuration));
    snapshot
}

/// Where a snapshot is.
///
/// # Panics
/// If [`snapshot`] has not made it.
pub(crate) fn snapshot_point(snapshot: &Snapshot) -> SnapshotPoint {
    let metadata = snapshot.get_metadata();
    let revision = u64::from_le_bytes(snapshot.get_data().try_into().expect("it has a revision"));
    SnapshotPoint {
        last: LogPosition::new(metadata.index, metadata.term),
        configuration: configuration(metadata.get_conf_state(), revision),
    }
}

/// A message for the library.
pub(crate) fn to_library(message: GroupMessage) -> Message {
    let (from, to) = (message.from.bits(), message.to.bits());
    let mut out = Message { from, to, term: message.term.get(), ..Message::default() };
    match message.body {
        Body::Ask { is_pre, is_transfer, last, commit } => {
            out.set_msg_type(match is_pre {
                true => MessageType::MsgRequestPreVote,
                false => MessageType::MsgRequestVote,
            });
            (out.index, out.log_term) = numbers(last);
            (out.commit, out.commit_term) = numbers(commit);
            if is_transfer {
                out.context = Bytes::from_static(TRANSFER);
            }
        }
        Body::Vote { is_pre, is_granted, commit } => {
            out.set_msg_type(match is_pre {
                true => MessageType::MsgRequestPreVoteResponse,
                false => MessageType::MsgRequestVoteResponse,
            });
            out.reject = !is_granted;
            (out.commit, out.commit_term) = numbers(commit);
        }
        body => fill_log_message(&mut out, body),
    }
    out
}

fn fill_log_message(out: &mut Message, body: Body) {
    match body {
        Body::Append { previous, commit, entries } => {
            out.set_msg_type(MessageType::MsgAppend);
            (out.index, out.log_term) = numbers(previous);
            out.commit = commit.get();
            out.set_entries(entries.into_iter().map(entry).collect::<Vec<_>>().into());
        }
        Body::Appended { index, commit } => {
            out.set_msg_type(MessageType::MsgAppendResponse);
            (out.index, out.commit) = (index.get(), commit.get());
        }
        Body::Rejected { index, hint, commit } => {
            out.set_msg_type(MessageType::MsgAppendResponse);
            (out.index, out.commit) = (index.get(), commit.get());
            out.reject = true;
            (out.reject_hint, out.log_term) = numbers(hint);
        }
        Body::Empty => {
            out.set_msg_type(MessageType::MsgAppendResponse);
            out.reject = true;
            // The library takes any number but 0 for a wish. Which entry a snapshot has is not its business.
            out.request_snapshot = 1;
        }
        Body::Heartbeat { commit, read } => {
            out.set_msg_type(MessageType::MsgHeartbeat);
            out.commit = commit.get();
            out.context = context(read);
        }
        Body::Committed { commit } => {
            out.set_msg_type(MessageType::MsgHeartbeat);
            out.commit = commit.get();
        }
        Body::Alive { commit, read } => {
            out.set_msg_type(MessageType::MsgHeartbeatResponse);
            out.commit = commit.get();
            out.context = context(read);
        }
        Body::Snapshot(point) => {
            out.set_msg_type(MessageType::MsgSnapshot);
            out.set_snapshot(snapshot(&point));
        }
        Body::Campaign => out.set_msg_type(MessageType::MsgTimeoutNow),
        Body::Ask { .. } | Body::Vote { .. } => unreachable!("elections are filled elsewhere"),
    }
}

/// Takes the answers out that the library gives to heartbeats: those behind the first `kept` messages.
pub(crate) fn take_back_answers(messages: &mut Vec<Message>, kept: usize) {
    let answers = messages.extract_if(kept.min(messages.len()).., |message| {
        message.get_msg_type() == MessageType::MsgHeartbeatResponse
    });
    answers.for_each(drop);
}

/// A message of the library.
///
/// # Panics
/// If it is of a kind that we never cause: proposals and reads do not travel through the library.
pub(crate) fn from_library(mut message: Message) -> GroupMessage {
    let at = |index, term| LogPosition::new(index, term);
    let (index, commit) = (EntryIndex::new(message.index), EntryIndex::new(message.commit));
    let position = at(message.index, message.log_term);
    let committed = at(message.commit, message.commit_term);
    let kind = message.get_msg_type();
    let body = match kind {
        MessageType::MsgRequestPreVote | MessageType::MsgRequestVote => Body::Ask {
            is_pre: kind == MessageType::MsgRequestPreVote,
            is_transfer: message.context == TRANSFER,
            last: position,
            commit: committed,
        },
        MessageType::MsgRequestPreVoteResponse | MessageType::MsgRequestVoteResponse => {
            Body::Vote {
                is_pre: kind == MessageType::MsgRequestPreVoteResponse,
                is_granted: !message.reject,
                commit: committed,
            }
        }
        MessageType::MsgAppend => {
            let entries = message.take_entries().into_iter().map(sent_entry).collect();
            Body::Append { previous: position, commit, entries }
        }
        MessageType::MsgAppendResponse if message.request_snapshot > 0 => Body::Empty,
        MessageType::MsgAppendResponse if message.reject => {
            Body::Rejected { index, hint: at(message.reject_hint, message.log_term), commit }
        }
        MessageType::MsgAppendResponse => Body::Appended { index, commit },
        MessageType::MsgHeartbeat => Body::Heartbeat { commit, read: read(&message.context) },
        MessageType::MsgHeartbeatResponse => Body::Alive { commit, read: read(&message.context) },
        MessageType::MsgSnapshot => Body::Snapshot(snapshot_point(message.get_snapshot())),
        MessageType::MsgTimeoutNow => Body::Campaign,
        kind => panic!("the library sends a message of kind {kind:?}"),
    };
    let (from, to) = (replica(message.from), replica(message.to));
    GroupMessage { from, to, term: Term::new(message.term), body }
}

fn numbers(position: LogPosition) -> (u64, u64) {
    (position.index.get(), position.term.get())
}

/// The bytes that stand for a read in the library; 0 is none.
pub(crate) fn context(read: u64) -> Bytes {
    if read == 0 { Bytes::new() } else { Bytes::copy_from_slice(&read.to_le_bytes()) }
}

/// The read that these bytes stand for.
pub(crate) fn read(context: &[u8]) -> u64 {
    context.try_into().map_or(0, u64::from_le_bytes)
}

fn entry(sent: SentEntry) -> Entry {
    let mut entry = Entry::default();
    (entry.index, entry.term) = numbers(sent.at);
    if sent.is_change {
        entry.set_entry_type(EntryType::EntryConfChangeV2);
    }
    entry.data = match sent.bytes {
        EntryBytes::Sent(bytes) => bytes,
        EntryBytes::Here(_) => panic!("an entry that was received has its bytes with it"),
    };
    entry
}

fn sent_entry(entry: Entry) -> SentEntry {
    SentEntry {
        at: LogPosition::new(entry.index, entry.term),
        is_change: entry.get_entry_type() == EntryType::EntryConfChangeV2,
        bytes: EntryBytes::Here(entry.data.len() as u32),
    }
}
