//! Several servers that are one cluster, grown as an operator grows it.

use crate::doors::Doors;
use crate::server::{Server, Start};
use crate::trial::{Outcome, SMALL, Trial, wait_for};
use crate::verify::Allowed;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Nodes that a cluster begins with.
pub(crate) const NODE_COUNT: usize = 3;

/// How long a request may be under way between nodes after its client is gone. A node tries for 5 s.
const LATE_MAX: Duration = Duration::from_millis(6_500);

/// One shard, with a log and chunks of the smallest sizes.
const SMALLEST: [&str; 4] =
    ["--shards=1", "--segment-bytes=1MiB", "--wal-bytes-max=4MiB", "--seal-bytes=64KiB"];

/// How long all groups may take to get new voters while a load uses all cores. Alone it takes seconds.
const MOVES_MAX: Duration = Duration::from_secs(240);

/// Where a node lives.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    /// The directory of its data.
    pub(crate) data: PathBuf,
    /// The address of its machine.
    pub(crate) host: String,
    /// Words before the binary.
    pub(crate) under: Vec<String>,
}

impl Home {
    /// One on this machine.
    pub(crate) fn local(data: PathBuf) -> Self {
        Self { data, host: crate::server::LOCAL.to_owned(), under: Vec::new() }
    }

    /// That of a node on this machine, below `dir`.
    pub(crate) fn below(dir: &Path, node: usize) -> Self {
        Self::local(Self::dir(dir, node))
    }

    /// The directory of a node's data below `dir`.
    pub(crate) fn dir(dir: &Path, node: usize) -> PathBuf {
        dir.join(format!("n{}", node + 1))
    }
}

/// Several servers. Their indexes are in the order of joining, so each one's number is the next after its index.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    /// Flags of every node.
    flags: Vec<String>,
    /// They say how many shards there are and what sizes files have. Else that is drawn.
    are_sizes_given: bool,
}

#[derive(Debug)]
struct Node {
    start: Start,
    server: Option<Server>,
    /// It has not been started yet.
    is_new: bool,
}

impl Cluster {
    /// Three nodes that live below `dir`, all of them well.
    pub(crate) fn local(trial: &mut Trial<'_>, dir: &Path) -> Outcome<Self> {
        let mut cluster = Self::default();
        cluster.grow(trial, (0..NODE_COUNT).map(|node| Home::below(dir, node)))?;
        Ok(cluster)
    }

    /// One without nodes yet, which will all have these flags.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { flags, ..Self::default() }
    }

    /// One without nodes yet, which will run with the server's own settings.
    pub(crate) fn of_default_sizes() -> Self {
        Self { are_sizes_given: true, ..Self::default() }
    }

    /// One without nodes yet, whose logs and chunks will have the smallest sizes.
    pub(crate) fn smallest() -> Self {
        Self { are_sizes_given: true, ..Self::with(&SMALLEST) }
    }

    /// Adds nodes that live there, and waits until all of them are well. The first one begins, the others join.
    pub(crate) fn grow(
        &mut self,
        trial: &mut Trial<'_>,
        homes: impl IntoIterator<Item = Home>,
    ) -> Outcome<()> {
        for home in homes {
            let node = self.prepare(trial, home)?;
            self.start(node)?;
        }
        self.wait_whole()
    }

    /// Makes all ready for another node; its index. It joins when it is started, if others run.
    pub(crate) fn prepare(&mut self, trial: &mut Trial<'_>, home: Home) -> Outcome<usize> {
        let number = self.nodes.len() + 1;
        let mut flags = vec![format!("--peer-listen={}", peer_address(&home)?)];
        if !self.are_sizes_given {
            flags.push(format!("--shards={}", trial.numbers.within(1, 4)));
            if trial.numbers.chance(75) {
                flags.extend(SMALL.map(str::to_owned));
            }
        }
        flags.extend_from_slice(&self.flags);
        let log = trial.start.log.with_extension(format!("n{number}.log"));
        let Home { data, host, under } = home;
        std::fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
        let start = Start { binary: trial.start.binary.clone(), data, log, flags, under, host };
        self.nodes.push(Node { start, server: None, is_new: true });
        Ok(number - 1)
    }

    /// Where clients come in: a door for each node, closed for those that do not run.
    pub(crate) fn doors(&self) -> Doors {
        let address = |node: &Node| node.server.as_ref().map(|server| server.address);
        Doors::of(self.nodes.iter().map(address))
    }

    /// How many nodes there are and were.
    pub(crate) const fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes that run.
    pub(crate) fn running(&self) -> Vec<usize> {
        let all = 0..self.nodes.len();
        all.filter(|node| self.nodes[*node].server.is_some()).collect()
    }

    /// A node that runs.
    pub(crate) fn server(&self, node: usize) -> &Server {
        self.nodes[node].server.as_ref().expect("it runs")
    }

    /// Starts a node, for the first time or again; where its clients come in.
    pub(crate) fn start(&mut self, node: usize) -> Outcome<SocketAddr> {
        if self.nodes[node].is_new
            && let Some(other) = self.nodes.iter().find(|node| node.server.is_some())
        {
            let token = token(&other.start)?;
            self.nodes[node].start.flags.push(format!("--join={token}"));
        }
        let node = &mut self.nodes[node];
        node.is_new = false;
        Ok(node.server.insert(node.start.serve()?).address)
    }

    /// The directory of a node's data.
    pub(crate) fn data(&self, node: usize) -> &Path {
        &self.nodes[node].start.data
    }

    /// Takes the server of a node, which is about to end.
    pub(crate) fn take(&mut self, node: usize) -> Server {
        self.nodes[node].server.take().expect("it runs")
    }

    /// What a node says of all of them.
    pub(crate) fn status(&self, node: usize) -> Outcome<Value> {
        let said = crate::http::admin(self.server(node).admin, "/cluster");
        let (_, text) = said.map_err(|error| format!("/cluster of node {node}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("/cluster says {text}: {error}"))
    }

    /// The node that leads most groups, and how many.
    pub(crate) fn busiest(&self) -> Outcome<(usize, u64)> {
        let running = self.running();
        let status = self.status(running[0])?;
        let leads = |node: usize| status["nodes"][node]["leaders"].as_u64().unwrap_or(0);
        let busiest = running.into_iter().map(|node| (node, leads(node)));
        busiest.max_by_key(|(_, leaders)| *leaders).ok_or_else(|| "no node runs".to_owned())
    }

    /// Waits until every node that runs says that all groups are led and have all their voters.
    pub(crate) fn wait_whole(&self) -> Outcome<()> {
        let mut said = String::new();
        let waited = wait_for("all groups have all voters", MOVES_MAX, || {
            for node in self.running() {
                let status = self.status(node)?;
                said = format!("node {} says {status}", node + 1);
                if !is_whole(&status) || self.server(node).readiness()?.0 != 200 {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        waited.map_err(|why| format!("{why}: {said}"))
    }

    /// When all nodes are well, and nothing of a load that ended at `ended` can be under way, compares everything on each
    /// of them in turn.
    pub(crate) fn verify(&self, trial: &mut Trial<'_>, ended: Instant) -> Outcome<()> {
        self.wait_whole()?;
        self.compare(trial, ended)
    }

    /// The same, whether all groups have all their voters or not.
    pub(crate) fn compare(&self, trial: &mut Trial<'_>, ended: Instant) -> Outcome<()> {
        std::thread::sleep(LATE_MAX.saturating_sub(ended.elapsed()));
        for node in self.running() {
            let verified = trial.verify(self.server(node), Allowed::default());
            verified.map_err(|what| format!("on node {}: {what}", node + 1))?;
        }
        Ok(())
    }

    /// Removes a node, as an operator does: `thalweg cluster remove` at another node, and then its process ends.
    pub(crate) fn remove(&mut self, node: usize) -> Outcome<()> {
        let leaver = self.take(node);
        self.run_remove(node, &[])?;
        leaver.stop()
    }

    /// Removes a node that is gone.
    pub(crate) fn remove_lost(&self, node: usize) -> Outcome<()> {
        self.run_remove(node, &["--lost"])
    }

    fn run_remove(&self, node: usize, flags: &[&str]) -> Outcome<()> {
        let at = self.running()[0];
        let admin = format!("http://{}", self.server(at).admin);
        let mut command = Command::new(&self.nodes[at].start.binary);
        let number = (node + 1).to_string();
        command.args(["cluster", "remove", &number, "--admin", &admin]).args(flags);
        let output = command.output().map_err(|error| format!("cluster remove: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("node {number} is not removed: {why}"))
    }
}

fn is_whole(status: &Value) -> bool {
    let groups = &status["groups"];
    groups["leaderless"] == 0 && groups["under_replicated"] == 0
}

/// An address for other nodes. On a machine of its own every port is free.
///
/// On this machine a socket keeps it until the process ends, but does not listen. So a node can listen there, also after
/// each kill. The kernel gives the port to nobody else, not even as the near end of a connection.
fn peer_address(home: &Home) -> Outcome<String> {
    if home.host != crate::server::LOCAL {
        return Ok(format!("{}:4439", home.host));
    }
    let keep = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket.local_addr()?;
        std::mem::forget(socket);
        Ok(address.as_socket().expect("an address of IPv4"))
    };
    let address: std::io::Result<SocketAddr> = keep();
    address.map(|address| address.to_string()).map_err(|error| format!("no free port: {error}"))
}

/// What `thalweg cluster token` prints for a node.
fn token(start: &Start) -> Outcome<String> {
    let mut command = Command::new(&start.binary);
    let output = command.args(["cluster", "token", "--data-dir"]).arg(&start.data).output();
    let output = output.map_err(|error| format!("no token: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(text) } else { Err(format!("no token: {why}")) }
}
