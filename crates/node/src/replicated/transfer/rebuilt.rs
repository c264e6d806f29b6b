//! A group's state, made of an installed checkpoint on a thread that may take its time.

use crate::owner_header::{OwnerHeader, decode_configuration, decode_meta};
use cluster::{Configuration, Meta};
use log::{CheckpointRow, Installed, NewerVersion};
use model::Timestamp;
use std::ops::Range;
use stream::GroupState;

/// See the module.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(super) state: GroupState,
    /// The voters and learners there.
    pub(super) configuration: Configuration,
    /// The cluster's own state, if it is that of this group.
    pub(super) meta: Option<Box<Meta>>,
    /// The last use that is logged: no later entry has an earlier time.
    pub(super) last: Timestamp,
}

impl Rebuilt {
    /// # Panics
    /// If a newer version wrote the checkpoint: its receiver looks at that before it is installed.
    pub(crate) fn of(installed: &Installed) -> Self {
        rebuild(installed).expect("a checkpoint of this version")
    }
}

fn rebuild(installed: &Installed) -> Result<Rebuilt, NewerVersion> {
    let mut state = GroupState::new(installed.group);
    let newer = |_| NewerVersion::new("a checkpoint's header or row");
    let OwnerHeader { streams, cluster, meta } = OwnerHeader::decode(installed.header())?;
    let voters = || NewerVersion::new("a checkpoint without voters");
    let configuration = decode_configuration(cluster.ok_or_else(voters)?)?;
    let meta = meta.map(decode_meta).transpose()?.map(Box::new);
    state.restore_header(installed.index, streams).map_err(newer)?;
    for row in installed.rows() {
        state.restore_row(row.stream, row.bytes).map_err(newer)?;
    }
    let last = state.last_logged_use();
    Ok(Rebuilt { state, configuration, meta, last })
}

/// Offsets of the bytes that a group keeps of a stream, by its row.
pub(super) fn row_ends(row: &CheckpointRow<'_>) -> Option<Range<u64>> {
    let kept = stream::kept_bytes(row.stream, row.bytes)?;
    Some(kept.start.get()..kept.end.get())
}
