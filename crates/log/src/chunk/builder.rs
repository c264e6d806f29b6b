//! Makes the bytes of a chunk without IO: content as it comes, pages at the end.
//!
//! # Driving it
//! For each append in order of stream and start: `begin`, then `write` its bytes. Take what is buffered from time
//! to time ([`ChunkBuilder::buffered`], [`ChunkBuilder::take`]); it follows what was taken before, from
//! `CONTENT_START` on. `finish` gives the pages; what is still buffered comes before them.
//!
//! # Invariants
//! - An append that does not follow its predecessor begins a new run, so a hole is never bridged.
//! - Memory is bounded by what is buffered, one run's append table, and the rows.

use crate::chunk::header::CONTENT_START;
use crate::chunk::pages::{ChunkIdentity, ChunkPages, PagesWriter};
use crate::chunk::pieces::{Piece, PieceTableWriter};
use crate::chunk::row::{Marks, Row, RowBody};
use crate::options::CHUNK_BLOCK_BYTES;

/// The place of an append in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPiece {
    pub(crate) stream: u64,
    /// Number of its first record.
    pub(crate) first_record: u64,
    /// The largest record time before it, if the stream has record times.
    pub(crate) mark_before: Option<u64>,
    pub(crate) piece: Piece,
}

/// A chunk that is being made.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuilder {
    buffer: Vec<u8>,
    /// Bytes of content that were taken.
    taken: u64,
    blocks: BlockCrcs,
    run: Option<OpenRun>,
    pages: PagesWriter,
}

#[derive(Debug)]
struct OpenRun {
    stream: u64,
    start: u64,
    length: u64,
    position: u64,
    first_record: u64,
    /// Of the record behind it.
    next_record: u64,
    mark_before: Option<u64>,
    mark: Option<u64>,
    crc: u32,
    table: PieceTableWriter,
}

/// Runs are shorter than this.
const RUN_BYTES_MAX: u64 = 1 << 31;

impl OpenRun {
    fn new(append: &StreamPiece, position: u64) -> Self {
        let StreamPiece { stream, first_record, mark_before, piece } = append;
        Self {
            stream: *stream,
            start: piece.bounds.start.get(),
            length: 0,
            position,
            first_record: *first_record,
            next_record: *first_record,
            mark_before: *mark_before,
            mark: *mark_before,
            crc: 0,
            table: PieceTableWriter::new(*mark_before),
        }
    }

    /// Whether the append follows in this run.
    fn is_followed_by(&self, append: &StreamPiece) -> bool {
        let bounds = append.piece.bounds;
        self.stream == append.stream
            && self.start + self.length == bounds.start.get()
            && self.next_record == append.first_record
            && self.mark == append.mark_before
            && self.length + bounds.end.since(bounds.start) < RUN_BYTES_MAX
    }

    fn push(&mut self, append: &StreamPiece) {
        let bounds = append.piece.bounds;
        self.table.push(&append.piece);
        self.length += bounds.end.since(bounds.start);
        self.next_record += u64::from(bounds.records);
        self.mark = append.piece.mark;
    }
}

impl ChunkBuilder {
    /// Position in the file of the next byte.
    fn position(&self) -> u64 {
        CONTENT_START + self.taken + self.buffer.len() as u64
    }

    /// Offset after the last byte of `stream` that was taken; 0 if there is none.
    pub(crate) fn end_of(&self, stream: u64) -> u64 {
        match (&self.run, self.pages.last()) {
            (Some(run), _) if run.stream == stream => run.start + run.length,
            (None, Some(row)) if row.stream == stream => row.end(),
            _ => 0,
        }
    }

    /// Begins an append; its bytes follow by [`ChunkBuilder::write`].
    ///
    /// # Panics
    /// If it comes before the last one, or if that one is not whole.
    pub(crate) fn begin(&mut self, append: &StreamPiece) {
        self.check_whole();
        if !self.run.as_ref().is_some_and(|run| run.is_followed_by(append)) {
            self.end_run();
            self.run = Some(OpenRun::new(append, self.position()));
        }
        self.run.as_mut().expect("a run was begun").push(append);
    }

    /// Adds bytes of the append that was begun.
    ///
    /// # Panics
    /// If no append was begun.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let run = self.run.as_mut().expect("an append was begun");
        run.crc = crc32c::crc32c_append(run.crc, bytes);
        self.put(bytes);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.blocks.add(bytes);
        self.buffer.extend_from_slice(bytes);
    }

    fn check_whole(&self) {
        let end = self.run.as_ref().map(|run| run.position + run.length);
        assert!(end.is_none_or(|end| end == self.position()), "an append has the length it said");
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let table = run.table.finish();
        let last = table.last_mark.zip(run.mark_before);
        let body = RowBody {
            first_record: run.first_record,
            records: table.records,
            first_at: table.first_at,
            last_at: table.last_at,
            marks: last.map(|(last, before)| Marks { before, last }),
            is_each_one_record: table.columns.is_each_one_record,
            data_crc: run.crc,
            table_crc: crc32c::crc32c(&table.bytes),
        };
        self.pages.push(Row {
            stream: run.stream,
            start: run.start,
            length: to_u32(run.length),
            table_length: to_u32(table.bytes.len() as u64),
            position: run.position,
            body: Some(body),
        });
        self.put(&table.bytes);
    }

    /// Bytes that were not taken yet.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes the first `count` of these bytes. The others, and what comes, are put into `memory`, which is empty.
    pub(crate) fn take(&mut self, count: usize, mut memory: Vec<u8>) -> Vec<u8> {
        memory.extend_from_slice(&self.buffer[count..]);
        let mut taken = std::mem::replace(&mut self.buffer, memory);
        taken.truncate(count);
        self.taken += count as u64;
        taken
    }

    /// Ends the content, with zeroes up to the first page, and gives the pages; `None` if there is no run.
    pub(crate) fn finish(&mut self, identity: ChunkIdentity) -> Option<ChunkPages> {
        self.check_whole();
        self.end_run();
        let content_end = self.position();
        let crcs = std::mem::take(&mut self.blocks).finish();
        let pages = std::mem::take(&mut self.pages).finish(identity, content_end, &crcs)?;
        let padding = pages.header.layout().tail_start - content_end;
        self.buffer.resize(self.buffer.len() + padding as usize, 0);
        Some(pages)
    }
}

fn to_u32(length: u64) -> u32 {
    u32::try_from(length).expect("a run is shorter than 2 GiB")
}

/// Checksums of blocks of content.
#[derive(Debug, Default)]
struct BlockCrcs {
    finished: Vec<u8>,
    crc: u32,
    bytes: u64,
}

impl BlockCrcs {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(CHUNK_BLOCK_BYTES - self.bytes).expect("small");
            let (piece, rest) = bytes.split_at(bytes.len().min(room));
            self.crc = crc32c::crc32c_append(self.crc, piece);
            self.bytes += piece.len() as u64;
            if self.bytes == CHUNK_BLOCK_BYTES {
                self.end_block();
            }
            bytes = rest;
        }
    }

    fn end_block(&mut self) {
        self.finished.extend_from_slice(&self.crc.to_le_bytes());
        (self.crc, self.bytes) = (0, 0);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.bytes > 0 {
            self.end_block();
        }
        self.finished
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chunk::header::tests::ORIGIN;
    use crate::chunk::image::ChunkImage;
    use crate::chunk::pieces::PieceTable;
    use crate::entry::AppendBounds;
    use env::{Random, SeededRandom};
    use model::{ByteOffset, Timestamp};

    /// A run as a test wants it: cut into appends of seven bytes.
    #[derive(Debug, Clone)]
    pub(crate) struct Wanted {
        pub(crate) stream: u64,
        pub(crate) start: u64,
        pub(crate) first_record: u64,
        pub(crate) has_times: bool,
        pub(crate) data: Vec<u8>,
    }

    /// Runs of streams with holes between them, from a seed.
    pub(crate) fn wanted(count: u64, seed: u64) -> Vec<Wanted> {
        let mut random = SeededRandom::new(seed);
        let (mut stream, mut start, mut first_record) = (1, 0, 0);
        let mut runs = Vec::new();
        for _ in 0..count {
            if !random.next_u64().is_multiple_of(3) {
                stream += 1 + random.next_u64() % 5;
                (start, first_record) = (random.next_u64() % 1000, random.next_u64() % 100);
            }
            let length = 1 + random.next_u64() % 200;
            let data: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
            runs.push(Wanted { stream, start, first_record, has_times: stream % 2 == 0, data });
            start += length + 1 + random.next_u64() % 3;
            first_record += length + 1;
        }
        runs
    }

    /// Writes the runs with the shell of IO around the builder.
    pub(crate) fn write_all(runs: &[Wanted], writer: &mut crate::chunk::writer::ChunkWriter) {
        for (append, data) in runs.iter().flat_map(pieces) {
            writer.begin_append(&append);
            writer.write(data).unwrap();
        }
    }

    fn pieces(run: &Wanted) -> Vec<(StreamPiece, &[u8])> {
        let (mut start, mut first_record, mut mark) = (run.start, run.first_record, 1_000);
        let appends = run.data.chunks(7).zip(0_u64..);
        let piece = |(data, number): (_, u64)| {
            let data: &[u8] = data;
            let records = 1 + (run.stream % 3) as u32;
            let bounds = AppendBounds {
                start: ByteOffset::new(start),
                end: ByteOffset::new(start + data.len() as u64),
                records,
                at: Timestamp::new(1_700_000_000_000 + number),
            };
            let next = mark + number % 5;
            let append = StreamPiece {
                stream: run.stream,
                first_record,
                mark_before: run.has_times.then_some(mark),
                piece: Piece { bounds, mark: run.has_times.then_some(next) },
            };
            (start, first_record, mark) =
                (bounds.end.get(), first_record + u64::from(records), next);
            (append, data)
        };
        appends.map(piece).collect()
    }

    pub(crate) const IDENTITY: ChunkIdentity =
        ChunkIdentity { group: 3, origin: ORIGIN, from: 10, to: 20 };

    /// The file's bytes.
    pub(crate) fn build(runs: &[Wanted]) -> Vec<u8> {
        let mut file = vec![0; CONTENT_START as usize];
        let mut builder = ChunkBuilder::default();
        for run in runs {
            for (append, data) in pieces(run) {
                builder.begin(&append);
                let (first, rest) = data.split_at(data.len() / 2);
                [first, rest].into_iter().for_each(|part| builder.write(part));
                if builder.buffered().len() > 1000 {
                    file.extend(builder.take(builder.buffered().len(), Vec::new()));
                    assert_eq!(builder.position(), file.len() as u64);
                }
            }
        }
        let pages = builder.finish(IDENTITY).unwrap();
        file.extend_from_slice(builder.buffered());
        pages.tail().for_each(|page| file.extend_from_slice(&page));
        file.extend_from_slice(&pages.footer());
        file[..CONTENT_START as usize].copy_from_slice(&pages.front());
        file
    }

    #[test]
    fn appends_come_back_with_their_records_and_times() {
        let runs = wanted(50, 1);
        let bytes = build(&runs);
        let image = ChunkImage::open(&bytes, ORIGIN.lineage).unwrap();
        for (row, run) in image.rows().iter().zip(&runs) {
            let body = row.body.unwrap();
            let wanted = pieces(run);
            let (first, last) = (wanted[0].0, wanted.last().unwrap().0);
            assert_eq!((row.stream, row.start), (run.stream, run.start));
            assert_eq!(body.first_record, run.first_record);
            let next = last.first_record + u64::from(last.piece.bounds.records);
            assert_eq!(body.records, next - run.first_record);
            assert_eq!(body.first_at, first.piece.bounds.at.get());
            assert_eq!(body.last_at, last.piece.bounds.at.get());
            let marks = first.mark_before.zip(last.piece.mark);
            assert_eq!(body.marks, marks.map(|(before, last)| Marks { before, last }));
            let table = PieceTable::new(image.run(row).1, row.columns().unwrap()).unwrap();
            let wanted: Vec<Piece> = wanted.iter().map(|(append, _)| append.piece).collect();
            assert_eq!(table.iter().collect::<Vec<_>>(), wanted);
        }
        assert_eq!(image.rows().len(), runs.len());
    }

    #[test]
    fn what_does_not_follow_begins_a_run() {
        let mut follows = wanted(1, 2).remove(0);
        follows.has_times = false;
        let runs = |change: fn(&mut Wanted)| {
            let mut next = Wanted {
                start: follows.start + follows.data.len() as u64,
                first_record: follows.first_record
                    + follows.data.len().div_ceil(7) as u64 * (1 + follows.stream % 3),
                ..follows.clone()
            };
            change(&mut next);
            let bytes = build(&[follows.clone(), next]);
            ChunkImage::open(&bytes, ORIGIN.lineage).unwrap().header.row_count
        };
        assert_eq!(runs(|_| {}), 1);
        assert_eq!(runs(|next| next.start += 1), 2, "a hole");
        assert_eq!(runs(|next| next.first_record += 1), 2, "a hole in the records");
        assert_eq!(runs(|next| next.has_times = true), 2, "other columns");
        assert_eq!(runs(|next| next.stream += 1), 2, "another stream");
    }

    #[test]
    fn a_chunk_without_appends_is_none() {
        assert!(ChunkBuilder::default().finish(IDENTITY).is_none());
    }

    #[test]
    #[should_panic(expected = "runs come in order")]
    fn runs_that_come_out_of_order_are_a_defect() {
        let mut runs = wanted(2, 3);
        runs[1].stream = 0;
        build(&runs);
    }
}
