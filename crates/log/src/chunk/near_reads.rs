//! Reads appends of one stream from the WAL for a seal: those that lie near one another at once.
//!
//! # Why
//! Where a stream has a run of short appends in the log, a call of the system for each costs more than all the rest of the seal.
//!
//! # Invariants
//! - Bytes between appends are read along, those behind the last append of a piece are not.
//! - Nothing is checked here: the caller compares checksums.

use crate::hot::{HotAppend, HotFields};
use crate::unreadable::read_around;
use crate::wal::segment::SegmentFile;
use std::io;

/// Bytes that are read at once, at most.
pub(crate) const NEAR_BYTES_MAX: u64 = 64 << 10;

/// Bytes between two appends that cost less than a call of the system.
const GAP_BYTES_MAX: u64 = 4 << 10;

/// The piece of the WAL that was read last.
#[derive(Debug, Default)]
pub(crate) struct NearReads {
    slot: u16,
    start: u64,
    bytes: Vec<u8>,
}

impl NearReads {
    /// The bytes of an append of at most [`NEAR_BYTES_MAX`], which `segment` has. `later` are the appends of the stream behind it.
    ///
    /// # Errors
    /// Any error of the underlying disk but bytes that it has lost: others are in their place.
    pub(crate) fn get(
        &mut self,
        segment: &SegmentFile,
        append: &HotFields,
        later: &[HotAppend],
    ) -> io::Result<&[u8]> {
        let start = u64::from(append.position);
        let has_read = self.slot == append.slot
            && self.start <= start
            && end_of(append) <= self.start + self.bytes.len() as u64;
        if !has_read {
            (self.slot, self.start) = (append.slot, start);
            let count = near_end(append, later) - start;
            self.bytes.resize(usize::try_from(count).expect("pieces are small"), 0);
            read_around(&*segment.file, &mut self.bytes, start)?;
        }
        let at = usize::try_from(start - self.start).expect("it is in the piece");
        Ok(&self.bytes[at..at + append.length as usize])
    }
}

fn end_of(append: &HotFields) -> u64 {
    u64::from(append.position) + u64::from(append.length)
}

/// Where the last append ends that is read along.
fn near_end(append: &HotFields, later: &[HotAppend]) -> u64 {
    let (start, mut end) = (u64::from(append.position), end_of(append));
    for next in later.iter().map(HotAppend::fields) {
        let is_near = next.slot == append.slot
            && (end..=end + GAP_BYTES_MAX).contains(&u64::from(next.position))
            && end_of(&next) - start <= NEAR_BYTES_MAX;
        if !is_near {
            break;
        }
        end = end_of(&next);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Disk, MemoryDisk};
    use model::Timestamp;
    use std::path::Path;
    use std::sync::Arc;

    fn append(slot: u16, position: u32, length: u32) -> HotAppend {
        HotAppend::new(HotFields {
            start: 0,
            length,
            records: 1,
            at: Timestamp::new(0),
            slot,
            position,
            crc: 0,
            is_reported: false,
        })
    }

    /// Whether `second` is read along with `first`: then it is as it was at that time.
    fn is_read_along(first: &HotAppend, second: HotAppend) -> bool {
        let (disk, path) = (MemoryDisk::new(), Path::new("/wal/segment"));
        disk.create_dir_all(Path::new("/wal")).unwrap();
        let file = disk.create(path).unwrap();
        let capacity = 256 << 10;
        let fill = |byte| file.write_at(&vec![byte; capacity], 0).unwrap();
        let path = path.to_owned();
        let segment =
            SegmentFile { seq: 1, path, file: Arc::clone(&file), capacity: capacity as u64 };
        let mut near = NearReads::default();
        let later = [second];
        fill(1);
        let found = near.get(&segment, &first.fields(), &later).unwrap();
        assert_eq!(found, vec![1; first.fields().length as usize]);
        fill(2);
        let found = near.get(&segment, &later[0].fields(), &[]).unwrap();
        let byte = found[0];
        assert_eq!(found, vec![byte; later[0].fields().length as usize]);
        byte == 1
    }

    #[test]
    fn what_is_near_is_read_along() {
        let first = append(3, 100, 50);
        let is_near =
            |slot, position, length| is_read_along(&first, append(slot, position, length));
        assert!(is_near(3, 150, 10));
        assert!(is_near(3, 150 + 4096, 10));
        assert!(!is_near(3, 151 + 4096, 10), "far away");
        assert!(!is_near(4, 150, 10), "in another segment");
        assert!(!is_near(3, 10, 50), "before it");
        assert!(is_near(3, 150, (64 << 10) - 50));
        assert!(!is_near(3, 150, (64 << 10) - 49), "too much at once");
    }
}
