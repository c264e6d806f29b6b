//! How many descriptors the process may have open, and the table of them.

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Descriptors besides those of connections: files, listeners, readiness interfaces.
const OTHERS_MAX: u64 = 1024;

/// What to do where `error` is that the process has no descriptors left.
pub fn advice(error: &io::Error) -> Option<String> {
    if error.raw_os_error() != Some(Errno::MFILE.raw_os_error()) {
        return None;
    }
    let limit = getrlimit(Resource::Nofile).maximum?;
    Some(format!(
        "the process may have {limit} files and connections open, and stored data needs one for each of its \
         files: raise the limit (`ulimit -Hn`, `LimitNOFILE=` of systemd)"
    ))
}

/// Lets the process have as many descriptors as the system allows it, and makes room for `connections_max`
/// connections. To be called while there is one thread.
///
/// The limit of many shells is 1,024, below what they would allow if asked; chunks of stored data need some descriptors,
/// too. And the table begins at 64, and Linux doubles it when it is full. Where threads share it, the thread that
/// opens a connection then waits until all processors have noticed. That took 10 to 20 ms while 2,000
/// clients came at once, and the loop served no connection meanwhile. For a single thread it grows without
/// that wait, and it never shrinks.
pub fn make_room(connections_max: usize) {
    let wanted = connections_max as u64 + OTHERS_MAX;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = maximum.unwrap_or(wanted);
    if current.is_some_and(|current| current < allowed) {
        // Refused, it stays as it was, and what cannot be opened is refused to clients in time.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum });
    }
    let highest = i32::try_from(wanted.min(allowed).saturating_sub(1)).unwrap_or(i32::MAX);
    let _ = fcntl_dupfd_cloexec(std::io::stderr(), highest);
}
