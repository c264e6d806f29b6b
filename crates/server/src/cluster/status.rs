//! How the whole cluster is, as any of its nodes sees it.
//!
//! # How
//! Each shard shows on a [`Board`] once a second what it can tell of its copies (`node::ShardCore::report`). The first shard says all
//! of it to the other nodes, and what they say comes to the board as well. A [`Status`] is all of that put together when
//! an operator asks.
//!
//! # What counts
//! - Of two reports of a group that of the later term counts, and in one term the leader's.
//! - A report counts for [`REPORT_MS_MAX`], and not after the link to its node is lost. What a node has said before counts a little longer than
//!   until its next report: a group whose leadership moves is not without a leader.
//! - A group is under-replicated if it has fewer voters than the cluster wants for each, or if its leader has not heard
//!   some of them lately. One without a leader counts, too: nobody can tell. So a node alone is under-replicated.
//! - The cluster's own group counts like any other, once there is one.
//!
//! # Bounds
//! One report for each shard and each other member, and one word of each member for each group.

use bytes::Bytes;
use cluster::{
    CAUGHT_UP_ENTRIES, CheckReport, GroupReport, Member, MemberState, Membership, Meta, NodeNumber,
    REPLICATION_DEFAULT, Report,
};
use model::{GroupId, Monotonic, ShardId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time between two reports of a node.
pub(crate) const REPORT_MS: u64 = 1_000;

/// How long a report counts: three of them may be lost.
const REPORT_MS_MAX: u64 = 3_500;

/// How long a node's word about a group counts that is not in its last report: the next leader has as long to speak.
const WORD_MS_MAX: u64 = 1_500;

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
    /// What was said of that before, since one was up.
    pub(super) known_troubles: BTreeSet<String>,
}

impl LinkState {
    /// Whether both nodes can talk to each other.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.sending > 0 && self.receiving > 0
    }
}

/// What the shards of this node and the other nodes have said last.
#[derive(Debug)]
pub(crate) struct Board {
    own: NodeNumber,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    shards: BTreeMap<ShardId, Report>,
    /// What this node says to the others, until a shard says something new.
    own: Option<Bytes>,
    nodes: BTreeMap<NodeNumber, (Monotonic, Arc<Heard>)>,
    /// The last word of each node about each group. It stays when a node says no more of the group: the next
    /// leader may not have spoken yet.
    words: BTreeMap<(GroupId, NodeNumber), (Monotonic, GroupReport)>,
    meta: Option<Arc<Meta>>,
}

/// What another node has said. While nothing happens it says the same again.
#[derive(Debug)]
struct Heard {
    payload: Vec<u8>,
    report: Report,
}

impl Board {
    /// That of node `own`.
    pub(crate) fn of(own: NodeNumber) -> Self {
        Self { own, said: Mutex::default() }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard of this node tells of its copies.
    pub(crate) fn show(&self, shard: ShardId, report: Report, now: Monotonic) {
        let mut said = self.said();
        said.note_words(self.own, &report, now);
        if said.shards.get(&shard) != Some(&report) {
            said.shards.insert(shard, report);
            said.own = None;
        }
    }

    /// A shard of this node tells what it knows of the cluster.
    pub(crate) fn note_meta(&self, meta: &Arc<Meta>) {
        self.said().meta = Some(Arc::clone(meta));
    }

    /// Another node tells of its copies. What is no report is passed over.
    pub(crate) fn hear(&self, from: NodeNumber, payload: &[u8], now: Monotonic) {
        let mut said = self.said();
        let known = said.nodes.get(&from).map(|(_, heard)| heard);
        let heard = match known.filter(|heard| heard.payload == payload) {
            Some(heard) => Arc::clone(heard),
            None => {
                let Ok(report) = Report::decode(payload) else { return };
                Arc::new(Heard { payload: payload.to_vec(), report })
            }
        };
        said.note_words(from, &heard.report, now);
        said.nodes.insert(from, (now, heard));
    }

    /// What this node says to the others.
    pub(crate) fn own(&self) -> Bytes {
        let mut said = self.said();
        let own = said.own.take().unwrap_or_else(|| said.own().encode().into());
        said.own = Some(own.clone());
        own
    }

    /// All that is known here of the cluster.
    pub(super) fn facts<'a>(
        &self,
        membership: &'a Membership,
        links: &'a BTreeMap<NodeNumber, LinkState>,
        now: Monotonic,
    ) -> Facts<'a> {
        let said = self.said();
        let own = said.own();
        let is_up =
            |node: &NodeNumber| *node == self.own || links.get(node).is_some_and(LinkState::is_up);
        let is_fresh = |node, at| is_up(node) && now.ms_since(at) <= REPORT_MS_MAX;
        let others = said.nodes.iter().filter(|(node, (at, _))| is_fresh(node, *at));
        let others = others.map(|(node, (_, heard))| (*node, &heard.report));
        let (mut now_said, mut checks) = (View::default(), BTreeMap::<_, Vec<_>>::new());
        for (node, report) in others.chain([(self.own, &own)]) {
            report.groups.iter().for_each(|word| now_said.note(node, word));
            now_said.note_lags(report);
            for check in &report.checks {
                checks.entry(check.group).or_default().push((node, *check));
            }
        }
        let mut view = now_said.clone();
        for ((_, node), (at, word)) in &said.words {
            if is_up(node) && now.ms_since(*at) <= WORD_MS_MAX {
                view.note(*node, word);
            }
        }
        let programs = said.nodes.iter().map(|(node, (_, it))| (*node, it.report.program.clone()));
        let programs = programs.chain([(membership.number, own.program.clone())]).collect();
        let (meta, is_alone) = (said.meta.clone(), own.copies == 0);
        Facts { membership, links, meta, now_said, view, checks, programs, is_alone }
    }
}

impl Said {
    fn note_words(&mut self, from: NodeNumber, report: &Report, now: Monotonic) {
        for group in &report.groups {
            let word = self.words.entry((group.group, from));
            let (at, word) = word.or_insert_with(|| (now, group.clone()));
            *at = now;
            if word != group {
                word.clone_from(group);
            }
        }
    }

    fn own(&self) -> Report {
        let mut own = Report { program: PROGRAM.to_owned(), ..Report::default() };
        self.shards.values().for_each(|shard| own.add(shard));
        own
    }
}

/// What all nodes say together.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub(super) groups: BTreeMap<GroupId, (NodeNumber, GroupReport)>,
    lags: BTreeMap<NodeNumber, u64>,
}

impl View {
    fn note(&mut self, node: NodeNumber, word: &GroupReport) {
        let is_newer = |(_, known): &(NodeNumber, GroupReport)| {
            (word.term, word.is_led) > (known.term, known.is_led)
        };
        if self.groups.get(&word.group).is_none_or(is_newer) {
            self.groups.insert(word.group, (node, word.clone()));
        }
    }

    fn note_lags(&mut self, report: &Report) {
        for (other, lag) in &report.lags {
            let known = self.lags.entry(*other).or_default();
            *known = (*lag).max(*known);
        }
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

/// All that a node knows of the cluster.
pub(super) struct Facts<'a> {
    pub(super) membership: &'a Membership,
    links: &'a BTreeMap<NodeNumber, LinkState>,
    pub(super) meta: Option<Arc<Meta>>,
    /// What the last report of each node says.
    pub(super) now_said: View,
    /// With what they have said shortly before.
    pub(super) view: View,
    /// What the last report of each node says of its copies' states.
    pub(super) checks: BTreeMap<GroupId, Vec<(NodeNumber, CheckReport)>>,
    programs: BTreeMap<NodeNumber, String>,
    /// It runs no consensus yet.
    pub(super) is_alone: bool,
}

impl Facts<'_> {
    /// Whether nodes can talk to each other, and this is one of them.
    pub(super) fn is_up(&self, number: NodeNumber) -> bool {
        number == self.membership.number || self.links.get(&number).is_some_and(LinkState::is_up)
    }

    /// How the cluster is.
    pub(super) fn status(&self) -> Status {
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
        let up = self.is_up(number);
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

    /// Each group of which a node has spoken lately.
    pub(super) fn each_group(&self) -> Vec<GroupStatus> {
        let groups = self.view.groups.values().map(|(by, said)| GroupStatus {
            group: said.group.get(),
            term: said.term.get(),
            leader: said.is_led.then_some(by.get()),
            voters: said.configuration.voters.len(),
            voters_heard: said.voters_heard(),
        });
        groups.collect()
    }

    /// How the groups are.
    pub(super) fn groups(&self) -> GroupsStatus {
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

/// One group, as its leader says, or a node that knows no leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// Which.
    pub group: u16,
    /// The latest term.
    pub term: u64,
    /// The node that leads it in that term.
    pub leader: Option<u16>,
    /// How many voters it has.
    pub voters: usize,
    /// How many of them the leader has heard lately, itself included.
    pub voters_heard: usize,
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
pub(super) mod testing {
    use super::*;
    use cluster::{Configuration, MetaCommand, MetaOutcome, ReplicaId};
    use model::Term;

    pub(in crate::cluster) fn number(node: u16) -> NodeNumber {
        NodeNumber::new(node)
    }

    pub(super) fn member(store: u64) -> Member {
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
    pub(in crate::cluster) fn meta(nodes: u16) -> Meta {
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

    pub(super) fn id(node: u16) -> ReplicaId {
        ReplicaId::new(number(node), 1)
    }

    pub(in crate::cluster) fn led(
        group: u16,
        term: u64,
        voters: &[u16],
        heard: &[u16],
    ) -> GroupReport {
        let ids: Vec<_> = voters.iter().map(|node| id(*node)).collect();
        let at = (GroupId::new(group), Term::new(term));
        GroupReport::new(at, true, Configuration::of(&ids), |id| heard.contains(&id.node().get()))
    }

    pub(super) fn unled(group: u16, term: u64) -> GroupReport {
        let at = (GroupId::new(group), Term::new(term));
        GroupReport::new(at, false, Configuration::of(&[id(1), id(2), id(3)]), |_| true)
    }

    pub(in crate::cluster) fn report(mut groups: Vec<GroupReport>) -> Report {
        groups.sort_unstable_by_key(|group| group.group);
        Report { program: "0.1.7".to_owned(), copies: 3, groups, ..Report::default() }
    }

    pub(in crate::cluster) struct Node {
        pub(super) board: Board,
        membership: Membership,
        pub(super) links: BTreeMap<NodeNumber, LinkState>,
    }

    impl Node {
        /// Node 1 of the cluster, with links to all others.
        pub(in crate::cluster) fn of(meta: Meta, own: Report) -> Self {
            let membership = Membership::first(1, 2, member(1));
            let up = || LinkState { sending: 2, receiving: 2, ..LinkState::default() };
            let others = meta.members().filter(|(node, _)| node.get() > 1);
            let links = others.map(|(node, _)| (node, up())).collect();
            let board = Board::of(number(1));
            board.note_meta(&Arc::new(meta));
            let now = Monotonic::default().plus_ms(REPORT_MS_MAX);
            board.show(ShardId::new(0), own, now);
            Self { board, membership, links }
        }

        pub(in crate::cluster) fn hear(&self, node: u16, report: &Report, at_ms: u64) {
            let now = Monotonic::default().plus_ms(at_ms);
            self.board.hear(number(node), &report.encode(), now);
        }

        pub(in crate::cluster) fn facts(&self, at_ms: u64) -> Facts<'_> {
            let now = Monotonic::default().plus_ms(at_ms);
            self.board.facts(&self.membership, &self.links, now)
        }

        pub(super) fn status(&self, at_ms: u64) -> Status {
            self.facts(at_ms).status()
        }

        /// The links with a node are lost.
        pub(in crate::cluster) fn cut(&mut self, node: u16) {
            *self.links.get_mut(&number(node)).unwrap() = LinkState::default();
        }

        pub(super) fn groups(&self, at_ms: u64) -> (usize, usize, usize) {
            let GroupsStatus { total, leaderless, under_replicated } = self.status(at_ms).groups;
            (total, leaderless, under_replicated)
        }

        pub(super) fn states(&self) -> Vec<String> {
            self.status(0).nodes.into_iter().map(|node| node.state).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{Node, id, led, member, meta, number, report, unled};
    use super::*;
    use cluster::{Configuration, MetaCommand};
    use model::Term;

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
        node.hear(2, &report(Vec::new()), 0);
        assert_eq!(node.groups(WORD_MS_MAX), (3, 1, 1), "its last word counts a little longer");
        assert_eq!(node.groups(WORD_MS_MAX + 1), (3, 2, 2));
        node.hear(2, &report(vec![led(1, 5, &[1, 2, 3], &[1, 2, 3])]), 0);
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
        let board = Board::of(number(1));
        let status = board.facts(&membership, &links, Monotonic::default()).status();
        assert_eq!(status.groups, GroupsStatus { total: 2, leaderless: 0, under_replicated: 2 });
        let node = &status.nodes[0];
        assert_eq!((node.state.as_str(), node.leaders, node.replicas), ("up", 2, 2));
    }
}
