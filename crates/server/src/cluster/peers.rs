//! The peers of a node, for all its loops: whom to dial, whom to let in, and how the links are.
//!
//! # Who the members are
//! Each shard tells what it has applied of the cluster's own state ([`Peers::note_meta`]). `CLUSTER` is written again after that. A
//! node that has just joined is answered when it is in there. So this node knows that it is not alone before anybody else has a copy.
//!
//! # Old copies of a disk
//! A member whose epoch is lower than one that was seen is refused. What was seen is in `CLUSTER` within a quarter of a second,
//! and not before the welcome: until then a loss of power here can forget it. The other members have seen it, too.

use super::change::ChangeRefused;
use super::check::CheckStatus;
use super::status::{Board, Facts, GroupStatus, LinkState, Status};
use cluster::{
    Class, Hello, JoinAnswer, Member, MemberState, Membership, Meta, MetaCommand, MetaOutcome,
    NodeNumber, Refusal, ReplicaId, Secret, VERSION_MAX, VERSION_MIN,
};
use env::{Disk, Random};
use model::{GroupId, Monotonic, ShardId};
use node::{MetaStart, replace_membership};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The link of a node that has asked to join: the shard that has accepted it, and the link's number there.
pub(crate) type JoinerLink = (ShardId, u64);

/// A change of the cluster, and who gets what came of it.
pub(crate) type Asked = (Box<MetaCommand>, oneshot::Sender<Option<MetaOutcome>>);

#[derive(Debug)]
struct State {
    membership: Membership,
    /// Whether it says more than `CLUSTER`.
    is_changed: bool,
    /// Whether this node was removed, and `CLUSTER` says so if it can be written.
    is_removed: bool,
    /// Whether somebody waits for [`Peers::look`].
    is_woken: bool,
    /// How often other members have come or gone, and whether they have since.
    changes: u64,
    have_changed: bool,
    /// Nodes that have joined, and are answered when `CLUSTER` names them.
    joiners: BTreeMap<NodeNumber, JoinerLink>,
    /// Answers that their links can have.
    answers: Vec<(JoinerLink, JoinAnswer)>,
    /// Changes that somebody outside the loops asks for.
    asks: Vec<Asked>,
    links: BTreeMap<NodeNumber, LinkState>,
    /// What the names of members stand for, as far as it is known.
    addresses: BTreeMap<NodeNumber, SocketAddr>,
    /// Members whose names are to be looked up again.
    wanted: Vec<NodeNumber>,
}

/// The peers of this node.
#[derive(Debug)]
pub struct Peers {
    own: Hello,
    secret: Secret,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
    board: Board,
    /// There is something to look at.
    woken: Condvar,
    replace_after_ms: u64,
}

impl Peers {
    /// The peers that `membership` names, which is in `at`.
    pub(crate) fn new(
        membership: Membership,
        secret: Secret,
        at: (Arc<dyn Disk>, PathBuf),
    ) -> Self {
        let own = Hello {
            versions: (VERSION_MIN, VERSION_MAX),
            cluster: membership.cluster,
            store: membership.store,
            number: Some(membership.number),
            shard: (0, 1),
            group_count: membership.group_count,
            epoch: membership.epoch,
            features: 0,
            nonce: [0; 16],
            class: Class::Raft,
        };
        let (wanted, own_number) = (others_of(&membership), membership.number);
        let links = wanted.iter().map(|number| (*number, LinkState::default())).collect();
        let (is_changed, is_woken, changes, have_changed) = Default::default();
        let (joiners, answers, asks, addresses) = Default::default();
        let state = State {
            membership,
            is_changed,
            is_removed: false,
            is_woken,
            changes,
            have_changed,
            joiners,
            answers,
            asks,
            links,
            addresses,
            wanted,
        };
        let (disk, dir) = at;
        let (state, woken, board) = (Mutex::new(state), Condvar::new(), Board::of(own_number));
        let replace_after_ms = 0;
        let peers = Self { own, secret, disk, dir, state, board, woken, replace_after_ms };
        peers.look_up();
        peers
    }

    /// With the time after which a member that is away is replaced; 0 is never.
    pub(crate) fn with_replace_after_ms(self, replace_after_ms: u64) -> Self {
        Self { replace_after_ms, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a shard of this node says on a new link.
    pub(crate) fn hello(&self, shard: (u16, u16), class: Class, random: &mut dyn Random) -> Hello {
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        Hello { shard, class, nonce, ..self.own }
    }

    /// The cluster's secret.
    pub(crate) fn secret(&self) -> Secret {
        self.secret.clone()
    }

    /// The other members.
    pub(crate) fn others(&self) -> Vec<NodeNumber> {
        self.state().links.keys().copied().collect()
    }

    /// How often other members have come or gone.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// What the shards need to become the first node of several; `None` if this node is not the first one.
    pub(crate) fn first_of_several(&self) -> Option<node::Membership> {
        let state = self.state();
        let is_first = state.membership.number == NodeNumber::new(1);
        let members = &state.membership;
        is_first.then(|| copies((members, members.own().clone()), self.replace_after_ms))
    }

    /// A shard has applied this of the cluster's own state.
    pub(crate) fn note_meta(&self, meta: &Arc<Meta>) {
        self.board.note_meta(meta);
        let mut state = self.state();
        let membership = &mut state.membership;
        let mut is_changed = false;
        for (number, member) in meta.members() {
            let known = membership.members.get(&number);
            let newer = merged(known, member);
            is_changed |= known != Some(&newer);
            membership.members.insert(number, newer);
        }
        if !is_changed {
            return;
        }
        state.renew_links();
        self.have_kept(state);
    }

    /// Has `CLUSTER` written again.
    fn have_kept(&self, mut state: MutexGuard<'_, State>) {
        (state.is_changed, state.is_woken) = (true, true);
        self.woken.notify_all();
    }

    /// A member says that this node was removed, if it has that number.
    pub(crate) fn note_removed(&self, number: NodeNumber) {
        let mut state = self.state();
        if number != state.membership.number {
            return;
        }
        if let Some(own) = state.membership.members.get_mut(&number) {
            own.state = MemberState::Removed;
        }
        self.have_kept(state);
    }

    /// Whether this node was removed from its cluster, as far as it has heard.
    pub(crate) fn is_removed(&self) -> bool {
        self.state().is_removed
    }

    /// A node has joined under this number, and waits for its answer.
    pub(crate) fn note_joined(&self, number: NodeNumber, link: JoinerLink) {
        let mut state = self.state();
        state.joiners.insert(number, link);
        // It may be in there already.
        self.have_kept(state);
    }

    /// Asks the cluster for a change. What comes of it is `None` if nobody could be asked: there is no leader at the moment, or this
    /// node is alone.
    pub(crate) fn ask(&self, command: MetaCommand) -> oneshot::Receiver<Option<MetaOutcome>> {
        let (caller, outcome) = oneshot::channel();
        let mut state = self.state();
        state.asks.push((Box::new(command), caller));
        state.is_woken = true;
        self.woken.notify_all();
        outcome
    }

    /// Changes that were asked for since the last call.
    pub(crate) fn take_asks(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state().asks)
    }

    /// Answers for nodes that have joined.
    pub(crate) fn take_answers(&self) -> Vec<(JoinerLink, JoinAnswer)> {
        std::mem::take(&mut self.state().answers)
    }

    /// Waits until there is something to look at, and no longer than this.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut state = self.state();
        if !std::mem::take(&mut state.is_woken) {
            drop(self.woken.wait_timeout(state, timeout));
        }
    }

    /// Where to dial a member; `None` as long as its name stands for nothing.
    pub(crate) fn address(&self, node: NodeNumber) -> Option<SocketAddr> {
        self.state().addresses.get(&node).copied()
    }

    /// Whether a node that has proved that it knows the secret may talk to this one, or may ask to join.
    pub(crate) fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        self.state().membership.check_hello(hello)
    }

    /// How the links to a member are.
    #[must_use]
    pub fn link(&self, node: NodeNumber) -> Option<LinkState> {
        self.state().links.get(&node).cloned()
    }

    /// A member's link has come up here.
    pub(crate) fn note_receiving(&self, hello: &Hello) {
        let mut state = self.state();
        state.is_changed |= state.membership.note_hello(hello);
        if let Some(link) = hello.number.and_then(|number| state.links.get_mut(&number)) {
            link.receiving += u32::from(hello.class == Class::Raft);
        }
    }

    /// A link that [`Peers::note_receiving`] has counted is over.
    pub(crate) fn note_received(&self, hello: &Hello) {
        let mut state = self.state();
        if let Some(link) = hello.number.and_then(|number| state.links.get_mut(&number)) {
            link.receiving -= u32::from(hello.class == Class::Raft);
        }
    }

    /// A link to a member is up.
    pub(crate) fn note_sending(&self, hello: &Hello) {
        let mut state = self.state();
        state.is_changed |= state.membership.note_hello(hello);
        if let Some(link) = hello.number.and_then(|number| state.links.get_mut(&number)) {
            link.sending += 1;
            link.trouble = None;
            link.known_troubles.clear();
        }
    }

    /// A link to a member was not made, or is over. Whether that is news.
    pub(crate) fn note_trouble(&self, node: NodeNumber, was_up: bool, trouble: String) -> bool {
        let mut state = self.state();
        if !state.wanted.contains(&node) {
            state.wanted.push(node);
        }
        let Some(link) = state.links.get_mut(&node) else { return false };
        link.sending -= u32::from(was_up);
        // A machine that is off is reached by no route at one time, and does not answer at the next.
        let is_news = link.known_troubles.insert(trouble.clone());
        link.trouble = Some(trouble);
        is_news
    }

    /// What may wait for a disk or a name server: to be called now and then by a thread that may.
    pub(crate) fn look(&self) {
        self.keep();
        self.look_up();
        // Loops dial when the addresses are known.
        let mut state = self.state();
        state.changes += u64::from(std::mem::take(&mut state.have_changed));
    }

    /// Writes `CLUSTER` if there is anything new, and has nodes answered that are in there.
    fn keep(&self) {
        let mut membership = {
            let mut state = self.state();
            if !std::mem::take(&mut state.is_changed) {
                return;
            }
            state.membership.clone()
        };
        let kept = replace_membership(&*self.disk, &self.dir, &mut membership);
        let mut state = self.state();
        // Where it cannot be written the next start hears it again.
        state.is_removed = membership.own().state == MemberState::Removed;
        state.membership.revision = membership.revision;
        if let Err(error) = kept {
            tracing::warn!(%error, "CLUSTER cannot be written; it is tried again");
            state.is_changed = true;
            return;
        }
        let named =
            state.joiners.extract_if(.., |number, _| membership.members.contains_key(number));
        let named: Vec<(NodeNumber, JoinerLink)> = named.collect();
        for (number, link) in named {
            let (group_count, members) = (membership.group_count, membership.members.clone());
            state.answers.push((link, JoinAnswer::Joined { number, group_count, members }));
        }
    }

    fn look_up(&self) {
        let wanted: Vec<(NodeNumber, String)> = {
            let mut state = self.state();
            let wanted = std::mem::take(&mut state.wanted);
            let members = &state.membership.members;
            let named = wanted.into_iter().filter_map(|number| {
                members.get(&number).map(|member| (number, member.peer_address.clone()))
            });
            named.collect()
        };
        for (number, name) in wanted {
            let found = name.to_socket_addrs().ok().and_then(|mut found| found.next());
            let mut state = self.state();
            match found {
                Some(address) => _ = state.addresses.insert(number, address),
                None => state.wanted.push(number),
            }
        }
    }

    /// What the nodes say of their copies.
    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// What operators see of the cluster.
    #[must_use]
    pub fn status(&self, now: Monotonic) -> Status {
        self.with_facts(now, |facts| facts.status())
    }

    /// Whether this is the only node, as far as it knows.
    pub(crate) fn is_alone(&self, now: Monotonic) -> bool {
        self.with_facts(now, |facts| facts.is_alone)
    }

    /// How a check is.
    pub(crate) fn compared(&self, number: u64, now: Monotonic) -> CheckStatus {
        self.with_facts(now, |facts| facts.check(number))
    }

    /// What operators see of the cluster, and each of its groups.
    #[must_use]
    pub fn view(&self, now: Monotonic) -> (Status, Vec<GroupStatus>) {
        self.with_facts(now, |facts| (facts.status(), facts.each_group()))
    }

    /// What is to be asked of the cluster so that a member becomes something else; `seen` are groups that an earlier look has found
    /// to continue.
    ///
    /// # Errors
    /// [`ChangeRefused`]: each says what to do.
    pub(crate) fn plan(
        &self,
        change: (NodeNumber, MemberState),
        seen: &mut BTreeSet<GroupId>,
        now: Monotonic,
    ) -> Result<MetaCommand, ChangeRefused> {
        self.with_facts(now, |facts| facts.plan(change, seen))
    }

    /// Looks at all that is known of the cluster.
    fn with_facts<T>(&self, now: Monotonic, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let state = self.state();
        let (membership, links) = (state.membership.clone(), state.links.clone());
        drop(state);
        look(&self.board.facts(&membership, &links, now))
    }

    /// The number of this node.
    pub(crate) fn number(&self) -> NodeNumber {
        self.own.number.expect("a node has a number")
    }
}

impl State {
    /// The links are those to the members that there are now.
    fn renew_links(&mut self) {
        let others = others_of(&self.membership);
        let is_same = self.links.len() == others.len()
            && others.iter().all(|number| self.links.contains_key(number));
        if is_same {
            return;
        }
        self.have_changed = true;
        self.links.retain(|number, _| others.contains(number));
        for number in others {
            self.links.entry(number).or_insert_with(|| {
                self.wanted.push(number);
                LinkState::default()
            });
        }
    }
}

/// The members that this one talks to.
fn others_of(membership: &Membership) -> Vec<NodeNumber> {
    let is_there = |(number, member): &(&NodeNumber, &Member)| {
        **number != membership.number && member.state != MemberState::Removed
    };
    membership.members.iter().filter(is_there).map(|(number, _)| *number).collect()
}

/// What is known of a member, with what a shard has applied. That may be old after a start.
fn merged(known: Option<&Member>, applied: &Member) -> Member {
    match known {
        Some(known) if known.state == MemberState::Removed || known.epoch > applied.epoch => {
            let is_removed = [known, applied].iter().any(|it| it.state == MemberState::Removed);
            let state = if is_removed { MemberState::Removed } else { applied.state };
            Member { state, ..known.clone() }
        }
        _ => applied.clone(),
    }
}

/// What the groups of this node need for their copies, where it opens with `own`.
pub(super) fn copies(
    (membership, own): (&Membership, Member),
    replace_after_ms: u64,
) -> node::Membership {
    let is_alone = membership.members.len() == 1;
    let cluster = membership.cluster;
    node::Membership {
        node: membership.number,
        // Each group began as the first node's copy.
        voters: vec![ReplicaId::new(NodeNumber::new(1), 1)],
        opening: own.epoch,
        seed: cluster,
        meta: Some(MetaStart { cluster, own, is_alone, replace_after_ms }),
    }
}
