//! The process under test.

use crate::http;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than any start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// What the system counts processor time in.
const TICK: Duration = Duration::from_millis(10);

/// The address that every machine has.
pub(crate) const LOCAL: &str = "127.0.0.1";

/// How servers are started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) binary: PathBuf,
    /// The directory of its data.
    pub(crate) data: PathBuf,
    /// The file that takes its log, over all starts.
    pub(crate) log: PathBuf,
    pub(crate) flags: Vec<String>,
    /// Words before the binary; the command they name must keep its process.
    pub(crate) under: Vec<String>,
    /// The address of the machine where it listens.
    pub(crate) host: String,
}

/// A running server. It does not outlive this value.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Start {
    /// Starts a server and waits for nothing.
    pub(crate) fn spawn(&self) -> io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut words =
            self.under.iter().map(String::as_str).map(PathBuf::from).collect::<Vec<_>>();
        words.push(self.binary.clone());
        Command::new(&words[0])
            .args(&words[1..])
            .arg("serve")
            .arg(format!("--listen={}:0", self.host))
            .arg(format!("--admin-listen={}:0", self.host))
            .args(["--long-poll-timeout-ms=300", "--sse-max-duration-ms=500"])
            .arg("--data-dir")
            .arg(&self.data)
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
    }

    /// Starts a server and waits until it listens.
    ///
    /// # Errors
    /// If it ends or does not listen in time, with the end of its log.
    pub(crate) fn serve(&self) -> Result<Server, String> {
        let log_from = fs::metadata(&self.log).map_or(0, |metadata| metadata.len());
        let mut child = self.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let log = self.log_from(log_from);
            let streams = address(&log, " listening ");
            if let Some((address, admin)) = streams.zip(address(&log, "admin server listens")) {
                return Ok(Server { child, address, admin });
            }
            let ended = child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                let how = ended.map_or("does not listen".to_owned(), |status| status.to_string());
                return Err(format!("the server does not start ({how}):\n{}", tail(&log)));
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
    }

    /// What was logged after so many bytes.
    pub(crate) fn log_from(&self, from: u64) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let from = usize::try_from(from).unwrap_or(0).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn address(log: &str, message: &str) -> Option<SocketAddr> {
    logged(log, message, "address").parse().ok()
}

/// What the first line with a message says of `field`; nothing if there is none.
pub(crate) fn logged<'a>(log: &'a str, message: &str, field: &str) -> &'a str {
    let line = log.lines().find(|line| line.contains(message)).unwrap_or_default();
    let rest = line.split_once(&format!(" {field}=")).map_or("", |(_, rest)| rest);
    rest.split(' ').next().unwrap_or_default()
}

impl Server {
    /// `kill -9`. An earlier end is an error: nobody asked for it.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server had ended by itself: {status}"));
        }
        self.child.kill().and_then(|()| self.child.wait()).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the server has ended.
    pub(crate) fn signal(&self, name: &str) -> Result<(), String> {
        let command = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status();
        let is_sent = sent.is_ok_and(|status| status.success());
        if is_sent { Ok(()) } else { Err("the server had ended by itself".to_owned()) }
    }

    /// SIGTERM; it must end, with success.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.signal("TERM")?;
        match self.wait() {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("after SIGTERM it ended with {status}")),
            None => Err("it runs on after SIGTERM".to_owned()),
        }
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
        None
    }

    /// Descriptors that are open.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn descriptors(&self) -> Result<usize, String> {
        let dir = format!("/proc/{}/fd", self.child.id());
        fs::read_dir(&dir).map(Iterator::count).map_err(|error| format!("{dir}: {error}"))
    }

    /// Memory that is in use, in MiB.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn resident_mib(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let kib =
            text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        let kib = kib.and_then(|kib| kib.parse::<u64>().ok());
        kib.map(|kib| kib / 1024).ok_or_else(|| format!("{path} does not say how much is in use"))
    }

    /// Processor time of all its threads so far.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn processor_time(&self) -> Result<Duration, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        ticks(&text).map(|ticks| ticks * TICK).ok_or_else(|| format!("{path} says {text}"))
    }

    /// A figure of `/metrics`, over all shards.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub(crate) fn metric(&self, name: &str) -> Result<u64, String> {
        let (_, text) =
            http::admin(self.admin, "/metrics").map_err(|error| format!("/metrics: {error}"))?;
        let lines =
            text.lines().filter_map(|line| line.strip_prefix("thalweg_")?.strip_prefix(name));
        let values = lines.filter(|rest| rest.starts_with('{') || rest.starts_with(' '));
        let values = values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum::<f64>() as u64)
    }

    /// `/readyz`: status and text.
    pub(crate) fn readiness(&self) -> Result<(u16, String), String> {
        http::admin(self.admin, "/readyz").map_err(|error| format!("/readyz: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ticks in user and in system mode, in a line of `/proc/PID/stat`. The name before them may hold anything.
fn ticks(stat: &str) -> Option<u32> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let of = |place: usize| fields.get(place)?.parse::<u32>().ok();
    of(11)?.checked_add(of(12)?)
}

/// Runs a command without its output; whether it succeeded.
pub(crate) fn quiet(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// All files below `dir`, in order.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                _ => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_behind_any_name() {
        let stat = "4711 (a) S b) S 1 4711 4711 0 -1 4194560 1 0 0 0 25 17 0 0 20 0 8 0 99";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("4711 (a) S 1 2"), None);
    }

    #[test]
    fn addresses_are_read_from_the_log() {
        let log = "x INFO admin server listens address=127.0.0.1:2\nx INFO listening \
                   address=127.0.0.1:1 shards=2";
        assert_eq!(address(log, " listening ").unwrap().port(), 1);
        assert_eq!(address(log, "admin server listens").unwrap().port(), 2);
        assert_eq!(address("", " listening "), None);
        assert_eq!((logged(log, " listening ", "shards"), logged(log, "INFO", "took")), ("2", ""));
    }
}
