//! Whose directory it is: an engine opens its own and no other one.

mod disk;

use disk::{DIR, open, small, try_open};
use env::{Disk, MemoryDisk, SeededRandom};
use log::{DataDir, LogOptions, Owner};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thalweg_engine::{DamageKind, Durability, LogOpenError, OpenError};

/// A directory as another owner of a log makes it.
fn made_by(owner: Owner, group_count: u16) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let options = LogOptions { group_count, ..LogOptions::default() };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let dir = DataDir::open(shared, Path::new(DIR), options, owner, &mut SeededRandom::new(1));
    drop(dir.unwrap());
    disk
}

#[test]
fn the_directory_of_a_server_is_refused_in_words() {
    // One group, as an engine has: nothing but the owner tells them apart.
    for group_count in [1, 64] {
        let disk = made_by(Owner::SERVER, group_count);
        let files = disk.paths();
        let refused = try_open(&disk, small(Durability::Each)).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("belongs to thalweg serve, not to thalweg-engine"), "{said}");
        assert!(said.contains(DIR) && said.contains("start `thalweg serve` on it"), "{said}");
        assert_eq!(disk.paths(), files, "nothing is written");
    }
}

#[test]
fn a_directory_of_before_the_first_release_is_refused() {
    let disk = MemoryDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let format = disk.create(&Path::new(DIR).join("FORMAT")).unwrap();
    format.write_at(include_bytes!("../../log/testdata/format-1.golden"), 0).unwrap();
    let refused = try_open(&disk, small(Durability::Each)).unwrap_err();
    assert!(matches!(refused, OpenError::Log(LogOpenError::Version { found: 1, .. })), "{refused}");
}

#[test]
fn one_intact_copy_of_format_is_enough() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::Each);
    engine.append("s", b"entry").unwrap();
    drop(engine);
    disk.flip_bit(&Path::new(DIR).join("FORMAT"), 77);
    let engine = open(&disk, Durability::Each);
    assert_eq!(engine.tail("s"), 1);
    assert!(matches!(engine.damages(), [damage] if damage.kind == DamageKind::FormatCopy));
}

#[test]
fn an_engine_that_is_in_use_is_left_alone() {
    let disk = MemoryDisk::new();
    let engine = open(&disk, Durability::Periodic(Duration::from_secs(9)));
    engine.append("s", b"entry").unwrap();
    // Before the lock is held nothing of the log may be written, not even as it is.
    disk.fail_next_sync(1);
    let refused = try_open(&disk, small(Durability::Each)).unwrap_err();
    assert!(matches!(refused, OpenError::Log(LogOpenError::Locked(_))), "{refused}");
}
