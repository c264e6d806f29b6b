//! What a node knows of a stream that it watches.

use model::ByteOffset;

/// How a stream was when it was last heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// After its last byte.
    pub tail: ByteOffset,
    /// Number of the record that comes next.
    pub next_record: u64,
    /// It is closed.
    pub closed: bool,
}

impl Seen {
    /// Whether `other` is what came later.
    pub(crate) fn is_behind(&self, other: &Self) -> bool {
        (self.tail, self.closed) < (other.tail, other.closed)
    }
}
