//! This node's copy of one group: its replica, and what waits for it.

use super::held::{Held, HeldWrites};
use super::removal::Removal;
use super::renewed::Renewed;
use crate::proposed::Proposed;
use cluster::{
    Barriers, Body, Change, Commit, Configuration, GroupMessage, NodeNumber, Note, Proposals,
    Replica, ReplicaId, ToAppend,
};
use log::DurableEntry;
use model::{EntryIndex, Monotonic, StreamPath, Term};
use std::collections::{BTreeMap, VecDeque};

/// Requests that may wait in one group.
const HELD_COUNT_MAX: usize = 4 << 10;

/// Bytes of their data.
const HELD_BYTES_MAX: usize = 16 << 20;

/// What a replica may want while the log has no room for the first of it: some minutes of answers to a leader.
const WAITS_MAX: usize = 4 << 10;

/// This node's copy of one group.
#[derive(Debug)]
pub(crate) struct GroupCopy {
    pub(crate) replica: Replica,
    /// The voters and learners at the last entry that is applied here. The replica's own are those at the last one that is
    /// committed.
    pub(crate) configuration: Configuration,
    /// Commands of this node, until the entry at their index is applied.
    pub(super) proposals: Proposals<OwnProposal>,
    /// Entries that are durable here and not applied.
    pub(super) durable: BTreeMap<EntryIndex, DurableEntry>,
    /// What may be applied.
    pub(super) commit: Option<Commit>,
    /// What the log has not taken yet.
    pub(super) pending: Option<Pending>,
    /// The last note, if it has not gone to the log.
    pub(super) unwritten: Option<Note>,
    /// Reads of entries that are under way, by number.
    pub(super) fetches: BTreeMap<u64, Fetch>,
    /// Requests that wait until this node leads, or for an earlier write to their path.
    pub(super) parked: VecDeque<Held>,
    /// Requests that wait for the word that it still does.
    pub(super) barriers: Barriers<Held>,
    /// Of each of these questions to a majority the number in `barriers`.
    pub(super) questions: BTreeMap<u64, u64>,
    /// Whose word the questions under way want, which may be this copy.
    pub(super) asked: Option<ReplicaId>,
    /// It does not lead, it has said. It is asked again with the next tick.
    pub(super) is_refused: bool,
    /// Without a part in the group: how often a node has said that it does not lead it, once a tick at most.
    pub(super) refusals_count: usize,
    /// Ticks since an answer came.
    pub(super) unanswered_ticks: u32,
    held_bytes: usize,
    /// Writes among those of `parked` and those of `barriers`.
    parked_writes: HeldWrites,
    asking_writes: HeldWrites,
    /// Requests of the group may wait to be sent to its leader.
    pub(super) has_forwards: bool,
    /// Writes of the group may wait for room in the log.
    pub(crate) has_deferred: bool,
    /// The last term in which this node has taken charge.
    pub(super) serving: Option<Term>,
    pub(super) halt: Option<Halt>,
    /// The log knows that it takes part in nothing any more.
    pub(super) is_retired: bool,
    /// It was given a new id, and begins again with a snapshot.
    pub(super) renewed: Option<Renewed>,
    /// Nobody wants it, as it seems: how far it is with giving back what it has.
    pub(super) removal: Option<Removal>,
    /// A snapshot takes the place of the log. Its leader's message waits for that.
    pub(super) frozen: Option<GroupMessage>,
    /// What is in chunks here is less than they say: a snapshot comes as if there was nothing.
    pub(super) has_nothing: bool,
    pub(super) is_touched: bool,
    pub(super) catch_up: CatchUp,
    /// The last entry that was applied before the replica started, or by a snapshot.
    restored: EntryIndex,
}

/// Whether what was committed when the node started is applied here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CatchUp {
    /// The leader is to be asked how much that is.
    Wanted,
    /// [`super::held::HeldRequest::CatchUp`] waits for the answer, or for entries.
    Asked,
    /// It is, or nobody wants to know.
    Done,
}

/// A command of this node on its way through the log.
#[derive(Debug)]
pub(crate) struct OwnProposal {
    pub(crate) proposed: Proposed,
    pub(super) since: Monotonic,
}

/// What a replica wants to be written, and the log has no room for now.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The group becomes a replicated one first.
    pub(super) is_new: bool,
    pub(super) append: VecDeque<ToAppend>,
    pub(super) note: Option<Note>,
    /// Messages that may speak of these entries.
    pub(super) messages: Vec<GroupMessage>,
    /// The replica has said so, and holds back what depends on it.
    pub(super) is_taken: bool,
    /// It waits for the number of the batch.
    pub(super) is_awaited: bool,
}

/// Why entries are read.
#[derive(Debug)]
pub(super) enum Fetch {
    /// To go with a message.
    Send(GroupMessage),
    /// To be applied.
    Apply,
    /// The copy that has asked is not there any more.
    Nobody,
}

/// Why a copy takes part in nothing any more, until it gets a new id and a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Something that it had synced is damaged or lost: what it has promised may be, too.
    Damage,
    /// An entry was committed that a newer version wrote.
    Newer,
    /// The group has other replicas.
    Removed,
}

impl GroupCopy {
    /// Questions to other nodes are numbered from `question` on.
    pub(super) fn new(
        replica: Replica,
        (restored, question): (EntryIndex, u64),
        pending: Pending,
        configuration: Configuration,
    ) -> Self {
        Self {
            replica,
            configuration,
            proposals: Proposals::default(),
            durable: BTreeMap::new(),
            commit: None,
            pending: Some(pending),
            unwritten: None,
            fetches: BTreeMap::new(),
            parked: VecDeque::new(),
            barriers: Barriers::behind(question),
            questions: BTreeMap::new(),
            asked: None,
            is_refused: false,
            refusals_count: 0,
            unanswered_ticks: 0,
            held_bytes: 0,
            parked_writes: HeldWrites::default(),
            asking_writes: HeldWrites::default(),
            has_forwards: false,
            has_deferred: false,
            serving: None,
            halt: None,
            is_retired: false,
            renewed: None,
            removal: None,
            frozen: None,
            has_nothing: false,
            is_touched: false,
            catch_up: CatchUp::Done,
            restored,
        }
    }

    /// Whether it leads, and has applied all that was acknowledged before.
    pub(crate) fn is_serving(&self) -> bool {
        self.leads() && self.serving == Some(self.replica.term())
    }

    /// Where the group is, if it is led here and no change of that is under way.
    pub(super) fn placed(&self) -> Option<(Vec<NodeNumber>, u64)> {
        let configuration = self.replica.configuration();
        let is_settled = self.replica.is_configuration_settled() && !configuration.is_joint();
        let replicas = configuration.replicas();
        let mut nodes: Vec<NodeNumber> = replicas.iter().map(|id| id.node()).collect();
        nodes.dedup();
        let revision = configuration.revision;
        (self.is_serving() && is_settled).then_some((nodes, revision))
    }

    /// Whether no other copy votes.
    pub(super) fn is_only_voter(&self) -> bool {
        self.replica.configuration().is_quorum(|id| id == self.replica.id())
    }

    /// Whether it leads, and is not giving that away: a request that comes then waits for the next leader.
    pub(crate) fn takes_proposals(&self) -> bool {
        self.is_serving() && !self.replica.is_handing_over()
    }

    /// Whether it leads, as far as it knows.
    pub(super) fn leads(&self) -> bool {
        self.halt.is_none() && self.replica.is_leader()
    }

    /// Whether it is out, and the log does not know that yet.
    pub(crate) fn must_retire(&self) -> bool {
        self.is_out() && !self.is_retired
    }

    /// Whether it never takes part again as what it is.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.halt, Some(Halt::Damage | Halt::Removed))
    }

    /// Whether the log knows that it is out, nothing is under way that takes its place, and its log is not about to be emptied.
    pub(super) fn is_out_and_idle(&self) -> bool {
        let is_kept = matches!(self.removal, None | Some(Removal::Asked(..)));
        let is_free = self.renewed.is_none() && self.frozen.is_none();
        self.is_out() && self.is_retired && is_free && is_kept
    }

    /// Whether its state may stand for what it has applied.
    pub(crate) fn may_checkpoint(&self) -> bool {
        !self.is_out() && self.frozen.is_none()
    }

    /// A snapshot of all up to `index` has taken the place of log and state.
    pub(super) fn begin_behind(&mut self, index: EntryIndex) {
        self.durable.clear();
        (self.commit, self.restored, self.has_nothing) = (None, index, false);
    }

    /// Whether it is driven: nothing is lost, the log takes what it wants, and no snapshot takes its place.
    pub(super) fn is_running(&self) -> bool {
        self.pending.is_none() && self.is_driven()
    }

    /// Whether its replica is asked what it wants. While the log has no room for what that wanted before, it may still want to say
    /// something, or to have entries applied that are durable. Not forever: it remembers what it has said.
    pub(super) fn is_driven(&self) -> bool {
        let is_short =
            |pending: &Pending| pending.is_taken && self.replica.held_count() < WAITS_MAX;
        self.halt.is_none() && self.frozen.is_none() && self.pending.as_ref().is_none_or(is_short)
    }

    /// Whether driving it may change something, though nothing has happened to it but time.
    pub(super) fn wants_anything(&self, applied: EntryIndex) -> bool {
        let waits_for_log = self.halt.is_some() || self.pending.is_some() || self.frozen.is_some();
        let has_requests = !self.parked.is_empty()
            || !self.barriers.is_empty()
            || self.has_forwards
            || self.has_deferred;
        let replica = &self.replica;
        let is_new = replica.has_ready() || self.asked != replica.leader();
        is_new || waits_for_log || has_requests || self.committed() > applied
    }

    /// Whether time passes for it. A leader that the log has no room for takes no proposals: its followers choose another one.
    pub(super) fn is_ticked(&self) -> bool {
        self.is_running() || (self.is_driven() && !self.leads())
    }

    /// Whether it takes what a message says. While the log has no room for what came before, more entries are lost: their sender
    /// repeats them. Nor does it take the lead. All else is heard: what commits the entries here lets them leave the log, and so
    /// makes room.
    pub(super) fn hears(&self, body: &Body) -> bool {
        let wants_room = match body {
            Body::Append { entries, .. } => !entries.is_empty(),
            Body::Campaign => true,
            _ => false,
        };
        self.is_driven() && (self.pending.is_none() || !wants_room)
    }

    /// Its replica wants this in the log. If something waits for room already it comes behind that. Returns the messages that may go
    /// now: they speak of nothing that is not in the log.
    pub(super) fn await_room(
        &mut self,
        (append, note): (Vec<ToAppend>, Option<Note>),
        messages: Vec<GroupMessage>,
    ) -> Vec<GroupMessage> {
        let Some(pending) = &mut self.pending else {
            let append = append.into();
            let is_taken = true;
            self.pending = Some(Pending { append, note, messages, is_taken, ..Pending::default() });
            return Vec::new();
        };
        pending.append.extend(append);
        pending.note = note.or(pending.note);
        let has_entries = |message: &GroupMessage| matches!(message.body, Body::Append { .. });
        let (later, now) = messages.into_iter().partition(has_entries);
        pending.messages.extend::<Vec<_>>(later);
        now
    }

    /// The last entry that may be applied.
    pub(crate) fn committed(&self) -> EntryIndex {
        self.commit.as_ref().map_or(self.restored, Commit::upto)
    }

    pub(crate) fn proposed(&self) -> impl Iterator<Item = &Proposed> {
        self.proposals.iter().map(|own| &own.proposed)
    }

    pub(crate) fn proposed_count(&self) -> usize {
        self.proposals.len()
    }

    /// Takes all commands on their way: nobody knows what becomes of them.
    pub(crate) fn abandon_proposed(&mut self) -> Vec<Proposed> {
        let all = self.proposals.take_all().into_iter();
        all.map(|settled| settled_proposal(settled).proposed).collect()
    }

    /// The voters change with the entry that is applied now. An impossible change changes nothing, on no copy.
    pub(super) fn apply_change(&mut self, command: &[u8]) {
        let change = Change::decode(command).expect("the replica has looked at it");
        if let Some(after) = self.configuration.after(&change) {
            self.configuration = after;
        }
    }

    /// An entry is durable here. Those that it has superseded are gone.
    pub(crate) fn note_durable(&mut self, entry: DurableEntry) {
        self.durable.split_off(&entry.index);
        self.durable.insert(entry.index, entry);
    }

    /// Whether one more request may wait.
    pub(super) fn has_room_for(&self, data_bytes: usize) -> bool {
        let count = self.parked.len() + self.barriers.len();
        count < HELD_COUNT_MAX && (count == 0 || self.held_bytes + data_bytes <= HELD_BYTES_MAX)
    }

    /// Whether a write to this path waits for a leader. A later one does not pass it.
    pub(super) fn has_parked(&self, path: Option<&StreamPath>) -> bool {
        self.parked_writes.has(path)
    }

    /// Whether a write to this path waits for the word of a majority.
    pub(super) fn is_asking_for(&self, path: Option<&StreamPath>) -> bool {
        self.asking_writes.has(path)
    }

    pub(super) fn park(&mut self, held: Held) {
        self.held_bytes += held.bytes();
        self.parked_writes.add(&held);
        self.parked.push_back(held);
    }

    pub(super) fn ask_before(&mut self, held: Held) {
        self.held_bytes += held.bytes();
        self.asking_writes.add(&held);
        self.barriers.add(held);
    }

    /// Those of `barriers` that were taken wait no more.
    pub(super) fn note_released(&mut self, all: &[Held]) {
        for held in all {
            self.held_bytes -= held.bytes();
            self.asking_writes.remove(held);
        }
    }

    /// Takes the first of `parked`.
    pub(super) fn pop_parked(&mut self) -> Option<Held> {
        let held = self.parked.pop_front()?;
        self.held_bytes -= held.bytes();
        self.parked_writes.remove(&held);
        Some(held)
    }

    /// Takes the requests that wait and of which this is true. Those with one path are in the order in which they came.
    pub(super) fn take_held(&mut self, mut is_it: impl FnMut(&Held) -> bool) -> Vec<Held> {
        let mut taken = self.barriers.remove(&mut is_it);
        self.note_released(&taken);
        for held in std::mem::take(&mut self.parked) {
            if !is_it(&held) {
                self.parked.push_back(held);
                continue;
            }
            self.held_bytes -= held.bytes();
            self.parked_writes.remove(&held);
            taken.push(held);
        }
        taken
    }

    /// Asserts what holds between two turns.
    ///
    /// # Panics
    /// If it is broken.
    pub(crate) fn check(&self, applied: EntryIndex) {
        let first = self.durable.first_key_value();
        assert!(first.is_none_or(|(index, _)| *index > applied), "an applied entry is kept");
        assert!(applied <= self.committed(), "entry {applied} is applied and not committed");
        let is_lost = self.halt.is_none() && self.is_touched;
        assert!(!is_lost, "a group was touched and not driven");
        if self.parked.is_empty() && self.barriers.is_empty() {
            assert_eq!(self.held_bytes, 0, "bytes of requests that wait are miscounted");
            let is_none = self.parked_writes.is_empty() && self.asking_writes.is_empty();
            assert!(is_none, "writes that wait are miscounted");
        }
    }
}

/// The proposal, whatever became of it.
pub(super) fn settled_proposal(settled: cluster::Settled<OwnProposal>) -> OwnProposal {
    use cluster::Settled::{Applied, NotApplied, Unknown};
    match settled {
        Applied(own) | NotApplied(own) | Unknown(own) => own,
    }
}
