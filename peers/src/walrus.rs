//! Walrus. Its directory is the variable `WALRUS_DATA_DIR` of the process: each run is one.

use crate::system::{Failure, INTERVAL, SyncMode, System};
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

pub(crate) struct Wal {
    walrus: Walrus,
    sync: SyncMode,
    topics: Vec<String>,
}

/// Bytes asked of a batch read for each entry that is wanted: the limit is bytes, not entries.
const ENTRY_BYTES: usize = 768;

/// Bytes asked of one read when what was written is compared.
const READ_BACK_BYTES: usize = 4 << 20;

impl Wal {
    /// `keeps_cursor` is `true` where reads are measured: only then is each read persisted.
    pub(crate) fn open(sync: SyncMode, keeps_cursor: bool) -> Result<Self, Failure> {
        let schedule = match sync {
            SyncMode::None => FsyncSchedule::NoFsync,
            SyncMode::Periodic => FsyncSchedule::Milliseconds(INTERVAL.as_millis() as u64),
            SyncMode::Each => FsyncSchedule::SyncEach,
        };
        let consistency = if keeps_cursor {
            ReadConsistency::StrictlyAtOnce
        } else {
            ReadConsistency::AtLeastOnce { persist_every: 1 << 30 }
        };
        let walrus = Walrus::with_consistency_and_schedule(consistency, schedule)?;
        let topics = (0..crate::workload::THREADS_MAX).map(|n| format!("topic-{n}")).collect();
        Ok(Self { walrus, sync, topics })
    }
}

impl System for Wal {
    fn durability(&self) -> String {
        match self.sync {
            SyncMode::Each => "SyncEach: fsync in each call",
            SyncMode::Periodic => "Milliseconds(100): page cache when the call returns",
            SyncMode::None => "NoFsync: page cache when the call returns",
        }
        .to_owned()
    }

    fn append(&self, stream: usize, entry: &[u8]) -> Result<(), Failure> {
        Ok(self.walrus.append_for_topic(&self.topics[stream], entry)?)
    }

    fn append_batch(&self, stream: usize, entries: &[&[u8]]) -> Result<(), Failure> {
        Ok(self.walrus.batch_append_for_topic(&self.topics[stream], entries)?)
    }

    fn consume(&self, stream: usize, count_max: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let topic = &self.topics[stream];
        let entries = match count_max {
            1 => self.walrus.read_next(topic, true)?.into_iter().collect(),
            _ => self.walrus.batch_read_for_topic(topic, count_max * ENTRY_BYTES, true)?,
        };
        Ok(entries.into_iter().map(|entry| entry.data).collect())
    }

    /// There is no read without the one cursor of a topic: this moves it.
    fn read_back(
        &self,
        stream: usize,
        count_max: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let topic = &self.topics[stream];
        let mut taken = 0;
        while taken < count_max {
            // Many at a time: in its newest block Walrus syncs its cursors at every read.
            let entries = self.walrus.batch_read_for_topic(topic, READ_BACK_BYTES, true)?;
            if entries.is_empty() {
                break;
            }
            let left = usize::try_from(count_max - taken).unwrap_or(usize::MAX);
            entries.iter().take(left).for_each(|entry| take(&entry.data));
            taken += entries.len() as u64;
        }
        Ok(())
    }
}
