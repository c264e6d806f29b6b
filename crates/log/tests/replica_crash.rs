//! Replicated groups under crashes: a batch of entries and notes is whole or gone, and nothing superseded comes back.

use crate::support;
use crate::support::Broken;
use crate::support::replicas::{GROUPS, Logged, World, group};
use env::{MemoryDisk, Random, SeededRandom};
use model::{EntryIndex, Term};
use thalweg_log::{NewEntry, Note, Purpose, ReplicaError};

const ROUNDS: u64 = 6;
const OPERATIONS: u64 = 100;

/// The group that has one voter for good: it shares batches with the others.
const SOLO: u16 = 2;

fn logged(random: &mut SeededRandom, term: u64) -> Logged {
    let long = random.below(12) == 0;
    let mut data = vec![0; 1 + random.below(if long { 6000 } else { 200 }) as usize];
    random.fill(&mut data);
    let command = vec![7; random.below(3) as usize * 4];
    Logged { term, stream: 1 + random.below(4), command, data }
}

fn note(world: &World, of: u16) -> Note {
    world.open[&of].note.expect("a replicated group has one")
}

/// A later term, a vote, or a commit that is remembered.
fn note_something(world: &mut World, random: &mut SeededRandom, of: u16) -> Result<(), Broken> {
    let Note { term, vote, .. } = note(world, of);
    let commit = EntryIndex::new(world.committed[&of]);
    let note = match random.below(3) {
        0 => Note { term: Term::new(term.get() + 1), vote: random.below(5), commit },
        1 => Note { term: Term::new(term.get() + 1), vote: 0, commit },
        _ => Note { term, vote, commit },
    };
    world.note(of, note)
}

/// Entries of some term, behind the last one or in the place of some that are not committed.
fn append_some(world: &mut World, random: &mut SeededRandom, of: u16) -> Result<(), Broken> {
    let (last, committed) = (world.open[&of].last(), world.committed[&of]);
    let first = match random.below(3) {
        0 => committed + 1 + random.below(last + 1 - committed),
        _ => last + 1,
    };
    let lowest = world.open[&of].term_of(first - 1).max(1);
    let highest = note(world, of).term.get().max(lowest);
    // An older leader's entries may come back: the term of a superseded entry is no bound.
    let mut term = lowest + random.below(highest + 1 - lowest);
    for index in first..=first + random.below(3) {
        world.append(of, index, logged(random, term))?;
        term = term.max(lowest + random.below(highest + 1 - lowest));
    }
    Ok(())
}

fn one_operation(world: &mut World, random: &mut SeededRandom) -> Result<(), Broken> {
    let of = random.below(u64::from(GROUPS)) as u16;
    let shard = usize::from(of) % world.shards.len();
    match random.below(24) {
        0 => world.checkpoint(of),
        1..=3 => world.work()?,
        4..=7 => _ = world.sync(shard)?,
        8 => world.close_batch(shard),
        9..=11 if world.is_replicated(of) => note_something(world, random, of)?,
        12..=14 if world.is_replicated(of) => {
            let (committed, most) = (world.committed[&of], world.committable(of));
            if most > committed {
                world.commit(of, committed + 1 + random.below(most - committed))?;
            }
        }
        _ if world.is_replicated(of) => append_some(world, random, of)?,
        _ => {
            let next = world.open[&of].last() + 1;
            world.append(of, next, logged(random, 1))?;
        }
    }
    if random.below(30) == 0 && !world.is_replicated(of) && of != SOLO {
        world.sync_all()?;
        let commit = EntryIndex::new(0);
        world.replicate(of, Note { term: Term::new(2), vote: 1 + random.below(3), commit })?;
    }
    if random.below(10) == 0 && !world.disk.is_off() {
        world.check("in life");
        refuses(world, random, of);
    }
    Ok(())
}

/// What the log must not take.
fn refuses(world: &mut World, random: &mut SeededRandom, of: u16) {
    let (last, committed) = (world.open[&of].last(), world.committed[&of]);
    let is_replicated = world.is_replicated(of);
    let term = |index: u64| Term::new(world.open[&of].term_of(index));
    let (of_last, high) = (term(last), Term::new(1000));
    let mut offer = |index: u64, term: Term| {
        let entry = NewEntry {
            group: group(of),
            term,
            subject: model::EntrySubject::new(1),
            at: model::Timestamp::new(1),
            kind: 1,
            command: &[],
            data: &[],
        };
        world.log(of).append_entry(Purpose::Data, EntryIndex::new(index), entry)
    };
    if !is_replicated {
        assert_eq!(offer(last + 1, high), Err(ReplicaError::NotReplicated));
        return;
    }
    let gap = Err(ReplicaError::Gap { last: EntryIndex::new(last) });
    assert_eq!(offer(last + 2 + random.below(3), high), gap);
    if committed > 0 {
        let refused = Err(ReplicaError::Committed { committed: EntryIndex::new(committed) });
        assert_eq!(offer(1 + random.below(committed), high), refused);
    }
    if of_last.get() > 0 {
        let falls = Err(ReplicaError::TermFalls { before: of_last });
        assert_eq!(offer(last + 1, Term::new(of_last.get() - 1)), falls);
    }
    let beyond = EntryIndex::new(last + 1);
    let refused = Err(ReplicaError::CommitBehindTheEnd { last: EntryIndex::new(last) });
    assert_eq!(world.log(of).commit(group(of), beyond), refused);
    let Note { term, vote, .. } = world.open[&of].note.unwrap();
    assert_eq!(world.log(of).note(group(of), Note { term, vote, commit: beyond }), refused);
    let older = Note { term: Term::new(term.get() - 1), vote, commit: EntryIndex::new(0) };
    let falls = Err(ReplicaError::TermFalls { before: term });
    assert_eq!(world.log(of).note(group(of), older), falls);
}

/// Ends the process somehow.
fn end(world: &mut World, random: &mut SeededRandom) {
    if random.below(3) == 0 {
        world.sync_unheard(random.below(world.shards.len() as u64) as usize);
    }
    if random.below(4) == 0 { world.disk.kill_process() } else { world.disk.crash(random) }
}

/// Opens after some openings that crash themselves.
fn reopen(world: World, random: &mut SeededRandom, place: &str) -> World {
    for _ in 0..random.below(3) {
        world.disk.power_off_after(random.below(60));
        let options = support::replicas::options();
        let dir = support::data_dir(&world.disk, options);
        let mut machine = support::Machine::default();
        let _ = dir.map(|dir| thalweg_log::open(dir, 1 + random.below(4) as u16, &mut machine));
        world.disk.crash(random);
    }
    world.reopen(1 + random.below(4) as u16, place)
}

fn run(seed: u64) {
    let mut random = SeededRandom::new(seed);
    let disk = MemoryDisk::new();
    if seed % 4 == 1 {
        disk.shear_sectors();
    }
    let mut world = World::new(&disk, 2);
    for round in 0..ROUNDS {
        match random.below(3) {
            0 => disk.fail_next_sync(1 + random.below(30)),
            _ => disk.power_off_after(random.below(400)),
        }
        for _ in 0..OPERATIONS {
            if one_operation(&mut world, &mut random).is_err() {
                break;
            }
        }
        end(&mut world, &mut random);
        disk.fail_nothing();
        world = reopen(world, &mut random, &format!("seed {seed}, round {round}"));
    }
}

#[test]
fn a_batch_of_entries_and_notes_is_whole_or_gone_after_every_crash() {
    for seed in 0..300 {
        run(seed);
    }
}
