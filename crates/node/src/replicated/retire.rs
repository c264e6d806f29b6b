//! A copy that has lost something is out, whatever later starts find, until it has a new id and a snapshot (`renew`).
//!
//! # Why it is written down
//! A start finds damage by looking. The next one may not: segments and checkpoints that nobody needs are given up, the
//! damaged ones with them. Then nothing would say that a vote or an acknowledgement is lost, and the copy would vote again.
//! So its note names nobody that a vote could name (1, or 2 for one that was removed), and background work waits until that is durable.
//! Nor does a state that lacks something become a checkpoint.

use super::copy::{GroupCopy, Halt};
use crate::ShardCore;
use log::{Note, ReplicaError};
use model::{GroupId, Term};

/// The vote of a copy that takes part in nothing: no replica has such an id.
const RETIRED: u64 = 1;

/// The same of one that its group has removed.
const REMOVED: u64 = 2;

/// Why a copy with this vote in its note is out.
pub(super) fn halt_of(vote: u64) -> Option<Halt> {
    match vote {
        RETIRED => Some(Halt::Damage),
        REMOVED => Some(Halt::Removed),
        _ => None,
    }
}

impl ShardCore {
    /// Writes down that a copy has lost something.
    pub(super) fn retire(&mut self, id: GroupId) {
        if !self.copy_mut(id).must_retire() {
            return;
        }
        let last = self.log.term_of(id, self.log.last_index(id)).unwrap_or(Term::new(1));
        let term = self.log.last_note(id).map_or(last, |note| note.term);
        let is_removed = self.copy_mut(id).halt == Some(Halt::Removed);
        let vote = if is_removed { REMOVED } else { RETIRED };
        let note = Note { term, vote, commit: self.log.committed_index(id) };
        let batch = self.log.open_batch();
        match self.log.note(id, note) {
            Ok(()) => {
                self.copy_mut(id).is_retired = true;
                self.members().retiring = Some(batch);
            }
            // There is no room, and only work makes some: it continues, and the next tick tries again.
            Err(ReplicaError::Refused(_)) => self.members().retiring = None,
            Err(_) => self.retire_for_the_first_time(id, note),
        }
    }

    /// The log knows no copy of the group: that is what is lost.
    fn retire_for_the_first_time(&mut self, id: GroupId, note: Note) {
        let last_term = u64::from(self.log.last_index(id).get() > 0);
        let batch = self.log.open_batch();
        if self.log.replicate(id, note, Term::new(last_term)).is_err() {
            return self.members().retiring = None;
        }
        self.copy_mut(id).is_retired = true;
        self.members().retiring = Some(batch);
    }

    /// Background work waits for a note that is not durable yet.
    pub(crate) fn is_retiring(&self) -> bool {
        self.replication.as_ref().is_some_and(|it| it.retiring.is_some())
    }

    /// Copies that have lost something before this start are to be written down first.
    pub(crate) fn begin_retiring(&mut self) {
        let must =
            |group: &crate::group::Group| group.role.copy().is_some_and(GroupCopy::must_retire);
        let lost: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|group| must(group))
            .map(|group| group.state.group())
            .collect();
        for id in lost {
            self.members().retiring = Some(u64::MAX);
            self.touch_group(id);
        }
    }
}
