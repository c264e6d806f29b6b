//! RocksDB: a key per entry, stream and number in order; the memtable and its flushes are part of the
//! price, as they are for every user of its WAL.

use crate::system::{Failure, INTERVAL, SyncMode, System};
use rocksdb::{DB, Direction, IteratorMode, Options, WriteBatch, WriteOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Rocks {
    db: Arc<DB>,
    sync: SyncMode,
    next: Vec<AtomicU64>,
}

const CURSOR: u8 = 0xff;

fn key(stream: usize, number: u64) -> [u8; 9] {
    let mut key = [0; 9];
    key[0] = stream as u8;
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Starts a thread that syncs until the database is closed.
fn sync_at_intervals(db: &Arc<DB>) {
    let db = Arc::downgrade(db);
    std::thread::spawn(move || {
        while let Some(db) = db.upgrade() {
            db.flush_wal(true).expect("the WAL is synced");
            drop(db);
            std::thread::sleep(INTERVAL);
        }
    });
}

impl Rocks {
    pub(crate) fn open(dir: &Path, sync: SyncMode) -> Result<Self, Failure> {
        let mut options = Options::default();
        options.create_if_missing(true);
        let db = Arc::new(DB::open(&options, dir)?);
        let next = (0..crate::workload::THREADS_MAX).map(|_| AtomicU64::new(0)).collect();
        if sync == SyncMode::Periodic {
            sync_at_intervals(&db);
        }
        Ok(Self { db, sync, next })
    }

    fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync == SyncMode::Each);
        options
    }
}

impl System for Rocks {
    fn durability(&self) -> String {
        match self.sync {
            SyncMode::Each => "sync = true: fdatasync of the WAL, shared by concurrent callers",
            SyncMode::Periodic => "page cache when the call returns, flush_wal(true) every 100 ms",
            SyncMode::None => "sync = false: page cache when the call returns",
        }
        .to_owned()
    }

    fn append(&self, stream: usize, entry: &[u8]) -> Result<(), Failure> {
        let number = self.next[stream].fetch_add(1, Ordering::Relaxed);
        Ok(self.db.put_opt(key(stream, number), entry, &self.write_options())?)
    }

    fn append_batch(&self, stream: usize, entries: &[&[u8]]) -> Result<(), Failure> {
        let first = self.next[stream].fetch_add(entries.len() as u64, Ordering::Relaxed);
        let mut batch = WriteBatch::default();
        for (number, entry) in (first..).zip(entries) {
            batch.put(key(stream, number), entry);
        }
        Ok(self.db.write_opt(batch, &self.write_options())?)
    }

    fn consume(&self, stream: usize, count_max: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let cursor = [CURSOR, stream as u8];
        let from =
            self.db.get(cursor)?.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let from = from.unwrap_or(0);
        let start = key(stream, from);
        let mut found = Vec::new();
        for row in self.db.iterator(IteratorMode::From(&start, Direction::Forward)).take(count_max)
        {
            let (key, value) = row?;
            if key[0] != stream as u8 {
                break;
            }
            found.push(value.into_vec());
        }
        if !found.is_empty() {
            let next = from + found.len() as u64;
            self.db.put_opt(cursor, next.to_le_bytes(), &self.write_options())?;
        }
        Ok(found)
    }

    fn read_back(
        &self,
        stream: usize,
        count_max: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let start = key(stream, 0);
        for row in self
            .db
            .iterator(IteratorMode::From(&start, Direction::Forward))
            .take(usize::try_from(count_max)?)
        {
            let (key, value) = row?;
            if key[0] != stream as u8 {
                break;
            }
            take(&value);
        }
        Ok(())
    }
}
