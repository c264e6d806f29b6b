//! A small log of a replicated group, cut at every byte and at every change of the disk, and with every bit flipped.

use crate::support;
use crate::support::replicas::{Logged, World, group};
use crate::support::{files, wal};
use env::{Disk, MemoryDisk, SeededRandom};
use model::{EntryIndex, Term};
use std::path::PathBuf;
use thalweg_log::{DamageKind, EntryError, Note};

fn logged(term: u64, stream: u64, letter: u8) -> Logged {
    Logged { term, stream, command: vec![1, 2], data: vec![letter; 5 + letter as usize % 7] }
}

fn note(term: u64, vote: u64, commit: u64) -> Note {
    Note { term: Term::new(term), vote, commit: EntryIndex::new(commit) }
}

/// Two entries of one voter, then a replicated group whose entries 4 and 5 are to be superseded.
fn prepared(disk: &MemoryDisk) -> World {
    let mut world = World::new(disk, 1);
    world.append(0, 1, logged(1, 1, b'a')).unwrap();
    world.append(0, 2, logged(1, 2, b'b')).unwrap();
    world.append(1, 1, logged(1, 1, b'z')).unwrap();
    world.sync_all().unwrap();
    world.replicate(0, note(2, 7, 0)).unwrap();
    for (index, letter) in [(3, b'c'), (4, b'd'), (5, b'e')] {
        world.append(0, index, logged(2, 1, letter)).unwrap();
    }
    world.sync_all().unwrap();
    world.commit(0, 3).unwrap();
    world
}

/// Appends the batch of the test: a later term, and entries of it in the place of 4 and 5.
fn supersede(world: &mut World) {
    world.note(0, note(3, 8, 3)).unwrap();
    world.append(0, 4, logged(3, 1, b'D')).unwrap();
    world.append(1, 2, logged(1, 1, b'y')).unwrap();
}

/// The newest segment with a batch, and the position of its last batch.
fn last_batch(disk: &MemoryDisk) -> (PathBuf, u64) {
    let holds = |path: &PathBuf, at: u64| {
        let mut magic = [0; 4];
        let file = disk.open(path).unwrap();
        at < file.len().unwrap() && file.read_exact_at(&mut magic, at).is_ok() && &magic == b"ThBa"
    };
    let path = files(disk, "wal").into_iter().rev().find(|path| holds(path, 0)).unwrap();
    let blocks = (0..8).map(wal::batch).take_while(|at| holds(&path, *at));
    let position = blocks.last().unwrap();
    (path, position)
}

/// A world whose last batch reached the disk, or as much of it as `change` leaves.
fn with_last_batch(change: impl Fn(&mut [u8])) -> World {
    let disk = MemoryDisk::new();
    let mut world = prepared(&disk);
    supersede(&mut world);
    world.sync_unheard(0);
    let (path, position) = last_batch(&disk);
    let file = disk.open(&path).unwrap();
    let mut bytes = [0; wal::BLOCK_BYTES as usize];
    file.read_exact_at(&mut bytes, position).unwrap();
    change(&mut bytes);
    file.write_at(&bytes, position).unwrap();
    file.sync_data().unwrap();
    world.doubt();
    world
}

#[test]
fn a_batch_that_is_cut_at_any_byte_is_whole_or_gone() {
    let mut outcomes = [0, 0];
    for bytes in 0..=wal::BLOCK_BYTES as usize {
        for is_front in [false, true] {
            let cut = |block: &mut [u8]| {
                let (front, back) = block.split_at_mut(bytes);
                if is_front { front.fill(0) } else { back.fill(0) }
            };
            let place = format!("cut at byte {bytes}, front: {is_front}");
            let mut world = with_last_batch(cut).reopen(1, &place);
            outcomes[usize::from(world.open[&0].term_of(4) == 3)] += 1;
            // What is appended next is there after the next start, whichever it was.
            let (next, term) = (world.open[&0].last() + 1, world.open[&0].note.unwrap().term.get());
            world.append(0, next, logged(term, 3, b'n')).unwrap();
            world.sync_all().unwrap();
            world.reopen(2, &place);
        }
    }
    assert!(outcomes[0] > 500 && outcomes[1] > 500, "gone, whole: {outcomes:?}");
}

#[test]
fn power_may_go_at_any_change_of_the_disk_while_entries_are_superseded() {
    let changes = {
        let disk = MemoryDisk::new();
        let before = disk.change_count();
        let mut world = prepared(&disk);
        supersede(&mut world);
        world.sync_all().unwrap();
        disk.change_count() - before
    };
    let prepared_changes = {
        let disk = MemoryDisk::new();
        drop(prepared(&disk));
        disk.change_count()
    };
    for (cut, seed) in
        (0..=changes - prepared_changes).flat_map(|cut| (0..30).map(move |s| (cut, s)))
    {
        let disk = MemoryDisk::new();
        let mut world = prepared(&disk);
        disk.power_off_after(cut);
        supersede(&mut world);
        let _ = world.sync_all();
        disk.crash(&mut SeededRandom::new(seed));
        world.reopen(1 + (seed % 3) as u16, &format!("cut {cut}, seed {seed}"));
    }
}

/// A log with a superseded suffix and several notes, stopped in order.
fn stopped() -> World {
    let disk = MemoryDisk::new();
    let mut world = prepared(&disk);
    supersede(&mut world);
    world.sync_all().unwrap();
    world.append(0, 5, logged(3, 2, b'E')).unwrap();
    world.append(0, 6, logged(3, 2, b'F')).unwrap();
    world.note(0, note(3, 8, 4)).unwrap();
    world.sync_all().unwrap();
    world.commit(0, 4).unwrap();
    world.shards[0].mark_durable();
    world.sync_all().unwrap();
    world
}

/// What a flipped bit may do: nothing that is not reported. What is given back was appended under that index and term.
fn check_flip(bits: &[u64], block: u64) -> DamageKinds {
    let world = stopped();
    let path = files(&world.disk, "wal").remove(0);
    bits.iter().for_each(|bit| world.disk.flip_bit(&path, wal::batch(block) * 8 + bit));
    let place = format!("bits {bits:?} of block {block}");
    let (found, told) = world.reopen_damaged(1);
    let kinds: Vec<DamageKind> = found.machine.kinds();
    if kinds.iter().all(|kind| *kind == DamageKind::HeaderRepaired) {
        assert!(told.is_empty(), "{place}: {told}");
    }
    let of = group(0);
    for index in 3..=found.shards[0].last_index(of).get() {
        match found.shards[0]
            .entries(of, EntryIndex::new(index), 0)
            .map(thalweg_log::EntryRead::run)
        {
            Ok(Ok(read)) => {
                let entry = read[0].entry();
                let known = (entry.index.get(), entry.term.get(), entry.data[0]);
                let appended = [
                    (3, 2, b'c'),
                    (4, 2, b'd'),
                    (5, 2, b'e'),
                    (4, 3, b'D'),
                    (5, 3, b'E'),
                    (6, 3, b'F'),
                ];
                assert!(appended.contains(&known), "{place}: {known:?}");
            }
            Ok(Err(EntryError::Damaged { index: damaged, .. })) => {
                assert_eq!(damaged.get(), index, "{place}");
                assert!(!kinds.is_empty(), "{place}: it was told");
            }
            // Where entries are lost the log may begin later.
            Err(EntryError::Released { .. }) => assert!(!kinds.is_empty(), "{place}: it was told"),
            other => panic!("{place}: {other:?}"),
        }
    }
    kinds
}

type DamageKinds = Vec<DamageKind>;

#[test]
fn a_flipped_bit_changes_nothing_that_is_not_told() {
    let (mut repaired, mut told) = (0, 0);
    for block in 1..4 {
        // Headers, notes, payload, and the list of the batch before.
        for bit in 0..650 * 8 {
            let kinds = check_flip(&[bit], block);
            repaired += usize::from(kinds == [DamageKind::HeaderRepaired]);
            told += usize::from(!kinds.is_empty());
        }
    }
    assert!(repaired > 3000 && told > repaired, "{repaired} repaired, {told} told");
}

#[test]
fn two_flipped_bits_of_a_header_and_its_copy_change_nothing_that_is_not_told() {
    for block in 1..4 {
        for byte in (0..320).step_by(3) {
            let world = stopped();
            let path = files(&world.disk, "wal").remove(0);
            support::spoil(&world.disk, &path, wal::batch(block) + byte);
            let (found, told) = world.reopen_damaged(1);
            let kinds = found.machine.kinds();
            let place = format!("byte {byte} of block {block}: {kinds:?}");
            assert!(told.is_empty() || !kinds.is_empty(), "{place}: {told}");
        }
    }
}

/// A note that is lost for good is reported: its replica may have promised something in it.
#[test]
fn a_lost_note_is_told() {
    let world = stopped();
    let path = files(&world.disk, "wal").remove(0);
    // The third batch of the file is the one that supersedes: two entries and a note.
    support::spoil(&world.disk, &path, wal::batch(2) + wal::entry_header(2) + 8);
    let (found, _) = world.reopen_damaged(1);
    assert_eq!(found.machine.kinds(), [DamageKind::EntryHeader]);
}
