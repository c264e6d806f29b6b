//! What this node is to a group: its only voter, or one replica of several.

use crate::replicated::GroupCopy;
use cluster::Solo;
use model::Term;

/// See the module.
#[derive(Debug)]
pub(crate) enum Role {
    /// Its only voter: no consensus code runs.
    Solo(Solo),
    /// It has a copy, as other nodes do.
    Replicated(Box<GroupCopy>),
}

impl Role {
    /// The term under which new entries are written.
    pub(crate) fn term(&self) -> Term {
        match self {
            Self::Solo(solo) => solo.term(),
            Self::Replicated(copy) => copy.replica.term(),
        }
    }

    /// Whether the group takes commands here, and has the duties that one node of all has.
    pub(crate) fn is_in_charge(&self) -> bool {
        match self {
            Self::Solo(_) => true,
            Self::Replicated(copy) => copy.is_serving(),
        }
    }

    /// Whether it would take a command into its log now.
    pub(crate) fn takes_commands(&self) -> bool {
        match self {
            Self::Solo(_) => true,
            Self::Replicated(copy) => copy.takes_proposals(),
        }
    }

    /// The copy of a group that others have, too.
    pub(crate) fn copy(&self) -> Option<&GroupCopy> {
        match self {
            Self::Solo(_) => None,
            Self::Replicated(copy) => Some(copy),
        }
    }

    pub(crate) fn copy_mut(&mut self) -> Option<&mut GroupCopy> {
        match self {
            Self::Solo(_) => None,
            Self::Replicated(copy) => Some(copy),
        }
    }
}
