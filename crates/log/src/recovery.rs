//! Opening a log.
//!
//! The work itself is in `rebuild` (groups and replay) and `assemble` (shards).

use crate::assemble::assemble;
use crate::data_dir::DataDir;
use crate::names::settle_names;
use crate::open_error::OpenError;
use crate::rebuild::Rebuild;
use crate::replay::Replay;
use crate::report::RecoveryReport;
use crate::shard::ShardLog;
use crate::store::Store;
use std::io;

/// An open log.
#[derive(Debug)]
pub struct Opened {
    /// One log per shard; group `g` belongs to `shards[g % shards.len()]`.
    pub shards: Vec<ShardLog>,
    /// Groups of the data directory.
    pub group_count: u16,
    /// What recovery found.
    pub report: RecoveryReport,
    /// Why the names of files cannot be made durable, if they cannot. Then all shards are poisoned: what there is can be
    /// read, and nothing is written.
    pub unsynced: Option<io::Error>,
}

/// Opens the log in `data_dir` for `shard_count` shards.
///
/// # Errors
/// [`OpenError::Io`]. Damage is no error, see [`Replay::damaged`]. Neither is a device that cannot sync directories, see
/// [`Opened::unsynced`].
///
/// # Panics
/// If `shard_count` is 0.
pub fn open(
    data_dir: DataDir,
    shard_count: u16,
    replay: &mut dyn Replay,
) -> Result<Opened, OpenError> {
    assert!(shard_count > 0, "a node has at least one shard");
    let (is_new, damage) = (data_dir.is_new, data_dir.damage.clone());
    let mut store = Store::new(data_dir, shard_count);
    let unsynced = settle_names(&store)?;
    store.has_synced_names = unsynced.is_none();
    let mut rebuild = Rebuild::new(&store, replay);
    rebuild.report.created = is_new;
    damage.iter().for_each(|damage| rebuild.damaged(damage));
    rebuild.restore_groups()?;
    rebuild.scan_wals()?;
    rebuild.replay_wals()?;
    rebuild.pass_over_lost_ends();
    rebuild.finish_replicated();
    rebuild.ask_heads()?;
    let mut rebuilt = rebuild.finish();
    let unsynced = unsynced.or(rebuilt.unsynced.take());
    store.has_synced_names = unsynced.is_none();
    let report = rebuilt.report.clone();
    let group_count = store.options.group_count;
    let (shards, epoch) = assemble(&store, rebuilt)?;
    let report = RecoveryReport { store: store.id, lineage: store.lineage, epoch, ..report };
    store.chunk_cache.hold_descriptors();
    Ok(Opened { shards, group_count, report, unsynced })
}
