//! Reads at a node that does not lead their group.
//!
//! # How
//! The leader is asked up to where its log was committed, once a majority has confirmed that it leads. One question serves
//! all reads that a group gets in a turn. When so much is applied here, the reads are answered from the own state. The
//! leader takes the question like a read of its own.
//!
//! # What has no answer
//! A question is lost with its leader or its link, and then asked again under another number. So is one without an answer
//! for half a second: what says that a link is lost may be late. A read that has waited for a while goes to the leader: what it has
//! to see may take long to come here, as a snapshot does.
//!
//! # What the own state does not tell
//! Lifetimes. Uses of a stream with a sliding one are counted where its group is led, and clocks differ. So the
//! leader alone says that a lifetime has run out, and takes the use of a read.
//!
//! # Invariants
//! - A question begins after the reads that wait for it have come, here and where the group is led.
//! - Nobody but the leader of a confirmed term answers a question with an index.

use super::copy::GroupCopy;
use super::held::{Held, HeldRequest};
use crate::{Output, Request, ShardCall, ShardCore, Stamp, ToPeer, step::View};
use cluster::{Confirmation, NodeNumber, Section};
use model::{ByteOffset, EntryIndex, GroupId, StreamKey};
use stream::Lifetime;

/// A question without an answer for so many ticks is asked again.
const UNANSWERED_TICKS_MAX: u32 = 10;

impl GroupCopy {
    /// Forgets the questions to somebody who leads no more; `true` if somebody else leads.
    pub(super) fn follow_leader(&mut self) -> bool {
        let leader = self.replica.leader();
        let is_new = self.asked != leader;
        if is_new {
            self.barriers.lost_all();
            (self.asked, self.is_refused, self.unanswered_ticks) = (leader, false, 0);
        }
        is_new
    }

    /// Time has passed: what has no answer is asked again.
    pub(super) fn tick_questions(&mut self) {
        self.is_refused = false;
        let ticks = self.unanswered_ticks.saturating_add(u32::from(self.barriers.is_asking()));
        self.unanswered_ticks = ticks;
        if self.unanswered_ticks >= UNANSWERED_TICKS_MAX && !self.is_serving() {
            self.barriers.lost_all();
            self.unanswered_ticks = 0;
        }
    }
}

impl View<'_> {
    /// Whether a copy that does not lead its group may not have applied yet what was seen of a stream elsewhere.
    pub(crate) fn may_be_behind(&self, key: StreamKey, upto: ByteOffset) -> bool {
        let group = self.groups.get(key.group);
        let is_had = || group.state.tail(key.stream).is_some_and(|tail| tail >= upto);
        !group.role.is_in_charge() && !is_had()
    }
}

impl ShardCore {
    /// Whether others keep a group, and not this node: it has no part in the group, or its copy is out.
    pub(crate) fn is_elsewhere(&self, id: GroupId) -> bool {
        let Some(replication) = &self.replication else { return false };
        let Some(copy) = self.groups.get(id).role.copy() else { return false };
        let placed = replication.meta().map_or(&[][..], |meta| meta.placed(id));
        let is_placed_here = placed.is_empty() || placed.contains(&replication.forwarding.node);
        copy.halt.is_some() || (!is_placed_here && !copy.leads())
    }

    pub(super) fn tell(&mut self, to: NodeNumber, section: Section) {
        self.outputs.push_back(Output::Peer(Box::new(ToPeer { to, section })));
    }

    /// Asks the leader on another node for all reads that wait.
    pub(super) fn ask_leader(&mut self, id: GroupId) {
        let copy = self.copy_mut(id);
        let Some(leader) = copy.asked.filter(|_| !copy.is_refused) else { return };
        if leader == copy.replica.id() {
            // It has not taken charge yet.
            return;
        }
        if let Some(number) = copy.barriers.ask() {
            self.tell(leader.node(), Section::Barrier { group: id, number });
        }
    }

    /// Another node asks for the reads that it has.
    pub(super) fn hear_barrier(
        &mut self,
        now: Stamp,
        from: NodeNumber,
        (id, number): (GroupId, u64),
    ) {
        if !self.has_copy(id) {
            return;
        }
        let copy = self.copy_mut(id);
        if !copy.leads() || !copy.has_room_for(0) {
            return self.tell_refused(from, (id, number));
        }
        let what = HeldRequest::Barrier { node: from, number };
        self.hold((id, false), Held { since: now.monotonic, what });
    }

    /// This node is not the one to ask.
    pub(super) fn tell_refused(&mut self, to: NodeNumber, (group, number): (GroupId, u64)) {
        let confirmation = Confirmation::NotLeader;
        self.tell(to, Section::Confirmed { group, number, confirmation });
    }

    /// A majority has confirmed this leader since the question came.
    pub(super) fn tell_confirmed(&mut self, to: NodeNumber, (group, number): (GroupId, u64)) {
        let confirmation = Confirmation::At(self.groups.get(group).state.applied());
        self.tell(to, Section::Confirmed { group, number, confirmation });
    }

    /// The leader has answered a question.
    pub(super) fn hear_confirmed(&mut self, (id, number): (GroupId, u64), answer: Confirmation) {
        if !self.has_copy(id) {
            return;
        }
        let copy = self.copy_mut(id);
        match answer {
            Confirmation::NotLeader => {
                copy.barriers.lost(number);
                copy.is_refused = true;
            }
            Confirmation::At(index) => {
                copy.unanswered_ticks = 0;
                self.confirm(id, number, index);
            }
        }
    }

    /// What is applied up to `index` is not stale for the reads of a question.
    pub(super) fn confirm(&mut self, id: GroupId, question: u64, index: EntryIndex) {
        let group = self.groups.get_mut(id);
        let applied = group.state.applied();
        let copy = group.role.copy_mut().expect("the group is replicated");
        let held = copy.barriers.confirmed(question, index, applied);
        copy.note_released(&held);
        self.release(id, held);
    }

    /// Whether only the leader of its group can answer a request.
    pub(super) fn needs_leader(&mut self, now: Stamp, request: &Request) -> bool {
        let Some(path) = request.path() else { return false };
        let group = self.groups.of_path(path);
        let is_here = match request.is_read() {
            true => group.role.is_in_charge(),
            // One that hands over is in charge, and takes no command.
            false => group.role.takes_commands(),
        };
        if is_here {
            return false;
        }
        let is_use = || {
            let found = group.state.resolve(path, now.wall);
            let slides = found.is_ok_and(|info| matches!(info.lifetime, Lifetime::Ttl { .. }));
            slides && matches!(request, Request::Read(_))
        };
        !request.is_read() || group.state.expired_holder(path, now.wall).is_some() || is_use()
    }

    /// The bytes of which a request or a call speaks without having resolved them here, with their end.
    pub(super) fn may_be_behind(&mut self, now: Stamp, key: StreamKey, upto: ByteOffset) -> bool {
        self.view(now).may_be_behind(key, upto)
    }
}

/// The end of the bytes that a call is about: it was seen somewhere. `None` if a call is about no bytes.
pub(super) fn end_of(call: &ShardCall) -> Option<(StreamKey, ByteOffset)> {
    use crate::Locate;
    match call {
        ShardCall::Locate(key, what) => {
            let end = match what {
                Locate::AppendEnd(at) => *at,
                Locate::MessageStart(at) => ByteOffset::new(at.get().saturating_add(1)),
                Locate::SubOffset { limit, .. } => *limit,
                Locate::IntactEnd { to, .. } => *to,
            };
            Some((*key, end))
        }
        // What is looked for may be the last record.
        ShardCall::Find(key, _) => Some((*key, ByteOffset::new(u64::MAX))),
        ShardCall::ForkSource { .. } | ShardCall::Propose(..) => None,
        ShardCall::Holder { .. } | ShardCall::Watch { .. } | ShardCall::Replicas(_) => None,
    }
}
