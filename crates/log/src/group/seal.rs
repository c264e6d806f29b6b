//! Moving a group's data from the WAL into chunks, and from chunks into better ones.

use crate::chunk::copy::{CopyDone, MergeTask, SealTask};
use crate::chunk::file::ChunkFile;
use crate::chunk::leftovers::RemovalTask;
use crate::chunk::pages::ChunkIdentity;
use crate::chunk::room::chunk_bytes_max;
use crate::chunk::set::MergePlan;
use crate::chunk::writer::{ChunkAuthor, ChunkName};
use crate::group::Group;
use crate::hot_index::{HotTotals, Sealable};
use crate::id_map::IdMap;
use crate::paths::chunk_dir;
use crate::store::Store;
use crate::wal::segment::{SegmentTable, WalSegment};
use std::path::Path;
use std::sync::Arc;

/// What has to be sealed before a checkpoint can let a segment go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SealsBefore {
    /// Bytes of its chunks, at most, if nothing is appended meanwhile.
    pub(crate) bytes: u64,
    /// Whether appends that come meanwhile have to be sealed, too.
    pub(crate) may_grow: bool,
}

impl SealsBefore {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, may_grow: self.may_grow || other.may_grow }
    }
}

/// Bytes of the chunks of all that is hot in some groups, at most. A disk that is not tight has enough room for them.
pub(crate) fn hot_chunk_bytes(groups: &[Group], is_tight: bool) -> u64 {
    if is_tight { groups.iter().map(Group::hot_chunk_bytes).sum() } else { 0 }
}

impl Group {
    /// What this group has to seal before a checkpoint of it lets `segment` go. `begins_now`: it takes what is hot before
    /// anything is appended.
    pub(crate) fn seals_before(&self, segment: &WalSegment, begins_now: bool) -> SealsBefore {
        let [taken, open] = self.seal_bytes_max();
        let last = segment.last[usize::from(self.id.get())];
        // A checkpoint that is still to be made covers what is applied then.
        let Some(index) =
            self.pending.as_ref().map(|task| task.index.get()).filter(|at| *at >= last)
        else {
            return SealsBefore { bytes: taken + open, may_grow: true };
        };
        if index <= self.sealed() {
            return SealsBefore::default();
        }
        match self.hot.taken_upto() {
            Some(upto) if index <= upto => SealsBefore { bytes: taken, may_grow: false },
            Some(_) => SealsBefore { bytes: taken + open, may_grow: true },
            None => SealsBefore { bytes: open, may_grow: !begins_now },
        }
    }

    /// The length of the chunk that the next seal writes, at most.
    pub(crate) fn next_seal_bytes_max(&self) -> u64 {
        let [taken, open] = self.seal_bytes_max();
        if self.hot.taken_upto().is_some() { taken } else { open }
    }

    /// The length of the chunks of all that is hot, at most; one of nothing counts for what may come.
    fn hot_chunk_bytes(&self) -> u64 {
        let [taken, open] = self.seal_bytes_max();
        let least = chunk_bytes_max(&HotTotals::default(), false);
        taken + open.max(least)
    }

    /// The lengths of the chunks of what a seal has taken and of what has come since, at most.
    fn seal_bytes_max(&self) -> [u64; 2] {
        [self.hot.left(), self.hot.open.totals].map(|hot| {
            if hot.appends == 0 { 0 } else { chunk_bytes_max(&hot, self.hot.has_times()) }
        })
    }

    /// A chunk number and name for entries `from < index <= to`.
    fn name(&mut self, store: &Store, epoch: u64, (from, to): (u64, u64)) -> ChunkName {
        let author = ChunkAuthor { lineage: store.lineage, store: store.id, epoch };
        let (group, origin) = (self.id.get(), author.origin(self.chunks.take_seq()));
        let dir = chunk_dir(&store.root, group);
        ChunkName { dir, identity: ChunkIdentity { group, origin, from, to } }
    }

    /// The job that moves everything hot into a chunk, or what an earlier seal has taken that failed.
    ///
    /// # Panics
    /// If nothing is hot.
    pub(crate) fn start_seal(
        &mut self,
        store: &Store,
        epoch: u64,
        (slots, is_uncached): (&SegmentTable, bool),
    ) -> SealTask {
        assert!(self.is_hot(), "there is something to seal");
        let from = self.chunks.covered().max(self.sealed);
        self.far_read_bytes.set(0);
        self.first_piece = slots.newest_piece();
        let Sealable { streams, upto, left } = self.hot.begin_seal(self.applied);
        let segment = |slot: &u16| (*slot, Arc::clone(slots.get(*slot)));
        let recent = left.are_short().then(|| slots.recent_view(streams.slots()));
        SealTask {
            name: self.name(store, epoch, (from, upto)),
            cache: Arc::clone(&store.chunk_cache),
            segments: streams.slots().iter().map(segment).collect(),
            streams,
            recent,
            bytes_max: chunk_bytes_max(&left, self.hot.has_times()),
            is_uncached,
        }
    }

    /// Sets apart what is hot for the next seal, unless something is. What comes meanwhile is for the one after it.
    pub(crate) fn set_apart(&mut self) {
        self.hot.take(self.applied);
    }

    /// Takes a sealed chunk: its appends are hot no more.
    pub(crate) fn finish_seal(&mut self, task: SealTask, done: CopyDone) {
        self.hot.finish_seal();
        self.sealed = self.sealed.max(task.name.identity.to);
        self.add_chunk(done.chunk, done.dead_bytes);
    }

    /// The seal has failed: what it has taken is still hot.
    pub(crate) fn fail_seal(&mut self, task: SealTask) {
        drop(task);
        self.hot.fail_seal();
    }

    fn add_chunk(&mut self, chunk: Option<Arc<ChunkFile>>, dead_bytes: u64) {
        if let Some(chunk) = chunk {
            self.chunks.add(chunk, dead_bytes);
        }
        self.merge_may_help = true;
    }

    /// The next merge that is worth it. One that saves no space leaves `spare_bytes` of the disk free, and waits until there are
    /// `small_min` small chunks.
    pub(crate) fn start_merge(
        &mut self,
        store: &Store,
        epoch: u64,
        (spare_bytes, small_min): (u64, usize),
    ) -> Option<MergeTask> {
        if self.leftovers.are_many() {
            return None;
        }
        // True again with whatever changes from here on.
        self.merge_may_help = false;
        let plan = self.chunks.plan_merge(&store.options, small_min)?;
        let spare_bytes = if plan.saves { 0 } else { spare_bytes };
        Some(self.merge_task(store, epoch, (plan, spare_bytes)))
    }

    fn merge_task(
        &mut self,
        store: &Store,
        epoch: u64,
        (plan, spare_bytes): (MergePlan, u64),
    ) -> MergeTask {
        MergeTask {
            name: self.name(store, epoch, (plan.from, plan.to)),
            cache: Arc::clone(&store.chunk_cache),
            sources: plan.sources,
            floors: plan.floors,
            limits: IdMap::default(),
            live_bytes: plan.live_bytes,
            spare_bytes,
            leaves_damage_out: false,
        }
    }

    /// The copy of what is intact in a chunk of this group, whose loss an operator has accepted.
    pub(crate) fn start_rescue(
        &mut self,
        store: &Store,
        epoch: u64,
        file: &Path,
    ) -> Option<MergeTask> {
        let plan = self.chunks.plan_copy(file)?;
        let task = self.merge_task(store, epoch, (plan, 0));
        Some(MergeTask { leaves_damage_out: true, ..task })
    }

    /// Takes a merged chunk in place of its sources.
    pub(crate) fn finish_merge(&mut self, task: MergeTask, done: CopyDone) {
        let seqs: Vec<u64> = task.sources.iter().map(|source| source.seq).collect();
        let is_given_up = !task.leaves_damage_out && !done.damages.is_empty();
        drop(task);
        self.chunks.settle();
        if is_given_up {
            self.chunks.hold(&done.damages);
            // Others can be merged all the same.
            self.merge_may_help = true;
            return;
        }
        self.chunks.replace(&seqs, &done.left_out);
        self.leftovers.add(done.removal.left);
        self.add_chunk(done.chunk, done.dead_bytes);
    }

    /// The removal of files that merges have replaced and could not remove, if there are any.
    pub(crate) fn start_removal(&mut self, store: &Store) -> Option<RemovalTask> {
        self.leftovers.take(self.id, || chunk_dir(&store.root, self.id.get()))
    }

    /// A job of this group was handed out.
    pub(crate) fn begin_job(&mut self) {
        assert!(!self.is_busy, "one job of a group at a time");
        self.is_busy = true;
    }

    /// The job's result has been taken.
    pub(crate) fn end_job(&mut self) {
        self.is_busy = false;
    }
}
