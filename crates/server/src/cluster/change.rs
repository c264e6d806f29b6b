//! What an operator may make of a member, as far as that stops no group.
//!
//! # Why it is asked here
//! The cluster's own group takes each change: it does not know which nodes are up. The node that is asked knows that, and who
//! votes where, not older than some seconds. A change that a node refuses has changed nothing.

use super::status::Facts;
use cluster::{
    Configuration, MemberState, Meta, MetaCommand, NodeNumber, groups_lost_without,
    groups_stopped_by_leaving,
};
use model::GroupId;
use std::collections::BTreeSet;
use std::fmt;

/// Groups that a refusal names; of more than these it says how many.
const NAMED_MAX: usize = 20;

/// Why a member stays what it is, in words that say what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeRefused {
    /// There is one node, and no group of the cluster's own.
    Alone,
    /// There is no such member.
    NoNode {
        /// Its number.
        number: NodeNumber,
        /// Those that there are.
        known: Vec<NodeNumber>,
    },
    /// It was removed.
    WasRemoved(NodeNumber),
    /// The node that is asked cannot remove itself.
    Itself(NodeNumber),
    /// Nobody would be left to hold replicas, or to lead.
    Last(NodeNumber),
    /// It is there: it can give its replicas away.
    IsUp(NodeNumber),
    /// Nobody says who votes in these groups.
    Unknown(Groups),
    /// These groups would have no majority.
    Quorum {
        /// The member.
        number: NodeNumber,
        /// Those that are away.
        away: Vec<NodeNumber>,
        /// The groups.
        groups: Groups,
    },
}

/// Groups by number; the one behind those of the streams is the cluster's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    numbers: Vec<GroupId>,
    own: GroupId,
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |group: &GroupId| match *group == self.own {
            true => format!("{group} (the cluster's own)"),
            false => group.to_string(),
        };
        let more = self.numbers.len().saturating_sub(NAMED_MAX);
        let names: Vec<String> = self.numbers.iter().take(NAMED_MAX).map(name).collect();
        write!(f, "{}", names.join(", "))?;
        if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}

fn list(numbers: &[NodeNumber]) -> String {
    numbers.iter().map(NodeNumber::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for ChangeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => {
                f.write_str("this node is the only one: there is nobody to take anything over")
            }
            Self::NoNode { number, known } => {
                write!(f, "there is no node {number}; the nodes are {}", list(known))
            }
            Self::WasRemoved(number) => write!(
                f,
                "node {number} was removed, and its number is never used again; a new node joins with a token"
            ),
            Self::Itself(number) => {
                write!(f, "node {number} cannot remove itself: ask another node (--admin URL)")
            }
            Self::Last(number) => {
                write!(
                    f,
                    "node {number} is the last one that takes part: no other could take its groups over"
                )
            }
            Self::IsUp(number) => write!(
                f,
                "node {number} is up: remove it without --lost, and it gives its replicas away first; or stop it"
            ),
            Self::Unknown(groups) => write!(
                f,
                "it is not known who votes in the groups {groups}: wait until they have a leader (thalweg cluster status)"
            ),
            Self::Quorum { number, away, groups } => {
                write!(f, "without node {number} these groups would have no majority: {groups}; ")?;
                match away.is_empty() {
                    true => f.write_str("let another node join first, and wait until it votes"),
                    false => write!(f, "bring back what is away first: nodes {}", list(away)),
                }
            }
        }
    }
}

impl std::error::Error for ChangeRefused {}

impl Facts<'_> {
    /// What is to be asked of the cluster so that a member becomes `wanted`. `seen` are groups whose voters an earlier look has
    /// found, just before: leaders move, and not all groups need to have one at the same moment.
    pub(super) fn plan(
        &self,
        (number, wanted): (NodeNumber, MemberState),
        seen: &mut BTreeSet<GroupId>,
    ) -> Result<MetaCommand, ChangeRefused> {
        let Some(meta) = self.meta.as_deref().filter(|_| !self.is_alone) else {
            return Err(ChangeRefused::Alone);
        };
        let there = meta.members().filter(|(_, member)| member.state != MemberState::Removed);
        let there: Vec<NodeNumber> = there.map(|(number, _)| number).collect();
        match meta.member(number).map(|member| member.state) {
            None => return Err(ChangeRefused::NoNode { number, known: there }),
            Some(MemberState::Removed) => return Err(ChangeRefused::WasRemoved(number)),
            Some(_) => {}
        }
        let command = MetaCommand::SetState { number, state: wanted };
        if wanted == MemberState::Active {
            return Ok(command);
        }
        let takes_part = |state| match wanted {
            MemberState::Draining => state == MemberState::Active,
            _ => matches!(state, MemberState::Active | MemberState::Draining),
        };
        let mut others = meta.members().filter(|(other, _)| *other != number);
        if !others.any(|(_, member)| takes_part(member.state)) {
            return Err(ChangeRefused::Last(number));
        }
        if wanted == MemberState::Draining {
            return Ok(command);
        }
        self.check_removal((number, wanted), (meta, &there), seen)?;
        Ok(command)
    }

    fn check_removal(
        &self,
        (number, wanted): (NodeNumber, MemberState),
        (meta, there): (&Meta, &[NodeNumber]),
        seen: &mut BTreeSet<GroupId>,
    ) -> Result<(), ChangeRefused> {
        let is_lost = wanted == MemberState::Removed;
        if number == self.membership.number {
            return Err(ChangeRefused::Itself(number));
        }
        if is_lost && self.is_up(number) {
            return Err(ChangeRefused::IsUp(number));
        }
        let own = GroupId::new(meta.group_count());
        let known = self.now_said.groups.iter();
        let known = known.map(|(id, (_, said))| (*id, &said.configuration));
        let stopped = stopped((number, is_lost), known, |node| self.is_up(node));
        if stopped.is_empty() {
            seen.extend(self.now_said.groups.keys());
            let all = (0..=own.get()).map(GroupId::new);
            let unknown: Vec<_> = all.filter(|id| !seen.contains(id)).collect();
            return match unknown.is_empty() {
                true => Ok(()),
                false => Err(ChangeRefused::Unknown(Groups { numbers: unknown, own })),
            };
        }
        let is_away = |node: &NodeNumber| *node != number && !self.is_up(*node);
        let away = there.iter().copied().filter(is_away).collect();
        Err(ChangeRefused::Quorum { number, away, groups: Groups { numbers: stopped, own } })
    }
}

fn stopped<'a>(
    (number, is_lost): (NodeNumber, bool),
    groups: impl Iterator<Item = (GroupId, &'a Configuration)>,
    is_up: impl Fn(NodeNumber) -> bool,
) -> Vec<GroupId> {
    match is_lost {
        true => groups_lost_without(number, groups, is_up),
        false => groups_stopped_by_leaving(number, groups, is_up),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::status::testing::{Node, led, meta, number, report};

    /// Node 1 of three, whose groups have these voters.
    fn node(voters: &[u16]) -> Node {
        Node::of(meta(3), report((0..3).map(|group| led(group, 5, voters, voters)).collect()))
    }

    fn plan(node: &Node, number_: u16, wanted: MemberState) -> Result<MetaCommand, String> {
        let change = (number(number_), wanted);
        node.facts(0).plan(change, &mut BTreeSet::new()).map_err(|refused| refused.to_string())
    }

    fn asked(number_: u16, state: MemberState) -> Result<MetaCommand, String> {
        Ok(MetaCommand::SetState { number: number(number_), state })
    }

    #[test]
    fn changes_that_stop_nothing_are_asked_for() {
        let mut node = node(&[1, 2, 3]);
        for state in [MemberState::Active, MemberState::Draining, MemberState::Leaving] {
            assert_eq!(plan(&node, 2, state), asked(2, state));
        }
        node.cut(3);
        let state = MemberState::Removed;
        assert_eq!(plan(&node, 3, state), asked(3, state));
        let state = MemberState::Leaving;
        assert_eq!(plan(&node, 3, state), asked(3, state), "the others have a majority");
    }

    #[test]
    fn a_removal_that_would_stop_groups_names_them() {
        let mut three = node(&[1, 2, 3]);
        three.cut(3);
        let said = plan(&three, 2, MemberState::Leaving).unwrap_err();
        let expected = "without node 2 these groups would have no majority: 0, 1, 2 (the cluster's own); bring back what \
                        is away first: nodes 3";
        assert_eq!(said, expected);
        let mut two = node(&[1, 2]);
        two.cut(2);
        let said = plan(&two, 2, MemberState::Removed).unwrap_err();
        assert!(said.contains("let another node join first"), "{said}");
    }

    #[test]
    fn who_cannot_be_removed_is_told_why() {
        let node = node(&[1, 2, 3]);
        let said = |number: u16, wanted| plan(&node, number, wanted).unwrap_err();
        assert_eq!(said(7, MemberState::Draining), "there is no node 7; the nodes are 1, 2, 3");
        assert!(said(1, MemberState::Leaving).contains("ask another node"));
        assert!(said(2, MemberState::Removed).contains("is up"));
    }

    #[test]
    fn the_last_one_stays_and_a_removed_one_stays_removed() {
        let mut meta = meta(3);
        for (node, state) in [(2, MemberState::Draining), (3, MemberState::Removed)] {
            meta.apply(&MetaCommand::SetState { number: number(node), state });
        }
        let node = Node::of(meta, report((0..3).map(|it| led(it, 5, &[1, 2], &[1, 2])).collect()));
        let said = |number: u16, wanted| plan(&node, number, wanted).unwrap_err();
        assert!(said(1, MemberState::Draining).contains("the last one"));
        assert!(said(3, MemberState::Active).contains("never used again"));
        assert_eq!(plan(&node, 2, MemberState::Active), asked(2, MemberState::Active));
    }

    #[test]
    fn groups_that_nobody_knows_are_named_and_few_of_many() {
        let node = Node::of(meta(3), report(vec![led(1, 5, &[1, 2, 3], &[1, 2, 3])]));
        let said = plan(&node, 2, MemberState::Leaving).unwrap_err();
        assert!(said.contains("who votes in the groups 0, 2 (the cluster's own):"), "{said}");
        let change = (number(2), MemberState::Leaving);
        let mut seen = [0, 2].map(GroupId::new).into();
        let command = node.facts(0).plan(change, &mut seen);
        assert_eq!(command, asked(2, MemberState::Leaving).map_err(|_| unreachable!()));
        let numbers = (0..25).map(GroupId::new).collect();
        let many = Groups { numbers, own: GroupId::new(24) }.to_string();
        assert!(many.starts_with("0, 1,") && many.ends_with(" 19 and 5 more"), "{many}");
    }
}
