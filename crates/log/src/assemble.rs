//! Makes shards of what recovery has found.
//!
//! # Invariants
//! - Every inherited segment has one custodian, the only shard that may reuse or remove it: the
//!   shard that writes its WAL or, if there is none, shard `number % shards`. Others hold on to it while
//!   their groups need it.
//! - Writing starts in a segment without a batch: a torn tail is never written over, and the first
//!   batch (a durable mark) says which older batches are live forever.

use crate::group::seal::hot_chunk_bytes;
use crate::load::Load;
use crate::open_error::{OpenError, at};
use crate::rebuild::{Rebuilt, RebuiltWal};
use crate::shard::{DrainedWal, ShardLog};
use crate::store::Store;
use crate::wal::read_cache::ReadCache;
use crate::wal::recent::RecentRing;
use crate::wal::recent_runs::RecentRuns;
use crate::wal::room::{WalRoom, is_no_room};
use crate::wal::scan::LiveBatch;
use crate::wal::segment::{SegmentFile, SegmentTable, WalSegment, create_segment, wal_dir};
use crate::wal::shard_wal::{ShardWal, WalIdentity, WalStart};
use env::is_unreadable;
use model::ShardId;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, atomic::AtomicBool};

/// Makes the shards of this opening, whose epoch is returned, and writes each WAL's first mark. Where names are not durable, the shards are poisoned instead.
///
/// # Errors
/// Any error of the underlying disk. A full disk is no error: the log can be read, and appends report it.
pub(crate) fn assemble(store: &Store, rebuilt: Rebuilt) -> Result<(Vec<ShardLog>, u64), OpenError> {
    let Rebuilt { groups, mut wals, .. } = rebuilt;
    if store.has_synced_names {
        wals.iter_mut().for_each(|wal| shorten_last_segment(store, wal));
    }
    let epoch = 1 + wals.iter().map(|wal| wal.scanned.epoch_max).max().unwrap_or(0);
    let mut shards: Vec<ShardLog> =
        (0..store.shard_count).map(|number| make_shard(store, &wals, number, epoch)).collect();
    for group in groups {
        let shard = group.id.shard(store.shard_count);
        shards[usize::from(shard.get())].groups.push(group);
    }
    // From here on a file is shared by exactly the shards that hold a slot of it.
    drop(wals);
    for shard in &mut shards {
        shard.release_foreign();
        let dir = shard.wal.dir().to_owned();
        shard.look_at_room(store.disk.free_bytes(&store.root).ok());
        if !store.has_synced_names {
            shard.wal.poison();
            continue;
        }
        first_segment(shard).map_err(at(&dir))?;
        write_mark(shard).map_err(at(&dir))?;
    }
    Ok((shards, epoch))
}

/// On a disk with little room, gives back what the last opening kept ready in the segment that it wrote: each start takes a
/// new one. Nothing is cut that anybody may still ask for: a torn batch stays, and so does all of a WAL with damage.
fn shorten_last_segment(store: &Store, wal: &mut RebuiltWal) {
    let Some(LiveBatch::Whole(last)) = wal.scanned.live.last() else { return };
    let is_sound = wal.scanned.damages.is_empty() && wal.scanned.torn.is_none();
    let (segment, end) = (last.segment, last.end());
    let file = &wal.files[segment];
    if !is_sound || segment + 1 != wal.scanned.used_segments || end >= file.capacity {
        return;
    }
    let Ok(free_bytes) = store.disk.free_bytes(&store.root) else { return };
    let mut room = WalRoom::new(&store.options, store.shard_count);
    room.note(wal.files.iter().map(|file| file.capacity).sum(), free_bytes, 0);
    // A file that cannot be cut keeps its size, which is no reason to refuse a start.
    if room.is_tight() && file.file.set_len(end).is_ok() {
        let (path, open) = (file.path.clone(), Arc::clone(&file.file));
        let cut = SegmentFile { seq: file.seq, path, file: open, capacity: end };
        wal.files[segment] = Arc::new(cut);
    }
}

fn make_shard(store: &Store, wals: &[RebuiltWal], number: u16, epoch: u64) -> ShardLog {
    let recent = store.options.recent_bytes_of_shard(store.shard_count);
    let runs = RecentRuns::new(
        Arc::clone(&store.disk),
        (store.options.recent_run_bytes_min, recent.runs as u64),
    );
    let in_memory = (RecentRing::new(recent.ring), runs, ReadCache::new(recent.cache));
    let mut slots = SegmentTable::new(Arc::clone(&store.is_closing), in_memory);
    let (mut drained, mut foreign) = (Vec::new(), Vec::new());
    let mut start = WalStart { segment_next: 1, batch_next: 1, ..WalStart::default() };
    for wal in wals {
        for (index, file) in wal.files.iter().enumerate() {
            let slot = slots.insert(Arc::clone(file));
            assert_eq!(usize::from(slot), usize::from(wal.first_slot) + index);
        }
        let segments = wal_segments(wal);
        if wal.wal == number {
            start = wal_start(wal, segments);
        } else if wal.wal >= store.shard_count && wal.wal % store.shard_count == number {
            let dir = wal_dir(&store.root, wal.wal);
            drained.push(DrainedWal { dir, segments });
        } else {
            foreign.extend(segments);
        }
    }
    let dir = wal_dir(&store.root, number);
    let identity = WalIdentity { store: store.id, wal: number, epoch, dir };
    ShardLog {
        store: store.clone(),
        shard: ShardId::new(number),
        wal: ShardWal::new(identity, (store.options.clone(), store.shard_count), start),
        slots,
        groups: Vec::new(),
        drained,
        foreign,
        is_draining: false,
        is_busy: false,
        is_work_due: Cell::new(true),
        is_out_of_room: false,
        has_just_counted: false,
        has_just_sifted: false,
        is_count_due: true,
        seals_since_merge: 0,
        load: Load::default(),
        waiting_mean: u64::MAX,
        turn: 0,
        batches: 0,
        batch_bytes: 0,
        entries: 0,
        note_slot: 0,
        are_notes_due: false,
        spent: Vec::new(),
    }
}

fn wal_segments(wal: &RebuiltWal) -> VecDeque<WalSegment> {
    let segment = |index: usize| WalSegment {
        slot: wal.first_slot + index as u16,
        capacity: wal.files[index].capacity,
        last: wal.last[index].clone(),
    };
    (0..wal.files.len()).map(segment).collect()
}

fn wal_start(wal: &RebuiltWal, mut segments: VecDeque<WalSegment>) -> WalStart {
    let spares = segments.split_off(wal.scanned.used_segments);
    WalStart {
        retired: segments,
        spares,
        segment_next: wal.segment_next,
        // One number is left out: a torn batch whose header is lost may have had the next.
        batch_next: wal.scanned.seq_max + 2,
        durable: wal.scanned.durable,
        list: wal.list.clone(),
    }
}

/// Gives the shard a segment to write: a small one, so that a start does not wait. On a full disk it takes upkeep only.
fn first_segment(shard: &mut ShardLog) -> io::Result<()> {
    if shard.wal.has_spare() {
        return Ok(());
    }
    let room = shard.wal.room();
    // Nothing is at hand yet.
    let unsealed_bytes = hot_chunk_bytes(&shard.groups, room.is_tight());
    for size in [room.data_segment(0, 0, unsealed_bytes), room.upkeep_segment(0)] {
        let (disk, dir) = (&*shard.store.disk, shard.wal.dir());
        let capacity = size.choose(disk, dir);
        let (seq, is_awaited) = (shard.wal.segment_next(), AtomicBool::new(false));
        match capacity.and_then(|bytes| create_segment(disk, dir, seq, bytes, &is_awaited)) {
            Ok(file) => {
                shard.wal.add_spare(&mut shard.slots, file, size.purpose);
                return Ok(());
            }
            Err(error) if is_no_room(&error) => shard.wal.set_disk_full(),
            // Reads are served without it. Background work tries again, and reports what fails.
            Err(error) if is_unreadable(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Claims the recovered batches durable, so that this recovery's answer is the last word on them.
fn write_mark(shard: &mut ShardLog) -> io::Result<()> {
    shard.mark_durable();
    match shard.poll_sync() {
        None => Ok(()),
        Some(job) => match shard.handle_synced(job.run()) {
            Ok(_) => Ok(()),
            Err(failed) => Err(failed.error),
        },
    }
}
