//! A block that cannot be read is damage of that block: the log opens, and everything else is served.

use crate::support;
use crate::support::{Node, file, files, key};
use env::{Disk, DiskOperation, MemoryDisk, SeededRandom};
use model::{ByteOffset, EntryIndex, StreamKey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thalweg_log::{AppendError, DamageKind, LogOptions, ReadError, Slice};

const APPEND_BYTES: usize = 3000;

/// What was written, by stream.
type Written = BTreeMap<StreamKey, Vec<u8>>;

/// Batches of three blocks for nine streams of three groups, in the WAL, in chunks and covered by checkpoints.
fn filled() -> (MemoryDisk, Written) {
    filled_with(18)
}

/// As `filled`, with background work after the first `worked` batches.
fn filled_with(worked: u8) -> (MemoryDisk, Written) {
    let disk = MemoryDisk::new();
    let mut node = Node::open(&disk, 1).unwrap();
    let mut written = Written::new();
    for number in 0..24_u8 {
        for group in 0..3 {
            append(&mut node, &mut written, key(group, u64::from(number % 3) + 1), number);
        }
        node.commit().unwrap();
        if number < worked {
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
    assert_eq!(unique.len(), told.len(), "{lost:?} is reported twice: {told:?}");
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

/// It can be opened again at the next start or at a later one.
#[test]
fn any_segment_may_be_unopenable_and_what_was_written_since_stays() {
    for worked in [18, 3] {
        let segments = files(&filled_with(worked).0, "wal");
        assert!(segments.len() >= 2, "{segments:?}");
        for (healed, segment) in (0..3).flat_map(|start| segments.iter().map(move |of| (start, of)))
        {
            lose_segment(worked, segment, healed);
        }
    }
}

fn lose_segment(worked: u8, segment: &Path, healed: u64) {
    let (disk, written) = filled_with(worked);
    disk.set_openable(segment, false);
    let mut node = Node::open(&disk, 1).unwrap();
    let kinds = node.machine.kinds();
    assert!(kinds.contains(&DamageKind::SegmentMissing), "{segment:?}: {kinds:?}");
    assert!(missing(&mut node, &written) < 30, "{segment:?}");
    let mut since = Written::new();
    for start in 0..4 {
        for number in 0..4 {
            append(&mut node, &mut since, key((start % 3) as u16, 9), 100 + number);
            node.commit().unwrap();
            node.work().unwrap();
        }
        node.stop();
        disk.kill_process();
        disk.set_openable(segment, start >= healed);
        node = Node::open(&disk, 1).unwrap();
        assert_eq!(missing(&mut node, &since), 0, "{segment:?}, start {start}");
    }
    // An operator accepts the loss by removing the file.
    disk.remove(segment).unwrap();
    node.stop();
    disk.kill_process();
    let mut node = Node::open(&disk, 1).unwrap();
    assert_eq!(missing(&mut node, &since), 0, "{segment:?}");
    assert!(!node.machine.kinds().contains(&DamageKind::SegmentMissing), "{segment:?}");
    assert_eq!(files(&disk, "lost"), Vec::<PathBuf>::new());
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

/// Any of the directories, or all from one on.
#[test]
fn a_start_that_cannot_sync_its_directories_serves_reads_and_changes_nothing() {
    for (skip, count) in (0..12).flat_map(|skip| [(skip, Some(1)), (skip, None)]) {
        let (disk, mut written) = filled();
        leave_half_written(&disk);
        let before = (disk.paths(), disk.used_bytes());
        disk.fail(DiskOperation::SyncDir, skip, count);
        let mut node = Node::open(&disk, 1).unwrap();
        assert_eq!(node.machine.damages, [], "{skip} {count:?}");
        assert_eq!(missing(&mut node, &written), 0, "{skip} {count:?}");
        assert!(node.shards[0].is_poisoned(), "{skip} {count:?}");
        let refused = node.offer(key(1, 9), support::APPEND, &[], b"refused");
        assert_eq!(refused, Err(AppendError::Poisoned));
        let is_idle = node.shards[0].poll_work().is_none() && node.shards[0].poll_sync().is_none();
        assert!(is_idle, "{skip} {count:?}");
        drop(node);
        let tmp = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tmp");
        let kept = |paths: Vec<PathBuf>| paths.into_iter().filter(|path| !tmp(path)).collect();
        let (paths, after): (Vec<_>, Vec<_>) = (kept(before.0), kept(disk.paths()));
        assert_eq!((after, disk.used_bytes()), (paths, before.1), "{skip} {count:?}");
        disk.fail_nothing();
        let mut node = Node::open(&disk, 1).unwrap();
        append(&mut node, &mut written, key(1, 9), 1);
        node.commit().unwrap();
        node.work().unwrap();
        assert_eq!(missing(&mut node, &written), 0, "{skip} {count:?}");
    }
}

#[test]
fn a_chunk_that_cannot_be_opened_is_damage_of_it_alone() {
    let (disk, _) = filled();
    let before = files(&disk, "chunk").len();
    assert!(before > 1);
    // The two copies of `FORMAT` and a checkpoint are opened first, and the first chunk after them: twice.
    disk.fail(DiskOperation::Open, 3, 2);
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

/// What was written behind a batch, or on behalf of it.
#[derive(Debug, Clone, Copy)]
enum Behind {
    Mark,
    Batch,
    /// The mark of the next start: its process was killed before.
    Start,
}

/// A batch of so many entries with so much data each, for a stream each, in a WAL of one segment.
#[derive(Debug, Clone, Copy)]
struct Last {
    entries: u64,
    data_bytes: usize,
    behind: Behind,
}

/// The batch is behind one of one block.
const LAST: u64 = 4096;

impl Last {
    fn open(disk: &MemoryDisk) -> Node {
        let options = LogOptions {
            segment_bytes: 64 << 10,
            batch_bytes_max: 64 << 10,
            seal_bytes: 64 << 10,
            ..support::small()
        };
        Node::open_with(disk, 1, options).unwrap()
    }

    fn write(self) -> MemoryDisk {
        let disk = MemoryDisk::new();
        let mut node = Self::open(&disk);
        node.append(key(0, 999), b"first").unwrap();
        node.commit().unwrap();
        for number in 0..self.entries {
            node.append(Self::key(number), &self.data(number)).unwrap();
        }
        node.commit().unwrap();
        match self.behind {
            Behind::Mark => drop(node.stop()),
            Behind::Batch => {
                node.append(key(1, 999), b"behind").unwrap();
                node.commit().unwrap();
            }
            Behind::Start => {
                disk.kill_process();
                drop(Self::open(&disk));
            }
        }
        disk.kill_process();
        disk
    }

    fn key(number: u64) -> StreamKey {
        key((number % 3) as u16, number + 1)
    }

    fn data(self, number: u64) -> Vec<u8> {
        vec![number as u8 + 1; self.data_bytes]
    }

    fn used_bytes(self) -> u64 {
        64 * (1 + self.entries) + self.entries * self.data_bytes as u64
    }

    fn blocks(self) -> u64 {
        self.used_bytes().div_ceil(4096)
    }

    /// Whether an entry has nothing in a block but what is written elsewhere, too.
    fn is_out_of(self, block: u64, number: u64) -> bool {
        let end = self.blocks() * 4096;
        // The list of the batch in front lies behind the payload.
        let list_bytes = 48 + 12 + 4;
        let has_copy = self.used_bytes() + list_bytes + 64 * (1 + self.entries) <= end;
        let is_hit = |from: u64, bytes: u64| {
            bytes > 0 && from / 4096 <= block && block <= (from + bytes - 1) / 4096
        };
        let data = 64 * (1 + self.entries) + number * self.data_bytes as u64;
        let header_is_hit = is_hit(64 * (1 + number), 64) && (!has_copy || self.blocks() == 1);
        !header_is_hit && !is_hit(data, self.data_bytes as u64)
    }

    /// Opens the log; what was in the block is reported by stream and file, and the rest is there.
    fn check(self, disk: &MemoryDisk, block: u64) {
        let mut node = Self::open(disk);
        let wal = file(disk, "wal");
        for number in 0..self.entries {
            let (key, damages) = (Self::key(number), &node.machine.damages);
            let is_reported = damages.iter().any(|damage| {
                (damage.group, damage.stream) == (Some(key.group), Some(key.stream))
                    && damage.file == wal
                    && (LAST..LAST + self.blocks() * 4096).contains(&damage.position)
            });
            let is_there = node.read_all(key, 1 << 20).is_ok_and(|read| read == self.data(number));
            assert_ne!(is_there, is_reported, "{self:?}, block {block}: entry {number}");
            assert!(is_there || !self.is_out_of(block, number), "{self:?} {block}: {number}");
        }
        let is_named = |kind: &DamageKind| {
            let nameless = [DamageKind::BatchHeader, DamageKind::EntryHeader];
            !nameless.contains(kind) && *kind != DamageKind::EntriesMissing
        };
        let kinds = node.machine.kinds();
        assert!(kinds.iter().all(is_named), "{self:?}, block {block}: {kinds:?}");
        assert_eq!(node.read_all(key(0, 999), 10).unwrap(), b"first");
    }

    /// Loses each block in turn.
    fn survive(self) {
        for block in 0..self.blocks() {
            for is_garbage in [false, true] {
                let disk = self.write();
                let path = file(&disk, "wal");
                if is_garbage {
                    spoil_block(&disk, &path, LAST / 4096 + block);
                } else {
                    disk.make_unreadable(&path, LAST / 4096 + block);
                }
                self.check(&disk, block);
                // The indexes of what was lost are not given out again, and the loss stays known.
                let mut node = Self::open(&disk);
                let index = node.offer(key(2, 998), support::APPEND, &[], b"later").unwrap();
                node.commit().unwrap();
                assert!(index > EntryIndex::new(self.entries / 3), "{self:?}, block {block}");
                drop(node);
                disk.kill_process();
                self.check(&disk, block);
            }
        }
    }
}

#[test]
fn any_block_of_a_last_batch_may_be_lost_and_the_streams_that_it_hits_are_named() {
    for behind in [Behind::Mark, Behind::Batch, Behind::Start] {
        for entries in [1, 2, 3, 30, 31, 32, 62, 63, 64, 100, 150] {
            for data_bytes in [1, 50, 100] {
                Last { entries, data_bytes, behind }.survive();
            }
        }
        for data_bytes in [3800, 3890, 3892, 3920, 3967, 3968, 3969, 4000, 4032, 8000, 12_000] {
            Last { entries: 1, data_bytes, behind }.survive();
            Last { entries: 2, data_bytes, behind }.survive();
        }
    }
}

fn spoil_block(disk: &MemoryDisk, path: &Path, block: u64) {
    let wal = disk.open(path).unwrap();
    wal.write_at(&[0xa5; 4096], block * 4096).unwrap();
    wal.sync_data().unwrap();
}

/// Opens the log twice: the loss of the only append of a stream is reported by its name each time.
fn is_named_twice(disk: &MemoryDisk, key: StreamKey) -> bool {
    (0..2).all(|_| {
        let node = Last::open(disk);
        disk.kill_process();
        node.machine.damages.iter().any(|damage| {
            damage.kind == DamageKind::EntryPayload
                && (damage.group, damage.stream) == (Some(key.group), Some(key.stream))
        })
    })
}

#[test]
fn the_only_batch_of_the_oldest_segment_may_be_lost_and_its_streams_are_named() {
    let disk = MemoryDisk::new();
    let mut node = Last::open(&disk);
    node.append(key(1, 7), b"alone").unwrap();
    node.commit().unwrap();
    drop(node);
    disk.kill_process();
    // Writes its mark into the next segment.
    drop(Last::open(&disk));
    disk.kill_process();
    spoil_block(&disk, &file(&disk, "wal"), 0);
    assert!(is_named_twice(&disk, key(1, 7)));
}

#[test]
fn a_torn_batch_names_what_the_lost_one_before_it_held() {
    let disk = MemoryDisk::new();
    let mut node = Last::open(&disk);
    node.append(key(1, 7), b"acknowledged").unwrap();
    node.commit().unwrap();
    node.append(key(1, 8), &[1; 10_000]).unwrap();
    node.commit().unwrap();
    drop(node);
    disk.kill_process();
    let wal = file(&disk, "wal");
    // The second batch begins at block 1, and its list is in its last block.
    spoil_block(&disk, &wal, 2);
    spoil_block(&disk, &wal, 0);
    assert_eq!(Last::open(&disk).report.torn_tails.len(), 1);
    disk.kill_process();
    assert!(is_named_twice(&disk, key(1, 7)));
}
