//! A machine of its own for each node: network namespaces on one bridge, whose links can be cut in one direction.
//!
//! # How
//! What a machine sends to another one goes to that one's hardware address. A cut gives the sender a wrong one, so that its
//! packets are lost and nobody says so. What comes in the other direction still arrives.
//!
//! Everything that this program makes is removed when it is dropped.

use crate::cluster::{Cluster, Home};
use crate::server::quiet;
use crate::trial::{Outcome, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nodes that listen beyond loopback refuse requests without a credential, but with this flag.
const OPEN: &str = "--anonymous=all";

/// A hardware address that nobody has.
const NOBODY: usize = 0xff;

/// Several machines on one bridge.
#[derive(Debug)]
pub(crate) struct Net {
    /// The bridge, and what the names of all else begin with.
    name: String,
    count: usize,
}

impl Net {
    /// So many machines, which all hear each other.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn make(count: usize) -> Result<Self, String> {
        let net = Self { name: format!("tw{}", std::process::id()), count };
        let missing = "network namespaces cannot be made (root and `ip` are needed)";
        if net.set_up() { Ok(net) } else { Err(missing.to_owned()) }
    }

    fn set_up(&self) -> bool {
        let bridge = &self.name;
        let ours = format!("{}/24", address(None));
        let mut is_done = ip(&format!("link add {bridge} type bridge"))
            && ip(&format!("addr add {ours} dev {bridge}"))
            && ip(&format!("link set {bridge} up"));
        for machine in 0..self.count {
            let (space, port) = (self.space(machine), self.port(machine));
            let (hardware, own) = (hardware(machine), address(Some(machine)));
            is_done = is_done
                && ip(&format!("netns add {space}"))
                && ip(&format!(
                    "link add {port} type veth peer name eth0 address {hardware} netns {space}"
                ))
                && ip(&format!("link set {port} master {bridge} up"))
                && ip(&format!("-n {space} addr add {own}/24 dev eth0"))
                && ip(&format!("-n {space} link set eth0 up"))
                && ip(&format!("-n {space} link set lo up"));
        }
        is_done
    }

    /// A node on each machine, with its data below `dir`, all of them well.
    pub(crate) fn cluster(&self, trial: &mut Trial<'_>, dir: &Path) -> Outcome<Cluster> {
        let mut cluster = Cluster::with(&[OPEN]);
        let homes = (0..self.count).map(|machine| self.home(machine, Home::dir(dir, machine)));
        cluster.grow(trial, homes)?;
        Ok(cluster)
    }

    /// A home on a machine.
    fn home(&self, machine: usize, data: PathBuf) -> Home {
        let space = self.space(machine);
        let under = ["ip", "netns", "exec", space.as_str()].map(str::to_owned).to_vec();
        Home { data, host: address(Some(machine)), under }
    }

    /// Loses what `from` sends to `to`, until [`Self::heal`].
    ///
    /// # Errors
    /// If the system cannot do it.
    pub(crate) fn cut(&self, from: usize, to: usize) -> Outcome<()> {
        self.send_to(from, to, NOBODY)
    }

    /// All machines hear each other again.
    ///
    /// # Errors
    /// If the system cannot do it.
    pub(crate) fn heal(&self) -> Outcome<()> {
        let all = (0..self.count).flat_map(|from| (0..self.count).map(move |to| (from, to)));
        all.filter(|(from, to)| from != to).try_for_each(|(from, to)| self.send_to(from, to, to))
    }

    fn send_to(&self, from: usize, to: usize, whose: usize) -> Outcome<()> {
        let (space, to, whose) = (self.space(from), address(Some(to)), hardware(whose));
        let words = format!("-n {space} neigh replace {to} lladdr {whose} dev eth0 nud permanent");
        if ip(&words) { Ok(()) } else { Err(format!("`ip {words}` fails")) }
    }

    /// Bytes that have come to a machine, heads of packets included.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn received(&self, machine: usize) -> Outcome<u64> {
        // What the bridge's end of the cable has sent.
        let path = format!("/sys/class/net/{}/statistics/tx_bytes", self.port(machine));
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        text.trim().parse().map_err(|_| format!("{path} says {text}"))
    }

    fn space(&self, machine: usize) -> String {
        format!("{}n{}", self.name, machine + 1)
    }

    /// The bridge's end of a machine's cable.
    fn port(&self, machine: usize) -> String {
        format!("{}v{}", self.name, machine + 1)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for machine in 0..self.count {
            ip(&format!("netns del {}", self.space(machine)));
        }
        ip(&format!("link del {}", self.name));
    }
}

/// A machine's address, or that of this one.
fn address(machine: Option<usize>) -> String {
    format!("10.199.{}.{}", std::process::id() % 250, machine.map_or(1, |machine| machine + 11))
}

fn hardware(machine: usize) -> String {
    // Locally administered: the second bit of the first byte.
    format!("02:54:57:00:00:{machine:02x}")
}

fn ip(words: &str) -> bool {
    quiet(Command::new("ip").args(words.split(' ')))
}
