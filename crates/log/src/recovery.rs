//! Opening a log: what it asks of the state machines, what it answers, why it refuses.
//!
//! The work itself stands in `rebuild` (groups and replay) and `assemble` (shards).

use crate::assemble::assemble;
use crate::checkpoint_rows::CheckpointRow;
use crate::damage::Damage;
use crate::data_dir::open_data_dir;
use crate::entry::{Entry, Placement};
use crate::options::LogOptions;
use crate::rebuild::Rebuild;
use crate::shard::{ShardLog, Store};
use env::{Disk, LockError};
use model::{ByteOffset, EntryIndex, GroupId, StreamKey};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who rebuilds the state machines while the log is opened.
///
/// Calls come in this order: for each group in turn `restore` if it has a checkpoint; then `apply`
/// for every later entry, per group in index order; then `head` for streams that hold data.
pub trait Replay {
    /// The newest checkpoint of a group, rows in stream order. `applied` is the index it stands at.
    fn restore(
        &mut self,
        group: GroupId,
        applied: EntryIndex,
        header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    );

    /// An entry after the checkpoint. `Some` if it was accepted and its data stands in a stream.
    ///
    /// Its command is intact and the length of its data is right, so the stream keeps its offsets.
    /// The data itself may be damaged, see [`Entry::data`]: do not decide by it.
    fn apply(&mut self, entry: &Entry<'_>) -> Option<Placement>;

    /// Something is lost, or was put right. Called once for each place.
    fn damaged(&mut self, damage: &Damage);

    /// The first retained byte of a stream, `None` if it is deleted and its data may go.
    ///
    /// Asked after all entries were applied. A stream that a damage may concern must not be
    /// answered with `None`.
    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        let _ = key;
        Some(ByteOffset::ZERO)
    }
}

/// An open log.
#[derive(Debug)]
pub struct Opened {
    /// One log per shard; group `g` belongs to `shards[g % shards.len()]`.
    pub shards: Vec<ShardLog>,
    /// Groups of the data directory.
    pub group_count: u16,
    /// What recovery found.
    pub report: RecoveryReport,
}

/// What recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The data directory was made by this open.
    pub created: bool,
    /// Groups restored from a checkpoint.
    pub checkpoints_restored: u32,
    /// Entries replayed from the WAL.
    pub entries_replayed: u64,
    /// Bytes of batches that were read.
    pub wal_bytes_read: u64,
    /// Batches that no later one claims durable and that were not whole: nobody saw them.
    pub torn_tails: Vec<TornTail>,
    /// Places reported through [`Replay::damaged`].
    pub damage_count: u32,
}

/// A batch that was being written when the process or the power went away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub file: PathBuf,
    /// Where the batch starts.
    pub position: u64,
}

/// Why a data directory was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    Locked(LockError),
    /// The directory holds other files: it is not ours to write into.
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// `FORMAT` is damaged.
    FormatDamaged {
        /// The file.
        file: PathBuf,
    },
    /// A newer program wrote it.
    Newer {
        /// Version of the directory.
        found: u16,
        /// Newest version that this program knows.
        known: u16,
    },
    /// It was made with another number of groups.
    GroupCount {
        /// Groups of the directory.
        found: u16,
        /// Groups asked for.
        asked: u16,
    },
    /// The disk failed.
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the disk said.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(error @ LockError::Held { .. }) => {
                write!(f, "{error}; stop it or choose another data directory")
            }
            Self::Locked(error) => error.fmt(f),
            Self::Foreign { dir } => write!(
                f,
                "{} has files but no FORMAT, so it is not a Thalweg data directory; choose an \
                 empty one",
                dir.display()
            ),
            Self::FormatDamaged { file } => write!(
                f,
                "{} is damaged; restore it from a backup of this data directory",
                file.display()
            ),
            Self::Newer { found, known } => write!(
                f,
                "the data directory has format version {found}, this program knows {known}; use \
                 the newer program"
            ),
            Self::GroupCount { found, asked } => write!(
                f,
                "the data directory was made with {found} groups, asked for {asked}; the number \
                 is fixed, ask for {found}"
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

/// Opens or makes the data directory `dir` for `shard_count` shards.
///
/// # Errors
/// [`OpenError`]: each says what to do. Damage is no error, see [`Replay::damaged`].
///
/// # Panics
/// If `options` are out of proportion or `shard_count` is 0.
pub fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: LogOptions,
    shard_count: u16,
    replay: &mut dyn Replay,
) -> Result<Opened, OpenError> {
    options.check();
    assert!(shard_count > 0, "a node has at least one shard");
    let data_dir = open_data_dir(&*disk, dir, &options)?;
    let store = Store {
        disk,
        root: dir.to_owned(),
        id: data_dir.format.store,
        options,
        shard_count,
        is_closing: Arc::default(),
        _lock: Arc::new(data_dir.lock),
    };
    let mut rebuild = Rebuild::new(&store, replay);
    rebuild.report.created = data_dir.created;
    rebuild.make_dirs()?;
    rebuild.restore_groups()?;
    rebuild.scan_lanes()?;
    rebuild.replay_lanes()?;
    rebuild.pass_over_lost_ends();
    rebuild.ask_heads();
    let rebuilt = rebuild.finish();
    let report = rebuilt.report.clone();
    let group_count = store.options.group_count;
    let shards = assemble(&store, rebuilt)?;
    Ok(Opened { shards, group_count, report })
}
