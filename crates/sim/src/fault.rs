//! What goes wrong, and when.

use crate::{dice::Dice, plane::Job, process::Process, world::World};
use env::{Disk, DiskOperation};
use std::path::PathBuf;

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
    /// The process or the power goes in the middle of background work, and something is damaged before the next start.
    DamagedEnd,
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
        Self::DamagedEnd,
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
                | Self::DamagedEnd
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
            Self::DamagedEnd => "damaged-end",
        }
    }
}

/// What a disk fails to read at once.
pub(crate) const BLOCK_BYTES: u64 = 4096;

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
            FaultKind::DamagedEnd => self.cuts_work = true,
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

    pub(crate) fn files(&self, part: &str) -> Vec<PathBuf> {
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
