//! A file system of its own, in a file, whose power can be cut.
//!
//! Everything that this program mounts is unmounted when it is dropped, its loop device with it.

use crate::server::quiet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Ends a file system at once, without its log; `FS_IOC_SHUTDOWN` with
/// `FS_SHUTDOWN_FLAGS_NOLOGFLUSH`. Source: Linux `include/uapi/linux/fs.h`. Perl is on every Debian and
/// spares us an unsafe call.
const SHUTDOWN: &str = "open(my $dir, '<', $ARGV[0]) or die $!; my $flag = pack('L', 2); \
                        ioctl($dir, 0x8004587d, $flag) or die $!;";

const UNMOUNT_ATTEMPTS: u32 = 100;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(20);

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Disk {
    image: PathBuf,
    mounted: PathBuf,
    is_mounted: bool,
}

impl Disk {
    /// Makes and mounts a file system of so many MiB, with its image below `dir`.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn make(dir: &Path, name: &str, mib: u64) -> Result<Self, String> {
        let image = dir.join(format!("{name}.image"));
        let mounted = dir.join(format!("{name}.mounted"));
        let make = || {
            fs::create_dir_all(&mounted)?;
            fs::File::create(&image)?.set_len(mib << 20)
        };
        make().map_err(|error| format!("no room for an image: {error}"))?;
        let mut command = Command::new("mkfs.ext4");
        if !quiet(command.args(["-q", "-F", "-m", "0"]).arg(&image)) {
            return Err("mkfs.ext4 is missing or fails".to_owned());
        }
        let mut disk = Self { image, mounted, is_mounted: false };
        disk.mount()?;
        Ok(disk)
    }

    /// Mounts a file system of so many MiB that is in memory and has no power to cut.
    ///
    /// # Errors
    /// If that needs rights that are missing.
    pub(crate) fn in_memory(dir: &Path, name: &str, mib: u64) -> Result<Self, String> {
        let mounted = dir.join(format!("{name}.mounted"));
        fs::create_dir_all(&mounted).map_err(|error| error.to_string())?;
        let mut command = Command::new("mount");
        let size = format!("size={mib}M");
        if !quiet(command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&mounted)) {
            return Err("a file system in memory cannot be mounted (root is needed)".to_owned());
        }
        Ok(Self { image: PathBuf::new(), mounted, is_mounted: true })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.mounted
    }

    /// Mounts it.
    ///
    /// # Errors
    /// If that needs rights or devices that are missing.
    pub(crate) fn mount(&mut self) -> Result<(), String> {
        let mut command = Command::new("mount");
        let command = command.args(["-o", "loop"]).arg(&self.image).arg(&self.mounted);
        self.is_mounted = quiet(command);
        let missing =
            "a file system in a file cannot be mounted (root and loop devices are needed)";
        if self.is_mounted { Ok(()) } else { Err(missing.to_owned()) }
    }

    /// Cuts the power: what was not synced is gone after the next mount.
    ///
    /// # Errors
    /// If the system cannot do it.
    pub(crate) fn cut_power(&self) -> Result<(), String> {
        if quiet(Command::new("perl").args(["-e", SHUTDOWN]).arg(&self.mounted)) {
            return Ok(());
        }
        Err("the file system cannot be shut down (perl and FS_IOC_SHUTDOWN are needed)".to_owned())
    }

    /// Unmounts it; no process may use it any more.
    ///
    /// # Errors
    /// If it stays in use.
    pub(crate) fn unmount(&mut self) -> Result<(), String> {
        for _ in 0..UNMOUNT_ATTEMPTS {
            if quiet(Command::new("umount").arg(&self.mounted)) {
                self.is_mounted = false;
                return Ok(());
            }
            std::thread::sleep(UNMOUNT_PAUSE);
        }
        Err(format!("{} cannot be unmounted", self.mounted.display()))
    }

    /// Checks its structure, as a machine does when it comes up again.
    ///
    /// # Errors
    /// If it is broken; that would be the system's fault.
    pub(crate) fn check(&self) -> Result<(), String> {
        let status = Command::new("e2fsck").args(["-p"]).arg(&self.image).output();
        let code = status.ok().and_then(|output| output.status.code());
        // 1: corrected by replaying its log.
        if matches!(code, Some(0 | 1)) {
            Ok(())
        } else {
            Err(format!("e2fsck ended with {code:?}"))
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A scenario that ends early may have left the server's last moments: `-l` waits for them.
        if self.is_mounted && self.unmount().is_err() {
            quiet(Command::new("umount").arg("-l").arg(&self.mounted));
        }
        let _ = fs::remove_dir(&self.mounted);
    }
}
