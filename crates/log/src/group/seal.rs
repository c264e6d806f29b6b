//! Moving a group's data from the WAL into chunks, and from chunks into better ones.

use crate::chunk::copy::{CopyDone, MergeTask, SealTask};
use crate::chunk::writer::ChunkName;
use crate::group::Group;
use crate::hot::HotFields;
use crate::options::LogOptions;
use crate::wal::segment::{SegmentFile, SegmentTable};
use model::StreamId;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

impl Group {
    /// A chunk number and name for entries `from < index <= to`.
    fn name(&mut self, store: u64, dir: PathBuf, range: (u64, u64)) -> ChunkName {
        let seq = self.chunks.take_seq();
        ChunkName { store, group: self.id.get(), dir, seq, from: range.0, to: range.1 }
    }

    /// The job that moves everything hot into a chunk.
    ///
    /// # Panics
    /// If nothing is hot.
    pub(crate) fn start_seal(
        &mut self,
        store: u64,
        dir: PathBuf,
        slots: &SegmentTable,
    ) -> SealTask {
        assert!(self.hot_appends > 0, "there is something to seal");
        let from = self.chunks.covered().max(self.sealed);
        self.far_read_bytes.set(0);
        let name = self.name(store, dir, (from, self.applied));
        let mut segments: HashMap<u16, Arc<SegmentFile>> = HashMap::new();
        let mut runs: Vec<(StreamId, Vec<HotFields>)> = Vec::new();
        for (&stream, hot) in &self.streams {
            let appends: Vec<_> = hot.appends().iter().map(|append| append.fields()).collect();
            for append in &appends {
                segments.entry(append.slot).or_insert_with(|| Arc::clone(slots.get(append.slot)));
            }
            runs.push((stream, appends));
        }
        runs.sort_unstable_by_key(|(stream, _)| *stream);
        SealTask { name, runs, segments }
    }

    /// Takes a sealed chunk: its appends are hot no more.
    pub(crate) fn finish_seal(&mut self, task: &SealTask, done: CopyDone) {
        for (stream, appends) in &task.runs {
            let Some(last) = appends.last() else { continue };
            self.drop_hot(*stream, last.start + u64::from(last.length));
        }
        self.sealed = self.sealed.max(task.name.to);
        self.add_copy(done);
    }

    fn add_copy(&mut self, done: CopyDone) {
        if let Some(chunk) = done.chunk {
            self.chunks.add(chunk);
            // The job did not know what was trimmed or forgotten since it started.
            for (stream, head) in &self.heads {
                self.chunks.trim(stream.get(), head.get());
            }
            for stream in &self.forgotten {
                self.chunks.trim(stream.get(), u64::MAX);
            }
        }
        self.merge_may_help = true;
    }

    /// The next merge that is worth it. One that saves no space leaves `spare_bytes` of the disk free.
    pub(crate) fn start_merge(
        &mut self,
        (options, spare_bytes): (&LogOptions, u64),
        store: u64,
        dir: PathBuf,
    ) -> Option<MergeTask> {
        // True again with whatever changes from here on.
        self.merge_may_help = false;
        let plan = self.chunks.plan_merge(options)?;
        let name = self.name(store, dir, (plan.from, plan.to));
        let spare_bytes = if plan.saves { 0 } else { spare_bytes };
        Some(MergeTask { name, sources: plan.sources, heads: self.heads.clone(), spare_bytes })
    }

    /// Takes a merged chunk in place of its sources.
    pub(crate) fn finish_merge(&mut self, task: &MergeTask, done: CopyDone) {
        if !done.damages.is_empty() {
            self.chunks.forbid_merges();
            return;
        }
        let header = |source: &crate::chunk::copy::MergeSource| source.chunk.header.seq;
        let seqs: Vec<u64> = task.sources.iter().map(header).collect();
        self.chunks.remove(&seqs);
        self.add_copy(done);
    }

    /// A job of this group was handed out.
    pub(crate) fn begin_job(&mut self) {
        assert!(!self.is_busy, "one job of a group at a time");
        self.is_busy = true;
    }

    /// The job's result has been taken.
    pub(crate) fn end_job(&mut self) {
        self.is_busy = false;
        self.forgotten.clear();
    }
}
