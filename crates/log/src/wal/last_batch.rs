//! Makes the last batch of a WAL durable at a start, before anybody sees it, and lists it for the first batch behind.
//!
//! # Why
//! Only the last batch can have been in flight when a process ended. It may be in the page cache alone. A sync writes
//! what is dirty there. But a sync that failed has left the pages of its batch clean, and no sync writes clean pages.
//!
//! So what the medium holds is compared with what was read. Only blocks that differ are written, and those were never
//! acknowledged: their sync had not succeeded. To write all of it again is refused. A device may leave garbage in a
//! sector that it was writing when the power went, and an acknowledged batch would be lost.
//!
//! # Invariants
//! - No byte is written that the medium holds already.

use crate::options::{BLOCK_BYTES, COPY_BYTES};
use crate::unreadable::read_around;
use crate::wal::layout::{BatchPlace, Seeds, begin_list, push_listed, seal_list};
use crate::wal::scan::{LiveBatch, ScannedWal, WalName, entry_header, read_batch, read_list};
use crate::wal::segment::SegmentFile;
use env::{File, is_unreadable};
use std::io;
use std::sync::Arc;

/// A block, as bytes in memory.
const BLOCK: usize = BLOCK_BYTES as usize;

/// Makes the last live batch of a WAL durable, and whatever else its last segment holds.
///
/// # Errors
/// Any error of the underlying disk, with the segment's place among `files`.
pub(crate) fn settle_last(
    wal: &ScannedWal,
    files: &[Arc<SegmentFile>],
) -> Result<(), (usize, io::Error)> {
    let Some(newest) = wal.used_segments.checked_sub(1) else { return Ok(()) };
    files[newest].file.sync_data().map_err(|error| (newest, error))?;
    let Some(LiveBatch::Whole(last)) = wal.live.last() else { return Ok(()) };
    settle(&*files[last.segment].file, (last.position, last.end()))
        .map_err(|error| (last.segment, error))
}

/// The last live batch of a WAL, as the next batch has to list it; empty if it need not.
///
/// # Errors
/// Any error of the underlying disk.
pub(crate) fn list_last(
    name: WalName,
    wal: &ScannedWal,
    files: &[Arc<SegmentFile>],
) -> io::Result<Vec<u8>> {
    let mut list = Vec::new();
    let Some(LiveBatch::Whole(last)) = wal.live.last() else { return Ok(list) };
    if !last.header.needs_list() {
        return Ok(list);
    }
    let file = &files[last.segment];
    let (bytes, _) = read_batch(file, last)?;
    let place = BatchPlace { store: name.store, segment: file.seq, seq: last.header.seq };
    let older = match wal.claimer(wal.live.len() - 1) {
        Some(claimer) => read_list(name, files, claimer)?,
        None => None,
    };
    begin_list(&mut list, &last.header, last.position);
    for number in 0..last.header.entry_count {
        let found = entry_header((&bytes, last.header.copy_position()), place, number);
        let listed = || older.as_ref()?.entry(number).copied();
        // One that is lost is listed as index 0.
        let entry = found.map(|header| header.value).or_else(listed).unwrap_or_default();
        push_listed(&mut list, &entry);
    }
    seal_list(&mut list, &Seeds::new(name.store, name.wal));
    Ok(list)
}

fn settle(file: &dyn File, (position, end): (u64, u64)) -> io::Result<()> {
    // The batch may lie in an older segment than a torn one.
    file.sync_data()?;
    let mut has_written = false;
    let mut at = position;
    while at < end {
        let count = (end - at).min(COPY_BYTES as u64);
        let mut bytes = vec![0; usize::try_from(count).expect("bounded by a buffer")];
        let unreadable = read_around(file, &mut bytes, at)?;
        let stored = Stored::read(file, at, bytes.len())?;
        for (block, piece) in (at..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            // What cannot be read now may be readable the next time.
            if !unreadable.contains(&block) && !stored.holds(block, piece) {
                file.write_at(piece, block)?;
                has_written = true;
            }
        }
        at += count;
    }
    if has_written { file.sync_data() } else { Ok(()) }
}

/// What the medium holds of some blocks.
struct Stored {
    position: u64,
    bytes: Vec<u8>,
    unreadable: Vec<u64>,
}

impl Stored {
    fn read(file: &dyn File, position: u64, length: usize) -> io::Result<Self> {
        let (mut bytes, mut unreadable) = (vec![0; length], Vec::new());
        match file.read_stored_exact_at(&mut bytes, position) {
            Err(error) if is_unreadable(&error) => {
                let blocks = (position..).step_by(BLOCK).zip(bytes.chunks_mut(BLOCK));
                for (block, piece) in blocks {
                    match file.read_stored_exact_at(piece, block) {
                        Err(error) if is_unreadable(&error) => unreadable.push(block),
                        read => read?,
                    }
                }
            }
            read => read?,
        }
        Ok(Self { position, bytes, unreadable })
    }

    fn holds(&self, block: u64, piece: &[u8]) -> bool {
        let at = usize::try_from(block - self.position).expect("inside the buffer");
        !self.unreadable.contains(&block) && &self.bytes[at..at + piece.len()] == piece
    }
}
