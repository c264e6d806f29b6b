//! One group of this shard: its state machine, its role, and what is on its way through its log.
//!
//! # Invariants
//! - With one voter `applied = committed` at the end of each turn; `proposed` continues behind it without a gap.
//! - `in_flight` counts the elements of `proposed` per stream (creations: per path).
//! - Nothing orders the entries of two groups: each group commits at its own pace.
//! - A shard has the groups `g` with `g % shard_count == shard`, each at `g / shard_count`.

use crate::role::Role;
use crate::{
    Membership,
    proposed::{Proposed, ReplyTo},
    replicated::GroupCopy,
};
use cluster::{Committed, LogEntry, Meta, Solo};
use log::IdMap;
use model::{EntryIndex, GroupId, ShardId, StreamId, StreamKey, StreamPath};
use std::collections::VecDeque;
use stream::{Applied, Command, GroupState, LoggedCommand, Subject};

/// One group of a shard.
#[derive(Debug)]
pub(crate) struct Group {
    pub state: GroupState,
    pub role: Role,
    /// What the cluster knows of itself: the state of its own group, which has no streams.
    pub meta: Option<Box<Meta>>,
    /// Commands that were appended to the log of a group with one voter and are not applied yet, in the order of their indexes.
    proposed: VecDeque<Proposed>,
    in_flight: IdMap<Subject, u32>,
}

/// The groups of a shard.
#[derive(Debug)]
pub(crate) struct Groups {
    shard: ShardId,
    shard_count: u16,
    /// Of all shards together.
    group_count: u16,
    groups: Vec<Group>,
}

impl Groups {
    /// All `groups` of `shard`, in order.
    pub(crate) fn new(
        (shard, shard_count): (ShardId, u16),
        group_count: u16,
        groups: Vec<Group>,
    ) -> Self {
        Self { shard, shard_count, group_count, groups }
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    /// The number of shards of this node.
    pub(crate) fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// The number of groups of all shards together.
    pub(crate) fn total_count(&self) -> u16 {
        self.group_count
    }

    /// The shard that has a group.
    pub(crate) fn owner(&self, group: GroupId) -> ShardId {
        group.shard(self.shard_count)
    }

    /// Whether a number that another node names is that of a group here.
    pub(crate) fn holds(&self, group: GroupId) -> bool {
        self.is_here(group) && usize::from(group.get() / self.shard_count) < self.groups.len()
    }

    /// Adds the group of the cluster's own state, whose number is behind the others.
    pub(crate) fn add_own(&mut self, group: Group) {
        assert_eq!(self.place_of(group.state.group()), self.groups.len(), "it is the last one");
        self.groups.push(group);
    }

    pub(crate) fn is_here(&self, group: GroupId) -> bool {
        self.owner(group) == self.shard
    }

    /// A group of this shard.
    #[inline]
    pub(crate) fn get(&self, group: GroupId) -> &Group {
        &self.groups[self.place_of(group)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, group: GroupId) -> &mut Group {
        let place = self.place_of(group);
        &mut self.groups[place]
    }

    #[inline]
    fn place_of(&self, group: GroupId) -> usize {
        let shard = self.owner(group);
        assert_eq!(shard, self.shard, "group {group} belongs to shard {shard}");
        usize::from(group.get() / self.shard_count)
    }

    /// The group of a path.
    #[inline]
    pub(crate) fn of_path(&self, path: &StreamPath) -> &Group {
        self.get(path.group(self.group_count))
    }

    /// Whether a command of a stream is on its way.
    pub(crate) fn is_in_flight(&self, key: StreamKey) -> bool {
        self.get(key.group).is_in_flight(key.stream)
    }

    /// The group at a place of the list.
    pub(crate) fn at_mut(&mut self, place: usize) -> &mut Group {
        &mut self.groups[place]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut()
    }

    /// Asserts the invariants of all groups between two turns.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self) {
        for (place, group) in self.groups.iter().enumerate() {
            let id = group.state.group();
            assert_eq!(self.place_of(id), place, "group {id} is kept at another one's place");
            group.check();
        }
    }
}

impl Group {
    pub(crate) fn new(id: GroupId) -> Self {
        Self {
            state: GroupState::new(id),
            role: Role::Solo(Solo::first()),
            meta: None,
            proposed: VecDeque::new(),
            in_flight: IdMap::default(),
        }
    }

    /// The group of the cluster's own state, without members.
    pub(crate) fn of_cluster(id: GroupId, membership: &Membership) -> Self {
        let meta = membership.meta.as_ref().map(|it| Meta::new(it.cluster, id.get()));
        Self { meta: meta.map(Box::new), ..Self::new(id) }
    }

    /// Notes a command that has been appended to the log at `index`.
    #[inline]
    pub(crate) fn note_proposed(
        &mut self,
        index: EntryIndex,
        (subject, command): (Subject, Command),
        reply_to: ReplyTo,
    ) {
        self.begin_in_flight(subject);
        self.proposed.push_back(Proposed { index, subject, command, reply_to });
    }

    /// Takes the command of the next entry to apply.
    #[inline]
    pub(crate) fn take_proposed(&mut self, index: EntryIndex) -> Proposed {
        let proposed = self.proposed.pop_front().expect("each entry of a batch was proposed here");
        assert_eq!(proposed.index, index, "a group's entries commit in order");
        self.finish_in_flight(proposed.subject);
        proposed
    }

    #[inline]
    pub(crate) fn begin_in_flight(&mut self, subject: Subject) {
        *self.in_flight.entry(subject).or_insert(0) += 1;
    }

    #[inline]
    pub(crate) fn finish_in_flight(&mut self, subject: Subject) {
        let count = self.in_flight.get_mut(&subject).expect("what was proposed is counted");
        *count -= 1;
        if *count == 0 {
            self.in_flight.remove(&subject);
        }
    }

    /// Takes all commands on their way: nobody knows what becomes of them.
    pub(crate) fn abandon_proposed(&mut self) -> VecDeque<Proposed> {
        self.in_flight.clear();
        let mut all = std::mem::take(&mut self.proposed);
        all.extend(self.role.copy_mut().into_iter().flat_map(GroupCopy::abandon_proposed));
        all
    }

    /// Applies the next entry.
    pub(crate) fn apply<E: LogEntry>(
        &mut self,
        entry: &Committed<E>,
        logged: LoggedCommand,
    ) -> Applied {
        let entry = entry.get();
        self.state.apply(entry.index(), entry.at(), logged)
    }

    /// Passes over entries up to `index` that damage has made unreadable.
    pub(crate) fn skip_to(&mut self, index: EntryIndex) {
        let _ = self.solo().durable(index);
        self.state.skip_to(index);
    }

    /// The only voter. Recovery takes each group for one: what the log hands out is committed.
    ///
    /// # Panics
    /// If it is replicated.
    pub(crate) fn solo(&mut self) -> &mut Solo {
        match &mut self.role {
            Role::Solo(solo) => solo,
            Role::Replicated(_) => unreachable!("a group with one voter"),
        }
    }

    /// The receivers of the outcomes of what is on its way.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = ReplyTo> {
        self.all_proposed().map(|proposed| proposed.reply_to)
    }

    pub(crate) fn proposed_count(&self) -> usize {
        self.proposed.len() + self.role.copy().map_or(0, GroupCopy::proposed_count)
    }

    fn all_proposed(&self) -> impl Iterator<Item = &Proposed> {
        let of_copy = self.role.copy().into_iter().flat_map(GroupCopy::proposed);
        self.proposed.iter().chain(of_copy)
    }

    pub(crate) fn is_in_flight(&self, stream: StreamId) -> bool {
        self.in_flight.contains_key(&Subject::Stream(stream))
    }

    /// Whether a command about the group alone is on its way.
    pub(crate) fn is_group_in_flight(&self) -> bool {
        self.in_flight.contains_key(&Subject::Group)
    }

    /// Whether the group may get a command that nobody has asked for.
    pub(crate) fn may_log_for_itself(&self) -> bool {
        !self.is_group_in_flight() && self.role.is_in_charge() && self.meta.is_none()
    }

    pub(crate) fn is_path_in_flight(&self, path: &StreamPath) -> bool {
        self.in_flight.contains_key(&Subject::Path(path.hash()))
    }

    /// Asserts the invariants of the group between two turns.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self) {
        self.state.check();
        let group = self.state.group();
        let applied = self.state.applied();
        match &self.role {
            Role::Replicated(copy) => copy.check(applied),
            Role::Solo(solo) => {
                assert_eq!(
                    applied,
                    solo.committed(),
                    "group {group} lags behind what is committed"
                );
            }
        }
        let mut counts: IdMap<Subject, u32> = IdMap::default();
        for (index, proposed) in (applied.get() + 1..).zip(&self.proposed) {
            assert_eq!(proposed.index.get(), index, "group {group} has a gap in what it proposed");
        }
        for proposed in self.all_proposed() {
            *counts.entry(proposed.subject).or_insert(0) += 1;
        }
        assert_eq!(counts, self.in_flight, "group {group} miscounts what is in flight");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group with three appends to two streams on their way.
    fn busy() -> Group {
        let mut group = Group::new(GroupId::new(0));
        for (index, stream) in [(1, 7), (2, 8), (3, 7)] {
            let command = Command::Append(stream::Append::default());
            let of = (Subject::Stream(StreamId::new(stream)), command);
            group.note_proposed(EntryIndex::new(index), of, ReplyTo::Expiries);
        }
        group
    }

    #[test]
    fn what_is_in_flight_is_counted_until_it_is_taken() {
        let mut group = busy();
        group.check();
        for (index, of_7, of_8) in [(1, true, true), (2, true, false), (3, false, false)] {
            group.take_proposed(EntryIndex::new(index));
            let in_flight = [7, 8].map(|stream| group.is_in_flight(StreamId::new(stream)));
            assert_eq!(in_flight, [of_7, of_8], "after entry {index}");
        }
    }

    #[test]
    #[should_panic(expected = "miscounts")]
    fn a_wrong_count_is_found() {
        let mut group = busy();
        group.in_flight.remove(&Subject::Stream(StreamId::new(8)));
        group.check();
    }

    #[test]
    #[should_panic(expected = "a gap")]
    fn a_gap_in_what_was_proposed_is_found() {
        let mut group = busy();
        group.proposed.remove(1);
        group.check();
    }

    #[test]
    #[should_panic(expected = "lags behind")]
    fn what_is_committed_and_not_applied_is_found() {
        let mut group = busy();
        let _ = group.solo().durable(EntryIndex::new(1));
        group.check();
    }

    #[test]
    fn a_path_in_flight_is_no_stream_in_flight() {
        let mut group = Group::new(GroupId::new(0));
        let path = StreamPath::new("a").unwrap();
        let subject = Subject::Path(path.hash());
        let of = (subject, Command::Delete);
        group.note_proposed(EntryIndex::new(1), of, ReplyTo::Expiries);
        assert!(group.is_path_in_flight(&path));
        assert!(!group.is_in_flight(StreamId::new(path.hash().get())), "it has the same number");
    }
}
