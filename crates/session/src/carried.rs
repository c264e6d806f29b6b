//! What a connection knows that carries many exchanges at once.

use crate::{slab::ConnId, wire::Line};
use std::collections::BTreeSet;

/// The exchanges of one connection.
#[derive(Debug)]
pub(crate) struct Streams {
    pub line: Line,
    /// Each is a connection in here.
    pub open: BTreeSet<ConnId>,
    /// Input of the last round that brought no request.
    pub idle_bytes: usize,
}

impl Streams {
    pub(crate) fn new(line: Line) -> Self {
        Self { line, open: BTreeSet::new(), idle_bytes: 0 }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}
