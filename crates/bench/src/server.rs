//! The process under load: a server on an empty directory, or one that runs already.

mod cluster;

use crate::api::{Api, ApiStyle};
use crate::failure::{Doing, Failure, Outcome};
use crate::keeper::Keeper;
use crate::process::Process;
use crate::systems::{Launch, Places, Probe, Ready, System};
use crate::{kafka, nats};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to be ready: recovery of a million streams in a debug build.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a system that is ready may still be choosing who leads.
const LEADERS_TIMEOUT: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// A directory whose size has not changed for this long has settled.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// What is measured.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where its streams are.
    pub(crate) address: SocketAddr,
    /// How its streams are asked for.
    pub(crate) api: Api,
    /// How it is named in reports.
    pub(crate) name: String,
    /// When it acknowledges, as far as is known.
    pub(crate) durability: &'static str,
    process: Option<Process>,
    started: Option<Started>,
    /// The other nodes of its cluster.
    mates: Vec<cluster::Mate>,
}

/// A server that this program started.
#[derive(Debug)]
struct Started {
    child: Child,
    launch: Launch,
    keeper: Keeper,
    /// Its directory, removed with the server.
    scratch: PathBuf,
}

impl Server {
    /// Starts `system` on an empty directory below `dir` and waits until it is ready.
    pub(crate) fn start(
        system: System,
        places: &Places,
        dir: &Path,
        keeper: &Keeper,
    ) -> Outcome<Self> {
        Self::start_at(free_addresses()?, system, places, (dir, keeper))
    }

    fn start_at(
        addresses: [SocketAddr; 2],
        system: System,
        places: &Places,
        (dir, keeper): (&Path, &Keeper),
    ) -> Outcome<Self> {
        Self::start_nodes(system, places, (dir, keeper), |scratch| {
            Ok(vec![system.launch(places, scratch, addresses)?])
        })
    }

    /// Starts all nodes of a system, as `launch` says for an empty directory, and waits until they are ready.
    fn start_nodes(
        system: System,
        places: &Places,
        (dir, keeper): (&Path, &Keeper),
        launch: impl FnOnce(&Path) -> Outcome<Vec<Launch>>,
    ) -> Outcome<Self> {
        system.check_installed(places)?;
        let scratch = scratch(dir)?;
        let mut launches = launch(&scratch)?.into_iter();
        let first = launches.next().expect("a system has a node");
        let mut server = Self::begin(system, first, scratch, keeper)?;
        launches.try_for_each(|launch| server.add_mate(&launch))?;
        server.wait_until_ready()?;
        server.make_namespace()?;
        Ok(server)
    }

    /// Starts a server, and does not wait for it.
    fn begin(system: System, launch: Launch, scratch: PathBuf, keeper: &Keeper) -> Outcome<Self> {
        let child = spawn(&launch, keeper, &scratch)?;
        let release = match system.version() {
            Some(version) => format!("{} {version}", system.label()),
            None if system == System::Thalweg => version(&launch.binary),
            None => system.label().to_owned(),
        };
        Ok(Self {
            address: launch.listen,
            api: Api::new(system.style(), launch.listen.to_string()),
            name: format!("{release} {}", launch.shown).trim_end().to_owned(),
            durability: system.durability(),
            process: Some(Process::new(child.id())),
            started: Some(Started { child, launch, keeper: keeper.clone(), scratch }),
            mates: Vec::new(),
        })
    }

    /// Where its streams are, on each of its nodes.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let mates = self.mates.iter().map(|mate| mate.address);
        [self.address].into_iter().chain(mates).collect()
    }

    /// A server that runs already, asked in `style`; `id` is its process, if it shall be measured.
    pub(crate) fn at(url: &str, id: Option<u32>, style: ApiStyle) -> Outcome<Self> {
        let authority = url.strip_prefix("http://").unwrap_or(url);
        let authority = authority.split('/').next().unwrap_or(authority);
        let wrong = || Failure::new(format!("--url must be http://HOST:PORT, not {url}"));
        let address = authority.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)?;
        let process = id.map(Process::new);
        // Any number that no other run has.
        let run = RandomState::new().hash_one(url);
        let api = Api::new(style, address.to_string()).for_run(run);
        let durability = "as that server was started";
        let (started, mates, name) = (None, Vec::new(), url.to_owned());
        Ok(Self { address, api, name, durability, process, started, mates })
    }

    /// Makes the bucket or basin of all streams, if the style has one; it may be there already.
    pub(crate) fn make_namespace(&self) -> Outcome<()> {
        if self.api.style == ApiStyle::Nats {
            return nats::make_stream(self.address);
        }
        let request = self.api.namespace_request();
        if request.is_empty() {
            return Ok(());
        }
        let asked = self.ask_until(&request, Instant::now() + LEADERS_TIMEOUT);
        let (_, status, answer) = asked.doing(|| "the namespace".to_owned())?;
        match status {
            200..300 | 409 => Ok(()),
            _ => Err(Failure::new(format!("no namespace was made: {answer:.300}"))),
        }
    }

    /// Makes `count` streams of the set `prefix`, where that is no request of HTTP.
    pub(crate) fn make_streams(&self, prefix: &str, count: u64) -> Outcome<()> {
        match self.api.style {
            ApiStyle::Kafka => kafka::make_topic(self.address, prefix, count),
            // A subject is there when something is published to it.
            _ => Ok(()),
        }
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
        let started = self.own()?;
        started.keeper.end(&mut started.child);
        Ok(())
    }

    /// Starts it again on the same data; how long it took until it was ready.
    pub(crate) fn restart(&mut self) -> Outcome<Duration> {
        let start = Instant::now();
        let started = self.own()?;
        started.child = spawn(&started.launch, &started.keeper, &started.scratch)?;
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
        let mates: Vec<Ready> = self.mates.iter().map(|mate| mate.ready).collect();
        let limits = (READY_TIMEOUT, PROBE_INTERVAL);
        self.wait_until(limits, "the server was not ready in time", |first| {
            [first].into_iter().chain(mates.iter().copied()).all(|at| is_ready(at).unwrap_or(false))
        })
    }

    /// Looks again and again, with the second time between two looks, whether something is so; at most for the first one.
    /// `is_so` gets the place where the first node says that it is ready.
    fn wait_until(
        &mut self,
        (limit, interval): (Duration, Duration),
        too_late: &str,
        mut is_so: impl FnMut(Ready) -> bool,
    ) -> Outcome<()> {
        let started = self.own()?;
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = started.child.try_wait()? {
                return Err(started.failure(&format!("the server ended at its start: {status}")));
            }
            if is_so(started.launch.ready) {
                return Ok(());
            }
            std::thread::sleep(interval);
        }
        Err(started.failure(too_late))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(started) = &mut self.started {
            self.mates.iter_mut().for_each(|mate| started.keeper.end(&mut mate.child));
            started.keeper.end(&mut started.child);
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

/// Runs what must have ended before the server starts.
fn prepare(launch: &Launch) -> Outcome<()> {
    if launch.prepare.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(&launch.binary);
    let output = command.args(&launch.prepare).stdin(Stdio::null()).output();
    let output = output.doing(|| format!("cannot start {}", launch.binary.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Failure::new(format!("the data was not prepared: {}", String::from_utf8_lossy(&said))))
}

/// Starts its process, once what it needs is in place.
fn spawn(launch: &Launch, keeper: &Keeper, scratch: &Path) -> Outcome<Child> {
    if let Some((path, text)) = &launch.settings {
        fs::write(path, text).doing(|| format!("cannot write {}", path.display()))?;
    }
    prepare(launch)?;
    let log = File::options().create(true).append(true).open(scratch.join("log"))?;
    let mut command = Command::new(&launch.binary);
    // A setting that the shell happens to have would be in force and not in the results.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"THALWEG_") {
            command.env_remove(name);
        }
    }
    let variables = launch.variables.iter().map(|(name, value)| (name, value));
    command.args(&launch.flags).envs(variables).stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log);
    if let Some(directory) = &launch.directory {
        command.current_dir(directory);
    }
    let child = keeper.spawn(&mut command, scratch);
    child.doing(|| format!("cannot start {}", launch.binary.display()))
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

/// Loopback addresses whose ports were free a moment ago. All are bound before the first one is given up: no two are the same.
fn free_addresses<const N: usize>() -> Outcome<[SocketAddr; N]> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let bound = (0..N).map(bind).collect::<std::io::Result<Vec<_>>>()?;
    let addresses =
        bound.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>()?;
    Ok(addresses.try_into().expect("so many were bound"))
}

fn is_ready(ready: Ready) -> std::io::Result<bool> {
    let Ready { address, probe } = ready;
    let (path, any_status) = match probe {
        Probe::Connection => return TcpStream::connect(address).map(|_| true),
        Probe::Answer => ("/", true),
        Probe::Ok(path) => (path, false),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let (status, _) = ask(address, request.as_bytes())?;
    Ok(status == 200 || (any_status && status > 0))
}

/// Sends one request and reads what comes first: the status and the beginning of the answer. 0 is
/// the status of what is no answer.
fn ask(address: SocketAddr, request: &[u8]) -> std::io::Result<(u16, String)> {
    let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.write_all(request)?;
    let mut answer = vec![0; 4096];
    let count = socket.read(&mut answer)?;
    let text = String::from_utf8_lossy(&answer[..count]).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.filter(|_| text.starts_with("HTTP/1.")).unwrap_or_default(), text))
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
        let address = |url| Server::at(url, None, ApiStyle::Durable).map(|server| server.address);
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, 4437));
        assert_eq!(address("http://127.0.0.1:4437/").unwrap(), wanted);
        assert_eq!(address("127.0.0.1:4437").unwrap(), wanted);
        assert!(address("127.0.0.1").unwrap_err().to_string().contains("--url"));
    }

    /// Something that gives one answer to each connection.
    fn answering(answers: [&'static str; 3]) -> (SocketAddr, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                let _ = socket.read(&mut [0; 1024]);
                socket.write_all(answer.as_bytes()).unwrap();
            }
        });
        (address, thread)
    }

    const BUSY: &str = "HTTP/1.1 503 Busy\r\n\r\n";

    #[test]
    fn a_namespace_waits_until_the_system_can_make_it() {
        let answers = [BUSY, "HTTP/1.1 201 Made\r\n\r\n", "HTTP/1.1 400 No\r\n\r\n"];
        let (address, answers) = answering(answers);
        let server = Server::at(&address.to_string(), None, ApiStyle::Ursula).unwrap();
        server.make_namespace().unwrap();
        let failure = server.make_namespace().unwrap_err().to_string();
        assert!(failure.contains("400 No"), "{failure}");
        answers.join().unwrap();
    }

    #[test]
    fn an_answer_is_known_by_its_status() {
        let (address, answers) = answering([BUSY, BUSY, "SSH 200 x"]);
        let ready = |probe| is_ready(Ready { address, probe }).unwrap();
        let (ok, any) = (Probe::Ok("/"), Probe::Answer);
        assert_eq!([ready(ok), ready(any), ready(any)], [false, true, false]);
        answers.join().unwrap();
        assert!(is_ready(Ready { address, probe: Probe::Connection }).is_err());
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
