//! What a run of a cluster consists of, and what comes of it.

use std::fmt;
use std::ops::AddAssign;

/// A deliberate defect outside the code under test. Each must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterMutant {
    /// Files of snapshots have a wrong bit.
    GarbledSnapshots,
    /// A snapshot's configuration does not contain its receiver.
    StrangeSnapshots,
    /// Disks acknowledge syncs and make nothing durable: votes and acknowledgements come before their sync.
    LyingDisks,
    /// Followers acknowledge entries that they do not have.
    ForgedAcks,
    /// Followers confirm a leader that they have not heard.
    ForgedConfirmations,
    /// A node that is asked for a group's reads says at once that they are not stale.
    ForgedBarriers,
    /// A node that is asked for a group's reads tells what it takes for committed. It does not ask whether it leads.
    HastyBarriers,
    /// A forwarded request arrives twice, under two numbers.
    DoubledForwards,
    /// A node that has a forwarded request says that it was not applied.
    DeniedForwards,
    /// Followers vote for everybody who asks.
    ForgedVotes,
    /// A leader says that entries are committed when it sends them.
    EarlyCommits,
    /// A leader says what is committed to followers that may have other entries there.
    UnclampedCommits,
    /// A node takes itself for the only voter.
    LonelyVoter,
    /// A write of which nobody can tell counts as not applied.
    DeniedDoubts,
    /// A write is carried out twice.
    RepeatedRequests,
    /// Nodes say at once that no fork holds a reference.
    DeniedReferences,
    /// A node loses its disk and comes back under the same id.
    LostDisk,
    /// A node's disk is that of some time ago.
    OldDisk,
    /// A node that joins takes itself for the first one.
    SelfMadeMember,
    /// The first node loses its disk, and does not know any more that others have joined it.
    ForgottenCluster,
    /// Nobody takes the place of a node that is away for long.
    NobodyReplaced,
    /// A copy that has lost something votes and acknowledges under its old id.
    OldIds,
    /// A copy with a new id acknowledges entries before its snapshot is there.
    HastyCopies,
    /// A leader says that its group is not on a node that leaves, before that is so.
    HastyPlaces,
}

impl ClusterMutant {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::GarbledSnapshots,
        Self::StrangeSnapshots,
        Self::LyingDisks,
        Self::ForgedAcks,
        Self::ForgedConfirmations,
        Self::ForgedBarriers,
        Self::HastyBarriers,
        Self::DoubledForwards,
        Self::DeniedForwards,
        Self::ForgedVotes,
        Self::EarlyCommits,
        Self::UnclampedCommits,
        Self::LonelyVoter,
        Self::DeniedDoubts,
        Self::RepeatedRequests,
        Self::DeniedReferences,
        Self::LostDisk,
        Self::OldDisk,
        Self::SelfMadeMember,
        Self::ForgottenCluster,
        Self::NobodyReplaced,
        Self::OldIds,
        Self::HastyCopies,
        Self::HastyPlaces,
    ];

    /// Whether only a cluster that begins as one node can have it.
    fn needs_growth(self) -> bool {
        let of_copies = self.is_of_copies_that_are_out();
        let of_members = matches!(
            self,
            Self::SelfMadeMember
                | Self::ForgottenCluster
                | Self::NobodyReplaced
                | Self::HastyPlaces
        );
        of_copies || of_members
    }

    /// Whether it is one of copies that have lost something.
    pub(super) fn is_of_copies_that_are_out(self) -> bool {
        matches!(self, Self::OldIds | Self::HastyCopies)
    }
}

/// What a run consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterPlan {
    /// Decides everything.
    pub seed: u64,
    /// A deliberate defect.
    pub mutant: Option<ClusterMutant>,
    /// Print every step.
    pub verbose: bool,
}

impl ClusterPlan {
    /// Whether the cluster begins as one node. Of the runs without a defect every other one does.
    #[must_use]
    pub fn grows(&self) -> bool {
        match self.mutant {
            None => self.seed % 2 == 1,
            Some(mutant) => mutant.needs_growth(),
        }
    }
}

/// What a run that broke no promise has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterReport {
    /// Names everything that happened.
    pub trace_hash: u64,
    /// Appends that were acknowledged.
    pub acked_count: u64,
    /// Operations for which an order was found.
    pub ordered_count: usize,
    /// Acknowledgements that were looked for on stable storage.
    pub images_count: u64,
    /// How often a copy has reported the digest that another one had reported for the same entry.
    pub digests_count: u64,
    /// Clusters that began as one node and have three voters of each group.
    pub grown_count: u64,
    /// Reads that a node has answered without leading the group.
    pub elsewhere_count: u64,
    /// Appends that a node has acknowledged without leading the group.
    pub forwarded_count: u64,
    /// Forks that were read as a whole.
    pub forks_count: usize,
    /// Changes that watchers have heard of.
    pub changes_count: u64,
    /// Leaders that were elected.
    pub leaders_count: usize,
    /// Entries that were compared between copies.
    pub entries_count: usize,
    /// States that were compared between copies.
    pub states_count: usize,
    /// Starts of nodes.
    pub starts: u64,
    /// Faults.
    pub faults: u64,
    /// Bytes and blocks that were damaged.
    pub hits: u64,
    /// Snapshots that were installed.
    pub installs: u64,
    /// Bytes that were sent for them.
    pub snapshot_bytes: u64,
    /// Snapshots that continued where their receiver was.
    pub resumed: u64,
    /// Simulated time in microseconds.
    pub simulated_us: u64,
}

/// Runs together: a sum names no history.
impl AddAssign for ClusterReport {
    fn add_assign(&mut self, other: Self) {
        *self = Self {
            trace_hash: 0,
            acked_count: self.acked_count + other.acked_count,
            ordered_count: self.ordered_count + other.ordered_count,
            images_count: self.images_count + other.images_count,
            digests_count: self.digests_count + other.digests_count,
            grown_count: self.grown_count + other.grown_count,
            elsewhere_count: self.elsewhere_count + other.elsewhere_count,
            forwarded_count: self.forwarded_count + other.forwarded_count,
            forks_count: self.forks_count + other.forks_count,
            changes_count: self.changes_count + other.changes_count,
            leaders_count: self.leaders_count + other.leaders_count,
            entries_count: self.entries_count + other.entries_count,
            states_count: self.states_count + other.states_count,
            starts: self.starts + other.starts,
            faults: self.faults + other.faults,
            hits: self.hits + other.hits,
            installs: self.installs + other.installs,
            snapshot_bytes: self.snapshot_bytes + other.snapshot_bytes,
            resumed: self.resumed + other.resumed,
            simulated_us: self.simulated_us + other.simulated_us,
        };
    }
}

/// A run that broke a promise.
#[derive(Debug, Clone)]
pub struct ClusterFailure {
    /// What was run.
    pub plan: ClusterPlan,
    /// What was broken.
    pub what: String,
    /// When, in simulated microseconds.
    pub at_us: u64,
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, what, at_us } = self;
        writeln!(f, "seed {} of the cluster broke a promise: {what}", plan.seed)?;
        writeln!(f, "  after {} ms", at_us / 1000)?;
        write!(f, "  again: cargo xtask sim --cluster --seed {}", plan.seed)
    }
}
