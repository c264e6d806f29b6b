//! A chunk file: its header in memory, all else read when it is asked for.
//!
//! # Invariants
//! - No byte leaves a chunk before the checksum of its block was compared once in this process. Where a
//!   block is damaged, the checksum of the run decides: damage of one stream costs no other.
//! - The holder of a chunk can read it, also when its file has been replaced and has no name any more.

use crate::aim::PlacedAppend;
use crate::chunk::cache::ChunkCache;
use crate::chunk::header::{CONTENT_START, ChunkHeader, HEADER_BYTES};
use crate::chunk::image::open_page;
use crate::chunk::lookup::{PageSource, block_crc};
use crate::chunk::page::{PAGE_BYTES, Page};
use crate::chunk::pieces::{Goal, TableParts};
use crate::chunk::row::Row;
use crate::chunk::row_page::Rows;
use crate::chunk::served::ReadFailures;
use crate::chunk::writer::WrittenChunk;
use crate::damage::DamageKind;
use crate::newer::{NewerPlace, NewerVersion};
use crate::options::CHUNK_BLOCK_BYTES;
use crate::read::{ReadError, ReadMode};
use crate::unreadable::{UnreadableFile, cannot_open, read_around};
use env::File;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An immutable chunk. Jobs share it with the shard.
#[derive(Debug)]
pub(crate) struct ChunkFile {
    pub(crate) header: ChunkHeader,
    /// The local number: a higher one was made later.
    pub(crate) seq: u64,
    pub(crate) path: PathBuf,
    cache: Arc<ChunkCache>,
    id: u64,
    /// The filter, if it is in one page of the index and there was room for it.
    filter: OnceLock<Box<[u8]>>,
    /// Of all its open files.
    failures: ReadFailures,
    /// The open file of a chunk that was replaced.
    kept: OnceLock<Arc<dyn File>>,
    /// One bit per block whose checksum was right.
    verified: OnceLock<Box<[AtomicU64]>>,
    /// Parts of runs in damaged blocks, by position, and whether they are intact all the same.
    judged: Mutex<BTreeMap<u64, bool>>,
}

/// What opening a chunk file came to.
#[derive(Debug)]
pub(crate) enum OpenedChunk {
    /// Usable; the header at this position had to be repaired to read it.
    Chunk { chunk: Box<ChunkFile>, repaired: Option<u64> },
    /// Neither the header nor the footer can be read.
    Unreadable,
    /// A newer version wrote it.
    Newer(NewerPlace),
}

/// The pages of a chunk as a thread of this mode gets them.
pub(crate) struct Pages<'a> {
    chunk: &'a ChunkFile,
    mode: ReadMode,
}

impl PageSource for Pages<'_> {
    type Error = io::Error;

    fn header(&self) -> &ChunkHeader {
        &self.chunk.header
    }

    fn page(&self, number: u32) -> io::Result<Option<Arc<Page>>> {
        let chunk = self.chunk;
        if let Some(page) = chunk.cache.page(chunk.id, number) {
            return Ok(Some(page));
        }
        let page = chunk.read_page(number, self.mode)?.map(Arc::new);
        if let Some(page) = &page {
            chunk.keep_page(number, page);
        }
        Ok(page)
    }

    fn filter(&self) -> Option<&[u8]> {
        self.chunk.filter.get().map(|filter| &filter[..])
    }
}

impl Drop for ChunkFile {
    fn drop(&mut self) {
        if let Some(filter) = self.filter.get() {
            self.cache.give_filter_room(filter.len() as u64);
        }
    }
}

/// What a damaged page costs, and its position.
pub(crate) type PageDamage = (DamageKind, u64);

impl ChunkFile {
    pub(crate) fn new(written: WrittenChunk, cache: Arc<ChunkCache>) -> Self {
        let (id, failures) = (cache.take_id(), ReadFailures::default());
        cache.keep(id, failures.watch(written.file));
        Self {
            header: written.header,
            seq: written.seq,
            path: written.path,
            cache,
            id,
            filter: OnceLock::new(),
            failures,
            kept: OnceLock::new(),
            verified: OnceLock::new(),
            judged: Mutex::default(),
        }
    }

    /// Opens a chunk by its front header or, if that is damaged, by its footer; if both are, by one
    /// that can be repaired.
    ///
    /// # Errors
    /// Any error of the underlying disk; damage is no error.
    pub(crate) fn open(
        cache: &Arc<ChunkCache>,
        (path, seq): (&Path, u64),
        lineage: u64,
    ) -> io::Result<OpenedChunk> {
        let Some(file) = cache.open(path)? else {
            return Ok(OpenedChunk::Unreadable);
        };
        let length = file.len()?;
        if length < CONTENT_START + HEADER_BYTES as u64 {
            return Ok(OpenedChunk::Unreadable);
        }
        let (header, repaired) = match read_header(&*file, length, lineage)? {
            FoundHeader::Intact(header) => (header, None),
            FoundHeader::Repaired(header, position) => (header, Some(position)),
            FoundHeader::None => return Ok(OpenedChunk::Unreadable),
            FoundHeader::Newer(newer, at) => return Ok(OpenedChunk::Newer(newer.at(path, at))),
        };
        let written = WrittenChunk { header, seq, file, path: path.to_owned() };
        let chunk = Box::new(Self::new(written, Arc::clone(cache)));
        Ok(OpenedChunk::Chunk { chunk, repaired })
    }

    /// The open file. One that the device cannot open is damaged as a whole: no block of it can be read.
    ///
    /// # Errors
    /// `WouldBlock` if it is not open and this thread must not wait. Otherwise any error of the underlying disk.
    pub(crate) fn file(&self, mode: ReadMode) -> io::Result<Arc<dyn File>> {
        if let Some(file) = self.kept.get() {
            return Ok(Arc::clone(file));
        }
        match (self.cache.file(self.id), mode) {
            (Some(file), _) => Ok(file),
            (None, ReadMode::Inline) => Err(io::ErrorKind::WouldBlock.into()),
            (None, ReadMode::Blocking) => {
                // It may have been replaced, and lost its name, a moment ago.
                let opened = self.open_again();
                let opened =
                    opened.or_else(|error| self.kept.get().cloned().map(Some).ok_or(error));
                Ok(opened?.unwrap_or_else(|| Arc::new(UnreadableFile)))
            }
        }
    }

    fn open_again(&self) -> io::Result<Option<Arc<dyn File>>> {
        let opened = self.cache.open(&self.path)?;
        Ok(opened.map(|file| {
            let file = self.failures.watch(file);
            self.cache.keep(self.id, Arc::clone(&file));
            file
        }))
    }

    /// Keeps the file open for jobs that still read it: its name is about to go.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn retire(&self) -> io::Result<()> {
        if self.kept.get().is_none() {
            let file = match self.cache.file(self.id) {
                Some(file) => file,
                None => self.open_again()?.ok_or_else(|| cannot_open(&self.path))?,
            };
            let _ = self.kept.set(file);
        }
        self.cache.forget_file(self.id);
        Ok(())
    }

    pub(crate) fn pages(&self, mode: ReadMode) -> Pages<'_> {
        Pages { chunk: self, mode }
    }

    /// A page from the file, by its first copy or, if that is damaged, by its second; `None` if both are.
    ///
    /// # Errors
    /// As [`ReadMode::fill`].
    pub(crate) fn read_page(&self, number: u32, mode: ReadMode) -> io::Result<Option<Page>> {
        let (file, layout) = (self.file(mode)?, self.header.layout());
        let mut bytes = vec![0; layout.page_bytes(number)];
        for copy in 0..2 {
            mode.fill(&*file, &mut bytes, layout.page_position(copy, number))?;
            let page = open_page(&bytes, &self.header, number);
            if page.is_some() {
                return Ok(page);
            }
            self.cache.note_damaged_page();
        }
        Ok(None)
    }

    /// What is damaged in the index. It stays in memory as long as there is room: each lookup asks it.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn check_index(&self) -> io::Result<Vec<PageDamage>> {
        let mut found = Vec::new();
        let layout = self.header.layout();
        for number in layout.row_pages..layout.page_count() {
            let page = self.check_page(number, &mut found)?;
            if let Some(page) = page {
                self.keep_page(number, &Arc::new(page));
            }
        }
        Ok(found)
    }

    /// Keeps a page while it is used, and the filter that is in it.
    fn keep_page(&self, number: u32, page: &Arc<Page>) {
        let layout = self.header.layout();
        let ((first, start), length) =
            (layout.index_place(layout.filter_start), layout.filter_bytes());
        let end = start + usize::try_from(length).expect("fits memory");
        if first == number
            && self.filter.get().is_none()
            && let Some(filter) = page.payload.get(start..end)
            && self.cache.take_filter_room(length)
            && self.filter.set(filter.into()).is_err()
        {
            // Another thread has just kept it.
            self.cache.give_filter_room(length);
        }
        self.cache.keep_page(self.id, number, page);
    }

    /// Gives each row in order to `each`, but for those of lost pages, and returns what is damaged in the pages
    /// of rows. Nothing is kept in memory.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn check_rows(&self, mut each: impl FnMut(Row)) -> io::Result<Vec<PageDamage>> {
        let mut found = Vec::new();
        for number in 0..self.header.row_pages {
            if let Some(page) = self.check_page(number, &mut found)? {
                Rows::new(&page).for_each(&mut each);
            }
        }
        Ok(found)
    }

    /// A page by the first copy that is intact; adds what is damaged, which a look at both copies shows.
    fn check_page(&self, number: u32, found: &mut Vec<PageDamage>) -> io::Result<Option<Page>> {
        let copies = [self.read_copy(0, number)?, self.read_copy(1, number)?];
        let layout = self.header.layout();
        let bad: Vec<u32> =
            (0..).zip(&copies).filter(|(_, page)| page.is_none()).map(|(copy, _)| copy).collect();
        let is_lost = bad.len() == 2 && number < layout.row_pages;
        let kind = if is_lost { DamageKind::ChunkRow } else { DamageKind::HeaderRepaired };
        found.extend(bad.first().map(|&copy| (kind, layout.page_position(copy, number))));
        Ok(copies.into_iter().flatten().next())
    }

    fn read_copy(&self, copy: u32, number: u32) -> io::Result<Option<Page>> {
        let (file, layout) = (self.file(ReadMode::Blocking)?, self.header.layout());
        let mut bytes = vec![0; layout.page_bytes(number)];
        ReadMode::Blocking.fill(&*file, &mut bytes, layout.page_position(copy, number))?;
        Ok(open_page(&bytes, &self.header, number))
    }

    /// Compares the checksums of the blocks of `length` bytes from `position` of the run that `row`
    /// describes, once per block. Where one is wrong the run's own checksum decides.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] with the position of the first bad block. A read that must not wait leaves the
    /// judgement of a damaged block to one that may.
    pub(crate) fn verify(
        &self,
        row: &Row,
        (position, length): (u64, u64),
        mode: ReadMode,
    ) -> Result<(), ReadError> {
        if row.body.is_none() {
            return Err(self.damaged(row.position));
        }
        if length == 0 {
            return Ok(());
        }
        if self.failures.take() {
            self.check_again();
        }
        let first = (position - CONTENT_START) / CHUNK_BLOCK_BYTES;
        let last = (position - CONTENT_START + length - 1) / CHUNK_BLOCK_BYTES;
        for block in first..=last {
            if !self.is_block_intact(block, mode)? && !self.is_part_intact(row, position, mode)? {
                return Err(self.damaged(self.header.block(block).0));
            }
        }
        Ok(())
    }

    /// Forgets what was found intact: it is read and compared again.
    pub(crate) fn check_again(&self) {
        self.verified().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn verified(&self) -> &[AtomicU64] {
        self.verified.get_or_init(|| {
            let words = self.header.block_count().div_ceil(64);
            (0..words).map(|_| AtomicU64::new(0)).collect()
        })
    }

    fn is_block_intact(&self, block: u64, mode: ReadMode) -> Result<bool, ReadError> {
        let index = usize::try_from(block).expect("fits memory");
        let (word, bit) = (&self.verified()[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(true);
        }
        // Where the checksum is lost that of the run decides.
        let Some(wanted) = block_crc(&self.pages(mode), block)? else { return Ok(false) };
        let (start, length) = self.header.block(block);
        let is_intact = self.crc_of(start, length, mode)? == wanted;
        if is_intact {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(is_intact)
    }

    /// Whether the part of the run that holds `position`, its bytes or its table, is intact although a
    /// block around it is not. Each part is judged once.
    fn is_part_intact(&self, row: &Row, position: u64, mode: ReadMode) -> Result<bool, ReadError> {
        // To check all of a run takes long.
        mode.check_bytes(u64::MAX)?;
        let Some(body) = row.body else { return Ok(false) };
        let is_table = position >= row.table_position();
        let (start, length, wanted) = match is_table {
            true => (row.table_position(), row.table_length, body.table_crc),
            false => (row.position, row.length, body.data_crc),
        };
        let judged =
            self.judged.lock().unwrap_or_else(PoisonError::into_inner).get(&start).copied();
        if let Some(is_intact) = judged {
            return Ok(is_intact);
        }
        let is_intact = wanted == self.crc_of(start, u64::from(length), mode)?;
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).insert(start, is_intact);
        Ok(is_intact)
    }

    fn crc_of(&self, start: u64, length: u64, mode: ReadMode) -> io::Result<u32> {
        let file = self.file(mode)?;
        let (mut crc, mut at, end) = (0, start, start + length);
        let mut buffer = Vec::new();
        while at < end {
            buffer.resize(usize::try_from((end - at).min(CHUNK_BLOCK_BYTES)).expect("small"), 0);
            mode.fill(&*file, &mut buffer, at)?;
            crc = crc32c::crc32c_append(crc, &buffer);
            at += buffer.len() as u64;
        }
        Ok(crc)
    }

    pub(crate) fn damaged(&self, position: u64) -> ReadError {
        ReadError::Damaged { file: self.path.clone(), position }
    }

    /// That a row page is lost.
    pub(crate) fn lost(&self, page: u32) -> ReadError {
        self.damaged(self.header.layout().page_position(0, page))
    }

    /// The bytes of a run's append table, verified.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn table(&self, row: &Row, mode: ReadMode) -> Result<Vec<u8>, ReadError> {
        mode.check_bytes(u64::from(row.table_length))?;
        self.table_part(row, (0, row.table_length as usize), mode)
    }

    /// The append of a run that a search is for; `None` if the run has none.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn search(
        &self,
        row: &Row,
        goal: Goal,
        mode: ReadMode,
    ) -> Result<Option<PlacedAppend>, ReadError> {
        let damaged = || self.damaged(row.table_position());
        let (columns, body) = row.columns().zip(row.body).ok_or_else(damaged)?;
        // One read is enough for a small one.
        let is_small = row.table_length as usize <= PAGE_BYTES;
        let whole = if is_small { Some(self.table(row, mode)?) } else { None };
        let read = |position: u64, length: usize| match &whole {
            Some(whole) => Ok(whole[position as usize..][..length].to_vec()),
            None => self.table_part(row, (position, length), mode),
        };
        let parts = TableParts { columns, length: u64::from(row.table_length), read };
        Ok(parts.search(goal)?.map(|(before, piece)| PlacedAppend {
            bounds: piece.bounds,
            first_record: body.first_record + before,
            mark: piece.mark,
        }))
    }

    /// The append of a run that contains byte `at`.
    ///
    /// # Errors
    /// As [`ChunkFile::verify`].
    pub(crate) fn append_at(
        &self,
        row: &Row,
        at: u64,
        mode: ReadMode,
    ) -> Result<PlacedAppend, ReadError> {
        let found = self.search(row, Goal::Byte(at), mode)?;
        found.ok_or_else(|| self.damaged(row.table_position()))
    }

    /// Verified bytes of a run's append table: `length` of them from `from` on.
    fn table_part(
        &self,
        row: &Row,
        (from, length): (u64, usize),
        mode: ReadMode,
    ) -> Result<Vec<u8>, ReadError> {
        let position = row.table_position() + from;
        self.verify(row, (position, length as u64), mode)?;
        let mut bytes = vec![0; length];
        let is_whole = mode.fill(&*self.file(mode)?, &mut bytes, position)?;
        if is_whole { Ok(bytes) } else { Err(self.damaged(position)) }
    }
}

/// What header and footer come to.
#[derive(Debug)]
enum FoundHeader {
    Intact(ChunkHeader),
    /// By the copy at this position.
    Repaired(ChunkHeader, u64),
    /// A newer version wrote the copy at this position.
    Newer(NewerVersion, u64),
    None,
}

fn read_header(file: &dyn File, length: u64, lineage: u64) -> io::Result<FoundHeader> {
    let mut found = FoundHeader::None;
    for position in [0, length - HEADER_BYTES as u64] {
        let mut bytes = [0; HEADER_BYTES];
        read_around(file, &mut bytes, position)?;
        if let Some(newer) = ChunkHeader::newer_in(&bytes, lineage) {
            return Ok(FoundHeader::Newer(newer, position));
        }
        let Some(header) = ChunkHeader::decode(&bytes, lineage, length) else { continue };
        if !header.is_repaired {
            return Ok(FoundHeader::Intact(header.value));
        }
        if matches!(found, FoundHeader::None) {
            found = FoundHeader::Repaired(header.value, position);
        }
    }
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chunk::builder::StreamPiece;
    use crate::chunk::header::Origin;
    use crate::chunk::header::tests::ORIGIN;
    use crate::chunk::list::ChunkList;
    use crate::chunk::pages::ChunkIdentity;
    use crate::chunk::pieces::Piece;
    use crate::chunk::writer::{ChunkName, ChunkWriter};
    use crate::entry::AppendBounds;
    use crate::options::LogOptions;
    use env::{Disk, DiskOperation, MemoryDisk};
    use model::{ByteOffset, Timestamp};

    pub(crate) fn one_append(stream: u64, start: u64, length: u64) -> StreamPiece {
        let bounds = AppendBounds {
            start: ByteOffset::new(start),
            end: ByteOffset::new(start + length),
            records: 1,
            at: Timestamp::new(1),
        };
        let piece = Piece { bounds, mark: None };
        StreamPiece { stream, first_record: start, mark_before: None, piece }
    }

    fn cache(disk: &MemoryDisk, files: u64) -> Arc<ChunkCache> {
        let options = LogOptions { chunk_files_max: files, ..LogOptions::default() };
        Arc::new(ChunkCache::new(Arc::new(disk.clone()), "/c/none".into(), &options))
    }

    /// A chunk of the entries from `from` on; bytes of a stream are its number.
    pub(crate) fn write(disk: &MemoryDisk, from: u64, appends: &[StreamPiece]) -> Arc<ChunkFile> {
        write_in(&cache(disk, 2), disk, from, appends)
    }

    fn write_in(
        cache: &Arc<ChunkCache>,
        disk: &MemoryDisk,
        from: u64,
        appends: &[StreamPiece],
    ) -> Arc<ChunkFile> {
        disk.create_dir_all(Path::new("/c")).unwrap();
        let origin = Origin { number: from, ..ORIGIN };
        let identity = ChunkIdentity { group: 3, origin, from, to: from + 10 };
        let name = ChunkName { dir: "/c".into(), identity };
        let mut writer = ChunkWriter::create(disk, name).unwrap();
        for append in appends {
            let bounds = append.piece.bounds;
            writer.begin_append(append);
            writer
                .write(&vec![append.stream as u8; bounds.end.since(bounds.start) as usize])
                .unwrap();
        }
        let written = writer.finish(disk).unwrap().unwrap();
        Arc::new(ChunkFile::new(written, Arc::clone(cache)))
    }

    /// Three streams of one append each, all in one block.
    fn small(disk: &MemoryDisk) -> PathBuf {
        let appends = [1, 2, 3].map(|stream| one_append(stream, 100, 300));
        write(disk, 9, &appends).path.clone()
    }

    fn open(disk: &MemoryDisk, path: &Path) -> ChunkFile {
        match ChunkFile::open(&cache(disk, 2), (path, 9), ORIGIN.lineage).unwrap() {
            OpenedChunk::Chunk { chunk, .. } => *chunk,
            other => panic!("the chunk is not opened: {other:?}"),
        }
    }

    fn rows(chunk: &ChunkFile) -> Vec<Row> {
        let mut rows = Vec::new();
        let _ = chunk.check_rows(|row| rows.push(row)).unwrap();
        rows
    }

    /// Of each run: whether its bytes and its table can be read.
    fn readable(chunk: &ChunkFile) -> Vec<(bool, bool)> {
        let read = |row: &Row| {
            let run = (row.position, u64::from(row.length));
            let bytes = chunk.verify(row, run, ReadMode::Blocking);
            (bytes.is_ok(), chunk.append_at(row, 150, ReadMode::Blocking).is_ok())
        };
        rows(chunk).iter().map(read).collect()
    }

    #[test]
    fn damage_of_a_run_or_a_table_costs_that_alone() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let rows = rows(&open(&disk, &path));
        for (number, row) in rows.iter().enumerate() {
            for (position, lost) in
                [(row.position, (false, true)), (row.table_position(), (true, false))]
            {
                disk.flip_bit(&path, position * 8 + 8);
                let chunk = open(&disk, &path);
                let mut expected = [(true, true); 3];
                expected[number] = lost;
                assert_eq!(readable(&chunk), expected);
                assert_eq!(readable(&chunk), expected, "judged once, and the same then");
                disk.flip_bit(&path, position * 8 + 8);
            }
        }
        assert_eq!(readable(&open(&disk, &path)), [(true, true); 3]);
    }

    #[test]
    fn damaged_pages_are_told_and_one_copy_costs_nothing() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let layout = open(&disk, &path).header.layout();
        assert_eq!((layout.row_pages, layout.index_pages), (1, 1));
        let check = || {
            let chunk = open(&disk, &path);
            let damages =
                [chunk.check_rows(|_| ()).unwrap(), chunk.check_index().unwrap()].concat();
            (damages, readable(&chunk))
        };
        for (page, lost) in [(0, DamageKind::ChunkRow), (1, DamageKind::HeaderRepaired)] {
            let [first, second] = [0, 1].map(|copy| layout.page_position(copy, page));
            for copy in [first, second] {
                disk.flip_bit(&path, copy * 8);
                assert_eq!(
                    check(),
                    (vec![(DamageKind::HeaderRepaired, copy)], vec![(true, true); 3])
                );
                disk.flip_bit(&path, copy * 8);
            }
            [first, second].into_iter().for_each(|at| disk.flip_bit(&path, at * 8));
            let (damages, runs) = check();
            assert_eq!(damages, [(lost, first)]);
            assert_eq!(runs.len(), if page == 0 { 0 } else { 3 });
            [first, second].into_iter().for_each(|at| disk.flip_bit(&path, at * 8));
        }
    }

    #[test]
    fn copies_that_a_read_finds_damaged_are_counted() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let chunk = open(&disk, &path);
        let first = chunk.header.layout().page_position(0, 0);
        let damaged = || chunk.cache.stats().damaged_pages;
        assert!(chunk.read_page(0, ReadMode::Blocking).unwrap().is_some());
        assert_eq!(damaged(), 0);
        disk.flip_bit(&path, first * 8);
        assert!(chunk.read_page(0, ReadMode::Blocking).unwrap().is_some());
        assert_eq!(damaged(), 1);
    }

    #[test]
    fn without_block_checksums_runs_are_judged_by_themselves() {
        let disk = MemoryDisk::new();
        let path = small(&disk);
        let chunk = open(&disk, &path);
        let layout = chunk.header.layout();
        for copy in 0..2 {
            disk.flip_bit(&path, layout.page_position(copy, 1) * 8);
        }
        assert_eq!(readable(&open(&disk, &path)), [(true, true); 3]);
        disk.flip_bit(&path, rows(&chunk)[1].position * 8);
        let expected = [(true, true), (false, true), (true, true)];
        assert_eq!(readable(&open(&disk, &path)), expected);
    }

    #[test]
    fn a_file_too_short_for_a_chunk_is_unreadable_and_no_error() {
        for length in [0, 1, CONTENT_START, CONTENT_START + HEADER_BYTES as u64 - 1] {
            let disk = MemoryDisk::new();
            let path = small(&disk);
            disk.open(&path).unwrap().set_len(length).unwrap();
            let opened = ChunkFile::open(&cache(&disk, 2), (&path, 9), ORIGIN.lineage).unwrap();
            assert!(matches!(opened, OpenedChunk::Unreadable), "{length} bytes");
        }
    }

    #[test]
    fn few_files_are_open_and_one_that_was_replaced_is_read_on() {
        let disk = MemoryDisk::new();
        let cache = cache(&disk, 2);
        let chunks: Vec<_> = (0..5)
            .map(|from| write_in(&cache, &disk, from * 10, &[one_append(1, from * 100, 100)]))
            .collect();
        let would_wait = chunks.iter().filter(|chunk| chunk.file(ReadMode::Inline).is_err());
        assert_eq!(would_wait.count(), 3);
        for chunk in &chunks {
            assert!(chunk.file(ReadMode::Blocking).is_ok());
        }
        chunks[0].retire().unwrap();
        for chunk in &chunks[..2] {
            disk.remove(&chunk.path).unwrap();
        }
        let _ = [&chunks[3], &chunks[4]].map(|chunk| chunk.file(ReadMode::Blocking).unwrap());
        assert_eq!(readable_bytes(&chunks[0], 50), Some(1));
        assert!(chunks[1].file(ReadMode::Blocking).is_err(), "nobody kept it");
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_damaged_while_that_lasts() {
        let disk = MemoryDisk::new();
        let cache = cache(&disk, 1);
        let [chunk, _] =
            [0, 10].map(|from| write_in(&cache, &disk, from, &[one_append(1, from, 10)]));
        let first = chunk.header.layout().page_position(0, 0);
        // Each copy asks the device twice.
        for (opens, kind) in [(2, DamageKind::HeaderRepaired), (4, DamageKind::ChunkRow)] {
            cache.close_all();
            disk.fail(DiskOperation::Open, 0, opens);
            assert_eq!(chunk.check_rows(|_| ()).unwrap(), [(kind, first)]);
        }
        cache.close_all();
        disk.fail(DiskOperation::Open, 0, 2);
        assert!(chunk.retire().is_err(), "what is not open is not kept");
        assert_eq!(readable(&chunk), [(true, false)], "byte 150 is in another chunk");
    }

    fn readable_bytes(chunk: &ChunkFile, at: u64) -> Option<u8> {
        let row = rows(chunk)[0];
        let mut byte = [0];
        let position = row.position + at - row.start;
        chunk.file(ReadMode::Inline).ok()?.read_exact_at(&mut byte, position).ok()?;
        Some(byte[0])
    }

    #[test]
    fn a_thread_that_must_not_wait_looks_into_few_chunks_and_no_disk() {
        let disk = MemoryDisk::new();
        let cache = cache(&disk, 200);
        let mut list = ChunkList::default();
        for from in 0..100 {
            list.add(write_in(&cache, &disk, from * 10, &[one_append(1, from * 100, 100)]));
        }
        let found = |at, mode| list.find(1, at, mode).map(|found| found.map(|(file, _)| file.seq));
        assert_eq!(found(9_950, ReadMode::Inline).unwrap(), Some(990));
        assert_eq!(found(50, ReadMode::Inline).unwrap(), Some(0), "each look leaves a half");
        assert!(found(10_000, ReadMode::Inline).unwrap_err().would_block());
        assert_eq!(found(10_000, ReadMode::Blocking).unwrap(), None);
        assert_eq!(list.find(2, 0, ReadMode::Inline).unwrap().map(|_| ()), None);
        disk.forget_cached(100, 1);
        assert_eq!(found(9_950, ReadMode::Inline).unwrap(), Some(990), "its pages are kept");
    }
}
