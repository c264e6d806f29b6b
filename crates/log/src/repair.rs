//! What stored data has lost, and its acceptance by an operator.
//!
//! # Why
//! A damaged chunk is left as it is: neither a merge nor a start may decide that its bytes are worth nothing. An
//! operator can. What is intact is then copied into a new chunk, which takes the place of the damaged one. What is
//! lost stays lost: reads of it say so, until the stream is trimmed or deleted.
//!
//! # Driving it
//! On a log that nobody writes: [`ShardLog::examine`], [`ShardLog::gaps`], [`ShardLog::accept_loss`].
//!
//! # Invariants
//! - A file goes only when what is intact of it is durable elsewhere.

use crate::chunk::loss::{ChunkLoss, LostPart, examine};
use crate::group::Group;
use crate::paths::chunk_dir;
use crate::read::{ReadError, ReadMode};
use crate::shard::ShardLog;
use crate::work::CopyEnd;
use model::{ByteOffset, GroupId, StreamKey};
use std::io;
use std::path::Path;

/// A range of offsets of a stream, the end not included.
pub type LostRange = (ByteOffset, ByteOffset);

impl ShardLog {
    /// Looks at all bytes of all chunks that are alive, and returns what cannot be read.
    ///
    /// # Errors
    /// Any error of the underlying disk; damage is none.
    pub fn examine(&self) -> io::Result<Vec<ChunkLoss>> {
        let mut losses = Vec::new();
        for group in &self.groups {
            group.examine(&mut losses)?;
        }
        Ok(losses)
    }

    /// The bytes of a stream in `from..to` that the log does not have, or that are in `damaged`, which is sorted.
    ///
    /// # Errors
    /// As [`ShardLog::read`], except for damage.
    pub fn gaps(
        &self,
        key: StreamKey,
        (from, to): LostRange,
        damaged: &[LostRange],
    ) -> Result<Vec<LostRange>, ReadError> {
        self.group(key.group).gaps(key, (from.get(), to.get()), damaged)
    }

    /// Accepts what is lost of a chunk: what is intact is copied, and the file goes.
    ///
    /// # Errors
    /// Any error of the underlying disk, and `StorageFull` if there is no room for the copy. The file is there then. If it could
    /// not be removed, its copy is there, too, and takes its place with the next start.
    pub fn accept_loss(&mut self, group: GroupId, file: &Path) -> io::Result<()> {
        if self.is_poisoned() {
            return Err(io::Error::other("the log takes no writes"));
        }
        let (store, epoch) = (self.store.clone(), self.wal.epoch());
        let group = self.group_mut(group);
        let held = &mut group.chunks.held.unreadable;
        if let Some(place) = held.iter().position(|path| path == file) {
            store.disk.remove(file)?;
            store.disk.sync_dir(&chunk_dir(&store.root, group.id.get()))?;
            held.remove(place);
            return Ok(());
        }
        let Some(task) = group.start_rescue(&store, epoch, file) else { return Ok(()) };
        let mut done = CopyEnd::clean(&*store.disk, &task.name, task.run(&*store.disk)).result?;
        let removed = done.removal.error.take().map_or(Ok(()), Err);
        group.finish_merge(task, done);
        removed
    }
}

impl Group {
    fn examine(&self, losses: &mut Vec<ChunkLoss>) -> io::Result<()> {
        let group = self.id;
        let unreadable = self.chunks.held.unreadable.iter();
        let headers = |file| ChunkLoss { group, file, lost: LostPart::Headers };
        losses.extend(unreadable.cloned().map(headers));
        for chunk in self.chunks.list().files() {
            let file = &chunk.path;
            examine(
                chunk,
                |stream| self.chunks.floor(stream),
                |lost| losses.push(ChunkLoss { group, file: file.clone(), lost }),
            )?;
        }
        Ok(())
    }

    fn gaps(
        &self,
        key: StreamKey,
        (from, to): (u64, u64),
        damaged: &[LostRange],
    ) -> Result<Vec<LostRange>, ReadError> {
        let mut kept = Vec::new();
        let live = (key.stream.get(), self.chunks.floor(key.stream.get()));
        self.chunks.list().for_each(live, ReadMode::Blocking, |(_, row)| {
            if row.body.is_some() {
                kept.push((row.start, row.end()));
            }
        })?;
        let mut at = from;
        let next = |at| {
            let found = self.hot.find(key.stream, at).map(|(hot, place)| &hot.appends()[place]);
            found.or_else(|| self.hot.first_after(key.stream, at))
        };
        while let Some(append) = next(at) {
            let fields = append.fields();
            if !fields.is_reported {
                kept.push((fields.start, append.end()));
            }
            at = append.end();
        }
        kept.sort_unstable();
        let damaged = damaged.iter().map(|(from, to)| (from.get(), to.get()));
        let lost = gaps_between((from, to), kept.into_iter()).into_iter().chain(damaged);
        Ok(joined(lost.collect(), (from, to)))
    }
}

/// What lies in a range between others, which are sorted.
fn gaps_between((from, to): (u64, u64), kept: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let (mut at, mut gaps) = (from, Vec::new());
    for (start, end) in kept {
        if start > at {
            gaps.push((at, start.min(to)));
        }
        at = at.max(end);
        if at >= to {
            return gaps;
        }
    }
    gaps.push((at, to));
    gaps
}

/// Ranges inside another one, in order, none of which touches the next.
fn joined(mut ranges: Vec<(u64, u64)>, (from, to): (u64, u64)) -> Vec<LostRange> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        let (start, end) = (start.max(from), end.min(to));
        match joined.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ if start < end => joined.push((start, end)),
            _ => {}
        }
    }
    joined.into_iter().map(|(start, end)| (ByteOffset::new(start), ByteOffset::new(end))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_is_kept_nowhere() {
        let gaps = |kept: &[(u64, u64)]| gaps_between((10, 50), kept.iter().copied());
        assert_eq!(gaps(&[]), [(10, 50)]);
        assert_eq!(gaps(&[(0, 60)]), []);
        assert_eq!(gaps(&[(0, 20), (15, 30), (40, 50)]), [(30, 40)]);
        assert_eq!(gaps(&[(12, 20), (60, 70)]), [(10, 12), (20, 50)]);
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let joined = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let joined = joined(ranges.to_vec(), (10, 50)).into_iter();
            joined.map(|(from, to)| (from.get(), to.get())).collect()
        };
        assert_eq!(
            joined(&[(30, 40), (0, 12), (12, 15), (45, 90)]),
            [(10, 15), (30, 40), (45, 50)]
        );
        assert_eq!(joined(&[(0, 10), (50, 60)]), []);
    }
}
