//! Changes of a group's configuration.

use super::{NotProposed, PROPOSED, Replica};
use crate::configuration::{Change, Configuration};
use crate::identity::ReplicaId;
use crate::library;
use crate::message::LogPosition;
use crate::rules::Rules;
use raft::Changer;

/// More bytes than any change has where the library counts them.
const CHANGE_BYTES: u32 = 1 << 10;

/// Why a change was not taken. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeRefused {
    /// As for any other proposal.
    NotProposed(NotProposed),
    /// Another change is under way.
    Busy,
    /// The change unseats the leader, which must hand over first (rule 1).
    UnseatsLeader(ReplicaId),
    /// It leads to no configuration, or to the one that is there.
    Impossible,
}

impl<R: Rules> Replica<R> {
    /// Takes a change as a proposal. The owner appends it, as for [`Replica::propose`].
    ///
    /// # Errors
    /// [`ChangeRefused`].
    pub fn propose_change(&mut self, change: Change) -> Result<LogPosition, ChangeRefused> {
        self.check_propose(CHANGE_BYTES).map_err(ChangeRefused::NotProposed)?;
        self.flush();
        if self.raw.raft.has_pending_conf() {
            return Err(ChangeRefused::Busy);
        }
        if change.unseats(self.id) {
            return Err(ChangeRefused::UnseatsLeader(self.id));
        }
        if self.after(&change).is_none_or(|after| after == self.configuration) {
            return Err(ChangeRefused::Impossible);
        }
        let conf_change = library::conf_change(&change, R::transition());
        let taken = self.raw.propose_conf_change(PROPOSED.to_vec(), conf_change);
        taken.expect("the leader takes what was checked");
        self.owner_last += 1;
        assert_eq!(self.raw.raft.raft_log.last_index(), self.owner_last, "it got its index");
        self.changes.insert(self.owner_last, change);
        Ok(LogPosition::new(self.owner_last, self.raw.raft.term))
    }

    /// The configuration behind a change; `None` if the library would refuse it.
    fn after(&self, change: &Change) -> Option<Configuration> {
        let changer = Changer::new(self.raw.raft.prs());
        let is_joint = self.configuration.is_joint();
        let known = self.configuration.revision;
        let ((after, _), revision) = match change {
            Change::Leave if is_joint => (changer.leave_joint().ok()?, known),
            Change::Enter { revision, .. } if !is_joint && *revision >= known => {
                let conf_change = library::conf_change(change, R::transition());
                (changer.enter_joint(false, &conf_change.changes).ok()?, *revision)
            }
            _ => return None,
        };
        let after = library::configuration(&after.to_conf_state(), revision);
        after.is_possible().then_some(after)
    }

    /// Applies a committed change.
    ///
    /// An impossible one changes nothing, on no replica: all have the same configuration at the same index. No
    /// correct leader proposes one, so it is counted.
    pub(super) fn apply_change(&mut self, change: &Change) {
        let Some(after) = self.after(change) else {
            self.refusals.impossible_changes += 1;
            return;
        };
        let conf_change = library::conf_change(change, R::transition());
        let state = self.raw.apply_conf_change(&conf_change);
        let state = state.expect("the library finds the change possible");
        self.configuration = library::configuration(&state, after.revision);
        R::after_change(&mut self.raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Part;
    use crate::identity::NodeNumber;
    use crate::replica::{Note, Start};
    use crate::rules::Enforced;
    use crate::terms::Terms;
    use model::{EntryIndex, Term};
    use std::collections::BTreeMap;

    fn replica(configuration: Configuration) -> Replica<Enforced> {
        let note = Note { term: Term::new(1), ..Note::default() };
        let (terms, applied) = (Terms::new(LogPosition::new(0, 0)), EntryIndex::new(0));
        let (id, seed, changes) = (id(1), 1, BTreeMap::new());
        Replica::new(Start { id, seed, configuration, note, terms, applied, changes })
    }

    fn id(node: u64) -> ReplicaId {
        ReplicaId::new(NodeNumber::new(u16::try_from(node).unwrap()), 1)
    }

    #[test]
    fn the_configuration_behind_a_change_is_the_one_that_the_library_finds() {
        let mut state = 3_u64;
        // Knuth's linear congruential generator.
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        let (mut possible, mut joint) = (0, 0);
        for _ in 0..300 {
            let mut replica = replica(Configuration::of(&[id(1), id(2)]));
            for _ in 0..20 {
                let mut parts = BTreeMap::new();
                for _ in 0..1 + below(3) {
                    let parts_there_are = [Part::Voter, Part::Learner, Part::Gone];
                    let part = parts_there_are[below(3) as usize];
                    parts.insert(id(1 + below(5)), part);
                }
                let change = match below(2) {
                    0 => Change::Leave,
                    _ => {
                        let revision = replica.configuration.revision + below(9);
                        let revision = revision.saturating_sub(2);
                        Change::Enter { revision, parts: parts.into_iter().collect() }
                    }
                };
                let expected = replica.after(&change);
                let before = replica.configuration.clone();
                assert_eq!(before.after(&change), expected, "{change:?} behind {before:?}");
                replica.apply_change(&change);
                possible += usize::from(expected.is_some());
                joint += usize::from(replica.configuration.is_joint());
            }
        }
        assert!(possible > 1000 && joint > 1000, "{possible} changes, {joint} joint");
    }
}
