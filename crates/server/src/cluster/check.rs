//! What came of a check: the copies of each group have said what their states are.
//!
//! # What is compared
//! Digests of one check and one entry. A leader may have appended the entry twice, where leaderships moved: the later one counts.
//! A copy that has not said anything of that yet is waited for if it votes.

use super::status::Facts;
use model::GroupId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How a check is: what `/cluster/checks/N` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckStatus {
    /// Its number.
    pub number: u64,
    /// How many groups there are.
    pub groups: usize,
    /// Of how many all voters have said the same.
    pub equal: usize,
    /// Groups that have voters which have not said anything yet.
    pub waiting: Vec<WaitingGroup>,
    /// Groups of which two copies have said different things.
    pub different: Vec<DifferentGroup>,
}

/// A group that is not compared yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingGroup {
    /// Which.
    pub group: u16,
    /// The voters that have not said anything; none if nobody knows who votes.
    pub nodes: Vec<u16>,
}

/// A group whose copies differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferentGroup {
    /// Which.
    pub group: u16,
    /// The entry behind which they do.
    pub index: u64,
    /// The digest of each node's copy, in hexadecimal digits.
    pub digests: BTreeMap<u16, String>,
}

impl CheckStatus {
    /// What an earlier look has found does not become untrue.
    pub(super) fn keep_differences(&mut self, before: &Self) {
        for group in &before.different {
            if self.different.iter().all(|it| it.group != group.group) {
                self.waiting.retain(|it| it.group != group.group);
                self.different.push(group.clone());
            }
        }
    }
}

/// For operators, if not all groups are equal.
impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} groups are the same on all their nodes", self.equal, self.groups)?;
        for DifferentGroup { group, index, digests } in &self.different {
            write!(f, "\ngroup {group} differs behind its entry {index}:")?;
            for (node, digest) in digests {
                write!(f, " node {node} {digest}")?;
            }
        }
        for WaitingGroup { group, nodes } in &self.waiting {
            let nodes: Vec<String> = nodes.iter().map(u16::to_string).collect();
            match nodes.is_empty() {
                true => write!(f, "\ngroup {group}: nobody knows who votes in it")?,
                false => write!(f, "\ngroup {group}: no answer of nodes {}", nodes.join(", "))?,
            }
        }
        if !self.different.is_empty() {
            f.write_str(
                "\nCheck again: what differs twice stays. Then a defect has made it, or memory that is not sound. Report it with these \
                 lines, and replace the node that differs from the others (thalweg cluster remove)",
            )?;
        } else if !self.waiting.is_empty() {
            f.write_str("\nA node that is away or far behind cannot answer: look at the status (thalweg cluster status)")?;
        }
        Ok(())
    }
}

impl Facts<'_> {
    /// How check `number` is.
    pub(super) fn check(&self, number: u64) -> CheckStatus {
        let groups = self.groups().total;
        let mut status =
            CheckStatus { number, groups, equal: 0, waiting: Vec::new(), different: Vec::new() };
        for group in (0..groups).filter_map(|group| u16::try_from(group).ok()) {
            self.check_group(GroupId::new(group), &mut status);
        }
        status
    }

    fn check_group(&self, group: GroupId, status: &mut CheckStatus) {
        let said = self.checks.get(&group).into_iter().flatten();
        let said: Vec<_> = said.filter(|(_, check)| check.number == status.number).collect();
        let index = said.iter().map(|(_, check)| check.index).max();
        let last = || said.iter().filter(|(_, check)| Some(check.index) == index);
        let digests: BTreeMap<u16, u128> =
            last().map(|(node, check)| (node.get(), check.digest.get())).collect();
        let mut each = digests.values();
        let first = each.next();
        if each.any(|digest| Some(digest) != first) {
            let digests = digests.iter().map(|(node, digest)| (*node, format!("{digest:032x}")));
            status.different.push(DifferentGroup {
                group: group.get(),
                index: index.map_or(0, model::EntryIndex::get),
                digests: digests.collect(),
            });
            return;
        }
        let known = self.view.groups.get(&group).map(|(_, known)| &known.configuration);
        let voters = known.map_or(&[][..], |known| &known.voters[..]);
        let voters = voters.iter().map(|id| id.node().get());
        let nodes: Vec<u16> = voters.filter(|node| !digests.contains_key(node)).collect();
        if known.is_none() || !nodes.is_empty() {
            status.waiting.push(WaitingGroup { group: group.get(), nodes });
        } else {
            status.equal += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::status::testing::{Node, led, meta, report};
    use cluster::{CheckReport, Report, StateDigest};
    use model::EntryIndex;

    const ALL: &[u16] = &[1, 2, 3];

    /// What a copy says: of the group, in check 4, behind an entry, with a digest of some state.
    fn said(group: u16, index: u64, state: &[u8]) -> CheckReport {
        let (group, index) = (GroupId::new(group), EntryIndex::new(index));
        CheckReport { group, number: 4, index, digest: StateDigest::of_header(state) }
    }

    /// Three nodes that have said this of their copies; node 1 leads all groups.
    fn checked(checks: [Vec<CheckReport>; 3]) -> CheckStatus {
        let [own, second, third] = checks;
        let groups = (0..3).map(|group| led(group, 5, ALL, ALL)).collect();
        let node = Node::of(meta(3), Report { checks: own, ..report(groups) });
        node.hear(2, &Report { checks: second, ..report(Vec::new()) }, 0);
        node.hear(3, &Report { checks: third, ..report(Vec::new()) }, 0);
        node.facts(0).check(4)
    }

    fn numbers(status: &CheckStatus) -> (Vec<u16>, Vec<u16>) {
        let waiting = status.waiting.iter().map(|it| it.group).collect();
        (waiting, status.different.iter().map(|it| it.group).collect())
    }

    #[test]
    fn groups_are_equal_when_all_voters_have_said_the_same() {
        let all = || (0..3).map(|group| said(group, 9, b"same")).collect::<Vec<_>>();
        let status = checked([all(), all(), all()]);
        assert_eq!((status.groups, status.equal, numbers(&status)), (3, 3, (vec![], vec![])));
    }

    #[test]
    fn who_has_said_nothing_or_something_of_another_check_is_waited_for() {
        let all = || (0..3).map(|group| said(group, 9, b"same")).collect::<Vec<_>>();
        let mut of_before = all();
        of_before[1].number = 3;
        of_before.remove(0);
        let status = checked([all(), all(), of_before]);
        assert_eq!((status.equal, numbers(&status)), (1, (vec![0, 1], vec![])));
        assert_eq!(status.waiting[0].nodes, [3]);
    }

    #[test]
    fn a_copy_that_differs_is_found_at_the_last_entry_alone() {
        let one = || vec![said(0, 9, b"same"), said(1, 9, b"same"), said(2, 9, b"same")];
        let other = vec![said(0, 9, b"other"), said(1, 8, b"other"), said(2, 9, b"same")];
        let status = checked([one(), one(), other]);
        assert_eq!((status.equal, numbers(&status)), (1, (vec![1], vec![0])));
        let DifferentGroup { index, digests, .. } = &status.different[0];
        assert_eq!((*index, digests.len()), (9, 3));
        assert_eq!(digests[&1], digests[&2]);
        assert_ne!(digests[&1], digests[&3]);
    }
}
