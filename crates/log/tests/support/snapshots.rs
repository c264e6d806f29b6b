//! Snapshots of the small owner.

use super::replicas::{World, group};
use std::ops::Range;
use thalweg_log::{CheckpointRow, Export, ExportError, Tails};

/// What a row of the small owner says. Of a deleted stream nothing is kept.
pub fn ends(row: &CheckpointRow<'_>) -> Option<Range<u64>> {
    let number = |at: usize| Some(u64::from_le_bytes(row.bytes.get(at..at + 8)?.try_into().ok()?));
    let (head, tail) = (number(0)?, number(8)?);
    let is_deleted = *row.bytes.get(24)? == 1;
    Some(if is_deleted { tail..tail } else { head..tail })
}

/// What a group gives to a replica that has `have`.
pub fn export(world: &mut World, of: u16, have: Tails) -> Result<Export, ExportError> {
    world.log(of).export(group(of), have, ends)?.run()
}
