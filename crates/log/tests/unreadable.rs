//! A block that cannot be read is damage of that block: the log opens, and everything else is served.

mod support;

use env::{Disk, DiskOperation, MemoryDisk, SeededRandom};
use model::{ByteOffset, StreamKey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use support::{Node, files, key};
use thalweg_log::{ReadError, Slice};

const APPEND_BYTES: usize = 3000;

/// What was written, by stream.
type Written = BTreeMap<StreamKey, Vec<u8>>;

/// Batches of three blocks for nine streams of three groups, in the WAL, in chunks and covered by checkpoints.
fn filled() -> (MemoryDisk, Written) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    let mut written = Written::new();
    for number in 0..24_u8 {
        for group in 0..3 {
            append(&mut node, &mut written, key(group, u64::from(number % 3) + 1), number);
        }
        node.commit().unwrap();
        if number < 18 {
            node.work().unwrap();
        }
    }
    node.stop();
    disk.kill_process();
    (disk, written)
}

fn append(node: &mut Node, written: &mut Written, key: StreamKey, number: u8) {
    let data: Vec<u8> = (0..APPEND_BYTES).map(|at| number ^ at as u8).collect();
    node.append(key, &data).unwrap();
    written.entry(key).or_default().extend(data);
}

/// Reads every append by itself; returns how many are not there. What is there must be what was written.
fn missing(node: &mut Node, written: &Written) -> usize {
    let mut missing = 0;
    for (key, bytes) in written {
        for at in (0..bytes.len()).step_by(APPEND_BYTES) {
            let shard = node.shard(key.group);
            let mut found = Vec::new();
            while found.len() < APPEND_BYTES {
                let from = ByteOffset::new((at + found.len()) as u64);
                match shard.read(*key, from, APPEND_BYTES - found.len()) {
                    Ok(slice) if slice.is_empty() => break,
                    Ok(slice) => match slice.to_bytes() {
                        Ok(bytes) => found.extend_from_slice(&bytes),
                        Err(_) => break,
                    },
                    Err(ReadError::Damaged { .. } | ReadError::NotFound) => break,
                    Err(ReadError::PastTail { .. }) => break,
                    Err(error) => panic!("{key:?} at {at}: {error}"),
                }
            }
            if found.len() == APPEND_BYTES {
                // This test's machine forgets the offsets of streams whose rows are lost.
                let is_one = bytes.chunks(APPEND_BYTES).any(|append| append == found);
                assert!(is_one, "{key:?} at {at}: what nobody wrote");
            } else {
                missing += 1;
            }
        }
    }
    missing
}

/// Blocks of every file of the log.
fn blocks(disk: &MemoryDisk) -> Vec<(PathBuf, u64)> {
    let mut blocks = Vec::new();
    for path in disk.paths() {
        if path.ends_with("LOCK") {
            continue;
        }
        let length = disk.open(&path).unwrap().len().unwrap();
        blocks.extend((0..length.div_ceil(4096)).map(|block| (path.clone(), block)));
    }
    blocks
}

/// Opens a log with these blocks lost, looks at it, and writes on.
fn survive(lost: &[(PathBuf, u64)], missing_max: usize) {
    let (disk, mut written) = filled();
    lost.iter().for_each(|(path, block)| disk.make_unreadable(path, *block));
    let mut node = Node::open(&disk, 1).unwrap_or_else(|error| panic!("{lost:?}: {error}"));
    let told: Vec<String> = node.machine.damages.iter().map(ToString::to_string).collect();
    for (path, block) in lost {
        let file = path.to_str().unwrap();
        // What a chunk holds is looked at when it is read.
        let is_told = told.iter().any(|line| line.contains(file));
        assert!(is_told || file.contains("chunks"), "{file} {block} is not told: {told:?}");
    }
    let unique: BTreeSet<_> = told.iter().collect();
    assert_eq!(unique.len(), told.len(), "{lost:?} is told twice: {told:?}");
    let lost_count = missing(&mut node, &written);
    assert!(lost_count <= missing_max, "{lost:?}: {lost_count} appends are not there: {told:?}");
    // Writes continue, in streams of which nothing is known to be lost, and so does the work.
    for number in 100..110 {
        for group in 0..3 {
            append(&mut node, &mut written, key(group, 9), number);
        }
        node.commit().unwrap();
        node.work().unwrap();
    }
    assert!(missing(&mut node, &written) <= missing_max, "{lost:?}");
    node.stop();
    disk.kill_process();
    let mut node = Node::open(&disk, 1).unwrap();
    assert!(missing(&mut node, &written) <= missing_max, "{lost:?}, opened again");
}

#[test]
fn any_block_may_be_lost_and_costs_what_it_held() {
    let (disk, written) = filled();
    assert_eq!(missing(&mut Node::open(&disk, 1).unwrap(), &written), 0);
    for extension in ["wal", "chunk", "ckpt"] {
        assert!(!files(&disk, extension).is_empty(), "no {extension} file");
    }
    for block in blocks(&disk) {
        // A run of a chunk has one checksum, and the chunk one table of runs.
        let appends_max = if block.0.starts_with("/data/chunks") { 24 } else { 2 };
        survive(&[block], appends_max);
    }
}

#[test]
fn any_ten_blocks_may_be_lost() {
    let all = blocks(&filled().0);
    let mut random = SeededRandom::new(11);
    for _ in 0..1_000 {
        let mut lost = BTreeSet::new();
        while lost.len() < 10 {
            lost.insert(random.below(all.len() as u64) as usize);
        }
        let lost: Vec<_> = lost.into_iter().map(|place| all[place].clone()).collect();
        // Both copies of FORMAT together are the directory's end.
        if lost.iter().filter(|(path, _)| path.to_string_lossy().contains("FORMAT")).count() < 2 {
            survive(&lost, usize::MAX);
        }
    }
}

/// Leaves what a process leaves that was killed while it wrote.
fn leave_half_written(disk: &MemoryDisk) {
    for name in ["wal/00000/fill.tmp", "chunks/00001/writing.tmp", "checkpoints/00002/writing.tmp"]
    {
        disk.create(&Path::new(support::DIR).join(name)).unwrap();
    }
}

#[test]
fn a_start_needs_no_removal_and_tries_to_open_each_file_twice() {
    for (operation, skips, count) in [
        (DiskOperation::Remove, 0..1, None),
        (DiskOperation::Remove, 0..3, Some(1)),
        (DiskOperation::Open, 0..12, Some(1)),
    ] {
        for skip in skips {
            let (disk, written) = filled();
            leave_half_written(&disk);
            disk.fail(operation, skip, count);
            let mut node = Node::open(&disk, 1).unwrap();
            assert_eq!(node.machine.damages, [], "{operation:?} {skip}");
            assert_eq!(missing(&mut node, &written), 0, "{operation:?} {skip}");
            disk.fail_nothing();
            append(&mut node, &mut written.clone(), key(1, 9), 1);
            node.commit().unwrap();
            node.work().unwrap();
        }
    }
}

#[test]
fn a_chunk_that_cannot_be_opened_is_damage_of_it_alone() {
    let (disk, _) = filled();
    let before = files(&disk, "chunk").len();
    assert!(before > 1);
    // The two copies of `FORMAT` are opened first, and the first chunk after them: twice.
    disk.fail(DiskOperation::Open, 2, 2);
    let node = Node::open(&disk, 1).unwrap();
    assert_eq!(node.machine.damages.len(), 1, "{:?}", node.machine.damages);
}

#[test]
fn a_block_that_is_lost_after_it_was_checked_is_named_by_the_read_after_the_one_that_met_it() {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    let key = key(0, 1);
    for number in 0..24 {
        append(&mut node, &mut Written::new(), key, number);
        node.commit().unwrap();
        node.work().unwrap();
    }
    let shard = node.shard(key.group);
    let is_file = |slice: &Slice| matches!(slice, Slice::File { .. });
    let slice = shard.read(key, ByteOffset::new(0), 24_000).unwrap();
    assert!(is_file(&slice) && slice.to_bytes().is_ok());
    for path in files(&disk, "chunk") {
        disk.make_unreadable(&path, 2);
    }
    assert!(slice.to_bytes().is_err(), "it was promised before");
    match shard.read(key, ByteOffset::new(0), 24_000) {
        Err(ReadError::Damaged { file, position }) => {
            assert!(file.to_string_lossy().ends_with(".chunk") && position > 0);
        }
        other => panic!("a lost block is answered by {other:?}"),
    }
}
