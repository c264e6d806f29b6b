//! How far a copy that nobody wants is with giving back what it has.

use model::{EntryIndex, Term};

/// How far a copy that is not wanted is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The leader was asked when the copy was here: its last entry, and its term.
    Asked(EntryIndex, Term),
    /// Its chunks are looked at: those that cannot be read are set aside.
    Sifting,
    /// Nothing shall take the place of its log.
    Sifted,
    /// That is under way.
    Emptying,
}
