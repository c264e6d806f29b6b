//! What opening a log asks of the state machines.

use crate::checkpoint_rows::CheckpointRow;
use crate::damage::Damage;
use crate::entry::Entry;
use crate::newer::NewerVersion;
use model::{ByteOffset, EntryIndex, GroupId, Placement, StreamKey};

/// Rebuilds the state machines while the log is opened.
///
/// Calls come in this order:
/// 1. for each group in turn `restore`, if it has a checkpoint;
/// 2. `apply` for every later entry, per group in index order; in a replicated group for those that are known as committed;
/// 3. `head` for streams that hold data.
pub trait Replay {
    /// The newest checkpoint of a group, rows in stream order. `applied` is its index.
    ///
    /// # Errors
    /// [`NewerVersion`] refuses the start.
    fn restore(
        &mut self,
        group: GroupId,
        applied: EntryIndex,
        header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion>;

    /// An entry after the checkpoint. `Some` if it was accepted and its data belongs to a stream.
    ///
    /// Its command is intact and the length of its data is right, so the stream keeps its offsets.
    /// The data itself may be damaged, see [`Entry::data`]: do not decide by it.
    ///
    /// # Errors
    /// [`NewerVersion`] refuses the start.
    fn apply(&mut self, entry: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion>;

    /// Something is lost, or was put right. Called once for each place.
    fn damaged(&mut self, damage: &Damage);

    /// The first retained byte of a stream, `None` if it is deleted and its data may go.
    ///
    /// Asked after all entries were applied. A stream that a damage may concern must not be
    /// answered with `None`.
    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        let _ = key;
        Some(ByteOffset::ZERO)
    }
}
