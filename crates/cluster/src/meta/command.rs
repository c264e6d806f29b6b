//! Changes of what the cluster knows of itself.

use super::{ADDRESS_BYTES_MAX, Given, MEMBERS_MAX, Member, MemberState, Meta, PRESENT_MAX, Place};
use crate::identity::{NodeNumber, ReplicaId};
use model::GroupId;
use std::fmt;

/// A change: the command of an entry of the meta group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaCommand {
    /// A node joins. Repeated, it gets the number that it has.
    Join(Member),
    /// A member was started: where it is now, what it can, how often it was opened.
    Announce {
        /// Which.
        number: NodeNumber,
        /// What is true of it now; its state is not looked at.
        member: Member,
    },
    /// A member becomes something else.
    SetState {
        /// Which.
        number: NodeNumber,
        /// What.
        state: MemberState,
    },
    /// A group shall be on these nodes.
    Place {
        /// Which group.
        group: GroupId,
        /// Where, without doubles.
        nodes: Vec<NodeNumber>,
    },
    /// A replica has lost what it had synced: the next one on its node has another id.
    ///
    /// The same opening of its node gets the same id again, unless it names that one. A later opening gets another one in any
    /// case: what is lost may be that the present id was ever used.
    Renew {
        /// Which group.
        group: GroupId,
        /// The id that is not used any more, as far as the node knows.
        replica: ReplicaId,
        /// Which opening of the node asks.
        epoch: u64,
    },
    /// Groups shall have so many voters.
    SetReplication(u16),
    /// A group is on these nodes now, its leader says, and nothing of that is under way.
    Placed {
        /// Which group.
        group: GroupId,
        /// Where, without doubles: voters and learners.
        nodes: Vec<NodeNumber>,
        /// The revision of the target that it follows ([`crate::Configuration::revision`]).
        revision: u64,
    },
    /// The copies of each group compare their states.
    Check,
}

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaOutcome {
    /// The node has this number.
    Joined(NodeNumber),
    /// The replica has this id.
    Renewed(ReplicaId),
    /// The check has this number.
    Checking(u64),
    /// It is so.
    Done,
    /// Nothing has changed.
    Refused(MetaRefusal),
}

/// Why nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaRefusal {
    /// There is no such member, or it was removed.
    NoMember(NodeNumber),
    /// The data directory was removed from the cluster.
    WasRemoved(NodeNumber),
    /// The number belongs to another data directory.
    OtherStore(NodeNumber),
    /// The data directory was opened more often than this.
    OldDisk,
    /// There are too many members.
    Full,
    /// The command makes no sense.
    Impossible,
}

impl fmt::Display for MetaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMember(number) => write!(f, "there is no node {number}"),
            Self::WasRemoved(number) => {
                write!(f, "the data directory was node {number}, which was removed")
            }
            Self::OtherStore(number) => write!(f, "node {number} is another data directory"),
            Self::OldDisk => f.write_str("the data directory is an old copy"),
            Self::Full => write!(
                f,
                "the cluster has {PRESENT_MAX} members, or has had {MEMBERS_MAX}; remove one that is gone"
            ),
            Self::Impossible => f.write_str("the command makes no sense"),
        }
    }
}

impl std::error::Error for MetaRefusal {}

impl Meta {
    /// Applies a committed command.
    pub fn apply(&mut self, command: &MetaCommand) -> MetaOutcome {
        let outcome = match command {
            MetaCommand::Join(member) => self.join(member).map(MetaOutcome::Joined),
            MetaCommand::Announce { number, member } => self.announce(*number, member),
            MetaCommand::SetState { number, state } => self.set_state(*number, *state),
            MetaCommand::Place { group, nodes } => self.place(*group, nodes),
            MetaCommand::Renew { group, replica, epoch } => self.renew(*group, *replica, *epoch),
            MetaCommand::SetReplication(voters) => self.set_replication(*voters),
            MetaCommand::Placed { group, nodes, revision } => {
                self.note_placed(*group, nodes, *revision)
            }
            MetaCommand::Check => {
                self.checks += 1;
                Ok(MetaOutcome::Checking(self.checks))
            }
        };
        outcome.unwrap_or_else(MetaOutcome::Refused)
    }

    fn join(&mut self, member: &Member) -> Result<NodeNumber, MetaRefusal> {
        check_addresses(member)?;
        if let Some(number) = self.number_of(member.store) {
            return match self.is_removed(number) {
                true => Err(MetaRefusal::WasRemoved(number)),
                false => Ok(number),
            };
        }
        let last = self.members.keys().next_back().map_or(0, |number| number.get());
        let is_present = |member: &&Member| member.state != MemberState::Removed;
        let present = self.members.values().filter(is_present).count();
        if last >= MEMBERS_MAX || present >= PRESENT_MAX {
            return Err(MetaRefusal::Full);
        }
        let number = NodeNumber::new(last + 1);
        self.members.insert(number, Member { state: MemberState::Active, ..member.clone() });
        Ok(number)
    }

    fn present(&mut self, number: NodeNumber) -> Result<&mut Member, MetaRefusal> {
        let member = self.members.get_mut(&number);
        let present = member.filter(|member| member.state != MemberState::Removed);
        present.ok_or(MetaRefusal::NoMember(number))
    }

    fn announce(
        &mut self,
        number: NodeNumber,
        member: &Member,
    ) -> Result<MetaOutcome, MetaRefusal> {
        check_addresses(member)?;
        let known = self.present(number)?;
        if known.store != member.store {
            return Err(MetaRefusal::OtherStore(number));
        }
        if member.epoch < known.epoch {
            return Err(MetaRefusal::OldDisk);
        }
        *known = Member { state: known.state, ..member.clone() };
        Ok(MetaOutcome::Done)
    }

    fn set_state(
        &mut self,
        number: NodeNumber,
        state: MemberState,
    ) -> Result<MetaOutcome, MetaRefusal> {
        self.present(number)?.state = state;
        Ok(MetaOutcome::Done)
    }

    /// The nodes in order, if a group can be on them.
    fn sorted(&self, group: GroupId, nodes: &[NodeNumber]) -> Result<Vec<NodeNumber>, MetaRefusal> {
        let mut sorted = nodes.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        // The meta group itself has the number behind the others.
        if group.get() > self.group_count || nodes.is_empty() || sorted.len() != nodes.len() {
            return Err(MetaRefusal::Impossible);
        }
        Ok(sorted)
    }

    fn note_placed(
        &mut self,
        group: GroupId,
        nodes: &[NodeNumber],
        revision: u64,
    ) -> Result<MetaOutcome, MetaRefusal> {
        let nodes = self.sorted(group, nodes)?;
        // A leader that is none any more may say so late.
        if revision >= self.placed_revision(group) {
            self.placed.insert(group, Place { nodes, revision });
        }
        Ok(MetaOutcome::Done)
    }

    fn place(&mut self, group: GroupId, nodes: &[NodeNumber]) -> Result<MetaOutcome, MetaRefusal> {
        let sorted = self.sorted(group, nodes)?;
        if let Some(gone) = sorted.iter().find(|node| self.is_removed(**node)) {
            return Err(MetaRefusal::NoMember(*gone));
        }
        let target = self.targets.entry(group).or_default();
        *target = Place { nodes: sorted, revision: target.revision + 1 };
        Ok(MetaOutcome::Done)
    }

    fn renew(
        &mut self,
        group: GroupId,
        replica: ReplicaId,
        epoch: u64,
    ) -> Result<MetaOutcome, MetaRefusal> {
        let node = replica.node();
        self.present(node)?;
        let present = self.replica(group, node);
        let given = self.incarnations.get(&(group, node)).map_or(0, |given| given.epoch);
        if epoch < given || group.get() > self.group_count {
            return Err(MetaRefusal::Impossible);
        }
        if epoch > given || replica == present {
            let incarnation = present.successor().incarnation();
            self.incarnations.insert((group, node), Given { incarnation, epoch });
        }
        Ok(MetaOutcome::Renewed(self.replica(group, node)))
    }

    fn set_replication(&mut self, voters: u16) -> Result<MetaOutcome, MetaRefusal> {
        let is_odd = voters % 2 == 1;
        if !is_odd || voters > 7 {
            return Err(MetaRefusal::Impossible);
        }
        self.replication = voters;
        Ok(MetaOutcome::Done)
    }
}

fn check_addresses(member: &Member) -> Result<(), MetaRefusal> {
    let fits = |address: &str| address.len() <= ADDRESS_BYTES_MAX;
    let has_peer_address = !member.peer_address.is_empty();
    if has_peer_address && fits(&member.peer_address) && fits(&member.client_address) {
        Ok(())
    } else {
        Err(MetaRefusal::Impossible)
    }
}
