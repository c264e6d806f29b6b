//! The nodes and the streams of a run: few, so that many clients meet.

use log::LogOptions;
use model::{GroupId, StreamPath};

/// Nodes of a cluster.
pub(super) const NODES: usize = 3;

/// Streams of a run.
pub(super) const STREAMS: usize = 3;

pub(super) fn name_of(stream: usize) -> String {
    format!("s{stream}")
}

pub(super) fn path_of(stream: usize) -> StreamPath {
    StreamPath::new(&name_of(stream)).expect("a path")
}

pub(super) fn group_of(stream: usize, options: &LogOptions) -> GroupId {
    path_of(stream).group(options.group_count)
}
