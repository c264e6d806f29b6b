//! Copies appends into a new chunk: from WAL segments (sealing) or from other chunks (merging).
//!
//! # Invariants
//! - Every byte is checked before it is copied: a copy never gives damaged bytes a fresh checksum.
//! - Sealing leaves a damaged append out, reports it unless recovery did, and leaves a hole between
//!   two runs. A merge that meets damage is given up, and the group's chunks are merged no more.
//! - Sources are removed only after the new chunk is durable.
//! - A merge has one page of rows of each source in memory.

use crate::chunk::builder::StreamPiece;
use crate::chunk::cache::ChunkCache;
use crate::chunk::file::ChunkFile;
use crate::chunk::floors::{FloorsThen, GONE, floor_then};
use crate::chunk::leftovers::RemovalDone;
use crate::chunk::merge_rows::{MergeRows, NextRow};
use crate::chunk::near_reads::{NEAR_BYTES_MAX, NearReads};
use crate::chunk::pieces::Piece;
use crate::chunk::row::Row;
use crate::chunk::run_pieces::RunPieces;
use crate::chunk::writer::{ChunkName, ChunkWriter, WRITING_NAME};
use crate::damage::{Damage, DamageKind};
use crate::entry::AppendBounds;
use crate::hot::{HotAppend, HotFields, NumberedHot};
use crate::hot_index::HotStreams;
use crate::id_map::IdMap;
use crate::options::COPY_BYTES;
use crate::paths::{remove_if_there, remove_unneeded};
use crate::read::{ReadError, ReadMode};
use crate::unreadable::read_around;
use crate::wal::recent::RecentView;
use crate::wal::room::NoRoom;
use crate::wal::segment::SegmentFile;
use env::{Disk, File};
use model::{ByteOffset, GroupId, StreamId};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Moves a group's appends from the WAL into a chunk.
#[derive(Debug)]
pub(crate) struct SealTask {
    pub(crate) name: ChunkName,
    pub(crate) cache: Arc<ChunkCache>,
    pub(crate) streams: Arc<HotStreams>,
    pub(crate) segments: HashMap<u16, Arc<SegmentFile>>,
    /// What of them is in memory, if appends are taken from there.
    pub(crate) recent: Option<RecentView>,
    /// The length of the chunk, at most.
    pub(crate) bytes_max: u64,
    /// It is in a hurry, and nobody is likely to read it soon.
    pub(crate) is_uncached: bool,
}

/// Copies what is alive in some chunks into one.
#[derive(Debug)]
pub(crate) struct MergeTask {
    pub(crate) name: ChunkName,
    pub(crate) cache: Arc<ChunkCache>,
    pub(crate) sources: Vec<Arc<ChunkFile>>,
    pub(crate) floors: FloorsThen,
    /// Of streams of which the end is not wanted: where that begins.
    pub(crate) limits: IdMap<u64, u64>,
    /// Bytes that are alive.
    pub(crate) live_bytes: u64,
    /// Bytes of the disk that it leaves free.
    pub(crate) spare_bytes: u64,
    /// Whether an operator has accepted what is lost. Otherwise a merge that meets damage is given up.
    pub(crate) leaves_damage_out: bool,
}

/// A new chunk, if anything was alive, and what could not be copied.
#[derive(Debug, Default)]
pub(crate) struct CopyDone {
    pub(crate) chunk: Option<Arc<ChunkFile>>,
    pub(crate) damages: Vec<Damage>,
    /// What of the new chunk is dead: a floor may lie inside an append.
    pub(crate) dead_bytes: u64,
    /// Rows of streams that are gone, which were left out.
    pub(crate) left_out: Vec<(u64, u32)>,
    /// Sources that could not be removed.
    pub(crate) removal: RemovalDone,
}

impl SealTask {
    /// # Errors
    /// Any error of the underlying disk; nothing has changed then.
    pub(crate) fn run(&self, disk: &dyn Disk) -> io::Result<CopyDone> {
        let mut writer = ChunkWriter::create(disk, self.name.clone())?;
        if self.is_uncached {
            writer = writer.uncached(disk, self.bytes_max);
        }
        let mut done = CopyDone::default();
        let (mut near, mut buffer) = (NearReads::default(), Vec::new());
        for (stream, hot) in self.streams.sorted() {
            for (index, numbered) in hot.numbered().enumerate() {
                let append = numbered.fields;
                if let Some(bytes) = self.at_hand(&hot.appends()[index..], &mut near)? {
                    writer.begin_append(&sealed(stream, &numbered));
                    writer.write(bytes)?;
                    continue;
                }
                let segment = &self.segments[&append.slot];
                if !is_short(&append) && is_intact(segment, &append, &mut buffer)? {
                    writer.begin_append(&sealed(stream, &numbered));
                    let source = (&*segment.file, u64::from(append.position));
                    copy_bytes(source, append.length, &mut buffer, &mut writer)?;
                } else if !append.is_reported {
                    let lost = (u64::from(append.position), u64::from(append.length));
                    done.damages.push(self.name.damage(stream, &segment.path, lost));
                }
            }
        }
        done.chunk = opened(writer.finish(disk)?, &self.cache);
        Ok(done)
    }

    /// The bytes of the first of a stream's appends, if it is short or in memory and they are what was acknowledged.
    fn at_hand<'a>(
        &'a self,
        appends: &[HotAppend],
        near: &'a mut NearReads,
    ) -> io::Result<Option<&'a [u8]>> {
        let append = appends[0].fields();
        let bytes = match self.in_memory(&append) {
            None if is_short(&append) => near.get(&self.segments[&append.slot], appends)?,
            found => return Ok(found),
        };
        Ok((crc32c::crc32c(bytes) == append.crc).then_some(bytes))
    }

    /// The bytes of an append, if they are in memory and what was acknowledged. To read short ones from the file costs a call of the system
    /// for each: they lie between those of other streams.
    fn in_memory(&self, append: &HotFields) -> Option<&[u8]> {
        let bytes = self.recent.as_ref()?.get(append.slot, append.position, append.length)?;
        (crc32c::crc32c(bytes) == append.crc).then_some(bytes)
    }
}

fn opened(
    written: Option<crate::chunk::writer::WrittenChunk>,
    cache: &Arc<ChunkCache>,
) -> Option<Arc<ChunkFile>> {
    written.map(|written| Arc::new(ChunkFile::new(written, Arc::clone(cache))))
}

fn sealed(stream: StreamId, numbered: &NumberedHot) -> StreamPiece {
    let NumberedHot { first_record, marks, fields: append } = numbered;
    let start = ByteOffset::new(append.start);
    let bounds = AppendBounds {
        start,
        end: start.advance(u64::from(append.length)),
        records: append.records,
        at: append.at,
    };
    let piece = Piece { bounds, mark: marks.map(|marks| marks.upto) };
    let mark_before = marks.map(|marks| marks.before);
    StreamPiece { stream: stream.get(), first_record: *first_record, mark_before, piece }
}

fn is_short(append: &HotFields) -> bool {
    u64::from(append.length) <= NEAR_BYTES_MAX
}

fn is_intact(segment: &SegmentFile, append: &HotFields, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let mut crc = 0;
    for_pieces(append.length, |done, count| {
        buffer.resize(count, 0);
        read_around(&*segment.file, buffer, u64::from(append.position) + done)?;
        crc = crc32c::crc32c_append(crc, buffer);
        Ok(())
    })?;
    Ok(crc == append.crc)
}

fn copy_bytes(
    (file, position): (&dyn File, u64),
    length: u32,
    buffer: &mut Vec<u8>,
    writer: &mut ChunkWriter,
) -> io::Result<()> {
    // One piece was just read to be checked and is still in the buffer.
    if length as usize <= COPY_BYTES && buffer.len() == length as usize {
        return writer.write(buffer);
    }
    for_pieces(length, |done, count| {
        buffer.resize(count, 0);
        file.read_exact_at(buffer, position + done)?;
        writer.write(buffer)
    })
}

fn for_pieces(length: u32, mut each: impl FnMut(u64, usize) -> io::Result<()>) -> io::Result<()> {
    let length = length as usize;
    for done in (0..length).step_by(COPY_BYTES) {
        each(done as u64, (length - done).min(COPY_BYTES))?;
    }
    Ok(())
}

impl MergeTask {
    /// Writes the merged chunk, then removes the sources as far as that can be; does neither if it meets damage.
    ///
    /// # Errors
    /// `StorageFull` before anything is written if there is not enough room. Otherwise any error of the
    /// underlying disk before the new chunk is durable. After that nothing is an error: it replaces its sources, whether
    /// they can be removed or not.
    pub(crate) fn run(&self, disk: &dyn Disk) -> io::Result<CopyDone> {
        self.check_room(disk)?;
        let mut writer = ChunkWriter::create(disk, self.name.clone())?;
        let mut done = CopyDone::default();
        self.copy_rows(&mut writer, &mut done)?;
        if self.is_given_up(&done) {
            // The sources are all that is left of what they hold: they stay as they are.
            remove_unneeded(disk, &self.name.dir.join(WRITING_NAME))?;
            return Ok(CopyDone { damages: done.damages, ..CopyDone::default() });
        }
        done.chunk = opened(writer.finish(disk)?, &self.cache);
        done.removal = self.remove_sources(disk);
        Ok(done)
    }

    /// Removes what the new chunk has replaced, as far as it can be removed.
    fn remove_sources(&self, disk: &dyn Disk) -> RemovalDone {
        let mut done = RemovalDone::default();
        for source in &self.sources {
            // Jobs that still read it need the open file.
            if let Err(error) = source.retire().and_then(|()| remove_if_there(disk, &source.path)) {
                done.keep(source.path.clone(), error);
            }
        }
        done.sync(disk, &self.name.dir)
    }

    fn is_given_up(&self, done: &CopyDone) -> bool {
        !self.leaves_damage_out && !done.damages.is_empty()
    }

    /// A merge must not take what appends need.
    fn check_room(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.live_bytes == 0 {
            return Ok(());
        }
        let wanted = self.live_bytes + self.spare_bytes;
        let free = disk.free_bytes(&self.name.dir)?;
        if free < wanted {
            let what = "a merge of chunks";
            return Err(NoRoom { what, needed_bytes: wanted, free_bytes: free }.into());
        }
        Ok(())
    }

    /// Copies rows in order until one is damaged. The copy has checksums of its own, so all bytes are compared once more. What was
    /// intact when it was read last need not be so now.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn copy_rows(
        &self,
        writer: &mut ChunkWriter,
        done: &mut CopyDone,
    ) -> io::Result<()> {
        self.sources.iter().for_each(|source| source.check_again());
        let mut rows = MergeRows::new(&self.sources);
        while let Some(next) = rows.next_row()? {
            let (source, row) = match next {
                NextRow::Row(source, row) => (source, row),
                NextRow::Lost(source, position) => {
                    let place = Damage::at(DamageKind::ChunkRow, &source.path, position);
                    let group = Some(GroupId::new(self.name.identity.group));
                    done.damages.push(Damage { group, ..place });
                    if self.is_given_up(done) {
                        return Ok(());
                    }
                    continue;
                }
            };
            let floor = floor_then(&self.floors, row.stream);
            if floor >= row.end() {
                if floor == GONE {
                    note_left_out(&mut done.left_out, row.stream);
                }
                continue;
            }
            self.copy_row((source, &row, floor), writer, done)?;
            if self.is_given_up(done) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn copy_row(
        &self,
        (source, row, floor): (&ChunkFile, &Row, u64),
        writer: &mut ChunkWriter,
        done: &mut CopyDone,
    ) -> io::Result<()> {
        let stream = StreamId::new(row.stream);
        let run = RunPieces::of(source, row)?;
        if run.as_ref().is_none_or(|run| run.is_one) {
            let lost = (row.table_position(), u64::from(row.length));
            done.damages.push(self.name.damage(stream, &source.path, lost));
            if self.is_given_up(done) {
                return Ok(());
            }
        }
        let file = source.file(ReadMode::Blocking)?;
        let end = self.limits.get(&row.stream).map_or(row.end(), |limit| row.end().min(*limit));
        let mut window = Window::default();
        for append in run.into_iter().flat_map(|run| run.pieces) {
            let bounds = append.piece.bounds;
            let (start, length) = (bounds.start.get(), bounds.end.since(bounds.start));
            if start < row.start || bounds.end.get() > end {
                break;
            }
            // Two sources hold the same append only after a damaged chunk was read again.
            if bounds.end.get() <= floor || start < writer.end_of(row.stream) {
                continue;
            }
            let position = row.position + (start - row.start);
            if let Err(error) = source.verify(row, (position, length), ReadMode::Blocking) {
                let lost = (damage_position(error)?, length);
                done.damages.push(self.name.damage(stream, &source.path, lost));
                if self.is_given_up(done) {
                    return Ok(());
                }
                continue;
            }
            done.dead_bytes += floor.saturating_sub(start);
            writer.begin_append(&append);
            window.copy(&*file, (position, length, row.table_position()), writer)?;
        }
        Ok(())
    }
}

fn note_left_out(left_out: &mut Vec<(u64, u32)>, stream: u64) {
    match left_out.last_mut() {
        Some((last, rows)) if *last == stream => *rows += 1,
        _ => left_out.push((stream, 1)),
    }
}

fn damage_position(error: ReadError) -> io::Result<u64> {
    match error {
        ReadError::Damaged { position, .. } => Ok(position),
        ReadError::Io(error) => Err(error),
        other => panic!("a chunk was read by its own rows: {other}"),
    }
}

/// Read-ahead over one run, so that small appends do not cost a system call each.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn copy(
        &mut self,
        file: &dyn File,
        (position, length, run_end): (u64, u64, u64),
        writer: &mut ChunkWriter,
    ) -> io::Result<()> {
        let (mut at, end) = (position, position + length);
        while at < end {
            if at < self.start || at >= self.start + self.bytes.len() as u64 {
                let count = usize::try_from(run_end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
                self.bytes.resize(count, 0);
                file.read_exact_at(&mut self.bytes, at)?;
                self.start = at;
            }
            let from = usize::try_from(at - self.start).expect("inside the window");
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
            let count = wanted.min(self.bytes.len() - from);
            writer.write(&self.bytes[from..from + count])?;
            at += count as u64;
        }
        Ok(())
    }
}

impl ChunkName {
    fn damage(&self, stream: StreamId, file: &Path, lost: (u64, u64)) -> Damage {
        Damage {
            group: Some(GroupId::new(self.identity.group)),
            stream: Some(stream),
            lost_bytes: lost.1,
            ..Damage::at(DamageKind::StreamData, file, lost.0)
        }
    }
}
