//! What goes wrong, and when.

use crate::{dice::Dice, plane::Job, process::Process, witnesses::Witnesses, world::World};
use env::{Disk, DiskOperation};
use std::path::{Path, PathBuf};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The process is killed; what it wrote stays in the page cache.
    Kill,
    /// The process ends in order, shard by shard.
    Stop,
    /// The power goes: what was not synced is lost, kept or torn.
    PowerLoss,
    /// The process comes back with another number of shards.
    Reshard,
    /// The process or the power goes again while it recovers.
    DieInRecovery,
    /// A sync fails and loses what it should have made durable.
    FailedSync,
    /// The disk has no more room for a while.
    FullDisk,
    /// Threads take long for their jobs for a while.
    SlowJobs,
    /// The wall clock goes forward or backward.
    ClockJump,
    /// Clients give up in the middle of requests.
    Vanish,
    /// One bit of a file changes while the process is down.
    FlippedBit,
    /// A block of a chunk or a checkpoint is written to another place of it while the process is down.
    Misdirected,
    /// A sector of a file holds other bytes after the process was down.
    LostSector,
    /// A block of a file cannot be read any more, from one moment on or after the process was down.
    UnreadableBlock,
    /// One read fails, and the same read would succeed.
    FailedRead,
    /// Renames, removals or syncs of directories fail, once or for a while.
    FailedNames,
    /// The disk has little room from the begin, and only deletes make some.
    SmallDisk,
    /// The power goes in the middle of a commit, and leaves garbage in a sector.
    TornSector,
    /// A sync fails, and later what it should have written is read as it was before.
    EvictedPages,
    /// A block of a chunk that is in use cannot be read any more.
    LostChunkBlock,
    /// Removals, renames, syncs of directories or one open fail in a start.
    FailedStart,
    /// A block of the last batch with entries of a WAL is lost after the process was down, once a mark claims it durable.
    LostLastBatch,
    /// Files cannot be opened: once, or for a while where damage is possible.
    FailedOpens,
    /// What a shard does takes time, and a turn that takes long holds everybody up.
    CostlyWork,
    /// A segment of a WAL cannot be opened after the process was down, for one start or for many.
    LostSegment,
}

impl FaultKind {
    /// All kinds, as they are named on a command line.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::FIRST.iter().chain(Self::LATER).copied()
    }

    /// Kinds that came later. Their choices come from a source of their own.
    pub const LATER: &'static [Self] = &[
        Self::SmallDisk,
        Self::TornSector,
        Self::EvictedPages,
        Self::LostChunkBlock,
        Self::FailedStart,
        Self::LostLastBatch,
        Self::FailedOpens,
        Self::CostlyWork,
        Self::LostSegment,
    ];

    /// The kinds that each seed has drawn from since the first.
    pub const FIRST: &'static [Self] = &[
        Self::Kill,
        Self::Stop,
        Self::PowerLoss,
        Self::Reshard,
        Self::DieInRecovery,
        Self::FailedSync,
        Self::FullDisk,
        Self::SlowJobs,
        Self::ClockJump,
        Self::Vanish,
        Self::FlippedBit,
        Self::Misdirected,
        Self::LostSector,
        Self::UnreadableBlock,
        Self::FailedRead,
        Self::FailedNames,
    ];

    /// Whether stored bytes change that were durable.
    #[must_use]
    pub fn is_damage(self) -> bool {
        matches!(
            self,
            Self::FlippedBit
                | Self::Misdirected
                | Self::LostSector
                | Self::UnreadableBlock
                | Self::LostChunkBlock
                | Self::LostLastBatch
                | Self::LostSegment
        )
    }

    /// The name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::PowerLoss => "power-loss",
            Self::Reshard => "reshard",
            Self::DieInRecovery => "die-in-recovery",
            Self::FailedSync => "failed-sync",
            Self::FullDisk => "full-disk",
            Self::SlowJobs => "slow-jobs",
            Self::ClockJump => "clock-jump",
            Self::Vanish => "vanish",
            Self::FlippedBit => "flipped-bit",
            Self::Misdirected => "misdirected",
            Self::LostSector => "lost-sector",
            Self::UnreadableBlock => "unreadable-block",
            Self::FailedRead => "failed-read",
            Self::FailedNames => "failed-names",
            Self::SmallDisk => "small-disk",
            Self::TornSector => "torn-sector",
            Self::EvictedPages => "evicted-pages",
            Self::LostChunkBlock => "lost-chunk-block",
            Self::FailedStart => "failed-start",
            Self::LostLastBatch => "lost-last-batch",
            Self::FailedOpens => "failed-opens",
            Self::CostlyWork => "costly-work",
            Self::LostSegment => "lost-segment",
        }
    }
}

/// What a disk loses at once.
const SECTOR_BYTES: u64 = 512;

/// What a disk fails to read at once.
const BLOCK_BYTES: u64 = 4096;

/// After names have failed, files may still be there that were to be removed.
const AFTER_SICKNESS_US: u64 = 10_000_000;

/// Most changes of a commit that the power cuts.
const COMMIT_CHANGES: u64 = 4;

/// Ticks at which what failed syncs have lost is evicted.
pub(crate) const EVICTED_TICKS_PERCENT: u64 = 3;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Kill,
    PowerLoss,
}

/// A wait that is longer than any run.
const NEVER_MS: u64 = u32::MAX as u64;

impl World {
    pub(crate) fn has_fault(&self, kind: FaultKind) -> bool {
        self.plan.faults.contains(&kind)
    }

    /// Something goes wrong; returns after how many milliseconds the next thing may.
    pub(crate) fn strike(&mut self) -> u64 {
        let own: Vec<FaultKind> = self.plan.faults.iter().copied().filter(is_struck).collect();
        if own.is_empty() {
            return NEVER_MS;
        }
        let kind = *self.fault_dice.pick(&own);
        self.note(format_args!("fault {}", kind.name()));
        match kind {
            FaultKind::Kill => self.end_process(End::Kill),
            FaultKind::Stop => self.begin_stop(),
            FaultKind::PowerLoss => self.end_process(End::PowerLoss),
            FaultKind::FailedSync | FaultKind::EvictedPages => {
                let nth = self.fault_dice.between(1, 6);
                self.disk.fail_next_sync(nth);
            }
            FaultKind::FullDisk => self.fill_disk(),
            FaultKind::SlowJobs => {
                self.slow_until_us = self.clock.now_us + self.fault_dice.between(1, 10) * 1_000_000;
            }
            FaultKind::ClockJump => self.jump_clock(),
            FaultKind::FailedRead => {
                let skip = self.fault_dice.below(30);
                self.disk.fail(DiskOperation::Read, skip, 1);
            }
            FaultKind::FailedNames => self.fail_names(),
            FaultKind::FailedOpens => self.fail_opens(),
            FaultKind::TornSector => self.tears_commit = true,
            FaultKind::UnreadableBlock if self.fault_dice.percent(50) => {
                let part = *self.fault_dice.pick(&["/wal/", "/checkpoints/"]);
                self.lose_running(part);
            }
            FaultKind::LostChunkBlock => self.lose_running("/chunks/"),
            _ => self.damage_disk(kind),
        }
        self.fault_dice.between(500, 15_000)
    }

    /// Nothing but the log fills the disk from now on.
    pub(crate) fn give_room(&mut self) {
        self.disk.set_capacity(self.room_bytes);
    }

    /// Whether a sync may fail.
    pub(crate) fn may_fail_syncs(&self) -> bool {
        self.has_fault(FaultKind::FailedSync) || self.has_fault(FaultKind::EvictedPages)
    }

    /// In so many of a hundred cases pages are evicted that a failed sync has lost.
    pub(crate) fn perhaps_evict(&mut self, percent: u64) {
        if self.has_fault(FaultKind::EvictedPages) && self.later_dice.percent(percent) {
            self.disk.evict_lost_writes(&mut self.later_dice);
        }
    }

    fn fill_disk(&mut self) {
        let room = self.fault_dice.below(200_000);
        if self.has_fault(FaultKind::SmallDisk) {
            return;
        }
        self.disk.set_capacity(self.disk.used_bytes() + room);
        let until = self.clock.now_us + self.fault_dice.between(1, 15) * 1_000_000;
        self.at(until, crate::world::Act::DiskHasRoom);
    }

    fn jump_clock(&mut self) {
        let ms = match self.fault_dice.below(4) {
            0 => i64::try_from(self.fault_dice.below(3_600_000)).expect("an hour"),
            1 => -i64::try_from(self.fault_dice.below(600_000)).expect("ten minutes"),
            2 => i64::try_from(self.fault_dice.below(3_000)).expect("seconds"),
            _ => -i64::try_from(self.fault_dice.below(3_000)).expect("seconds"),
        };
        self.backward_jumps += u64::from(ms < 0);
        self.clock.jump(ms);
    }

    fn fail_names(&mut self) {
        let operations = [DiskOperation::Rename, DiskOperation::Remove, DiskOperation::SyncDir];
        let operation = *self.fault_dice.pick(&operations);
        let count = *self.fault_dice.pick(&[Some(1), Some(3), None]);
        let skip = self.fault_dice.below(10);
        self.disk.fail(operation, skip, count);
        let until = self.clock.now_us + self.fault_dice.between(1, 10) * 1_000_000;
        self.sick_until_us = until + AFTER_SICKNESS_US;
        self.at(until, crate::world::Act::DiskWorks);
    }

    /// A file that cannot be opened twice in a row is damaged as a whole for who looks for it then.
    fn fail_opens(&mut self) {
        let skip = self.later_dice.below(10);
        let is_once =
            !self.plan.faults.iter().any(|fault| fault.is_damage()) || self.later_dice.percent(50);
        self.disk.fail(DiskOperation::Open, skip, is_once.then_some(1));
        if !is_once {
            self.oracle.damage_possible = true;
            self.oracle.hit_groups.insert(None);
            let until = self.clock.now_us + self.later_dice.between(1, 10) * 1_000_000;
            self.sick_until_us = until + AFTER_SICKNESS_US;
            self.at(until, crate::world::Act::DiskWorks);
        }
    }

    /// Ends the process in the middle of whatever its threads are doing.
    pub(crate) fn end_process(&mut self, end: End) {
        let Some(process) = self.process.take() else { return };
        // Anywhere in what its jobs change, and often near its begin.
        let all = process.jobs.len() as u64 * self.job_changes_max;
        let most = if self.fault_dice.percent(50) { all } else { all.min(8) };
        let changes = self.fault_dice.below(most + 1);
        self.end_after(end, changes, process);
    }

    /// The power goes while a batch is written.
    pub(crate) fn end_in_commit(&mut self, job: log::SyncJob) {
        let Some(process) = self.process.take() else { return };
        self.tears_commit = false;
        let changes = self.later_dice.between(1, COMMIT_CHANGES);
        self.disk.power_off_after(changes);
        drop(job.run());
        self.end_after(End::PowerLoss, 0, process);
    }

    /// The threads of a process make so many changes before it ends.
    fn end_after(&mut self, end: End, changes: u64, process: Process) {
        self.note(format_args!("end {end:?} of life {}", process.life));
        self.disk.power_off_after(changes);
        for (_, job) in process.jobs.into_values() {
            match job {
                Job::Sync(job) => drop(job.run()),
                Job::Work(job) => drop(job.run()),
                Job::Check(job) => drop(job),
                Job::Read(job) => drop(job.run()),
            }
        }
        drop(process.shards);
        self.settle_disk(end);
        self.lose_connections(|_| true);
        let wait = self.fault_dice.between(1, 3_000) * 1000;
        self.at(self.clock.now_us + wait, crate::world::Act::Start);
    }

    fn settle_disk(&mut self, end: End) {
        match end {
            End::Kill => {
                self.disk.kill_process();
                self.perhaps_evict(50);
            }
            End::PowerLoss => {
                self.disk.crash(&mut self.fault_dice);
                if self.plan.mutant == Some(crate::mutant::Mutant::LostBlock) {
                    self.lose_block();
                }
            }
        }
    }

    /// A start in which files that nobody needs cannot be removed, names cannot be changed or made durable, or a file cannot
    /// be opened at first.
    pub(crate) fn perhaps_fail_start(&mut self) {
        // A directory that was never opened may be refused.
        let is_known = self.start_changes > 0;
        if is_known && self.has_fault(FaultKind::FailedStart) && self.later_dice.percent(60) {
            let skip = self.later_dice.below(40);
            match self.later_dice.below(4) {
                0 => self.disk.fail(DiskOperation::Open, skip, 1),
                1 => self.disk.fail(DiskOperation::Remove, skip / 10, None),
                2 => self.disk.fail(DiskOperation::Rename, skip / 10, None),
                // The shards are poisoned then, and somebody starts the process again.
                _ if self.is_ending => {}
                _ => self.disk.fail(DiskOperation::SyncDir, skip / 2, None),
            }
        }
    }

    /// A recovery that does not get to its end.
    pub(crate) fn may_die_in_recovery(&mut self) {
        if self.has_fault(FaultKind::DieInRecovery) && self.fault_dice.percent(30) {
            let is_known = self.start_changes > 0 && self.fault_dice.percent(70);
            let most = if is_known { self.start_changes } else { 40 };
            let changes = self.fault_dice.below(most);
            self.disk.power_off_after(changes);
        }
    }

    pub(crate) fn settle_after_recovery(&mut self) {
        let power = self.has_fault(FaultKind::PowerLoss) && self.fault_dice.percent(50);
        self.settle_disk(if power { End::PowerLoss } else { End::Kill });
    }

    fn files(&self, part: &str) -> Vec<PathBuf> {
        let is_part = |path: &PathBuf| path.to_string_lossy().contains(part);
        self.disk.paths().into_iter().filter(is_part).collect()
    }

    /// The newest written block of some WAL segment turns to zeroes, although it was synced.
    fn lose_block(&mut self) {
        for path in self.files("/wal/") {
            let Ok(file) = self.disk.open(&path) else { continue };
            let length = file.len().unwrap_or(0);
            let mut block = [0; 4096];
            for position in (0..length / 4096).rev().map(|block| block * 4096) {
                let is_read = file.read_exact_at(&mut block, position).is_ok();
                if is_read && block.iter().any(|byte| *byte != 0) {
                    let _ = file.write_at(&[0; 4096], position);
                    let _ = file.sync_data();
                    break;
                }
            }
        }
    }

    /// Asks for quiet first: damage to the very last batch of a log cannot be distinguished from a torn
    /// batch, until a mark says that it was durable.
    fn damage_disk(&mut self, kind: FaultKind) {
        if self.process.as_ref().is_none_or(|process| process.is_poisoned()) {
            return;
        }
        self.quiet_then(kind);
    }

    /// Changes stored bytes while no process runs.
    pub(crate) fn hit_disk(&mut self, kind: FaultKind) {
        if kind == FaultKind::LostSegment {
            return self.lose_segment();
        }
        let parts = ["/wal/", "/chunks/", "/checkpoints/", "FORMAT"];
        let part = match kind {
            FaultKind::Misdirected => *self.fault_dice.pick(&parts[1..3]),
            FaultKind::FlippedBit if self.fault_dice.percent(6) => parts[3],
            _ => *self.fault_dice.pick(&parts[..3]),
        };
        let files = self.files(part);
        if files.is_empty() {
            return;
        }
        let path = self.fault_dice.pick(&files).clone();
        match kind {
            FaultKind::LostLastBatch => self.lose_last_batch(),
            FaultKind::FlippedBit => self.flip(&path),
            FaultKind::LostSector => self.lose_sector(&path),
            FaultKind::UnreadableBlock => self.lose_readability(&path),
            _ => self.misdirect(&path),
        }
    }

    fn lose_sector(&mut self, path: &Path) {
        let Ok(file) = self.disk.open(path) else { return };
        let length = file.len().unwrap_or(0);
        let Some(byte) = self.used_byte(path, length) else { return };
        let position = byte / SECTOR_BYTES * SECTOR_BYTES;
        if path.starts_with("/data/wal") && !self.may_lose((path, position), true) {
            return;
        }
        let count = SECTOR_BYTES.min(length - position);
        let bytes: Vec<u8> = (0..count).map(|_| self.fault_dice.below(256) as u8).collect();
        self.note(format_args!("sector {} of {}", position / SECTOR_BYTES, path.display()));
        let _ = file.write_at(&bytes, position);
        let _ = file.sync_data();
        self.count_hit(path);
    }

    /// The witnesses of a WAL. A mutant that writes no lists must not be spared for that.
    fn witnesses(&self, segment: &Path) -> Witnesses {
        let lists_count = self.plan.mutant == Some(crate::mutant::Mutant::LostLists);
        Witnesses::read(&self.disk, segment, lists_count)
    }

    /// Whether what the block of a WAL holds may be lost without a loss that nothing can name. If so it counts as lost.
    fn may_lose(&mut self, (path, position): (&Path, u64), is_garbage: bool) -> bool {
        let block = (path.to_owned(), position / BLOCK_BYTES);
        let witnesses = self.witnesses(path);
        let looks_torn = is_garbage && witnesses.is_unclaimed(&block);
        if looks_torn || witnesses.is_last(&block, &self.lost_blocks) {
            return false;
        }
        self.lost_blocks.insert(block);
        true
    }

    /// Any block of the last batch of a WAL that is known to have been durable turns to garbage, or cannot be read.
    fn lose_last_batch(&mut self) {
        let files = self.files("/wal/");
        let Some(segment) = files.get(self.later_dice.below(files.len() as u64) as usize) else {
            return;
        };
        let witnesses = self.witnesses(segment);
        let Some(batch) = witnesses.last_claimed() else { return };
        let (path, block) = self.later_dice.pick(&batch.blocks()).clone();
        let is_garbage = self.later_dice.percent(50);
        if !self.may_lose((&path, block * BLOCK_BYTES), true) {
            return;
        }
        let what = if is_garbage { "is garbage" } else { "cannot be read" };
        self.note(format_args!("block {block} of {} {what}", path.display()));
        if is_garbage {
            let bytes: Vec<u8> =
                (0..BLOCK_BYTES).map(|_| self.later_dice.below(256) as u8).collect();
            let Ok(file) = self.disk.open(&path) else { return };
            let _ = file.write_at(&bytes, block * BLOCK_BYTES);
            let _ = file.sync_data();
        } else {
            self.disk.make_unreadable(&path, block);
        }
        self.count_hit(&path);
    }

    /// A segment of a WAL cannot be opened any more. It is one whose entries are missed, and nothing else is lost of this
    /// WAL.
    fn lose_segment(&mut self) {
        let mut files = self.files("/wal/");
        files.retain(|path| {
            let is_hit = self.lost_blocks.iter().any(|(lost, _)| lost.parent() == path.parent());
            !is_hit && self.witnesses(path).is_missed(path)
        });
        let Some(path) = files.get(self.later_dice.below(files.len() as u64) as usize) else {
            return;
        };
        let length = self.disk.open(path).and_then(|file| file.len()).unwrap_or(0);
        let blocks = (0..length.div_ceil(BLOCK_BYTES)).map(|block| (path.clone(), block));
        self.lost_blocks.extend(blocks);
        self.note(format_args!("{} cannot be opened", path.display()));
        self.disk.set_openable(path, false);
        self.count_hit(path);
        self.oracle.hit_groups.insert(None);
        self.closed_segments.push((path.clone(), self.starts));
    }

    /// A segment that could not be opened at an earlier start can be again, perhaps.
    pub(crate) fn perhaps_open_segments(&mut self) {
        let (starts, dice) = (self.starts, &mut self.later_dice);
        let mut is_open = |(path, closed_at): &(PathBuf, u64)| {
            let is_healed = *closed_at < starts && dice.percent(40);
            if is_healed && self.disk.paths().contains(path) {
                self.disk.set_openable(path, true);
            }
            is_healed
        };
        let open: Vec<_> = self.closed_segments.extract_if(.., |of| is_open(of)).collect();
        for (path, _) in open {
            self.note(format_args!("{} can be opened again", path.display()));
        }
    }

    /// A block of a file that is in use cannot be read any more.
    fn lose_running(&mut self, part: &str) {
        let files = self.files(part);
        if !files.is_empty() {
            let path = self.fault_dice.pick(&files).clone();
            self.lose_readability(&path);
        }
    }

    fn lose_readability(&mut self, path: &Path) {
        let Ok(file) = self.disk.open(path) else { return };
        let length = file.len().unwrap_or(0);
        let Some(byte) = self.used_byte(path, length) else { return };
        let block = byte / BLOCK_BYTES;
        if path.starts_with("/data/wal") && !self.may_lose((path, byte), false) {
            return;
        }
        self.note(format_args!("block {block} of {} cannot be read", path.display()));
        self.disk.make_unreadable(path, block);
        self.count_hit(path);
        if path.starts_with("/data/wal") {
            self.oracle.hit_groups.insert(None);
        }
    }

    fn flip(&mut self, path: &Path) {
        let length = self.disk.open(path).and_then(|file| file.len()).unwrap_or(0);
        // Most of a WAL is zeroes: a bit there hits nothing.
        let Some(byte) = self.used_byte(path, length) else { return };
        let bit = byte * 8 + self.fault_dice.below(8);
        self.note(format_args!("bit {bit} of {}", path.display()));
        self.disk.flip_bit(path, bit);
        self.lost_blocks.insert((path.to_owned(), byte / BLOCK_BYTES));
        if path.ends_with("FORMAT") || path.ends_with("FORMAT.copy") {
            self.flipped_formats.add(path.to_owned(), bit);
        } else {
            self.count_hit(path);
        }
    }

    /// A chunk or checkpoint names its group; for a WAL, recovery must find it out.
    fn count_hit(&mut self, path: &Path) {
        self.oracle.damage_possible = true;
        self.flips += 1;
        let dir = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        if !path.starts_with("/data/wal") {
            self.oracle.hit_groups.insert(dir.and_then(|name| name.parse().ok()));
        }
    }

    fn used_byte(&mut self, path: &Path, length: u64) -> Option<u64> {
        let file = self.disk.open(path).ok()?;
        (0..64).find_map(|_| {
            let at = self.fault_dice.below(length);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).ok()?;
            (byte[0] != 0).then_some(at)
        })
    }

    fn misdirect(&mut self, path: &Path) {
        let Ok(file) = self.disk.open(path) else { return };
        let blocks = file.len().unwrap_or(0) / 4096;
        if blocks < 3 {
            return;
        }
        let (from, to) = (self.fault_dice.below(blocks), self.fault_dice.below(blocks));
        let mut block = [0; 4096];
        self.note(format_args!("block {from} at {to} of {}", path.display()));
        if file.read_exact_at(&mut block, from * 4096).is_ok() {
            let _ = file.write_at(&block, to * 4096);
            let _ = file.sync_data();
            self.count_hit(path);
        }
    }
}

/// Kinds that strike by themselves; the others change how something else happens.
fn is_struck(kind: &FaultKind) -> bool {
    let is_of_starts = matches!(kind, FaultKind::DieInRecovery | FaultKind::FailedStart);
    let is_manner = is_of_starts || matches!(kind, FaultKind::Reshard);
    let is_of_world = matches!(kind, FaultKind::SmallDisk | FaultKind::CostlyWork);
    !is_manner && !is_of_world && !matches!(kind, FaultKind::Vanish)
}

/// How long a thread takes for a job.
pub(crate) fn job_delay_us(dice: &mut Dice, slow: bool) -> u64 {
    if slow { dice.between(100_000, 2_000_000) } else { dice.delay_us(800) }
}
