//! Rebuilds groups from chunks, checkpoints and WALs.
//!
//! # How
//! Chunk headers and rows, newest checkpoint, then every live WAL entry after it. A group's entries
//! may lie in several WALs if the number of shards has changed. Within one opening of the store (an
//! epoch) they are all in one WAL. So going through the WALs epoch by epoch meets each group's entries
//! in index order.
//!
//! # Invariants
//! - Nothing is written, and nothing removed but half-written and replaced files.
//! - An entry is applied once, in index order, and never after a later one of its group.
//! - Of a replicated group only what is committed is applied: `replicated`, and the first pass in `survey`.

mod batch;
mod replicated;

use crate::checkpoint::load_checkpoint;
use crate::chunk::floors::GONE;
use crate::chunk::opening::{FoundChunks, chunk_damage, open_chunks};
use crate::damage::{Damage, DamageKind};
use crate::group::Group;
use crate::hot::HotFields;
use crate::names::{not_synced, wal_numbers};
use crate::open_error::{OpenError, at};
use crate::paths::{checkpoint_dir, chunk_dir, remove_unneeded};
use crate::replay::Replay;
use crate::report::{RecoveryReport, TornTail};
use crate::snapshot::Parts;
use crate::store::Store;
use crate::survey::Survey;
use crate::unreadable::open_around;
use crate::wal::last_batch::{list_last, settle_last};
use crate::wal::layout::{EntryHeader, Payload, WritePlace};
use crate::wal::room::is_no_room;
use crate::wal::scan::{
    Applied, FoundBatch, FoundSegments, ScannedWal, WalHeaders, WalName, place_damage, scan_wal,
};
use crate::wal::segment::{
    FILL_NAME, SegmentFile, give_up_segment, lost_name, parse_lost_name, parse_segment_name,
    segment_path, wal_dir,
};
use env::{Disk, is_unreadable};
use model::{EntryIndex, EntrySubject, GroupId, StreamId, StreamKey};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A WAL with its files.
#[derive(Debug)]
pub(crate) struct RebuiltWal {
    pub(crate) wal: u16,
    pub(crate) scanned: ScannedWal,
    pub(crate) files: Vec<Arc<SegmentFile>>,
    /// Last index of each group, by segment.
    pub(crate) last: Vec<Box<[u64]>>,
    /// Slot of the first file; the others follow.
    pub(crate) first_slot: u16,
    /// The last batch, as the next one has to list it.
    pub(crate) list: Vec<u8>,
    /// The number of the next segment.
    pub(crate) segment_next: u64,
}

/// Everything that recovery has found.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) groups: Vec<Group>,
    pub(crate) wals: Vec<RebuiltWal>,
    pub(crate) report: RecoveryReport,
    /// A name that is needed before anything is written could not be made durable.
    pub(crate) unsynced: Option<io::Error>,
}

/// Recovery at work.
pub(crate) struct Rebuild<'a> {
    store: &'a Store,
    replay: &'a mut dyn Replay,
    groups: Vec<Group>,
    wals: Vec<RebuiltWal>,
    /// Entries whose loss has been reported.
    lost: HashSet<(u16, u64)>,
    /// What checkpoints that cannot be read covered, by group.
    lost_checkpoints: BTreeMap<u16, u64>,
    /// The term at each group's checkpoint; 0 if the group had one voter.
    checkpoint_terms: Vec<u64>,
    /// What the first pass found of replicated groups.
    survey: Survey,
    /// Groups in which something is lost: none of their streams is taken for deleted, for the lost
    /// entry may be the one that made it.
    uncertain: HashSet<GroupId>,
    /// Something is lost, of an unknown group.
    is_all_uncertain: bool,
    unsynced: Option<io::Error>,
    pub(crate) report: RecoveryReport,
}

impl<'a> Rebuild<'a> {
    pub(crate) fn new(store: &'a Store, replay: &'a mut dyn Replay) -> Self {
        Self {
            store,
            replay,
            groups: Vec::new(),
            wals: Vec::new(),
            lost: HashSet::new(),
            lost_checkpoints: BTreeMap::new(),
            checkpoint_terms: Vec::new(),
            survey: Survey::default(),
            uncertain: HashSet::new(),
            is_all_uncertain: false,
            unsynced: None,
            report: RecoveryReport::default(),
        }
    }

    pub(crate) fn damaged(&mut self, damage: &Damage) {
        self.report.damage_count += 1;
        match damage.group {
            _ if !damage.kind.may_hide_entries() => {}
            Some(group) => _ = self.uncertain.insert(group),
            None => self.is_all_uncertain = true,
        }
        self.replay.damaged(damage);
    }

    /// Opens chunks and hands checkpoints to the state machines.
    pub(crate) fn restore_groups(&mut self) -> Result<(), OpenError> {
        for number in 0..self.store.options.group_total() {
            let id = GroupId::new(number);
            let dir = checkpoint_dir(&self.store.root, number);
            let found = load_checkpoint(&*self.store.disk, &dir, self.store.id, id);
            let found = found.map_err(at(&dir))?;
            for damage in &found.damages {
                self.damaged(damage);
            }
            self.lost_checkpoints.extend(found.unreadable.map(|index| (number, index)));
            let installs = found.loaded.as_ref().map_or(0, |loaded| loaded.installs);
            let parts = Parts { installs, may_be_needed: found.unreadable.is_some() };
            let FoundChunks { set: chunks, damages, left } = open_chunks(self.store, id, parts)?;
            damages.iter().for_each(|damage| self.damaged(damage));
            let mut index = EntryIndex::default();
            if let Some(loaded) = &found.loaded {
                index = loaded.index;
                let restored = self.replay.restore(id, index, &loaded.header, &mut loaded.rows());
                restored.map_err(|newer| newer.at(&loaded.path, 0))?;
                self.report.checkpoints_restored += 1;
            }
            let mut group = Group::new(id, index, chunks);
            group.leftovers.add(left);
            group.installs = installs;
            group.checkpoint_bytes = found.loaded.as_ref().map_or(0, |loaded| loaded.file_bytes());
            self.groups.push(group);
            self.checkpoint_terms.push(found.loaded.as_ref().map_or(0, |loaded| loaded.term));
        }
        Ok(())
    }

    /// Reads the batch headers of every WAL.
    pub(crate) fn scan_wals(&mut self) -> Result<(), OpenError> {
        let mut wals = Vec::new();
        for wal in wal_numbers(self.store)? {
            let dir = wal_dir(&self.store.root, wal);
            let mut segments = self.open_segments(wal).map_err(at(&dir))?;
            let name = WalName { store: self.store.id, wal };
            let headers = WalHeaders::read(name, &segments.files).map_err(at(&dir))?;
            segments.damages().for_each(|damage| self.damaged(&damage));
            self.unsynced = segments.unsynced.take().or(self.unsynced.take());
            wals.push((wal, dir, segments, headers));
        }
        let epochs = wals.iter().map(|(_, _, _, headers)| headers.epoch_max());
        let epoch = epochs.max().unwrap_or(0);
        let mut slot = 0;
        for (wal, dir, FoundSegments { files, seq_max, .. }, headers) in wals {
            let applied = Applied { epoch, covers: &|header| self.was_applied(header) };
            let scanned = scan_wal(&headers, &files, &applied).map_err(at(&dir))?;
            // What a killed process wrote may still be in the page cache only: it is about to be
            // shown to readers, so it must be durable first.
            let settled = settle_last(&scanned, &files);
            settled.map_err(|(index, error)| at(&files[index].path)(error))?;
            let name = WalName { store: self.store.id, wal };
            let list = list_last(name, &scanned, &files).map_err(at(&dir))?;
            if let Some(FoundBatch { segment, position, .. }) = scanned.torn {
                let file = files[segment].path.clone();
                self.report.torn_tails.push(TornTail { file, position });
            }
            scanned.damages.iter().for_each(|damage| self.damaged(damage));
            let groups = usize::from(self.store.options.group_total());
            let last = files.iter().map(|_| vec![0; groups].into_boxed_slice()).collect();
            let count = u16::try_from(files.len()).expect("bounded by the WAL bound");
            let (first_slot, segment_next) = (slot, seq_max + 1);
            let rebuilt = RebuiltWal { wal, scanned, files, last, first_slot, list, segment_next };
            self.wals.push(rebuilt);
            slot += count;
        }
        Ok(())
    }

    /// Whether a chunk or a checkpoint shows that an entry was durable.
    fn was_applied(&self, header: &EntryHeader) -> bool {
        let unreadable = self.lost_checkpoints.get(&header.group).copied().unwrap_or(0);
        let group = self.groups.get(usize::from(header.group));
        let known = group.map_or(0, |group| group.chunks.covered().max(group.checkpointed()));
        // A snapshot commits when all entries that it supersedes are durable, whatever their indexes are.
        let is_superseded = group.is_some_and(|group| header.installs < group.installs);
        is_superseded || header.index <= known.max(unreadable)
    }

    fn open_segments(&self, wal: u16) -> io::Result<FoundSegments> {
        let (disk, dir) = (&*self.store.disk, wal_dir(&self.store.root, wal));
        let names = disk.list(&dir)?;
        if names.iter().any(|name| name == FILL_NAME) {
            remove_unneeded(disk, &dir.join(FILL_NAME))?;
        }
        let mut seqs: Vec<u64> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
        seqs.sort_unstable();
        let lost: Vec<u64> = names.iter().filter_map(|name| parse_lost_name(name)).collect();
        for seq in lost.iter().filter(|seq| seqs.binary_search(seq).is_err()) {
            remove_unneeded(disk, &dir.join(lost_name(*seq)))?;
        }
        let seq_max = seqs.last().copied().unwrap_or(0);
        let mut found = FoundSegments { seq_max, ..FoundSegments::default() };
        for seq in seqs {
            let path = segment_path(&dir, seq);
            let was_lost = lost.contains(&seq);
            let opened = if was_lost { None } else { open_around(disk, &path)? };
            let Some(file) = opened else {
                if !was_lost && self.store.has_synced_names {
                    found.unsynced = give_up(disk, &dir, seq)?.or(found.unsynced.take());
                }
                found.lost.push(path);
                continue;
            };
            let capacity = file.len()?;
            found.files.push(Arc::new(SegmentFile { seq, path, file, capacity }));
        }
        Ok(found)
    }

    /// Applies every live entry of groups with one voter, and those of the others that are alive and committed.
    pub(crate) fn replay_wals(&mut self) -> Result<(), OpenError> {
        let order = self.batches();
        self.survey(&order)?;
        for (wal, number) in order {
            let batch = self.wals[wal].scanned.live[number];
            let path = self.wals[wal].files[batch.segment()].path.clone();
            self.replay_batch((wal, number), &batch).map_err(at(&path))?;
        }
        Ok(())
    }

    /// The live batches, as WAL and number, epoch by epoch.
    fn batches(&self) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for (wal, rebuilt) in self.wals.iter().enumerate() {
            let mut epoch = 0;
            for (number, batch) in rebuilt.scanned.live.iter().enumerate() {
                epoch = batch.epoch().max(epoch);
                all.push((epoch, wal, number));
            }
        }
        all.sort_unstable();
        all.into_iter().map(|(_, wal, number)| (wal, number)).collect()
    }

    fn lose_entry(&mut self, file: &SegmentFile, position: u64, header: &EntryHeader) {
        if self.is_uncommitted(header) {
            let place = place_damage(DamageKind::UncommittedEntry, file, position);
            self.damaged(&entry_damage(header, place));
            return;
        }
        let group = &self.groups[usize::from(header.group)];
        // What a checkpoint covers is not needed from the WAL.
        if header.index < group.next || !self.lost.insert((header.group, header.index)) {
            return;
        }
        let at = position + u64::from(header.position);
        let lost_bytes = u64::from(header.data_bytes);
        let place = place_damage(DamageKind::EntryPayload, file, at);
        self.damaged(&Damage { lost_bytes, ..entry_damage(header, place) });
    }

    fn replay_entry(
        &mut self,
        (slot, batch_position): (u16, u64),
        file: &SegmentFile,
        header: &EntryHeader,
        payload: Payload<'_>,
    ) -> io::Result<()> {
        let number = usize::from(header.group);
        let next = self.groups[number].next;
        if header.index < next {
            return Ok(());
        }
        self.report_missing(header.group, (next, header.index), (&file.path, batch_position));
        let place = WritePlace { slot, position: batch_position };
        let entry = header.entry((payload.command, payload.data), place);
        let command_position = batch_position + u64::from(header.position);
        let applied = self.replay.apply(&entry);
        let placement = applied.map_err(|newer| newer.at(&file.path, command_position))?;
        self.report.entries_replayed += 1;
        let group = &mut self.groups[number];
        group.next = header.index + 1;
        let payload_bytes = payload.command.len() + payload.data.len();
        group.bytes_since_checkpoint += (payload_bytes + 64) as u64;
        group.set_applied(header.index);
        let position = batch_position + header.data_position();
        let is_only_here = placement.is_some_and(|placement| {
            let fields = HotFields::of(&entry, &placement, !payload.is_data_intact);
            group.place_replayed(entry.index, &placement, fields)
        });
        if !payload.is_data_intact {
            let lost_bytes = if is_only_here { u64::from(header.data_bytes) } else { 0 };
            let place = place_damage(DamageKind::EntryData, file, position);
            self.damaged(&Damage { lost_bytes, ..entry_damage(header, place) });
        }
        Ok(())
    }

    /// Reports the indexes `from..to` that no WAL has, unless each of them was reported as lost.
    fn report_missing(&mut self, group: u16, (from, to): (u64, u64), place: (&Path, u64)) {
        if (from..to).all(|index| self.lost.contains(&(group, index))) {
            return;
        }
        let entries = Some((EntryIndex::new(from), EntryIndex::new(to - 1)));
        let damage = Damage::at(DamageKind::EntriesMissing, place.0, place.1);
        self.damaged(&Damage { group: Some(GroupId::new(group)), entries, ..damage });
    }

    /// Keeps the indexes of entries that were lost at the end of their group, so that later entries are not
    /// taken for them. These are known damaged entries, and entries that a chunk or an unreadable checkpoint
    /// covers.
    pub(crate) fn pass_over_lost_ends(&mut self) {
        for number in 0..self.groups.len() {
            let group = &self.groups[number];
            let (id, next) = (group.id.get(), group.next);
            let damaged = self.lost.iter().filter(|(group, _)| *group == id);
            let damaged = damaged.map(|(_, index)| *index).max().unwrap_or(0);
            let unreadable = self.lost_checkpoints.get(&id).copied().unwrap_or(0);
            let last = group.chunks.covered().max(unreadable).max(damaged);
            if last < next {
                continue;
            }
            let dir = chunk_dir(&self.store.root, id);
            self.report_missing(id, (next, last + 1), (&dir, 0));
            let group = &mut self.groups[number];
            group.next = last + 1;
            group.set_applied(last);
        }
    }

    /// Learns which streams live and where they start, now that everything is applied.
    ///
    /// # Errors
    /// Any error of the underlying disk.
    pub(crate) fn ask_heads(&mut self) -> Result<(), OpenError> {
        for number in 0..self.groups.len() {
            let damages = self.restore_floors(number)?;
            damages.iter().for_each(|damage| self.damaged(damage));
            let of_rows = damages.into_iter().filter(|damage| damage.kind == DamageKind::ChunkRow);
            self.groups[number].chunks.hold(&of_rows.collect::<Vec<_>>());
            self.drop_hot_before_floors(number);
        }
        Ok(())
    }

    /// Whether a stream that the state does not know is gone.
    fn is_certain(&self, number: usize) -> bool {
        !self.is_all_uncertain && !self.uncertain.contains(&self.groups[number].id)
    }

    fn restore_floors(&mut self, number: usize) -> Result<Vec<Damage>, OpenError> {
        let is_certain = self.is_certain(number);
        let (group, replay) = (&mut self.groups[number], &mut *self.replay);
        let id = group.id;
        let key = |stream| StreamKey { group: id, stream: StreamId::new(stream) };
        let found = group.chunks.restore_floors(|stream| floor_of(replay, key(stream), is_certain));
        let found = found.map_err(at(&chunk_dir(&self.store.root, id.get())))?;
        Ok(found.iter().map(|(chunk, damage)| chunk_damage(id, &chunk.path, *damage)).collect())
    }

    fn drop_hot_before_floors(&mut self, number: usize) {
        let is_certain = self.is_certain(number);
        let group = &mut self.groups[number];
        for stream in group.hot_streams() {
            let key = StreamKey { group: group.id, stream };
            match floor_of(&mut *self.replay, key, is_certain) {
                GONE => group.forget(stream),
                floor => group.drop_before(stream, floor),
            }
        }
    }

    pub(crate) fn finish(self) -> Rebuilt {
        let Self { groups, wals, report, unsynced, .. } = self;
        Rebuilt { groups, wals, report, unsynced }
    }
}

/// Where what is kept of a stream begins.
fn floor_of(replay: &mut dyn Replay, key: StreamKey, is_certain: bool) -> u64 {
    match replay.head(key) {
        Some(head) => head.get(),
        None if is_certain => GONE,
        None => 0,
    }
}

/// Gives a segment up. Returns why the device cannot write that down, if it cannot: then no index is given out again.
///
/// # Errors
/// Any other error of the underlying disk.
fn give_up(disk: &dyn Disk, dir: &Path, seq: u64) -> io::Result<Option<io::Error>> {
    match give_up_segment(disk, dir, seq) {
        Err(error) if is_unreadable(&error) || is_no_room(&error) => {
            Ok(Some(not_synced(dir, &error)))
        }
        given_up => given_up.map(|()| None),
    }
}

/// A damage of the entry with an intact header.
fn entry_damage(header: &EntryHeader, place: Damage) -> Damage {
    let index = EntryIndex::new(header.index);
    Damage {
        group: Some(GroupId::new(header.group)),
        subject: Some(EntrySubject::new(header.subject)),
        entry_kind: Some(header.kind),
        entries: Some((index, index)),
        ..place
    }
}
