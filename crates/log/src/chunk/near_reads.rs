//! Reads appends of one stream from the WAL for a seal: those that lie near one another at once.
//!
//! # Why
//! Where a stream has a run of short appends in the log, a call of the system for each costs more than all the rest of the seal.
//!
//! # Invariants
//! - Bytes between appends are read along, those behind the last append of a piece are not.
//! - Nothing is checked here: the caller compares checksums.

use crate::hot::{HotAppend, Span, first_span};
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
    span: Option<Span>,
    /// As long as the longest piece, so that not every read fills it with zeroes first.
    scratch: Vec<u8>,
}

impl NearReads {
    /// The bytes of the first of `appends`, one of at most [`NEAR_BYTES_MAX`], which `segment` has. The others are those of the stream
    /// behind it.
    ///
    /// # Errors
    /// Any error of the underlying disk but bytes that it has lost: others are in their place.
    pub(crate) fn get(
        &mut self,
        segment: &SegmentFile,
        appends: &[HotAppend],
    ) -> io::Result<&[u8]> {
        let append = appends[0].fields();
        let (start, length) = (u64::from(append.position), u64::from(append.length));
        let has_it = |span: &Span| {
            let end = span.position + span.length;
            span.slot == append.slot && span.position <= start && start + length <= end
        };
        let span = match self.span.take().filter(has_it) {
            Some(span) => span,
            None => self.read(segment, first_span(appends, GAP_BYTES_MAX, NEAR_BYTES_MAX))?,
        };
        self.span = Some(span);
        let at = usize::try_from(start - span.position).expect("it is in the piece");
        Ok(&self.scratch[at..at + append.length as usize])
    }

    fn read(&mut self, segment: &SegmentFile, span: Span) -> io::Result<Span> {
        let length = usize::try_from(span.length).expect("a span is bounded");
        if self.scratch.len() < length {
            self.scratch.resize(length, 0);
        }
        read_around(&*segment.file, &mut self.scratch[..length], span.position)?;
        Ok(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::HotFields;
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
    fn is_read_along(first: HotAppend, second: HotAppend) -> bool {
        let (disk, path) = (MemoryDisk::new(), Path::new("/wal/segment"));
        disk.create_dir_all(Path::new("/wal")).unwrap();
        let file = disk.create(path).unwrap();
        let capacity = 256 << 10;
        let fill = |byte| file.write_at(&vec![byte; capacity], 0).unwrap();
        let path = path.to_owned();
        let segment =
            SegmentFile { seq: 1, path, file: Arc::clone(&file), capacity: capacity as u64 };
        let mut near = NearReads::default();
        let appends = [first, second];
        let length = |index: usize| appends[index].fields().length as usize;
        fill(1);
        let found = near.get(&segment, &appends).unwrap();
        assert_eq!(found, vec![1; length(0)]);
        fill(2);
        let found = near.get(&segment, &appends[1..]).unwrap();
        let byte = found[0];
        assert_eq!(found, vec![byte; length(1)]);
        byte == 1
    }

    #[test]
    fn what_is_near_is_read_along() {
        let first = || append(3, 100, 50);
        let is_near =
            |slot, position, length| is_read_along(first(), append(slot, position, length));
        assert!(is_near(3, 150, 10));
        assert!(is_near(3, 150 + 4096, 10));
        assert!(!is_near(3, 151 + 4096, 10), "far away");
        assert!(!is_near(4, 150, 10), "in another segment");
        assert!(!is_near(3, 10, 50), "before it");
        assert!(is_near(3, 150, (64 << 10) - 50));
        assert!(!is_near(3, 150, (64 << 10) - 49), "too much at once");
    }
}
