//! The longest turns of a shard's loop when very much falls due at once.
//!
//! # Why
//! While a turn lasts, nobody else is served. The length of a turn is the processor time of the loop's thread
//! in it. Unlike a time of the wall, that does not depend on what else the machine does.
//!
//! # How
//! One thread holds the loop and its clients, but for those that are very many: they are a process of their own. A crowd
//! is prepared, then the clock is put forward or an append is sent, and the loop turns until nothing is left. Only those
//! turns are counted, without the jobs that threads run.

use crate::audience::Audience;
use access::Access;
use clap::ValueEnum;
use env::{Clock, RealClock, RealDisk, SeededRandom};
use log::LogOptions;
use model::{Monotonic, Timestamp};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thalweg_counts::{loopback::connect, requests::Template};
use thalweg_server::{descriptors, plane::Driver, settings};

/// Requests that are sent before answers are waited for.
const PIPELINED: u64 = 32;

/// Turns without anything to do that end a run.
const IDLE_TURNS: u64 = 200;

/// What falls due at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Crowd {
    /// Streams whose lifetime ends
    Expiries,
    /// Long-polls that one append answers
    Polls,
    /// Long-polls that end without anything
    PollTimeouts,
    /// Live readers that one append reaches
    Readers,
    /// Live readers whose answers end
    ReaderEnds,
    /// Streams of one group, of which a checkpoint is taken
    Checkpoint,
    /// Appends of one group that are sealed, one to each stream
    Seal,
}

impl Crowd {
    /// What each client of the crowd has asked for, if it has clients.
    pub(crate) fn request(self) -> Option<Template> {
        match self {
            Self::Polls | Self::PollTimeouts => Some(Template::poll()),
            Self::Readers | Self::ReaderEnds => Some(Template::follow()),
            Self::Expiries | Self::Checkpoint | Self::Seal => None,
        }
    }
}

/// The system's clocks, put forward at will.
#[derive(Debug)]
struct ShiftedClock {
    real: RealClock,
    ahead_ms: AtomicU64,
}

impl Clock for ShiftedClock {
    fn now_wall(&self) -> Timestamp {
        self.real.now_wall().plus_ms(self.ahead_ms.load(Relaxed))
    }

    fn now_monotonic(&self) -> Monotonic {
        self.real.now_monotonic().plus_ms(self.ahead_ms.load(Relaxed))
    }
}

struct Loop {
    driver: Driver,
    clock: Arc<ShiftedClock>,
    buffer: Vec<u8>,
    /// Of the turns that count.
    turns_ns: Vec<u64>,
}

/// Runs `count` of a crowd; the longest turns as JSON.
pub(crate) fn longest(crowd: Crowd, count: u64, dir: &Path) -> Value {
    let mut plane = Loop::open(crowd, dir);
    match crowd {
        Crowd::Expiries => plane.expiries(count),
        Crowd::Polls | Crowd::Readers => plane.append_to(crowd, count),
        Crowd::PollTimeouts | Crowd::ReaderEnds => plane.put_forward(crowd, count),
        Crowd::Checkpoint => plane.streams(count),
        Crowd::Seal => plane.appends(count),
    }
    plane.report()
}

impl Loop {
    fn open(crowd: Crowd, dir: &Path) -> Self {
        descriptors::make_room(20_000);
        let flags = settings::Flags::default();
        let environment = settings::Environment::default();
        let effective = settings::load(&flags, &environment, &|_| Err(ErrorKind::NotFound.into()));
        let mut settings = effective.expect("the defaults fit each other").settings;
        settings.listen_on((std::net::Ipv4Addr::LOCALHOST, 0).into());
        let is_one_group = matches!(crowd, Crowd::Checkpoint | Crowd::Seal);
        let defaults = LogOptions::default();
        let group_count = if is_one_group { 1 } else { defaults.group_count };
        let options = LogOptions { group_count, ..defaults };
        let mut random = SeededRandom::new(1);
        let opened = node::open(Arc::new(RealDisk), &mut random, dir, options, 1);
        let core = opened.expect("an empty directory opens").shards.pop().expect("one shard");
        let clock = Arc::new(ShiftedClock { real: RealClock::new(), ahead_ms: AtomicU64::new(0) });
        let shared: Arc<dyn Clock> = Arc::<ShiftedClock>::clone(&clock);
        let driver = Driver::start(&settings, core, shared, Arc::new(Access::open(None)))
            .expect("a loop on a free port");
        Self { driver, clock, buffer: vec![0; 1 << 20], turns_ns: Vec::new() }
    }

    fn connect(&mut self) -> TcpStream {
        let socket = connect(&self.driver);
        self.turn();
        socket
    }

    fn turn(&mut self) {
        let before = self.clock.real.thread_cpu_ns();
        self.driver.turn_alone().expect("the loop turns");
        self.turns_ns.push(self.clock.real.thread_cpu_ns() - before);
        self.driver.run_jobs().expect("jobs end");
    }

    /// Turns the loop for as long as it has something to do.
    fn settle(&mut self) {
        let mut idle_turns = 0;
        while idle_turns < IDLE_TURNS {
            self.turn();
            let last_ns = self.turns_ns.last().copied().unwrap_or_default();
            idle_turns = if last_ns < 20_000 { idle_turns + 1 } else { 0 };
        }
    }

    /// Sends requests in a pipeline and takes their answers.
    fn send_all(&mut self, count: u64, template: &mut Template, of: impl Fn(u64) -> u64) {
        let mut socket = self.connect();
        for first in (0..count).step_by(PIPELINED as usize) {
            let numbers = first..count.min(first + PIPELINED);
            let wanted = numbers.end - numbers.start;
            for number in numbers {
                socket.write_all(template.of(of(number))).expect("requests fit a socket");
            }
            let mut answers = 0;
            while answers < wanted {
                self.turn();
                answers += self.take(&mut socket);
            }
        }
    }

    /// Takes what a socket has; how many heads of answers are in it.
    fn take(&mut self, socket: &mut TcpStream) -> u64 {
        let mut heads = 0;
        loop {
            match socket.read(&mut self.buffer) {
                Ok(0) => return heads,
                Ok(count) => {
                    let status = b"HTTP/1.1 2";
                    let windows = self.buffer[..count].windows(status.len());
                    heads += windows.filter(|window| window == status).count() as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return heads,
                Err(error) => panic!("a client's socket failed: {error}"),
            }
        }
    }

    fn expiries(&mut self, count: u64) {
        self.send_all(count, &mut Template::create_for(3_600), |number| number);
        self.turns_ns.clear();
        self.clock.ahead_ms.store(3_700_000, Relaxed);
        self.settle();
    }

    /// So many clients of one stream, all of them waiting.
    fn clients(&mut self, crowd: Crowd, count: u64) -> Audience {
        self.send_all(1, &mut Template::create("text/plain"), |_| 0);
        let mut audience = Audience::start(crowd, count, self.driver.address());
        while !audience.is_ready() {
            self.turn();
        }
        self.settle();
        audience.check_all_heard();
        self.turns_ns.clear();
        audience
    }

    fn append_to(&mut self, crowd: Crowd, count: u64) {
        let mut audience = self.clients(crowd, count);
        let mut writer = self.connect();
        writer.write_all(Template::append("text/plain").of(0)).expect("a request fits a socket");
        self.settle();
        audience.check_all_heard();
    }

    fn put_forward(&mut self, crowd: Crowd, count: u64) {
        let mut audience = self.clients(crowd, count);
        self.clock.ahead_ms.store(3_600_000, Relaxed);
        self.settle();
        audience.check_all_heard();
    }

    fn streams(&mut self, count: u64) {
        self.send_all(count, &mut Template::create("text/plain"), |number| number);
        self.settle();
    }

    fn appends(&mut self, count: u64) {
        self.send_all(count, &mut Template::create("text/plain"), |number| number);
        self.settle();
        self.turns_ns.clear();
        let mut append = Template::short_append("text/plain");
        self.send_all(count, &mut append, |number| number);
        self.settle();
    }

    fn report(mut self) -> Value {
        let count = self.turns_ns.len();
        let total_ns: u64 = self.turns_ns.iter().sum();
        self.turns_ns.sort_unstable();
        let longest: Vec<u64> = self.turns_ns.iter().rev().take(5).map(|ns| ns / 1000).collect();
        json!({ "longest_us": longest, "turns": count, "total_ms": total_ns / 1_000_000 })
    }
}
