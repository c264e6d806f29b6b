//! Thalweg's engine.

use crate::system::{Failure, INTERVAL, SyncMode, System};
use engine::{Durability, Engine, Options, ReadLimits};
use std::path::Path;

const CURSOR: &str = "reader";

pub(crate) struct Thalweg {
    engine: Engine,
    names: Vec<String>,
}

impl Thalweg {
    pub(crate) fn open(dir: &Path, sync: SyncMode) -> Result<Self, Failure> {
        let durability = match sync {
            SyncMode::None => Durability::None,
            SyncMode::Periodic => Durability::Periodic(INTERVAL),
            SyncMode::Each => Durability::Each,
        };
        let engine = Engine::open(dir, Options { durability, ..Options::default() })?;
        let names = (0..crate::workload::THREADS_MAX).map(|n| format!("topic-{n}")).collect();
        Ok(Self { engine, names })
    }
}

impl System for Thalweg {
    fn durability(&self) -> String {
        match self.engine.durability() {
            Durability::Each => "fdatasync before the call returns, shared by concurrent callers",
            Durability::Periodic(_) => "page cache when the call returns, synced every 100 ms",
            Durability::None => "page cache when the call returns, synced by background work only",
        }
        .to_owned()
    }

    fn append(&self, stream: usize, entry: &[u8]) -> Result<(), Failure> {
        self.engine.append(&self.names[stream], entry)?;
        Ok(())
    }

    fn append_batch(&self, stream: usize, entries: &[&[u8]]) -> Result<(), Failure> {
        self.engine.append_batch(&self.names[stream], entries)?;
        Ok(())
    }

    fn consume(&self, stream: usize, count_max: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let name = &self.names[stream];
        let from = self.engine.cursor(CURSOR, name);
        let limits = ReadLimits { entries_max: count_max, ..ReadLimits::default() };
        let entries = self.engine.read(name, from, limits)?;
        if !entries.is_empty() {
            self.engine.commit_cursor(CURSOR, name, entries.next_id())?;
        }
        Ok(entries.iter().map(|(_, entry)| entry.to_vec()).collect())
    }

    fn read_back(
        &self,
        stream: usize,
        count_max: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let mut next = 0;
        let tail = self.engine.tail(&self.names[stream]);
        while next < tail.min(count_max) {
            let entries = self.engine.read(&self.names[stream], next, ReadLimits::default())?;
            entries.iter().for_each(|(_, entry)| take(entry));
            next = entries.next_id();
        }
        Ok(())
    }
}
