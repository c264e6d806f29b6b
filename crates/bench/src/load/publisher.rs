//! Appends that readers wait for: due at a fixed rate, one request at a time on each connection.
//!
//! A system may answer an append slower than the next one is due. Then the append waits for a
//! connection, and that wait is part of its latency, which begins when it was due. One connection
//! keeps the order of all appends.

use super::answer::Outline;
use super::driver::Driver;
use super::schedule::Schedule;
use crate::api::{Api, Append, Batch, stream_name};
use crate::failure::{Failure, Outcome};
use crate::latency::Latencies;
use crate::payload::Payloads;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Writers behind the readers of a driver.
#[derive(Debug)]
pub(crate) struct Publisher {
    api: Api,
    prefix: &'static str,
    /// Append `n` goes to stream `n % streams`.
    streams: u64,
    pub(crate) payloads: Payloads,
    /// Their connections in the driver.
    writers: Range<usize>,
    idle: Vec<usize>,
    /// When the append that each writer waits for was due.
    due: Vec<Instant>,
    schedule: Option<Schedule>,
    pub(crate) sent: u64,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    /// From when an append was due until it was acknowledged.
    pub(crate) latencies: Latencies,
}

impl Publisher {
    pub(crate) fn new(
        api: Api,
        set: (&'static str, u64),
        payload_bytes: usize,
        writers: Range<usize>,
    ) -> Self {
        let (prefix, streams) = set;
        Self {
            api,
            prefix,
            streams,
            payloads: Payloads::new(payload_bytes),
            idle: writers.clone().rev().collect(),
            due: vec![Instant::now(); writers.len()],
            writers,
            schedule: None,
            sent: 0,
            acknowledged: 0,
            refused: 0,
            latencies: Latencies::new(),
        }
    }

    /// From now on appends are due.
    pub(crate) fn start(&mut self, driver: &mut Driver, rate: f64, seconds: f64) -> Outcome<()> {
        let duration = Some(Duration::from_secs_f64(seconds));
        // The schedule begins before the ticks, so that each tick finds its append due.
        self.schedule = Some(Schedule { start: Instant::now(), rate, duration });
        driver.tick(Duration::from_secs_f64(1.0 / rate).max(Duration::from_micros(100)))
    }

    /// Sends what is due and has a connection.
    pub(crate) fn send_due(&mut self, driver: &mut Driver) {
        let Some(schedule) = self.schedule else { return };
        let due = schedule.due_count(Instant::now());
        while self.sent < due {
            let Some(at) = self.idle.pop() else { return };
            let mut payload = Vec::with_capacity(self.payloads.bytes());
            self.payloads.put(self.sent, &mut payload);
            let stream = stream_name(self.prefix, self.sent % self.streams);
            let socket = &mut driver.sockets[at];
            let batch = Batch::one(&payload);
            let append = Append { connection: at, stream: &stream, producer: None, batch };
            self.api.put_append(&mut socket.output, append);
            socket.flush();
            self.due[at - self.writers.start] = schedule.due_at(self.sent);
            self.sent += 1;
        }
    }

    /// Whether connection `at` is one of the writers'.
    pub(crate) fn owns(&self, at: usize) -> bool {
        self.writers.contains(&at)
    }

    /// Takes the answers of writer `at`.
    pub(crate) fn take(&mut self, driver: &mut Driver, at: usize) -> Outcome<()> {
        while let Some(outline) = Outline::take(&mut driver.sockets[at])? {
            if outline.is_success() {
                self.acknowledged += 1;
                self.latencies.record(self.due[at - self.writers.start].elapsed());
            } else {
                self.refused += 1;
            }
            self.idle.push(at);
        }
        if driver.sockets[at].is_ended {
            return Err(Failure::new("a writer was cut off"));
        }
        Ok(())
    }

    /// When the append of `payload` was due; `None` if no such append was sent.
    pub(crate) fn due(&self, payload: &[u8]) -> Option<(u64, Instant)> {
        let number = self.payloads.number_of(payload).filter(|number| *number < self.sent)?;
        Some((number, self.schedule?.due_at(number)))
    }

    /// Appends in all.
    pub(crate) fn total(&self) -> u64 {
        self.schedule.map_or(0, |schedule| schedule.total())
    }

    /// Every append was sent and answered.
    pub(crate) fn is_over(&self) -> bool {
        self.acknowledged + self.refused == self.total()
    }
}
