//! `CLUSTER` and `CLUSTER.copy`: what makes a data directory a member of a cluster.
//!
//! # Why two
//! A node that forgot that it is a member would serve its old state as a cluster of one. So the file has a copy, as
//! `FORMAT` has, and a directory with both of them damaged is not opened.
//!
//! # Invariants
//! - Both are written aside, synced and renamed, the copy first. A crash leaves each of them old or new.
//! - The newer of two intact ones counts. A start replaces both before it talks to any node. So a name that is not durable
//!   yet is believed by nobody else, and a damaged file is put right.
//!
//! # Format
//! `docs/format/cluster.md`.

use cluster::{MEMBERSHIP_BYTES_MAX, Membership, MembershipError};
use env::Disk;
use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "CLUSTER";
const COPY_NAME: &str = "CLUSTER.copy";
const WRITING_NAME: &str = "CLUSTER.tmp";

/// What a data directory says of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundMembership {
    /// The newer of its files.
    pub membership: Membership,
    /// The other one, if it is damaged or cannot be read.
    pub damaged: Option<PathBuf>,
}

/// Why it is not known to which cluster a data directory belongs.
#[derive(Debug)]
pub enum MembershipFileError {
    /// No copy is intact.
    Damaged {
        /// The first of the two.
        file: PathBuf,
    },
    /// A newer version wrote it.
    Newer {
        /// The file.
        file: PathBuf,
        /// Position in it, in bytes.
        position: usize,
    },
    /// Both are intact, and of two directories.
    Differ {
        /// The directory.
        dir: PathBuf,
    },
    /// The disk failed.
    Io {
        /// The file.
        file: PathBuf,
        /// What the disk said.
        error: io::Error,
    },
}

impl fmt::Display for MembershipFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { file } => write!(
                f,
                "{} and its copy CLUSTER.copy are damaged or missing, so nobody knows which node this is; restore one of \
                 them from a backup, or remove this node from its cluster and join again with an empty directory",
                file.display()
            ),
            Self::Newer { file, position } => write!(
                f,
                "{}: a newer version wrote what is at byte {position}; use the newer program",
                file.display()
            ),
            Self::Differ { dir } => write!(
                f,
                "CLUSTER and CLUSTER.copy in {} are of two directories; remove the one that was copied in",
                dir.display()
            ),
            Self::Io { file, error } => write!(f, "{}: {error}", file.display()),
        }
    }
}

impl std::error::Error for MembershipFileError {}

/// What one of the files says.
enum Copy {
    Intact(Membership),
    Newer(usize),
    Damaged,
    Missing,
}

/// Reads what `dir` says of its cluster; `None` if it is a cluster of one.
///
/// # Errors
/// [`MembershipFileError`]: each says what to do.
pub fn read_membership(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<Option<FoundMembership>, MembershipFileError> {
    let [file, copy] = [dir.join(NAME), dir.join(COPY_NAME)];
    let found = |membership, damaged| Ok(Some(FoundMembership { membership, damaged }));
    match (read_copy(disk, &file)?, read_copy(disk, &copy)?) {
        (Copy::Missing, Copy::Missing) => Ok(None),
        (Copy::Newer(position), _) => Err(MembershipFileError::Newer { file, position }),
        (_, Copy::Newer(position)) => Err(MembershipFileError::Newer { file: copy, position }),
        (Copy::Intact(one), Copy::Intact(other)) => match one.revision.cmp(&other.revision) {
            _ if (one.cluster, one.store) != (other.cluster, other.store) => {
                Err(MembershipFileError::Differ { dir: dir.to_owned() })
            }
            Ordering::Equal if one != other => {
                Err(MembershipFileError::Differ { dir: dir.to_owned() })
            }
            Ordering::Less => found(other, None),
            Ordering::Equal | Ordering::Greater => found(one, None),
        },
        (Copy::Intact(one), Copy::Damaged | Copy::Missing) => found(one, Some(copy)),
        // The first one of all is written copy first.
        (Copy::Missing, Copy::Intact(one)) => found(one, None),
        (Copy::Damaged, Copy::Intact(one)) => found(one, Some(file)),
        (Copy::Damaged, Copy::Damaged | Copy::Missing) | (Copy::Missing, Copy::Damaged) => {
            Err(MembershipFileError::Damaged { file })
        }
    }
}

fn read_copy(disk: &dyn Disk, path: &Path) -> Result<Copy, MembershipFileError> {
    let read = disk.open(path).and_then(|file| {
        let length = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(MEMBERSHIP_BYTES_MAX + 1)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    });
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Copy::Missing),
        Err(error) if env::is_unreadable(&error) => return Ok(Copy::Damaged),
        Err(error) => return Err(MembershipFileError::Io { file: path.to_owned(), error }),
    };
    Ok(match Membership::decode(&bytes) {
        Ok(membership) => Copy::Intact(membership),
        Err(MembershipError::Newer { position }) => Copy::Newer(position),
        Err(MembershipError::Damaged) => Copy::Damaged,
    })
}

/// Replaces what `dir` says of its cluster. Both files are durable when it returns; `revision` counts this.
///
/// # Errors
/// Any error of the underlying disk: then each of the two is old or new.
pub fn replace_membership(
    disk: &dyn Disk,
    dir: &Path,
    membership: &mut Membership,
) -> io::Result<()> {
    membership.revision += 1;
    let bytes = membership.encode();
    let writing = dir.join(WRITING_NAME);
    for name in [COPY_NAME, NAME] {
        match disk.remove(&writing) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(&writing)?;
        file.write_at(&bytes, 0)?;
        file.sync_all()?;
        disk.rename(&writing, &dir.join(name))?;
        disk.sync_dir(dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Member, MemberState};
    use env::{MemoryDisk, SeededRandom};

    const DIR: &str = "/data";

    fn membership(epoch: u64) -> Membership {
        let member = Member {
            store: 7,
            peer_address: "n1:4439".to_owned(),
            client_address: String::new(),
            state: MemberState::Active,
            version: 1,
            epoch,
        };
        Membership::first(7, 64, member)
    }

    fn read(disk: &MemoryDisk) -> Result<Option<FoundMembership>, MembershipFileError> {
        read_membership(disk, Path::new(DIR))
    }

    fn replace(disk: &MemoryDisk, membership: &mut Membership) -> io::Result<()> {
        replace_membership(disk, Path::new(DIR), membership)
    }

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    /// A directory that says what [`membership`] does.
    fn made(epoch: u64) -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.create_dir_all(Path::new(DIR)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        if epoch > 0 {
            replace(&disk, &mut membership(epoch)).unwrap();
        }
        disk
    }

    #[test]
    fn a_directory_without_the_file_is_a_cluster_of_one() {
        assert_eq!(read(&made(0)).unwrap(), None);
    }

    #[test]
    fn what_was_written_last_is_found() {
        let disk = made(1);
        let mut later = read(&disk).unwrap().unwrap().membership;
        assert_eq!((later.revision, later.epoch), (1, 1));
        later.epoch = 2;
        replace(&disk, &mut later).unwrap();
        let expected = FoundMembership { membership: later, damaged: None };
        assert_eq!(read(&disk).unwrap(), Some(expected));
        assert!(!disk.paths().contains(&path(WRITING_NAME)));
    }

    #[test]
    fn one_intact_file_is_enough_and_the_next_replacement_puts_the_other_right() {
        let damages: [fn(&MemoryDisk, &str); 3] = [
            |disk, name| disk.flip_bit(&path(name), 300),
            |disk, name| disk.open(&path(name)).unwrap().set_len(3).unwrap(),
            |disk, name| disk.remove(&path(name)).unwrap(),
        ];
        for (place, damage) in damages.into_iter().enumerate() {
            for name in [NAME, COPY_NAME] {
                let disk = made(1);
                damage(&disk, name);
                let found = read(&disk).unwrap().expect("one is enough");
                // A missing first one is what a first start leaves that was interrupted.
                let is_told = place < 2 || name == COPY_NAME;
                assert_eq!(found.damaged, is_told.then(|| path(name)));
                replace(&disk, &mut found.membership.clone()).unwrap();
                assert_eq!(read(&disk).unwrap().unwrap().damaged, None);
            }
        }
    }

    #[test]
    fn a_directory_that_has_lost_both_is_not_taken_for_a_cluster_of_one() {
        let disk = made(1);
        [NAME, COPY_NAME].iter().for_each(|name| disk.flip_bit(&path(name), 9));
        assert!(matches!(read(&disk), Err(MembershipFileError::Damaged { .. })));
        disk.remove(&path(NAME)).unwrap();
        assert!(matches!(read(&disk), Err(MembershipFileError::Damaged { .. })));
    }

    #[test]
    fn copies_of_two_directories_are_refused() {
        let disk = made(1);
        for change in
            [|other: &mut Membership| other.cluster = 8, |other: &mut Membership| other.epoch = 9]
        {
            let mut other = membership(1);
            change(&mut other);
            other.revision = 1;
            let file = disk.open(&path(COPY_NAME)).unwrap();
            file.write_at(&other.encode(), 0).unwrap();
            assert!(matches!(read(&disk), Err(MembershipFileError::Differ { .. })));
        }
    }

    #[test]
    fn power_loss_at_any_change_leaves_the_old_or_the_new_one_whole() {
        let mut was_new = false;
        for old in [0, 1] {
            for changes in 0..16 {
                for seed in 0..20 {
                    let disk = made(old);
                    disk.power_off_after(changes);
                    let mut new = membership(old + 1);
                    new.revision = old;
                    let is_done = replace(&disk, &mut new).is_ok();
                    disk.crash(&mut SeededRandom::new(seed));
                    disk.power_off_after(u64::MAX);
                    let found = read(&disk).unwrap();
                    let epoch = found.as_ref().map_or(0, |found| found.membership.epoch);
                    let damaged = found.and_then(|found| found.damaged);
                    assert_eq!(damaged, None, "{old}, {changes} changes, seed {seed}");
                    assert!(epoch == old || epoch == old + 1, "epoch {epoch}");
                    assert!(!is_done || epoch == old + 1, "what has returned stays");
                    was_new |= !is_done && epoch == old + 1;
                }
            }
        }
        assert!(was_new, "some crash came between the two files");
    }
}
