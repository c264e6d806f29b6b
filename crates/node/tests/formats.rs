//! A data directory of an earlier run, with every kind of file, opened by this one.
//!
//! `testdata/directory.txt` holds its files as rows of hexadecimal digits; rows of zeroes are left
//! out. It never changes: a later format gets a directory of its own beside it, made in the same
//! manner, by [`dump`] of [`written`].

use env::{Disk, MemoryDisk};
use log::{LogOptions, OpenError};
use model::{ByteOffset, Timestamp};
use std::fmt::Write;
use std::path::Path;
use stream::{Append, Lifetime, Outcome, Producer, Refusal};
use thalweg_node::testing::{Process, create, create_for, fork_of, path, text};

const ROW_BYTES: usize = 32;

fn by_producer(seq: u64) -> Append {
    let producer = Some(Producer { id: "p".into(), epoch: 4, seq });
    Append { producer, ..text() }
}

fn try_open(disk: &MemoryDisk, small: u64) -> Result<Process, OpenError> {
    let options = LogOptions {
        group_count: 1,
        segment_bytes: 256 << 10,
        wal_bytes_max: 1 << 20,
        seal_bytes: small,
        checkpoint_bytes: small,
        ..LogOptions::default()
    };
    Process::try_open(disk, 1, options)
}

fn open(disk: &MemoryDisk, small: u64) -> Process {
    let process = try_open(disk, small).unwrap();
    assert_eq!(process.damages, [], "nothing is damaged");
    process
}

/// What a run of this version leaves behind: a part that is sealed and covered by a checkpoint, and a part that
/// is only in the log.
fn written() -> MemoryDisk {
    let (source, fork) = (path("text"), path("fork"));
    let mut process = open(&MemoryDisk::new(), 1);
    process.create(&source, "text/plain");
    process.append(&source, by_producer(0), b"sealed,");
    process.outcome(create_for(&path("sliding"), Lifetime::Ttl { seconds: 600 }));
    process.outcome(create(&fork, Some("text/plain"), Some(fork_of(&source, None, 0)), b""));
    process.wait_ms(0);
    let disk = process.kill();

    let mut process = open(&disk, 8 << 20);
    process.append(&source, by_producer(1), b"logged");
    process.append(&fork, by_producer(0), b"forked");
    let close = Append { stream_seq: Some("s".into()), close: true, ..by_producer(1) };
    process.append(&fork, close, b"!");
    process.delete(&source);
    process.outcome(create_for(&path("new"), Lifetime::ExpiresAt(Timestamp::new(9_000))));
    process.kill()
}

fn dump(disk: &MemoryDisk) -> String {
    let mut text = String::new();
    for path in disk.paths() {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        writeln!(text, "{} {}", path.display(), bytes.len()).unwrap();
        for (number, row) in bytes.chunks(ROW_BYTES).enumerate() {
            if row.iter().any(|byte| *byte != 0) {
                let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "{:x} {hex}", number * ROW_BYTES).unwrap();
            }
        }
    }
    text
}

fn restored(dump: &str) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut file = None;
    for line in dump.lines() {
        let (name, value) = line.split_once(' ').unwrap();
        if name.starts_with('/') {
            let path = Path::new(name);
            disk.create_dir_all(path.parent().unwrap()).unwrap();
            let created = disk.create(path).unwrap();
            created.write_zeroes(0, value.parse().unwrap()).unwrap();
            file = Some(created);
        } else {
            let digits = |at| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
            let row: Vec<u8> = (0..value.len()).step_by(2).map(digits).collect();
            let position = u64::from_str_radix(name, 16).unwrap();
            file.as_ref().unwrap().write_at(&row, position).unwrap();
        }
    }
    disk
}

/// Opens the directory and looks at everything in it.
fn check(disk: &MemoryDisk) {
    let mut process = open(disk, 8 << 20);
    let [fork, sliding, new] = ["fork", "sliding", "new"].map(path);
    assert_eq!(process.bytes(&fork), b"sealed,forked!");
    assert!(process.head(&fork).1.closed);
    let repeat = process.append(&fork, by_producer(0), b"forked");
    assert!(matches!(repeat, Outcome::Appended(accepted) if accepted.duplicate));
    let source = process.delete(&path("text"));
    assert_eq!(source, Outcome::Refused(Refusal::Gone), "the fork needs it");
    assert_eq!(process.head(&sliding).1.lifetime, Lifetime::Ttl { seconds: 600 });
    let until = Lifetime::ExpiresAt(Timestamp::new(9_000));
    assert_eq!(process.head(&new).1.lifetime, until);
    process.append(&sliding, by_producer(0), b"on and on");
    assert_eq!(process.bytes(&sliding), b"on and on");
    assert_eq!(process.head(&sliding).1.tail, ByteOffset::new(9));
}

#[test]
fn directories_of_before_the_first_release_are_refused_whole() {
    let first = include_str!("../testdata/directory-1.txt");
    let second = include_str!("../testdata/directory-2.txt");
    for (version, dumped) in [(1, first), (2, second)] {
        let disk = restored(dumped);
        let before = dump(&disk).replace("/data/LOCK 0\n", "");
        let refused = try_open(&disk, 1).unwrap_err();
        let is_told =
            matches!(refused, OpenError::Version { found, known: 5, .. } if found == version);
        assert!(is_told, "{refused}");
        let after = dump(&disk).replace("/data/LOCK 0\n", "");
        assert_eq!(after, before, "nothing was written");
    }
}

#[test]
fn a_data_directory_of_an_earlier_run_opens() {
    let dump = include_str!("../testdata/directory.txt");
    for extension in [".wal", ".chunk", ".ckpt", "FORMAT"] {
        assert!(dump.contains(extension), "the directory has no {extension} file");
    }
    check(&restored(dump));
}

#[test]
fn what_is_written_now_dumps_and_opens_alike() {
    let written = written();
    check(&restored(&dump(&written)));
    check(&written);
}
