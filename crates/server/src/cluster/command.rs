//! `thalweg cluster`: what an operator asks of a node.

use super::{ClusterError, secret};
use crate::settings::{Flags, Settings};
use clap::Subcommand;
use env::RealDisk;
use node::read_membership;

const TOKEN_HELP: &str = "\
Try it:
  thalweg serve --data-dir d1 --peer-listen 127.0.0.1:4439 &
  thalweg cluster token --data-dir d1

Give it the settings with which the node is started. The node may run meanwhile. The token is printed alone:
the cluster's id, its secret, and where this node is reached by others. Whoever has it can read and change everything
in the cluster, so keep it as you keep a password.";

/// What follows `thalweg cluster`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print what another node needs to talk to this cluster
    #[command(after_help = TOKEN_HELP)]
    Token(Flags),
}

impl Command {
    /// The flags that were given.
    #[must_use]
    pub fn flags(&self) -> &Flags {
        match self {
            Self::Token(flags) => flags,
        }
    }
}

/// Carries a command out; gives back what to print on standard output.
///
/// # Errors
/// [`ClusterError`]: each says what to do.
pub fn run(command: &Command, settings: &Settings) -> Result<String, ClusterError> {
    match command {
        Command::Token(_) => token(settings),
    }
}

fn token(settings: &Settings) -> Result<String, ClusterError> {
    let dir = &settings.data_dir;
    let found = read_membership(&RealDisk, dir).map_err(ClusterError::File)?;
    let found = found.ok_or_else(|| ClusterError::NoNode { dir: dir.clone() })?;
    let secret = secret::read(&secret::path(settings))?;
    let membership = found.membership;
    Ok(secret::token(membership.cluster, &secret, &membership.own().peer_address) + "\n")
}
