//! `thalweg cluster`: what an operator asks of a node.

use super::{ClusterError, Status, secret, table::table};
use crate::admin::ask::{AdminPort, AskError};
use crate::settings::{Flags, Settings};
use clap::{Args, Subcommand};
use env::RealDisk;
use node::read_membership;
use std::fmt;
use std::io::{self, IsTerminal};
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
}

/// Which node is asked.
#[derive(Debug, Args)]
pub struct Admin {
    /// Admin port of any node
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4440")]
    admin: String,
}

/// Why a command has not done what it was to do.
#[derive(Debug)]
pub enum CommandError {
    /// The node has not answered, or has refused.
    Ask(AskError),
    /// Nobody takes what is printed.
    Print(io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(error) => error.fmt(f),
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
    }
}

fn say_status(port: &AdminPort, is_json: bool, say: Say<'_>) -> Result<(), CommandError> {
    let text = port.get("/cluster")?;
    let status = read_status(port, &text)?;
    let text = if is_json { text + "\n" } else { table(&status) };
    say(&text).map_err(CommandError::Print)
}

/// How the cluster is, as JSON that a node has answered.
fn read_status(port: &AdminPort, text: &str) -> Result<Status, AskError> {
    serde_json::from_str(text).map_err(|error| port.unknown(error))
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
