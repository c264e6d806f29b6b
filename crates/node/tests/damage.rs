//! What recovery found damaged is answered so, and nothing else is.

mod support;

use env::{Disk, MemoryDisk};
use stream::{Outcome, Refusal};
use support::{Process, path_in, text};

/// Inverts a bit `back` bytes before the one place in the log where `data` stands.
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

#[test]
fn a_stream_that_lost_a_command_answers_damaged_until_it_is_deleted() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 2);
    let (hit, other) = (path_in(0, "hit"), path_in(0, "other"));
    process.with_text(&hit, b"the first");
    process.with_text(&other, b"the other");
    process.append(&hit, text(), b"the second");
    process.append(&other, text(), b"!");
    drop(process);
    disk.kill_process();
    // The command stands before its data.
    flip_before(&disk, b"the first", 2);
    let mut process = Process::open(&disk, 2);
    assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
    assert_eq!(process.bytes(&other), b"the other!");
    assert_eq!(process.delete(&hit), Outcome::Deleted);
    assert_eq!(process.refusal(&hit), Some(Refusal::NotFound));
}

#[test]
fn a_group_that_lost_its_last_entry_goes_on() {
    let disk = MemoryDisk::new();
    let mut process = Process::open(&disk, 1);
    let (hit, other) = (path_in(0, "hit"), path_in(1, "other"));
    process.with_text(&hit, b"the first");
    process.append(&hit, text(), b"the last");
    // A later batch vouches for the one before.
    process.with_text(&other, b"the other");
    drop(process);
    disk.kill_process();
    flip_before(&disk, b"the last", 2);
    let mut process = Process::open(&disk, 1);
    assert_eq!(process.refusal(&hit), Some(Refusal::Damaged));
    let new = path_in(0, "new");
    process.with_text(&new, b"after the damage");
    drop(process);
    disk.kill_process();
    let process = &mut Process::open(&disk, 1);
    assert_eq!(process.bytes(&new), b"after the damage");
    assert_eq!(process.bytes(&other), b"the other");
}
