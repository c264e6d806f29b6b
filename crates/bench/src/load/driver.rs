//! Many connections on one thread.

use super::answer::Answer;
use super::socket::Socket;
use crate::api::ApiStyle;
use crate::failure::{Doing, Outcome};
use crate::server::Server;
use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const EVENTS: usize = 1024;
const SCRATCH_BYTES: usize = 256 << 10;
const TIMER: Token = Token(usize::MAX);

/// Connections and what is ready among them.
#[derive(Debug)]
pub(crate) struct Driver {
    poll: Poll,
    events: Events,
    pub(crate) sockets: Vec<Socket>,
    /// Where each read lands first.
    pub(crate) scratch: Vec<u8>,
    timer: Option<OwnedFd>,
    /// What answers look like.
    style: ApiStyle,
    ready: Vec<usize>,
}

impl Driver {
    /// Opens `count` connections to `address`.
    pub(crate) fn connect(address: SocketAddr, count: usize) -> Outcome<Self> {
        let mut driver = Self::empty()?;
        driver.add(address, count, None)?;
        Ok(driver)
    }

    /// Opens `count` connections to `server`, each with its greeting, whose answers have its form. The nodes of a cluster get one
    /// after the other.
    pub(crate) fn to(server: &Server, count: usize) -> Outcome<Self> {
        let mut driver = Self::empty()?;
        for address in server.addresses().into_iter().cycle().take(count) {
            driver.add(address, 1, None)?;
        }
        driver.style = server.api.style;
        for (at, socket) in driver.sockets.iter_mut().enumerate() {
            socket.output.extend(server.api.greeting(at));
            socket.flush();
        }
        Ok(driver)
    }

    /// Takes the next whole answer of connection `at`, if there is one.
    pub(crate) fn take_answer(&mut self, at: usize) -> Outcome<Option<Answer>> {
        Answer::take(self.style, &mut self.sockets[at])
    }

    pub(crate) fn empty() -> Outcome<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            sockets: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            timer: None,
            style: ApiStyle::Durable,
            ready: Vec::new(),
        })
    }

    /// Opens `count` more.
    pub(crate) fn add(
        &mut self,
        address: SocketAddr,
        count: usize,
        receive_bytes: Option<usize>,
    ) -> Outcome<()> {
        for _ in 0..count {
            let at = self.sockets.len();
            let socket = Socket::open(address, receive_bytes);
            let mut socket = socket.doing(|| format!("connection {at} to {address}"))?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket.stream, Token(at), interest)?;
            self.sockets.push(socket);
        }
        Ok(())
    }

    /// Wakes [`Self::wait`] every `interval` from now on, exactly: the timeouts of epoll have a
    /// millisecond's grain.
    pub(crate) fn tick(&mut self, interval: Duration) -> Outcome<()> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
            .map_err(io::Error::from)?;
        let nanoseconds = i64::from(interval.subsec_nanos()).max(1);
        let seconds = i64::try_from(interval.as_secs()).unwrap_or(i64::MAX);
        let every = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let spec = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec).map_err(io::Error::from)?;
        let fd = timer.as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&fd), TIMER, Interest::READABLE)?;
        self.timer = Some(timer);
        Ok(())
    }

    /// Waits until a connection is ready, a tick comes or `limit` has passed. Sends what waits,
    /// then returns the connections that may have input.
    pub(crate) fn wait(&mut self, limit: Duration) -> Outcome<Vec<usize>> {
        self.ready.clear();
        match self.poll.poll(&mut self.events, Some(limit)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => other?,
        }
        let mut ready = std::mem::take(&mut self.ready);
        for event in &self.events {
            let Token(at) = event.token();
            if event.token() == TIMER {
                let mut expirations = [0; 8];
                // Read so that the next tick is a new event; how many came does not matter.
                let _ = self.timer.as_ref().map(|fd| rustix::io::read(fd, &mut expirations));
                continue;
            }
            if event.is_writable() {
                self.sockets[at].flush();
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                ready.push(at);
            }
        }
        Ok(ready)
    }

    /// Gives back the list of [`Self::wait`], so that its memory is used again.
    pub(crate) fn done(&mut self, ready: Vec<usize>) {
        self.ready = ready;
    }

    /// Takes all input of connection `at`; how many bytes came.
    pub(crate) fn fill(&mut self, at: usize) -> usize {
        self.sockets[at].fill(&mut self.scratch, usize::MAX)
    }
}
