//! The process under load: a server on an empty directory, or one that runs already.

use crate::failure::{Doing, Failure, Outcome};
use crate::process::Process;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to be ready: recovery of a million streams in a debug build.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// A directory whose size has not changed for this long has settled.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Flags of every server that is started: readers and connections stay as long as the measurement.
const LASTING: [&str; 2] = ["--sse-max-duration-ms=3600000", "--idle-timeout-ms=3600000"];

/// What is measured.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where its streams are.
    pub(crate) address: SocketAddr,
    /// How it is named in reports.
    pub(crate) name: String,
    /// When it acknowledges, as far as is known.
    pub(crate) durability: &'static str,
    process: Option<Process>,
    started: Option<Started>,
}

/// A server that this program started.
#[derive(Debug)]
struct Started {
    child: Child,
    binary: PathBuf,
    flags: Vec<String>,
    admin: Option<SocketAddr>,
    /// Its directory, removed with the server.
    scratch: PathBuf,
}

impl Server {
    /// Starts `binary` on an empty directory below `dir` and waits until it is ready.
    pub(crate) fn start(binary: &Path, dir: &Path, extra: &[String]) -> Outcome<Self> {
        if !binary.is_file() {
            return Err(Failure::new(format!(
                "there is no server at {}; build it with `cargo build --release`, name another one \
                 with --server-bin, or take one that runs with --url",
                binary.display()
            )));
        }
        let scratch = scratch(dir)?;
        let [listen, admin] = free_addresses()?;
        let mut shown: Vec<String> = LASTING.iter().map(|flag| (*flag).to_owned()).collect();
        shown.extend_from_slice(extra);
        let mut flags = vec![
            "serve".to_owned(),
            format!("--listen={listen}"),
            format!("--admin-listen={admin}"),
            format!("--data-dir={}", scratch.join("data").display()),
        ];
        flags.extend_from_slice(&shown);
        let binary = binary.to_path_buf();
        let child = spawn(&binary, &flags, &scratch)?;
        let process = Some(Process::new(child.id()));
        let name = format!("{} {}", version(&binary), shown.join(" "));
        let started = Started { child, binary, flags, admin: Some(admin), scratch };
        let mut server = Self {
            address: listen,
            name,
            durability: "every acknowledgement after fdatasync of its record, one node",
            process,
            started: Some(started),
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts the responder of this program that stores nothing.
    pub(crate) fn start_bare(dir: &Path) -> Outcome<Self> {
        let binary = std::env::current_exe()?;
        let flags = vec!["bare".to_owned()];
        let mut child = Command::new(&binary).args(&flags).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it was asked to be piped");
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().doing(|| "the bare responder's address".to_owned())?;
        let process = Some(Process::new(child.id()));
        let scratch = scratch(dir)?;
        let started = Some(Started { child, binary, flags, admin: None, scratch });
        Ok(Self {
            address,
            name: "bare".to_owned(),
            durability: "stores nothing",
            process,
            started,
        })
    }

    /// A server that runs already; `id` is its process, if it shall be measured.
    pub(crate) fn at(url: &str, id: Option<u32>) -> Outcome<Self> {
        let authority = url.strip_prefix("http://").unwrap_or(url);
        let authority = authority.split('/').next().unwrap_or(authority);
        let wrong = || Failure::new(format!("--url must be http://HOST:PORT, not {url}"));
        let address = authority.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)?;
        let process = id.map(Process::new);
        let durability = "as that server was started";
        Ok(Self { address, name: url.to_owned(), durability, process, started: None })
    }

    pub(crate) fn process(&self) -> Option<Process> {
        self.process
    }

    /// Asks it to end, and waits; how long that took and how it ended.
    pub(crate) fn terminate(&mut self) -> Outcome<(Duration, ExitStatus)> {
        self.signal(rustix::process::Signal::TERM)?;
        let start = Instant::now();
        let child = &mut self.own()?.child;
        while start.elapsed() < STOP_TIMEOUT {
            if let Some(status) = child.try_wait()? {
                return Ok((start.elapsed(), status));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Failure::new(format!("the server runs on {STOP_TIMEOUT:?} after SIGTERM")))
    }

    /// Sends SIGTERM and does not wait.
    pub(crate) fn ask_to_end(&self) -> Outcome<()> {
        self.signal(rustix::process::Signal::TERM)
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.own()?.child.try_wait()?)
    }

    /// Ends it without any notice.
    pub(crate) fn kill(&mut self) -> Outcome<()> {
        let child = &mut self.own()?.child;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts it again on the same data; how long it took until it was ready.
    pub(crate) fn restart(&mut self) -> Outcome<Duration> {
        let start = Instant::now();
        let started = self.own()?;
        started.child = spawn(&started.binary, &started.flags, &started.scratch)?;
        let id = started.child.id();
        self.process = Some(Process::new(id));
        self.wait_until_ready()?;
        Ok(start.elapsed())
    }

    /// Disk space of its data.
    pub(crate) fn disk_bytes(&mut self) -> Outcome<u64> {
        Ok(allocated_bytes(&self.own()?.scratch.join("data"))?)
    }

    /// The same by the directories that its data is in, in the order of their names.
    pub(crate) fn disk_parts(&mut self) -> Outcome<Vec<(String, u64)>> {
        let mut parts = Vec::new();
        for entry in fs::read_dir(self.own()?.scratch.join("data"))? {
            let path = entry?.path();
            if path.is_dir() {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                parts.push((name, allocated_bytes(&path)?));
            }
        }
        parts.sort();
        Ok(parts)
    }

    /// Waits until its data stops growing or shrinking, at most `limit`; its disk space then.
    pub(crate) fn settled_disk_bytes(&mut self, limit: Duration) -> Outcome<u64> {
        let start = Instant::now();
        let (mut bytes, mut since) = (self.disk_bytes()?, Instant::now());
        while since.elapsed() < SETTLED_AFTER.min(limit) && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.disk_bytes()?;
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
        }
        Ok(bytes)
    }

    fn own(&mut self) -> Outcome<&mut Started> {
        let advice = "this command ends and measures the server itself: it cannot take --url";
        self.started.as_mut().ok_or_else(|| Failure::new(advice))
    }

    fn signal(&self, signal: rustix::process::Signal) -> Outcome<()> {
        let advice = || Failure::new("this command ends the server: it cannot take --url");
        let started = self.started.as_ref().ok_or_else(advice)?;
        let id = rustix::process::Pid::from_child(&started.child);
        rustix::process::kill_process(id, signal).doing(|| "cannot signal the server".to_owned())
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let started = self.own()?;
        let Some(admin) = started.admin else { return Ok(()) };
        let deadline = Instant::now() + READY_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = started.child.try_wait()? {
                return Err(started.failure(&format!("the server ended at its start: {status}")));
            }
            if is_ready(admin).unwrap_or(false) {
                return Ok(());
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
        Err(started.failure("the server was not ready in time"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(started) = &mut self.started {
            let _ = started.child.kill();
            let _ = started.child.wait();
            let _ = fs::remove_dir_all(&started.scratch);
        }
    }
}

impl Started {
    fn failure(&self, what: &str) -> Failure {
        let log = fs::read_to_string(self.scratch.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        Failure::new(format!("{what}\n{tail}"))
    }
}

/// What the server calls itself.
fn version(binary: &Path) -> String {
    let output = Command::new(binary).arg("version").output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    String::from_utf8_lossy(&text.unwrap_or_default()).trim().to_owned()
}

fn spawn(binary: &Path, flags: &[String], scratch: &Path) -> Outcome<Child> {
    let log = File::options().create(true).append(true).open(scratch.join("log"))?;
    let child = Command::new(binary).args(flags).stdout(Stdio::null()).stderr(log).spawn();
    child.doing(|| format!("cannot start {}", binary.display()))
}

/// An empty directory below `dir`.
fn scratch(dir: &Path) -> Outcome<PathBuf> {
    for attempt in 0..1000 {
        let path = dir.join(format!("thalweg-bench-{}-{attempt}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).doing(|| format!("cannot make {}", path.display())),
        }
    }
    Err(Failure::new(format!("{} is full of old runs", dir.display())))
}

/// Two loopback addresses whose ports were free a moment ago.
fn free_addresses() -> Outcome<[SocketAddr; 2]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (first, second) = (bind()?, bind()?);
    Ok([first.local_addr()?, second.local_addr()?])
}

fn is_ready(admin: SocketAddr) -> std::io::Result<bool> {
    let mut socket = TcpStream::connect_timeout(&admin, Duration::from_secs(1))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = [0; 12];
    socket.read_exact(&mut answer)?;
    Ok(answer.ends_with(b" 200"))
}

/// Space that the files below `path` take on disk, as `du` counts it.
fn allocated_bytes(path: &Path) -> std::io::Result<u64> {
    let mut sum = fs::symlink_metadata(path)?.blocks() * 512;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // Files come and go while the server works.
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => sum += allocated_bytes(&entry.path()).unwrap_or(0),
            Ok(metadata) => sum += metadata.blocks() * 512,
            Err(_) => {}
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_an_address() {
        let address = |url| Server::at(url, None).map(|server| server.address);
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, 4437));
        assert_eq!(address("http://127.0.0.1:4437/").unwrap(), wanted);
        assert_eq!(address("127.0.0.1:4437").unwrap(), wanted);
        assert!(address("127.0.0.1").unwrap_err().to_string().contains("--url"));
    }

    #[test]
    fn space_counts_what_is_below() {
        let dir = scratch(&std::env::temp_dir()).unwrap();
        fs::create_dir(dir.join("a")).unwrap();
        fs::write(dir.join("a/b"), [1; 10_000]).unwrap();
        assert!(allocated_bytes(&dir).unwrap() >= 10_000);
        fs::remove_dir_all(&dir).unwrap();
    }
}
