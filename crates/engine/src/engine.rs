//! The engine: what a program calls.

use crate::command::{self, Position, frame_bytes};
use crate::core::{Core, Refused};
use crate::error::{OpenError, ReadError, WriteError};
use crate::front::{Front, Left, NO_LIFE, Record, draw_life};
use crate::locate::{GROUP, locate};
use crate::options::{BATCH_BYTES_MAX, Durability, NAME_BYTES_MAX, Options};
use crate::read::{Entries, ReadLimits};
use crate::recovery::Recovery;
use crate::shared::Shared;
use crate::synced::{self, Synced, SyncedFile};
use crate::threads::Threads;
use crate::wal_disk::{WalDisk, rewrite_wal};
use env::{Clock, Disk, RealClock, RealDisk, RealRandom};
use log::{Damage, DataDir, LogStats, Owner};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A log of named streams in one directory, for any number of threads. Clones share it; the
/// directory is free again when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    threads: Threads,
    damages: Vec<Damage>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No caller is left to get an error. What was acknowledged keeps its promise without this, too.
        let _ = self.shared.close();
        self.threads.join(&self.shared);
    }
}

/// An append on its way: see [`Engine::begin_append`].
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing is acknowledged before `Engine::wait` returned"]
pub struct Ticket {
    first: u64,
    batch: u64,
}

impl Ticket {
    /// The id that the first entry gets if the append succeeds.
    #[must_use]
    pub fn first_id(&self) -> u64 {
        self.first
    }
}

/// First and next id of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    /// The first entry that is kept.
    pub head: u64,
    /// The id that the next entry gets.
    pub tail: u64,
}

fn no_place(error: &log::ReadError, id: u64) -> Refused {
    let cause = error.to_string();
    Refused::Call(match error {
        log::ReadError::Io(_) => WriteError::Unreadable { id, cause },
        _ => WriteError::Damaged { id, cause },
    })
}

fn check_name(name: &str) -> Result<(), WriteError> {
    let length_bytes = name.len();
    let fits = (1..=NAME_BYTES_MAX).contains(&length_bytes);
    if fits { Ok(()) } else { Err(WriteError::Name { length_bytes }) }
}

fn check_batch(stream: &str, entries: &[&[u8]]) -> Result<(), WriteError> {
    check_name(stream)?;
    let bytes = frame_bytes(entries);
    if entries.is_empty() {
        return Err(WriteError::EmptyBatch);
    }
    if bytes > BATCH_BYTES_MAX as u64 {
        return Err(WriteError::TooLarge { bytes });
    }
    Ok(())
}

/// The last index of the log.
fn last(core: &Core) -> u64 {
    core.shard.next_index(GROUP).get() - 1
}

/// Brings into the log what the last life had only in front of it; durably.
fn replay_front(disk: &dyn Disk, dir: &Path, life: u64, core: &mut Core) -> io::Result<()> {
    let left = Left::read(disk, dir, life)?;
    let at = RealClock::new().now_wall();
    for record in left.following(last(core) + 1) {
        core.replay(&record, at).map_err(io::Error::other)?;
    }
    core.commit_here().map_err(io::Error::other)
}

/// Decides the opening: until `SYNCED` is written the next one begins where this one did, and from
/// then on nothing of an earlier life counts but the log.
fn begin_life(
    disk: &dyn Disk,
    dir: &Path,
    core: &mut Core,
    (synced, durability): (Synced, Durability),
) -> io::Result<SyncedFile> {
    if durability.is_each() {
        let decided = Synced { index: synced::ALL, life: NO_LIFE, ..synced };
        let file = SyncedFile::open(disk, dir, decided)?;
        Front::remove(disk, dir)?;
        return Ok(file);
    }
    let life = draw_life(&mut RealRandom);
    let front = Front::open(disk, dir, life)?;
    let file = SyncedFile::open(disk, dir, Synced { index: last(core), life, ..synced })?;
    // Not before: its index is one that a record of the last life may have.
    begin_log(core).map_err(io::Error::other)?;
    core.front = Some(front);
    Ok(file)
}

/// Writes an empty entry, durably, before syncs are postponed. The log knows a batch that an earlier
/// opening cut off by a later batch that does not claim it. That later one must not be lost, or the
/// batch that was cut off counts again.
fn begin_log(core: &mut Core) -> Result<(), String> {
    let (command, data) = (&[][..], &[][..]);
    let index = last(core) + 1;
    let record = Record { index, stream: index, kind: command::BEGIN, command, data };
    core.replay(&record, RealClock::new().now_wall())?;
    core.commit_here()
}

impl Engine {
    /// Opens or makes the engine in the directory `dir`.
    ///
    /// # Errors
    /// [`OpenError`]: another process has the directory, it is not an engine's, an option is out of
    /// proportion, or the disk failed. Damage is no error, see [`Engine::damages`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(RealDisk), dir.as_ref(), options)
    }

    /// As [`Engine::open`], on a disk of the caller's: a simulated one in tests.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Result<Self, OpenError> {
        options.check().map_err(OpenError::Options)?;
        let at = |error| OpenError::Io { path: dir.to_owned(), error };
        let disk = Arc::new(WalDisk::new(disk, dir));
        let log_disk: Arc<dyn Disk> = Arc::clone(&disk) as _;
        let log = options.log();
        let data_dir = DataDir::open(log_disk, dir, log, Owner::ENGINE, &mut RealRandom)?;
        let recorded = synced::read(&*disk, dir).map_err(at)?;
        if recorded.life != NO_LIFE {
            rewrite_wal(&*disk, dir).map_err(at)?;
        }
        let mut recovery = Recovery::new(recorded);
        let mut opened = log::open(data_dir, 1, &mut recovery)?;
        let shard = opened.shards.pop().expect("one shard was asked for");
        let is_cut = recovery.cut.is_some();
        let (streams, synced, damages) = recovery.finish(shard.next_index(GROUP).get() - 1);
        let mut core = Core::new(shard, streams);
        if !is_cut {
            replay_front(&*disk, dir, synced.life, &mut core).map_err(at)?;
        }
        if !synced.voids.is_empty() {
            core.checkpoint();
        }
        let file = begin_life(&*disk, dir, &mut core, (synced, options.durability)).map_err(at)?;
        if !options.durability.is_each() {
            disk.postpone();
        }
        let shared = Arc::new(Shared::new(core, disk, file, options));
        let threads = Threads::start(&shared).map_err(at)?;
        Ok(Self { inner: Arc::new(Inner { shared, threads, damages }) })
    }

    fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// What was found damaged when the engine was opened. Intact data around it was kept.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.inner.damages
    }

    /// Appends one entry of at most [`BATCH_BYTES_MAX`] − 16 bytes; its id. The stream is made if
    /// there is none of that name.
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::class`] says what to do. Unless it is `Fatal` nothing has
    /// changed; after `Fatal` the entry may or may not be there at the next opening.
    pub fn append(&self, stream: &str, entry: &[u8]) -> Result<u64, WriteError> {
        self.append_batch(stream, &[entry])
    }

    /// Appends all of `entries` or none, with consecutive ids; the first id.
    ///
    /// # Errors
    /// As [`Engine::append`]; a batch that does not fit is [`WriteError::TooLarge`].
    pub fn append_batch(&self, stream: &str, entries: &[&[u8]]) -> Result<u64, WriteError> {
        check_batch(stream, entries)?;
        let at = self.shared().clock.now_wall();
        let (core, first) = self.shared().put(|core| core.append(stream, entries, at))?;
        self.shared().settle(core)?;
        Ok(first)
    }

    /// Begins what [`Engine::append_batch`] does and returns before it is acknowledged, so that one
    /// thread keeps many appends under way. Waits only for room.
    ///
    /// # Errors
    /// As [`Engine::append_batch`].
    pub fn begin_append(&self, stream: &str, entries: &[&[u8]]) -> Result<Ticket, WriteError> {
        check_batch(stream, entries)?;
        let at = self.shared().clock.now_wall();
        let (core, first) = self.shared().put(|core| core.append(stream, entries, at))?;
        let batch = self.shared().leave(core);
        Ok(Ticket { first, batch })
    }

    /// Waits until a begun append, and every one begun before it, is acknowledged; its first id.
    ///
    /// # Errors
    /// [`WriteError::Failed`]: it may or may not be there at the next opening.
    pub fn wait(&self, ticket: Ticket) -> Result<u64, WriteError> {
        self.shared().outcome.wait(ticket.batch)?;
        Ok(ticket.first)
    }

    /// Entries of `stream` from the id `from`, as many as `limits` allow and at least one; none
    /// only if `from` is the tail.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, stream: &str, from: u64, limits: ReadLimits) -> Result<Entries, ReadError> {
        self.shared().read(stream, from, limits)
    }

    /// First and next id of a stream; both 0 if there is none of that name.
    #[must_use]
    pub fn ends(&self, stream: &str) -> Ends {
        self.shared().catch_up();
        let core = self.shared().lock();
        let found = core.streams.find(stream).map(|number| core.streams.get(number));
        found.map_or_else(Ends::default, |stream| Ends {
            head: stream.head.id,
            tail: stream.tail.id,
        })
    }

    /// The id that the next entry of `stream` gets; 0 if there is no such stream.
    #[must_use]
    pub fn tail(&self, stream: &str) -> u64 {
        self.ends(stream).tail
    }

    /// Names of all streams, in the order in which they were made.
    #[must_use]
    pub fn streams(&self) -> Vec<String> {
        self.shared().lock().streams.names().map(str::to_owned).collect()
    }

    /// Drops the entries of `stream` before the id `upto`, durably as an append is. Their space
    /// returns in the background.
    ///
    /// # Errors
    /// As [`Engine::append`]; [`WriteError::PastTail`] if `upto` lies behind the tail.
    pub fn trim(&self, stream: &str, upto: u64) -> Result<(), WriteError> {
        let at = self.shared().clock.now_wall();
        self.shared().catch_up();
        let trim = |core: &mut Core| {
            let number = core.existing(stream)?;
            let found = core.streams.get(number);
            let head = if upto <= found.head.id {
                return Ok(false);
            } else if upto > found.tail.id {
                let error = WriteError::PastTail { id: upto, tail: found.tail.id };
                return Err(Refused::Call(error));
            } else if upto == found.tail.id {
                found.tail
            } else {
                let place = locate(&core.shard, found, upto);
                Position { id: upto, ..place.map_err(|error| no_place(&error, upto))? }
            };
            core.trim(number, head, at)?;
            Ok(true)
        };
        let (core, is_written) = self.shared().put(trim)?;
        if is_written { self.shared().settle(core) } else { Ok(()) }
    }

    /// The id that the reader `name` of `stream` committed last; 0 if it never did.
    #[must_use]
    pub fn cursor(&self, name: &str, stream: &str) -> u64 {
        let is_ahead = !self.durability().is_each();
        let core = self.shared().lock();
        let found = core.streams.find(stream).map(|number| core.streams.get(number));
        found.and_then(|stream| stream.cursor(name, is_ahead)).unwrap_or(0)
    }

    /// Records that the reader `name` continues at the id `next` of `stream`, with the durability of
    /// the engine. It may go back.
    ///
    /// # Errors
    /// As [`Engine::append`]; [`WriteError::PastTail`] if `next` lies behind the tail.
    pub fn commit_cursor(&self, name: &str, stream: &str, next: u64) -> Result<(), WriteError> {
        check_name(name)?;
        let at = self.shared().clock.now_wall();
        let commit = |core: &mut Core| {
            let number = core.existing(stream)?;
            core.commit_cursor(number, (name, next), at)
        };
        let (core, ()) = self.shared().put(commit)?;
        self.shared().settle(core)
    }

    /// Makes everything durable that was appended before the call, whatever the durability.
    ///
    /// # Errors
    /// [`WriteError::Failed`]: the engine takes nothing any more.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.shared().settle_all()?;
        self.shared().barrier()
    }

    /// Makes everything durable and takes nothing any more; clones can still read. Dropping the last
    /// clone does the same and keeps the error to itself.
    ///
    /// # Errors
    /// [`WriteError::Failed`].
    pub fn close(self) -> Result<(), WriteError> {
        self.shared().close()
    }

    /// Figures of the log below.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        self.shared().lock().shard.stats()
    }

    /// When calls return, as set at open.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.shared().options.durability
    }
}

impl Shared {
    fn close(&self) -> Result<(), WriteError> {
        let was_closed = std::mem::replace(&mut self.lock().is_closed, true);
        if was_closed {
            return Ok(());
        }
        self.settle_all()?;
        self.mark()?;
        self.barrier()?;
        self.end_life()
    }
}
