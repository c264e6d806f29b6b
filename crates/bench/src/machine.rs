//! Where figures were measured: without it they cannot be compared.

use crate::disk::{BLOCK_BYTES, WrittenFile};
use crate::failure::{Doing, Outcome};
use crate::latency::Latencies;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Writes that the disk is tried with.
const SYNCS: u64 = 200;

/// The machine and its disk.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    cpu: String,
    kernel: String,
    memory_bytes: u64,
    /// File system of the data directory.
    file_system: String,
    /// One write of 4 KiB to blocks that were written before, and its fdatasync.
    sync_ms_p50: f64,
    sync_ms_p99: f64,
}

impl Machine {
    /// Looks at this machine, and at the disk that holds `dir`.
    pub(crate) fn look(dir: &Path) -> Outcome<Self> {
        let syncs = try_disk(dir).doing(|| format!("cannot try the disk of {}", dir.display()))?;
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mounts");
        let absolute = fs::canonicalize(dir)?;
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            cpu: value_of(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            file_system: file_system(&mounts, &absolute).to_owned(),
            sync_ms_p50: syncs.quantile_ms(0.5),
            sync_ms_p99: syncs.quantile_ms(0.99),
        })
    }

    /// What a reader of the figures must know beside them.
    pub(crate) fn warning(&self) -> Option<String> {
        let in_memory = ["tmpfs", "ramfs"].contains(&self.file_system.as_str());
        in_memory.then(|| {
            let kind = &self.file_system;
            format!("the data directory is on {kind}: syncs cost nothing there; choose --dir")
        })
    }

    /// Whether figures from both can be in one table: how quick the disk is may differ.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.cores, &self.cpu, &self.file_system) == (other.cores, &other.cpu, &other.file_system)
    }

    /// Its processors, for people.
    pub(crate) fn processor(&self) -> String {
        format!("{} × {}", self.cores, self.cpu)
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!(
            "{}, {:.1} GiB, Linux {}, {}; 4 KiB write + fdatasync p50 {:.2} ms, p99 {:.2} ms",
            self.processor(),
            self.memory_bytes as f64 / (1_u64 << 30) as f64,
            self.kernel,
            self.file_system,
            self.sync_ms_p50,
            self.sync_ms_p99
        )
    }
}

fn try_disk(dir: &Path) -> std::io::Result<Latencies> {
    let mut latencies = Latencies::new();
    WrittenFile::make(dir, BLOCK_BYTES)?.write(SYNCS, &mut latencies)?;
    Ok(latencies)
}

/// A line as `model name : X`.
fn value_of(text: &str, key: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> u64 {
    let kib = value_of(meminfo, "MemTotal").and_then(|value| {
        value.split_whitespace().next().and_then(|number| number.parse::<u64>().ok())
    });
    kib.unwrap_or_default() * 1024
}

/// The type of the mount that is the longest beginning of `path`.
fn file_system<'a>(mounts: &'a str, path: &Path) -> &'a str {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = mounts.filter(|(mount, _)| path.starts_with(mount));
    holding.max_by_key(|(mount, _)| mount.len()).map_or("unknown", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_tells_the_file_system() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\ntmpfs /run/x xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/run/x/data")), "xfs");
        assert_eq!(file_system(mounts, Path::new("/runner")), "ext4");
        assert_eq!(file_system("", Path::new("/")), "unknown");
    }

    #[test]
    fn memory_and_model_are_found() {
        assert_eq!(memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), 2048 * 1024);
        let cpu = value_of("processor\t: 0\nmodel name\t: A B\n", "model name");
        assert_eq!(cpu.as_deref(), Some("A B"));
    }
}
