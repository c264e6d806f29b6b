//! CPU, memory and descriptors of the server while something runs.

use crate::process::{Memory, Process};
use crate::report::Run;
use crate::server::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often memory is looked at: often enough for a rise of a second, seldom enough to cost nothing.
const INTERVAL: Duration = Duration::from_millis(100);

/// Memory may grow this much between the reset of its mark and the look at it.
const RESET_SLACK_BYTES: u64 = 1 << 20;

const MIB: f64 = (1 << 20) as f64;

/// A measurement in progress.
#[derive(Debug)]
pub(crate) struct Gauge {
    process: Option<Process>,
    start: Instant,
    server_cpu: Duration,
    own_cpu: Duration,
    memory: Memory,
    sampler: Option<Sampler>,
}

#[derive(Debug)]
struct Sampler {
    seen: Arc<Seen>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    stop: AtomicBool,
    resident_bytes_max: AtomicU64,
    descriptors_max: AtomicU64,
}

/// What a measurement found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) elapsed: Duration,
    /// Of the server, if its process is known.
    pub(crate) server: Option<ServerReading>,
    own_cpu: Duration,
}

/// What a measurement found of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerReading {
    pub(crate) cpu: Duration,
    pub(crate) before_bytes: u64,
    pub(crate) after_bytes: u64,
    /// Most that was seen in use meanwhile.
    pub(crate) peak_bytes: u64,
    /// Most descriptors that were seen open.
    pub(crate) descriptors: u64,
}

impl Gauge {
    pub(crate) fn start(server: &Server) -> Self {
        let process = server.process();
        if let Some(process) = process {
            process.reset_peak();
        }
        Self {
            process,
            start: Instant::now(),
            server_cpu: process.and_then(Process::cpu).unwrap_or_default(),
            own_cpu: Process::own().cpu().unwrap_or_default(),
            memory: process.and_then(Process::memory).unwrap_or_default(),
            sampler: process.map(Sampler::start),
        }
    }

    pub(crate) fn stop(self) -> Reading {
        let elapsed = self.start.elapsed();
        let own_cpu = Process::own().cpu().unwrap_or_default().saturating_sub(self.own_cpu);
        let seen = self.sampler.map(Sampler::stop);
        let server = self.process.zip(seen).and_then(|(process, seen)| {
            let memory = process.memory()?;
            let seen_bytes = seen.resident_bytes_max.load(Relaxed);
            let sampled = seen_bytes.max(memory.resident_bytes).max(self.memory.resident_bytes);
            // The system's own mark counts from the start of this measurement if it could be reset.
            let is_reset = self.memory.peak_bytes <= self.memory.resident_bytes + RESET_SLACK_BYTES;
            Some(ServerReading {
                cpu: process.cpu()?.saturating_sub(self.server_cpu),
                before_bytes: self.memory.resident_bytes,
                after_bytes: memory.resident_bytes,
                peak_bytes: if is_reset { memory.peak_bytes.max(sampled) } else { sampled },
                descriptors: seen.descriptors_max.load(Relaxed),
            })
        });
        Reading { elapsed, server, own_cpu }
    }
}

impl Sampler {
    fn start(process: Process) -> Self {
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            // The last look comes after the end was asked for, so that there is at least one.
            let mut is_last = false;
            while !is_last {
                is_last = shared.stop.load(Relaxed);
                let memory = process.memory().unwrap_or_default();
                shared.resident_bytes_max.fetch_max(memory.resident_bytes, Relaxed);
                let descriptors = process.open_descriptors().unwrap_or_default();
                shared.descriptors_max.fetch_max(descriptors, Relaxed);
                if !is_last {
                    std::thread::park_timeout(INTERVAL);
                }
            }
        });
        Self { seen, thread }
    }

    fn stop(self) -> Arc<Seen> {
        self.seen.stop.store(true, Relaxed);
        self.thread.thread().unpark();
        // It does nothing that could panic but allocate.
        let _ = self.thread.join();
        self.seen
    }
}

impl Reading {
    /// This measurement and a later one of the same server as one, without what was between them.
    pub(crate) fn and(self, later: Self) -> Self {
        let server = self.server.zip(later.server).map(|(first, second)| ServerReading {
            cpu: first.cpu + second.cpu,
            before_bytes: first.before_bytes,
            after_bytes: second.after_bytes,
            peak_bytes: first.peak_bytes.max(second.peak_bytes),
            descriptors: first.descriptors.max(second.descriptors),
        });
        let elapsed = self.elapsed + later.elapsed;
        Self { elapsed, server, own_cpu: self.own_cpu + later.own_cpu }
    }

    /// Adds CPU and memory; `count` things of the kind `unit` were done.
    pub(crate) fn report(&self, count: u64, unit: &str, run: &mut Run) {
        let per = |cpu: Duration| cpu.as_secs_f64() * 1e6 / (count.max(1) as f64);
        if let Some(server) = &self.server {
            run.figure(format!("server CPU per {unit}"), per(server.cpu), "µs");
            let share = server.cpu.as_secs_f64() / self.elapsed.as_secs_f64();
            run.figure("server CPU in use", share, "cores");
            run.figure("server memory before", server.before_bytes as f64 / MIB, "MiB");
            run.figure("server memory peak", server.peak_bytes as f64 / MIB, "MiB");
            run.figure("server memory after", server.after_bytes as f64 / MIB, "MiB");
            run.figure("server descriptors", server.descriptors as f64, "");
        }
        run.figure(format!("load generator CPU per {unit}"), per(self.own_cpu), "µs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiStyle;

    #[test]
    fn a_server_without_a_process_has_only_our_own_figures() {
        let server = Server::at("127.0.0.1:1", None, ApiStyle::Durable).unwrap();
        let reading = Gauge::start(&server).stop();
        assert!(reading.server.is_none());
        let mut run = Run::new("x");
        reading.report(10, "append", &mut run);
        assert_eq!(run.figures.len(), 1);
    }

    #[test]
    fn a_process_is_sampled_from_the_start() {
        let server =
            Server::at("127.0.0.1:1", Some(std::process::id()), ApiStyle::Durable).unwrap();
        let reading = Gauge::start(&server).stop();
        let server = reading.server.unwrap();
        assert!(server.peak_bytes >= server.before_bytes && server.descriptors > 0);
    }

    #[test]
    fn measurements_add_up_without_what_was_between() {
        let reading = |ms, before_bytes, peak_bytes| Reading {
            elapsed: Duration::from_millis(ms),
            server: Some(ServerReading {
                cpu: Duration::from_millis(ms),
                before_bytes,
                after_bytes: before_bytes,
                peak_bytes,
                descriptors: 3,
            }),
            own_cpu: Duration::from_millis(1),
        };
        let both = reading(5, 10, 90).and(reading(7, 20, 30));
        let server = both.server.unwrap();
        assert_eq!((both.elapsed.as_millis(), server.cpu.as_millis()), (12, 12));
        assert_eq!((server.before_bytes, server.after_bytes, server.peak_bytes), (10, 20, 90));
    }
}
