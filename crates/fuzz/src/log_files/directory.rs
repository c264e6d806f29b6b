//! Small data directories, written once per process.

use super::owner::{APPEND, DIR, Owner, TRIM, key};
use env::{Disk, MemoryDisk, Random, SeededRandom};
use model::StreamKey;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const BASES: usize = 4;

/// The files of a closed log, and what was appended to it.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Per stream: the appends in order.
    pub(super) appends: BTreeMap<StreamKey, Vec<Vec<u8>>>,
}

/// How many shards to open the base of an input with.
pub(super) const fn shards(flags: u8) -> u16 {
    1 + (flags >> 6) as u16 % 3
}

impl Base {
    /// The base that the low bits of an input's first byte name.
    pub(super) fn of(flags: u8) -> &'static Self {
        static WRITTEN: OnceLock<Vec<Base>> = OnceLock::new();
        let all = WRITTEN.get_or_init(|| (0..BASES as u64).map(write).collect());
        &all[usize::from(flags & 0x3f) % BASES]
    }

    /// The bytes of `FORMAT`.
    pub(super) fn format(&self) -> &[u8] {
        &self.files[&Path::new(DIR).join("FORMAT")]
    }

    /// A disk with these files, each as `change` gives it back.
    pub(super) fn disk(&self, change: impl Fn(&Path, &[u8]) -> Vec<u8>) -> MemoryDisk {
        let files = self.files.iter().map(|(path, bytes)| (path.clone(), change(path, bytes)));
        disk_of(files)
    }
}

/// A disk with these files.
pub(super) fn disk_of(files: impl Iterator<Item = (PathBuf, Vec<u8>)>) -> MemoryDisk {
    let disk = MemoryDisk::new();
    for (path, bytes) in files {
        disk.create_dir_all(path.parent().expect("a file in a directory")).expect("room");
        disk.create(&path).expect("a free name").write_at(&bytes, 0).expect("room");
    }
    disk
}

/// The first base is all WAL. The second also has chunks and checkpoints, the third merged chunks and
/// the WALs of two shards. In the fourth one group is replicated.
fn write(number: u64) -> Base {
    let disk = MemoryDisk::new();
    let mut random = SeededRandom::new(number);
    let mut appends: BTreeMap<StreamKey, Vec<Vec<u8>>> = BTreeMap::new();
    let mut owner = Owner::open(&disk, 1 + (number / 2) as u16).expect("an empty disk");
    let is_replicated = number == 3;
    if is_replicated {
        owner.write(key(1, 1), APPEND, &[], b"of one voter");
        appends.entry(key(1, 1)).or_default().push(b"of one voter".to_vec());
        owner.replicate(key(1, 1).group);
    }
    for step in 0..30 + 60 * (number % 3) {
        let key = key(random.below(2) as u16, 1 + random.below(3));
        let mut data = vec![0; 1 + random.below(250) as usize];
        random.fill(&mut data);
        let command: &[u8] = if step % 3 == 0 { b"command" } else { &[] };
        owner.write(key, APPEND, command, &data);
        appends.entry(key).or_default().push(data);
        if is_replicated && step % 10 == 8 {
            owner.lose_two(self::key(1, 1));
        }
        if step % 5 == 4 {
            owner.commit();
        }
        if number > 0 && step % 40 == 25 {
            owner.checkpoint(key.group);
            owner.work();
        }
    }
    if number == 2 {
        owner.write(key(0, 9), APPEND, &[], b"trimmed");
        owner.write(key(0, 9), TRIM, &7u64.to_le_bytes(), &[]);
    }
    owner.close();
    let read = |path: PathBuf| {
        let file = disk.open(&path).expect("it is listed");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        (path, bytes)
    };
    let is_data = |path: &PathBuf| !path.ends_with("LOCK");
    Base { files: disk.paths().into_iter().filter(is_data).map(read).collect(), appends }
}
