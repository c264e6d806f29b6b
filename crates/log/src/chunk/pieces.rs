//! The append table of a run: where its appends begin, how many records they hold and when they came.
//!
//! # Why
//! A reader of one append needs no other: points, one per 256 appends, say where to begin. What all appends
//! of a run have alike costs nothing: the count of records where each is one, and record times where
//! there are none.
//!
//! # Invariants
//! - Points are sorted by start; a page is decoded only from its own point.
//! - Arrivals do not fall: one that lies before its predecessor is written as equal to it.
//! - It has no checksum of its own: its row has one, and it is part of the checked content.
//!
//! # Format
//! `docs/format/chunk.md`.

use crate::aim::TimeAim;
use crate::codec::{put_varint, take_varint, u32_at, u64_at};
use crate::entry::AppendBounds;
use model::{ByteOffset, Timestamp};

const PAGE_PIECES: u32 = 256;
const HEADER_BYTES: usize = 8;
const POINT_BYTES: usize = 28;
const MARK_BYTES: usize = 8;

/// Points that are read at once.
const POINTS_AT_ONCE: u64 = 128;

/// Most bytes of a page: its pieces have four varints each.
const PAGE_BYTES_MAX: u64 = PAGE_PIECES as u64 * 4 * 10;

/// One append of a run, or a part of one that was placed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bounds: AppendBounds,
    /// The largest record time up to its end, if the stream has record times.
    pub(crate) mark: Option<u64>,
}

/// Which columns a table has; its row says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) has_marks: bool,
    pub(crate) is_each_one_record: bool,
}

impl Columns {
    fn point_bytes(self) -> usize {
        POINT_BYTES + if self.has_marks { MARK_BYTES } else { 0 }
    }
}

/// What a finished table says of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FinishedTable {
    pub(crate) bytes: Vec<u8>,
    pub(crate) columns: Columns,
    pub(crate) records: u64,
    pub(crate) first_at: u64,
    pub(crate) last_at: u64,
    /// The largest record time up to the run's end, if there are any.
    pub(crate) last_mark: Option<u64>,
}

/// Builds the table of one run.
#[derive(Debug)]
pub(crate) struct PieceTableWriter {
    columns: Columns,
    points: Vec<u8>,
    pages: Vec<u8>,
    piece_count: u32,
    page_count: u32,
    records: u64,
    first_at: u64,
    last_at: u64,
    mark: u64,
}

impl PieceTableWriter {
    /// A table without pieces; `mark` is the largest record time before the run.
    pub(crate) fn new(mark: Option<u64>) -> Self {
        Self {
            columns: Columns { has_marks: mark.is_some(), is_each_one_record: true },
            points: Vec::new(),
            pages: Vec::new(),
            piece_count: 0,
            page_count: 0,
            records: 0,
            first_at: 0,
            last_at: 0,
            mark: mark.unwrap_or(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.piece_count == 0
    }

    /// Adds the piece behind the last one.
    ///
    /// # Panics
    /// If it has a record time and the others have none, or the other way round.
    pub(crate) fn push(&mut self, piece: &Piece) {
        let AppendBounds { start, end, records, at } = piece.bounds;
        assert_eq!(piece.mark.is_some(), self.columns.has_marks, "a run has record times or none");
        if self.columns.is_each_one_record && records != 1 {
            self.count_records();
        }
        let at = at.get().max(self.last_at);
        if self.piece_count.is_multiple_of(PAGE_PIECES) {
            self.push_point(start, at);
        }
        put_varint(&mut self.pages, end.since(start));
        if !self.columns.is_each_one_record {
            put_varint(&mut self.pages, u64::from(records));
        }
        put_varint(&mut self.pages, at - self.last_at);
        if let Some(mark) = piece.mark {
            let mark = mark.max(self.mark);
            put_varint(&mut self.pages, mark - self.mark);
            self.mark = mark;
        }
        self.last_at = at;
        self.records += u64::from(records);
        self.piece_count += 1;
    }

    fn push_point(&mut self, start: ByteOffset, at: u64) {
        let position = u32::try_from(self.pages.len()).expect("a table is smaller than a chunk");
        self.points.extend_from_slice(&start.get().to_le_bytes());
        self.points.extend_from_slice(&self.records.to_le_bytes());
        self.points.extend_from_slice(&at.to_le_bytes());
        self.points.extend_from_slice(&position.to_le_bytes());
        if self.columns.has_marks {
            self.points.extend_from_slice(&self.mark.to_le_bytes());
        }
        self.page_count += 1;
        self.last_at = at;
        if self.piece_count == 0 {
            self.first_at = at;
        }
    }

    /// Begins again with a column of counts: until now each piece was one record.
    #[cold]
    fn count_records(&mut self) {
        let mark = self.columns.has_marks.then(|| self.first_mark());
        let done = std::mem::replace(self, Self::new(mark));
        self.columns.is_each_one_record = false;
        if done.is_empty() {
            return;
        }
        let table = done.finish();
        let read = PieceTable::new(&table.bytes, table.columns).expect("it was just written");
        read.iter().for_each(|piece| self.push(&piece));
    }

    /// The largest record time before the run.
    fn first_mark(&self) -> u64 {
        if self.points.is_empty() { self.mark } else { u64_at(&self.points, POINT_BYTES) }
    }

    /// The table.
    ///
    /// # Panics
    /// If it has no piece.
    pub(crate) fn finish(self) -> FinishedTable {
        assert!(!self.is_empty(), "a run has an append");
        let length = HEADER_BYTES + self.points.len() + self.pages.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&self.piece_count.to_le_bytes());
        bytes.extend_from_slice(&self.page_count.to_le_bytes());
        bytes.extend_from_slice(&self.points);
        bytes.extend_from_slice(&self.pages);
        FinishedTable {
            bytes,
            columns: self.columns,
            records: self.records,
            first_at: self.first_at,
            last_at: self.last_at,
            last_mark: self.columns.has_marks.then_some(self.mark),
        }
    }
}

/// Reads a table; `None` wherever the bytes make no sense.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceTable<'a> {
    columns: Columns,
    points: &'a [u8],
    pages: &'a [u8],
}

impl<'a> PieceTable<'a> {
    pub(crate) fn new(bytes: &'a [u8], columns: Columns) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let page_count = u32_at(header, 4) as usize;
        let (points, pages) =
            rest.split_at_checked(page_count.checked_mul(columns.point_bytes())?)?;
        (page_count > 0).then_some(Self { columns, points, pages })
    }

    fn page_count(&self) -> usize {
        self.points.len() / self.columns.point_bytes()
    }

    fn point(&self, page: usize) -> &'a [u8] {
        let length = self.columns.point_bytes();
        &self.points[page * length..(page + 1) * length]
    }

    fn page_bytes(&self, page: usize) -> Option<&'a [u8]> {
        let position = |page| u32_at(self.point(page), 24) as usize;
        let end = if page + 1 < self.page_count() { position(page + 1) } else { self.pages.len() };
        self.pages.get(position(page)..end)
    }

    fn page(&self, page: usize) -> Option<PagePieces<'a>> {
        Some(PagePieces::new(self.columns, self.point(page), self.page_bytes(page)?))
    }

    /// All pieces in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Piece> + 'a {
        (0..self.page_count()).filter_map(move |page| self.page(page)).flatten()
    }
}

/// A table that is read in parts: nobody needs all of it for one piece.
pub(crate) struct TableParts<R> {
    pub(crate) columns: Columns,
    /// Bytes of the table.
    pub(crate) length: u64,
    /// Gives so many bytes of the table from a position on.
    pub(crate) read: R,
}

impl<E, R: FnMut(u64, usize) -> Result<Vec<u8>, E>> TableParts<R> {
    /// The piece that a search is for, and the records of the run before it. A few points and one or two pages are read.
    /// `None` also where the bytes make no sense.
    ///
    /// # Errors
    /// As parts are read.
    pub(crate) fn search(mut self, goal: Goal) -> Result<Option<(u64, Piece)>, E> {
        if self.length < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let header = (self.read)(0, HEADER_BYTES)?;
        let page_count = u64::from(u32_at(&header, 4));
        let points_end = HEADER_BYTES as u64 + page_count * self.columns.point_bytes() as u64;
        if page_count == 0 || points_end > self.length {
            return Ok(None);
        }
        let (points, is_last) = self.points_before(goal, page_count)?;
        let points: Vec<&[u8]> = points.chunks_exact(self.columns.point_bytes()).collect();
        let at = goal.field(self.columns);
        let before = points.iter().take_while(|point| goal.is_after(u64_at(point, at))).count();
        // The page before the first one that begins at or after a time may end with it.
        let after = if matches!(goal, Goal::Time(_)) { before + 1 } else { before };
        for page in before.saturating_sub(1)..after.min(points.len()) {
            let position = |point: &&[u8]| points_end + u64::from(u32_at(point, 24));
            let next = points.get(page + 1);
            let (start, end) = (position(&points[page]), next.map_or(self.length, position));
            let is_known = next.is_some() || is_last;
            let is_page = start <= end && end <= self.length.min(start + PAGE_BYTES_MAX);
            if !is_known || !is_page {
                return Ok(None);
            }
            let length = usize::try_from(end - start).expect("a page is small");
            let bytes = (self.read)(start, length)?;
            if let Some(found) = search_page(self.columns, (points[page], &bytes), goal) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Points of the pages that may have what is searched for, of the page behind them, and of others. And whether the last
    /// point of all is among them.
    fn points_before(&mut self, goal: Goal, page_count: u64) -> Result<(Vec<u8>, bool), E> {
        let point_bytes = self.columns.point_bytes() as u64;
        let position = |page: u64| HEADER_BYTES as u64 + page * point_bytes;
        let field = goal.field(self.columns) as u64;
        let (mut low, mut high) = (0, page_count);
        // The goal is behind the point before `low`, and not behind that at `high`.
        while high - low > POINTS_AT_ONCE {
            let middle = low.midpoint(high);
            let value = u64_at(&(self.read)(position(middle) + field, 8)?, 0);
            if goal.is_after(value) { low = middle + 1 } else { high = middle }
        }
        let (from, to) = (low.saturating_sub(1), (high + 2).min(page_count));
        let length = usize::try_from((to - from) * point_bytes).expect("few points");
        Ok(((self.read)(position(from), length)?, to == page_count))
    }
}

/// What a piece of a run is searched for by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// It holds this byte of the stream.
    Byte(u64),
    /// It holds this record, counted from the run's first.
    Record(u64),
    /// It is the first that is not before a time.
    Time(TimeAim),
}

impl Goal {
    /// The position in a point of the number that it is compared with.
    fn field(self, columns: Columns) -> usize {
        match self {
            Self::Byte(_) => 0,
            Self::Record(_) => 8,
            Self::Time(TimeAim::Record(_)) if columns.has_marks => POINT_BYTES,
            Self::Time(_) => 16,
        }
    }

    /// Whether a page with this field begins before it, or with it.
    fn is_after(self, field: u64) -> bool {
        match self {
            Self::Byte(at) => field <= at,
            Self::Record(number) => field <= number,
            Self::Time(TimeAim::Arrival(at)) => field < at.get(),
            Self::Time(TimeAim::Record(time)) => field < time,
        }
    }
}

/// The piece of a page that a search is for.
fn search_page(
    columns: Columns,
    (point, bytes): (&[u8], &[u8]),
    goal: Goal,
) -> Option<(u64, Piece)> {
    let mut before = u64_at(point, 8);
    for piece in PagePieces::new(columns, point, bytes) {
        let records = u64::from(piece.bounds.records);
        let is_it = match goal {
            Goal::Byte(at) => (piece.bounds.start.get()..piece.bounds.end.get()).contains(&at),
            Goal::Record(number) => (before..before.checked_add(records)?).contains(&number),
            Goal::Time(aim) => !aim.is_behind(piece.bounds.at.get(), piece.mark),
        };
        if is_it {
            return Some((before, piece));
        }
        before = before.checked_add(records)?;
    }
    None
}

struct PagePieces<'a> {
    columns: Columns,
    rest: &'a [u8],
    start: u64,
    at: u64,
    mark: u64,
}

impl<'a> PagePieces<'a> {
    fn new(columns: Columns, point: &[u8], rest: &'a [u8]) -> Self {
        let mark = if columns.has_marks { u64_at(point, POINT_BYTES) } else { 0 };
        Self { columns, rest, start: u64_at(point, 0), at: u64_at(point, 16), mark }
    }
}

impl Iterator for PagePieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let Columns { has_marks, is_each_one_record } = self.columns;
        let length = take_varint(&mut self.rest)?;
        let records = if is_each_one_record { 1 } else { take_varint(&mut self.rest)? };
        let records = u32::try_from(records).ok()?;
        let at = self.at.checked_add(take_varint(&mut self.rest)?)?;
        let passed = if has_marks { take_varint(&mut self.rest)? } else { 0 };
        let mark = self.mark.checked_add(passed)?;
        let (start, end) = (self.start, self.start.checked_add(length)?);
        (self.start, self.at, self.mark) = (end, at, mark);
        let bounds = AppendBounds {
            start: ByteOffset::new(start),
            end: ByteOffset::new(end),
            records,
            at: Timestamp::new(at),
        };
        Some(Piece { bounds, mark: has_marks.then_some(mark) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of ten bytes; `records` and `mark` of each by its number.
    fn pieces(count: u64, records: fn(u64) -> u32, mark: fn(u64) -> Option<u64>) -> Vec<Piece> {
        let piece = |number: u64| Piece {
            bounds: AppendBounds {
                start: ByteOffset::new(1000 + number * 10),
                end: ByteOffset::new(1000 + number * 10 + 10),
                records: records(number),
                at: Timestamp::new(1_700_000_000_000 + number * 5),
            },
            mark: mark(number),
        };
        (0..count).map(piece).collect()
    }

    fn table(pieces: &[Piece], mark: Option<u64>) -> FinishedTable {
        let mut writer = PieceTableWriter::new(mark);
        pieces.iter().for_each(|piece| writer.push(piece));
        writer.finish()
    }

    /// One record each, several in some, and several only late; each with and without record times.
    fn kinds(count: u64) -> Vec<(Vec<Piece>, Option<u64>)> {
        let records: [fn(u64) -> u32; 3] =
            [|_| 1, |number| (number % 7) as u32, |number| if number == 600 { 0 } else { 1 }];
        let kind = |records| {
            let times = pieces(count, records, |number| Some(50 + number / 3 * 40));
            [(pieces(count, records, |_| None), None), (times, Some(49))]
        };
        records.into_iter().flat_map(kind).collect()
    }

    /// The piece of a table that holds byte `at`, and the bytes that were read for it.
    fn find(table: (&[u8], Columns), at: u64) -> (Option<Piece>, usize) {
        let (found, read_bytes) = search(table, Goal::Byte(at));
        (found.map(|(_, piece)| piece), read_bytes)
    }

    /// What a search finds, and the bytes that were read for it.
    fn search((bytes, columns): (&[u8], Columns), goal: Goal) -> (Option<(u64, Piece)>, usize) {
        let mut read_bytes = 0;
        let read = |position: u64, length: usize| {
            read_bytes += length;
            Ok::<_, ()>(bytes[position as usize..][..length].to_vec())
        };
        let found = TableParts { columns, length: bytes.len() as u64, read }.search(goal);
        (found.unwrap(), read_bytes)
    }

    #[test]
    fn every_piece_is_found_by_its_first_and_last_byte() {
        for (pieces, mark) in kinds(1000) {
            let table = table(&pieces, mark);
            let read = PieceTable::new(&table.bytes, table.columns).unwrap();
            assert_eq!(read.iter().collect::<Vec<_>>(), pieces);
            let find = |at| find((&table.bytes, table.columns), at).0;
            for piece in &pieces {
                assert_eq!(find(piece.bounds.start.get()), Some(*piece));
                assert_eq!(find(piece.bounds.end.get() - 1), Some(*piece));
            }
            assert_eq!(find(999), None);
            assert_eq!(find(11_000), None);
            let records = pieces.iter().map(|piece| u64::from(piece.bounds.records)).sum();
            assert_eq!(table.records, records);
            assert_eq!(table.last_at, pieces[999].bounds.at.get());
            assert_eq!(table.last_mark, pieces[999].mark);
        }
    }

    #[test]
    fn records_and_times_are_found_as_a_walk_finds_them() {
        for (mut pieces, mark) in kinds(1000) {
            // Many arrive at once, and many marks are equal, also at the end of a page.
            for piece in &mut pieces {
                piece.bounds.at = Timestamp::new(piece.bounds.at.get() / 700 * 700);
            }
            let table = table(&pieces, mark);
            let search = |goal| search((&table.bytes, table.columns), goal).0;
            let walk = |is_it: &dyn Fn(u64, &Piece) -> bool| {
                let mut before = 0;
                pieces.iter().find_map(|piece| {
                    let found = is_it(before, piece).then_some((before, *piece));
                    before += u64::from(piece.bounds.records);
                    found
                })
            };
            for number in (0..table.records + 2).step_by(3) {
                let holds = |before, piece: &Piece| {
                    (before..before + u64::from(piece.bounds.records)).contains(&number)
                };
                assert_eq!(search(Goal::Record(number)), walk(&holds), "record {number}");
            }
            let arrivals = pieces.iter().map(|piece| TimeAim::Arrival(piece.bounds.at));
            let times = pieces.iter().map(|piece| TimeAim::Record(piece.mark.unwrap_or(7)));
            let ends = [0, 1, u64::MAX].map(TimeAim::Record);
            for aim in arrivals.chain(times).chain(ends) {
                let is_reached =
                    |_, piece: &Piece| !aim.is_behind(piece.bounds.at.get(), piece.mark);
                assert_eq!(search(Goal::Time(aim)), walk(&is_reached), "{aim:?}");
            }
        }
    }

    #[test]
    fn one_piece_of_very_many_is_found_by_few_bytes() {
        let pieces = pieces(300_000, |_| 1, |_| None);
        let table = table(&pieces, None);
        assert!(table.bytes.len() > 600_000);
        for number in [0, 1, 255, 256, 257, 123_456, 150_000, 299_775, 299_776, 299_999] {
            let piece = pieces[number];
            let at = piece.bounds.start.get() + 3;
            let time = TimeAim::Arrival(piece.bounds.at);
            for goal in [Goal::Byte(at), Goal::Record(number as u64), Goal::Time(time)] {
                let (found, bytes) = search((&table.bytes, table.columns), goal);
                assert_eq!(found, Some((number as u64, piece)));
                assert!(bytes < 7_000, "{bytes} bytes were read for {goal:?}");
            }
        }
    }

    #[test]
    fn what_all_pieces_have_alike_costs_nothing() {
        let bytes = |kind: usize| {
            let (pieces, mark) = &kinds(1000)[kind];
            table(pieces, *mark).bytes.len()
        };
        assert_eq!(bytes(0), 8 + 4 * 28 + 1000 * 2);
        assert_eq!(bytes(1), 8 + 4 * 36 + 1000 * 3);
        assert_eq!(bytes(2), 8 + 4 * 28 + 1000 * 3);
        assert_eq!(bytes(5), 8 + 4 * 36 + 1000 * 4);
    }

    #[test]
    fn times_that_fall_are_written_as_equal() {
        let mut pieces = pieces(3, |_| 1, |number| Some(10 - number));
        for (piece, at) in pieces.iter_mut().zip([100, 90, 110]) {
            piece.bounds.at = Timestamp::new(at);
        }
        let table = table(&pieces, Some(10));
        let read = PieceTable::new(&table.bytes, table.columns).unwrap();
        let times: Vec<_> = read.iter().map(|piece| (piece.bounds.at.get(), piece.mark)).collect();
        assert_eq!(times, [(100, Some(10)), (100, Some(10)), (110, Some(10))]);
        assert_eq!((table.first_at, table.last_at), (100, 110));
    }

    #[test]
    fn senseless_bytes_are_refused() {
        for (pieces, mark) in kinds(601) {
            let table = table(&pieces, mark);
            for length in 0..table.bytes.len() {
                for number in [0, 300, 1050] {
                    let time = Goal::Time(TimeAim::Record(number));
                    for goal in [Goal::Byte(number), Goal::Record(number), time] {
                        let _ = search((&table.bytes[..length], table.columns), goal);
                    }
                }
                if let Some(read) = PieceTable::new(&table.bytes[..length], table.columns) {
                    assert!(read.iter().count() <= 601);
                }
            }
        }
        let columns = Columns { has_marks: false, is_each_one_record: true };
        assert!(PieceTable::new(&[], columns).is_none());
        assert!(PieceTable::new(&[1, 0, 0, 0, 0, 0, 0, 0], columns).is_none());
        assert!(PieceTable::new(&[1, 0, 0, 0, 255, 255, 255, 255], columns).is_none());
    }

    #[test]
    fn the_bytes_of_tables_never_change() {
        let mut bytes = Vec::new();
        for (pieces, mark) in kinds(300).into_iter().take(4) {
            bytes.extend_from_slice(&table(&pieces, mark).bytes);
        }
        assert!(bytes == include_bytes!("../../testdata/chunk-tables.golden"));
    }
}
