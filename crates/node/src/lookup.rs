//! Questions to stored bytes: the bytes of a window, or a position that only the bytes can tell.
//!
//! # Why
//! Bytes may not be in memory, and a JSON message may lie in megabytes of others. So a question is a
//! value. The loop asks it first, without waiting and for a short time. If that is not enough it
//! becomes a [`ReadJob`] for a thread that may wait. A long scan comes back in pieces, so that it
//! does not hold up the reads behind it.
//!
//! # Invariants
//! - A question is about bytes of one extent.
//! - Asked again after it came back unfinished, it continues where it was.

use crate::{FoundRecord, Search};
use log::{Aim, Extent, PlacedAppend, ReadError, ReadMode, Slice};
use model::{ByteOffset, limits};
use std::io;
use stream::messages::MessageScanner;

/// Bytes that are scanned for messages in one go: some 100 µs on the loop, some milliseconds elsewhere.
const SCAN_INLINE_BYTES_MAX: u64 = 64 << 10;
const SCAN_JOB_BYTES_MAX: u64 = 2 << 20;

/// What is asked of stored bytes.
#[derive(Debug)]
pub(crate) enum Question {
    /// Bytes from `from`, at most `max_bytes`.
    Window { from: ByteOffset, max_bytes: usize },
    /// The end of the first part from `from` that can be read, at most `max_bytes` behind it.
    Intact { from: ByteOffset, max_bytes: usize, json: bool },
    /// End of the append that holds a byte.
    AppendEnd(ByteOffset),
    /// Start of the message that holds `at`; the last one found so far is `start`.
    MessageStart { at: ByteOffset, start: ByteOffset, scan: Option<Scan> },
    /// The append that an extent looks for.
    Append,
    /// A record inside an append; the last one that began at or before it so far.
    Record {
        search: Search,
        append: PlacedAppend,
        scan: Option<Scan>,
        last: Option<(ByteOffset, u64)>,
    },
    /// See [`crate::Locate::SubOffset`].
    SubOffset { from: ByteOffset, count: u64, json: bool, limit: ByteOffset, scan: Option<Scan> },
}

/// A scan for the ends of messages.
#[derive(Debug)]
pub(crate) struct Scan {
    scanner: MessageScanner,
    at: ByteOffset,
    end: ByteOffset,
    /// Messages that have ended so far.
    found: u64,
}

/// The answer.
#[derive(Debug)]
pub(crate) enum Found {
    Slice(Slice),
    Position(ByteOffset),
    Append(Option<PlacedAppend>),
    Record(FoundRecord),
    /// A sub-offset beyond what the append holds.
    Beyond {
        available: u64,
    },
}

/// Why there is none.
#[derive(Debug)]
pub(crate) struct NotFound {
    pub error: ReadError,
    /// The start of the append that cannot be read, if the question wants it.
    pub append_start: Option<ByteOffset>,
}

impl From<ReadError> for NotFound {
    fn from(error: ReadError) -> Self {
        Self { error, append_start: None }
    }
}

/// A read for a thread that may wait for the disk.
#[must_use = "a read that is not run leaves a client without an answer"]
#[derive(Debug)]
pub struct ReadJob {
    pub(crate) id: u64,
    pub(crate) question: Question,
    pub(crate) extent: Extent,
}

/// The result of a [`ReadJob`].
#[derive(Debug)]
pub struct ReadDone {
    pub(crate) job: ReadJob,
    /// `None`: there is more to scan.
    pub(crate) found: Result<Option<Found>, NotFound>,
}

impl ReadJob {
    /// Reads. Blocks.
    pub fn run(mut self) -> ReadDone {
        let found = self.question.ask(&self.extent, ReadMode::Blocking);
        ReadDone { job: self, found }
    }
}

impl Question {
    /// Looks for the answer; `None` if there is more to scan.
    pub(crate) fn ask(
        &mut self,
        extent: &Extent,
        mode: ReadMode,
    ) -> Result<Option<Found>, NotFound> {
        match self {
            Self::Window { from, max_bytes } => {
                Ok(Some(Found::Slice(extent.read(*from, *max_bytes, mode)?)))
            }
            Self::Intact { from, max_bytes, json } => {
                let from = *from;
                match extent.read(from, *max_bytes, mode) {
                    Ok(slice) => Ok(Some(Found::Position(from.advance(slice.len())))),
                    Err(error) if *json && !error.would_block() => {
                        let append = extent.append_at(from, mode).ok();
                        Err(NotFound { error, append_start: append.map(|append| append.start) })
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Self::AppendEnd(at) => Ok(Some(Found::Position(extent.append_at(*at, mode)?.end))),
            Self::MessageStart { at, start, scan } => {
                let scan = match scan {
                    Some(scan) => scan,
                    None => {
                        let append = extent.append_at(*at, mode)?;
                        *start = append.start;
                        scan.insert(Scan::new(append.start, append.end))
                    }
                };
                let is_done = scan.run(extent, mode, |end, _| {
                    if end <= *at {
                        *start = end;
                    }
                    end <= *at
                })?;
                Ok(is_done.then_some(Found::Position(*start)))
            }
            Self::SubOffset { .. } => Ok(self.ask_sub_offset(extent, mode)?),
            Self::Append => Ok(Some(Found::Append(extent.found(mode)?))),
            Self::Record { .. } => Ok(self.ask_record(extent, mode)?),
        }
    }

    /// Counts the messages of an append up to the one that holds a byte or has a number.
    fn ask_record(&mut self, extent: &Extent, mode: ReadMode) -> Result<Option<Found>, ReadError> {
        let Self::Record { search, append, scan, last } = self else {
            unreachable!("asked by kind")
        };
        let (append, bounds) = (*append, append.bounds);
        let scan = scan.get_or_insert_with(|| Scan::new(bounds.start, bounds.end));
        let is_behind = |end: ByteOffset, number: u64| match search.aim {
            Aim::Byte(at) => end > at,
            Aim::Record(wanted) => number > wanted,
            Aim::Time(_) => true,
        };
        let is_done = scan.run(extent, mode, |end, found| {
            let next = (end, append.first_record + found);
            let is_behind = is_behind(end, next.1);
            if !is_behind {
                *last = Some(next);
            }
            !is_behind
        })?;
        let (at, number) = last.unwrap_or((bounds.start, append.first_record));
        Ok(is_done.then_some(Found::Record(FoundRecord { at, number, append })))
    }

    fn ask_sub_offset(
        &mut self,
        extent: &Extent,
        mode: ReadMode,
    ) -> Result<Option<Found>, ReadError> {
        let Self::SubOffset { from, count, json, limit, scan } = self else {
            unreachable!("asked by kind")
        };
        let scan = match scan {
            Some(scan) => scan,
            None => {
                let end = extent.append_at(*from, mode)?.end.min(*limit);
                scan.insert(Scan::new(*from, end))
            }
        };
        if !*json {
            let available = scan.end.since(*from);
            let is_beyond = *count > available;
            let found = if is_beyond {
                Found::Beyond { available }
            } else {
                Found::Position(from.advance(*count))
            };
            return Ok(Some(found));
        }
        let mut position = None;
        let is_done = scan.run(extent, mode, |end, found| {
            position = (found == *count).then_some(end);
            found < *count
        })?;
        let found = position.map_or(Found::Beyond { available: scan.found }, Found::Position);
        Ok(is_done.then_some(found))
    }
}

impl Scan {
    fn new(at: ByteOffset, end: ByteOffset) -> Self {
        Self { scanner: MessageScanner::default(), at, end, found: 0 }
    }

    /// Calls `more` with the end and the number of each message until it answers `false`. `true` if it
    /// did, or if no message is left.
    fn run(
        &mut self,
        extent: &Extent,
        mode: ReadMode,
        mut more: impl FnMut(ByteOffset, u64) -> bool,
    ) -> Result<bool, ReadError> {
        let bytes_max = match mode {
            ReadMode::Inline => SCAN_INLINE_BYTES_MAX,
            ReadMode::Blocking => SCAN_JOB_BYTES_MAX,
        };
        let pause = self.at.advance(bytes_max);
        while self.at < self.end {
            if self.at >= pause {
                return match mode {
                    ReadMode::Inline => Err(io::Error::from(io::ErrorKind::WouldBlock).into()),
                    ReadMode::Blocking => Ok(false),
                };
            }
            let left = usize::try_from(self.end.since(self.at)).unwrap_or(usize::MAX);
            let slice = extent.read(self.at, left.min(limits::READ_WINDOW_BYTES_MAX), mode)?;
            let bytes = slice.to_bytes()?;
            let mut scanned = 0;
            while let Some(length) = self.scanner.next_end(&bytes[scanned..]) {
                scanned += length;
                self.found += 1;
                if !more(self.at.advance(scanned as u64), self.found) {
                    return Ok(true);
                }
            }
            self.at = self.at.advance(bytes.len() as u64);
        }
        Ok(true)
    }
}
