//! What recovery decides about whole lanes, streams and groups.

mod support;

use env::MemoryDisk;
use model::{ByteOffset, EntryIndex, GroupId};
use support::{DELETE, Node, key};
use thalweg_log::{DamageKind, ReadError};

#[test]
fn an_opening_that_the_disk_fails_is_an_error_wherever_it_fails() {
    let changes = {
        let disk = MemoryDisk::new();
        let _open = Node::open(&disk, 2).unwrap();
        disk.change_count()
    };
    assert!(changes > 10);
    for done in 0..changes {
        let disk = MemoryDisk::new();
        disk.power_off_after(done);
        assert!(Node::open(&disk, 2).is_err(), "the power went after {done} changes of {changes}");
    }
}

#[test]
fn each_lane_of_a_shard_that_is_gone_is_drained_by_one_shard() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 3).unwrap();
    for group in 0..3 {
        node.append(key(group, 1), b"data").unwrap();
    }
    node.commit().unwrap();
    drop(node);
    let mut node = Node::open(&disk, 2).unwrap();
    node.work().unwrap();
    let of_lane_2 = |path: &std::path::PathBuf| path.starts_with("/data/wal/00002");
    assert_eq!(disk.paths().into_iter().find(of_lane_2), None);
    assert_eq!(node.read_all(key(2, 1), 100).unwrap(), b"data");
}

#[test]
fn data_of_a_deleted_stream_is_forgotten_when_the_log_opens() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    node.append(key(0, 1), b"data").unwrap();
    node.append(key(0, 2), b"more").unwrap();
    node.write(key(0, 1), DELETE, &[], &[]).unwrap();
    node.commit().unwrap();
    drop(node);
    let mut node = Node::open(&disk, 1).unwrap();
    let read = node.shards[0].read(key(0, 1), ByteOffset::ZERO, 10);
    assert!(matches!(read, Err(ReadError::NotFound)));
    assert_eq!(node.read_all(key(0, 2), 10).unwrap(), b"more");
}

#[test]
fn missing_entries_are_told_by_group_and_index() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    for _ in 0..3 {
        node.append(key(2, 1), &[1; 50]).unwrap();
        node.commit().unwrap();
    }
    drop(node);
    let wal = disk.paths().into_iter().find(|path| path.starts_with("/data/wal")).unwrap();
    // Two bits of the second batch's entry header: too many to be put right.
    for bit in 0..2 {
        disk.flip_bit(&wal, (4096 + 64 + 8) * 8 + bit);
    }
    let node = Node::open(&disk, 1).unwrap();
    let missing = node.machine.damages.iter().find(|d| d.kind == DamageKind::EntriesMissing);
    let missing = missing.unwrap();
    assert_eq!(missing.group, Some(GroupId::new(2)));
    assert_eq!(missing.entries, Some((EntryIndex::new(2), EntryIndex::new(2))));
}
