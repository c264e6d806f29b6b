//! The peers of a node, for all its loops: whom to dial, whom to let in, and how the links are.
//!
//! # Old copies of a disk
//! A member whose epoch is lower than one that was seen is refused. What was seen is in `CLUSTER` within a quarter of a second,
//! and not before the welcome: until then a loss of power here can forget it. The other members have seen it, too.

use super::status::{Board, LinkState, Status};
use cluster::{Class, Hello, Membership, NodeNumber, Refusal, Secret, VERSION_MAX, VERSION_MIN};
use env::{Disk, Random};
use model::Monotonic;
use node::replace_membership;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct State {
    membership: Membership,
    /// Whether members have been seen with a higher epoch than `CLUSTER` has.
    is_changed: bool,
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
        let others = membership.members.keys().filter(|number| **number != membership.number);
        let wanted: Vec<NodeNumber> = others.copied().collect();
        let links = wanted.iter().map(|number| (*number, LinkState::default())).collect();
        let (is_changed, addresses) = Default::default();
        let state = State { membership, is_changed, links, addresses, wanted };
        let (disk, dir) = at;
        let board = Board::default();
        let peers = Self { own, secret, disk, dir, state: Mutex::new(state), board };
        peers.look_up();
        peers
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

    /// Where to dial a member; `None` as long as its name stands for nothing.
    pub(crate) fn address(&self, node: NodeNumber) -> Option<SocketAddr> {
        self.state().addresses.get(&node).copied()
    }

    /// Whether a node that has proved that it knows the secret may talk to this one.
    pub(crate) fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        let Some(_) = hello.number else { return Err(Refusal::NotANode) };
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
            link.receiving += 1;
        }
    }

    /// A link that [`Peers::note_receiving`] has counted is over.
    pub(crate) fn note_received(&self, node: NodeNumber) {
        if let Some(link) = self.state().links.get_mut(&node) {
            link.receiving -= 1;
        }
    }

    /// A link to a member is up.
    pub(crate) fn note_sending(&self, hello: &Hello) {
        let mut state = self.state();
        state.is_changed |= state.membership.note_hello(hello);
        if let Some(link) = hello.number.and_then(|number| state.links.get_mut(&number)) {
            link.sending += 1;
            link.trouble = None;
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
        let is_news = link.trouble.as_ref() != Some(&trouble);
        link.trouble = Some(trouble);
        is_news
    }

    /// What may wait for a disk or a name server: to be called now and then by a thread that may.
    pub(crate) fn look(&self) {
        self.keep();
        self.look_up();
    }

    /// Writes down which epochs were seen, if there is anything new.
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
        state.membership.revision = membership.revision;
        if let Err(error) = kept {
            tracing::warn!(%error, "CLUSTER cannot be written; it is tried again");
            state.is_changed = true;
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
        let (membership, links) = {
            let state = self.state();
            (state.membership.clone(), state.links.clone())
        };
        self.board.status(&membership, &links, now)
    }
}
