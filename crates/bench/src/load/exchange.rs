//! Requests and answers, in a closed or an open loop.
//!
//! Closed: each connection has [`Plan::depth`] requests out; the next one goes when an answer has
//! come. Open: requests are due at a fixed rate, whatever the answers do; a latency then begins when
//! its request was due.
//!
//! Invariant: `sent = answered + lost`, where the lost are those of broken connections and those
//! that had no answer [`DRAIN_LIMIT`] after the end.

use super::answer::Answer;
use super::driver::Driver;
use super::schedule::Schedule;
use crate::failure::{Failure, Outcome};
use crate::latency::Latencies;
use crate::progress::Progress;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How long answers are waited for after the last request.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// Where requests come from and acknowledgements go to.
pub(crate) trait Source {
    /// Appends the next request of `connection` to `out` and returns its number; `None` if there
    /// is nothing more to ask on it.
    fn next(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<u64>;

    /// Request `number` was answered with success.
    fn acknowledged(&mut self, number: u64);
}

/// When requests go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Requests out on each connection at a time.
    pub(crate) depth: usize,
    /// Requests per second; none means a closed loop.
    pub(crate) rate: Option<f64>,
    /// The last request goes before this has passed; none means when the source has no more.
    pub(crate) duration: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) acknowledged: u64,
    /// Answers that were no success, by status.
    pub(crate) refused: BTreeMap<u16, u64>,
    /// Requests without an answer.
    pub(crate) lost: u64,
    /// Of acknowledged requests only.
    pub(crate) latencies: Latencies,
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
}

impl Exchanged {
    /// What comes of nothing.
    pub(crate) fn none() -> Self {
        Self {
            acknowledged: 0,
            refused: BTreeMap::new(),
            lost: 0,
            latencies: Latencies::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Takes in what came of another exchange, at another time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.elapsed += other.elapsed;
        self.latencies.add(&other.latencies);
        for (status, count) in &other.refused {
            *self.refused.entry(*status).or_default() += count;
        }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.acknowledged as f64 / self.elapsed.as_secs_f64()
    }

    /// Fails if anything was refused or not answered.
    pub(crate) fn check_all_acknowledged(&self) -> Outcome<()> {
        if self.refused.is_empty() && self.lost == 0 {
            return Ok(());
        }
        let (lost, refusals) = (self.lost, self.refusals());
        Err(Failure::new(format!("warming up, {lost} answers were missing; refused: {refusals}")))
    }

    /// What was refused, in words.
    pub(crate) fn refusals(&self) -> String {
        let each = self.refused.iter().map(|(status, count)| format!("{count} × {status}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

struct Loop<'a, S> {
    driver: &'a mut Driver,
    source: &'a mut S,
    plan: Plan,
    start: Instant,
    /// Requests without an answer, by connection, with the times that their latencies begin.
    out: Vec<VecDeque<(u64, Instant)>>,
    /// Connections with room, in an open loop.
    idle: Vec<usize>,
    sent: u64,
    answered: u64,
    /// Connections that have nothing more to ask.
    exhausted: Vec<bool>,
    result: Exchanged,
}

/// Asks `source` for requests and sends them as `plan` says, on all connections of `driver`.
pub(crate) fn exchange<S: Source>(
    driver: &mut Driver,
    source: &mut S,
    plan: Plan,
    progress: &mut Progress,
) -> Outcome<Exchanged> {
    if let Some(rate) = plan.rate {
        driver.tick(Duration::from_secs_f64(1.0 / rate).max(Duration::from_micros(100)))?;
    }
    let connections = driver.sockets.len();
    let mut state = Loop {
        driver,
        source,
        plan,
        start: Instant::now(),
        out: vec![VecDeque::new(); connections],
        idle: (0..connections).rev().collect(),
        sent: 0,
        answered: 0,
        exhausted: vec![false; connections],
        result: Exchanged::none(),
    };
    state.run(progress)?;
    Ok(state.result)
}

impl<S: Source> Loop<'_, S> {
    fn run(&mut self, progress: &mut Progress) -> Outcome<()> {
        if self.plan.rate.is_none() {
            (0..self.out.len()).for_each(|at| self.refill(at));
        }
        loop {
            let now = Instant::now();
            progress.show(now, self.result.acknowledged, "acknowledged");
            self.send_due(now);
            if self.is_over(now) && (self.unanswered() == 0 || self.is_drained(now)) {
                break;
            }
            let ready = self.driver.wait(Duration::from_millis(20))?;
            for &at in &ready {
                self.take(at)?;
            }
            self.driver.done(ready);
        }
        self.result.lost += self.unanswered();
        Ok(())
    }

    fn unanswered(&self) -> u64 {
        self.sent - self.answered - self.result.lost
    }

    fn is_over(&self, now: Instant) -> bool {
        let is_late = |limit| now.duration_since(self.start) >= limit;
        self.is_exhausted() || self.plan.duration.is_some_and(is_late) || self.all_ended()
    }

    fn is_exhausted(&self) -> bool {
        self.exhausted.iter().all(|exhausted| *exhausted)
    }

    fn all_ended(&self) -> bool {
        self.driver.sockets.iter().all(|socket| socket.is_ended)
    }

    fn is_drained(&self, now: Instant) -> bool {
        let elapsed = now.duration_since(self.start);
        let last_answer = self.result.elapsed.max(self.plan.duration.unwrap_or_default());
        elapsed > last_answer + DRAIN_LIMIT
    }

    /// Closed loop: fills connection `at` up to its depth.
    fn refill(&mut self, at: usize) {
        let now = Instant::now();
        while self.out[at].len() < self.plan.depth && !self.is_over(now) {
            if !self.put(at, now) {
                break;
            }
        }
        self.driver.sockets[at].flush();
    }

    /// Open loop: sends what is due on connections with room.
    fn send_due(&mut self, now: Instant) {
        let Some(rate) = self.plan.rate else { return };
        let schedule = Schedule { start: self.start, rate, duration: self.plan.duration };
        while self.sent < schedule.due_count(now) && !self.is_exhausted() {
            let Some(at) = self.idle.pop() else { return };
            let since = schedule.due_at(self.sent);
            if self.put(at, since) && self.out[at].len() < self.plan.depth {
                self.idle.push(at);
            }
            self.driver.sockets[at].flush();
        }
    }

    fn put(&mut self, at: usize, since: Instant) -> bool {
        let socket = &mut self.driver.sockets[at];
        if socket.is_ended {
            return false;
        }
        let Some(number) = self.source.next(at, &mut socket.output) else {
            self.exhausted[at] = true;
            return false;
        };
        self.out[at].push_back((number, since));
        self.sent += 1;
        true
    }

    fn take(&mut self, at: usize) -> Outcome<()> {
        self.driver.fill(at);
        let now = Instant::now();
        loop {
            let found = self.driver.take_answer(at)?;
            let Some(answer) = found else { break };
            self.count(at, answer, now);
        }
        if self.driver.sockets[at].is_ended {
            self.result.lost += self.out[at].len() as u64;
            self.out[at].clear();
        } else if self.plan.rate.is_none() {
            self.refill(at);
        }
        Ok(())
    }

    fn count(&mut self, at: usize, answer: Answer, now: Instant) {
        let Some((number, since)) = self.out[at].pop_front() else { return };
        if self.plan.rate.is_some() && self.out[at].len() + 1 == self.plan.depth {
            self.idle.push(at);
        }
        self.answered += 1;
        self.result.elapsed = now.duration_since(self.start);
        if answer.is_success {
            self.result.acknowledged += 1;
            self.result.latencies.record(now.saturating_duration_since(since));
            self.source.acknowledged(number);
        } else {
            *self.result.refused.entry(answer.status).or_default() += 1;
        }
    }
}
