//! What a newer version has written, and no other can have: under a right checksum, spare bytes that are not zero, or numbers that
//! this version does not know.
//!
//! # Why it refuses a start
//! A newer version gives spare bytes a meaning, for example that data is compressed. To pass over them would lose what
//! was acknowledged, or serve other bytes. Nothing is written before all of it was looked at.

use crate::codec::{header_is_sealed, u16_at};
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Something that a newer version wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewerVersion {
    /// What it is, for people.
    pub what: String,
}

impl NewerVersion {
    /// Names it.
    #[must_use]
    pub fn new(what: impl fmt::Display) -> Self {
        Self { what: what.to_string() }
    }

    /// Says where it is.
    pub(crate) fn at(self, file: &Path, position: u64) -> NewerPlace {
        NewerPlace { file: file.to_owned(), position, what: self.what }
    }
}

/// Where a newer version wrote something.
#[derive(Debug)]
pub(crate) struct NewerPlace {
    pub(crate) file: PathBuf,
    pub(crate) position: u64,
    pub(crate) what: String,
}

impl NewerPlace {
    /// The place that an error tells, if it is one.
    pub(crate) fn of(error: io::Error) -> Result<Self, io::Error> {
        error.downcast::<Self>()
    }
}

impl fmt::Display for NewerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, position, what } = self;
        write!(f, "{} at byte {position}: {what} of a newer version", file.display())
    }
}

impl Error for NewerPlace {}

impl From<NewerPlace> for io::Error {
    fn from(place: NewerPlace) -> Self {
        Self::other(place)
    }
}

/// Whether spare bytes are as this version writes them.
pub(crate) fn is_spare(header: &[u8], spare: Range<usize>) -> bool {
    header[spare].iter().all(|byte| *byte == 0)
}

/// What a newer version wrote into a header whose checksum is right, if it did. `version` is the number of the known
/// one, at bytes 4 and 5 if the header has one.
pub(crate) fn newer_in(
    header: &[u8],
    seed: &[u8],
    (version, spare): (Option<u16>, Range<usize>),
) -> Option<NewerVersion> {
    let found = version.filter(|known| u16_at(header, 4) > *known).map(|_| u16_at(header, 4));
    let first = spare.clone().find(|at| header[*at] != 0);
    if (found.is_none() && first.is_none()) || !header_is_sealed(header, seed) {
        return None;
    }
    Some(match found {
        Some(found) => NewerVersion::new(format_args!("a header with version {found}")),
        None => NewerVersion::new(format_args!(
            "spare byte {} of a header",
            first.unwrap_or(spare.start)
        )),
    })
}
