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
        let (after, _) = match change {
            Change::Leave if is_joint => changer.leave_joint().ok()?,
            Change::Enter(_) if !is_joint => {
                let conf_change = library::conf_change(change, R::transition());
                changer.enter_joint(false, &conf_change.changes).ok()?
            }
            _ => return None,
        };
        let after = library::configuration(&after.to_conf_state());
        after.is_possible().then_some(after)
    }

    /// Applies a committed change.
    ///
    /// An impossible one changes nothing, on no replica: all have the same configuration at the same index. No
    /// correct leader proposes one, so it is counted.
    pub(super) fn apply_change(&mut self, change: &Change) {
        if self.after(change).is_none() {
            self.refusals.impossible_changes += 1;
            return;
        }
        let conf_change = library::conf_change(change, R::transition());
        let state = self.raw.apply_conf_change(&conf_change);
        let state = state.expect("the library finds the change possible");
        self.configuration = library::configuration(&state);
        R::after_change(&mut self.raw);
    }
}
