//! What a member can say of its copies.

use super::{GroupCopy, Halt};
use crate::ShardCore;
use cluster::{Configuration, Follower, GroupReport, NodeNumber, ReplicaId, Report};
use model::{EntryIndex, GroupId, Term};

/// Rows that are copied at once.
const ROWS_MAX: usize = 1 << 10;

/// What a copy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// It follows, or looks for a leader.
    Follows,
    /// It leads, and its state does not hold yet all that was acknowledged before.
    Begins,
    /// It leads and answers.
    Serves,
    /// It takes part in nothing: something that it had synced is lost or unknown.
    Halted,
    /// It takes part in nothing: the group is kept by other nodes.
    Removed,
}

/// One group's copy on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStatus {
    /// The group.
    pub group: GroupId,
    /// The copy's id.
    pub id: ReplicaId,
    /// What it does.
    pub state: CopyState,
    /// The leader's node, as far as is known here.
    pub leader: Option<NodeNumber>,
    /// The present term.
    pub term: Term,
    /// The last entry of the log here.
    pub last: EntryIndex,
    /// The last entry that is applied here.
    pub applied: EntryIndex,
    /// The last entry that is known here as committed.
    pub committed: EntryIndex,
    /// The voters and learners, at the last entry that is known here as committed and durable.
    pub configuration: Configuration,
    /// It leads, and a majority knows durably that this configuration is committed.
    pub is_settled: bool,
    /// A snapshot comes: bytes that are here, and all of them.
    pub installing: Option<(u64, u64)>,
    /// The other copies, as their leader sees them.
    pub followers: Vec<Follower>,
}

impl ShardCore {
    /// The copies of replicated groups of this shard.
    #[must_use]
    pub fn copies(&self) -> Vec<CopyStatus> {
        let installing =
            |group| self.replication.as_ref().and_then(|it| it.transfers.progress(group));
        let status = |group: &crate::group::Group| {
            let copy = group.role.copy()?;
            let replica = &copy.replica;
            let is_unwanted = self.is_unwanted(group.state.group());
            let is_removed = copy.halt == Some(Halt::Removed) || is_unwanted;
            let state = match (copy.halt.is_some(), copy.is_serving(), replica.is_leader()) {
                (true, ..) if is_removed => CopyState::Removed,
                (true, ..) => CopyState::Halted,
                (_, true, _) => CopyState::Serves,
                (_, _, true) => CopyState::Begins,
                _ => CopyState::Follows,
            };
            Some(CopyStatus {
                group: group.state.group(),
                id: copy.id(),
                state,
                leader: replica.leader().map(ReplicaId::node),
                term: replica.term(),
                last: replica.last_index(),
                applied: group.state.applied(),
                committed: replica.committed(),
                configuration: replica.configuration().clone(),
                is_settled: replica.is_configuration_settled(),
                installing: installing(group.state.group()),
                followers: replica.followers(),
            })
        };
        self.groups.iter().filter_map(status).collect()
    }

    /// What this shard can tell the other nodes of its copies; `None` if it has none, as a node alone. Its program is left empty.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        let replication = self.replication.as_ref()?;
        let mut report = Report::default();
        replication.checks.report(replication.now.monotonic, &mut report);
        for group in self.groups.iter() {
            let id = group.state.group();
            if let Some(copy) = group.role.copy().filter(|_| !self.is_unwanted(id)) {
                copy.report(id, &mut report);
            }
        }
        Some(report)
    }

    /// The state of a group as a checkpoint of it would hold it: header and rows. Copies at the same index have the same.
    /// `None` while its rows are being copied.
    pub fn checkpoint_bytes(&mut self, group: GroupId) -> Option<Vec<u8>> {
        if self.copies_rows(group) {
            return None;
        }
        let mut bytes = self.owner_header(group);
        let state = &mut self.groups.get_mut(group).state;
        let mut rows = Vec::new();
        state.begin_rows();
        while !state.copy_rows(ROWS_MAX, |row| rows.push((row.stream, row.bytes.clone()))) {}
        // A checkpoint has them in this order, wherever the state has them.
        rows.sort_unstable();
        for (stream, row) in rows {
            bytes.extend_from_slice(&stream.get().to_le_bytes());
            bytes.extend_from_slice(&row);
        }
        Some(bytes)
    }
}

impl GroupCopy {
    /// Adds what other nodes cannot know of it by themselves.
    fn report(&self, group: GroupId, report: &mut Report) {
        let replica = &self.replica;
        report.copies += 1;
        report.halted += u32::from(self.halt.is_some());
        let is_led = self.is_serving();
        let is_led_elsewhere = replica.leader().is_some_and(|leader| leader != replica.id());
        if self.halt.is_some() || (is_led_elsewhere && !is_led) {
            return;
        }
        let followers = replica.followers();
        let last = replica.last_index().get();
        for follower in &followers {
            let lacks = last.saturating_sub(follower.matched.get());
            report.note_lag(follower.id.node(), lacks);
        }
        let is_heard = |id: ReplicaId| {
            let is_it = |follower: &Follower| follower.id == id && follower.is_heard;
            id == replica.id() || followers.iter().any(is_it)
        };
        let (at, configuration) = ((group, replica.term()), replica.configuration().clone());
        report.groups.push(GroupReport::new(at, is_led, configuration, is_heard));
    }
}
