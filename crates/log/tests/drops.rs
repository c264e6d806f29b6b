//! What a committed entry has dropped stays in chunks until a start would know that the entry is committed. What a replica has
//! that takes part in nothing goes at once.

use crate::support::replicas::{Logged, World, group};
use env::MemoryDisk;
use model::{EntryIndex, Term};
use thalweg_log::Note;

fn logged(stream: u64) -> Logged {
    Logged { term: 2, stream, command: vec![1, 2], data: vec![7; 3000] }
}

/// Two streams in a chunk; then the deletion of one is committed, and its leader has said so to nobody.
fn prepared(disk: &MemoryDisk) -> World {
    let mut world = World::new(disk, 1);
    let note = Note { term: Term::new(2), vote: 7, commit: EntryIndex::new(0) };
    world.replicate(0, note).unwrap();
    for index in 1..=8 {
        world.append(0, index, logged(1 + u64::from(index == 4))).unwrap();
        world.sync_all().unwrap();
    }
    world.note(0, Note { commit: EntryIndex::new(8), ..note }).unwrap();
    world.sync_all().unwrap();
    world.apply_committed(0).unwrap();
    world.work().unwrap();
    assert!(world.log(0).stats().chunks > 0, "all is sealed");
    world.append(0, 9, Logged::delete(2, 1)).unwrap();
    world.sync_all().unwrap();
    world.commit(0, 9).unwrap();
    world
}

/// Bytes in chunks that nobody needs.
fn dead_bytes(world: &mut World) -> u64 {
    world.log(0).stats().dead_bytes
}

#[test]
fn what_was_dropped_goes_when_a_start_would_know_it() {
    let mut world = prepared(&MemoryDisk::new());
    world.work().unwrap();
    assert!(dead_bytes(&mut world) > 0, "the note is not durable");
    world.sync_all().unwrap();
    assert_eq!(world.log(0).last_note(group(0)).unwrap().commit, EntryIndex::new(9));
    world.work().unwrap();
    assert_eq!(dead_bytes(&mut world), 0);
}

#[test]
fn a_start_that_does_not_know_it_has_the_bytes() {
    let mut world = prepared(&MemoryDisk::new());
    world.work().unwrap();
    let world = world.reopen(1, "after the crash");
    assert_eq!(world.shards[0].committed_index(group(0)), EntryIndex::new(8));
    world.check("the stream is there");
}

#[test]
fn a_replica_that_is_not_wanted_keeps_nothing_and_takes_a_snapshot_later() {
    let disk = MemoryDisk::new();
    let mut world = prepared(&disk);
    // Nobody commits these.
    world.append(0, 10, logged(3)).unwrap();
    world.sync_all().unwrap();
    world.log(0).empty(group(0), Term::new(2), b"header".to_vec()).unwrap();
    while let Some(job) = world.shards[0].poll_work() {
        assert!(world.shards[0].handle_work(job.run()).error.is_none());
    }
    for _ in 0..2 {
        let log = world.log(0);
        assert_eq!(log.applied_index(group(0)), EntryIndex::new(10));
        assert_eq!((log.last_index(group(0)).get(), log.first_index(group(0))), (10, None));
        assert_eq!((log.stats().chunks, log.stats().hot_bytes), (0, 0));
        assert_eq!(log.last_note(group(0)).unwrap().term, Term::new(2));
        drop(world);
        world = World::new(&disk, 1);
        assert_eq!(world.report.damage_count, 0);
    }
}
