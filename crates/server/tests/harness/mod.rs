//! A real server process and a client that sees every byte, for the tests beside this file.
//!
//! [`Start`] runs the binary on a directory of its own and a free port and waits until it listens.
//! Whatever ends a test, the process ends with it. Nothing here sleeps for a fixed time: what takes
//! time is polled until a deadline that is far above what a healthy server needs.

#![allow(dead_code, reason = "every test file uses another part")]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests run real processes on real files and wait for them; only this module does"
)]

pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod siege;
pub(crate) mod tls;
pub(crate) mod vectors;

pub(crate) use client::{Answer, Client};

use env::{Random, SeededRandom};
use socket2::{Domain, Socket, Type};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything that a test waits for may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const TEXT: &str = "text/plain";
pub(crate) const JSON: &str = "application/json";
pub(crate) const BINARY: &str = "application/octet-stream";

/// How a server is to be started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    flags: Vec<String>,
    under: Vec<String>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
    admin: Option<SocketAddr>,
}

/// Sizes so small that chunks and checkpoints come soon.
pub(crate) const SMALL_LOG: [&str; 6] =
    ["--segment-bytes", "1MiB", "--wal-bytes-max", "4MiB", "--seal-bytes", "64KiB"];

impl Start {
    /// A server of two shards without an admin port, and with further flags.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let mut all: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        for (flag, value) in [("--shards", "2"), ("--admin-listen", "off")] {
            if !flags.contains(&flag) {
                all.extend([flag.to_owned(), value.to_owned()]);
            }
        }
        Self { flags: all, under: Vec::new() }
    }

    /// Runs it as the last arguments of another command, which must keep its process id.
    pub(crate) fn under(mut self, command: &[&str]) -> Self {
        self.under = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    fn command(&self, dir: &Path, listen: SocketAddr) -> Command {
        let mut words = self.under.clone();
        words.push(env!("CARGO_BIN_EXE_thalweg").to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["serve", "--data-dir"]).arg(dir).args(&self.flags);
        if !self.flags.iter().any(|flag| flag == "--listen") {
            command.args(["--listen", &listen.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts it on `dir` with its log on `log`, and waits until it serves.
    pub(crate) fn serve_logging_to(&self, log: impl Into<Stdio>, dir: &Path) -> Server {
        // The log cannot say which port it became.
        let free = reserved_address();
        let child = self.command(dir, free).stderr(log).spawn().expect("the server starts");
        let mut server = Server { child, log: Arc::default(), address: free, admin: None };
        until("the server serves", || {
            assert_eq!(server.child.try_wait().unwrap(), None, "the server ended");
            TcpStream::connect(free).is_ok()
        });
        server
    }

    /// Starts it on `dir` without waiting for anything.
    pub(crate) fn spawn(&self, dir: &Path) -> (Child, Arc<Mutex<Vec<String>>>) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut command = self.command(dir, any);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the server starts");
        let lines = BufReader::new(child.stderr.take().expect("standard error is a pipe")).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        (child, log)
    }

    /// Starts it on `dir` and waits until it listens.
    pub(crate) fn serve(&self, dir: &Path) -> Server {
        let (mut child, log) = self.spawn(dir);
        let mut address = None;
        until("the server listens", || {
            address = field(&log, " listening ", "address");
            assert!(
                address.is_some() || child.try_wait().unwrap().is_none(),
                "the server ended: {:#?}",
                log.lock().unwrap()
            );
            address.is_some()
        });
        let admin = field(&log, "admin server listens", "address");
        Server { child, log, address: address.unwrap(), admin }
    }

    /// Starts it on `dir` where it must refuse to run; what it says on standard error.
    pub(crate) fn refused(&self, dir: &Path) -> String {
        let (child, log) = self.spawn(dir);
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Server { child, log, address, admin: None };
        let status = wait_end(&mut server.child);
        assert!(!status.success(), "the server should not have run");
        until("standard error ends", || Arc::strong_count(&server.log) == 1);
        let lines = server.log.lock().unwrap();
        lines.join("\n")
    }
}

/// The value of `key` in the first line of the log that holds `message`.
fn field(log: &Mutex<Vec<String>>, message: &str, key: &str) -> Option<SocketAddr> {
    let lines = log.lock().unwrap();
    let line = lines.iter().find(|line| line.contains(message))?;
    let value = line.split_once(&format!("{key}="))?.1.split(' ').next()?;
    value.parse().ok()
}

impl Server {
    /// A server with further flags on a new directory.
    pub(crate) fn start(flags: &[&str]) -> (Self, TempDir) {
        let dir = new_dir();
        (Start::with(flags).serve(dir.path()), dir)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin.expect("started with an admin port")
    }

    /// Where TLS is spoken, for a server that was told to speak it at one of several addresses.
    pub(crate) fn secure_address(&self) -> SocketAddr {
        let mut address = None;
        until("the server listens with TLS", || {
            address = field(&self.log, "url=\"https://", "address");
            address.is_some()
        });
        address.unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn connect_admin(&self) -> Client {
        Client::connect(self.admin_address())
    }

    /// Asks the admin port.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        let mut client = self.connect_admin();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        client.answer()
    }

    /// The sum of a metric over all shards.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.admin("/metrics").text();
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64).sum()
    }

    /// Lines of the log so far that hold `what`.
    pub(crate) fn logged(&self, what: &str) -> Vec<String> {
        let lines = self.log.lock().unwrap();
        lines.iter().filter(|line| line.contains(what)).cloned().collect()
    }

    /// The lines of the log with `what`, as soon as there is one: a line may come a moment after what it reports can be seen.
    pub(crate) fn awaited_lines(&self, what: &str) -> Vec<String> {
        until(&format!("the log says {what:?}"), || !self.logged(what).is_empty());
        self.logged(what)
    }

    /// Memory in use, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:") << 10
    }

    /// What the system says of the process: the first number behind `name`.
    pub(crate) fn status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// `kill -9`: what was not durable is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }

    /// SIGTERM, without waiting.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Waits for the end of a process that was told to end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        wait_end(&mut self.child)
    }

    /// SIGTERM, and a clean end.
    pub(crate) fn stop(self) {
        self.terminate();
        assert!(self.wait().success(), "a clean stop");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the server: {:#?}", self.log.lock().unwrap());
        }
    }
}

fn wait_end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the process ends", || {
        status = child.try_wait().expect("it can be waited for");
        status.is_some()
    });
    status.unwrap()
}

pub(crate) fn new_dir() -> TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

pub(crate) fn is_there(path: &Path) -> bool {
    path.exists()
}

/// Bytes that files below a directory take on the disk, but for those in directories of this name.
pub(crate) fn disk_bytes(dir: &Path, but: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let size = |entry: fs::DirEntry| match entry.metadata() {
        // It was removed since the directory was read.
        Err(_) => 0,
        Ok(found) if !found.is_dir() => found.blocks() * 512,
        Ok(_) if entry.file_name() == but => 0,
        Ok(_) => disk_bytes(&entry.path(), but),
    };
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(Result::ok).map(size).sum()
}

/// Asks again and again until the answer is yes.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An address of this machine that is kept for one server of this test; another one each time.
///
/// Its socket is bound until the process ends, but does not listen: a server can listen there, and the kernel gives the
/// port to nobody else. A port that is only looked up and given back may go to another test, or to the very connection that
/// asks whether the server serves.
pub(crate) fn reserved_address() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

/// How long something takes.
#[derive(Debug)]
pub(crate) struct Watch(Instant);

impl Watch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Seconds since 1970, as `strace` writes them.
pub(crate) fn wall_clock() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later").as_secs_f64()
}

/// Lets a moment pass in which nothing should happen, or between two attempts.
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

pub(crate) fn read_file(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

pub(crate) fn rename_file(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

pub(crate) fn remove_file(path: &Path) {
    fs::remove_file(path).unwrap();
}

pub(crate) fn make_dir(path: &Path) {
    fs::create_dir(path).unwrap();
}

/// A device on which every write fails for want of space.
pub(crate) fn full_device() -> fs::File {
    fs::File::options().write(true).open("/dev/full").unwrap()
}

/// A thread with a name.
pub(crate) fn thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).unwrap()
}

/// A file of `bytes` zeroes that takes no space.
pub(crate) fn make_sparse(path: &Path, bytes: u64) {
    fs::File::create(path).unwrap().set_len(bytes).unwrap();
}

/// All files below `dir` whose path holds `part`.
pub(crate) fn files(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.to_string_lossy().contains(part) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The places of `needle` in the files below `dir` whose path holds `part`.
pub(crate) fn find(dir: &Path, part: &str, needle: &[u8]) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for path in files(dir, part) {
        // A running server may have removed it by now.
        let Ok(bytes) = fs::read(&path) else { continue };
        let places = memchr::memmem::find_iter(&bytes, needle);
        found.extend(places.map(|at| (path.clone(), at)));
    }
    found
}

/// Flips one bit of a file.
pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// A sequence of numbers from a seed.
#[derive(Debug)]
pub(crate) struct Numbers(SeededRandom);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
