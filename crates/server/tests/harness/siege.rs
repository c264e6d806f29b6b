//! Clients that do nothing wrong, measured while others attack the server.
//!
//! A siege starts a server, measures healthy traffic when nothing else happens, lets the attack
//! take its places, and measures the same connections again. The healthy clients work by a schedule.
//! Each append and each read has its moment, and its latency runs from that moment. So every request
//! that waits for a hanging server shows it, and not only one.

use rustix::process::setpriority_process;

use super::{Client, PATIENCE, Server, Start, TEXT, new_dir, until};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Healthy connections, so many that the kernel, which spreads them by chance, leaves no shard
/// without one.
const HEALTHY_COUNT: usize = 16;

/// Attackers get what the server and healthy clients leave of the processors: on a network they would
/// have their own. Threads inherit it.
const PRIORITY_OF_ATTACKERS: i32 = 19;

/// A healthy client appends or reads this often. One that waits longer is late for the next, too.
const INTERVAL: Duration = Duration::from_millis(40);

/// Bytes of a healthy append.
const APPEND_BYTES: usize = 256;

/// How much longer a healthy client may wait under attack.
const SLOWDOWN_MAX: u32 = 3;

/// A neighbour on the machine can take the processors for longer than any useful limit. So a siege that
/// was too slow is repeated as a whole, at most so often in all. A server that an attack holds up is held
/// up every time.
const ATTEMPTS_MAX: u32 = 3;

/// How long a siege lasts and how many attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Shards of the server, as `--shards` takes them.
    pub shards: &'static str,
    /// Connections of attacks that open many.
    pub crowd: usize,
    pub calm: Duration,
    pub attack: Duration,
    /// A p99 below this is never too slow, whatever the calm one was. Healthy clients and server share
    /// the processors. With N threads ready on two cores, one waits for about N/2 slices of some 3 ms, in
    /// whatever order the server works.
    pub floor: Duration,
}

/// An attack and what it may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attack {
    pub name: &'static str,
    /// Puts into the server what the attack is about.
    pub prepare: fn(&mut Client),
    /// Attacks until [`Siege::is_running`] says no, and reports by [`Siege::set_ready`] when all is in place.
    pub run: fn(&Siege<'_>),
    pub flags: &'static [&'static str],
    /// Words of a command that starts the server.
    pub under: &'static [&'static str],
    /// How much the server's resident memory may grow.
    pub growth_bytes_max: u64,
}

/// What an attack sees.
#[derive(Debug)]
pub(crate) struct Siege<'a> {
    pub server: &'a Server,
    /// Its data directory.
    pub dir: &'a Path,
    pub crowd: usize,
    is_ready: AtomicBool,
    is_over: AtomicBool,
}

impl Siege<'_> {
    /// Everything is in place: the measurement may begin.
    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Relaxed);
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Does `work` with each of `parts` again and again, all at once, until it is over.
    pub(crate) fn repeat_all<T: Copy + Send>(&self, parts: &[T], work: impl Fn(T) + Sync) {
        let work = &work;
        thread::scope(|scope| {
            for part in parts.iter().copied() {
                scope.spawn(move || {
                    while self.is_running() {
                        work(part);
                    }
                });
            }
        });
    }
}

/// Ends a siege, also when a measurement panics: its threads are waited for.
struct End<'a, 'b>(&'a Siege<'b>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

/// What was measured.
#[derive(Debug)]
struct Figures {
    calm: Duration,
    attacked: Duration,
    calm_bytes: u64,
    peak_bytes: u64,
}

/// Sieges measure time: no two run at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attacks a server and asserts that healthy clients and memory stay within their limits.
pub(crate) fn withstands(attack: &Attack, scale: &Scale) {
    let _alone = alone();
    raise_descriptor_limit();
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let figures = attempt(attack, scale);
        let limit = (figures.calm * SLOWDOWN_MAX).max(scale.floor);
        let line = line(attack, &figures, limit);
        println!("{line}");
        let growth = figures.peak_bytes.saturating_sub(figures.calm_bytes);
        assert!(growth <= attack.growth_bytes_max, "memory: {line}");
        if figures.attacked <= limit {
            return;
        }
        seen.push(line);
    }
    panic!("healthy clients were held up each time: {seen:#?}");
}

fn line(attack: &Attack, figures: &Figures, limit: Duration) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    format!(
        "{:<24} p99 calm {:7.2} ms, attacked {:7.2} ms (limit {:.2}); memory calm {:4} MiB, peak {:4} MiB (limit +{})",
        attack.name,
        ms(figures.calm),
        ms(figures.attacked),
        ms(limit),
        figures.calm_bytes >> 20,
        figures.peak_bytes >> 20,
        attack.growth_bytes_max >> 20,
    )
}

fn attempt(attack: &Attack, scale: &Scale) -> Figures {
    let dir = new_dir();
    let server = serve(attack, scale, dir.path());
    (attack.prepare)(&mut server.connect());
    let mut healthy: Vec<Healthy> = (0..HEALTHY_COUNT).map(|n| Healthy::new(&server, n)).collect();
    measure(&mut healthy, scale.calm / 4);
    let calm = measure(&mut healthy, scale.calm);
    let calm_bytes = server.resident_bytes();
    let siege = Siege {
        server: &server,
        dir: dir.path(),
        crowd: scale.crowd,
        is_ready: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let peak_bytes = AtomicU64::new(0);
    let attacked = thread::scope(|scope| {
        let _end = End(&siege);
        let attackers = scope.spawn(|| {
            let _ = setpriority_process(None, PRIORITY_OF_ATTACKERS);
            (attack.run)(&siege);
        });
        scope.spawn(|| watch_memory(&siege, &peak_bytes));
        until("the attack is ready", || siege.is_ready.load(Relaxed) || attackers.is_finished());
        measure(&mut healthy, scale.attack)
    });
    Figures { calm, attacked, calm_bytes, peak_bytes: peak_bytes.into_inner() }
}

fn serve(attack: &Attack, scale: &Scale, dir: &Path) -> Server {
    let flags = [attack.flags, &["--shards", scale.shards]].concat();
    Start::with(&flags).under(attack.under).serve(dir)
}

fn watch_memory(siege: &Siege<'_>, peak_bytes: &AtomicU64) {
    while siege.is_running() {
        peak_bytes.fetch_max(siege.server.resident_bytes(), Relaxed);
        thread::sleep(Duration::from_millis(10));
    }
}

/// A client that appends and reads what it appended.
#[derive(Debug)]
struct Healthy {
    client: Client,
    path: String,
    offset: String,
    number: u64,
}

impl Healthy {
    fn new(server: &Server, number: usize) -> Self {
        let mut client = server.connect();
        client.set_patience(PATIENCE);
        let path = format!("/healthy/{number}");
        let offset = client.put(&path, TEXT).is(201).next().to_owned();
        Self { client, path, offset, number: 0 }
    }

    /// Appends and reads in turn for `time`; how long each took from its moment on.
    fn work(&mut self, time: Duration) -> Vec<Duration> {
        let start = Instant::now();
        let mut latencies = Vec::new();
        let mut due = Duration::ZERO;
        while due < time {
            thread::sleep(due.saturating_sub(start.elapsed()));
            self.one();
            latencies.push(start.elapsed().saturating_sub(due));
            due += INTERVAL;
        }
        latencies
    }

    fn one(&mut self) {
        let body = format!("{:0APPEND_BYTES$}", self.number / 2);
        if self.number.is_multiple_of(2) {
            self.client.post(&self.path, TEXT, body.as_bytes()).is(204);
        } else {
            let answer = self.client.get(&format!("{}?offset={}", self.path, self.offset)).is(200);
            assert_eq!(answer.text(), body, "what was acknowledged is read back");
            answer.next().clone_into(&mut self.offset);
        }
        self.number += 1;
    }
}

/// Lets all of them work for `time`; the latency that 99 of 100 requests did not exceed.
fn measure(healthy: &mut [Healthy], time: Duration) -> Duration {
    let mut latencies = thread::scope(|scope| {
        let work = |one: &mut Healthy| one.work(time);
        let threads: Vec<_> =
            healthy.iter_mut().map(|one| scope.spawn(move || work(one))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

/// A crowd needs more descriptors than many systems give at first.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(20_000).min(20_000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
}
