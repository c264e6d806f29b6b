//! The engine: what a program calls.

use crate::command::{Position, frame_bytes};
use crate::core::{Core, Refused};
use crate::driver::Driver;
use crate::error::{OpenError, ReadError, WriteError};
use crate::locate::locate;
use crate::opening::open_shared;
use crate::options::{BATCH_BYTES_MAX, Durability, NAME_BYTES_MAX, Options};
use crate::read::{Entries, ReadLimits};
use crate::shared::Shared;
use crate::threads::Threads;
use env::{Clock, Disk, Random, RealClock, RealDisk, RealRandom};
use log::{Damage, LogStats};
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
    /// None if a driver does their work.
    threads: Option<Threads>,
    damages: Vec<Damage>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A commit that a driver holds can only be ended by the driver.
        if self.threads.is_some() || !self.shared.lock().is_syncing {
            // No caller is left to hear of an error. What was acknowledged keeps its promise anyway.
            let _ = self.shared.close();
        }
        if let Some(threads) = &self.threads {
            threads.join(&self.shared);
        }
    }
}

/// An append on its way: see [`Engine::begin_append`].
#[derive(Debug, Clone, Copy)]
#[must_use = "nothing is acknowledged before `Engine::wait` returned"]
pub struct Ticket {
    first: u64,
    batch: Option<u64>,
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

impl Engine {
    /// Opens or makes the engine in the directory `dir`.
    ///
    /// # Errors
    /// [`OpenError`]: another process has the directory, it is not an engine's, an option is out of
    /// proportion, or the disk failed. Damage is no error, see [`Engine::damages`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let clock = Arc::new(RealClock::new());
        Self::open_on(Arc::new(RealDisk), clock, &mut RealRandom, dir.as_ref(), options)
    }

    /// As [`Engine::open`], with the caller's disk, clock and random numbers.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: &mut dyn Random,
        dir: &Path,
        options: Options,
    ) -> Result<Self, OpenError> {
        let at = |error| OpenError::Io { path: dir.to_owned(), error };
        let (shared, damages) = open_shared(disk, clock, random, dir, options)?;
        let shared = Arc::new(shared);
        let threads = Some(Threads::start(&shared).map_err(at)?);
        Ok(Self { inner: Arc::new(Inner { shared, threads, damages }) })
    }

    /// As [`Engine::open_on`], without any thread: the driver does their work, when it is told to. The
    /// same calls in the same order then do the same.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_driven(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: &mut dyn Random,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Driver), OpenError> {
        let (mut shared, damages) = open_shared(disk, clock, random, dir, options)?;
        shared.is_driven = true;
        let shared = Arc::new(shared);
        let driver = Driver::new(Arc::clone(&shared));
        Ok((Self { inner: Arc::new(Inner { shared, threads: None, damages }) }, driver))
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
        ticket.batch.map_or(Ok(()), |batch| self.shared().wait_for(batch))?;
        Ok(ticket.first)
    }

    /// Whether a begun append is acknowledged by now; does not wait.
    ///
    /// # Errors
    /// As [`Engine::wait`].
    pub fn poll(&self, ticket: Ticket) -> Result<bool, WriteError> {
        ticket.batch.map_or(Ok(true), |batch| self.shared().outcome.poll(batch))
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
