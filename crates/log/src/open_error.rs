//! Why a data directory was not opened: whose it is, and what to do.

use crate::newer::NewerPlace;
use env::LockError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a data directory was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it.
    Locked(LockError),
    /// The directory holds other files: it is not ours to write into.
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// Neither copy of `FORMAT` is intact.
    FormatDamaged {
        /// The first of the two.
        file: PathBuf,
    },
    /// Both copies of `FORMAT` are intact and say different things.
    FormatsDiffer {
        /// The directory.
        dir: PathBuf,
    },
    /// A program of another version wrote it.
    Version {
        /// The directory.
        dir: PathBuf,
        /// Version of the directory.
        found: u16,
        /// The version that this program reads.
        known: u16,
    },
    /// It is another program's.
    Owner {
        /// The directory.
        dir: PathBuf,
        /// The program whose it is.
        application: String,
        /// What to do with it.
        advice: &'static str,
        /// The program that was to open it.
        asked: &'static str,
    },
    /// Its paths are placed by a rule that this program does not have.
    Placement {
        /// Rule of the directory.
        found: u8,
        /// The rule of this program.
        known: u8,
    },
    /// It was made with another number of groups.
    GroupCount {
        /// Groups of the directory.
        found: u16,
        /// Groups asked for.
        asked: u16,
    },
    /// It continues another history than it was asked for.
    Lineage {
        /// The directory.
        dir: PathBuf,
        /// The history of the directory.
        found: u64,
        /// The one that was asked for.
        asked: u64,
    },
    /// A newer version wrote something that this program does not know.
    Newer {
        /// The file.
        file: PathBuf,
        /// Position in it, in bytes.
        position: u64,
        /// What it is.
        what: String,
    },
    /// Its groups have replicas on other nodes, and it was opened alone; or the other way round.
    Replicas {
        /// The directory.
        dir: PathBuf,
        /// Whether there are replicas.
        found: bool,
    },
    /// The disk failed.
    Io {
        /// File or directory.
        path: PathBuf,
        /// What the disk said.
        error: io::Error,
    },
}

/// Attaches the path to an error of the disk.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    move |error| match NewerPlace::of(error) {
        Ok(newer) => newer.into(),
        Err(error) => OpenError::Io { path: path.to_owned(), error },
    }
}

impl From<NewerPlace> for OpenError {
    fn from(NewerPlace { file, position, what }: NewerPlace) -> Self {
        Self::Newer { file, position, what }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked(error @ LockError::Held { .. }) => {
                write!(f, "{error}; stop it or choose another data directory")
            }
            Self::Locked(error) => error.fmt(f),
            Self::Foreign { dir } => write!(
                f,
                "{} has files but no FORMAT, so it is not a Thalweg data directory; choose an \
                 empty one",
                dir.display()
            ),
            Self::FormatDamaged { file } => write!(
                f,
                "{} and its copy FORMAT.copy are damaged or missing; restore one of them from a \
                 backup of this data directory",
                file.display()
            ),
            Self::FormatsDiffer { dir } => write!(
                f,
                "FORMAT and FORMAT.copy in {} are of two directories; remove the one that was \
                 copied in",
                dir.display()
            ),
            Self::Version { dir, found, known } => write_version(f, dir, *found, *known),
            Self::Owner { dir, application, advice, asked } => write!(
                f,
                "{} belongs to {application}, not to {asked}; {advice}, or choose another \
                 directory",
                dir.display()
            ),
            Self::Placement { found, known } => write!(
                f,
                "the data directory places paths by rule {found}, this program by rule {known}; \
                 use the program that made it"
            ),
            Self::GroupCount { found, asked } => write!(
                f,
                "the data directory was made with {found} groups, asked for {asked}; the number \
                 is fixed, ask for {found}"
            ),
            Self::Lineage { dir, found, asked } => write!(
                f,
                "{} belongs to the cluster {found:016x}, not to {asked:016x}; choose an empty \
                 directory",
                dir.display()
            ),
            Self::Newer { file, position, what } => write!(
                f,
                "{} has {what} at byte {position}, which a newer version wrote; use the newer program",
                file.display()
            ),
            Self::Replicas { dir, found: true } => {
                write!(f, "{} is a member's of a cluster; start it with its peers", dir.display())
            }
            Self::Replicas { dir, found: false } => write!(
                f,
                "{} has streams of a node alone; a member begins with an empty directory",
                dir.display()
            ),
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

fn write_version(f: &mut fmt::Formatter<'_>, dir: &Path, found: u16, known: u16) -> fmt::Result {
    let dir = dir.display();
    if found > known {
        return write!(
            f,
            "{dir} has format version {found}, this program knows {known}; use the newer program"
        );
    }
    write!(
        f,
        "{dir} has format version {found}, from before the first release; this program reads version {known} only; \
         open it with the program that made it, or choose an empty directory"
    )
}
