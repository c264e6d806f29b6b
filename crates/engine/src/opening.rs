//! How an engine begins: the log, what the last life had only in front of it, and the turn to a new life.
//!
//! # Invariants
//! - Nothing is read or written before the directory is locked and known to be an engine's.
//! - One write, of `SYNCED`, decides the opening: see [`begin_life`].

use crate::command;
use crate::core::Core;
use crate::error::OpenError;
use crate::front::{Front, Left, Life, Record};
use crate::locate::GROUP;
use crate::options::Options;
use crate::recovery::Recovery;
use crate::shared::Shared;
use crate::synced::{self, Synced, SyncedFile, SyncedTo};
use crate::wal_disk::{WalDisk, rewrite_wal};
use env::{Clock, Disk, Random};
use log::{Damage, DataDir, Owner};
use model::Timestamp;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Where and when an engine is opened.
struct Place<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    at: Timestamp,
}

/// The last index of the log.
fn last(core: &Core) -> u64 {
    core.shard.next_index(GROUP).get() - 1
}

/// Brings into the log what the last life had only in front of it; durably.
fn replay_front(place: &Place<'_>, life: Option<Life>, core: &mut Core) -> io::Result<()> {
    let left = Left::read(place.disk, place.dir, life)?;
    for record in left.following(last(core) + 1) {
        core.replay(&record, place.at).map_err(io::Error::other)?;
    }
    core.commit_here().map_err(io::Error::other)
}

/// Decides the opening of `life`: until `SYNCED` is written the next one begins where this one did, and from
/// then on nothing of an earlier life counts but the log.
fn begin_life(
    place: &Place<'_>,
    core: &mut Core,
    synced: Synced,
    life: Option<Life>,
) -> io::Result<SyncedFile> {
    let Place { disk, dir, at } = *place;
    let Some(of_front) = life else {
        let decided = Synced { upto: SyncedTo::All, life, ..synced };
        let file = SyncedFile::open(disk, dir, decided)?;
        Front::remove(disk, dir)?;
        return Ok(file);
    };
    let front = Front::open(disk, dir, of_front)?;
    let upto = SyncedTo::Index(last(core));
    let file = SyncedFile::open(disk, dir, Synced { upto, life, ..synced })?;
    // Not before: its index is one that a record of the last life may have.
    begin_log(core, at).map_err(io::Error::other)?;
    core.front = Some(front);
    Ok(file)
}

/// Writes an empty entry, durably, before syncs are postponed. The log knows a batch that an earlier
/// opening cut off by a later batch that does not claim it. That later one must not be lost, or the
/// batch that was cut off counts again.
fn begin_log(core: &mut Core, at: Timestamp) -> Result<(), String> {
    let (command, data) = (&[][..], &[][..]);
    let index = last(core) + 1;
    let record = Record { index, stream: index, kind: command::BEGIN, command, data };
    core.replay(&record, at)?;
    core.commit_here()
}

/// Opens or makes the engine in `dir`; with what is damaged.
///
/// # Errors
/// [`OpenError`].
pub(crate) fn open_shared(
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: &mut dyn Random,
    dir: &Path,
    options: Options,
) -> Result<(Shared, Vec<Damage>), OpenError> {
    options.check().map_err(OpenError::Options)?;
    let failed = |error| OpenError::Io { path: dir.to_owned(), error };
    let disk = Arc::new(WalDisk::new(disk, dir));
    let log_disk: Arc<dyn Disk> = Arc::clone(&disk) as _;
    let data_dir = DataDir::open(log_disk, dir, options.log(), Owner::ENGINE, random)?;
    let recorded = synced::read(&*disk, dir).map_err(failed)?;
    if recorded.life.is_some() {
        rewrite_wal(&*disk, dir).map_err(failed)?;
    }
    let mut recovery = Recovery::new(recorded);
    let mut opened = log::open(data_dir, 1, &mut recovery)?;
    if let Some(error) = opened.unsynced {
        return Err(failed(error));
    }
    let shard = opened.shards.pop().expect("one shard was asked for");
    let is_cut = recovery.cut.is_some();
    let (streams, synced, damages) = recovery.finish(shard.next_index(GROUP).get() - 1);
    let mut core = Core::new(shard, streams);
    let place = Place { disk: &*disk, dir, at: clock.now_wall() };
    if !is_cut {
        replay_front(&place, synced.life, &mut core).map_err(failed)?;
    }
    if !synced.voids.is_empty() {
        core.checkpoint();
    }
    let is_each = options.durability.is_each();
    let life = (!is_each).then(|| Life::draw(random));
    let file = begin_life(&place, &mut core, synced, life).map_err(failed)?;
    if !is_each {
        disk.postpone();
    }
    Ok((Shared::new(core, disk, file, clock, options), damages))
}
