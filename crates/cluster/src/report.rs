//! What a node says of its copies to all other nodes, so that any of them can tell an operator how the cluster is.
//!
//! # Why
//! The leader of a group knows who votes, who is there and who is behind, and nobody else does. So each node says it
//! once a second. A report that is lost, late or makes no sense costs nothing but the view: no replica acts on it.
//!
//! # Invariants
//! - A group is in the report of who leads it and serves, and of those that know no such leader.
//! - Groups are in rising order, and so are the nodes that are behind and the checks.
//!
//! # Format
//! `docs/format/cluster.md`.

use crate::codec::{DecodeError, Reader, Writer};
use crate::configuration::{Configuration, REPLICAS_MAX};
use crate::digest::CheckReport;
use crate::identity::{NodeNumber, ReplicaId};
use model::{GroupId, Term};
use std::collections::BTreeMap;

/// Longest name of a program's version.
pub const PROGRAM_BYTES_MAX: usize = 64;

/// The format; another one is of a program that this one does not know.
const VERSION: u8 = 1;

/// Copies in one report at most: numbers of groups have 16 bits.
const COPIES_MAX: u64 = 1 << 16;

/// What a node, or one shard of it, says of its copies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The version of its program, for people; empty if it does not say. At most [`PROGRAM_BYTES_MAX`] bytes.
    pub program: String,
    /// Copies that it has, those without a part in their group included.
    pub copies: u32,
    /// Of these, copies that take part in nothing: something that they had synced is lost or unknown.
    pub halted: u32,
    /// Groups that it leads, and groups of which it knows no leader that serves.
    pub groups: Vec<GroupReport>,
    /// Entries that the replica on each other node lacks, in the group led here in which it lacks most.
    pub lags: BTreeMap<NodeNumber, u64>,
    /// What its copies have said of their states not long ago.
    pub checks: Vec<CheckReport>,
}

/// What a node says of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReport {
    /// Which.
    pub group: GroupId,
    /// The term in which it says so.
    pub term: Term,
    /// It leads the group and serves. Else it knows nobody who does.
    pub is_led: bool,
    /// The voters and learners, at the last entry that is known there as committed.
    pub configuration: Configuration,
    /// The replicas that were heard lately, the leader included: bit n is the n-th of [`Configuration::replicas`].
    heard: u16,
}

const _: () = assert!(REPLICAS_MAX <= u16::BITS as usize);

impl GroupReport {
    /// The report of a group whose replicas are there if `is_heard`.
    #[must_use]
    pub fn new(
        (group, term): (GroupId, Term),
        is_led: bool,
        configuration: Configuration,
        is_heard: impl Fn(ReplicaId) -> bool,
    ) -> Self {
        let replicas = configuration.replicas();
        let bits = replicas.into_iter().enumerate().filter(|(_, id)| is_heard(*id));
        let heard = bits.fold(0, |heard, (bit, _)| heard | 1 << bit);
        Self { group, term, is_led, configuration, heard }
    }

    /// Whether a replica was heard lately.
    #[must_use]
    pub fn is_heard(&self, replica: ReplicaId) -> bool {
        let place = self.configuration.replicas().iter().position(|id| *id == replica);
        place.is_some_and(|bit| self.heard >> bit & 1 == 1)
    }

    /// Voters that were heard lately.
    #[must_use]
    pub fn voters_heard(&self) -> usize {
        self.configuration.voters.iter().filter(|id| self.is_heard(**id)).count()
    }
}

impl Report {
    /// Adds what another shard of the same node says.
    pub fn add(&mut self, other: &Self) {
        self.copies += other.copies;
        self.halted += other.halted;
        self.groups.extend_from_slice(&other.groups);
        self.groups.sort_unstable_by_key(|group| group.group);
        self.checks.extend_from_slice(&other.checks);
        self.checks.sort_unstable_by_key(|check| check.group);
        for (node, lag) in &other.lags {
            self.note_lag(*node, *lag);
        }
    }

    /// A replica on this node lacks so many entries.
    pub fn note_lag(&mut self, node: NodeNumber, entries: u64) {
        let known = self.lags.entry(node).or_default();
        *known = entries.max(*known);
    }

    /// The bytes.
    ///
    /// # Panics
    /// If `program` is too long.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.program.len() <= PROGRAM_BYTES_MAX, "a version is short");
        let mut out = Vec::new();
        let mut writer = Writer(&mut out);
        writer.byte(VERSION);
        writer.text(&self.program);
        writer.number(self.copies.into());
        writer.number(self.halted.into());
        writer.number(self.lags.len() as u64);
        for (node, lag) in &self.lags {
            writer.number(node.get().into());
            writer.number(*lag);
        }
        writer.number(self.groups.len() as u64);
        for group in &self.groups {
            let mut writer = Writer(&mut out);
            writer.number(group.group.get().into());
            writer.number(group.term.get());
            writer.byte(u8::from(group.is_led));
            writer.number(group.heard.into());
            group.configuration.encode(&mut out);
        }
        Writer(&mut out).number(self.checks.len() as u64);
        self.checks.iter().for_each(|check| check.write(&mut out));
        out
    }

    /// The report that these bytes are.
    ///
    /// # Errors
    /// [`DecodeError`], also for what breaks an invariant.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(DecodeError { position: 0 });
        }
        let mut report = Self {
            program: reader.text(PROGRAM_BYTES_MAX)?,
            copies: reader.number_below(COPIES_MAX)? as u32,
            halted: reader.number_below(COPIES_MAX)? as u32,
            ..Self::default()
        };
        for _ in 0..reader.number_below(u16::MAX.into())? {
            let node = read_node(&mut reader)?;
            if report.lags.last_key_value().is_some_and(|(last, _)| *last >= node) {
                return reader.error();
            }
            report.lags.insert(node, reader.number()?);
        }
        for _ in 0..reader.number_below(COPIES_MAX)? {
            let group = read_group(&mut reader)?;
            if report.groups.last().is_some_and(|last| last.group >= group.group) {
                return reader.error();
            }
            report.groups.push(group);
        }
        for _ in 0..reader.number_below(COPIES_MAX)? {
            let check = CheckReport::read(&mut reader)?;
            if report.checks.last().is_some_and(|last| last.group >= check.group) {
                return reader.error();
            }
            report.checks.push(check);
        }
        reader.end()?;
        Ok(report)
    }
}

fn read_node(reader: &mut Reader<'_>) -> Result<NodeNumber, DecodeError> {
    match reader.short()? {
        0 => reader.error(),
        number => Ok(NodeNumber::new(number)),
    }
}

fn read_group(reader: &mut Reader<'_>) -> Result<GroupReport, DecodeError> {
    let group = GroupId::new(reader.short()?);
    let term = Term::new(reader.number()?);
    let is_led = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return reader.error(),
    };
    let heard = reader.short()?;
    let configuration = Configuration::read(reader)?;
    let is_nobody = u32::from(heard) >> configuration.replicas().len() != 0;
    if is_nobody {
        reader.error()
    } else {
        Ok(GroupReport { group, term, is_led, configuration, heard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::StateDigest;
    use model::EntryIndex;
    use proptest::prelude::*;

    fn id(node: u16) -> ReplicaId {
        ReplicaId::new(NodeNumber::new(node), 1)
    }

    fn group(number: u16, is_led: bool) -> GroupReport {
        let three = Configuration::of(&[id(1), id(2), id(3)]);
        let of = (GroupId::new(number), Term::new(5));
        let three = Configuration { revision: 9, ..three };
        GroupReport::new(of, is_led, three, |replica| replica != id(2))
    }

    fn report() -> Report {
        let lags = [(2, 300), (3, 0)].map(|(node, lag)| (NodeNumber::new(node), lag)).into();
        let groups = vec![group(1, true), group(4, false)];
        let checks = vec![check(4), check(7)];
        Report { program: "0.1".to_owned(), copies: 5, halted: 1, groups, lags, checks }
    }

    fn check(group: u16) -> CheckReport {
        let (group, index) = (GroupId::new(group), EntryIndex::new(300));
        CheckReport { group, number: 2, index, digest: StateDigest::of_header(b"") }
    }

    #[test]
    fn a_report_has_golden_bytes() {
        let bytes = report().encode();
        let mut golden = vec![1, 3, b'0', b'.', b'1', 5, 1, 2, 2, 0xac, 2, 3, 0, 2];
        for (group, is_led) in [(1, 1), (4, 0)] {
            golden.extend([group, 5, is_led, 0b101, 3]);
            golden.extend([0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
            golden.extend([0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]);
            golden.extend([0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0xc0, 1]);
            golden.extend([0, 0, 0, 9]);
        }
        golden.push(2);
        for group in [4, 7] {
            golden.extend([group, 2, 0xac, 2]);
            golden.extend(check(0).digest.get().to_le_bytes());
        }
        assert_eq!(bytes, golden);
        assert_eq!(Report::decode(&bytes), Ok(report()));
    }

    #[test]
    fn reports_that_break_an_invariant_are_refused() {
        let refused = |change: &dyn Fn(&mut Report)| {
            let mut wrong = report();
            change(&mut wrong);
            assert!(Report::decode(&wrong.encode()).is_err(), "{wrong:?}");
        };
        refused(&|wrong| wrong.groups.reverse());
        refused(&|wrong| wrong.groups[1].group = wrong.groups[0].group);
        refused(&|wrong| wrong.groups[0].heard = 0b1000);
        refused(&|wrong| wrong.checks.reverse());
        refused(&|wrong| wrong.groups[0].configuration.voters.clear());
        refused(&|wrong| _ = wrong.lags.insert(NodeNumber::new(0), 1));
        let mut bytes = report().encode();
        for length in 0..bytes.len() {
            assert!(Report::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        bytes.push(0);
        assert!(Report::decode(&bytes).is_err(), "more than a report");
        bytes.pop();
        bytes[0] = 2;
        assert_eq!(Report::decode(&bytes), Err(DecodeError { position: 0 }), "a newer version");
    }

    #[test]
    fn who_is_heard_is_a_matter_of_the_replica_and_not_of_its_place() {
        let group = group(1, true);
        assert!(group.is_heard(id(1)) && !group.is_heard(id(2)) && group.is_heard(id(3)));
        assert!(!group.is_heard(id(1).successor()) && !group.is_heard(id(9)));
        assert_eq!(group.voters_heard(), 2);
    }

    #[test]
    fn shards_of_a_node_become_one_report() {
        let mut all = Report { groups: vec![group(3, true)], ..report() };
        all.note_lag(NodeNumber::new(2), 7);
        let checks = vec![check(1), check(5)];
        all.add(&Report { groups: vec![group(0, true), group(9, false)], checks, ..report() });
        let checked: Vec<u16> = all.checks.iter().map(|check| check.group.get()).collect();
        assert_eq!(checked, [1, 4, 5, 7]);
        let numbers: Vec<u16> = all.groups.iter().map(|group| group.group.get()).collect();
        assert_eq!((numbers, all.copies, all.halted), (vec![0, 3, 9], 10, 2));
        assert_eq!(all.lags[&NodeNumber::new(2)], 300, "the largest counts");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_report_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(report) = Report::decode(&bytes) {
                prop_assert_eq!(report.encode(), bytes);
            }
        }
    }
}
