//! The cluster's own state: a group beside those of the streams, with a state machine of its own.
//!
//! # How
//! It is a group like any other one: a copy on each node, entries in the log of the shard that it falls on, checkpoints, a leader.
//! Its number is that of the groups of the streams, its commands are [`MetaCommand`]s, and its state is in the header of its
//! checkpoint. A request for it goes where it is led, like any other.
//!
//! # Who hears of it
//! What is applied here goes to the owner of the shard ([`ShardCore::poll_meta`]), who tells the other shards
//! ([`crate::PeerEvent::Meta`]) and writes the file `CLUSTER`.
//!
//! # What its leader does by itself
//! It makes the first node the first member, and says where groups shall be ([`cluster::targets`]).

use super::copy::{OwnProposal, settled_proposal};
use super::{Halt, Replication};
use crate::proposed::{Proposed, ReplyTo};
use crate::{Failure, Reply, ShardCore, Ticket};
use cluster::{
    ENTRY_HEAD_BYTES, KIND_META, LogPosition, Member, MemberState, Meta, MetaCommand, NodeNumber,
    Settled, targets,
};
use log::{DurableEntry, NewEntry, Purpose};
use model::{EntrySubject, GroupId, Monotonic};
use std::sync::Arc;
use stream::{Command, Subject};

/// Ticks between two looks at what the cluster knows: 500 ms.
const WISH_TICKS: u32 = 10;

/// Targets that are proposed in one tick.
const PLACES_PER_TICK: usize = 64;

impl ShardCore {
    /// The group of the cluster's own state, if it is here.
    pub(super) fn meta_group(&self) -> Option<GroupId> {
        let id = GroupId::new(self.groups.total_count());
        self.groups.holds(id).then_some(id)
    }

    /// What the cluster knows of itself, once after each change that is applied here, and once after the start.
    pub fn poll_meta(&mut self) -> Option<Arc<Meta>> {
        let replication = self.replication.as_mut()?;
        std::mem::take(&mut replication.is_meta_new).then(|| replication.meta.clone())?
    }

    /// What the cluster knows of itself, as far as this shard has heard.
    #[must_use]
    pub fn known_meta(&self) -> Option<&Arc<Meta>> {
        self.replication.as_ref()?.meta.as_ref()
    }

    /// A change of the cluster that this shard wants: to be asked for as a request. Nobody but the shards needs the answer, and they hear
    /// it on its way. What does not come true is asked for again.
    pub fn poll_wish(&mut self) -> Option<MetaCommand> {
        self.replication.as_mut()?.wishes.pop_front()
    }

    /// Compares what is so here with what the cluster knows.
    pub(super) fn tick_wishes(&mut self) {
        let ticks = &mut self.members().wish_ticks;
        *ticks += 1;
        if *ticks < WISH_TICKS || !self.members().wishes.is_empty() {
            return;
        }
        self.members().wish_ticks = 0;
        self.wish_to_renew();
        self.tick_removals();
        let Some(meta) = self.members().meta.clone() else { return };
        self.wish_to_announce(&meta);
        for id in self.replicated_groups() {
            let placed = self.copy_mut(id).placed();
            let Some((nodes, revision)) = placed else { continue };
            if meta.placed(id) != nodes || meta.placed_revision(id) != revision {
                let placed = MetaCommand::Placed { group: id, nodes, revision };
                self.members().wishes.push_back(placed);
            }
        }
    }

    /// The cluster is to know where this node is since its start. One shard of it says so.
    fn wish_to_announce(&mut self, meta: &Meta) {
        let number = self.members().forwarding.node;
        let (own, known) = (self.members().own.clone(), meta.member(number));
        let (Some(own), Some(known), Some(_)) = (own, known, self.meta_group()) else { return };
        let member = Member { state: known.state, ..own };
        if member.store == known.store && member.epoch >= known.epoch && member != *known {
            self.members().wishes.push_back(MetaCommand::Announce { number, member });
        }
    }

    /// The state as it is applied here becomes that of the shard.
    pub(crate) fn publish_meta(&mut self) {
        let Some(id) = self.meta_group() else { return };
        let group = self.groups.get(id);
        if group.role.copy().is_some_and(|copy| copy.halt.is_some()) {
            // It may lack something.
            return;
        }
        let meta = group.meta.as_ref().expect("its state is in it");
        if meta.members().next().is_some() {
            let meta = Arc::new(Meta::clone(meta));
            self.members().set_meta(meta);
            self.members().is_meta_new = true;
        }
    }

    /// Another shard of this node has applied a change.
    pub(super) fn learn_meta(&mut self, meta: Arc<Meta>) {
        self.members().set_meta(meta);
    }

    /// A change that a client asks for, where the group is led.
    pub(crate) fn handle_meta(&mut self, ticket: Ticket, command: &MetaCommand) {
        let proposed = match self.meta_group() {
            Some(id) if self.is_too_early(id, command) => Err(Failure::NoLeader),
            // The first member is the first node: it is one, or its entry is the one before.
            Some(id) if self.has_members(id) || self.groups.get(id).is_group_in_flight() => {
                self.propose_meta(id, command, ReplyTo::Client(ticket))
            }
            _ => Err(Failure::NoLeader),
        };
        if let Err(failure) = proposed {
            self.reply(ticket, Reply::Failed(failure));
        }
    }

    /// A second node is no member before each group of the first one is a copy, durably. So a group of the first node that has no
    /// note has lost it, once others are members (`start`).
    fn is_too_early(&self, id: GroupId, command: &MetaCommand) -> bool {
        let meta = self.groups.get(id).meta.as_ref();
        matches!(command, MetaCommand::Join(_)) && meta.is_some_and(|meta| !meta.is_joinable())
    }

    fn has_members(&self, id: GroupId) -> bool {
        let meta = self.groups.get(id).meta.as_ref();
        meta.is_some_and(|meta| meta.members().next().is_some())
    }

    fn propose_meta(
        &mut self,
        id: GroupId,
        command: &MetaCommand,
        reply_to: ReplyTo,
    ) -> Result<(), Failure> {
        let at = self.append_own(id, KIND_META, &command.encode())?;
        let since = self.members().now.monotonic;
        // What it says is in the entry: this command stands for none.
        let command = Command::KeepProducers(0);
        let proposed = Proposed { index: at.index, subject: Subject::Group, command, reply_to };
        let group = self.groups.get_mut(id);
        let copy = group.role.copy_mut().expect("the group is replicated");
        copy.proposals.add(at, OwnProposal { proposed, since });
        group.begin_in_flight(Subject::Group);
        Ok(())
    }

    /// Takes an entry that is none of a stream as the next one of a group that is led here.
    pub(super) fn append_own(
        &mut self,
        id: GroupId,
        kind: u8,
        command: &[u8],
    ) -> Result<LogPosition, Failure> {
        self.log.check_room(Purpose::Upkeep, command.len() as u64)?;
        let copy = self.copy_mut(id);
        if !copy.is_serving() || !copy.is_running() {
            return Err(Failure::NoLeader);
        }
        let bytes = u32::try_from(ENTRY_HEAD_BYTES + command.len()).expect("below 4 GiB");
        let at = copy.replica.propose(bytes)?;
        self.append_at(id, at, (kind, command));
        Ok(at)
    }

    /// Appends an entry that the replica has taken; the log has said that it has room.
    pub(super) fn append_at(&mut self, id: GroupId, at: LogPosition, (kind, command): (u8, &[u8])) {
        let (subject, time) = (EntrySubject::new(0), self.time.now());
        let (term, data) = (at.term, &[][..]);
        let entry = NewEntry { group: id, term, subject, at: time, kind, command, data };
        let appended = self.log.append_entry(Purpose::Upkeep, at.index, entry);
        appended.expect("the log has said that it has room");
        self.touch_group(id);
    }

    /// Applies a committed change of the cluster's own state.
    pub(super) fn apply_meta(
        &mut self,
        id: GroupId,
        entry: &DurableEntry,
        own: Option<Settled<OwnProposal>>,
    ) {
        let group = self.groups.get_mut(id);
        let command = MetaCommand::decode(&entry.command);
        let (Some(meta), Ok(command)) = (group.meta.as_mut(), command) else {
            return self.halt(id, Halt::Newer);
        };
        let outcome = meta.apply(&command);
        group.state.skip_to(entry.index);
        self.log.applied(id, entry.index);
        self.publish_meta();
        let reply_to = own.map(|own| settled_proposal(own).proposed.reply_to);
        if let Some(ReplyTo::Client(ticket)) = reply_to {
            self.reply(ticket, Reply::Meta(outcome));
        }
    }

    /// What the leader of the group does by itself.
    pub(super) fn tick_meta(&mut self) {
        let Some(id) = self.meta_group() else { return };
        if !self.has_copy(id) || !self.groups.get(id).role.is_in_charge() {
            return self.members().presence.rest();
        }
        let followers = self.copy_mut(id).replica.followers();
        let now = self.members().now.monotonic;
        self.members().presence.note(now, &followers);
        let group = self.groups.get(id);
        if group.is_group_in_flight() {
            return;
        }
        let replication = self.replication.as_mut().expect("it is a member's");
        let meta = group.meta.as_ref().expect("its state is in it");
        let wanted = match &replication.own {
            Some(own) if meta.members().next().is_none() => vec![MetaCommand::Join(own.clone())],
            _ if !replication.is_due(id) => return,
            _ => replication.moves(now, meta),
        };
        for command in wanted {
            // What finds no room is proposed again by a later tick.
            if self.propose_meta(id, &command, ReplyTo::Nobody).is_err() {
                return;
            }
        }
    }
}

/// Targets that are not those of `holders`, and members that leave and have nothing left.
fn moves(meta: &Meta, holders: &[NodeNumber]) -> Vec<MetaCommand> {
    let leaving = meta.members().filter(|(_, member)| member.state == MemberState::Leaving);
    let free = leaving.map(|(number, _)| number).filter(|number| meta.is_free(*number));
    let removed = |number| MetaCommand::SetState { number, state: MemberState::Removed };
    let mut moves: Vec<MetaCommand> = free.map(removed).collect();

    let wanted = targets(meta.group_count(), holders, meta.replication()).into_iter();
    let moved = wanted.filter(|(group, nodes)| !nodes.is_empty() && meta.target(*group) != nodes);
    let places = moved.map(|(group, nodes)| MetaCommand::Place { group, nodes });
    moves.extend(places.take(PLACES_PER_TICK));
    moves
}

impl Replication {
    /// What the cluster knows of itself, as far as this shard has heard.
    pub(super) fn meta(&self) -> Option<&Arc<Meta>> {
        self.meta.as_ref()
    }

    /// What was found out from the last one may not hold any more.
    fn set_meta(&mut self, meta: Arc<Meta>) {
        (self.in_place, self.leaders_wanted) = (None, None);
        self.meta = Some(meta);
    }

    /// What is to change so that groups are where they shall be. `meta` is what was published last.
    fn moves(&mut self, now: Monotonic, meta: &Meta) -> Vec<MetaCommand> {
        let holds = |state| matches!(state, MemberState::Active | MemberState::Draining);
        let holders = meta.members().filter(|(_, member)| holds(member.state));
        let holders = holders.map(|(number, _)| number).collect();
        let holders = self.presence.holders((now, self.forwarding.node), meta, holders);
        if self.in_place.as_ref() == Some(&holders) {
            return Vec::new();
        }
        let moves = moves(meta, &holders);
        self.in_place = moves.is_empty().then_some(holders);
        moves
    }
}
