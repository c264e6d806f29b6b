//! The name of a stream: the part of the URL path after the mount, percent-decoded once.

use crate::{GroupId, limits};
use std::{
    fmt,
    hash::{Hash, Hasher},
};
use xxhash_rust::xxh3::xxh3_64;

/// The fixed hash of a stream's path, of 63 bits: the same on every machine and in every version.
///
/// It finds a stream, mostly chooses its group, and names it where its path is lost. Two paths may share
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
    /// The hash, and [`PLACED_BY_PART`]: every stream has a path, and this one takes no room.
    hash_and_mark: u64,
}

/// What is looked for in a path.
const HAS_CONTROL: u8 = 1;
const HAS_DOT: u8 = 2;
const HAS_TILDE: u8 = 4;

const FOUND_BY: [u8; 256] = {
    let mut found_by = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if is_control(byte as u8) {
            found_by[byte] = HAS_CONTROL;
        }
        byte += 1;
    }
    found_by[b'.' as usize] = HAS_DOT;
    found_by[b'~' as usize] = HAS_TILDE;
    found_by
};

const fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// A part of the path decides its group. Hashes have 63 bits.
const PLACED_BY_PART: u64 = 1 << 63;

fn hash_of(text: &str) -> u64 {
    xxh3_64(text.as_bytes()) & !PLACED_BY_PART
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
        // Most paths have none of these: they are looked for in one pass without a branch for each byte.
        let found = decoded.bytes().fold(0, |found, byte| found | FOUND_BY[usize::from(byte)]);
        if found & HAS_CONTROL != 0
            && let Some(position) = decoded.bytes().position(is_control)
        {
            return Err(PathError::Control { position });
        }
        if found & HAS_DOT != 0
            && let Some(position) = dot_segment(decoded)
        {
            return Err(PathError::DotSegment { position });
        }
        let is_placed_by_part = found & HAS_TILDE != 0 && together(decoded).is_some();
        let mark = if is_placed_by_part { PLACED_BY_PART } else { 0 };
        Ok(Self { text: decoded.into(), hash_and_mark: hash_of(decoded) | mark })
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The hash of the path.
    #[must_use]
    pub fn hash(&self) -> PathHash {
        PathHash(self.hash_and_mark & !PLACED_BY_PART)
    }

    /// Number of the rule by which [`StreamPath::group`] places a path. Data directories record it.
    ///
    /// Rule 1: the hash of the path, modulo the number of groups. If a segment begins with `~`, it is the hash
    /// of the path up to the end of the first such segment. So `shop/~cart7/events` and `shop/~cart7/out` are in one
    /// group.
    pub const PLACEMENT_RULE: u8 = 1;

    /// The group that owns the path among `group_count` groups.
    ///
    /// # Panics
    /// If `group_count` is 0.
    #[must_use]
    pub fn group(&self, group_count: u16) -> GroupId {
        assert!(group_count > 0, "a node has at least one group");
        let placed = if self.hash_and_mark & PLACED_BY_PART == 0 {
            self.hash_and_mark
        } else {
            together(&self.text).map_or(self.hash().get(), hash_of)
        };
        let group = placed % u64::from(group_count);
        GroupId::new(u16::try_from(group).expect("a remainder is below its divisor"))
    }
}

/// What all streams that are to be in one group have in common: the path up to the end of its first segment that begins
/// with `~`.
fn together(path: &str) -> Option<&str> {
    // Most paths have none.
    let mut start = 0;
    for segment in path.split('/') {
        if segment.starts_with('~') {
            return Some(&path[..start + segment.len()]);
        }
        start += segment.len() + 1;
    }
    None
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
        self.hash().hash(state);
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
    fn paths_with_the_same_marked_segment_share_a_group() {
        for (path, prefix) in [
            ("shop/~cart7/events", Some("shop/~cart7")),
            ("shop/~cart7", Some("shop/~cart7")),
            ("~a/~b/c", Some("~a")),
            ("a~b/c~", None),
            ("a/b", None),
        ] {
            assert_eq!(together(path), prefix, "{path}");
        }
        let group = |path: &str| StreamPath::new(path).unwrap().group(4096);
        assert_eq!(group("shop/~cart7/events"), group("shop/~cart7/out"));
        assert_ne!(group("shop/cart7/events"), group("shop/cart7/out"));
    }

    #[test]
    fn the_group_of_a_path_never_changes() {
        // Written into data directories: a change here loses every stream of an older directory.
        let path = StreamPath::new("orders/eu").unwrap();
        let hash = |text: &[u8]| xxh3_64(text) & (u64::MAX >> 1);
        assert_eq!(path.hash().get(), hash(b"orders/eu"));
        assert_eq!(u64::from(path.group(64).get()), hash(b"orders/eu") % 64);
        let marked = StreamPath::new("orders/~eu/1").unwrap();
        assert_eq!(marked.hash().get(), hash(b"orders/~eu/1"));
        assert_eq!(u64::from(marked.group(64).get()), hash(b"orders/~eu") % 64);
    }
}
