//! How the whole cluster is, as any of its nodes sees it.
//!
//! # How
//! Each shard shows on a [`Board`] once a second what it can tell of its copies (`node::ShardCore::report`). The first shard says all
//! of it to the other nodes, and what they say comes to the board as well. A [`Status`] is all of that put together when
//! an operator asks.
//!
//! # What counts
//! - Of two reports of a group that of the later term counts, and in one term the leader's.
//! - A word counts for [`REPORT_MS_MAX`], and not after the link to who has said it is lost.
//! - A group is under-replicated if it has fewer voters than the cluster wants for each, or if its leader has not heard
//!   some of them lately. One without a leader counts, too: nobody can tell. So a node alone is under-replicated.
//! - The cluster's own group counts like any other, once there is one.
//!
//! # Bounds
//! One report for each shard and each other member.

use cluster::{
    CAUGHT_UP_ENTRIES, GroupReport, Member, MemberState, Membership, Meta, NodeNumber,
    REPLICATION_DEFAULT, Report,
};
use model::{GroupId, Monotonic, ShardId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time between two reports of a node.
pub(crate) const REPORT_MS: u64 = 1_000;

/// How long a report counts: three of them may be lost.
const REPORT_MS_MAX: u64 = 3_500;

/// The version of this program, as others learn it.
const PROGRAM: &str = env!("THALWEG_VERSION");

const _: () = assert!(PROGRAM.len() <= cluster::PROGRAM_BYTES_MAX);

/// How the links of all shards to one node are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Links that this node sends on.
    pub sending: u32,
    /// Links that it receives on.
    pub receiving: u32,
    /// Why the last one was not made or has ended, until one is up.
    pub trouble: Option<String>,
}

impl LinkState {
    /// Whether both nodes can talk to each other.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.sending > 0 && self.receiving > 0
    }
}

/// What the shards of this node and the other nodes have said last.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    shards: BTreeMap<ShardId, Report>,
    nodes: BTreeMap<NodeNumber, (Monotonic, Report)>,
    meta: Option<Arc<Meta>>,
}

impl Board {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard of this node tells of its copies, and what it knows of the cluster.
    pub(crate) fn show(&self, shard: ShardId, report: Report, meta: Option<&Arc<Meta>>) {
        let mut said = self.said();
        said.shards.insert(shard, report);
        if let Some(meta) = meta {
            said.meta = Some(Arc::clone(meta));
        }
    }

    /// Another node tells of its copies. What is no report is passed over.
    pub(crate) fn hear(&self, from: NodeNumber, payload: &[u8], now: Monotonic) {
        if let Ok(report) = Report::decode(payload) {
            self.said().nodes.insert(from, (now, report));
        }
    }

    /// What this node says to the others.
    pub(crate) fn own(&self) -> Report {
        self.said().own()
    }

    /// How the cluster is.
    pub(crate) fn status(
        &self,
        membership: &Membership,
        links: &BTreeMap<NodeNumber, LinkState>,
        now: Monotonic,
    ) -> Status {
        let facts = {
            let said = self.said();
            let own = said.own();
            let is_up = |node: &NodeNumber| links.get(node).is_some_and(LinkState::is_up);
            let is_fresh = |node, at| is_up(node) && now.ms_since(at) <= REPORT_MS_MAX;
            let others = said.nodes.iter().filter(|(node, (at, _))| is_fresh(node, *at));
            let others = others.map(|(node, (_, report))| (*node, report));
            let view = View::of(others.chain([(membership.number, &own)]));
            let programs = said.nodes.iter().map(|(node, (_, it))| (*node, it.program.clone()));
            let programs = programs.chain([(membership.number, own.program.clone())]).collect();
            let (meta, is_alone) = (said.meta.clone(), own.copies == 0);
            Facts { membership, links, meta, view, programs, is_alone }
        };
        facts.status()
    }
}

impl Said {
    fn own(&self) -> Report {
        let mut own = Report { program: PROGRAM.to_owned(), ..Report::default() };
        self.shards.values().for_each(|shard| own.add(shard));
        own
    }
}

/// What all nodes say together.
#[derive(Debug, Default)]
struct View {
    groups: BTreeMap<GroupId, (NodeNumber, GroupReport)>,
    lags: BTreeMap<NodeNumber, u64>,
}

impl View {
    fn of<'a>(reports: impl Iterator<Item = (NodeNumber, &'a Report)>) -> Self {
        let mut view = Self::default();
        for (node, report) in reports {
            for said in &report.groups {
                let is_newer = |(_, known): &(NodeNumber, GroupReport)| {
                    (said.term, said.is_led) > (known.term, known.is_led)
                };
                if view.groups.get(&said.group).is_none_or(is_newer) {
                    view.groups.insert(said.group, (node, said.clone()));
                }
            }
            for (other, lag) in &report.lags {
                let known = view.lags.entry(*other).or_default();
                *known = (*lag).max(*known);
            }
        }
        view
    }

    /// Groups that a node leads.
    fn leaders(&self, node: NodeNumber) -> usize {
        self.groups.values().filter(|(by, group)| *by == node && group.is_led).count()
    }

    /// Groups of which a node has a replica, or one that votes.
    fn replicas(&self, node: NodeNumber, must_vote: bool) -> usize {
        let is_on = |group: &GroupReport| {
            let configuration = &group.configuration;
            let mut there = configuration.replicas().into_iter().filter(|id| id.node() == node);
            there.any(|id| !must_vote || configuration.votes(id))
        };
        self.groups.values().filter(|(_, group)| is_on(group)).count()
    }
}

/// All that a status is made of.
struct Facts<'a> {
    membership: &'a Membership,
    links: &'a BTreeMap<NodeNumber, LinkState>,
    meta: Option<Arc<Meta>>,
    view: View,
    programs: BTreeMap<NodeNumber, String>,
    is_alone: bool,
}

impl Facts<'_> {
    fn status(&self) -> Status {
        let from_meta = self.meta.iter().flat_map(|meta| meta.members());
        let members: BTreeMap<NodeNumber, &Member> = match &self.meta {
            Some(_) => from_meta.collect(),
            None => self.membership.members.iter().map(|(node, it)| (*node, it)).collect(),
        };
        Status {
            cluster: format!("{:016x}", self.membership.cluster),
            number: self.membership.number.get(),
            nodes: members.into_iter().map(|(number, member)| self.node(number, member)).collect(),
            groups: self.groups(),
        }
    }

    fn node(&self, number: NodeNumber, member: &Member) -> NodeStatus {
        let link = self.links.get(&number);
        let up = number == self.membership.number || link.is_some_and(LinkState::is_up);
        let all = usize::from(self.membership.group_count);
        let (leaders, replicas) = match self.is_alone {
            true => (all, all),
            false => (self.view.leaders(number), self.view.replicas(number, false)),
        };
        NodeStatus {
            number: number.get(),
            address: member.peer_address.clone(),
            client_address: member.client_address.clone(),
            state: self.state(number, (member.state, up)).to_owned(),
            up,
            leaders,
            replicas,
            lag_entries: self.view.lags.get(&number).copied().unwrap_or(0),
            version: self.programs.get(&number).cloned(),
            trouble: link.and_then(|link| link.trouble.clone()),
        }
    }

    fn state(&self, number: NodeNumber, (state, up): (MemberState, bool)) -> &'static str {
        match state {
            MemberState::Draining => "draining",
            MemberState::Leaving => "leaving",
            MemberState::Removed => "removed",
            MemberState::Active if !up => "down",
            MemberState::Active if self.is_joining(number) => "joining",
            MemberState::Active => "up",
        }
    }

    /// Whether a node votes in no group yet, and has not got all that it shall have.
    fn is_joining(&self, number: NodeNumber) -> bool {
        let Some(meta) = self.meta.as_ref().filter(|_| !self.is_alone) else { return false };
        let known = self.view.groups.keys();
        let wanted = known.filter(|group| meta.target(**group).contains(&number)).count();
        let lag = self.view.lags.get(&number).copied().unwrap_or(0);
        let is_behind = self.view.replicas(number, false) < wanted || lag > CAUGHT_UP_ENTRIES;
        self.view.replicas(number, true) == 0 && is_behind
    }

    fn groups(&self) -> GroupsStatus {
        let own = usize::from(self.meta.is_some() && !self.is_alone);
        let total = usize::from(self.membership.group_count) + own;
        if self.is_alone {
            return GroupsStatus { total, leaderless: 0, under_replicated: total };
        }
        let voters = self.meta.as_ref().map_or(REPLICATION_DEFAULT, |meta| meta.replication());
        let led = self.view.groups.values().filter(|(_, group)| group.is_led);
        let whole = led.clone().filter(|(_, it)| it.voters_heard() >= usize::from(voters));
        GroupsStatus {
            total,
            leaderless: total.saturating_sub(led.count()),
            under_replicated: total.saturating_sub(whole.count()),
        }
    }
}

/// How the cluster is, as operators see it: what `/cluster` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's id in hexadecimal digits.
    pub cluster: String,
    /// The node that answers.
    pub number: u16,
    /// All members by number, removed ones too.
    pub nodes: Vec<NodeStatus>,
    /// The groups of all of them.
    pub groups: GroupsStatus,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub number: u16,
    /// Where other nodes reach it.
    pub address: String,
    /// Where clients reach it; empty if it does not say.
    pub client_address: String,
    /// up, down, joining, draining, leaving or removed. The last three are what it is to the cluster, whether it is up or not.
    pub state: String,
    /// It is the node that answers, or has links with it in both directions.
    pub up: bool,
    /// Groups that it leads.
    pub leaders: usize,
    /// Groups of which it has a replica, as their leaders say.
    pub replicas: usize,
    /// Entries that its replica lacks in the group in which it lacks most.
    pub lag_entries: u64,
    /// Its program's version, as it has said last; nothing if it was never heard.
    pub version: Option<String>,
    /// Why there is no link to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The groups of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsStatus {
    /// All.
    pub total: usize,
    /// Of which nobody says that it leads and serves.
    pub leaderless: usize,
    /// With fewer voters than each shall have, or some that their leader does not hear.
    pub under_replicated: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Configuration, MetaCommand, MetaOutcome, ReplicaId};
    use model::Term;

    fn number(node: u16) -> NodeNumber {
        NodeNumber::new(node)
    }

    fn member(store: u64) -> Member {
        Member {
            store,
            peer_address: format!("n{store}:4439"),
            client_address: format!("n{store}:4437"),
            state: MemberState::Active,
            version: 1,
            epoch: 1,
        }
    }

    /// A cluster of two groups and its own, of so many nodes; each group is to be on three of them.
    fn meta(nodes: u16) -> Meta {
        let mut meta = Meta::new(1, 2);
        for node in 1..=nodes {
            let joined = meta.apply(&MetaCommand::Join(member(node.into())));
            assert_eq!(joined, MetaOutcome::Joined(number(node)));
        }
        for group in 0..=2 {
            let nodes = (1..=nodes.min(3)).map(number).collect();
            meta.apply(&MetaCommand::Place { group: GroupId::new(group), nodes });
        }
        meta
    }

    fn id(node: u16) -> ReplicaId {
        ReplicaId::new(number(node), 1)
    }

    fn led(group: u16, term: u64, voters: &[u16], heard: &[u16]) -> GroupReport {
        let ids: Vec<_> = voters.iter().map(|node| id(*node)).collect();
        let at = (GroupId::new(group), Term::new(term));
        GroupReport::new(at, true, Configuration::of(&ids), |id| heard.contains(&id.node().get()))
    }

    fn unled(group: u16, term: u64) -> GroupReport {
        let at = (GroupId::new(group), Term::new(term));
        GroupReport::new(at, false, Configuration::of(&[id(1), id(2), id(3)]), |_| true)
    }

    fn report(mut groups: Vec<GroupReport>) -> Report {
        groups.sort_unstable_by_key(|group| group.group);
        Report { program: "0.1.7".to_owned(), copies: 3, groups, ..Report::default() }
    }

    struct Node {
        board: Board,
        membership: Membership,
        links: BTreeMap<NodeNumber, LinkState>,
    }

    impl Node {
        /// Node 1 of the cluster, with links to all others.
        fn of(meta: Meta, own: Report) -> Self {
            let membership = Membership::first(1, 2, member(1));
            let up = || LinkState { sending: 2, receiving: 2, ..LinkState::default() };
            let others = meta.members().filter(|(node, _)| node.get() > 1);
            let links = others.map(|(node, _)| (node, up())).collect();
            let board = Board::default();
            board.show(ShardId::new(0), own, Some(&Arc::new(meta)));
            Self { board, membership, links }
        }

        fn hear(&self, node: u16, report: &Report, at_ms: u64) {
            let now = Monotonic::default().plus_ms(at_ms);
            self.board.hear(number(node), &report.encode(), now);
        }

        fn status(&self, at_ms: u64) -> Status {
            let now = Monotonic::default().plus_ms(at_ms);
            self.board.status(&self.membership, &self.links, now)
        }

        fn groups(&self, at_ms: u64) -> (usize, usize, usize) {
            let GroupsStatus { total, leaderless, under_replicated } = self.status(at_ms).groups;
            (total, leaderless, under_replicated)
        }

        fn states(&self) -> Vec<String> {
            self.status(0).nodes.into_iter().map(|node| node.state).collect()
        }
    }

    /// Three nodes that are well; each leads a group.
    fn three() -> Node {
        let all = &[1, 2, 3];
        let node = Node::of(meta(3), report(vec![led(0, 5, all, all)]));
        node.hear(2, &report(vec![led(1, 5, all, all)]), 0);
        let mut third = report(vec![led(2, 5, all, all)]);
        third.note_lag(number(2), 40);
        node.hear(3, &third, 0);
        node
    }

    #[test]
    fn a_cluster_that_is_well_says_who_leads_and_who_is_behind() {
        let status = three().status(0);
        assert_eq!(status.groups, GroupsStatus { total: 3, leaderless: 0, under_replicated: 0 });
        let second = NodeStatus {
            number: 2,
            address: "n2:4439".to_owned(),
            client_address: "n2:4437".to_owned(),
            state: "up".to_owned(),
            up: true,
            leaders: 1,
            replicas: 3,
            lag_entries: 40,
            version: Some("0.1.7".to_owned()),
            trouble: None,
        };
        assert_eq!(status.nodes[1], second);
        assert_eq!(status.nodes[0].version.as_deref(), Some(PROGRAM));
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }

    #[test]
    fn what_a_node_has_said_is_forgotten_with_time_and_with_its_link() {
        let mut node = three();
        assert_eq!(node.groups(REPORT_MS_MAX), (3, 0, 0));
        assert_eq!(node.groups(REPORT_MS_MAX + 1), (3, 2, 2));
        node.links.get_mut(&number(3)).unwrap().receiving = 0;
        assert_eq!(node.groups(0), (3, 1, 1));
        assert_eq!(node.states(), ["up", "up", "down"]);
        node.board.hear(number(2), b"no report", Monotonic::default());
        assert_eq!(node.groups(0), (3, 1, 1), "and what makes no sense is passed over");
    }

    #[test]
    fn the_later_term_counts_and_in_one_term_who_leads() {
        let node = three();
        node.hear(3, &report(vec![led(2, 5, &[1, 2, 3], &[3]), unled(0, 5)]), 0);
        assert_eq!(node.groups(0), (3, 0, 1), "who leads is not heard by all");
        node.hear(3, &report(vec![led(2, 5, &[1, 2, 3], &[1, 2, 3]), unled(0, 6)]), 0);
        assert_eq!(node.groups(0), (3, 1, 1));
    }

    #[test]
    fn voters_that_are_missing_or_not_heard_are_told() {
        let node = three();
        let few = report(vec![led(1, 5, &[2], &[2]), led(2, 6, &[1, 2, 3], &[2, 3])]);
        node.hear(2, &few, 0);
        assert_eq!(node.groups(0), (3, 0, 2));
    }

    #[test]
    fn a_node_joins_until_it_has_all_that_it_shall_have() {
        let groups = |voters: &[u16]| (0..3).map(|it| led(it, 5, voters, voters)).collect();
        let node = Node::of(meta(2), report(groups(&[1])));
        assert_eq!(node.states(), ["up", "joining"]);
        let with_learner = |group: u16| {
            let learners = vec![id(2)];
            let configuration = Configuration { learners, ..Configuration::of(&[id(1)]) };
            let at = (GroupId::new(group), Term::new(5));
            GroupReport::new(at, true, configuration, |_| true)
        };
        let mut learning = report((0..3).map(with_learner).collect());
        let node = Node::of(meta(2), learning.clone());
        assert_eq!(node.states(), ["up", "up"]);
        learning.note_lag(number(2), CAUGHT_UP_ENTRIES + 1);
        let node = Node::of(meta(2), learning);
        assert_eq!(node.states(), ["up", "joining"]);
        let node = Node::of(meta(2), report(groups(&[1, 2])));
        assert_eq!(node.states(), ["up", "up"], "it votes");
    }

    #[test]
    fn what_a_member_is_to_the_cluster_is_said_whether_it_is_up_or_not() {
        let mut meta = meta(4);
        let states = [MemberState::Draining, MemberState::Leaving, MemberState::Removed];
        for (node, state) in (2..).map(number).zip(states) {
            meta.apply(&MetaCommand::SetState { number: node, state });
        }
        let mut node = Node::of(meta, report(Vec::new()));
        node.links.remove(&number(4));
        node.links.get_mut(&number(2)).unwrap().sending = 0;
        assert_eq!(node.states(), ["up", "draining", "leaving", "removed"]);
        let up: Vec<bool> = node.status(0).nodes.iter().map(|node| node.up).collect();
        assert_eq!(up, [true, false, true, false]);
    }

    #[test]
    fn a_node_alone_has_all_groups_once() {
        let (membership, links) = (Membership::first(1, 2, member(1)), BTreeMap::new());
        let status = Board::default().status(&membership, &links, Monotonic::default());
        assert_eq!(status.groups, GroupsStatus { total: 2, leaderless: 0, under_replicated: 2 });
        let node = &status.nodes[0];
        assert_eq!((node.state.as_str(), node.leaders, node.replicas), ("up", 2, 2));
    }
}
