//! Which bytes of streams some chunks hold.

use crate::chunk::file::ChunkFile;
use crate::chunk::row::Row;
use crate::damage::DamageKind;
use std::io;
use std::path::PathBuf;

/// A page of rows is lost: nobody knows what the chunk holds.
#[derive(Debug)]
pub(crate) struct LostRows {
    pub(crate) file: PathBuf,
    pub(crate) position: u64,
}

/// Runs by stream and place.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    stream: u64,
    start: u64,
    end: u64,
}

impl Coverage {
    /// Adds the runs of a chunk that `wants` does not refuse.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn add(
        &mut self,
        chunk: &ChunkFile,
        mut wants: impl FnMut(&Row) -> bool,
    ) -> io::Result<Option<LostRows>> {
        let damages = chunk.check_rows(|row| {
            if row.body.is_some() && wants(&row) {
                self.runs.push(Run { stream: row.stream, start: row.start, end: row.end() });
            }
        })?;
        let lost = damages.into_iter().find(|(kind, _)| *kind == DamageKind::ChunkRow);
        Ok(lost.map(|(_, position)| LostRows { file: chunk.path.clone(), position }))
    }

    /// Puts the runs in order; to be called before anything is asked.
    pub(crate) fn sort(&mut self) {
        self.runs.sort_unstable();
    }

    fn of(&self, stream: u64) -> &[Run] {
        let first = self.runs.partition_point(|run| run.stream < stream);
        let count = self.runs[first..].partition_point(|run| run.stream == stream);
        &self.runs[first..first + count]
    }

    /// Where what is held without a gap from `from` on ends; `from` if that byte is not held.
    pub(crate) fn end_from(&self, stream: u64, from: u64) -> u64 {
        let follow = |end: u64, run: &Run| if run.start <= end { end.max(run.end) } else { end };
        self.of(stream).iter().fold(from, follow)
    }

    /// Where what is held without a gap up to `to` begins; `to` if the byte before it is not held.
    pub(crate) fn start_to(&self, stream: u64, to: u64) -> u64 {
        let follow =
            |start: u64, run: &Run| if run.end >= start { start.min(run.start) } else { start };
        self.of(stream).iter().rev().fold(to, follow)
    }

    /// Each stream, with the start of its first run.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let firsts = self.runs.chunk_by(|one, two| one.stream == two.stream);
        firsts.map(|runs| (runs[0].stream, runs[0].start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(runs: &[(u64, u64, u64)]) -> Coverage {
        let run = |&(stream, start, end): &(u64, u64, u64)| Run { stream, start, end };
        let mut coverage = Coverage { runs: runs.iter().map(run).collect() };
        coverage.sort();
        coverage
    }

    #[test]
    fn a_gap_ends_what_is_held_and_an_overlap_does_not() {
        let found = coverage(&[(1, 50, 70), (1, 0, 20), (1, 10, 40), (2, 5, 9)]);
        assert_eq!(found.end_from(1, 0), 40);
        assert_eq!(found.end_from(1, 45), 45);
        assert_eq!(found.end_from(1, 50), 70);
        assert_eq!((found.end_from(2, 0), found.end_from(3, 7)), (0, 7));
        assert_eq!(
            (found.start_to(1, 70), found.start_to(1, 60), found.start_to(1, 40)),
            (50, 50, 0)
        );
        assert_eq!((found.start_to(1, 80), found.start_to(3, 7)), (80, 7));
        assert_eq!(found.streams().collect::<Vec<_>>(), [(1, 0), (2, 5)]);
    }
}
