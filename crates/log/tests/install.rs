//! A snapshot takes the place of a group's log: as a whole or not at all, whatever was there and whenever the power goes.

use crate::support;
use crate::support::replicas::{Log, Logged, World, group};
use crate::support::snapshots::{
    NotInstalled, begin, end_install, ends, export, install, receive, run_install,
};
use crate::support::{files, flip_two};
use env::{Disk, DiskOperation, MemoryDisk, Random, SeededRandom};
use model::{EntryIndex, Term};
use thalweg_log::{Export, InstallError, NewEntry, Note, Purpose, ReplicaError, Tails};

/// What the receiver has before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Prefix,
    /// Entries behind the prefix that are not those of the sender: some up to the snapshot's end, or beyond.
    Superseded {
        more: u64,
    },
}

const ALL: [Before; 4] = [
    Before::Nothing,
    Before::Prefix,
    Before::Superseded { more: 5 },
    Before::Superseded { more: 70 },
];

/// Entries that both have, and all of the sender.
const COMMON: u64 = 25;
const LAST: u64 = 60;

fn note(world: &mut World, term: u64, vote: u64) {
    let note = Note { term: Term::new(term), vote, commit: EntryIndex::new(0) };
    if world.is_replicated(0) {
        world.note(0, note).unwrap();
    } else {
        world.replicate(0, note).unwrap();
    }
}

fn logged(random: &mut SeededRandom, term: u64) -> Logged {
    let mut data = vec![0; 1 + random.below(600) as usize];
    random.fill(&mut data);
    Logged { term, stream: 1 + random.below(5), command: Vec::new(), data }
}

fn push(world: &mut World, entry: Logged, is_committed: bool) {
    let next = world.open[&0].last() + 1;
    world.append(0, next, entry).unwrap();
    world.sync_all().unwrap();
    if is_committed {
        world.commit(0, next).unwrap();
    }
    world.work().unwrap();
}

/// A sender with a checkpoint, and some entries behind it.
fn sender() -> World {
    let mut random = SeededRandom::new(1);
    let mut world = World::new(&MemoryDisk::new(), 2);
    note(&mut world, 3, 1);
    for index in 1..=LAST {
        let term = if index <= COMMON { 1 } else { 3 };
        let entry = match index {
            20 => Logged::trim(term, 1, 300),
            23 | 50 => Logged::delete(term, index / 10),
            40 => Logged::trim(term, 1, 900),
            _ => logged(&mut random, term),
        };
        push(&mut world, entry, true);
    }
    world.checkpoint(0);
    world.work().unwrap();
    for _ in 0..5 {
        push(&mut world, logged(&mut random, 3), true);
    }
    world
}

fn receiver(sender: &World, disk: &MemoryDisk, before: Before) -> World {
    let mut world = World::joining(disk, 2, sender.report.lineage);
    note(&mut world, 2, 3);
    if before == Before::Nothing {
        world.sync_all().unwrap();
        return world;
    }
    for entry in &sender.open[&0].entries[..COMMON as usize] {
        push(&mut world, entry.clone(), true);
    }
    world.checkpoint(0);
    world.work().unwrap();
    // Another group shares its files.
    let mut random = SeededRandom::new(2);
    for index in 1..=6 {
        world.append(2, index, logged(&mut random, 1)).unwrap();
    }
    if let Before::Superseded { more } = before {
        // All in one batch: what is not committed keeps its segment.
        for next in COMMON + 1..=COMMON + more {
            let entry = logged(&mut random, 2);
            let data = entry.data[..entry.data.len().min(20)].to_vec();
            world.append(0, next, Logged { data, ..entry }).unwrap();
        }
        assert_eq!(world.committed[&0], COMMON);
    }
    world.sync_all().unwrap();
    world
}

/// What the sender gives to this receiver.
fn export_for(sender: &mut World, receiver: &mut World) -> Export {
    let have = receiver.log(0).tails(group(0)).run().unwrap();
    export(sender, 0, have).unwrap()
}

/// The receiver takes the sender's next entries from its log.
fn follow(receiver: &mut World, sender: &World) {
    let from = receiver.open[&0].last() as usize;
    for entry in sender.open[&0].entries[from..].iter().cloned() {
        push(receiver, entry, true);
    }
}

#[test]
fn what_was_there_does_not_matter_and_the_log_goes_on_behind_the_snapshot() {
    for before in ALL {
        for shards in [1, 2, 3] {
            let mut sender = sender();
            let mut receiver = receiver(&sender, &MemoryDisk::new(), before);
            let export = export_for(&mut sender, &mut receiver);
            let from = sender.open[&0].clone();
            install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
            receiver.check("installed");
            // What is behind it has the index of what was there, and survives alone.
            let mut random = SeededRandom::new(3);
            for _ in 0..3 {
                push(&mut sender, logged(&mut random, 3), true);
            }
            follow(&mut receiver, &sender);
            receiver.check("went on");
            receiver.sync_all().unwrap();
            receiver.disk.crash(&mut random);
            let mut receiver = receiver.reopen(shards, "went on and crashed");
            for _ in 0..40 {
                push(&mut sender, logged(&mut random, 4), true);
            }
            follow(&mut receiver, &sender);
            receiver.checkpoint(0);
            receiver.work().unwrap();
            receiver.check("much later");
            let receiver = receiver.reopen(2, "much later");
            assert_eq!(receiver.open[&0].entries, sender.open[&0].entries);
        }
    }
}

#[test]
fn a_replica_with_a_prefix_gets_less() {
    let mut sender = sender();
    let bytes = |export: &Export| export.head.chunk_bytes.iter().sum::<u64>();
    let all = bytes(&export(&mut sender, 0, Tails::default()).unwrap());
    let mut receiver = receiver(&sender, &MemoryDisk::new(), Before::Prefix);
    let rest = bytes(&export_for(&mut sender, &mut receiver));
    assert!(rest * 8 < all * 7, "{rest} of {all}");
}

/// Lets the power fail with each change of the disk in turn. Behind each the receiver has all or nothing of the snapshot.
fn crash_everywhere(before: Before, ends_process: bool) {
    let mut sender = sender();
    let from = sender.open[&0].clone();
    let (mut old, mut new) = (0, 0);
    for changes in 0.. {
        let place = format!("{before:?}, {changes} changes");
        let disk = MemoryDisk::new();
        let mut receiver = receiver(&sender, &disk, before);
        let export = export_for(&mut sender, &mut receiver);
        disk.power_off_after(changes);
        let installed = install(&mut receiver, (0, &from), &export, |_| ());
        let is_done = !disk.is_off();
        assert!(installed.is_ok() || !is_done, "{place}");
        let mut random = SeededRandom::new(changes);
        if ends_process {
            disk.kill_process()
        } else {
            disk.crash(&mut random)
        }
        // The start may be cut as well.
        if changes % 3 == 1 {
            disk.power_off_after(random.below(40));
            let options = thalweg_log::LogOptions {
                lineage: Some(sender.report.lineage),
                ..support::replicas::options()
            };
            let mut machine = support::Machine::default();
            let dir = support::data_dir(&disk, options);
            let _ = dir.map(|dir| thalweg_log::open(dir, 2, &mut machine));
            disk.crash(&mut random);
        }
        let mut receiver = receiver.reopen(1 + random.below(3) as u16, &place);
        let at = export.head.index.get();
        if receiver.open[&0].entries == from.entries[..at as usize] {
            new += 1;
        } else {
            old += 1;
            let export = export_for(&mut sender, &mut receiver);
            install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
        }
        follow(&mut receiver, &sender);
        receiver.check(&place);
        let left = files(&disk, "received").len();
        assert_eq!(left, 0, "{place}");
        if is_done {
            break;
        }
    }
    assert!(old > 10 && new > 3, "{old} and {new}");
}

#[test]
fn power_may_fail_at_any_moment() {
    ALL.into_iter().for_each(|before| crash_everywhere(before, false));
}

#[test]
fn the_process_may_end_at_any_moment() {
    crash_everywhere(Before::Superseded { more: 70 }, true);
}

#[test]
fn a_bit_that_flips_on_the_way_changes_nothing_here() {
    let mut sender = sender();
    let from = sender.open[&0].clone();
    let mut random = SeededRandom::new(9);
    let mut refused = 0;
    for _ in 0..150 {
        let mut receiver = receiver(&sender, &MemoryDisk::new(), Before::Superseded { more: 5 });
        let export = export_for(&mut sender, &mut receiver);
        let meddle = |world: &World| {
            let names = world.disk.paths();
            let is_part = |name: &&std::path::PathBuf| {
                let extension = name.extension().and_then(|it| it.to_str()).unwrap_or_default();
                extension == "received" || extension == "0001"
            };
            let parts: Vec<_> = names.iter().filter(is_part).collect();
            assert_eq!(parts.len(), export.files().len());
            let part = parts[random.below(parts.len() as u64) as usize];
            let length = world.disk.open(part).unwrap().len().unwrap();
            flip_two(&world.disk, part, random.below(length));
        };
        match install(&mut receiver, (0, &from), &export, meddle) {
            // The other copy of a page, or padding.
            Ok(()) => {}
            Err(NotInstalled::Refused(
                InstallError::Damaged { .. } | InstallError::Missing { .. },
            )) => {
                refused += 1;
                receiver.check("refused");
                let next = receiver.open[&0].last() + 1;
                receiver.append(0, next, logged(&mut random, 2)).unwrap();
            }
            Err(other) => panic!("{other:?}"),
        }
        receiver.sync_all().unwrap();
        receiver.check("after damage");
        receiver.reopen(2, "after damage");
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn a_snapshot_without_its_last_chunk_is_refused() {
    let mut sender = sender();
    let from = sender.open[&0].clone();
    for before in ALL {
        let mut receiver = receiver(&sender, &MemoryDisk::new(), before);
        let mut export = export_for(&mut sender, &mut receiver);
        export.head.chunk_bytes.pop();
        let begun = receiver.log(0).begin_install(export.head.clone()).unwrap();
        begun.prepare().unwrap();
        for (number, file) in export.files().iter().enumerate().take(export.files().len() - 1) {
            let mut bytes = vec![0; file.bytes() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            let mut to = begun.create(number).unwrap();
            to.write(&bytes).unwrap();
            assert!(to.write(b"more").is_err());
            to.finish().unwrap();
        }
        receiver.log(0).finish_install(begun, ends).unwrap();
        let mut installed = None;
        while let Some(job) = receiver.log(0).poll_work() {
            installed = receiver.log(0).handle_work(job.run()).installed.or(installed);
        }
        let Some(Err((_, InstallError::Missing { .. }))) = installed else {
            panic!("{installed:?}");
        };
        receiver.check("refused");
        let export = export_for(&mut sender, &mut receiver);
        install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
        receiver.check("then whole");
    }
}

/// A receiver of which the next operation of some kind fails while it installs.
fn fails(sender: &mut World, what: Option<DiskOperation>, skip: u64, is_crash: bool) -> bool {
    let place = format!("{what:?}, {skip}, {is_crash}");
    let from = sender.open[&0].clone();
    let disk = MemoryDisk::new();
    let mut receiver = receiver(sender, &disk, Before::Superseded { more: 70 });
    let export = export_for(sender, &mut receiver);
    begin(&mut receiver, (0, &from), &export, |_| ()).unwrap();
    match what {
        Some(operation) => disk.fail(operation, skip, 1),
        None => disk.fail_next_sync(1 + skip),
    }
    let mut installed = run_install(&mut receiver, 0);
    let has_failed = installed.is_err();
    disk.fail_nothing();
    let mut random = SeededRandom::new(skip);
    if has_failed && is_crash {
        disk.crash(&mut random);
        receiver.reopen(2, &place);
        return true;
    }
    if has_failed {
        // It may have been committed, so there is no way back.
        let at = EntryIndex::new(receiver.committed[&0]);
        assert_eq!(receiver.log(0).commit(group(0), at), Err(ReplicaError::Installing));
        installed = run_install(&mut receiver, 0);
    }
    match end_install(&mut receiver, 0, installed.unwrap()) {
        Ok(()) => {}
        // Before that it is refused, and the group is as it was.
        Err(NotInstalled::Refused(InstallError::Io(_) | InstallError::Damaged { .. })) => {
            receiver.check(&place);
            let export = export_for(sender, &mut receiver);
            install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
        }
        Err(other) => panic!("{place}: {other:?}"),
    }
    receiver.check(&place);
    receiver.sync_all().unwrap();
    disk.crash(&mut random);
    receiver.reopen(2, &place);
    has_failed
}

#[test]
fn an_operation_that_fails_is_repeated_once_the_snapshot_may_be_committed() {
    let mut sender = sender();
    let mut failed = 0;
    for what in [DiskOperation::Open, DiskOperation::Rename, DiskOperation::SyncDir].map(Some) {
        for skip in 0..20 {
            failed += u32::from(fails(&mut sender, what, skip, skip % 2 == 1));
            failed += u32::from(fails(&mut sender, what, skip, skip % 2 == 0));
        }
    }
    // There is one sync of a file: that of the checkpoint.
    for is_crash in [false, true] {
        failed += u32::from(fails(&mut sender, None, 0, is_crash));
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn a_stream_that_the_snapshot_does_not_have_is_gone() {
    let mut sender = sender();
    let from = sender.open[&0].clone();
    let mut receiver = World::joining(&MemoryDisk::new(), 2, sender.report.lineage);
    note(&mut receiver, 2, 3);
    let entry = Logged { term: 1, stream: 9, command: Vec::new(), data: vec![9; 5000] };
    push(&mut receiver, entry, true);
    receiver.checkpoint(0);
    receiver.work().unwrap();
    let read = |world: &World| {
        let found = world.shards[0].read(support::key(0, 9), model::ByteOffset::ZERO, 100);
        found.map(|slice| slice.len())
    };
    assert_eq!(read(&receiver).unwrap(), 100);
    let export = export_for(&mut sender, &mut receiver);
    install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
    assert!(read(&receiver).is_err());
    // Its room comes back.
    let before = receiver.shards[0].stats().chunk_bytes;
    receiver.work().unwrap();
    let after = receiver.shards[0].stats().chunk_bytes;
    assert!(after + 5000 <= before, "{after} of {before}");
    receiver.check("without it");
    receiver.reopen(2, "without it");
}

#[test]
fn damage_of_the_last_batch_before_a_snapshot_is_no_torn_tail() {
    let mut sender = sender();
    let from = sender.open[&0].clone();
    let disk = MemoryDisk::new();
    let mut receiver = receiver(&sender, &disk, Before::Superseded { more: 70 });
    // All indexes of the group in the last batch lie behind the snapshot.
    let mut random = SeededRandom::new(8);
    for of in [0, 2] {
        let next = receiver.open[&of].last() + 1;
        receiver.append(of, next, logged(&mut random, 2)).unwrap();
    }
    receiver.sync_all().unwrap();
    let export = export_for(&mut sender, &mut receiver);
    install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
    // The data of the last entry of another group, which was acknowledged.
    let data = receiver.open[&2].entries.last().unwrap().data.clone();
    let holds = |path: &std::path::PathBuf| {
        let mut bytes = vec![0; disk.open(path).unwrap().len().unwrap() as usize];
        disk.open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        let found = bytes.windows(data.len()).position(|window| window == data);
        found.map(|at| (path.clone(), at as u64))
    };
    let (path, at) = files(&disk, "wal").iter().find_map(holds).unwrap();
    flip_two(&disk, &path, at);
    let (world, _) = receiver.reopen_damaged(2);
    assert_eq!(world.report.torn_tails, []);
    assert_eq!(world.machine.kinds(), [thalweg_log::DamageKind::EntryData]);
}

#[test]
fn a_group_takes_nothing_while_a_snapshot_takes_its_place() {
    let mut sender = sender();
    let mut receiver = receiver(&sender, &MemoryDisk::new(), Before::Prefix);
    let export = export_for(&mut sender, &mut receiver);
    let log = receiver.log(0);
    let begun = log.begin_install(export.head.clone()).unwrap();
    assert!(matches!(log.begin_install(export.head.clone()), Err(InstallError::Busy)));
    // It lives on while the files come.
    let next = receiver.open[&0].last() + 1;
    let mut random = SeededRandom::new(4);
    receiver.append(0, next, logged(&mut random, 2)).unwrap();
    receive(&begun, &export).unwrap();
    let log = receiver.log(0);
    let (begun, error) = *log.finish_install(begun, ends).unwrap_err();
    assert!(matches!(error, InstallError::Unsynced));
    receiver.sync_all().unwrap();
    let log = receiver.log(0);
    log.finish_install(begun, ends).unwrap();
    let entry = NewEntry {
        group: group(0),
        term: Term::new(2),
        subject: model::EntrySubject::new(1),
        at: model::Timestamp::new(1),
        kind: 1,
        command: &[],
        data: &[],
    };
    let at = EntryIndex::new(next + 1);
    let refused = Err(ReplicaError::Installing);
    assert_eq!(log.append_entry(Purpose::Data, at, entry), refused);
    assert_eq!(log.commit(group(0), EntryIndex::new(next)), refused);
}

#[test]
fn a_snapshot_that_is_not_newer_is_refused() {
    let mut sender = sender();
    let mut receiver = receiver(&sender, &MemoryDisk::new(), Before::Prefix);
    let export = export_for(&mut sender, &mut receiver);
    let old = receiver.log(0).begin_install(export.head.clone()).unwrap();
    receive(&old, &export).unwrap();
    follow(&mut receiver, &sender);
    let committed = EntryIndex::new(receiver.committed[&0]);
    let (old, error) = *receiver.log(0).finish_install(old, ends).unwrap_err();
    assert!(matches!(error, InstallError::NotNewer { committed: found } if found == committed));
    receiver.log(0).abort_install(old);
    let refused = receiver.log(0).begin_install(export.head.clone());
    assert!(matches!(refused, Err(InstallError::NotNewer { .. })));
    receiver.check("caught up by itself");
    let receiver = receiver.reopen(2, "caught up by itself");
    assert!(files(&receiver.disk, "received").is_empty());
}

/// An append of so many bytes.
fn append_of(random: &mut SeededRandom, stream: u64, bytes: usize) -> Logged {
    let mut data = vec![0; bytes];
    random.fill(&mut data);
    Logged { term: 1, stream, command: Vec::new(), data }
}

#[test]
fn a_chunk_is_not_replaced_by_one_that_came_and_lacks_what_it_has() {
    let random = &mut SeededRandom::new(5);
    let mut entries = vec![append_of(random, 1, 500)];
    entries.extend((0..14).map(|_| append_of(random, 4, 600)));
    // Most of the chunk is dead, and a merge leaves it out. The log still has it, and a start finds no chunk with it.
    entries.push(Logged::delete(1, 4));
    entries.extend((0..5).map(|_| append_of(random, 1, 300)));
    let mut sender = World::new(&MemoryDisk::new(), 2);
    note(&mut sender, 1, 1);
    let disk = MemoryDisk::new();
    let mut receiver = World::joining(&disk, 2, sender.report.lineage);
    note(&mut receiver, 1, 1);
    for (index, entry) in (1..).zip(&entries) {
        receiver.append(0, index, entry.clone()).unwrap();
        receiver.sync_all().unwrap();
        receiver.commit(0, index).unwrap();
        // Seals and merges, and no checkpoint.
        while let Some(job) = receiver.log(0).poll_work() {
            assert!(receiver.log(0).handle_work(job.run()).error.is_none());
        }
    }
    let sealed = files(&disk, "chunk");
    assert_eq!(sealed.len(), 1, "what was appended first is sealed");
    let mut receiver = receiver.reopen(2, "what is dead is hot again");
    let have = receiver.log(0).tails(group(0)).run().unwrap();
    assert!(have.sealed.get() >= 14, "its chunk names all up to there: {have:?}");
    // The sender seals all of it at once.
    entries.extend((0..10).map(|_| append_of(random, 1, 300)));
    for (index, entry) in (1..).zip(&entries) {
        sender.append(0, index, entry.clone()).unwrap();
        sender.sync_all().unwrap();
        sender.commit(0, index).unwrap();
    }
    sender.checkpoint(0);
    sender.work().unwrap();
    let (from, export) = (sender.open[&0].clone(), export_for(&mut sender, &mut receiver));
    install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
    receiver.check("installed");
    receiver.reopen(2, "behind the snapshot").check("what was not sent again is there");
}

/// One of a history with streams that come and go, beside one that stays.
fn passing(random: &mut SeededRandom, index: u64) -> Logged {
    let passing = 2 + index / 6;
    match random.below(6) {
        0..3 => append_of(random, 1, 200),
        3 => Logged::delete(1, passing - 1),
        _ => append_of(random, passing, 900),
    }
}

/// The receiver takes the sender's entries up to `last` from its log.
fn follow_to(receiver: &mut World, sender: &World, last: u64) {
    let from = receiver.open[&0].last() as usize;
    for entry in sender.open[&0].entries[from..last as usize].iter().cloned() {
        push(receiver, entry, true);
    }
}

#[test]
fn what_is_sealed_and_merged_while_a_snapshot_comes_takes_the_place_of_nothing_that_came() {
    for seed in 0..40 {
        let random = &mut SeededRandom::new(seed);
        let place = format!("seed {seed}");
        let mut sender = World::new(&MemoryDisk::new(), 2);
        note(&mut sender, 1, 1);
        let mut receiver = World::joining(&MemoryDisk::new(), 2, sender.report.lineage);
        note(&mut receiver, 1, 1);
        let (had, came) = (10 + random.below(30), 80 + random.below(40));
        for index in 1..=came {
            push(&mut sender, passing(random, index), true);
        }
        follow_to(&mut receiver, &sender, had);
        let have = receiver.log(0).tails(group(0)).run().unwrap();
        sender.checkpoint(0);
        sender.work().unwrap();
        let (from, export) = (sender.open[&0].clone(), export(&mut sender, 0, have).unwrap());
        let install = receiver.log(0).begin_install(export.head.clone()).unwrap();
        receive(&install, &export).unwrap();
        // It lives on while the files come.
        follow_to(&mut receiver, &sender, had + random.below(40));
        receiver.log(0).finish_install(install, ends).unwrap();
        receiver.expect(0, from);
        let installed = run_install(&mut receiver, 0).unwrap();
        end_install(&mut receiver, 0, installed).unwrap();
        receiver.check(&place);
        for index in came + 1..came + 100 {
            push(&mut sender, passing(random, index), true);
            follow(&mut receiver, &sender);
        }
        receiver.check(&place);
        // A start shall know that all is committed: merges have left out what was deleted.
        note(&mut receiver, 1, 1);
        receiver.sync_all().unwrap();
        receiver.reopen(2, &place);
    }
}

#[test]
fn a_merge_around_a_hole_does_not_hide_the_chunk_that_came_to_fill_it() {
    let random = &mut SeededRandom::new(6);
    let mut sender = World::new(&MemoryDisk::new(), 2);
    note(&mut sender, 1, 1);
    let disk = MemoryDisk::new();
    let mut receiver = World::joining(&disk, 2, sender.report.lineage);
    note(&mut receiver, 1, 1);
    for _ in 0..120 {
        push(&mut sender, append_of(random, 1, 600), true);
    }
    sender.checkpoint(0);
    sender.work().unwrap();
    follow_to(&mut receiver, &sender, 30);
    let damaged = files(&disk, "chunk").remove(2);
    support::spoil(&disk, &damaged, 5000);
    receiver.log(0).sift(group(0));
    receiver.work().unwrap();
    assert_eq!(files(&disk, "0001").len(), 1, "it is set aside");
    // All is asked for.
    let (from, export) =
        (sender.open[&0].clone(), export(&mut sender, 0, Tails::default()).unwrap());
    let install = receiver.log(0).begin_install(export.head.clone()).unwrap();
    receive(&install, &export).unwrap();
    let count = files(&disk, "chunk").len();
    follow_to(&mut receiver, &sender, 100);
    assert!(files(&disk, "chunk").len() < count + 4, "neighbours of the hole were merged");
    receiver.log(0).finish_install(install, ends).unwrap();
    receiver.expect(0, from);
    let installed = run_install(&mut receiver, 0).unwrap();
    end_install(&mut receiver, 0, installed).unwrap();
    receiver.check("installed");
    receiver.reopen(2, "behind the snapshot");
}

#[test]
fn streams_that_come_back_to_an_emptied_replica_are_all_there() {
    let mut sender = sender();
    let disk = MemoryDisk::new();
    let mut receiver = receiver(&sender, &disk, Before::Prefix);
    assert!(files(&disk, "chunk").iter().any(|path| path.starts_with("/data/chunks/00000")));
    receiver.log(0).empty(group(0), Term::new(3), b"header".to_vec()).unwrap();
    let last = sender.open[&0].entries[..=COMMON as usize].to_vec();
    receiver.expect(0, Log { entries: last, note: receiver.open[&0].note });
    let emptied = run_install(&mut receiver, 0).unwrap();
    end_install(&mut receiver, 0, emptied).unwrap();
    // No job has looked yet at the chunks that it had before.
    let export = export_for(&mut sender, &mut receiver);
    let from = sender.open[&0].clone();
    install(&mut receiver, (0, &from), &export, |_| ()).unwrap();
    receiver.check("installed");
    follow(&mut receiver, &sender);
    receiver.work().unwrap();
    receiver.check("merged");
}
