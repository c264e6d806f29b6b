//! Links over real sockets: nodes that find each other, nodes that must not, and strangers.

use super::super::listen;
use super::wire::STRANGERS_MAX;
use super::*;
use crate::cluster::LinkState;
use cluster::{
    Body, GroupMessage, Member, MemberState, Membership, NodeNumber, ReplicaId, Secret, Section,
};
use env::{Clock, MemoryDisk, RealClock};
use mio::{Events, Poll};
use model::{EntryIndex, GroupId, Term};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

const PATIENCE: Duration = Duration::from_secs(30);

/// One node: its links, and the readiness interface that its loop would have.
struct Node {
    number: u16,
    poll: Poll,
    events: Events,
    clock: RealClock,
    peers: Arc<Peers>,
    links: Links,
    heard: Vec<PeerEvent>,
}

/// What a node is to be.
#[derive(Clone)]
struct Plan {
    number: u16,
    cluster: u64,
    secret: [u8; 32],
    epoch: u64,
    store: u64,
    addresses: Vec<SocketAddr>,
}

impl Plan {
    fn new(number: u16, addresses: &[SocketAddr]) -> Self {
        let store = 100 + u64::from(number);
        Self { number, cluster: 5, secret: [7; 32], epoch: 3, store, addresses: addresses.to_vec() }
    }

    fn membership(&self) -> Membership {
        let member = |number: u16, address: &SocketAddr| Member {
            store: if number == self.number { self.store } else { 100 + u64::from(number) },
            peer_address: address.to_string(),
            client_address: String::new(),
            state: MemberState::Active,
            version: 1,
            epoch: 3,
        };
        let members: BTreeMap<NodeNumber, Member> = (1..)
            .zip(&self.addresses)
            .map(|(number, address)| (NodeNumber::new(number), member(number, address)))
            .collect();
        Membership {
            cluster: self.cluster,
            store: self.store,
            group_count: 64,
            number: NodeNumber::new(self.number),
            incarnation: 1,
            epoch: self.epoch,
            revision: 0,
            members,
        }
    }
}

impl Node {
    fn start(plan: &Plan, listener: TcpListener) -> Self {
        let at: (Arc<dyn env::Disk>, PathBuf) = (Arc::new(MemoryDisk::new()), "/data".into());
        let peers = Arc::new(Peers::new(plan.membership(), Secret::new(plan.secret), at));
        let poll = Poll::new().unwrap();
        let clock = RealClock::new();
        let now = clock.now_monotonic();
        let parts = (Arc::clone(&peers), listener);
        let links = Links::new(parts, poll.registry(), (0, 1), now).unwrap();
        let (events, heard) = (Events::with_capacity(64), Vec::new());
        Self { number: plan.number, poll, events, clock, peers, links, heard }
    }

    fn now(&self) -> Stamp {
        Stamp { wall: self.clock.now_wall(), monotonic: self.clock.now_monotonic() }
    }

    fn turn(&mut self) {
        let _ = self.poll.poll(&mut self.events, Some(Duration::from_millis(1)));
        for event in &self.events {
            assert!(self.links.note_event(event.token()), "all events here are of links");
        }
        let now = self.now();
        self.links.run(now);
        let heard = self.links.take_heard().into_iter();
        self.heard.extend(heard.filter(|event| !matches!(event, PeerEvent::Tick)));
        self.links.flush(now);
        self.peers.look();
    }

    fn say(&mut self, to: u16, section: Section) {
        let now = self.now();
        self.links.push(ToPeer { to: NodeNumber::new(to), section }, now);
    }

    fn link(&self, to: u16) -> LinkState {
        self.peers.link(NodeNumber::new(to)).unwrap()
    }

    fn is_up(&self, to: u16) -> bool {
        let LinkState { sending, receiving, .. } = self.link(to);
        (sending, receiving) == (1, 1)
    }

    fn sections(&self) -> Vec<(u16, Section)> {
        let sections = self.heard.iter().filter_map(|event| match event {
            PeerEvent::Section { from, section } => Some((from.get(), section.clone())),
            _ => None,
        });
        sections.collect()
    }

    fn losses(&self) -> usize {
        self.heard.iter().filter(|event| matches!(event, PeerEvent::Down { .. })).count()
    }
}

fn listeners(count: usize) -> (Vec<TcpListener>, Vec<SocketAddr>) {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| listen::all(ANY, 1).unwrap().pop().unwrap()).collect();
    let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    (listeners, addresses)
}

fn cluster(count: u16) -> (Vec<Node>, Vec<SocketAddr>) {
    let (listeners, addresses) = listeners(count.into());
    let nodes = (1..=count)
        .zip(listeners)
        .map(|(number, listener)| Node::start(&Plan::new(number, &addresses), listener));
    (nodes.collect(), addresses)
}

fn until(what: &str, nodes: &mut [Node], mut is_so: impl FnMut(&mut [Node]) -> bool) {
    let begun = Instant::now();
    while !is_so(nodes) {
        assert!(begun.elapsed() < PATIENCE, "it did not happen that {what}");
        nodes.iter_mut().for_each(Node::turn);
    }
}

fn all_up(nodes: &mut [Node]) -> bool {
    let numbers: Vec<u16> = nodes.iter().map(|node| node.number).collect();
    nodes.iter().all(|node| numbers.iter().all(|other| *other == node.number || node.is_up(*other)))
}

fn barrier(number: u64) -> Section {
    Section::Barrier { group: GroupId::new(7), number }
}

#[test]
fn three_nodes_find_each_other_and_what_they_say_arrives_in_order() {
    let (mut nodes, _) = cluster(3);
    until("all links are up", &mut nodes, all_up);
    for number in 0..1000 {
        nodes[0].say(3, barrier(number));
    }
    nodes[1].say(3, barrier(5000));
    until("all has arrived", &mut nodes, |nodes| nodes[2].sections().len() == 1001);
    let of = |from| {
        let sections = nodes[2].sections().into_iter();
        sections.filter(|(of, _)| *of == from).map(|(_, section)| section).collect::<Vec<_>>()
    };
    assert_eq!(of(1), (0..1000).map(barrier).collect::<Vec<_>>());
    assert_eq!(of(2), [barrier(5000)]);
    let ups =
        nodes[2].heard.iter().filter(|event| matches!(event, PeerEvent::Up { opening: 3, .. }));
    assert_eq!(ups.count(), 2);
}

/// The answer of group 7 to a heartbeat that has asked nothing, or to one that has.
fn alive(read: u64) -> Section {
    let replica = |number| ReplicaId::new(NodeNumber::new(number), 1);
    let body = Body::Alive { commit: EntryIndex::new(0), read };
    let message = GroupMessage { from: replica(1), to: replica(2), term: Term::new(1), body };
    Section::Message { group: GroupId::new(7), message }
}

#[test]
fn an_answer_to_a_heartbeat_waits_for_company_or_for_two_ticks() {
    let (mut nodes, _) = cluster(2);
    until("links are up", &mut nodes, all_up);
    let mut is_sent = |sections: &[Section]| {
        sections.iter().for_each(|section| nodes[0].say(2, section.clone()));
        let now = nodes[0].now();
        nodes[0].links.flush(now);
        !nodes[0].links.dialled.has_unsent()
    };
    assert!(!is_sent(&[alive(0)]), "alone it waits");
    assert!(is_sent(&[barrier(1)]), "what waits goes with what does not");
    assert!(is_sent(&[alive(5)]), "a read waits for this one");
    assert!(!is_sent(&[alive(0)]), "again it waits");
    let heard = |nodes: &[Node]| nodes[1].sections().len();
    until("all arrive, the last one by itself", &mut nodes, |nodes| heard(nodes) == 4);
    let sections: Vec<Section> = nodes[1].sections().into_iter().map(|(_, it)| it).collect();
    assert_eq!(sections, [alive(0), barrier(1), alive(5), alive(0)]);
}

#[test]
fn a_section_larger_than_many_frames_arrives_whole() {
    let (mut nodes, _) = cluster(2);
    until("the links are up", &mut nodes, all_up);
    let payload = bytes::Bytes::from(vec![9; 8 << 20]);
    let large = Section::Answer { request: 1, payload };
    nodes[0].say(2, large.clone());
    until("it has arrived", &mut nodes, |nodes| !nodes[1].sections().is_empty());
    assert_eq!(nodes[1].sections(), [(1, large)]);
}

#[test]
fn a_node_that_comes_back_is_dialled_again() {
    let (mut nodes, addresses) = cluster(2);
    until("the links are up", &mut nodes, all_up);
    drop(nodes.pop());
    until("the loss is seen", &mut nodes, |nodes| nodes[0].losses() == 1);
    assert_eq!(nodes[0].link(2).sending, 0);
    let listener = listen::all(addresses[1], 1).unwrap().pop().unwrap();
    let plan = Plan { epoch: 4, ..Plan::new(2, &addresses) };
    nodes.push(Node::start(&plan, listener));
    until("the links are up again", &mut nodes, all_up);
    assert_eq!((nodes[0].link(2).trouble, nodes[0].losses()), (None, 1));
}

/// A node of `plan` in place of the second of two: what the first one then knows of it.
fn trouble_with(plan: impl FnOnce(Plan) -> Plan) -> (String, Vec<Node>) {
    let (mut listeners, addresses) = listeners(2);
    let second = listeners.pop().unwrap();
    let first = Node::start(&Plan::new(1, &addresses), listeners.pop().unwrap());
    let second = Node::start(&plan(Plan::new(2, &addresses)), second);
    let mut nodes = vec![first, second];
    until("the second one is refused", &mut nodes, |nodes| nodes[1].link(1).trouble.is_some());
    assert_eq!(nodes[0].link(2).receiving, 0);
    assert!(nodes[0].heard.is_empty(), "nothing of it is heard: {:?}", nodes[0].heard);
    (nodes[1].link(1).trouble.unwrap(), nodes)
}

#[test]
fn nodes_that_must_not_talk_to_each_other_are_refused_in_words() {
    let (said, _) = trouble_with(|plan| Plan { cluster: 6, ..plan });
    assert!(said.contains("cluster 0000000000000006") && said.contains("0005"), "{said}");
    let (said, _) = trouble_with(|plan| Plan { secret: [8; 32], ..plan });
    assert!(said.contains("does not know the cluster's secret"), "{said}");
    let (said, _) = trouble_with(|plan| Plan { store: 999, ..plan });
    assert!(said.contains("node 2 is another data directory"), "{said}");
}

#[test]
fn an_answer_of_another_node_than_the_one_that_was_dialled_is_not_believed() {
    let (mut listeners, mut addresses) = listeners(2);
    let third = listeners.pop().unwrap();
    // Node 3 listens at the address of node 2.
    addresses.push(addresses[1]);
    let first = Node::start(&Plan::new(1, &addresses), listeners.pop().unwrap());
    let mut nodes = vec![first, Node::start(&Plan::new(3, &addresses), third)];
    until("it is seen", &mut nodes, |nodes| nodes[0].link(2).trouble.is_some());
    until("it is up as itself", &mut nodes, |nodes| nodes[0].is_up(3) && nodes[1].is_up(1));
    let said = nodes[0].link(2).trouble.unwrap();
    assert!(said.contains("node 3 answers at the address of node 2"), "{said}");
    assert_eq!(nodes[0].losses() + nodes[1].losses(), 0, "the right link is left alone");
    assert_eq!(nodes[0].link(2).sending, 0);
}

#[test]
fn an_old_copy_of_a_disk_is_refused_after_the_newer_one_was_seen() {
    let (mut listeners, addresses) = listeners(2);
    let second = listeners.pop().unwrap();
    let first = Node::start(&Plan::new(1, &addresses), listeners.pop().unwrap());
    let mut nodes = vec![first];
    nodes.push(Node::start(&Plan { epoch: 9, ..Plan::new(2, &addresses) }, second));
    until("the links are up", &mut nodes, all_up);
    drop(nodes.pop());
    let listener = listen::all(addresses[1], 1).unwrap().pop().unwrap();
    nodes.push(Node::start(&Plan { epoch: 8, ..Plan::new(2, &addresses) }, listener));
    until("the old one is refused", &mut nodes, |nodes| nodes[1].link(1).trouble.is_some());
    let said = nodes[1].link(1).trouble.unwrap();
    assert!(said.contains("opened 8 times") && said.contains("9 times"), "{said}");
}

/// Whether the other side has closed the connection.
fn is_closed(stranger: &mut std::net::TcpStream) -> bool {
    stranger.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stranger.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn strangers_cost_their_place_and_nodes_still_get_theirs() {
    let (mut nodes, addresses) = cluster(2);
    let dial = || std::net::TcpStream::connect(addresses[0]).unwrap();
    let mut silent: Vec<_> = (0..3 * STRANGERS_MAX).map(|_| dial()).collect();
    let mut talkers: Vec<_> = (0..8).map(|_| dial()).collect();
    for (at, talker) in talkers.iter_mut().enumerate() {
        let _ = talker.write_all(&vec![at as u8 * 31; 4096]);
    }
    until("the links are up all the same", &mut nodes, all_up);
    until("those that talk nonsense are gone", &mut nodes, |_| talkers.iter_mut().all(is_closed));
    let open = silent.iter_mut().map(is_closed).filter(|is_closed| !is_closed).count();
    assert!(open <= STRANGERS_MAX, "{open} strangers have a place");
    until("silence does not last", &mut nodes, |_| silent.iter_mut().all(is_closed));
    assert!(all_up(&mut nodes));
    assert_eq!(nodes[0].losses() + nodes[1].losses(), 0);
}
