//! Nodes that grow a cluster as an operator does: the first one prints a token, and the others join with it.

use super::{Server, Start, new_dir, reserved_address};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A node, running or not.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) dir: TempDir,
    start: Start,
    flags: Vec<String>,
    pub(crate) server: Option<Server>,
}

impl Node {
    /// A node that has never run, with `flags`. With a token it joins when it starts.
    pub(crate) fn new(token: Option<&str>, flags: &[&str]) -> Self {
        let address = reserved_address().to_string();
        let mut all = vec!["--peer-listen", &address, "--admin-listen", "127.0.0.1:0"];
        all.extend(token.iter().flat_map(|token| ["--join", token]));
        all.extend(flags);
        let flags = all.iter().map(|flag| (*flag).to_owned()).collect();
        Self { dir: new_dir(), start: Start::with(&all), flags, server: None }
    }

    pub(crate) fn start(&mut self) {
        self.server = Some(self.start.serve(self.dir.path()));
    }

    /// The same node with a token.
    pub(crate) fn with_token(&self, token: &str) -> Start {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Start::with(&[&flags[..], &["--join", token]].concat())
    }

    /// Starts it where it must refuse; what it says.
    pub(crate) fn refused(&self) -> String {
        self.start.refused(self.dir.path())
    }

    pub(crate) fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(&mut self) {
        self.server.take().expect("it runs").stop();
    }

    /// Waits until it has ended by itself, which is no failure.
    pub(crate) fn ends(&mut self) {
        let status = self.server.take().expect("it runs").wait();
        assert!(status.success(), "{status}");
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }
}

/// What `thalweg cluster token` prints for a data directory.
pub(crate) fn token(dir: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let output = command.args(["cluster", "token", "--data-dir"]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// So many nodes of one cluster, each with `flags`. All of them run.
pub(crate) fn grown(count: usize, flags: &[&str]) -> Vec<Node> {
    let mut nodes = vec![Node::new(None, flags)];
    nodes[0].start();
    let token = token(nodes[0].dir.path());
    for _ in 1..count {
        let mut node = Node::new(Some(&token), flags);
        node.start();
        nodes.push(node);
    }
    nodes
}

impl Server {
    /// What it says of the whole cluster.
    pub(crate) fn cluster(&self) -> Value {
        serde_json::from_str(&self.admin("/cluster").text()).unwrap()
    }

    /// Whether all groups have three voters.
    pub(crate) fn has_three_voters(&self) -> bool {
        let groups = &self.cluster()["groups"];
        groups["leaderless"] == 0 && groups["under_replicated"] == 0
    }
}
