//! What recovery found damaged is answered so, and nothing else is.

use env::{Disk, MemoryDisk};
use log::LogOptions;
use model::{ByteOffset, ReadFrom, StreamPath};
use std::path::{Path, PathBuf};
use stream::{CommandKind, Outcome, Refusal};
use thalweg_node::testing::{self, Process, create, fork_of, options, path_in, text};
use thalweg_node::{Failure, ReadRequest, Reply, Request, ShardCore};

/// Inverts a bit `back` bytes before the only place of `data` in the log.
fn flip_before(disk: &MemoryDisk, data: &[u8], back: usize) {
    let wal = disk.paths().into_iter().filter(|path| path.starts_with("/data/wal"));
    for path in wal {
        let mut bytes = vec![0; 64 << 10];
        disk.open(&path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        if let Some(position) = bytes.windows(data.len()).position(|window| window == data) {
            return disk.flip_bit(&path, (position - back) as u64 * 8);
        }
    }
    panic!("no segment holds the data");
}

/// Opens the directory so many times, each time after a kill.
fn in_lives(disk: &MemoryDisk, count: usize, mut check: impl FnMut(&mut Process)) {
    for _ in 0..count {
        let mut process = Process::open(disk, 2);
        check(&mut process);
        process.kill();
    }
}

/// Two creations of one stream that come together, both logged: the second is refused.
fn create_twice(process: &mut Process, path: &StreamPath) {
    for _ in 0..2 {
        process.offer(create(path, Some("text/plain"), None, b""));
    }
    process.settle();
    process.replies.clear();
}

#[test]
fn a_stream_that_lost_a_command_answers_damaged_until_it_is_deleted() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (hit, other) = (path_in(0, "hit"), path_in(0, "other"));
    process.with_text(&hit, b"the first");
    process.with_text(&other, b"the other");
    process.append(&hit, text(), b"the second");
    process.append(&other, text(), b"!");
    process.kill();
    // The command is written before its data.
    flip_before(&disk, b"the first", 2);
    let mut process = Process::open(&disk, 2);
    assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
    assert_eq!(process.bytes(&other), b"the other!");
    assert_eq!(process.delete(&hit), Outcome::Deleted);
    assert_eq!(process.refusal(&hit), Some(Refusal::NotFound));
}

#[test]
fn a_group_that_lost_its_last_entry_keeps_working() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 1);
    let (hit, other) = (path_in(0, "hit"), path_in(1, "other"));
    process.with_text(&hit, b"the first");
    process.append(&hit, text(), b"the last");
    // A later batch vouches for the one before.
    process.with_text(&other, b"the other");
    process.kill();
    flip_before(&disk, b"the last", 2);
    let mut process = Process::open(&disk, 1);
    assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
    let new = path_in(0, "new");
    process.with_text(&new, b"after the damage");
    process.kill();
    let process = &mut Process::open(&disk, 1);
    assert_eq!(process.bytes(&new), b"after the damage");
    assert_eq!(process.bytes(&other), b"the other");
}

#[test]
fn a_fork_of_a_stream_whose_creation_was_lost_is_damaged_and_not_missing() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    process.with_text(&source, b"abc");
    process.fork(&fork, fork_of(&source, None, 0));
    process.append(&fork, text(), b"own");
    process.kill();
    flip_before(&disk, source.as_str().as_bytes(), 0);
    in_lives(&disk, 2, |process| {
        assert_eq!(process.refusal(&source), Some(Refusal::Damaged));
        let read = ReadRequest { boundary_bytes: 8, ..read_from(&fork, ReadFrom::Begin) };
        let reply = process.ask(Request::Read(read));
        assert!(matches!(reply, Reply::Failed(Failure::Damaged { .. })), "{reply:?}");
        assert_eq!(process.ends(&fork, 3, 8), (3, 6), "its own bytes are there");
    });
}

#[test]
fn a_fork_reads_what_a_chunk_holds_of_a_stream_whose_creation_was_lost() {
    let disk = MemoryDisk::new();
    let options = LogOptions {
        segment_bytes: 128 << 10,
        wal_bytes_max: 512 << 10,
        seal_bytes: 1 << 10,
        ..options()
    };
    let mut process = Process::open_with(&disk, 2, options.clone());
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    process.with_text(&source, &[b'x'; 5_000]);
    process.fork(&fork, fork_of(&source, None, 0));
    process.wait_ms(1_000);
    process.kill();
    flip_before(&disk, source.as_str().as_bytes(), 0);
    // From now on checkpoints record the loss, and its place in the log is written over.
    let options = LogOptions { checkpoint_bytes: 1 << 10, ..options };
    for life in 0..3 {
        let mut process = Process::open_with(&disk, 2, options.clone());
        assert_eq!(process.refusal(&source), Some(Refusal::Damaged), "life {life}");
        assert_eq!(process.bytes(&fork), [b'x'; 5_000], "life {life}");
        let other = path_in(0, "other");
        process.create(&other, "text/plain");
        for _ in 0..40 {
            process.append(&other, text(), &[b'y'; 30_000]);
            process.wait_ms(100);
        }
        process.kill();
    }
}

#[test]
fn damage_that_recovery_reported_is_not_reported_again_by_reads() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let hit = path_in(0, "hit");
    process.with_text(&hit, b"the first");
    process.append(&hit, text(), b"the last");
    process.kill();
    // The data itself.
    flip_before(&disk, b"the first", 0);
    let mut process = Process::open(&disk, 2);
    assert!(is_damaged(&mut process, &hit, 0));
    let told: Vec<_> = process.shards.iter_mut().flat_map(ShardCore::take_read_damages).collect();
    assert_eq!(told, []);
}

#[test]
fn a_lost_row_of_a_checkpoint_costs_one_stream() {
    let disk = MemoryDisk::new();
    let (hit, other) = (path_in(0, "hit"), path_in(0, "other"));
    let options = LogOptions { checkpoint_bytes: 1, ..options() };
    let mut process = Process::open_with(&disk, 2, options);
    process.with_text(&hit, b"lost");
    process.with_text(&other, b"there");
    process.wait_ms(1_000);
    process.kill();
    let checkpoints = disk.paths().into_iter();
    let checkpoint =
        checkpoints.filter(|path| path.starts_with("/data/checkpoints/00000")).max().unwrap();
    let owner_bytes = 5;
    for bit in [3, 4] {
        disk.flip_bit(&checkpoint, (64 + owner_bytes + 3) * 8 + bit);
    }
    in_lives(&disk, 2, |process| {
        assert_eq!(process.bytes(&other), b"there");
        assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
    });
}

fn read_from(path: &StreamPath, from: ReadFrom) -> ReadRequest {
    ReadRequest {
        path: path.clone(),
        from,
        boundary_bytes: 1 << 40,
        first_bytes_max: u64::MAX,
        records: None,
    }
}

fn is_damaged(process: &mut Process, path: &StreamPath, from: u64) -> bool {
    let from = ReadFrom::At(ByteOffset::new(from));
    match process.ask(Request::Read(read_from(path, from))) {
        Reply::Failed(Failure::Damaged { .. }) => true,
        Reply::Read(_) => false,
        other => panic!("a read was answered by {other:?}"),
    }
}

#[test]
fn a_fork_does_not_read_bytes_that_were_placed_behind_a_lost_append() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    process.with_text(&source, b"the first");
    process.append(&source, text(), b"the second");
    process.fork(&fork, fork_of(&source, None, 0));
    process.kill();
    flip_before(&disk, b"the first", 2);
    in_lives(&disk, 2, |process| {
        assert_eq!(process.refusal(&source), Some(Refusal::Damaged));
        assert!(is_damaged(process, &fork, 0));
        assert!(is_damaged(process, &fork, 9));
    });
}

#[test]
fn a_lost_creation_is_reported_at_its_path_alone_until_it_is_deleted() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (hit, never) = (path_in(0, "hit"), path_in(0, "never"));
    process.with_text(&hit, b"text");
    process.kill();
    flip_before(&disk, hit.as_str().as_bytes(), 0);
    in_lives(&disk, 2, |process| {
        assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
        assert_eq!(process.refusal(&never), Some(Refusal::NotFound));
        let again = process.create(&hit, "text/plain");
        assert_eq!(again, Outcome::Refused(Refusal::Damaged));
    });
    let mut process = Process::open(&disk, 2);
    assert_eq!(process.delete(&hit), Outcome::Deleted);
    process.with_text(&hit, b"new");
    process.kill();
    assert_eq!(Process::open(&disk, 2).bytes(&hit), b"new");
}

#[test]
fn a_creation_that_came_with_a_lost_one_does_not_take_its_place() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let hit = path_in(0, "hit");
    create_twice(&mut process, &hit);
    process.append(&hit, text(), b"acknowledged");
    process.kill();
    flip_before(&disk, hit.as_str().as_bytes(), 0);
    in_lives(&disk, 2, |process| {
        assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
    });
}

#[test]
fn a_lost_creation_that_was_refused_costs_nothing() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let path = path_in(0, "path");
    create_twice(&mut process, &path);
    assert_eq!(process.delete(&path), Outcome::Deleted);
    process.with_text(&path, b"made later");
    process.kill();
    flip_command(&disk, CommandKind::Create, (1, 3));
    in_lives(&disk, 2, |process| {
        assert_eq!(process.bytes(&path), b"made later");
    });
}

#[test]
fn a_stream_made_where_one_was_that_lost_its_last_reference_is_there() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    process.with_text(&source, b"the source");
    process.fork(&fork, fork_of(&source, None, 0));
    assert_eq!(process.delete(&source), Outcome::Deleted);
    assert_eq!(process.delete(&fork), Outcome::Deleted);
    process.with_text(&source, b"made later");
    process.kill();
    flip_command(&disk, CommandKind::Unpin, (0, 1));
    in_lives(&disk, 3, |process| {
        assert_eq!(process.bytes(&source), b"made later");
        process.wait_ms(1_000);
        assert_eq!(process.bytes(&source), b"made later");
    });
}

#[test]
fn a_lost_note_that_a_reference_was_given_back_costs_nothing() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    process.with_text(&source, b"the source");
    process.fork(&fork, fork_of(&source, None, 0));
    process.delete(&fork);
    process.wait_ms(1_000);
    process.kill();
    flip_command(&disk, CommandKind::UnpinDone, (0, 1));
    let mut process = Process::open(&disk, 2);
    process.wait_ms(1_000);
    assert_eq!(process.refusal(&path_in(1, "never")), Some(Refusal::NotFound));
    assert_eq!(process.bytes(&source), b"the source");
    assert_eq!(process.delete(&source), Outcome::Deleted);
    process.with_text(&source, b"made later");
}

/// Inverts a bit of command `number` of the `count` of this kind.
fn flip_command(disk: &MemoryDisk, kind: CommandKind, (number, count): (usize, usize)) {
    let commands = commands_of(disk, kind);
    assert_eq!(commands.len(), count);
    let (file, position) = &commands[number];
    disk.flip_bit(file, position * 8);
}

/// The places of the commands of this kind: file and position. docs/format/wal.md.
fn commands_of(disk: &MemoryDisk, kind: CommandKind) -> Vec<(PathBuf, u64)> {
    let number = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().unwrap()));
    let mut found = Vec::new();
    for path in disk.paths().into_iter().filter(|path| path.starts_with("/data/wal")) {
        let mut bytes = vec![0; 64 << 10];
        disk.open(&path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        for batch in (0..bytes.len()).step_by(4096) {
            let count = if bytes[batch..].starts_with(b"ThBa") { 8 } else { 0 };
            let headers = (1..=count).map(|number| batch + 64 * number);
            let first = number(&bytes[batch + 64 + 32..][..4]) as usize;
            for header in headers.filter(|header| header + 64 <= batch + first) {
                if bytes[header + 54] == kind as u8 {
                    found.push((path.clone(), batch as u64 + number(&bytes[header + 32..][..4])));
                }
            }
        }
    }
    found
}

/// A text that is in a chunk alone, its WAL segment being used again, and that chunk.
fn sealed(path: &StreamPath) -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let options = LogOptions {
        segment_bytes: 64 << 10,
        wal_bytes_max: 256 << 10,
        seal_bytes: 1 << 10,
        checkpoint_bytes: 1 << 10,
        ..options()
    };
    let mut process = Process::open_with(&disk, 2, options);
    process.with_text(path, &[b'x'; 5_000]);
    let other = path_in(0, "other");
    process.create(&other, "text/plain");
    for _ in 0..20 {
        process.append(&other, text(), &[b'y'; 30_000]);
        process.wait_ms(100);
    }
    // Merges wait for a quiet log.
    (0..20).for_each(|_| process.wait_ms(100));
    process.kill();
    let places = places_of(&disk, "/data/chunks/00000", &[b'x'; 100]);
    let (chunk, _) = places.into_iter().next().expect("it is sealed");
    (disk, chunk)
}

/// Both copies of the page of rows of a small chunk, and its length: docs/format/chunk.md.
fn page_of_rows(disk: &MemoryDisk, chunk: &Path) -> ([u64; 2], u64) {
    let mut header = [0; 128];
    disk.open(chunk).unwrap().read_exact_at(&mut header, 0).unwrap();
    let content_end = u64::from_le_bytes(header[56..64].try_into().unwrap());
    let page_bytes = u16::from_le_bytes([header[112], header[113]]);
    assert!(page_bytes < 4096, "few rows are in short pages");
    ([128, content_end.next_multiple_of(64)], page_bytes.into())
}

#[test]
fn a_sub_offset_in_a_source_whose_rows_were_lost_is_damaged_and_not_missing() {
    let (source, fork) = (path_in(0, "source"), path_in(1, "fork"));
    let (disk, chunk) = sealed(&source);
    let (pages, page_bytes) = page_of_rows(&disk, &chunk);
    let flip_in_both =
        |byte| pages.iter().for_each(|page| disk.flip_bit(&chunk, (page + byte) * 8));
    let mut damaged = 0;
    for byte in (0..page_bytes).step_by(9) {
        flip_in_both(byte);
        let mut process = Process::open(&disk, 2);
        let reply = process.ask(create(&fork, None, Some(fork_of(&source, Some(0), 7)), b""));
        match reply {
            Reply::Failed(Failure::Damaged { .. }) => damaged += 1,
            other => panic!("byte {byte}: {other:?}"),
        }
        process.kill();
        flip_in_both(byte);
    }
    assert_eq!(damaged, page_bytes.div_ceil(9), "each flip costs the page");
}

#[test]
fn a_read_by_time_does_not_pass_over_what_is_lost() {
    let hit = path_in(0, "hit");
    let (disk, chunk) = sealed(&hit);
    let mut process = Process::open(&disk, 2);
    process.wait_ms(3_600_000);
    let later = process.now.wall.get();
    process.append(&hit, text(), b"later");
    let starts = |process: &mut Process| {
        [0, later, later + 3_600_000].map(|time| {
            let reply = process.ask(Request::Read(read_from(&hit, ReadFrom::Time(time))));
            match reply {
                Reply::Read(read) => Some(read.start.get()),
                Reply::Failed(Failure::Damaged { .. }) => None,
                other => panic!("a read was answered by {other:?}"),
            }
        })
    };
    assert_eq!(starts(&mut process), [Some(0), Some(5_000), Some(5_005)]);
    process.kill();
    let (pages, _) = page_of_rows(&disk, &chunk);
    pages.iter().for_each(|page| disk.flip_bit(&chunk, page * 8));
    let mut process = Process::open(&disk, 2);
    // What the lost rows had may have come before the second time, or after it.
    assert_eq!(starts(&mut process), [None, None, Some(5_005)]);
}

/// The places of a text in the files below `dir`: file and position.
fn places_of(disk: &MemoryDisk, dir: &str, text: &[u8]) -> Vec<(PathBuf, u64)> {
    let mut places = Vec::new();
    for path in disk.paths().into_iter().filter(|path| path.starts_with(dir)) {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let found = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text);
        places.extend(found.map(|(position, _)| (path.clone(), position as u64)));
    }
    places
}

/// Each stream of a chain forks the one before and has a byte of its own. All but the last have then
/// lost an entry, so that a read of the last asks the owner of each byte whether it is intact.
fn damaged_chain(disk: &MemoryDisk) -> StreamPath {
    let options = LogOptions { wal_bytes_max: 16 << 20, ..options() };
    let mut process = Process::open_with(disk, 1, options);
    let depth = model::limits::FORK_DEPTH_MAX;
    let link = |number| path_in(u16::from(number == depth), &format!("link-{number}-"));
    process.with_text(&link(0), b"x");
    for number in 1..=depth {
        process.fork(&link(number), fork_of(&link(number - 1), None, 0));
        process.append(&link(number), text(), b"x");
    }
    let beyond = process.fork(&path_in(0, "beyond"), fork_of(&link(depth), None, 0));
    assert_eq!(beyond, Outcome::Refused(Refusal::ForkDepth));
    for number in 0..depth {
        process.offer(testing::append(&link(number), b"what is lost"));
    }
    process.settle();
    process.replies.clear();
    // A later batch vouches for the one before.
    process.append(&link(depth), text(), b"y");
    process.kill();
    let lost = places_of(disk, "/data/wal", b"what is lost");
    assert_eq!(lost.len(), depth);
    for (file, position) in lost {
        // The command is written before its data.
        disk.flip_bit(&file, (position - 2) * 8);
    }
    link(depth)
}

#[test]
fn a_read_through_the_longest_chain_of_forks_takes_no_more_stack_than_another() {
    let disk = MemoryDisk::new();
    let last = damaged_chain(&disk);
    let mut process = Process::open(&disk, 1);
    assert_eq!(process.refusal(&path_in(0, "link-7-")), Some(Refusal::Damaged));
    let ends = env::run_on_stack(128 << 10, move || process.ends(&last, 0, 1 << 40));
    assert_eq!(ends, (0, model::limits::FORK_DEPTH_MAX as u64 + 2));
}
