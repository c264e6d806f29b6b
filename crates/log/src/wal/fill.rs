//! Segments made, renamed and removed in the background, ahead of need.

use crate::paths::remove_if_there;
use crate::wal::room::{Purpose, SegmentSize};
use crate::wal::segment::{SegmentFile, WalSegment, create_segment, recycle_segment};
use env::Disk;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, atomic::AtomicBool};

/// One change of a WAL's files.
#[derive(Debug)]
pub(crate) enum FillWork {
    /// Fill a new segment with zeroes, as far as nothing waits for it.
    Create { dir: PathBuf, seq: u64, size: SegmentSize, is_awaited: Arc<AtomicBool> },
    /// Rename the oldest segment, which nobody needs, to be the newest.
    Recycle { dir: PathBuf, seq: u64, old: Arc<SegmentFile>, segment: WalSegment },
    /// Remove the oldest segment.
    Remove { dir: PathBuf, old: Arc<SegmentFile>, segment: WalSegment },
}

/// What became of a [`FillWork`].
#[derive(Debug)]
pub(crate) enum FillDone {
    /// A spare segment; `replaced` was the recycled one.
    Spare { file: SegmentFile, replaced: Option<WalSegment>, purpose: Purpose },
    /// The segment's file is gone.
    Removed { segment: WalSegment },
    /// Nothing changed; `kept` is the segment that was to go, `purpose` that of a new one.
    Failed { dir: PathBuf, error: io::Error, kept: Option<WalSegment>, purpose: Purpose },
}

impl FillWork {
    pub(crate) fn run(self, disk: &dyn Disk) -> FillDone {
        match self {
            Self::Create { dir, seq, size, is_awaited } => {
                let capacity = size.choose(disk, &dir);
                let made = capacity
                    .and_then(|capacity| create_segment(disk, &dir, seq, capacity, &is_awaited));
                match made {
                    Ok(file) => FillDone::Spare { file, replaced: None, purpose: size.purpose },
                    Err(error) => {
                        FillDone::Failed { dir, error, kept: None, purpose: size.purpose }
                    }
                }
            }
            Self::Recycle { dir, seq, old, segment } => {
                match recycle_segment(disk, &dir, &old, seq) {
                    Ok(Some(file)) => {
                        let (replaced, purpose) = (Some(segment), Purpose::Data);
                        FillDone::Spare { file, replaced, purpose }
                    }
                    Ok(None) => FillDone::Removed { segment },
                    Err(error) => FillDone::kept(dir, error, segment),
                }
            }
            Self::Remove { dir, old, segment } => {
                // Synced before the next one goes: the files of a WAL vanish oldest first.
                let removed = remove_if_there(disk, &old.path);
                match removed.and_then(|()| disk.sync_dir(&dir)) {
                    Ok(()) => FillDone::Removed { segment },
                    Err(error) => FillDone::kept(dir, error, segment),
                }
            }
        }
    }
}

impl FillDone {
    fn kept(dir: PathBuf, error: io::Error, segment: WalSegment) -> Self {
        Self::Failed { dir, error, kept: Some(segment), purpose: Purpose::Data }
    }
}
