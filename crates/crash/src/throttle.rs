//! Slow reads of one device for one process: a group of its own in the system's control of block devices.
//!
//! Writes and syncs are not slowed down. The reads of all threads of the process share the bound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONTROL: &str = "/sys/fs/cgroup/blkio";
/// What makes the process join, before it becomes the server.
const JOIN: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// A control group. It goes when this value does, after its processes.
#[derive(Debug)]
pub(crate) struct Throttle {
    group: PathBuf,
    device: String,
}

impl Throttle {
    /// A group without a bound for the device that holds `dir`.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn make(dir: &Path) -> Result<Self, String> {
        let device = Command::new("mountpoint").arg("-d").arg(dir).output();
        let device = device.ok().filter(|output| output.status.success());
        let device = device.ok_or("the device of a file system cannot be found (mountpoint)")?;
        let group = Path::new(CONTROL).join(format!("thalweg-crash-{}", std::process::id()));
        fs::create_dir(&group)
            .map_err(|error| format!("reads cannot be slowed down ({CONTROL}: {error})"))?;
        let device = String::from_utf8_lossy(&device.stdout).trim().to_owned();
        Ok(Self { group, device })
    }

    /// Words before those of a process that is to join; it keeps its process id.
    pub(crate) fn joining(&self) -> Vec<String> {
        let members = self.group.join("cgroup.procs").display().to_string();
        ["sh", "-c", JOIN, &members].map(str::to_owned).to_vec()
    }

    /// So many bytes and so many reads in a second, from now on; 0: without a bound.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn set(&self, bytes: u64, reads: u64) -> Result<(), String> {
        for (what, bound) in [("bps", bytes), ("iops", reads)] {
            let file = self.group.join(format!("blkio.throttle.read_{what}_device"));
            fs::write(&file, format!("{} {bound}", self.device))
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(())
    }

    /// Bytes that were read from the device so far.
    ///
    /// # Errors
    /// If the system does not say it.
    pub(crate) fn read_bytes(&self) -> Result<u64, String> {
        let file = self.group.join("blkio.throttle.io_service_bytes");
        let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let name = format!("{} Read ", self.device);
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(Ok(0), |bytes| bytes.parse().map_err(|_| format!("{text} has no bytes")))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}
