//! What was done and what was found, counted by many threads.

use crate::ledger::{Checked, lock};
use std::fmt;
use std::ops::Sub;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Contradictions that are kept; more say nothing new.
const VIOLATIONS_MAX: usize = 20;

/// Counters of one scenario.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) cycles: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    /// Requests whose answer did not come.
    pub(crate) unknown: AtomicU64,
    /// Repeats that were recognised.
    pub(crate) repeats: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Acknowledged creates, closes and deletes.
    pub(crate) lifecycle: AtomicU64,
    pub(crate) streams_verified: AtomicU64,
    pub(crate) appends_verified: AtomicU64,
    pub(crate) bytes_verified: AtomicU64,
    pub(crate) ranges_verified: AtomicU64,
    pub(crate) settled: AtomicU64,
    /// Streams that answered that they are damaged.
    pub(crate) damaged: AtomicU64,
    /// Answers of damage that do not name the file; the server's log does.
    pub(crate) unnamed: AtomicU64,
    /// Answers that met damage on their way.
    pub(crate) broken_off: AtomicU64,
    /// Answers that were broken off because their stream was deleted.
    pub(crate) cut_by_delete: AtomicU64,
    /// Flipped bits that some stream noticed.
    pub(crate) flips_felt: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// How writes were answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers {
    acknowledged: u64,
    refused: u64,
    /// No answer came.
    unknown: u64,
}

impl Answers {
    /// Every request was answered, and none refused.
    pub(crate) const fn are_all_acknowledged(&self) -> bool {
        self.refused == 0 && self.unknown == 0
    }
}

impl Sub for Answers {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            acknowledged: self.acknowledged - before.acknowledged,
            refused: self.refused - before.refused,
            unknown: self.unknown - before.unknown,
        }
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, refused, unknown } = self;
        write!(
            f,
            "{acknowledged} appends acknowledged, {refused} refused, {unknown} without an answer"
        )
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Report {
    /// Something contradicts a promise.
    pub(crate) fn violation(&self, what: impl Into<String>) {
        let mut violations = lock(&self.violations);
        if violations.len() < VIOLATIONS_MAX {
            violations.push(format!("{} {}", time_of_day(), what.into()));
        }
    }

    /// How writes were answered so far.
    pub(crate) fn answers(&self) -> Answers {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Answers {
            acknowledged: get(&self.acknowledged),
            refused: get(&self.refused),
            unknown: get(&self.unknown),
        }
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    pub(crate) fn is_clean(&self) -> bool {
        lock(&self.violations).is_empty()
    }

    /// One stream was compared.
    pub(crate) fn checked(&self, checked: Checked) {
        add(&self.streams_verified, 1);
        add(&self.appends_verified, checked.appends);
        add(&self.bytes_verified, checked.bytes);
        add(&self.ranges_verified, checked.ranges_seen);
        add(&self.settled, checked.settled);
    }
}

/// The time of day as the logs of the servers have it.
fn time_of_day() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (now.as_secs(), now.subsec_millis());
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{ms:03}", seconds % 60)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        write!(
            f,
            "{} cycles; load: {} appends acknowledged, {} requests unknown, {} repeats recognised, \
             {} refused, {} creates/closes/deletes; verified: {} stream reads, {} appends, {} MiB, \
             {} ranges of readers, {} unknown settled, {} answers cut by a delete",
            get(&self.cycles),
            get(&self.acknowledged),
            get(&self.unknown),
            get(&self.repeats),
            get(&self.refused),
            get(&self.lifecycle),
            get(&self.streams_verified),
            get(&self.appends_verified),
            get(&self.bytes_verified) >> 20,
            get(&self.ranges_verified),
            get(&self.settled),
            get(&self.cut_by_delete),
        )?;
        match get(&self.damaged) {
            0 => Ok(()),
            damaged => {
                let felt = get(&self.flips_felt);
                let (unnamed, broken_off) = (get(&self.unnamed), get(&self.broken_off));
                write!(
                    f,
                    "; {felt} flips were felt, by {damaged} streams in all; {unnamed} answers did not \
                     name the file, {broken_off} were broken off"
                )
            }
        }
    }
}
