//! An embedded log of named streams, for programs that want no server.
//!
//! Entries are opaque bytes; each stream numbers its own from 0 without a gap. Any number of threads
//! append, read and keep durable cursors through one [`Engine`]. What an acknowledgement means is
//! chosen at open: [`Durability`].
//!
//! ```
//! use thalweg_engine::{Durability, Engine, Options, ReadLimits};
//! # let scratch = tempfile::tempdir().unwrap();
//! # let dir = scratch.path().join("orders");
//! let options = Options { durability: Durability::Each, ..Options::default() };
//! let engine = Engine::open(&dir, options.clone())?;
//! assert_eq!(engine.append("orders", b"first")?, 0);
//! assert_eq!(engine.append_batch("orders", &[b"second", b"third"])?, 1);
//!
//! let from = engine.cursor("billing", "orders");
//! let entries = engine.read("orders", from, ReadLimits { entries_max: 2, ..Default::default() })?;
//! for (id, entry) in entries.iter() {
//!     println!("{id}: {}", String::from_utf8_lossy(entry));
//! }
//! engine.commit_cursor("billing", "orders", entries.next_id())?;
//! engine.close()?;
//!
//! let engine = Engine::open(&dir, options)?;
//! assert_eq!(engine.cursor("billing", "orders"), 2);
//! assert_eq!(engine.tail("orders"), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//! - [`Engine`] (`engine`): the calls. `opening`: how it begins. `shared`: how threads work together;
//!   [`Driver`]: how it goes without them. `core`: what they share.
//! - `streams`: the state machine. `command`: its bytes. `recovery`: rebuilds it.
//! - `read` and `locate`: entries by id. `wal_disk`, `front` and `synced`: syncs that are
//!   postponed.
//!
//! # Invariants
//! - An append, a batch, a trim and a cursor's move are one entry of the log below: all or nothing.
//! - With [`Durability::Each`] nothing is acknowledged or readable before it is on stable storage.
//! - Otherwise what power loss leaves is, over all streams, what was written up to some moment.
//! - After a failed write or sync nothing is acknowledged.

mod command;
mod core;
mod driver;
mod engine;
mod error;
mod front;
mod hints;
mod locate;
mod mapped;
mod opening;
mod options;
mod outcome;
mod read;
mod recovery;
mod shared;
mod streams;
mod synced;
mod threads;
mod wal_disk;

pub use driver::Driver;
pub use engine::{Ends, Engine, Ticket};
pub use error::{Class, OpenError, ReadError, WriteError};
pub use options::{
    BATCH_BYTES_MAX, BadOption, CURSORS_PER_STREAM_MAX, Durability, NAME_BYTES_MAX, Options,
    READ_BYTES_MAX, STREAMS_MAX, SYNC_INTERVAL_MIN,
};
pub use read::{Entries, ReadLimits};

// What the log below says of damage and of itself, and the disk that tests pass.
pub use log::{Damage, DamageKind, LogStats, OpenError as LogOpenError};
