//! What a server knows of its cluster: its own place in it, its peers, and what is known of the links to them.
//!
//! # What
//! A server with `peer_listen` is a node. At its start it makes or reads the cluster's [`secret`] and the file `CLUSTER`
//! (`node::read_membership`), and writes the file again with its address and epoch. With a token of another cluster's member it
//! asks to [`join`] before that. The loops ask [`Peers`] whom to dial, and whether a node that has proved that it knows the
//! secret may talk to this one.
//!
//! # Invariants
//! - No peer hears from this node before `CLUSTER` is durable.
//! - The secret is in no log and no error.
//! - A server without `peer_listen` has nothing of this, and is refused a directory that has other members.

mod change;
mod check;
mod command;
mod error;
mod join;
mod peers;
mod secret;
mod status;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use change::ChangeRefused;
pub use check::{CheckStatus, DifferentGroup, WaitingGroup};
pub use command::{Ask, Command, CommandError, Say, ask, token};
pub use error::ClusterError;
pub use join::{Join, Joined};
pub(crate) use peers::JoinerLink;
pub use peers::Peers;
pub(crate) use status::REPORT_MS;
pub use status::{GroupStatus, GroupsStatus, LinkState, NodeStatus, Status};

use crate::settings::Settings;
use cluster::{Member, MemberState, Membership};
use env::{Disk, Random};
use log::{DataDir, Identity, LogOptions, Owner, RecoveryReport};
use node::{FoundMembership, read_membership, replace_membership};
use std::sync::Arc;

/// The newest version of commands that this program knows.
const COMMAND_VERSION: u16 = 1;

/// What is known of the cluster before the data directory is opened: what `CLUSTER` says, or what it will.
#[derive(Debug)]
pub struct Found(Option<Known>);

#[derive(Debug)]
struct Known {
    membership: Membership,
    /// The directory has no such file yet.
    is_first: bool,
    /// This node, as the cluster is to know it.
    own: Member,
}

impl Found {
    /// What the groups of this node need for their copies; `None` if it is no node of a cluster.
    #[must_use]
    pub fn copies(&self, settings: &Settings) -> Option<node::Membership> {
        let Self(Some(known)) = self else { return None };
        Some(peers::copies((&known.membership, known.own.clone()), replace_after_ms(settings)))
    }

    /// Groups of the cluster, if this is a node of one.
    #[must_use]
    pub fn group_count(&self) -> Option<u16> {
        self.0.as_ref().map(|known| known.membership.group_count)
    }
}

/// Finds out to which cluster the data directory of `settings` belongs. A node that is the first one of its own gets its ids now.
///
/// # Errors
/// [`ClusterError`]. A server that is no node must not open the directory of one: it would serve its old state as if it
/// were alone.
pub fn find(
    settings: &Settings,
    disk: &Arc<dyn Disk>,
    random: &mut dyn Random,
) -> Result<Found, ClusterError> {
    let found = read_membership(&**disk, &settings.data_dir).map_err(ClusterError::File)?;
    if let Some(FoundMembership { damaged: Some(damaged), .. }) = &found {
        tracing::error!(file = %damaged.display(), "one copy of CLUSTER is damaged; it is written again");
    }
    let found = found.map(|found| found.membership);
    if let Some(removed) = found.as_ref().filter(|it| it.own().state == MemberState::Removed) {
        return Err(ClusterError::WasRemoved { number: removed.number });
    }
    if settings.peer_listen.is_none() {
        return match found {
            Some(Membership { number, members, .. }) if members.len() > 1 => {
                Err(ClusterError::NeedsPeerListen { number, members: members.len() })
            }
            _ => Ok(Found(None)),
        };
    }
    let is_first = found.is_none();
    // Before anything is made.
    let own = this_node(settings)?;
    let (membership, own) = match found {
        Some(membership) => {
            let (store, state) = (membership.store, membership.own().state);
            let own = Member { store, state, epoch: membership.epoch + 1, ..own };
            (membership, own)
        }
        None => {
            let store = first_identity(settings, disk, random)?;
            let own = Member { store, epoch: 1, ..own };
            (Membership::first(store, settings.groups, own.clone()), own)
        }
    };
    Ok(Found(Some(Known { membership, is_first, own })))
}

/// The id of a directory that is a cluster of its own.
fn first_identity(
    settings: &Settings,
    disk: &Arc<dyn Disk>,
    random: &mut dyn Random,
) -> Result<u64, ClusterError> {
    let dir = &settings.data_dir;
    let identity = match DataDir::identity(&**disk, dir).map_err(ClusterError::Open)? {
        Some(identity) => identity,
        None => make_dir(settings, disk, (None, None), random)?,
    };
    let Identity { store, lineage, .. } = identity;
    if store == lineage { Ok(store) } else { Err(ClusterError::NotJoined { cluster: lineage }) }
}

/// Makes the data directory, or finds it, so that its ids are known before it is opened.
fn make_dir(
    settings: &Settings,
    disk: &Arc<dyn Disk>,
    (store, lineage): (Option<u64>, Option<u64>),
    random: &mut dyn Random,
) -> Result<Identity, ClusterError> {
    let dir = &settings.data_dir;
    let options =
        LogOptions { group_count: settings.groups, store, lineage, ..LogOptions::default() };
    let made = DataDir::open(Arc::clone(disk), dir, options, Owner::SERVER, random);
    drop(made.map_err(ClusterError::Open)?);
    let identity = DataDir::identity(&**disk, dir).map_err(ClusterError::Open)?;
    Ok(identity.expect("the directory was made"))
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
    let (Some(listen), Found(Some(known))) = (settings.peer_listen, found) else { return Ok(None) };
    let Known { membership, is_first, own } = known;
    let mut membership = opened_now(membership, own, report)?;
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
    let peers = Peers::new(membership, secret, (disk, dir.clone()));
    Ok(Some(Arc::new(peers.with_replace_after_ms(replace_after_ms(settings)))))
}

fn replace_after_ms(settings: &Settings) -> u64 {
    settings.replace_after_seconds * 1_000
}

/// What `CLUSTER` is to say, with what is true of this opening.
fn opened_now(
    mut membership: Membership,
    own: Member,
    report: &RecoveryReport,
) -> Result<Membership, ClusterError> {
    if (membership.store, membership.cluster) != (report.store, report.lineage) {
        return Err(ClusterError::OtherDirectory);
    }
    // A directory that has joined and was never opened has promised nothing.
    let is_new = membership.epoch == 0;
    if report.epoch <= membership.epoch && membership.members.len() > 1 && !is_new {
        let (opened, seen) = (report.epoch, membership.epoch);
        return Err(ClusterError::OldLog { opened, seen });
    }
    let epoch = report.epoch.max(own.epoch);
    membership.epoch = epoch;
    membership.members.insert(membership.number, Member { epoch, ..own });
    Ok(membership)
}

/// What the settings say of this node.
fn this_node(settings: &Settings) -> Result<Member, ClusterError> {
    Ok(Member {
        store: 0,
        peer_address: peer_address(settings)?,
        client_address: client_address(settings),
        state: MemberState::Active,
        version: COMMAND_VERSION,
        epoch: 0,
    })
}

/// Where other nodes reach this one.
fn peer_address(settings: &Settings) -> Result<String, ClusterError> {
    let listen = settings.peer_listen.expect("a node listens for others");
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
