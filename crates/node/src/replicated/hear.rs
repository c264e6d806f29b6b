//! What comes in from peers, and the time of replicas.

use super::copy::{Held, HeldRequest};
use crate::{PeerEvent, ShardCore, Stamp};
use cluster::{Body, EntryBytes, EntryHead, GroupMessage, NodeNumber, Section};
use model::{EntryIndex, GroupId};

impl ShardCore {
    pub(crate) fn handle_peer(&mut self, now: Stamp, event: PeerEvent) {
        if self.replication.is_none() || self.log.is_poisoned() {
            return;
        }
        match event {
            // Replicas find out by their answers.
            PeerEvent::Up { .. } => {}
            PeerEvent::Down { node } => self.note_link_lost(node),
            PeerEvent::Section { from, section } => self.hear(from, section),
            PeerEvent::Tick => self.tick_replicas(now),
        }
    }

    fn note_link_lost(&mut self, node: NodeNumber) {
        for id in self.replicated_groups() {
            let copy = self.copy_mut(id);
            if copy.halt.is_none() {
                copy.replica.link_lost(node);
                self.touch_group(id);
            }
        }
    }

    fn hear(&mut self, from: NodeNumber, section: Section) {
        match section {
            Section::Message { group, message } => self.hear_message(from, group, message),
            // No node of this version forwards, sends snapshots, or asks for the leader's word.
            Section::Forward { .. }
            | Section::Answer { .. }
            | Section::Barrier { .. }
            | Section::Confirmed { .. }
            | Section::SnapshotFailed { .. }
            | Section::Part { .. } => {}
        }
    }

    fn hear_message(&mut self, from: NodeNumber, group: GroupId, message: GroupMessage) {
        let is_here = group.get() < self.groups.total_count() && self.groups.is_here(group);
        if !is_here || message.from.node() != from || !is_intact(&message.body) {
            return;
        }
        let copy = self.copy_mut(group);
        // While the log has no room for what came before, what comes now is lost: its sender repeats it.
        if copy.is_running() {
            // The replica counts what it refuses.
            let _ = copy.replica.step(message);
            self.touch_group(group);
        }
    }

    fn tick_replicas(&mut self, now: Stamp) {
        for id in self.replicated_groups() {
            let (first, last) = (self.log.first_index(id), self.log.last_index(id));
            let applied = self.groups.get(id).state.applied();
            let copy = self.copy_mut(id);
            if copy.is_running() {
                copy.replica.tick();
                // Entries that the log has released.
                let base = first.map_or(last.get(), |first| first.get() - 1);
                copy.replica.compact(EntryIndex::new(base.min(applied.get())));
            }
            self.touch_group(id);
            self.give_up_proposals(now, id);
            self.give_up_held(now, id);
        }
    }

    /// A request that has waited for a leader is judged as if it came now.
    pub(super) fn hold_again(&mut self, now: Stamp, held: Held) {
        match held.what {
            HeldRequest::Client { ticket, request, data } => {
                self.route(now, ticket, (request, &data));
            }
            HeldRequest::Call { reply_to, call } => self.handle_call(now, reply_to, call),
        }
    }
}

/// Whether entries are those of their proposer, and no snapshot comes that cannot be taken.
fn is_intact(body: &Body) -> bool {
    match body {
        Body::Append { entries, .. } => entries.iter().all(|entry| match &entry.bytes {
            EntryBytes::Sent(bytes) => {
                EntryHead::decode(bytes).is_ok_and(|head| head.is_intact(bytes))
            }
            EntryBytes::Here(_) => false,
        }),
        Body::Snapshot(_) => false,
        _ => true,
    }
}
