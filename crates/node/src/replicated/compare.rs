//! The copies of a group compare their states: each takes a digest of its own behind the same entry.
//!
//! # How
//! An operator asks for a check, and the cluster's own group counts it ([`cluster::Meta::checks`]). The leader of each group then
//! appends an entry with the number of the check. Each copy that applies it takes a digest of its header and its rows, in slices as a
//! checkpoint takes its rows, and reports it for ten minutes. The server compares what the nodes report.
//!
//! # What it does not see
//! The bytes of streams: each copy has checksums of these, and finds its own damage.
//!
//! # Invariants
//! - Rows of a group are copied for one purpose at a time. While they are copied for a checkpoint, the entry of a check is not
//!   applied, and none after it.

use crate::ShardCore;
use cluster::{CheckReport, KIND_CHECK, Report, StateDigest};
use log::DurableEntry;
use model::{EntryIndex, GroupId, Monotonic, Term};
use std::collections::BTreeMap;

/// How long a digest is reported: an operator looks for a minute, and some nodes have many groups to go through.
const REPORT_MS_MAX: u64 = 600_000;

/// A row of a digest takes as long as so many of a checkpoint.
const ROW_COST: usize = 4;

/// The checks of a shard's copies.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// The last one that was asked for before this node heard of the cluster. Its leaders of then have taken care of it.
    baseline: Option<u64>,
    /// Of each group the last one whose entry this node has applied.
    last: BTreeMap<GroupId, u64>,
    /// Of each group the last one whose entry this node has appended, and the term of that. Another leader may have superseded an
    /// entry of an earlier term.
    appended: BTreeMap<GroupId, (u64, Term)>,
    /// Digests under way, one for a group at most.
    under_way: Vec<CheckSlices>,
    /// The last digest of each group, and when it was done.
    done: BTreeMap<GroupId, (CheckReport, Monotonic)>,
}

/// A digest under way.
#[derive(Debug)]
struct CheckSlices {
    group: GroupId,
    number: u64,
    index: EntryIndex,
    digest: StateDigest,
}

impl Checks {
    fn is_of(&self, group: GroupId) -> bool {
        self.under_way.iter().any(|check| check.group == group)
    }

    /// The digest of a group comes first.
    fn hurry(&mut self, group: GroupId) {
        if let Some(place) = self.under_way.iter().position(|check| check.group == group) {
            let check = self.under_way.remove(place);
            self.under_way.insert(0, check);
        }
    }

    /// The state of a group is given up.
    pub(super) fn stop(&mut self, group: GroupId) {
        self.under_way.retain(|check| check.group != group);
    }

    /// What was found out lately goes into the report.
    pub(super) fn report(&self, now: Monotonic, report: &mut Report) {
        let is_new = |at: &Monotonic| now.ms_since(*at) <= REPORT_MS_MAX;
        let lately = self.done.values().filter(|(_, at)| is_new(at));
        report.checks.extend(lately.map(|(check, _)| *check));
    }
}

impl ShardCore {
    /// Whether the rows of a group are being copied.
    pub(crate) fn copies_rows(&self, group: GroupId) -> bool {
        let is_checked = self.replication.as_ref().is_some_and(|it| it.checks.is_of(group));
        is_checked || self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.group == group)
    }

    /// Asks the copies of the groups that are led here to take part in the last check.
    pub(super) fn tick_checks(&mut self) {
        let Some(wanted) = self.members().meta().map(|meta| meta.checks()) else { return };
        let baseline = *self.members().checks.baseline.get_or_insert(wanted);
        for id in self.replicated_groups() {
            if !self.members().is_due(id) {
                continue;
            }
            let last = self.members().checks.last.get(&id).copied().unwrap_or(baseline);
            let this = (wanted, self.copy_mut(id).replica.term());
            if last >= wanted || self.members().checks.appended.get(&id) == Some(&this) {
                continue;
            }
            // One that finds no room is appended by a later tick.
            if self.append_own(id, KIND_CHECK, &wanted.to_le_bytes()).is_ok() {
                self.members().checks.appended.insert(id, this);
            }
        }
    }

    /// The entry of a check is applied: the digest is of the state behind it.
    pub(super) fn begin_check(&mut self, group: GroupId, entry: &DurableEntry) {
        let Ok(number) = entry.command[..].try_into().map(u64::from_le_bytes) else { return };
        let digest = StateDigest::of_header(&self.owner_header(group));
        self.groups.get_mut(group).state.begin_rows();
        let checks = &mut self.members().checks;
        checks.last.insert(group, number);
        checks.under_way.push(CheckSlices { group, number, index: entry.index, digest });
    }

    /// Whether a digest of a group's state is under way.
    pub(crate) fn is_checking(&self) -> bool {
        self.replication.as_ref().is_some_and(|it| !it.checks.under_way.is_empty())
    }

    /// Something waits for the rows of a group.
    pub(crate) fn hurry_check(&mut self, group: GroupId) {
        if let Some(replication) = &mut self.replication {
            replication.checks.hurry(group);
        }
    }

    /// Takes the digest of some rows of the first check.
    pub(crate) fn digest_rows(&mut self) {
        let Some(replication) = &mut self.replication else { return };
        let Some(check) = replication.checks.under_way.first_mut() else { return };
        let CheckSlices { group, number, index, .. } = *check;
        let state = &mut self.groups.get_mut(group).state;
        let add = |row: stream::StreamRow| check.digest.add_row(row.stream, &row.bytes);
        if state.copy_rows(self.slice_limits.rows_max.div_ceil(ROW_COST), add) {
            let report = CheckReport { group, number, index, digest: check.digest };
            let now = replication.now.monotonic;
            replication.checks.done.insert(group, (report, now));
            replication.checks.under_way.remove(0);
            // The entry of the next check may wait for it.
            self.touch_group(group);
        }
    }
}
