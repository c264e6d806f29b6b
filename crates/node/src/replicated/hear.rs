//! What comes in from peers, and the time of replicas.

use super::held::{Held, HeldRequest};
use crate::{PeerEvent, ShardCore, Stamp};
use cluster::{Body, EntryBytes, EntryHead, GroupMessage, HEARTBEAT_TICKS, NodeNumber, Section};
use model::{EntryIndex, GroupId};

impl ShardCore {
    pub(crate) fn handle_peer(&mut self, now: Stamp, event: PeerEvent) {
        let is_refused = self.log.is_poisoned() && !is_heard_to_the_end(&event);
        if self.replication.is_none() || is_refused {
            return;
        }
        match event {
            // Replicas find out by their answers.
            PeerEvent::Up { node, opening } => {
                self.note_link_up(node, opening);
                self.ask_again(now, node);
            }
            PeerEvent::Down { node } => self.note_link_lost(node),
            PeerEvent::Section { from, section } => self.hear(now, from, section),
            PeerEvent::Tick => self.tick_replicas(now),
            PeerEvent::Meta(meta) => self.learn_meta(meta),
        }
    }

    fn note_link_lost(&mut self, node: NodeNumber) {
        self.forget_link(node);
        for id in self.replicated_groups() {
            let copy = self.copy_mut(id);
            if copy.halt.is_none() {
                copy.replica.link_lost(node);
                self.touch_group(id);
            }
        }
    }

    fn hear(&mut self, now: Stamp, from: NodeNumber, section: Section) {
        match section {
            Section::Message { group, message } => self.hear_message(from, group, message),
            Section::Barrier { group, number } => self.hear_barrier(now, from, (group, number)),
            Section::Confirmed { group, number, confirmation } => {
                self.hear_confirmed((group, number), confirmation);
            }
            Section::Forward { group, request, settled_below, payload } => {
                self.hear_forward((from, group), (request, settled_below), payload);
            }
            Section::Answer { request, payload } => self.hear_answer(request, payload),
            Section::Changed { payload, .. } => self.hear_changed(payload),
            Section::Transfer { group, transfer } => {
                self.hear_transfer(now, from, (group, transfer));
            }
            Section::Leave { opening, is_done } => self.hear_leave(from, opening, is_done),
            Section::Left { opening, shard, shard_count } => {
                self.hear_left(from, opening, (shard, shard_count));
            }
            // Only the whole says something, and the others are for the owner of the shards.
            Section::Part { .. } | Section::Report { .. } | Section::Removed { .. } => {}
        }
    }

    fn hear_message(&mut self, from: NodeNumber, group: GroupId, message: GroupMessage) {
        if !self.has_copy(group) || message.from.node() != from || !is_intact(&message.body) {
            return;
        }
        if matches!(message.body, Body::Snapshot(_)) {
            return self.hear_snapshot(group, message);
        }
        let copy = self.copy_mut(group);
        if copy.halt.is_some() {
            return self.hear_while_out(group, &message);
        }
        if copy.is_driven()
            && let Some(answer) = copy.replica.answer_heartbeat(&message)
        {
            return self.say(group, answer);
        }
        if copy.hears(&message.body) {
            let is_alive = matches!(message.body, Body::Alive { .. });
            // The replica counts what it refuses.
            let _ = copy.replica.step(message);
            // Most answers to heartbeats say nothing new.
            if !is_alive || self.wants_anything(group) {
                self.touch_group(group);
            }
        }
    }

    fn tick_replicas(&mut self, now: Stamp) {
        self.members().note_tick();
        for id in self.replicated_groups() {
            self.tick_copy(id);
            if self.members().is_due(id) {
                self.look_after(now, id);
            }
        }
        self.give_up_forwards(now);
        self.tick_meta();
        self.place_groups();
        self.tick_checks();
        self.tick_renewals();
        self.tick_wishes();
        self.tick_transfers(now);
        self.sweep(now);
        self.renew_watches();
        self.take_leave();
    }

    /// Time passes for a copy. It is driven if anything comes of that.
    fn tick_copy(&mut self, id: GroupId) {
        let is_beat = self.members().is_beat();
        let copy = self.copy_mut(id);
        if copy.is_ticked() {
            // All leaders of a node beat at once: their heartbeats share a frame.
            let passed = match (copy.leads(), is_beat) {
                (false, _) => 1,
                (true, true) => HEARTBEAT_TICKS,
                (true, false) => 0,
            };
            (0..passed).for_each(|_| copy.replica.tick());
            if copy.replica.leader().is_none() && copy.is_only_voter() {
                copy.replica.campaign();
            }
        }
        copy.tick_questions();
        while let Some(heartbeat) = self.copy_mut(id).replica.take_heartbeat() {
            self.say(id, heartbeat);
        }
        if self.wants_anything(id) {
            self.touch_group(id);
        }
    }

    /// Whether a group has something to do that may wait for time alone.
    fn wants_anything(&self, id: GroupId) -> bool {
        let group = self.groups.get(id);
        group.role.copy().is_some_and(|copy| copy.wants_anything(group.state.applied()))
    }

    /// What need not be looked at with each tick.
    fn look_after(&mut self, now: Stamp, id: GroupId) {
        let (first, last) = (self.log.first_index(id), self.log.last_index(id));
        let applied = self.groups.get(id).state.applied();
        let copy = self.copy_mut(id);
        if copy.is_ticked() && !copy.replica.is_installing() {
            // Entries that the log has released.
            let base = first.map_or(last.get(), |first| first.get() - 1);
            copy.replica.compact(EntryIndex::new(base.min(applied.get())));
        }
        self.ask_to_catch_up(now, id);
        self.touch_group(id);
        self.give_up_proposals(now, id);
        self.give_up_held(now, id);
        self.pass_reads_on(now, id);
    }

    /// A request that has waited for a leader is judged as if it came now. It does not wait longer for that.
    pub(super) fn hold_again(&mut self, now: Stamp, (id, held): (GroupId, Held)) {
        match held.what {
            HeldRequest::Barrier { node, number } => self.hear_barrier(now, node, (id, number)),
            HeldRequest::CatchUp => self.hold((id, false), held),
            HeldRequest::Client { ticket, request, data } => {
                let came = Stamp { monotonic: held.since, ..now };
                if let Some(request) = self.let_in(came, ticket, (request, &data)) {
                    self.execute(came, ticket, (request, &data));
                }
            }
            HeldRequest::Call { reply_to, call } => self.handle_call(now, reply_to, call),
        }
    }
}

/// Whether a node hears it even if its log has failed: requests, which it refuses then, and who leaves.
fn is_heard_to_the_end(event: &PeerEvent) -> bool {
    let PeerEvent::Section { section, .. } = event else { return false };
    matches!(section, Section::Forward { .. } | Section::Leave { .. } | Section::Left { .. })
}

/// Whether entries are those of their proposer.
fn is_intact(body: &Body) -> bool {
    match body {
        Body::Append { entries, .. } => entries.iter().all(|entry| match &entry.bytes {
            EntryBytes::Sent(bytes) => {
                EntryHead::decode(bytes).is_ok_and(|head| head.is_intact(bytes))
            }
            EntryBytes::Here(_) => false,
        }),
        _ => true,
    }
}
