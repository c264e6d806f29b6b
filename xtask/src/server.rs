//! A server of the release binary, started for one run and stopped after it.
//!
//! Stopping is part of the test: the server must end by itself, with success, soon after SIGTERM.

use crate::run::Failure;
use crate::workspace::Workspace;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long the server's long-polls wait. The suite gets the same number.
pub(crate) const LONG_POLL_TIMEOUT_MS: u64 = 500;

const READY_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// A running server. Dropping it without [`Server::stop`] kills it.
pub(crate) struct Server {
    child: Child,
    scratch: PathBuf,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Server {
    /// Starts the release binary on free ports and an empty directory, and waits until it is ready.
    pub(crate) fn start(
        workspace: &Workspace,
        purpose: &str,
        flags: &[&str],
    ) -> Result<Self, Failure> {
        Self::start_under(workspace, purpose, &[], flags)
    }

    /// Starts it as [`Server::start`] does, by a program that watches it: `prefix` is its command.
    pub(crate) fn start_under(
        workspace: &Workspace,
        purpose: &str,
        prefix: &[String],
        flags: &[&str],
    ) -> Result<Self, Failure> {
        let binary = workspace.server_binary();
        if !binary.is_file() {
            return Err(Failure::new(format!(
                "there is no {}; run `cargo build --release` first",
                binary.display()
            )));
        }
        let scratch = workspace.scratch(purpose)?;
        // It chooses its ports, and its log names them: one that was looked up before could be taken meanwhile.
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let log = File::create(scratch.join("log"))
            .map_err(|error| format!("cannot make the server's log file: {error}"))?;
        let mut words = prefix.iter().map(OsString::from).chain([binary.into_os_string()]);
        let program = words.next().expect("the binary at least");
        let child = Command::new(program)
            .args(words)
            .arg("serve")
            .args(["--listen", &any.to_string(), "--admin-listen", &any.to_string()])
            .args(["--long-poll-timeout-ms", &LONG_POLL_TIMEOUT_MS.to_string()])
            .arg("--data-dir")
            .arg(scratch.join("data"))
            .args(flags)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start the server: {error}"))?;
        let mut server = Self { child, scratch, listen: any, admin: any };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The address of its streams.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.listen
    }

    /// The address of its streams, as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Where the certificate is that it makes for itself when told to.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.scratch.join("data/tls/self-signed.crt")
    }

    /// Says with a failure of the tests where the server's log and data are.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        let place = self.scratch.display();
        let message = format!("{}\n  the server's files are kept in {place}", failure.message);
        Failure { message, ..failure }
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut last = String::from("nothing listens");
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(&format!("the server ended at its start: {status}")));
            }
            std::thread::sleep(PROBE_INTERVAL);
            let log = self.log();
            let listens = (address(&log, " listening "), address(&log, "admin server listens"));
            let (Some(listen), Some(admin)) = listens else { continue };
            (self.listen, self.admin) = (listen, admin);
            match get(admin, "/readyz") {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => return Ok(()),
                Ok(answer) => last = answer,
                Err(error) => last = error.to_string(),
            }
        }
        Err(self.failure(&format!("the server was not ready in {READY_TIMEOUT:?}: {last}")))
    }

    /// Asks the server to end and requires that it does, with success; removes its directory.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        self.check_admin()?;
        // The shell's own `kill` is there on machines without the command of that name.
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        if !sent.is_ok_and(|status| status.success()) {
            return Err(self.failure("the server had ended before it was told to"));
        }
        match self.wait_until_ended() {
            Some(status) if status.success() => {
                let _ = std::fs::remove_dir_all(&self.scratch);
                Ok(())
            }
            Some(status) => Err(self.failure(&format!("after SIGTERM the server ended: {status}"))),
            None => {
                Err(self.failure(&format!("{STOP_TIMEOUT:?} after SIGTERM the server runs on")))
            }
        }
    }

    /// After the tests the server must still call itself alive and show its counters.
    fn check_admin(&self) -> Result<(), Failure> {
        let wanted = [("/healthz", "alive"), ("/readyz", "ready"), ("/metrics", "# EOF\n")];
        for (path, content) in wanted {
            let answer = get(self.admin, path)
                .map_err(|error| self.failure(&format!("{path} does not answer: {error}")))?;
            if !answer.starts_with("HTTP/1.1 200") || !answer.contains(content) {
                return Err(self.failure(&format!("{path} answers after the tests: {answer}")));
            }
        }
        Ok(())
    }

    fn wait_until_ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
        None
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.join("log")).unwrap_or_default()
    }

    fn failure(&self, what: &str) -> Failure {
        let log = self.log();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        let place = self.scratch.display();
        Failure::new(format!("{what}\n  its files are kept in {place}\n{}", tail.join("\n")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the first line of the log that says `message`.
fn address(log: &str, message: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains(message))?;
    line.split_once("address=")?.1.split(' ').next()?.parse().ok()
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}
