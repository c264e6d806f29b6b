//! A sharded write-ahead log with group commit, chunks and checkpoints.
//!
//! # What it is
//! Entries of many groups are appended to one WAL per shard and made durable together. The data of
//! accepted entries belongs to streams and is read by stream and byte offset, first from the WAL,
//! later from immutable chunks. A checkpoint per group bounds recovery.
//!
//! A *replicated* group gets index and term of its entries from its owner, who also says what is committed. Its last entries
//! may be superseded, and a note says what its replica must not forget.
//!
//! It knows bytes, groups and positions; not what a stream's rules are, no HTTP, no elections, no async
//! runtime, no thread, no clock. IO that may block for long is a *job*: a value from a `poll_*`
//! method, run by the caller on any thread, its result handed back to a `handle_*` method.
//!
//! # Map
//! - `data_dir` ([`DataDir`]) and `format`: whose directory it is, and the lock on it.
//! - `recovery` ([`open`]): `rebuild`, `assemble`.
//! - `shard` ([`ShardLog`]): one owner's log. `group`: one group's part of it.
//! - `directory`, `stored`: entries of replicated groups by index. `survey`: which of them are alive at a start.
//! - `snapshot`: a group's state on its way to another replica.
//! - `wal`, `chunk`, `checkpoint`: the three kinds of files.
//!
//! # Invariants
//! - `checkpointed <= sealed <= applied < next` for each group; `applied <= committed < next` for a replicated one.
//! - What was acknowledged is on stable storage; after a failed sync nothing is acknowledged.
//! - Bytes from disk never panic: they are checked, and damage is reported and confined.
//!
//! # Format
//! `docs/format/`.

mod aim;
mod assemble;
mod checkpoint;
mod checkpoint_rows;
mod chunk;
mod codec;
mod damage;
mod data_dir;
mod descriptors;
mod directory;
mod entry;
mod extent;
mod format;
mod group;
mod hot;
mod hot_index;
mod hot_read;
mod id_map;
mod load;
mod names;
mod newer;
mod open_error;
mod options;
mod paced;
mod paths;
mod read;
mod rebuild;
mod recovery;
mod repair;
mod replay;
mod report;
mod shard;
mod snapshot;
mod store;
mod stored;
mod survey;
mod thrifty_disk;
mod unreadable;
mod wal;
mod work;

pub use aim::{Aim, PlacedAppend, TimeAim};
pub use checkpoint_rows::{CheckpointRow, CheckpointRows};
pub use chunk::cache::ChunkStats;
pub use chunk::image::{ChunkCheck, check_chunk};
pub use chunk::loss::{ChunkLoss, LostPart};
pub use damage::{Damage, DamageKind};
pub use data_dir::{DataDir, Identity};
pub use entry::{AppendBounds, DurableEntry, Entry, NewEntry, Note};
pub use extent::{Extent, Read};
pub use format::Owner;
pub use id_map::IdMap;
pub use newer::NewerVersion;
pub use open_error::OpenError;
pub use options::{ALL_SEGMENTS_MAX, LogOptions, WAL_BYTES_MAX, WAL_SEGMENTS_MAX};
pub use read::{ReadError, ReadLimit, ReadMode, Slice};
pub use recovery::{Opened, open};
pub use repair::LostRange;
pub use replay::Replay;
pub use report::{RecoveryReport, TornTail};
pub use shard::{LogStats, ReplicaError, ShardLog};
pub use snapshot::{
    Export, ExportError, ExportFile, ExportJob, Install, InstallError, InstallFile, Installed,
    RowEnds, SnapshotHead, Tails, TailsJob,
};
pub use stored::{EntryError, EntryRead, StoredEntry};
pub use wal::{
    AppendError, Durable, DurableBatch, NoRoom, Purpose, RecentStats, SyncDone, SyncFailed,
    SyncJob, is_no_room,
};
pub use work::{WorkDone, WorkJob, WorkReport};
