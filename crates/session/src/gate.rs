//! What decisions need of a shard, and what comes of one.

use access::{Access, Authorized, Denied, Verified};
use protocol::problem::Problem;
use std::sync::Arc;

/// The rules, and what one shard remembers of credentials that it has verified.
#[derive(Debug)]
pub(crate) struct Gate {
    pub access: Arc<Access>,
    pub verified: Verified,
    /// A reader could not be judged in its turn.
    pub is_judging_late: bool,
}

/// What became of a request.
pub(crate) enum Judged<R> {
    Authorized(Authorized<R>),
    Denied(Denied),
    /// A web page sent it that may not.
    Foreign(Box<Problem>),
    /// In a later turn.
    Later,
}

impl Gate {
    pub(crate) fn new(access: Arc<Access>) -> Self {
        Self { access, verified: Verified::default(), is_judging_late: false }
    }
}
