//! What a run of the engine consists of: its plan, its disk, its clock and its choices.

use super::mutant::EngineMutant;
use crate::{dice::Dice, trace::Trace};
use ::model::{Monotonic, Timestamp};
use env::{Clock, MemoryDisk};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Time that passes with each step, in microseconds.
const STEP_US: u64 = 137;

/// A run of the engine's world. Everything else follows from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnginePlan {
    /// Decides everything.
    pub seed: u64,
    /// A deliberate defect.
    pub mutant: Option<EngineMutant>,
    /// Print every step.
    pub verbose: bool,
}

/// A clock that the world moves.
#[derive(Debug, Default)]
pub(super) struct StepClock {
    now_us: AtomicU64,
}

impl StepClock {
    pub(super) fn step(&self) {
        self.now_us.fetch_add(STEP_US, Ordering::Relaxed);
    }

    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }
}

impl Clock for StepClock {
    fn now_wall(&self) -> Timestamp {
        Timestamp::new(1_767_225_600_000 + self.now_us() / 1000)
    }

    fn now_monotonic(&self) -> Monotonic {
        Monotonic::new(self.now_us() * 1000)
    }
}

/// Everything that a life shares with the others of its run.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) plan: EnginePlan,
    pub(super) dice: Dice,
    pub(super) disk: MemoryDisk,
    pub(super) clock: Arc<StepClock>,
    trace: Trace,
}

impl Scene {
    pub(super) fn new(plan: EnginePlan) -> Self {
        Self {
            plan,
            dice: Dice::new(plan.seed ^ 0x656e_6769_6e65),
            disk: MemoryDisk::new(),
            clock: Arc::default(),
            trace: Trace::new(plan.verbose),
        }
    }

    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        self.trace.note(self.clock.now_us(), what);
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }
}
