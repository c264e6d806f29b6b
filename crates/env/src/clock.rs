//! Time as an argument: wall-clock time for what users see, monotonic time for what we wait for.

use model::{Monotonic, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Wall-clock time. It may jump, backwards too.
    fn now_wall(&self) -> Timestamp;
    /// Time since an arbitrary start. It never goes backwards.
    fn now_monotonic(&self) -> Monotonic;
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Processor time that this process has used, in milliseconds: what a run cost, however busy
    /// the machine was.
    #[must_use]
    pub fn cpu_ms(&self) -> u64 {
        nanoseconds(ClockId::ProcessCPUTime) / 1_000_000
    }

    /// Processor time that the calling thread has used, in nanoseconds.
    #[must_use]
    pub fn thread_cpu_ns(&self) -> u64 {
        nanoseconds(ClockId::ThreadCPUTime)
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now_wall(&self) -> Timestamp {
        // A clock before 1970 is a machine without a set clock: its time is then the epoch.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn now_monotonic(&self) -> Monotonic {
        let since_start = self.start.elapsed();
        Monotonic::new(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_does_not_go_backwards() {
        let clock = RealClock::new();
        let first = clock.now_monotonic();
        assert!(clock.now_monotonic() >= first);
        assert!(clock.now_wall() > Timestamp::new(1_600_000_000_000));
    }

    #[test]
    fn processor_time_grows_with_work() {
        let clock = RealClock::new();
        let before = clock.cpu_ms();
        let mut sum = 0_u64;
        while clock.cpu_ms() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(clock.cpu_ms() > before);
    }
}
