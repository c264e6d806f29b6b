//! Copies appends into a new chunk: from WAL segments (sealing) or from other chunks (merging).
//!
//! # Invariants
//! - Every byte is checked before it is copied: a copy never gives damaged bytes a fresh checksum.
//! - Sealing leaves a damaged append out, reports it unless recovery did, and leaves a hole between
//!   two runs. A merge that meets damage is given up, and the group's chunks are merged no more.
//! - Sources are removed only after the new chunk is durable.

use crate::chunk::append_table::AppendTable;
use crate::chunk::file::ChunkFile;
use crate::chunk::format::chunk_bytes_max;
use crate::chunk::writer::{ChunkName, ChunkWriter, remove_half_written};
use crate::damage::{Damage, DamageKind};
use crate::entry::AppendBounds;
use crate::hot::HotFields;
use crate::id_map::IdMap;
use crate::options::COPY_BYTES;
use crate::paths::remove_if_there;
use crate::read::{ReadError, ReadMode};
use crate::unreadable::read_around;
use crate::wal::room::NoRoom;
use crate::wal::segment::SegmentFile;
use env::{Disk, File};
use model::{ByteOffset, GroupId, StreamId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Moves a group's appends from the WAL into a chunk.
#[derive(Debug)]
pub(crate) struct SealTask {
    pub(crate) name: ChunkName,
    /// By stream, in order.
    pub(crate) runs: Vec<(StreamId, Vec<HotFields>)>,
    pub(crate) segments: HashMap<u16, Arc<SegmentFile>>,
}

/// Copies what is alive in some chunks into one.
#[derive(Debug)]
pub(crate) struct MergeTask {
    pub(crate) name: ChunkName,
    pub(crate) sources: Vec<MergeSource>,
    /// First retained byte of trimmed streams.
    pub(crate) heads: IdMap<StreamId, ByteOffset>,
    /// Bytes of the disk that it leaves free.
    pub(crate) spare_bytes: u64,
}

/// A chunk to copy from.
#[derive(Debug)]
pub(crate) struct MergeSource {
    pub(crate) chunk: Arc<ChunkFile>,
    /// Indexes of rows that nobody needs.
    pub(crate) dead_rows: HashSet<u32>,
}

/// A new chunk, if anything was alive, and what could not be copied.
#[derive(Debug)]
pub(crate) struct CopyDone {
    pub(crate) chunk: Option<Arc<ChunkFile>>,
    pub(crate) damages: Vec<Damage>,
}

impl SealTask {
    /// The length of the chunk that it writes, at most.
    pub(crate) fn bytes_max(&self) -> u64 {
        let runs = || self.runs.iter().map(|(_, run)| run);
        let appends = runs().map(|run| run.len() as u64).sum();
        let data_bytes = runs().flatten().map(|append| u64::from(append.length)).sum();
        chunk_bytes_max(self.runs.len() as u64, appends, data_bytes)
    }

    /// # Errors
    /// Any error of the underlying disk; nothing has changed then.
    pub(crate) fn run(&self, disk: &dyn Disk) -> io::Result<CopyDone> {
        let mut writer = ChunkWriter::create(disk, self.name.clone())?;
        let mut damages = Vec::new();
        let mut buffer = Vec::new();
        for (stream, appends) in &self.runs {
            for append in appends {
                let segment = &self.segments[&append.slot];
                if is_intact(segment, append, &mut buffer)? {
                    writer.begin_append(stream.get(), &bounds(append))?;
                    let source = (&*segment.file, u64::from(append.position));
                    copy_bytes(source, append.length, &mut buffer, &mut writer)?;
                } else if !append.is_reported {
                    let lost = (u64::from(append.position), u64::from(append.length));
                    damages.push(self.name.damage(*stream, &segment.path, lost));
                }
            }
        }
        Ok(CopyDone { chunk: writer.finish(disk)?.map(ChunkFile::new).map(Arc::new), damages })
    }
}

fn bounds(append: &HotFields) -> AppendBounds {
    let start = ByteOffset::new(append.start);
    AppendBounds {
        start,
        end: start.advance(u64::from(append.length)),
        records: append.records,
        at: append.at,
    }
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
    /// Writes the merged chunk, then removes the sources; does neither if it meets damage.
    ///
    /// # Errors
    /// `StorageFull` before anything is written if there is not enough room. Otherwise any error of the
    /// underlying disk: at worst the new chunk is beside its sources, which it replaces.
    pub(crate) fn run(&self, disk: &dyn Disk) -> io::Result<CopyDone> {
        // What was intact when it was read last need not be so now.
        self.sources.iter().for_each(|source| source.chunk.check_again());
        let rows = self.live_rows();
        self.check_room(disk, &rows)?;
        let mut writer = ChunkWriter::create(disk, self.name.clone())?;
        let mut damages = Vec::new();
        for (stream, _, source, row) in rows {
            self.copy_row((stream, source, row), &mut writer, &mut damages)?;
            if !damages.is_empty() {
                break;
            }
        }
        if !damages.is_empty() {
            // The sources are all that is left of what they hold: they stay as they are.
            remove_half_written(disk, &self.name.dir)?;
            return Ok(CopyDone { chunk: None, damages });
        }
        let chunk = writer.finish(disk)?.map(ChunkFile::new).map(Arc::new);
        for source in &self.sources {
            // Gone, perhaps, since an earlier try, which failed after it.
            remove_if_there(disk, &source.chunk.path)?;
        }
        disk.sync_dir(&self.name.dir)?;
        Ok(CopyDone { chunk, damages })
    }

    /// A merge must not take what appends need.
    fn check_room(&self, disk: &dyn Disk, rows: &[(u64, u64, usize, usize)]) -> io::Result<()> {
        let length = |source: usize, row: usize| self.sources[source].chunk.rows[row].length;
        let live_bytes: u64 =
            rows.iter().map(|&(_, _, source, row)| u64::from(length(source, row))).sum();
        if live_bytes == 0 {
            return Ok(());
        }
        let wanted = live_bytes + self.spare_bytes;
        let free = disk.free_bytes(&self.name.dir)?;
        if free < wanted {
            let what = "a merge of chunks";
            return Err(NoRoom { what, needed_bytes: wanted, free_bytes: free }.into());
        }
        Ok(())
    }

    /// `(stream, start, source, row)` in the order of the new chunk.
    fn live_rows(&self) -> Vec<(u64, u64, usize, usize)> {
        let mut live = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            for (index, row) in source.chunk.rows.iter().enumerate() {
                let is_dead = u32::try_from(index).is_ok_and(|i| source.dead_rows.contains(&i));
                if !is_dead {
                    live.push((row.stream, row.start, number, index));
                }
            }
        }
        live.sort_unstable();
        live
    }

    fn copy_row(
        &self,
        (stream, source, row): (u64, usize, usize),
        writer: &mut ChunkWriter,
        damages: &mut Vec<Damage>,
    ) -> io::Result<()> {
        let chunk = &self.sources[source].chunk;
        let row = &chunk.rows[row];
        let stream_id = StreamId::new(stream);
        let head = self.heads.get(&stream_id).map_or(0, |head| head.get());
        let table = match chunk.table(row, ReadMode::Blocking) {
            Ok(table) => table,
            Err(error) => {
                let lost = (damage_position(error)?, u64::from(row.length));
                damages.push(self.name.damage(stream_id, &chunk.path, lost));
                return Ok(());
            }
        };
        let appends = AppendTable::new(&table).into_iter().flat_map(AppendTable::iter);
        let mut window = Window::default();
        for append in appends.filter(|append| append.end.get() > head) {
            let length = append.end.since(append.start);
            if append.start.get() < row.start || append.end.get() > row.end() {
                break;
            }
            // Two sources hold the same append only after a damaged chunk was read again.
            if append.start.get() < writer.end_of(stream) {
                continue;
            }
            let position = u64::from(row.position) + (append.start.get() - row.start);
            if let Err(error) = chunk.verify(row, (position, length), ReadMode::Blocking) {
                let lost = (damage_position(error)?, length);
                damages.push(self.name.damage(stream_id, &chunk.path, lost));
                return Ok(());
            }
            writer.begin_append(stream, &append)?;
            let run_end = u64::from(row.position) + u64::from(row.length);
            window.copy(&*chunk.file, (position, length, run_end), writer)?;
        }
        Ok(())
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
            group: Some(GroupId::new(self.group)),
            stream: Some(stream),
            lost_bytes: lost.1,
            ..Damage::at(DamageKind::StreamData, file, lost.0)
        }
    }
}
