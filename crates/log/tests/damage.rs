//! A torn tail is cut silently; damage is reported, confined, and costs nothing intact.

use crate::support;
use crate::support::{Node, file, files, flip_two, key, row_pages, spoil, spoil_rows, wal};
use env::{MemoryDisk, SeededRandom};
use model::{ByteOffset, EntryIndex};
use std::path::PathBuf;
use thalweg_log::{DamageKind, ReadError, ReadMode};

/// Commits one batch with an append to each of three streams, `count` times over.
fn with_batches(count: u8) -> (MemoryDisk, Node) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..count {
        for stream in 1..=3 {
            node.append(key(0, stream), &[number; 50]).unwrap();
        }
        node.commit().unwrap();
    }
    (disk, node)
}

fn flip_byte(disk: &MemoryDisk, path: &std::path::Path, byte: u64) {
    disk.flip_bit(path, byte * 8 + 3);
}

fn reopen(disk: &MemoryDisk) -> Node {
    Node::open(disk, 1).unwrap()
}

/// The commands and data of a batch of three entries.
const PAYLOAD: u64 = wal::payload(3);

/// Where the runs of a chunk begin, and what one checksum covers of them: docs/format/chunk.md.
const CHUNK_CONTENT: u64 = 4096;
const CHUNK_BLOCK_BYTES: u64 = 64 << 10;

#[test]
fn flipped_data_is_damaged_in_its_place() {
    let (disk, node) = with_batches(3);
    drop(node);
    flip_byte(&disk, &file(&disk, "wal"), wal::batch(1) + PAYLOAD);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::EntryData]);
    let damage = node.machine.damages[0].clone();
    assert_eq!((damage.stream, damage.lost_bytes), (Some(key(0, 1).stream), 50));
    assert_eq!(damage.entries, Some((EntryIndex::new(4), EntryIndex::new(4))));
    assert_eq!((&damage.file, damage.position), (&file(&disk, "wal"), wal::batch(1) + PAYLOAD));
    assert_eq!(node.report.entries_replayed, 9);
    assert_eq!(node.read_all(key(0, 2), 1000).unwrap().len(), 150);
    // What surrounds it is there; it alone is not.
    let shard = node.shard(key(0, 1).group);
    let read = |at| shard.read(key(0, 1), ByteOffset::new(at), 100);
    assert_eq!(read(0).unwrap().to_bytes().unwrap()[..], [0; 50]);
    assert_eq!(read(100).unwrap().to_bytes().unwrap()[..], [2; 50]);
    for at in 50..100 {
        let Err(ReadError::Damaged { file, position }) = read(at) else { panic!("read at {at}") };
        assert_eq!((file, position), (damage.file.clone(), damage.position));
    }
    let bounds = shard.append_at(key(0, 1), ByteOffset::new(70)).unwrap().unwrap();
    assert_eq!((bounds.start.get(), bounds.end.get()), (50, 100));
}

#[test]
fn damaged_data_is_reported_once_and_stays_a_hole_in_the_chunk() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..9 {
        node.append(key(0, 1), &[number; 1000]).unwrap();
        node.append(key(0, 2), &[number; 10]).unwrap();
        node.commit().unwrap();
    }
    node.stop();
    let data = |number: u64| wal::batch(number) + wal::payload(2);
    flip_byte(&disk, &file(&disk, "wal"), data(4) + 7);
    let mut node = reopen(&disk);
    // Damage that comes later is met by the seal first.
    flip_byte(&disk, &file(&disk, "wal"), data(6) + 7);
    while node.run_job() {}
    assert_eq!(node.machine.kinds(), [DamageKind::EntryData, DamageKind::StreamData]);
    let positions: Vec<u64> = node.machine.damages.iter().map(|damage| damage.position).collect();
    assert_eq!(positions, [data(4), data(6)]);
    let sealed = &node.machine.damages[1];
    assert_eq!(sealed.group.zip(sealed.stream), Some((key(0, 1).group, key(0, 1).stream)));
    assert_eq!(sealed.lost_bytes, 1000);
    assert_eq!(node.shards[0].stats().hot_appends, 0);
    assert_eq!(node.read_all(key(0, 2), 1000).unwrap().len(), 90);
    let check = |node: &Node| {
        for number in 0..9 {
            let found = node.shards[0].read(key(0, 1), ByteOffset::new(number * 1000), 1000);
            assert_eq!(found.is_ok_and(|slice| !slice.is_empty()), number != 4 && number != 6);
        }
    };
    check(&node);
    // No checkpoint covers the entries: what lies before data in the chunk is hot again.
    drop(node);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::EntryData, DamageKind::EntryData]);
    check(&node);
    node.work().unwrap();
    check(&node);
}

#[test]
fn damaged_data_that_a_chunk_holds_costs_no_byte() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..9 {
        node.append(key(0, 1), &[number; 1000]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
    node.stop();
    flip_byte(&disk, &file(&disk, "wal"), wal::payload(9) + 4000);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::EntryData]);
    assert_eq!(node.machine.damages[0].lost_bytes, 0);
    assert_eq!(node.read_all(key(0, 1), 4000).unwrap().len(), 9000);
}

#[test]
fn a_flipped_bit_of_a_header_costs_nothing() {
    let (disk, node) = with_batches(3);
    drop(node);
    let header = |position: u64| position..position + wal::HEADER_BYTES;
    for byte in header(0).chain(header(wal::entry_header(1))) {
        flip_byte(&disk, &file(&disk, "wal"), wal::batch(1) + byte);
        let mut node = reopen(&disk);
        assert_eq!(node.machine.kinds(), [DamageKind::HeaderRepaired], "byte {byte}");
        let damage = &node.machine.damages[0];
        let start = wal::batch(1) + byte / wal::HEADER_BYTES * wal::HEADER_BYTES;
        assert_eq!((damage.position, damage.lost_bytes), (start, 0));
        for stream in 1..=3 {
            let bytes = node.read_all(key(0, stream), 1000).unwrap();
            assert_eq!(bytes, [[0; 50], [1; 50], [2; 50]].concat());
        }
        drop(node);
        flip_byte(&disk, &file(&disk, "wal"), wal::batch(1) + byte);
    }
}

#[test]
fn a_spoilt_entry_header_costs_one_entry() {
    let (disk, node) = with_batches(3);
    drop(node);
    spoil(&disk, &file(&disk, "wal"), wal::batch(1) + wal::entry_header(1) + wal::TERM);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::EntryHeader, DamageKind::EntriesMissing]);
    assert_eq!(node.read_all(key(0, 1), 1000).unwrap().len(), 150);
    assert_eq!(node.read_all(key(0, 3), 1000).unwrap().len(), 150);
}

#[test]
fn a_spoilt_batch_header_costs_no_entry() {
    let (disk, node) = with_batches(3);
    drop(node);
    let fields = [
        wal::MAGIC,
        wal::SEGMENT,
        wal::BATCH_NUMBER,
        wal::DURABLE,
        wal::PAYLOAD_BYTES,
        wal::ENTRY_COUNT,
        wal::CHECKSUM,
    ];
    for byte in fields {
        spoil(&disk, &file(&disk, "wal"), wal::batch(1) + byte);
        let mut node = reopen(&disk);
        assert_eq!(node.machine.kinds(), [DamageKind::BatchHeader], "byte {byte}");
        for stream in 1..=3 {
            let bytes = node.read_all(key(0, stream), 1000).unwrap();
            assert_eq!(bytes, [[0; 50], [1; 50], [2; 50]].concat());
        }
        drop(node);
        flip_two(&disk, &file(&disk, "wal"), wal::batch(1) + byte);
    }
}

#[test]
fn headers_that_are_written_twice_may_be_lost_once() {
    // The headers of these batches, and of how many entries.
    for lost in [&[0][..], &[1], &[0, 1], &[1, 2], &[0, 1, 2]] {
        let (disk, node) = with_batches(4);
        drop(node);
        let segment = env::Disk::open(&disk, &file(&disk, "wal")).unwrap();
        for batch in lost {
            segment.write_at(&[0xa5; PAYLOAD as usize], wal::batch(*batch)).unwrap();
        }
        segment.sync_data().unwrap();
        let mut node = reopen(&disk);
        assert_eq!(node.machine.kinds(), vec![DamageKind::HeaderRepaired; 4 * lost.len()]);
        for stream in 1..=3 {
            let bytes = node.read_all(key(0, stream), 1000).unwrap();
            assert_eq!(bytes, [[0; 50], [1; 50], [2; 50], [3; 50]].concat(), "{lost:?}");
        }
    }
}

#[test]
fn a_batch_without_a_header_repairs_its_entries() {
    let (disk, node) = with_batches(3);
    drop(node);
    spoil(&disk, &file(&disk, "wal"), wal::batch(1) + wal::SEGMENT);
    flip_byte(&disk, &file(&disk, "wal"), wal::batch(1) + wal::entry_header(0) + wal::TERM);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::BatchHeader, DamageKind::HeaderRepaired]);
    assert_eq!(node.read_all(key(0, 1), 1000).unwrap().len(), 150);
    assert_eq!(node.read_all(key(0, 3), 1000).unwrap().len(), 150);
}

#[test]
fn the_first_batch_of_a_wal_is_found_without_its_header() {
    let (disk, node) = with_batches(2);
    drop(node);
    spoil(&disk, &file(&disk, "wal"), wal::SEGMENT);
    let mut node = reopen(&disk);
    // The claim of the second batch names a first one, and the second is not the first of its segment.
    assert_eq!(node.machine.kinds(), [DamageKind::BatchHeader]);
    assert_eq!(node.read_all(key(0, 1), 1000).unwrap().len(), 100);
}

#[test]
fn damage_met_by_a_read_is_an_answer_and_not_data() {
    let (disk, mut node) = with_batches(2);
    flip_byte(&disk, &file(&disk, "wal"), PAYLOAD);
    let error = node.read_all(key(0, 1), 1000).unwrap_err();
    assert!(matches!(error, ReadError::Damaged { position, .. } if position == PAYLOAD));
    assert!(node.read_all(key(0, 2), 1000).is_ok());
}

/// Two streams of 200 KiB each in one chunk.
fn with_chunk() -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let options = thalweg_log::LogOptions {
        segment_bytes: 1 << 20,
        wal_bytes_max: 8 << 20,
        batch_bytes_max: 1 << 20,
        seal_bytes: 1 << 20,
        ..support::small()
    };
    let mut node = Node::open_with(&disk, 1, options).unwrap();
    for number in 0..200 {
        node.append(key(0, 1), &[number; 1024]).unwrap();
        node.append(key(0, 2), &[number; 1024]).unwrap();
    }
    node.commit().unwrap();
    node.checkpoint(key(0, 1).group);
    node.work().unwrap();
    node.stop();
    let chunk = file(&disk, "chunk");
    (disk, chunk)
}

#[test]
fn a_flipped_bit_in_chunk_data_costs_one_block() {
    let (disk, chunk) = with_chunk();
    flip_byte(&disk, &chunk, CHUNK_CONTENT + 70_000);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.damages, []);
    assert_eq!(node.read_all(key(0, 2), 5000).unwrap().len(), 200 * 1024);
    let error = node.read_all(key(0, 1), 5000).unwrap_err();
    assert!(
        matches!(error, ReadError::Damaged { position, .. } if position == CHUNK_CONTENT + CHUNK_BLOCK_BYTES)
    );
    let after = node.shards[0].read(key(0, 1), ByteOffset::new(140_000), 5000).unwrap();
    assert_eq!(after.to_bytes().unwrap()[0], (140_000 / 1024) as u8);
}

#[test]
fn either_header_of_a_chunk_is_enough() {
    let length = {
        let (disk, chunk) = with_chunk();
        env::Disk::open(&disk, &chunk).unwrap().len().unwrap()
    };
    for byte in [0, 40, length - 128, length - 1] {
        let (disk, chunk) = with_chunk();
        flip_byte(&disk, &chunk, byte);
        let mut node = reopen(&disk);
        assert_eq!(node.machine.damages, []);
        assert_eq!(node.read_all(key(0, 1), 5000).unwrap().len(), 200 * 1024);
    }
}

#[test]
fn a_damaged_copy_of_a_page_or_a_flipped_bit_in_both_headers_costs_nothing() {
    let (disk, chunk) = with_chunk();
    let length = env::Disk::open(&disk, &chunk).unwrap().len().unwrap();
    let [rows, rows_again] = row_pages(&disk, &chunk);
    // A page of two rows takes 128 bytes, and the index of so few rows is behind it.
    let (index, index_again) = (rows + 128, rows_again + 128);
    let repaired = [DamageKind::HeaderRepaired; 2];
    let damages: [(&[u64], &[DamageKind]); 7] = [
        (&[rows + 40], &repaired[..1]),
        (&[rows_again + 40], &repaired[..1]),
        (&[index + 40], &repaired[..1]),
        (&[index_again + 40], &repaired[..1]),
        (&[index + 40, index_again + 70], &repaired[..1]),
        (&[rows + 40, index_again + 40], &repaired),
        (&[33, length - 120], &repaired[..1]),
    ];
    for (bytes, kinds) in damages {
        bytes.iter().for_each(|&byte| flip_byte(&disk, &chunk, byte));
        let mut node = reopen(&disk);
        assert_eq!(node.machine.kinds(), kinds);
        assert_eq!(node.read_all(key(0, 1), 5000).unwrap().len(), 200 * 1024);
        assert_eq!(node.read_all(key(0, 2), 5000).unwrap().len(), 200 * 1024);
        drop(node);
        bytes.iter().for_each(|&byte| flip_byte(&disk, &chunk, byte));
    }
}

#[test]
fn a_row_page_that_is_lost_twice_costs_its_runs() {
    let (disk, chunk) = with_chunk();
    spoil_rows(&disk, &chunk);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::ChunkRow]);
    let [page, _] = row_pages(&disk, &chunk);
    for stream in [1, 2] {
        let error = node.read_all(key(0, stream), 5000).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { position, .. } if position == page));
    }
    let other = node.shards[0].read(key(0, 9), ByteOffset::ZERO, 5000);
    assert!(matches!(other, Err(ReadError::NotFound)));
    node.work().unwrap();
    assert!(disk.paths().contains(&chunk));
}

#[test]
fn a_chunk_without_headers_is_reported_and_left_in_place() {
    let (disk, chunk) = with_chunk();
    spoil(&disk, &chunk, 0);
    let length = env::Disk::open(&disk, &chunk).unwrap().len().unwrap();
    spoil(&disk, &chunk, length - 128);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::ChunkHeader]);
    assert!(node.read_all(key(0, 1), 5000).is_err());
    node.work().unwrap();
    assert!(disk.paths().contains(&chunk));
}

#[test]
fn a_flipped_checkpoint_row_costs_one_stream() {
    let (disk, _) = with_chunk();
    let checkpoint = file(&disk, "ckpt");
    // Header, owner's header, two rows, payloads of 25 bytes each.
    flip_byte(&disk, &checkpoint, 64 + 6 + 2 * 40 + 25);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::CheckpointPayload]);
    assert_eq!(node.machine.damages[0].stream, Some(key(0, 2).stream));
    assert_eq!(node.machine.damages[0].path_hash, Some(model::PathHash::new(1002)));
    assert_eq!(node.read_all(key(0, 1), 5000).unwrap().len(), 200 * 1024);
}

#[test]
fn any_single_flipped_bit_of_a_wal_loses_at_most_one_entry() {
    let mut random = SeededRandom::new(5);
    for _ in 0..300 {
        let (disk, node) = with_batches(4);
        node.stop();
        disk.flip_bit(&file(&disk, "wal"), random.below(wal::batch(4) * 8));
        let node = reopen(&disk);
        let lost = 12 - node.report.entries_replayed;
        assert!(lost <= 1, "one bit cost {lost} entries");
        assert!(lost == 0 || !node.machine.damages.is_empty());
    }
}

#[test]
fn a_segment_that_was_cut_off_is_read_as_far_as_it_goes() {
    let (disk, node) = with_batches(3);
    drop(node);
    let path = file(&disk, "wal");
    let file = env::Disk::open(&disk, &path).unwrap();
    let mut bytes = vec![0; wal::batch(2) as usize + 9];
    file.read_exact_at(&mut bytes, 0).unwrap();
    env::Disk::remove(&disk, &path).unwrap();
    env::Disk::create(&disk, &path).unwrap().write_at(&bytes, 0).unwrap();
    let mut node = reopen(&disk);
    assert_eq!(node.read_all(key(0, 1), 1000).unwrap().len(), 100);
}

#[test]
fn a_merge_that_meets_damage_leaves_its_sources() {
    let (disk, chunk) = with_chunk();
    flip_byte(&disk, &chunk, CHUNK_CONTENT + 70_000);
    let mut node = reopen(&disk);
    node.write(key(0, 2), support::DELETE, &[], &[]).unwrap();
    node.trim(key(0, 1), 10_000).unwrap();
    node.commit().unwrap();
    // More than half is dead now, so a copy is tried.
    node.work().unwrap();
    assert_eq!(node.machine.kinds(), [DamageKind::StreamData]);
    assert!(disk.paths().contains(&chunk));
    let after = node.shards[0].read(key(0, 1), ByteOffset::new(140_000), 5000).unwrap();
    assert_eq!(after.to_bytes().unwrap()[0], (140_000 / 1024) as u8);
}

#[test]
fn a_lost_segment_between_others_is_reported() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for _ in 0..100 {
        node.append(key(0, 1), &[1; 900]).unwrap();
        node.commit().unwrap();
        // Only a spare segment at a time: nothing is sealed before its data is large.
        if let Some(job) = node.shards[0].poll_work() {
            let _ = node.shards[0].handle_work(job.run());
        }
    }
    drop(node);
    let segments = files(&disk, "wal");
    assert!(segments.len() >= 4);
    env::Disk::remove(&disk, &segments[1]).unwrap();
    let node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::SegmentMissing, DamageKind::EntriesMissing]);
}

#[test]
fn a_lost_last_entry_pins_nothing_and_keeps_its_index() {
    let (disk, mut node) = with_batches(1);
    node.append(key(0, 1), &[1; 50]).unwrap();
    node.append(key(0, 2), &[1; 50]).unwrap();
    node.write(key(0, 3), support::APPEND, b"command", &[1; 50]).unwrap();
    node.commit().unwrap();
    node.stop();
    // The command of the last entry of the group.
    flip_byte(&disk, &file(&disk, "wal"), wal::batch(1) + PAYLOAD + 100);
    let mut node = reopen(&disk);
    assert_eq!(node.machine.kinds(), [DamageKind::EntryPayload]);
    let group = key(0, 1).group;
    assert_eq!(node.shards[0].applied_index(group).get(), 6);
    assert_eq!(node.shards[0].next_index(group).get(), 7);
    node.append(key(0, 1), b"next").unwrap();
    node.commit().unwrap();
    assert_eq!(node.read_all(key(0, 1), 200).unwrap().len(), 104);
}

#[test]
fn data_of_a_damaged_chunk_is_taken_from_the_wal_while_it_is_there() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for number in 0..9 {
        node.append(key(0, 1), &[number; 1000]).unwrap();
    }
    node.commit().unwrap();
    node.work().unwrap();
    assert_eq!(node.shards[0].stats().hot_appends, 0, "sealed, but not yet in a checkpoint");
    drop(node);
    let chunk = file(&disk, "chunk");
    let length = env::Disk::open(&disk, &chunk).unwrap().len().unwrap();
    spoil(&disk, &chunk, 0);
    spoil(&disk, &chunk, length - 128);
    for _ in 0..3 {
        let mut node = reopen(&disk);
        assert_eq!(node.machine.kinds(), [DamageKind::ChunkHeader]);
        assert_eq!(node.read_all(key(0, 1), 4000).unwrap().len(), 9000);
        node.work().unwrap();
        assert_eq!(node.read_all(key(0, 1), 4000).unwrap().len(), 9000);
    }
}

#[test]
fn a_job_at_the_last_byte_that_is_left_says_so() {
    let (disk, _) = with_chunk();
    let node = reopen(&disk);
    disk.forget_cached(100, 1);
    let tail = ByteOffset::new(200 * 1024);
    let extent = node.shards[0].extent(key(0, 1), tail, 100).unwrap();
    let extent = extent.expect("its rows are not in memory");
    let read = extent.read(tail, 100, ReadMode::Blocking);
    assert!(
        matches!(read, Err(ReadError::PastTail { .. })),
        "an empty answer would be asked again"
    );
}
