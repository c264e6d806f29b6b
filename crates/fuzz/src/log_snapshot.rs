//! The words that begin the way of a snapshot: whatever comes, it is something that encodes to the same bytes, or nothing.

use ::log::{SnapshotHead, Tails};
use model::{ByteOffset, EntryIndex, GroupId, StreamId, Term};

/// Input: one byte for which of the two, and the bytes.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    if which % 2 == 0 {
        if let Some(tails) = Tails::decode(bytes) {
            assert_eq!(tails.encode(), bytes);
        }
    } else if let Some(head) = SnapshotHead::decode(bytes) {
        assert_eq!(head.encode(), bytes);
        assert!(head.file_bytes() >= head.checkpoint_bytes);
    }
}

/// One of each.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let pairs =
        vec![(StreamId::new(2), ByteOffset::new(3)), (StreamId::new(5), ByteOffset::new(0))];
    let tails = Tails { sealed: EntryIndex::new(9), streams: pairs.clone() };
    let head = SnapshotHead {
        group: GroupId::new(3),
        index: EntryIndex::new(11),
        term: Term::new(2),
        store: 7,
        checkpoint_bytes: 8192,
        chunk_bytes: vec![70_000, 12],
        trimmed: pairs,
    };
    [(0, tails.encode()), (1, head.encode())]
        .map(|(which, bytes)| [&[which][..], &bytes].concat())
        .into()
}
