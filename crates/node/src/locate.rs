//! Positions that only stored bytes can tell: found at once, or by a job that may wait for the disk.

use crate::{
    Failure, Locate, LocateError,
    lookup::{Found, NotFound, Question},
    reads::Lookup,
    step::{View, window_bytes},
};
use log::{AppendBounds, Extent, Read, ReadError, ReadMode};
use model::{ByteOffset, StreamKey};

/// Windows that one look for damage reads on the loop; the next one becomes a job.
const WINDOWS_INLINE_MAX: usize = 8;

/// What asking for a position came to.
pub(crate) enum Asked {
    Answered(Result<ByteOffset, LocateError>),
    /// It takes a job.
    Job(Question, Extent),
}

impl From<Result<ByteOffset, Failure>> for Asked {
    fn from(answer: Result<ByteOffset, Failure>) -> Self {
        Self::Answered(answer.map_err(LocateError::Failed))
    }
}

impl View<'_> {
    /// Looks for a position in bytes of this shard without waiting.
    pub(crate) fn find(&self, key: StreamKey, lookup: &mut Lookup) -> Asked {
        match lookup.what {
            Locate::IntactEnd { .. } => self.find_intact_end(key, lookup),
            Locate::AppendEnd(at) => self.find_append_end(key, at),
            Locate::MessageStart(at) => {
                self.ask_here(key, at, Question::MessageStart { at, start: at, scan: None })
            }
            Locate::SubOffset { from, count, json, limit } => self.ask_here(
                key,
                from,
                Question::SubOffset { from, count, json, limit, scan: None },
            ),
        }
    }

    /// Asks a question about the append that holds `at`.
    fn ask_here(&self, key: StreamKey, at: ByteOffset, mut question: Question) -> Asked {
        let extent = match self.log.extent(key, at, 1) {
            Ok(Some(extent)) => extent,
            Ok(None) => return Err(self.missing(key, at)).into(),
            Err(error) => return Err(self.failure_of(key, at, error)).into(),
        };
        let asked = question.ask(&extent, ReadMode::Inline);
        self.log.note_extent(key, &extent);
        match asked {
            Ok(found) => {
                let found = found.expect("a question that is asked inline has its answer or waits");
                Asked::Answered(position_of(found))
            }
            Err(NotFound { error, .. }) if error.would_block() => Asked::Job(question, extent),
            Err(NotFound { error, .. }) => Err(self.failure_of(key, at, error)).into(),
        }
    }

    /// End of the first append that ends at `at` or later: the one that holds the byte before.
    fn find_append_end(&self, key: StreamKey, at: ByteOffset) -> Asked {
        let mut before = ByteOffset::new(at.get().saturating_sub(1));
        let mut append = self.log.try_append_at(key, before);
        if let Err(ReadError::Trimmed { head }) = append {
            before = head.max(before);
            append = self.log.try_append_at(key, before);
        }
        match append {
            Ok(Read::Ready(Some(AppendBounds { end, .. }))) => Ok(end).into(),
            Ok(Read::Job(extent)) => Asked::Job(Question::AppendEnd(before), extent),
            Ok(Read::Ready(None)) => Err(self.missing(key, at)).into(),
            Err(error) => Err(self.failure_of(key, at, error)).into(),
        }
    }

    /// How far some bytes can be read: to their end unless damage of their stream is known.
    fn find_intact_end(&self, key: StreamKey, lookup: &mut Lookup) -> Asked {
        let Locate::IntactEnd { from: start, to: end, json } = lookup.what else {
            unreachable!("dispatched by kind")
        };
        if !self.may_lack_bytes(key) {
            return Ok(end).into();
        }
        for _ in 0..WINDOWS_INLINE_MAX {
            let at = lookup.intact;
            if at >= end {
                return Ok(end).into();
            }
            match self.window(key, at, end) {
                Ok(Read::Ready(slice)) => lookup.intact = at.advance(slice.len()),
                Ok(Read::Job(extent)) => return intact_job((at, end), json, extent),
                Err(failure) => {
                    // It is the log's index that says so, or the WAL: both know the append at once.
                    let append = match self.log.try_append_at(key, at) {
                        Ok(Read::Ready(append)) => append.map(|append| append.start),
                        _ => None,
                    };
                    return intact_before((start, at), json, append, failure).into();
                }
            }
        }
        let at = lookup.intact;
        match self.log.extent(key, at, window_bytes(at, end)) {
            _ if at >= end => Ok(end).into(),
            Ok(Some(extent)) => intact_job((at, end), json, extent),
            Ok(None) => intact_before((start, at), json, None, self.missing(key, at)).into(),
            Err(error) => {
                let failure = self.failure_of(key, at, error);
                intact_before((start, at), json, None, failure).into()
            }
        }
    }
}

/// The question for one window of some bytes.
pub(crate) fn window_question(from: ByteOffset, to: ByteOffset) -> Question {
    Question::Window { from, max_bytes: window_bytes(from, to) }
}

/// A position, or why there is none.
pub(crate) fn position_of(found: Found) -> Result<ByteOffset, LocateError> {
    match found {
        Found::Position(position) => Ok(position),
        Found::Beyond { available } => Err(LocateError::Beyond { available }),
        found => unreachable!("no position was asked for: {found:?}"),
    }
}

fn intact_job((at, end): (ByteOffset, ByteOffset), json: bool, extent: Extent) -> Asked {
    let max_bytes = window_bytes(at, end);
    Asked::Job(Question::Intact { from: at, max_bytes, json }, extent)
}

/// Where an answer from `start` ends that meets `failure` at `at`. An answer of JSON is a whole array:
/// it ends before the append that is cut.
pub(crate) fn intact_before(
    (start, at): (ByteOffset, ByteOffset),
    json: bool,
    append_start: Option<ByteOffset>,
    failure: Failure,
) -> Result<ByteOffset, Failure> {
    let end = if json { append_start.unwrap_or(start) } else { at };
    if end > start { Ok(end) } else { Err(failure) }
}
