//! What changes when this node takes charge of a group, and when it loses it.

use crate::ShardCore;
use model::{GroupId, StreamKey, Timestamp};
use std::collections::VecDeque;

impl ShardCore {
    /// Takes charge of a group that is led here since this turn, or passes on the writes that wait for it.
    pub(super) fn settle_leadership(&mut self, id: GroupId) {
        let copy = self.copy_mut(id);
        if copy.replica.is_settled_leader() {
            if !copy.is_serving() && copy.halt.is_none() {
                copy.serving = Some(copy.replica.term());
                self.take_charge(id);
            } else if copy.takes_proposals() && !copy.parked.is_empty() {
                // Nobody has taken over, or those before them have their answer.
                self.release_parked(id);
            }
        } else if !copy.replica.is_leader() {
            copy.serving = None;
            self.pass_on(id);
        }
    }

    /// All that was ever acknowledged is applied here. Uses that the leader before has not logged are made up for, and
    /// the duties of one node are this one's from now on.
    fn take_charge(&mut self, id: GroupId) {
        let state = &mut self.groups.get_mut(id).state;
        state.forgive_lost_touches();
        let pending: Vec<_> = state.pending_unpins().collect();
        for (token, source) in pending {
            self.releases.retry(source, token);
        }
        self.sweep_all(id);
        for info in self.groups.get(id).state.infos() {
            let key = StreamKey { group: id, stream: info.stream };
            self.retention.is_on |= info.retention.is_bounded();
            if let Some(due) = self.retention.due_of(&info, Timestamp::new(0)) {
                self.retention.put_down(key, due);
            }
        }
        if self.meta_group() == Some(id) {
            self.tick_meta();
        }
        self.release_parked(id);
    }

    /// Judges requests that have waited as if they came now. One that has to wait longer keeps its place before later ones.
    fn release_parked(&mut self, id: GroupId) {
        let now = self.members().now;
        let mut parked = VecDeque::new();
        while let Some(held) = self.copy_mut(id).pop_parked() {
            parked.push_back(held);
        }
        while let Some(held) = parked.pop_front() {
            let is_behind = self.copy_mut(id).is_asking_for(held.written_path());
            if !is_behind && self.lacks_room(&held) {
                self.queue(id, held, &mut parked);
            } else {
                self.hold_again(now, (id, held));
            }
        }
    }
}
