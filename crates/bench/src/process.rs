//! What the system knows of a process. Sources: proc(5), clock_getcpuclockid(3).

use nix::{time::clock_getcpuclockid, unistd::Pid};
use std::fs;
use std::time::Duration;

/// Processes of one system at most.
const PROCESSES_MAX: usize = 3;

/// A process on this machine, or those of one system, whose figures are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    ids: [Option<u32>; PROCESSES_MAX],
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memory {
    /// In use now (`VmRSS`).
    pub(crate) resident_bytes: u64,
    /// Most that was ever in use (`VmHWM`).
    pub(crate) peak_bytes: u64,
}

impl Process {
    pub(crate) fn new(id: u32) -> Self {
        Self::of(&[id])
    }

    /// The processes of one system.
    pub(crate) fn of(ids: &[u32]) -> Self {
        let mut all = [None; PROCESSES_MAX];
        all.iter_mut().zip(ids).for_each(|(place, id)| *place = Some(*id));
        Self { ids: all }
    }

    pub(crate) fn own() -> Self {
        Self::new(std::process::id())
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        self.ids.into_iter().flatten()
    }

    /// CPU time of all threads that it has had, in the kernel and outside.
    pub(crate) fn cpu(self) -> Option<Duration> {
        self.ids().map(cpu_time).sum()
    }

    pub(crate) fn memory(self) -> Option<Memory> {
        let mut sum = Memory::default();
        for id in self.ids() {
            let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            sum.resident_bytes += status_bytes(&status, "VmRSS:")?;
            sum.peak_bytes += status_bytes(&status, "VmHWM:")?;
        }
        Some(sum)
    }

    /// Resets `VmHWM` to the memory in use now. Not every system allows it.
    pub(crate) fn reset_peak(self) {
        for id in self.ids() {
            let _ = fs::write(format!("/proc/{id}/clear_refs"), "5");
        }
    }

    pub(crate) fn open_descriptors(self) -> Option<u64> {
        let count = |id| Some(fs::read_dir(format!("/proc/{id}/fd")).ok()?.count() as u64);
        self.ids().map(count).sum()
    }
}

/// The clock that `clock_getcpuclockid` names; proc(5) says the same in steps of 10 ms.
fn cpu_time(id: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(id).ok()?)).ok()?;
    Some(clock.now().ok()?.into())
}

/// A line as `VmRSS:    5412 kB`.
fn status_bytes(status: &str, key: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// Lets this process, and the servers that it starts, open as many descriptors as they may.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Without it runs with few connections still work; others say what failed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_that_of_the_process_and_has_no_steps() {
        let before = Process::own().cpu().unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(2) {}
        let used = Process::own().cpu().unwrap() - before;
        assert!(Duration::ZERO < used && used < Duration::from_secs(1), "{used:?}");
        assert_eq!(Process::new(u32::MAX).cpu(), None);
    }

    #[test]
    fn memory_is_read_from_the_line_that_names_it() {
        let status = "Name:\tx\nVmHWM:\t    8000 kB\nVmRSS:\t    5412 kB\n";
        assert_eq!(status_bytes(status, "VmRSS:"), Some(5412 * 1024));
        assert_eq!(status_bytes(status, "VmHWM:"), Some(8000 * 1024));
        assert_eq!(status_bytes(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_can_be_measured() {
        let own = Process::own();
        let memory = own.memory().unwrap();
        assert!(0 < memory.resident_bytes && memory.resident_bytes <= memory.peak_bytes);
        assert!(own.open_descriptors().unwrap() >= 3);
        let before = own.cpu().unwrap();
        let mut sum = 0_u64;
        while own.cpu().unwrap() < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(own.cpu().unwrap() > before);
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures() {
        let gone = Process::new(u32::MAX);
        assert_eq!((gone.cpu(), gone.memory(), gone.open_descriptors()), (None, None, None));
        let with_own = Process::of(&[std::process::id(), u32::MAX]);
        assert_eq!(with_own.cpu(), None, "a sum without one of them is none");
    }

    #[test]
    fn figures_of_several_processes_are_added() {
        let id = std::process::id();
        let (one, two) = (Process::new(id), Process::of(&[id, id]));
        assert!(two.memory().unwrap().peak_bytes > one.memory().unwrap().peak_bytes);
        assert!(two.cpu().unwrap() >= one.cpu().unwrap());
    }
}
