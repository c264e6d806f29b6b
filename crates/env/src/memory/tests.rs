//! What a crash of a disk in memory loses and keeps.

use super::*;

fn disk_with(bytes: &[u8], synced: bool) -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let path = PathBuf::from("/d/f");
    disk.create_dir_all(Path::new("/d")).unwrap();
    for dir in ["", "/"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    let file = disk.create(&path).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(bytes, 0).unwrap();
    if synced {
        file.sync_data().unwrap();
    }
    (disk, path)
}

fn read(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn synced_bytes_survive_every_crash() {
    for seed in 0..50 {
        let (disk, path) = disk_with(&[7; 2000], true);
        disk.open(&path).unwrap().write_at(&[8; 600], 100).unwrap();
        disk.crash(&mut SeededRandom::new(seed));
        let bytes = read(&disk, &path);
        assert_eq!(bytes[1024..], [7; 976]);
    }
}

#[test]
fn unsynced_sectors_are_kept_dropped_and_torn() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let (disk, path) = disk_with(&[0; 1024], true);
        disk.open(&path).unwrap().write_at(&[1; 1024], 0).unwrap();
        disk.crash(&mut SeededRandom::new(seed));
        let bytes = read(&disk, &path);
        seen.insert((bytes[0], bytes[600]));
    }
    assert_eq!(seen.len(), 4, "old-old, old-new, new-old and new-new all happen");
}

#[test]
fn a_name_without_a_directory_sync_may_be_lost() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let (disk, path) = disk_with(b"x", true);
        let to = PathBuf::from("/d/g");
        disk.rename(&path, &to).unwrap();
        disk.crash(&mut SeededRandom::new(seed));
        let paths = disk.paths();
        assert_eq!(paths.len(), 1, "a rename neither doubles nor loses a file");
        outcomes.insert(paths);
    }
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn a_full_disk_and_a_failed_sync_are_errors() {
    let (disk, path) = disk_with(b"x", true);
    disk.set_capacity(10);
    let file = disk.open(&path).unwrap();
    assert_eq!(file.write_at(&[0; 11], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.fail_next_sync(2);
    file.sync_data().unwrap();
    assert!(file.sync_data().is_err());
}

#[test]
fn handles_and_locks_die_with_the_process() {
    let (disk, path) = disk_with(b"x", true);
    let lock = disk.lock_dir(Path::new("/d/LOCK")).unwrap();
    assert!(disk.lock_dir(Path::new("/d/LOCK")).is_err());
    let file = disk.open(&path).unwrap();
    disk.crash(&mut SeededRandom::new(1));
    assert!(file.len().is_err());
    let again = disk.lock_dir(Path::new("/d/LOCK")).unwrap();
    drop(lock);
    assert!(disk.lock_dir(Path::new("/d/LOCK")).is_err(), "an old life frees no new lock");
    drop(again);
}

#[test]
fn nothing_works_after_the_power_is_off() {
    let (disk, path) = disk_with(b"x", false);
    let file = disk.open(&path).unwrap();
    disk.power_off_after(1);
    file.write_at(b"y", 0).unwrap();
    assert!(file.sync_data().is_err());
    assert!(disk.open(&path).is_err());
    disk.crash(&mut SeededRandom::new(3));
    assert!(disk.open(&path).is_ok());
}

#[test]
fn an_image_has_what_was_synced_and_is_a_disk_of_its_own() {
    let (disk, path) = disk_with(&[7; 1024], true);
    disk.open(&path).unwrap().write_at(&[8; 1024], 0).unwrap();
    disk.create(Path::new("/d/unsynced")).unwrap();
    let image = disk.durable_image();
    assert_eq!(read(&image, &path), [7; 1024]);
    assert_eq!(image.paths(), std::slice::from_ref(&path));
    image.open(&path).unwrap().write_at(&[9; 1024], 0).unwrap();
    assert_eq!(read(&disk, &path), [8; 1024]);
}
