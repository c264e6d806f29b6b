//! What a server knows of its cluster: its own place in it, its peers, and what is known of the links to them.
//!
//! # What
//! A server with `peer_listen` is a node. At its start it makes or reads the cluster's [`secret`] and the file `CLUSTER`
//! (`node::read_membership`), and writes the file again with its address and epoch. The loops ask [`Peers`] whom to
//! dial, and whether a node that has proved that it knows the secret may talk to this one.
//!
//! # Invariants
//! - No peer hears from this node before `CLUSTER` is durable.
//! - The secret is in no log and no error.
//! - A server without `peer_listen` has nothing of this, and is refused a directory that has other members.

mod command;
mod error;
mod peers;
mod secret;
mod status;
mod table;
#[cfg(test)]
mod tests;

pub use command::{Ask, Command, CommandError, Say, ask, token};
pub use error::ClusterError;
pub use peers::Peers;
pub(crate) use status::REPORT_MS;
pub use status::{GroupsStatus, LinkState, NodeStatus, Status};

use crate::settings::Settings;
use cluster::{Member, MemberState, Membership, ReplicaId};
use env::{Disk, Random};
use log::RecoveryReport;
use node::{read_membership, replace_membership};
use std::net::SocketAddr;
use std::sync::Arc;

/// The newest version of commands that this program knows.
const COMMAND_VERSION: u16 = 1;

/// What `CLUSTER` says before the data directory is opened.
#[derive(Debug)]
pub struct Found(Option<Membership>);

impl Found {
    /// The copies that the groups of this node have elsewhere; `None` if there are no other members.
    #[must_use]
    pub fn copies(&self) -> Option<node::Membership> {
        let Self(Some(found)) = self else { return None };
        let is_there = |member: &Member| member.state != MemberState::Removed;
        let numbers = found.members.iter().filter(|(_, member)| is_there(member));
        let voters: Vec<_> = numbers.map(|(number, _)| ReplicaId::new(*number, 1)).collect();
        let opening = found.epoch + 1;
        let (node, seed) = (found.number, found.cluster);
        let copies = node::Membership { node, voters, opening, seed, meta: None };
        (copies.voters.len() > 1).then_some(copies)
    }
}

/// Reads to which cluster the data directory of `settings` belongs.
///
/// # Errors
/// [`ClusterError`]. A server that is no node must not open the directory of one: it would serve its old state as if it
/// were alone.
pub fn find(settings: &Settings, disk: &dyn Disk) -> Result<Found, ClusterError> {
    let found = read_membership(disk, &settings.data_dir).map_err(ClusterError::File)?;
    let Some(found) = found else { return Ok(Found(None)) };
    if let Some(damaged) = &found.damaged {
        tracing::error!(file = %damaged.display(), "one copy of CLUSTER is damaged; it is written again");
    }
    let membership = found.membership;
    let members = membership.members.len();
    if settings.peer_listen.is_none() && members > 1 {
        return Err(ClusterError::NeedsPeerListen { number: membership.number, members });
    }
    Ok(Found(Some(membership)))
}

/// Makes a node of a server whose data directory is open; `None` if it is not to be one.
///
/// # Errors
/// [`ClusterError`]: each says what to do.
pub fn begin(
    settings: &Settings,
    (disk, found): (Arc<dyn Disk>, Found),
    report: &RecoveryReport,
    random: &mut dyn Random,
) -> Result<Option<Arc<Peers>>, ClusterError> {
    let dir = &settings.data_dir;
    let Some(listen) = settings.peer_listen else { return Ok(None) };
    let own = Member {
        store: report.store,
        peer_address: peer_address(settings, listen)?,
        client_address: client_address(settings),
        state: MemberState::Active,
        version: COMMAND_VERSION,
        epoch: report.epoch,
    };
    let Found(found) = found;
    let is_first = found.is_none();
    let mut membership = match found {
        Some(membership) => opened_again(membership, own, report)?,
        None if report.lineage != report.store => {
            return Err(ClusterError::NotJoined { cluster: report.lineage });
        }
        None => Membership::first(report.lineage, settings.groups, own),
    };
    let may_make = is_first || membership.members.len() == 1;
    let secret = secret::read_or_make(&secret::path(settings), may_make, random)?;
    let replaced = replace_membership(&*disk, dir, &mut membership);
    replaced.map_err(|error| ClusterError::Write { dir: dir.clone(), error })?;
    tracing::info!(
        cluster = format!("{:016x}", membership.cluster),
        node = membership.number.get(),
        members = membership.members.len(),
        peer_address = membership.own().peer_address,
        "this is a node of a cluster"
    );
    if !listen.ip().to_canonical().is_loopback() {
        tracing::warn!(
            %listen,
            "what nodes say to each other is not encrypted: keep peer_listen on a network that nobody else can read"
        );
    }
    Ok(Some(Arc::new(Peers::new(membership, secret, (disk, dir.clone())))))
}

/// What `CLUSTER` says, with what is true of this opening.
fn opened_again(
    mut membership: Membership,
    own: Member,
    report: &RecoveryReport,
) -> Result<Membership, ClusterError> {
    if (membership.store, membership.cluster) != (report.store, report.lineage) {
        return Err(ClusterError::OtherDirectory);
    }
    if report.epoch <= membership.epoch && membership.members.len() > 1 {
        let (opened, seen) = (report.epoch, membership.epoch);
        return Err(ClusterError::OldLog { opened, seen });
    }
    membership.epoch = report.epoch.max(membership.epoch + 1);
    let number = membership.number;
    let state = membership.own().state;
    let epoch = membership.epoch;
    membership.members.insert(number, Member { state, epoch, ..own });
    Ok(membership)
}

/// Where other nodes reach this one.
fn peer_address(settings: &Settings, listen: SocketAddr) -> Result<String, ClusterError> {
    match &settings.advertise {
        Some(address) => Ok(address.clone()),
        None if listen.ip().is_unspecified() => Err(ClusterError::NeedsAdvertise { listen }),
        None => Ok(listen.to_string()),
    }
}

/// Where clients reach this node, if its first address says so.
fn client_address(settings: &Settings) -> String {
    let first = settings.listen.first().map(|listen| listen.address);
    let known = first.filter(|address| !address.ip().is_unspecified() && address.port() > 0);
    known.map(|address| address.to_string()).unwrap_or_default()
}
