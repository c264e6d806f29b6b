//! `FORMAT` and `FORMAT.copy`: whose directory it is, and the numbers that everything in it depends on.
//!
//! # Why
//! The store id seeds every checksum and the group count places every path: without them nothing in
//! the directory can be read. So there are two copies, in two files. A directory of another program
//! would open without an error and lose its data, because the log knows nothing of commands: so the
//! file names the owner.
//!
//! # Invariants
//! - Both files hold the same bytes. They are written once, aside, synced and renamed, the copy first:
//!   a directory with `FORMAT` has had both.
//! - One intact copy is enough to open. Nothing repairs the other one: the start reports it.
//!
//! # Format
//! `docs/format/data-directory.md`.

use crate::codec::{bytes_at, header_is_sealed, put, seal_header, u16_at, u64_at};
use crate::damage::{Damage, DamageKind};
use crate::newer::NewerVersion;
use crate::open_error::{OpenError, at};
use crate::paths::remove_if_there;
use crate::unreadable::{cannot_open, open_around, read_around};
use env::Disk;
use model::StreamPath;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub(crate) const FORMAT_NAME: &str = "FORMAT";
pub(crate) const COPY_NAME: &str = "FORMAT.copy";
pub(crate) const WRITING_NAME: &str = "FORMAT.tmp";

const FORMAT_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"THALWEG\n";
const VERSION: u16 = 5;
/// Bytes that are zero.
const SPARE: [Range<usize>; 2] = [22..24, 56..60];
/// Version 1 had 32 bytes and one file.
const OLD_FORMAT_BYTES: usize = 32;
const APPLICATION_BYTES: usize = 24;

/// The program whose commands and checkpoints a directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Name of the program in ASCII, at most 24 bytes, for people.
    pub application: &'static str,
    /// Number of the directory kind, from the register in `docs/format/data-directory.md`.
    pub kind: u8,
    /// Number of the rule that gives a path its group.
    pub placement: u8,
}

impl Owner {
    /// The shards of `thalweg serve`.
    pub const SERVER: Self =
        Self { application: "thalweg serve", kind: 0, placement: StreamPath::PLACEMENT_RULE };
    /// The embedded engine. It has one group, so every rule places alike.
    pub const ENGINE: Self = Self { application: "thalweg-engine", kind: 1, placement: 0 };

    /// How to open a directory of this kind.
    pub(crate) fn advice(kind: u8) -> &'static str {
        match kind {
            0 => "start `thalweg serve` on it",
            1 => "open it with the crate thalweg-engine",
            _ => "open it with that program",
        }
    }
}

/// What `FORMAT` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) group_count: u16,
    /// Random: seeds every header checksum, so that files of another store are never taken.
    pub(crate) store: u64,
    pub(crate) placement: u8,
    pub(crate) kind: u8,
    /// Store id of the directory that this one continues; its own if it continues none.
    pub(crate) lineage: u64,
    application: [u8; APPLICATION_BYTES],
}

impl Format {
    /// The format of a directory that continues `lineage`, or no other one.
    ///
    /// # Panics
    /// If the owner's name is not ASCII or too long.
    pub(crate) fn new(owner: Owner, group_count: u16, store: u64, lineage: Option<u64>) -> Self {
        let name = owner.application.as_bytes();
        assert!(name.is_ascii() && name.len() <= APPLICATION_BYTES, "a short ASCII name");
        let mut application = [0; APPLICATION_BYTES];
        put(&mut application, 0, name);
        let Owner { kind, placement, .. } = owner;
        let lineage = lineage.unwrap_or(store);
        Self { group_count, store, placement, kind, lineage, application }
    }

    /// Name of the program, as far as it can be printed.
    pub(crate) fn application(&self) -> String {
        let name =
            self.application.iter().take_while(|byte| byte.is_ascii_graphic() || **byte == b' ');
        name.map(|byte| char::from(*byte)).collect()
    }

    fn encode(self) -> [u8; FORMAT_BYTES] {
        let mut out = [0; FORMAT_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 10, &self.group_count.to_le_bytes());
        put(&mut out, 12, &self.store.to_le_bytes());
        out[20] = self.placement;
        out[21] = self.kind;
        put(&mut out, 24, &self.lineage.to_le_bytes());
        put(&mut out, 32, &self.application);
        seal_header(&mut out, &[]);
        out
    }

    fn decode(bytes: &[u8; FORMAT_BYTES]) -> Self {
        Self {
            group_count: u16_at(bytes, 10),
            store: u64_at(bytes, 12),
            placement: bytes[20],
            kind: bytes[21],
            lineage: u64_at(bytes, 24),
            application: bytes_at(bytes, 32),
        }
    }
}

/// What one copy says.
#[derive(Debug)]
enum Copy {
    /// All its bytes, because copies that differ in spare bytes differ.
    Intact([u8; FORMAT_BYTES]),
    /// Intact, of a version that is not read: an older or a newer one.
    Version(u16),
    /// Intact, with a spare byte that only a newer version writes.
    Newer(usize),
    Damaged,
    Missing,
    Unreadable(io::Error),
}

impl Copy {
    fn read(disk: &dyn Disk, path: &Path) -> Self {
        let mut bytes = [0; FORMAT_BYTES];
        let read = open_around(disk, path).and_then(|file| {
            let file = file.ok_or_else(|| cannot_open(path))?;
            let length = file.len()?.min(FORMAT_BYTES as u64) as usize;
            read_around(&*file, &mut bytes[..length], 0).map(|_| length)
        });
        match read {
            Ok(length) => Self::parse(&bytes, length),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Unreadable(error),
        }
    }

    fn parse(bytes: &[u8; FORMAT_BYTES], length: usize) -> Self {
        let version = u16_at(bytes, 8);
        let is_sealed = |count: usize| length >= count && header_is_sealed(&bytes[..count], &[]);
        if bytes[..MAGIC.len()] != MAGIC {
            Self::Damaged
        } else if is_sealed(FORMAT_BYTES) && version == VERSION {
            match SPARE.into_iter().flatten().find(|at| bytes[*at] != 0) {
                None => Self::Intact(*bytes),
                Some(at) => Self::Newer(at),
            }
        } else if is_sealed(FORMAT_BYTES) || is_sealed(OLD_FORMAT_BYTES) && version < 2 {
            Self::Version(version)
        } else {
            Self::Damaged
        }
    }

    /// The version it tells, if it is intact.
    fn version(&self) -> Option<u16> {
        match self {
            Self::Intact(_) => Some(VERSION),
            Self::Version(version) => Some(*version),
            Self::Newer(_) | Self::Damaged | Self::Missing | Self::Unreadable(_) => None,
        }
    }
}

/// Reads both copies; the format, and the copy that is lost if one is.
///
/// # Errors
/// [`OpenError`] if neither is intact, they differ, or the version is not this program's.
pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<(Format, Option<Damage>), OpenError> {
    let paths = [dir.join(FORMAT_NAME), dir.join(COPY_NAME)];
    let lost = |path: &PathBuf| Some(Damage::at(DamageKind::FormatCopy, path, 0));
    let differ = || OpenError::FormatsDiffer { dir: dir.to_owned() };
    match [Copy::read(disk, &paths[0]), Copy::read(disk, &paths[1])] {
        [Copy::Intact(one), Copy::Intact(other)] if one == other => {
            Ok((Format::decode(&one), None))
        }
        [Copy::Newer(at), _] => Err(newer_byte(&paths[0], at)),
        [_, Copy::Newer(at)] => Err(newer_byte(&paths[1], at)),
        [one, other] => match (one.version(), other.version()) {
            (Some(VERSION), Some(_)) | (Some(_), Some(VERSION)) => Err(differ()),
            (Some(found), _) | (None, Some(found)) if found != VERSION => {
                Err(OpenError::Version { dir: dir.to_owned(), found, known: VERSION })
            }
            _ => match (one, other) {
                (Copy::Intact(bytes), _) => Ok((Format::decode(&bytes), lost(&paths[1]))),
                (_, Copy::Intact(bytes)) => Ok((Format::decode(&bytes), lost(&paths[0]))),
                (Copy::Unreadable(error), Copy::Unreadable(_) | Copy::Missing)
                | (Copy::Missing, Copy::Unreadable(error)) => Err(at(&paths[0])(error)),
                _ => Err(OpenError::FormatDamaged { file: paths[0].clone() }),
            },
        },
    }
}

fn newer_byte(file: &Path, at: usize) -> OpenError {
    NewerVersion::new("a spare byte").at(file, at as u64).into()
}

/// Writes both copies, the one that makes the directory ours last.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn create(disk: &dyn Disk, dir: &Path, format: Format) -> Result<(), OpenError> {
    let writing = dir.join(WRITING_NAME);
    for name in [COPY_NAME, FORMAT_NAME] {
        remove_if_there(disk, &writing).map_err(at(&writing))?;
        let file = disk.create(&writing).map_err(at(&writing))?;
        file.write_at(&format.encode(), 0).map_err(at(&writing))?;
        file.sync_all().map_err(at(&writing))?;
        disk.rename(&writing, &dir.join(name)).map_err(at(dir))?;
        disk.sync_dir(dir).map_err(at(dir))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_format_file_never_change() {
        let format = Format::new(Owner::SERVER, 64, 77, Some(78));
        let format = Format { placement: 3, ..format };
        assert_eq!(format.encode(), *include_bytes!("../testdata/format.golden"));
        assert_eq!(Format::decode(&format.encode()), format);
    }
}
