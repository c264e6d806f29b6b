//! What the system knows of this process.

use std::fs;
use std::time::Duration;

/// Numbers of the whole process at one moment. A number that the system does not give is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// Memory in use.
    pub(super) resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub(super) open_fds: Option<u64>,
    /// Time since the admin server started.
    pub(super) uptime: Duration,
}

impl Reading {
    /// Reads `/proc/self`; takes well under a millisecond and is asked for by scrapes only.
    pub(super) fn now(uptime: Duration) -> Self {
        let status = fs::read_to_string("/proc/self/status").ok();
        let fds = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        Self {
            resident_bytes: status.as_deref().and_then(resident_bytes),
            open_fds: fds.and_then(|count| u64::try_from(count).ok()),
            uptime,
        }
    }
}

/// The line `VmRSS:    5412 kB`.
fn resident_bytes(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_line_that_names_it() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    5412 kB\n"), Some(5412 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }
}
