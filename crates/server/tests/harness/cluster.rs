//! Directories of nodes that know each other from the beginning, and their servers.

use super::{Server, Start, new_dir};
use cluster::{Member, MemberState, Membership, NodeNumber};
use env::{RealDisk, SeededRandom};
use log::LogOptions;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const CLUSTER: u64 = 0x1234_5678;

/// A node, running or not.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) dir: TempDir,
    start: Start,
    pub(crate) server: Option<Server>,
}

impl Node {
    pub(crate) fn start(&mut self) {
        self.server = Some(self.start.serve(self.dir.path()));
    }

    pub(crate) fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }
}

/// So many nodes that are members of one cluster, each with `flags`. None of them runs.
pub(crate) fn nodes(count: u16, flags: &[&str]) -> Vec<Node> {
    let free = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    // All at once, so that no two are the same.
    let sockets: Vec<TcpListener> = (0..count).map(free).collect();
    let addresses: Vec<String> =
        sockets.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    drop(sockets);
    let dirs: Vec<TempDir> = addresses.iter().map(|_| new_dir()).collect();
    let members: BTreeMap<NodeNumber, Member> = (1..)
        .zip(dirs.iter().zip(&addresses))
        .map(|(number, (dir, address))| (NodeNumber::new(number), member(dir.path(), address)))
        .collect();
    let node = |(number, dir): (u16, TempDir)| {
        be_member(dir.path(), (NodeNumber::new(number), &members));
        let address = &addresses[usize::from(number) - 1];
        let mut all = vec!["--peer-listen", address, "--admin-listen", "127.0.0.1:0"];
        all.extend(flags);
        Node { dir, start: Start::with(&all), server: None }
    };
    (1..).zip(dirs).map(node).collect()
}

/// Makes the data directory of a node that has never run.
fn member(dir: &Path, address: &str) -> Member {
    let options = LogOptions { lineage: Some(CLUSTER), ..LogOptions::default() };
    let seed = address.bytes().fold(7, |seed: u64, byte| seed.rotate_left(7) ^ u64::from(byte));
    let mut random = SeededRandom::new(seed);
    let opened = node::open(Arc::new(RealDisk), &mut random, dir, options, 2).unwrap();
    Member {
        store: opened.report.store,
        peer_address: address.to_owned(),
        client_address: String::new(),
        state: MemberState::Active,
        version: 1,
        epoch: 0,
    }
}

/// What makes it a node, and the cluster's secret.
fn be_member(dir: &Path, (number, members): (NodeNumber, &BTreeMap<NodeNumber, Member>)) {
    let own = &members[&number];
    let mut membership = Membership::first(CLUSTER, LogOptions::default().group_count, own.clone());
    (membership.number, membership.members) = (number, members.clone());
    node::replace_membership(&RealDisk, dir, &mut membership).unwrap();
    let secret = "5".repeat(64) + "\n";
    env::replace_operator_file(&dir.join("cluster.secret"), secret.as_bytes(), 0o600).unwrap();
}
