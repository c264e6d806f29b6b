//! Entries that another replica may need stay while there is room for them, and no longer.

use crate::support;
use crate::support::replicas::{Logged, World, group};
use env::MemoryDisk;
use model::{EntryIndex, EntrySubject, Term, Timestamp};
use thalweg_log::{NewEntry, Note, Purpose, ReplicaError};

fn world() -> World {
    let mut world = World::new(&MemoryDisk::new(), 1);
    let note = Note { term: Term::new(1), vote: 1, commit: EntryIndex::new(0) };
    world.replicate(0, note).unwrap();
    world
}

/// Appends so many entries of 3000 bytes, each of which takes a block, and checkpoints them.
fn grow(world: &mut World, count: u64) {
    for _ in 0..count {
        let next = world.open[&0].last() + 1;
        let entry = Logged { term: 1, stream: 1, command: Vec::new(), data: vec![7; 3000] };
        world.append(0, next, entry).unwrap();
        world.sync_all().unwrap();
        world.commit(0, next).unwrap();
        world.work().unwrap();
    }
    world.checkpoint(0);
    world.work().unwrap();
    world.check("grown");
}

fn first(world: &World) -> u64 {
    world.shards[0].first_index(group(0)).map_or(u64::MAX, EntryIndex::get)
}

#[test]
fn entries_are_kept_for_a_replica_that_is_away_up_to_half_of_the_bound() {
    let mut without = world();
    grow(&mut without, 24);
    assert!(first(&without) > 5, "{}", first(&without));
    let mut kept = world();
    kept.log(0).keep_from(group(0), Some(EntryIndex::new(5))).unwrap();
    grow(&mut kept, 24);
    assert!(first(&kept) <= 5, "{}", first(&kept));
    // It is no longer away.
    kept.log(0).keep_from(group(0), None).unwrap();
    kept.work().unwrap();
    assert!(first(&kept) > 5, "{}", first(&kept));
    // The bound is 256 KiB, and the log never waits for a replica.
    kept.log(0).keep_from(group(0), Some(EntryIndex::new(20))).unwrap();
    grow(&mut kept, 100);
    assert!(first(&kept) > 20, "{}", first(&kept));
    assert!(kept.shards[0].stats().wal_bytes <= 256 << 10);
}

#[test]
fn a_group_with_one_voter_keeps_nothing_for_others() {
    let mut world = world();
    let refused = world.log(1).keep_from(group(1), Some(EntryIndex::new(1)));
    assert_eq!(refused, Err(ReplicaError::NotReplicated));
}

#[test]
fn a_log_whose_bound_is_taken_by_entries_that_are_not_committed_takes_what_commits_them() {
    let mut world = world();
    let count = 200;
    for index in 1..=count {
        let logged = Logged { term: 1, stream: 1, command: Vec::new(), data: vec![7; 3000] };
        // Jobs alone must make room: nobody commits anything.
        let is_taken = (0..100).any(|_| {
            world.sync_all().unwrap();
            world.work().unwrap();
            take(&mut world, index, &logged.data)
        });
        assert!(is_taken, "entry {index} is refused for ever");
        world.open.get_mut(&0).unwrap().entries.push(logged);
    }
    world.sync_all().unwrap();
    assert!(world.shards[0].stats().wal_bytes > 256 << 10, "the bound is passed");
    world.commit(0, count).unwrap();
    world.checkpoint(0);
    world.work().unwrap();
    world.check("all is committed");
    grow(&mut world, 24);
    assert!(world.shards[0].stats().wal_bytes <= 256 << 10, "the bound holds again");
}

/// Appends without anything that makes room; whether the log has taken it.
fn take(world: &mut World, index: u64, data: &[u8]) -> bool {
    let entry = NewEntry {
        group: group(0),
        term: Term::new(1),
        subject: EntrySubject::new(1),
        at: Timestamp::new(1_700_000_000_000),
        kind: support::APPEND,
        command: &[],
        data,
    };
    world.log(0).append_entry(Purpose::Data, EntryIndex::new(index), entry).is_ok()
}
