//! What a replica gives to another one: all that the other one lacks, once, and nothing else.

use crate::support::replicas::{Logged, World, group};
use crate::support::snapshots::{ends, export};
use crate::support::{files, flip_two};
use env::{Disk, MemoryDisk, Random, SeededRandom};
use model::{ByteOffset, EntryIndex, StreamId, Term};
use thalweg_log::{Export, ExportError, Note, Tails, check_chunk};

/// A group with one voter's entries first, and some of a replicated one.
fn replicated(disk: &MemoryDisk) -> World {
    let mut world = World::new(disk, 2);
    let note = Note { term: Term::new(1), vote: 1, commit: EntryIndex::new(0) };
    world.replicate(0, note).unwrap();
    world
}

/// Appends to four streams, and commits them.
fn grow(world: &mut World, random: &mut SeededRandom, count: u64) {
    for _ in 0..count {
        let mut data = vec![0; 1 + random.below(700) as usize];
        random.fill(&mut data);
        let entry = Logged { term: 1, stream: 1 + random.below(4), command: Vec::new(), data };
        push(world, entry);
    }
}

fn push(world: &mut World, entry: Logged) {
    let next = world.open[&0].last() + 1;
    world.append(0, next, entry).unwrap();
    world.sync_all().unwrap();
    world.commit(0, next).unwrap();
    world.work().unwrap();
}

/// A checkpoint of all that is applied.
fn checkpoint(world: &mut World) {
    world.checkpoint(0);
    world.work().unwrap();
}

/// The bytes that its chunks hold, all intact.
fn data_bytes(world: &World, export: &Export) -> u64 {
    let chunks = export.files()[1..].iter().map(|file| {
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let check = check_chunk(&bytes, world.report.lineage).unwrap();
        // The second copies of pages go as they are.
        assert_eq!((check.lost_pages, check.damaged_runs), Default::default());
        check.intact_bytes
    });
    chunks.sum()
}

fn kept_bytes(world: &World, upto: u64) -> u64 {
    let contents = world.open[&0].contents(upto).into_values();
    let kept = contents.filter(|content| !content.is_deleted);
    kept.map(|content| content.bytes.len() as u64 - content.head).sum()
}

#[test]
fn a_replica_with_nothing_gets_everything_up_to_the_checkpoint_and_nothing_behind() {
    for seed in 0..8 {
        let mut random = SeededRandom::new(seed);
        let mut world = replicated(&MemoryDisk::new());
        grow(&mut world, &mut random, 60);
        checkpoint(&mut world);
        let index = world.open[&0].last();
        // Later entries are sealed beside the others.
        let count = random.below(40);
        grow(&mut world, &mut random, count);
        let newest = world.log(0).export(group(0), Tails::default(), ends).unwrap().run().unwrap();
        let head = &newest.head;
        assert!(head.index.get() >= index, "the newest checkpoint");
        assert_eq!(head.term, Term::new(1));
        assert_eq!(head.checkpoint_bytes, newest.files()[0].bytes());
        let chunk_bytes: Vec<u64> = newest.files()[1..].iter().map(|file| file.bytes()).collect();
        assert_eq!(head.chunk_bytes, chunk_bytes);
        assert_eq!(data_bytes(&world, &newest), kept_bytes(&world, head.index.get()));
    }
}

#[test]
fn a_replica_with_a_prefix_gets_what_lies_behind_it() {
    for seed in 0..8 {
        let mut random = SeededRandom::new(seed);
        let mut world = replicated(&MemoryDisk::new());
        let count = 10 + random.below(50);
        grow(&mut world, &mut random, count);
        checkpoint(&mut world);
        // What another replica with the same entries has said.
        let have = world.log(0).tails(group(0)).run().unwrap();
        let had = kept_bytes(&world, have.sealed.get());
        let count = 1 + random.below(60);
        grow(&mut world, &mut random, count);
        checkpoint(&mut world);
        let export = export(&mut world, 0, have).unwrap();
        let now = kept_bytes(&world, export.head.index.get());
        assert_eq!(data_bytes(&world, &export), now - had, "seed {seed}");
    }
}

#[test]
fn what_is_trimmed_or_deleted_is_not_sent() {
    let mut random = SeededRandom::new(3);
    let mut world = replicated(&MemoryDisk::new());
    grow(&mut world, &mut random, 60);
    push(&mut world, Logged::delete(1, 2));
    push(&mut world, Logged::trim(1, 3, 1000));
    checkpoint(&mut world);
    let at = world.open[&0].last();
    let first = export(&mut world, 0, Tails::default()).unwrap();
    // A chunk of which more than half is alive goes as it is, and an append with a floor in it as a whole.
    let (sent, kept) = (data_bytes(&world, &first), kept_bytes(&world, at));
    assert!((kept..2 * kept + 700).contains(&sent), "{sent} of {kept}");
    assert_eq!((first.head.trimmed, first.gone), Default::default());
    // What was trimmed behind the checkpoint is listed, for its rows still name it.
    push(&mut world, Logged::trim(1, 3, 3000));
    push(&mut world, Logged::delete(1, 4));
    // That they are committed is durable now, so chunks without them take the place of those before.
    world.sync_all().unwrap();
    while let Some(job) = world.shards[0].poll_work() {
        assert!(world.shards[0].handle_work(job.run()).error.is_none());
    }
    let later = export(&mut world, 0, Tails::default()).unwrap();
    assert_eq!(later.head.index.get(), at);
    let tail = world.open[&0].contents(at)[&4].bytes.len() as u64;
    let trimmed: Vec<_> =
        later.head.trimmed.iter().map(|(stream, at)| (stream.get(), at.get())).collect();
    assert_eq!(trimmed, [(3, 3000), (4, tail)]);
    // No chunk has a row of it, so the log has forgotten why. The owner knows.
    assert_eq!(later.gone, [(StreamId::new(4), ByteOffset::new(tail))]);
    let kept = kept_bytes(&world, world.open[&0].last());
    let sent = data_bytes(&world, &later);
    assert!((kept..2 * kept + 700).contains(&sent), "{sent} of {kept}");
}

#[test]
fn an_export_outlives_what_it_was_made_of() {
    let mut random = SeededRandom::new(5);
    let disk = MemoryDisk::new();
    let mut world = replicated(&disk);
    grow(&mut world, &mut random, 60);
    checkpoint(&mut world);
    let job = world.log(0).export(group(0), Tails::default(), ends).unwrap();
    let export = job.run().unwrap();
    let before = data_bytes(&world, &export);
    assert_eq!(before, kept_bytes(&world, export.head.index.get()));
    let names = disk.paths();
    assert!(names.iter().all(|name| !name.to_str().unwrap().contains("export")));
    grow(&mut world, &mut random, 300);
    checkpoint(&mut world);
    assert!(files(&disk, "chunk").iter().any(|name| !names.contains(name)));
    assert_eq!(data_bytes(&world, &export), before);
}

#[test]
fn a_job_whose_checkpoint_was_replaced_says_so() {
    let mut random = SeededRandom::new(6);
    let mut world = replicated(&MemoryDisk::new());
    let none = world.log(0).export(group(0), Tails::default(), ends);
    assert!(matches!(none, Err(ExportError::NoCheckpoint)));
    let solo = world.log(1).export(group(1), Tails::default(), ends);
    assert!(matches!(solo, Err(ExportError::NotReplicated)));
    grow(&mut world, &mut random, 20);
    checkpoint(&mut world);
    let job = world.log(0).export(group(0), Tails::default(), ends).unwrap();
    let at = world.open[&0].last();
    let equal = Tails { sealed: EntryIndex::new(at), ..Tails::default() };
    let known = world.log(0).export(group(0), equal, ends);
    assert!(matches!(known, Err(ExportError::NoCheckpoint)));
    grow(&mut world, &mut random, 1);
    checkpoint(&mut world);
    assert!(matches!(job.run(), Err(ExportError::Replaced)));
}

/// A block that was found intact by a read is not compared again by the next one. An export gives its bytes new checksums.
#[test]
fn what_has_changed_since_it_was_read_is_never_sent() {
    let mut random = SeededRandom::new(8);
    let disk = MemoryDisk::new();
    let mut world = replicated(&disk);
    grow(&mut world, &mut random, 60);
    checkpoint(&mut world);
    world.check("every block is read");
    let chunk = &files(&disk, "chunk")[0];
    // Behind its header, in the data of the first append.
    disk.flip_bit(chunk, (4096 + 20) * 8);
    for have in [Tails::default(), Tails { sealed: EntryIndex::new(1), ..Tails::default() }] {
        let sent = export(&mut world, 0, have);
        assert!(matches!(sent, Err(ExportError::Damaged { .. })), "{sent:?}");
    }
}

#[test]
fn damage_is_never_sent() {
    let mut random = SeededRandom::new(7);
    let disk = MemoryDisk::new();
    let mut world = replicated(&disk);
    grow(&mut world, &mut random, 60);
    checkpoint(&mut world);
    let kept = kept_bytes(&world, world.open[&0].last());
    let parts = [files(&disk, "chunk"), files(&disk, "ckpt")].concat();
    let mut refused = 0;
    for path in parts {
        let length = disk.open(&path).unwrap().len().unwrap();
        for _ in 0..40 {
            let at = random.below(length);
            flip_two(&disk, &path, at);
            // A new opening has nothing in memory that was checked before.
            let shut = world;
            (world, _) = shut.reopen_damaged(2);
            match export(&mut world, 0, Tails::default()) {
                Ok(export) => {
                    assert_eq!(data_bytes(&world, &export), kept, "{} at {at}", path.display())
                }
                Err(error) => {
                    refused += 1;
                    let is_known =
                        matches!(error, ExportError::Damaged { .. } | ExportError::NoCheckpoint);
                    assert!(is_known, "{error}");
                }
            }
            flip_two(&disk, &path, at);
        }
    }
    assert!(refused > 10, "{refused}");
}
