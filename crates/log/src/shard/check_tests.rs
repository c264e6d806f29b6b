//! Each test breaks one invariant of a shard's log, and the check names it.

use super::ShardLog;
use crate::chunk::set::{ChunkSet, tests::chunk};
use crate::{
    CheckpointRow, Damage, DataDir, Entry, LogOptions, NewEntry, NewerVersion, Owner, Replay,
};
use env::{MemoryDisk, SeededRandom};
use model::{EntryIndex, EntrySubject, GroupId, Placement, Term, Timestamp};
use std::path::Path;
use std::sync::Arc;

/// Takes every entry for one without data.
struct Nobody;

impl Replay for Nobody {
    fn restore(
        &mut self,
        _: GroupId,
        _: EntryIndex,
        _: &[u8],
        _: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion> {
        Ok(())
    }

    fn apply(&mut self, _: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion> {
        Ok(None)
    }

    fn damaged(&mut self, damage: &Damage) {
        panic!("a new directory is damaged: {damage:?}");
    }
}

/// A log with one batch on disk and one entry in the next.
fn log() -> ShardLog {
    let options = LogOptions {
        segment_bytes: 32 << 10,
        wal_bytes_max: 256 << 10,
        batch_bytes_max: 8 << 10,
        group_count: 1,
        ..LogOptions::default()
    };
    let (disk, random) = (Arc::new(MemoryDisk::new()), &mut SeededRandom::new(7));
    let dir = DataDir::open(disk, Path::new("/d"), options, Owner::SERVER, random).unwrap();
    let mut log = crate::open(dir, 1, &mut Nobody).unwrap().shards.remove(0);
    while let Some(job) = log.poll_work() {
        assert!(log.handle_work(job.run()).error.is_none());
    }
    append(&mut log);
    let batch = log.poll_sync().unwrap().run();
    log.handle_synced(batch).unwrap();
    append(&mut log);
    log.check();
    log
}

fn append(log: &mut ShardLog) {
    let (group, term, subject) = (GroupId::new(0), Term::new(1), EntrySubject::new(1));
    let (at, kind, command) = (Timestamp::new(1), 1, &b"c"[..]);
    log.append(NewEntry { group, term, subject, at, kind, command, data: b"data" }).unwrap();
}

#[test]
#[should_panic(expected = "batches are whole blocks")]
fn a_wal_that_continues_inside_a_block_is_found() {
    let mut log = log();
    log.wal.move_by(1);
    log.check();
}

#[test]
#[should_panic(expected = "is durable before it is made")]
fn a_batch_of_the_future_that_is_durable_is_found() {
    let mut log = log();
    log.wal.commit_mut().claim(1_000);
    log.check();
}

#[test]
#[should_panic(expected = "one header for the batch and each entry")]
fn an_entry_without_its_header_in_the_open_batch_is_found() {
    let mut log = log();
    log.wal.batch_mut().lose_header();
    log.check();
}

#[test]
#[should_panic(expected = "a segment is open under two numbers")]
fn a_segment_under_two_numbers_is_found() {
    let mut log = log();
    let segment = Arc::clone(log.slots.get(0));
    log.slots.insert(segment);
    log.check();
}

#[test]
#[should_panic(expected = "chunk 10 has the number of a later one")]
fn a_chunk_whose_number_will_be_given_again_is_found() {
    let mut log = log();
    log.groups[0].chunks = ChunkSet::new(5);
    log.groups[0].chunks.add(chunk(10, 100), 0);
    log.check();
}

#[test]
#[should_panic(expected = "group 0: checkpointed 0, sealed 0, applied 0, next 0")]
fn an_index_that_is_given_again_is_found() {
    let mut log = log();
    log.groups[0].next = 0;
    log.check();
}
