//! The voters of a group, and changes of them.
//!
//! # How it changes
//! Always through a joint configuration: [`Change::Enter`] adds new roles, and until [`Change::Leave`]
//! both the old and the new voters must agree. One change is under way at a time. Nothing leaves a joint
//! configuration by itself: the next step of the placement does, under any leader.
//!
//! # Invariants
//! - A replica has one role. Only a voter that is about to become a learner is in two lists:
//!   `outgoing` and `learners_next`.
//! - Lists are sorted and without doubles.
//! - There is at least one voter.
//! - The revision never falls: what follows an older target is no change that can be ([`Configuration::revision`]).
//!
//! # Format
//! `docs/format/cluster.md`. Source: Ongaro's thesis §4.3, in the form of etcd's raft.

use crate::codec::{DecodeError, Reader, Writer};
use crate::identity::ReplicaId;

/// Most replicas of a group, those that come and go included.
pub const REPLICAS_MAX: usize = 16;

/// The voters of a group, and those that only learn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// Replicas whose majority commits.
    pub voters: Vec<ReplicaId>,
    /// Replicas that get entries and do not vote.
    pub learners: Vec<ReplicaId>,
    /// The voters before a change that is not finished: their majority must agree, too. Else empty.
    pub outgoing: Vec<ReplicaId>,
    /// Outgoing voters that become learners when the change is finished.
    pub learners_next: Vec<ReplicaId>,
    /// The revision of the group's target that the last change has followed ([`crate::Meta::target`]); 0 before the first one.
    pub revision: u64,
}

/// What a replica becomes by a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It votes.
    Voter,
    /// It gets entries and does not vote.
    Learner,
    /// It is none of the group's.
    Gone,
}

/// A change of a group's configuration: the command of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Enters a joint configuration.
    Enter {
        /// The revision of the group's target that it follows.
        revision: u64,
        /// What replicas become.
        parts: Vec<(ReplicaId, Part)>,
    },
    /// Leaves it.
    Leave,
}

impl Configuration {
    /// Only voters.
    #[must_use]
    pub fn of(voters: &[ReplicaId]) -> Self {
        let mut configuration = Self { voters: voters.to_vec(), ..Self::default() };
        configuration.voters.sort_unstable();
        configuration
    }

    /// Whether both old and new voters must agree at the moment.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether the replica has any part in the group.
    #[must_use]
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.lists().iter().any(|list| list.contains(&replica))
    }

    /// Whether the replica's voice counts.
    #[must_use]
    pub fn votes(&self, replica: ReplicaId) -> bool {
        self.voters.contains(&replica) || self.outgoing.contains(&replica)
    }

    /// Everybody, each once, in order.
    #[must_use]
    pub fn replicas(&self) -> Vec<ReplicaId> {
        let mut all = self.lists().concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether these replicas are a majority, of the old voters too in a joint configuration.
    #[must_use]
    pub fn is_quorum(&self, holds: impl Fn(ReplicaId) -> bool) -> bool {
        let has_majority = |list: &[ReplicaId]| {
            list.is_empty() || list.iter().filter(|id| holds(**id)).count() > list.len() / 2
        };
        has_majority(&self.voters) && has_majority(&self.outgoing)
    }

    /// The configuration behind a change; `None` if it leads to none. The library says the same
    /// (`replica/change.rs` compares the two). A log is replayed without the library.
    #[must_use]
    pub fn after(&self, change: &Change) -> Option<Self> {
        let mut after = self.clone();
        match change {
            Change::Leave if self.is_joint() => {
                after.learners.append(&mut after.learners_next);
                after.learners.sort_unstable();
                after.outgoing.clear();
            }
            Change::Enter { revision, parts } if !self.is_joint() && *revision >= self.revision => {
                after.revision = *revision;
                after.outgoing = self.voters.clone();
                parts.iter().for_each(|(id, part)| after.give(*id, *part));
            }
            Change::Leave | Change::Enter { .. } => return None,
        }
        after.is_possible().then_some(after)
    }

    /// A replica becomes something in a joint configuration.
    fn give(&mut self, id: ReplicaId, part: Part) {
        for list in [&mut self.voters, &mut self.learners, &mut self.learners_next] {
            list.retain(|known| *known != id);
        }
        let list = match part {
            Part::Voter => &mut self.voters,
            Part::Learner if self.outgoing.contains(&id) => &mut self.learners_next,
            Part::Learner => &mut self.learners,
            Part::Gone => return,
        };
        list.push(id);
        list.sort_unstable();
    }

    fn lists(&self) -> [&[ReplicaId]; 4] {
        [&self.voters, &self.learners, &self.outgoing, &self.learners_next]
    }

    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        for list in self.lists() {
            writer.number(list.len() as u64);
            list.iter().for_each(|id| writer.number(id.bits()));
        }
        writer.number(self.revision);
    }

    /// The configuration that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`], also for what breaks an invariant.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let configuration = Self::read(&mut reader)?;
        reader.end()?;
        Ok(configuration)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let configuration = Self {
            voters: read_list(reader)?,
            learners: read_list(reader)?,
            outgoing: read_list(reader)?,
            learners_next: read_list(reader)?,
            revision: reader.number()?,
        };
        if configuration.is_possible() { Ok(configuration) } else { reader.error() }
    }

    /// Whether the invariants hold.
    pub(crate) fn is_possible(&self) -> bool {
        let is_sorted = self.lists().iter().all(|list| list.is_sorted_by(|a, b| a < b));
        let is_voter = |id: &ReplicaId| self.voters.contains(id);
        let learns_and_votes =
            self.learners.iter().any(|id| is_voter(id) || self.outgoing.contains(id));
        let demoted = self.learners_next.iter();
        let are_outgoing = demoted.clone().all(|id| self.outgoing.contains(id) && !is_voter(id));
        !self.voters.is_empty()
            && self.replicas().len() <= REPLICAS_MAX
            && is_sorted
            && !learns_and_votes
            && are_outgoing
            && demoted.clone().all(|id| !self.learners.contains(id))
    }
}

fn read_list(reader: &mut Reader<'_>) -> Result<Vec<ReplicaId>, DecodeError> {
    let count = reader.number_below(REPLICAS_MAX as u64)?;
    (0..count).map(|_| read_replica(reader)).collect()
}

pub(crate) fn read_replica(reader: &mut Reader<'_>) -> Result<ReplicaId, DecodeError> {
    let bits = reader.number()?;
    ReplicaId::from_bits(bits).map_or_else(|| reader.error(), Ok)
}

impl Change {
    /// Whether the replica loses its vote by it.
    #[must_use]
    pub fn unseats(&self, replica: ReplicaId) -> bool {
        match self {
            Self::Enter { parts, .. } => {
                parts.iter().any(|(id, part)| *id == replica && *part != Part::Voter)
            }
            Self::Leave => false,
        }
    }

    /// The bytes: the command of an entry of kind [`crate::KIND_CHANGE`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer(&mut out);
        match self {
            Self::Leave => writer.byte(0),
            Self::Enter { revision, parts } => {
                writer.byte(1);
                writer.number(*revision);
                writer.number(parts.len() as u64);
                for (id, part) in parts {
                    writer.number(id.bits());
                    writer.byte(match part {
                        Part::Voter => 0,
                        Part::Learner => 1,
                        Part::Gone => 2,
                    });
                }
            }
        }
        out
    }

    /// The change that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`], also if a replica is named twice or none is.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let change = match reader.byte()? {
            0 => Self::Leave,
            1 => Self::Enter { revision: reader.number()?, parts: read_parts(&mut reader)? },
            _ => return reader.error(),
        };
        reader.end()?;
        Ok(change)
    }
}

fn read_parts(reader: &mut Reader<'_>) -> Result<Vec<(ReplicaId, Part)>, DecodeError> {
    let count = reader.number_below(REPLICAS_MAX as u64)?;
    let mut parts: Vec<(ReplicaId, Part)> = Vec::new();
    for _ in 0..count {
        let id = read_replica(reader)?;
        let part = match reader.byte()? {
            0 => Part::Voter,
            1 => Part::Learner,
            2 => Part::Gone,
            _ => return reader.error(),
        };
        if parts.iter().any(|(known, _)| *known == id) {
            return reader.error();
        }
        parts.push((id, part));
    }
    if parts.is_empty() { reader.error() } else { Ok(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NodeNumber;

    fn id(node: u16) -> ReplicaId {
        ReplicaId::new(NodeNumber::new(node), 1)
    }

    fn joint() -> Configuration {
        Configuration {
            voters: vec![id(2), id(3), id(4)],
            learners: vec![id(5)],
            outgoing: vec![id(1), id(2), id(3)],
            learners_next: vec![id(1)],
            revision: 300,
        }
    }

    #[test]
    fn a_configuration_has_golden_bytes() {
        let mut out = Vec::new();
        Configuration::of(&[id(2), id(1)]).encode(&mut out);
        let golden = [
            2, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
            1, 0, 0, 0, 0,
        ];
        assert_eq!(out, golden);
        assert_eq!(Configuration::decode(&out), Ok(Configuration::of(&[id(1), id(2)])));
    }

    #[test]
    fn a_joint_configuration_comes_back() {
        let mut out = Vec::new();
        joint().encode(&mut out);
        assert_eq!(Configuration::decode(&out), Ok(joint()));
        assert!(joint().is_joint() && joint().votes(id(1)) && !joint().votes(id(5)));
        assert_eq!(joint().replicas(), (1..=5).map(id).collect::<Vec<_>>());
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let refused = |configuration: Configuration| {
            let mut out = Vec::new();
            configuration.encode(&mut out);
            assert!(Configuration::decode(&out).is_err(), "{configuration:?}");
        };
        refused(Configuration::default());
        refused(Configuration { voters: vec![id(2), id(1)], ..Configuration::default() });
        refused(Configuration { voters: vec![id(1), id(1)], ..Configuration::default() });
        refused(Configuration { learners: vec![id(2)], ..joint() });
        refused(Configuration { learners_next: vec![id(2)], ..joint() });
        refused(Configuration { learners_next: vec![id(4)], ..joint() });
    }

    #[test]
    fn a_joint_quorum_is_a_majority_of_both() {
        let holds =
            |nodes: &[u16]| joint().is_quorum(|replica| nodes.contains(&replica.node().get()));
        assert!(holds(&[2, 3]));
        assert!(!holds(&[1, 2]));
        assert!(!holds(&[3, 4]));
        assert!(holds(&[1, 2, 4]));
    }

    #[test]
    fn a_change_that_follows_an_older_target_is_none() {
        let known = Configuration { revision: 7, ..Configuration::of(&[id(1), id(2)]) };
        let after = |revision| {
            known.after(&Change::Enter { revision, parts: vec![(id(3), Part::Learner)] })
        };
        assert_eq!(after(6), None);
        assert_eq!([7, 9].map(|revision| after(revision).unwrap().revision), [7, 9]);
        let left = after(9).unwrap().after(&Change::Leave).unwrap();
        assert_eq!((left.revision, left.learners), (9, vec![id(3)]));
    }

    #[test]
    fn changes_have_golden_bytes() {
        assert_eq!(Change::Leave.encode(), [0]);
        let parts = vec![(id(4), Part::Voter), (id(1), Part::Gone)];
        let enter = Change::Enter { revision: 300, parts };
        let golden = [
            1, 0xac, 2, 2, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0, 0x81, 0x80, 0x80, 0x80,
            0x80, 0x80, 0x40, 2,
        ];
        assert_eq!(enter.encode(), golden);
        assert_eq!(Change::decode(&golden), Ok(enter.clone()));
        assert!(enter.unseats(id(1)) && !enter.unseats(id(4)) && !enter.unseats(id(9)));
    }

    #[test]
    fn changes_that_name_a_replica_twice_or_none_are_refused() {
        let enter = |parts| Change::Enter { revision: 0, parts };
        let twice = enter(vec![(id(4), Part::Voter), (id(4), Part::Gone)]);
        assert!(Change::decode(&twice.encode()).is_err());
        assert!(Change::decode(&enter(Vec::new()).encode()).is_err());
        assert!(Change::decode(&[2]).is_err());
        assert!(Change::decode(&[0, 0]).is_err());
    }
}
