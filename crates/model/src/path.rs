//! The name of a stream: the part of the URL path after the mount, percent-decoded once.

use crate::{GroupId, limits};
use std::{
    fmt,
    hash::{Hash, Hasher},
};
use xxhash_rust::xxh3::xxh3_64;

/// The fixed hash of a stream's path: the same on every machine and in every version.
///
/// It finds a stream, chooses its group, and names it where its path is lost. Two paths may share
/// a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathHash(u64);

impl PathHash {
    /// A hash that was stored.
    #[must_use]
    pub const fn new(stored: u64) -> Self {
        Self(stored)
    }

    /// As it is stored.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A stream's path, 1 to [`limits::PATH_BYTES_MAX`] bytes of UTF-8 without control characters.
///
/// Slashes nest freely. Two paths are the same stream exactly if their bytes are equal. A path is
/// hashed once, when it is made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPath {
    text: Box<str>,
    hash: PathHash,
}

/// Why a string is not a stream path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// Nothing follows the mount.
    Empty,
    /// Longer than [`limits::PATH_BYTES_MAX`].
    TooLong {
        /// Its length in bytes.
        length_bytes: usize,
    },
    /// A control character (below U+0020, or U+007F).
    Control {
        /// Byte position of the character.
        position: usize,
    },
    /// A `.` or `..` segment, which proxies and clients resolve in different ways.
    DotSegment {
        /// Byte position of the segment.
        position: usize,
    },
}

impl StreamPath {
    /// Checks `decoded` and makes a path of it.
    ///
    /// # Errors
    /// [`PathError`] if the text is empty, too long or holds a control character or a dot segment.
    pub fn new(decoded: &str) -> Result<Self, PathError> {
        if decoded.is_empty() {
            return Err(PathError::Empty);
        }
        if decoded.len() > limits::PATH_BYTES_MAX {
            return Err(PathError::TooLong { length_bytes: decoded.len() });
        }
        let is_control = |byte: u8| (byte < 0x20) | (byte == 0x7f);
        // Most paths have neither: both are looked for in one pass without a branch for each byte.
        let (has_control, has_dot) = decoded.bytes().fold((false, false), |found, byte| {
            (found.0 | is_control(byte), found.1 | (byte == b'.'))
        });
        if has_control && let Some(position) = decoded.bytes().position(is_control) {
            return Err(PathError::Control { position });
        }
        if has_dot && let Some(position) = dot_segment(decoded) {
            return Err(PathError::DotSegment { position });
        }
        let hash = PathHash(xxh3_64(decoded.as_bytes()));
        Ok(Self { text: decoded.into(), hash })
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The hash of the path.
    #[must_use]
    pub fn hash(&self) -> PathHash {
        self.hash
    }

    /// Number of the rule by which [`StreamPath::group`] places a path: the hash of the whole path, modulo
    /// the number of groups. Data directories record it.
    pub const PLACEMENT_RULE: u8 = 0;

    /// The group that owns the path among `group_count` groups.
    ///
    /// # Panics
    /// If `group_count` is 0.
    #[must_use]
    pub fn group(&self, group_count: u16) -> GroupId {
        assert!(group_count > 0, "a node has at least one group");
        let group = self.hash.get() % u64::from(group_count);
        GroupId::new(u16::try_from(group).expect("a remainder is below its divisor"))
    }
}

/// Where the first `.` or `..` segment begins.
fn dot_segment(path: &str) -> Option<usize> {
    let mut position = 0;
    for segment in path.split('/') {
        if segment == "." || segment == ".." {
            return Some(position);
        }
        position += segment.len() + 1;
    }
    None
}

impl Hash for StreamPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl fmt::Debug for StreamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for StreamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_paths_are_streams() {
        assert_eq!(StreamPath::new("a/b/ü").unwrap().as_str(), "a/b/ü");
    }

    #[test]
    fn paths_that_could_be_misread_are_refused() {
        assert_eq!(StreamPath::new(""), Err(PathError::Empty));
        assert_eq!(StreamPath::new("a\nb"), Err(PathError::Control { position: 1 }));
        assert_eq!(StreamPath::new("a/../b"), Err(PathError::DotSegment { position: 2 }));
        let long = "x".repeat(limits::PATH_BYTES_MAX + 1);
        assert!(matches!(StreamPath::new(&long), Err(PathError::TooLong { .. })));
    }

    #[test]
    fn the_group_of_a_path_never_changes() {
        // Written into data directories: a change here loses every stream of an older directory.
        let path = StreamPath::new("orders/eu").unwrap();
        assert_eq!(path.hash().get(), xxh3_64(b"orders/eu"));
        assert_eq!(path.group(64), path.group(64));
    }
}
