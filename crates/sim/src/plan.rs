//! What a run consists of. Everything that is not here follows from the seed.

use crate::{dice::Dice, fault::FaultKind, mutant::Mutant};
use log::LogOptions;

/// A run to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Simulated seconds before everything is healed and audited.
    pub seconds: u64,
    /// Faults that may happen; [`Plan::of_seed`] draws them.
    pub faults: Vec<FaultKind>,
    /// Requests of 100 that go over HTTP/2, of those that may: none are pipelined there.
    pub http2_percent: u64,
    /// There is an access file, and guests try its bounds.
    pub has_access: bool,
    /// A deliberate defect.
    pub mutant: Option<Mutant>,
    /// Print every step.
    pub verbose: bool,
}

/// Parts the choices of HTTP/2 from the others of a seed.
pub(crate) const FRAMES: u64 = 0x6672_616d;

/// Parts the choice of an access file from the others of a seed.
pub(crate) const ACCESS: u64 = 0x6163_6365;

impl Plan {
    /// The plan that belongs to a seed: half of them have later faults, too.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut plan = Self::with_first_faults(seed);
        let mut dice = Dice::new(seed ^ 0x6c61_7465);
        if dice.percent(50) {
            let later = FaultKind::LATER.iter().copied().filter(|_| dice.percent(40));
            plan.faults.extend(later);
        }
        // What others fill or damage, deletes do not free.
        if plan.faults.contains(&FaultKind::SmallDisk) {
            plan.faults.retain(|fault| !fault.is_damage() && *fault != FaultKind::FullDisk);
        }
        plan.http2_percent = *Dice::new(seed ^ FRAMES).pick(&[0, 0, 30, 100]);
        plan.has_access = Dice::new(seed ^ ACCESS).percent(35);
        plan
    }

    /// The plan that belongs to a seed, without [`FaultKind::LATER`]: these have choices of their own, so that no
    /// seed has changed its course since.
    #[must_use]
    pub fn with_first_faults(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x706c_616e);
        let seconds = dice.between(30, 120);
        let mut faults: Vec<FaultKind> =
            FaultKind::FIRST.iter().copied().filter(|_| dice.percent(55)).collect();
        // Flipped bits make many answers legal that are not otherwise: most runs do without.
        if !dice.percent(25) {
            faults.retain(|fault| !fault.is_damage());
        }
        Self {
            seed,
            seconds,
            faults,
            http2_percent: 0,
            has_access: false,
            mutant: None,
            verbose: false,
        }
    }
}

/// Sizes that make little data fill segments, chunks and the WAL.
pub(crate) fn log_options(dice: &mut Dice) -> LogOptions {
    let segment_bytes = *dice.pick(&[64 << 10, 128 << 10, 256 << 10]);
    LogOptions {
        segment_bytes,
        wal_bytes_max: segment_bytes * dice.between(3, 8),
        seal_bytes: *dice.pick(&[8 << 10, 32 << 10, 128 << 10]),
        hot_appends: 600,
        long_append_bytes: 200,
        fills_segments: true,
        batch_bytes_max: *dice.pick(&[32 << 10, 128 << 10]),
        checkpoint_bytes: *dice.pick(&[16 << 10, 64 << 10, 256 << 10]),
        chunk_bytes_max: *dice.pick(&[64 << 10, 512 << 10]),
        // So that files are closed and pages dropped in some of the runs, and all stay in others.
        chunk_files_max: if segment_bytes > 64 << 10 { 2 } else { 64 },
        chunk_pages_bytes_max: segment_bytes / 16,
        group_count: u16::try_from(*dice.pick(&[1_u64, 3, 8])).expect("16 bits"),
        own_group_count: 0,
        lineage: None,
        store: None,
        marks_empty: false,
        recent_bytes_max: 0,
        read_cache_bytes_max: 0,
        recent_run_bytes_min: 200,
    }
}

/// Memory for older bytes of the log that are read: none, or four pieces. The seed says which.
pub(crate) fn read_cache_bytes_max(seed: u64) -> u64 {
    [0, 64 << 10][usize::try_from(seed / 16 % 2).expect("an index")]
}

/// Memory for recent bytes: none, so little that most reads need the disk, some, or enough for all. The seed says
/// which.
pub(crate) fn recent_bytes_max(seed: u64) -> u64 {
    [0, 4 << 10, 24 << 10, 1 << 20][usize::try_from(seed / 4 % 4).expect("an index")]
}
