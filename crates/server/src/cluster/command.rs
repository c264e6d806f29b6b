//! `thalweg cluster`: what an operator asks of a node.

use super::{CheckStatus, ClusterError, NodeStatus, Status, secret, table::table};
use crate::admin::ask::{AdminPort, AskError};
use crate::settings::{Flags, Settings};
use clap::{Args, Subcommand};
use cluster::{AdminCall, NodeNumber};
use env::{Clock, Random, RealClock, RealDisk, RealRandom};
use node::read_membership;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

const TOKEN_HELP: &str = "\
Try it:
  thalweg serve --data-dir d1 --peer-listen 127.0.0.1:4439 &
  thalweg cluster token --data-dir d1

Give it the settings with which the node is started. The node may run meanwhile. The token is printed alone:
the cluster's id, its secret, and where this node is reached by others. Whoever has it can read and change everything
in the cluster, so keep it as you keep a password.";

const STATUS_HELP: &str = "\
Try it:
  thalweg cluster status
  thalweg cluster status --admin http://10.0.0.2:4440 --watch

Any node tells of all of them, as it sees them. --json prints what `/cluster` answers; `Operating a server` in the
documentation says what each member means.";

const DRAIN_HELP: &str = "\
Try it:
  thalweg cluster drain 2
  (stop node 2, change its machine, start it, wait for 200 from its /readyz)
  thalweg cluster resume 2

The node keeps its replicas and follows. Ending this command early changes nothing: the node stays drained.";

const REMOVE_HELP: &str = "\
Try it:
  thalweg cluster remove 3
  thalweg cluster remove 3 --lost

The replicas move to other nodes first. The node is removed when it has none and every group knows that it shall not
come back to it, so each needs a leader. That goes on if this command is ended
early, or ends after ten minutes in which no replica has moved; `resume` takes it back. With --lost nothing moves, for
nothing is there: groups get new voters as far as there are nodes. A number is never used again. What would leave groups
without a majority is refused, and they are named.";

const CHECK_HELP: &str = "\
Try it:
  thalweg cluster check

Each node takes a digest of all that it knows of its streams: names, lengths, lifetimes, producers, references. All nodes take
that of a group at the same entry of its log, so these must be equal. A group with copies that differ is named, with the digests.
The bytes of streams are not compared: each node has checksums of them, and `/metrics` counts what is damaged. It ends
with 1 if copies differ, or if some have not answered within a minute.";

/// Time between two looks at a change that is under way.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Looks at a node that is drained: one minute.
const DRAIN_LOOKS_MAX: usize = 120;

/// Looks at a node that leaves and whose replicas do not move: ten minutes. A large one takes its time.
const STALLED_LOOKS_MAX: usize = 1200;

/// Looks at a node that has become something else: ten seconds.
const MADE_LOOKS_MAX: usize = 20;

/// Looks at a check: one minute.
const CHECK_LOOKS_MAX: usize = 120;

/// How often a node that does not answer is asked again.
const TRIES_MAX: u32 = 10;

/// Time between two looks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Clears a terminal and begins at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What follows `thalweg cluster`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print what another node needs to talk to this cluster
    #[command(after_help = TOKEN_HELP)]
    Token(Flags),
    /// What is asked of a node that runs.
    #[command(flatten)]
    Ask(Ask),
}

/// What is asked of a node that runs.
#[derive(Debug, Subcommand)]
pub enum Ask {
    /// Show all nodes and groups
    #[command(after_help = STATUS_HELP)]
    Status {
        /// Which node is asked.
        #[command(flatten)]
        admin: Admin,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print it again each second
        #[arg(long)]
        watch: bool,
    },
    /// Hand over all that a node leads, before maintenance; wait until it leads nothing
    #[command(after_help = DRAIN_HELP)]
    Drain(Change),
    /// Let a node take part again that was drained, or is leaving
    Resume(Change),
    /// Compare the copies of each group
    #[command(after_help = CHECK_HELP)]
    Check(Caller),
    /// Move all replicas of a node away, and remove it; wait until it is removed
    #[command(after_help = REMOVE_HELP)]
    Remove {
        /// Which node, and who is asked.
        #[command(flatten)]
        change: Change,
        /// The node and its disk are gone: remove it at once
        #[arg(long)]
        lost: bool,
    },
}

/// Which node is asked.
#[derive(Debug, Args)]
pub struct Admin {
    /// Admin port of any node
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4440")]
    admin: String,
}

/// A change of one node.
#[derive(Debug, Args)]
pub struct Change {
    /// Number of the node
    #[arg(value_name = "N")]
    node: u16,
    /// Which node is asked, and by whom.
    #[command(flatten)]
    caller: Caller,
}

/// Which node is asked for something that not everybody may ask for, and how the caller proves that it may.
#[derive(Debug, Args)]
pub struct Caller {
    /// Which node is asked.
    #[command(flatten)]
    admin: Admin,
    /// File with the cluster's secret, if the admin port is on another machine
    #[arg(long, value_name = "FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// Data directory of a node on this machine, which has the secret, too
    #[arg(long, value_name = "DIR", conflicts_with = "cluster_secret_file")]
    data_dir: Option<PathBuf>,
}

/// Why a command has not done what it was to do.
#[derive(Debug)]
pub enum CommandError {
    /// The node has not answered, or has refused.
    Ask(AskError),
    /// The secret cannot be read.
    Secret(ClusterError),
    /// Copies differ, or have not answered.
    Unequal(CheckStatus),
    /// It was asked for, and takes longer than it should.
    Slow(String),
    /// Nobody takes what is printed.
    Print(io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(error) => error.fmt(f),
            Self::Secret(error) => error.fmt(f),
            Self::Unequal(status) => status.fmt(f),
            Self::Slow(what) => f.write_str(what),
            Self::Print(error) => write!(f, "cannot print all of it: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<AskError> for CommandError {
    fn from(error: AskError) -> Self {
        Self::Ask(error)
    }
}

/// Prints, as it can.
pub type Say<'a> = &'a mut dyn FnMut(&str) -> io::Result<()>;

/// The token of the node whose settings these are.
///
/// # Errors
/// [`ClusterError`]: each says what to do.
pub fn token(settings: &Settings) -> Result<String, ClusterError> {
    let dir = &settings.data_dir;
    let found = read_membership(&RealDisk, dir).map_err(ClusterError::File)?;
    let found = found.ok_or_else(|| ClusterError::NoNode { dir: dir.clone() })?;
    let secret = secret::read(&secret::path(settings))?;
    let membership = found.membership;
    Ok(secret::token(membership.cluster, &secret, &membership.own().peer_address) + "\n")
}

/// Asks a node, and prints what came of it.
///
/// # Errors
/// [`CommandError`]: each says what to do.
pub fn ask(ask: &Ask, say: Say<'_>) -> Result<(), CommandError> {
    match ask {
        Ask::Status { admin, json, watch } => {
            let port = AdminPort::at(&admin.admin)?;
            if *watch { watch_status(&port, *json, say) } else { say_status(&port, *json, say) }
        }
        Ask::Drain(change) => drain(change, say),
        Ask::Resume(change) => {
            let _ = make(change, "active")?;
            put(say, format!("node {} takes part again\n", change.node))
        }
        Ask::Check(caller) => check(caller, say),
        Ask::Remove { change, lost: false } => remove(change, say),
        Ask::Remove { change, lost: true } => {
            let _ = make(change, "removed")?;
            let node = change.node;
            put(
                say,
                format!(
                    "node {node} is removed. Its groups get new voters as far as there are nodes: look at the status\n"
                ),
            )
        }
    }
}

fn put(say: Say<'_>, text: String) -> Result<(), CommandError> {
    say(&text).map_err(CommandError::Print)
}

/// Calls a path that not everybody may call; what it answers.
fn call(caller: &Caller, port: &AdminPort, path: &str, body: &str) -> Result<String, CommandError> {
    let secret = match (&caller.cluster_secret_file, &caller.data_dir) {
        (Some(file), _) => Some(file.clone()),
        (None, dir) => dir.as_ref().map(|dir| secret::path_in(dir)),
    };
    let prove = |file: PathBuf| -> Result<String, CommandError> {
        let secret = secret::read(&file).map_err(CommandError::Secret)?;
        let node = NodeNumber::new(read_status(port)?.number);
        let mut nonce = [0; 16];
        RealRandom.fill(&mut nonce);
        let call = AdminCall { method: "PUT", path, node, body: body.as_bytes() };
        Ok(call.prove(&secret, RealClock::new().now_wall(), nonce).to_string())
    };
    let proof = secret.map(prove).transpose()?;
    port.put(path, body.to_owned(), proof).map_err(CommandError::Ask)
}

/// Has the cluster make something else of a node.
fn make(change: &Change, state: &str) -> Result<AdminPort, CommandError> {
    let port = AdminPort::at(&change.caller.admin.admin)?;
    let path = format!("/cluster/nodes/{}/state", change.node);
    call(&change.caller, &port, &path, state)?;
    for _ in 0..MADE_LOOKS_MAX {
        // The node that is asked may hear of it later than who leads the cluster's own group.
        let found = find(&port, change.node)?.map(|node| node.state);
        let is_active = || !matches!(found.as_deref(), Some("draining" | "leaving"));
        if found.as_deref() == Some(state) || (state == "active" && is_active()) {
            return Ok(port);
        }
        if state == "leaving" && found.as_deref() == Some("removed") {
            return Ok(port);
        }
        port.pause(LOOK_INTERVAL);
    }
    Err(CommandError::Slow(format!(
        "node {} is to be {state}, and the node that was asked has not heard of it: look at the status of others",
        change.node
    )))
}

fn check(caller: &Caller, say: Say<'_>) -> Result<(), CommandError> {
    let port = AdminPort::at(&caller.admin.admin)?;
    let number = call(caller, &port, "/cluster/check", "")?;
    let path = format!("/cluster/checks/{}", number.trim());
    let look = || -> Result<CheckStatus, AskError> {
        serde_json::from_str(&port.get(&path)?).map_err(|error| port.unknown(error))
    };
    let mut status = look()?;
    for _ in 0..CHECK_LOOKS_MAX {
        if status.waiting.is_empty() {
            break;
        }
        port.pause(LOOK_INTERVAL);
        let mut next = look()?;
        next.keep_differences(&status);
        if next.equal > status.equal {
            put(say, format!("{} of {} groups are the same so far\n", next.equal, next.groups))?;
        }
        status = next;
    }
    if status.equal == status.groups {
        return put(say, format!("all {} groups are the same on all their nodes\n", status.groups));
    }
    Err(CommandError::Unequal(status))
}

fn drain(change: &Change, say: Say<'_>) -> Result<(), CommandError> {
    let port = make(change, "draining")?;
    let mut last = None;
    for _ in 0..DRAIN_LOOKS_MAX {
        let Some(node) = find(&port, change.node)? else { break };
        if node.leaders == 0 {
            let number = node.number;
            return put(
                say,
                format!("node {number} leads nothing, and follows until it is resumed\n"),
            );
        }
        if last != Some(node.leaders) {
            put(say, format!("node {} leads {} groups\n", node.number, node.leaders))?;
            last = Some(node.leaders);
        }
        port.pause(LOOK_INTERVAL);
    }
    Err(CommandError::Slow(format!(
        "node {} still leads groups: the other voters of these are away, or far behind (thalweg cluster status)",
        change.node
    )))
}

fn remove(change: &Change, say: Say<'_>) -> Result<(), CommandError> {
    let port = make(change, "leaving")?;
    let mut moves = Moves::default();
    loop {
        let node = find(&port, change.node)?;
        let Some(node) = node.filter(|node| node.state != "removed") else {
            let text = format!(
                "node {} is removed: its process ends by itself, and its data is not needed\n",
                change.node
            );
            return put(say, text);
        };
        if node.state != "leaving" {
            let text = format!("node {} is {}: somebody has changed that", node.number, node.state);
            return Err(CommandError::Slow(text));
        }
        match moves.note(node.replicas) {
            Moved::Some => {
                put(say, format!("node {} has {} replicas left\n", node.number, node.replicas))?;
            }
            Moved::None => {}
            Moved::NoneForLong => return Err(CommandError::Slow(stalled(&node))),
        }
        port.pause(LOOK_INTERVAL);
    }
}

fn stalled(node: &NodeStatus) -> String {
    let NodeStatus { number, replicas, .. } = node;
    let what = match replicas {
        0 => "has no replica, and is not removed: groups without a leader do not know yet that they are elsewhere".to_owned(),
        left => format!("still has {left} replicas, and none has moved"),
    };
    format!(
        "node {number} {what}, for ten minutes. The cluster goes on with that by itself: look for groups without a leader and \
         nodes that are away or full (thalweg cluster status); `thalweg cluster resume {number}` takes it back"
    )
}

/// What moves away from a node, seen from look to look.
#[derive(Debug, Default)]
struct Moves {
    /// Replicas that it had.
    last: Option<usize>,
    /// Looks since that has changed.
    looks: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Moved {
    Some,
    None,
    NoneForLong,
}

impl Moves {
    fn note(&mut self, replicas: usize) -> Moved {
        if self.last != Some(replicas) {
            *self = Self { last: Some(replicas), looks: 0 };
            return Moved::Some;
        }
        self.looks += 1;
        if self.looks < STALLED_LOOKS_MAX { Moved::None } else { Moved::NoneForLong }
    }
}

/// How a node is. A node that restarts is asked again.
fn find(port: &AdminPort, number: u16) -> Result<Option<NodeStatus>, AskError> {
    let mut tries = 0;
    loop {
        match read_status(port) {
            Ok(status) => {
                return Ok(status.nodes.into_iter().find(|node| node.number == number));
            }
            Err(error) if tries == TRIES_MAX => return Err(error),
            Err(_) => tries += 1,
        }
        port.pause(WATCH_INTERVAL);
    }
}

fn say_status(port: &AdminPort, is_json: bool, say: Say<'_>) -> Result<(), CommandError> {
    let text = if is_json { port.get("/cluster")? + "\n" } else { table(&read_status(port)?) };
    say(&text).map_err(CommandError::Print)
}

/// How the cluster is.
fn read_status(port: &AdminPort) -> Result<Status, AskError> {
    let text = port.get("/cluster")?;
    serde_json::from_str(&text).map_err(|error| port.unknown(error))
}

/// Says it again and again. A node that does not answer may do so later.
fn watch_status(port: &AdminPort, is_json: bool, say: Say<'_>) -> Result<(), CommandError> {
    let clear = if io::stdout().is_terminal() && !is_json { CLEAR } else { "" };
    loop {
        let mut text = String::new();
        let mut keep = |more: &str| {
            text.push_str(more);
            Ok(())
        };
        if let Err(error) = say_status(port, is_json, &mut keep) {
            text = format!("{error}\n");
        }
        say(&format!("{clear}{text}")).map_err(CommandError::Print)?;
        port.pause(WATCH_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::{Moved, Moves, STALLED_LOOKS_MAX};

    #[test]
    fn a_node_whose_replicas_do_not_move_is_not_waited_for_without_end() {
        let mut moves = Moves::default();
        for replicas in [64, 63] {
            assert_eq!(moves.note(replicas), Moved::Some);
            for _ in 1..STALLED_LOOKS_MAX {
                assert_eq!(moves.note(replicas), Moved::None, "time begins again with each move");
            }
        }
        assert_eq!(moves.note(63), Moved::NoneForLong);
    }
}
