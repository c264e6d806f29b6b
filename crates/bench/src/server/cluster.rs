//! Several nodes of one system on one disk.
//!
//! Ours pass requests on. Ursula's answer 307 to what another node leads: each of its streams is made where a client is sent, and
//! appended to and read there.

use super::{LEADERS_TIMEOUT, Server, ask, free_addresses, spawn};
use crate::api::{ApiStyle, stream_name};
use crate::failure::{Doing, Failure, Outcome};
use crate::keeper::Keeper;
use crate::process::Process;
use crate::systems::{Launch, Places, Ready, System};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const GROW_TIMEOUT: Duration = Duration::from_secs(120);
const GROW_INTERVAL: Duration = Duration::from_millis(100);
/// Between two tries of a request that nobody takes yet.
const ASK_INTERVAL: Duration = Duration::from_millis(50);
/// Nodes of a cluster.
const CLUSTER_NODES: usize = 3;

/// Another node of the cluster, whose files are beside those of the first one.
#[derive(Debug)]
pub(super) struct Mate {
    pub(super) address: SocketAddr,
    pub(super) ready: Ready,
    pub(super) child: Child,
}

impl Server {
    /// Three nodes of a system on one disk.
    pub(crate) fn start_cluster(
        system: System,
        places: &Places,
        dir: &Path,
        keeper: &Keeper,
    ) -> Outcome<Self> {
        match system.style() {
            ApiStyle::Ursula => Self::start_voters(system, places, (dir, keeper)),
            _ => Self::start_own_cluster(places, dir, keeper),
        }
    }

    /// Three nodes of this server on one disk, ready when each group has three voters and leaders are spread.
    fn start_own_cluster(places: &Places, dir: &Path, keeper: &Keeper) -> Outcome<Self> {
        let mut first = places.clone();
        let [peers, own @ ..] = free_addresses::<3>()?;
        first.thalweg_flags.push(format!("--peer-listen={peers}"));
        let mut server = Self::start_at(own, System::Thalweg, &first, (dir, keeper))?;
        server.grow(places)?;
        server.name.push_str(", cluster of three");
        server.durability =
            "fdatasync on two of three nodes before every acknowledgement, one disk";
        Ok(server)
    }

    fn grow(&mut self, places: &Places) -> Outcome<()> {
        let token = self.token()?;
        for number in 2..=CLUSTER_NODES {
            let mut own = places.clone();
            let [peers, addresses @ ..] = free_addresses::<3>()?;
            let flags = [format!("--peer-listen={peers}"), format!("--join={token}")];
            own.thalweg_flags.extend(flags);
            let data = self.own()?.scratch.join(format!("data-{number}"));
            self.add_mate(&System::Thalweg.launch_in(&own, &data, addresses)?)?;
        }
        self.wait_until_grown()
    }

    /// Starts another node. Figures are of the processes of all nodes.
    pub(super) fn add_mate(&mut self, launch: &Launch) -> Outcome<()> {
        let started = self.own()?;
        let own = started.child.id();
        let child = spawn(launch, &started.keeper, &started.scratch)?;
        self.mates.push(Mate { address: launch.listen, ready: launch.ready, child });
        let ids: Vec<u32> =
            [own].into_iter().chain(self.mates.iter().map(|mate| mate.child.id())).collect();
        self.process = Some(Process::of(&ids));
        Ok(())
    }

    fn token(&mut self) -> Outcome<String> {
        let started = self.own()?;
        let mut command = Command::new(&started.launch.binary);
        let data = started.scratch.join("data");
        let output = command.args(["cluster", "token", "--data-dir"]).arg(data).output()?;
        let token = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            return Ok(token);
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(started.failure(&format!("no token of the cluster: {said}")))
    }

    fn wait_until_grown(&mut self) -> Outcome<()> {
        let request = "GET /cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let limits = (GROW_TIMEOUT, GROW_INTERVAL);
        self.wait_until(limits, "the cluster has not grown in time", |first| {
            let asked = ask(first.address, request.as_bytes());
            asked.is_ok_and(|(status, answer)| status == 200 && is_grown(&answer))
        })
    }

    /// Three nodes of Ursula, each with a vote in every group, ready when they take a namespace.
    fn start_voters(
        system: System,
        places: &Places,
        (dir, keeper): (&Path, &Keeper),
    ) -> Outcome<Self> {
        let addresses: [SocketAddr; 2 * CLUSTER_NODES] = free_addresses()?;
        let (nodes, _) = addresses.as_chunks::<2>();
        let mut server = Self::start_nodes(system, places, (dir, keeper), |scratch| {
            system.launch_voters(places, scratch, nodes)
        })?;
        server.durability = match system {
            System::Ursula => "fsync on two of three nodes before every acknowledgement, one disk",
            _ => "page cache of two of three nodes: their logs are not synced, one disk",
        };
        Ok(server)
    }

    /// Whether its nodes send clients to each other.
    pub(crate) fn redirects(&self) -> bool {
        self.api.style == ApiStyle::Ursula && !self.mates.is_empty()
    }

    /// Asks the first node, and then the one to which that sends its client: the answer, and which node it is of.
    fn ask_anywhere(&self, request: &[u8]) -> std::io::Result<(usize, u16, String)> {
        let (status, answer) = ask(self.address, request)?;
        if status != 307 {
            return Ok((0, status, answer));
        }
        let addresses = self.addresses();
        let node = addresses.iter().position(|address| leads_to(&answer, *address));
        let Some(node) = node else { return Ok((0, status, answer)) };
        let (status, answer) = ask(addresses[node], request)?;
        Ok((node, status, answer))
    }

    /// The same, until somebody leads what is asked for: till then nodes are busy, or send a client back and forth.
    pub(super) fn ask_until(
        &self,
        request: &[u8],
        deadline: Instant,
    ) -> std::io::Result<(usize, u16, String)> {
        loop {
            let answer = self.ask_anywhere(request)?;
            match answer.1 {
                307 | 500.. if Instant::now() < deadline => std::thread::sleep(ASK_INTERVAL),
                _ => return Ok(answer),
            }
        }
    }

    /// Makes `count` streams of the set `prefix`, each where the first node sends its client: the streams of each node.
    pub(crate) fn make_at_leaders(&self, prefix: &str, count: u64) -> Outcome<Vec<Vec<u64>>> {
        let mut streams = vec![Vec::new(); 1 + self.mates.len()];
        let deadline = Instant::now() + LEADERS_TIMEOUT;
        for number in 0..count {
            let mut request = Vec::new();
            self.api.put_create(&mut request, &stream_name(prefix, number));
            let asked = self.ask_until(&request, deadline);
            let (node, status, answer) = asked.doing(|| format!("stream {number}"))?;
            if !(200..300).contains(&status) {
                return Err(Failure::new(format!("stream {number} was not made: {answer:.300}")));
            }
            streams[node].push(number);
        }
        Ok(streams)
    }
}

/// Whether an answer sends its client to a node.
fn leads_to(answer: &str, address: SocketAddr) -> bool {
    let location = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim())
    });
    let rest = location.and_then(|url| url.strip_prefix("http://"));
    rest.and_then(|rest| rest.split('/').next()) == Some(address.to_string().as_str())
}

/// Whether each group has three voters, and leaders are spread.
fn is_grown(answer: &str) -> bool {
    let status: Option<serde_json::Value> = answer.split_once("\r\n\r\n").and_then(|(_, body)| {
        serde_json::from_str(body.get(body.find('{')?..=body.rfind('}')?)?).ok()
    });
    let Some(status) = status else { return false };
    let groups = &status["groups"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(u64::MAX);
    let total = number(&groups["total"]);
    let lead = |node: &serde_json::Value| node["leaders"].as_u64().unwrap_or(0) >= total / 4;
    let leads = status["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(lead));
    number(&groups["leaderless"]) == 0 && number(&groups["under_replicated"]) == 0 && leads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_names_its_node() {
        let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:80/b/s\r\n\r\n";
        assert!(leads_to(answer, SocketAddr::from(([127, 0, 0, 1], 80))));
        assert!(!leads_to(answer, SocketAddr::from(([127, 0, 0, 1], 8))));
        assert!(!leads_to("HTTP/1.1 307 \r\n\r\n", SocketAddr::from(([127, 0, 0, 1], 80))));
    }

    #[test]
    fn a_cluster_is_grown_when_its_groups_and_leaders_are_where_they_shall_be() {
        let answer = |leaders: [u64; 3], lacking: u64| {
            let nodes = leaders.map(|leaders| serde_json::json!({ "leaders": leaders }));
            let groups = serde_json::json!({
                "total": 65, "leaderless": 0, "under_replicated": lacking
            });
            let body = serde_json::json!({ "nodes": nodes, "groups": groups }).to_string();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        assert!(is_grown(&answer([22, 22, 21], 0)));
        assert!(!is_grown(&answer([22, 22, 21], 1)));
        assert!(!is_grown(&answer([65, 0, 0], 0)));
        assert!(!is_grown("HTTP/1.1 200 OK\r\n\r\n"));
    }
}
