//! Many connections that write, read, create, close, delete and fork until the server dies or they are
//! told to stop.

mod appends;
mod readers;
mod steady;
mod worker;

use crate::doors::{Doors, Place};
use crate::http::{Answer, Connection};
use crate::ledger::{Ledger, lock};
use crate::numbers::Numbers;
use crate::report::Report;
pub(crate) use appends::render;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
pub(crate) use steady::Gap;
use worker::Worker;

/// Workers that write. Each owns streams and takes part in shared ones.
pub(crate) const WRITER_COUNT: u32 = 26;
/// Writers whose gaps are measured.
const STEADY_COUNT: u32 = 64;
/// A client that was refused waits so long, as a polite one would.
const REFUSAL_PAUSE: Duration = Duration::from_millis(5);
/// Workers that read.
const READER_COUNT: u32 = 6;

/// What all workers of one round share.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) report: &'a Report,
    pub(crate) doors: Doors,
    /// Which round it is: workers of another one draw other numbers.
    pub(crate) number: u64,
    /// Refusals that the scenario brings about.
    expected: &'static [&'static str],
    /// Its disk goes before the server does.
    loses_disk: bool,
    stop: AtomicBool,
    /// How long each of the steady writers waited at most.
    gaps: Mutex<Vec<Gap>>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(ledger: &'a Ledger, report: &'a Report, doors: Doors, number: u64) -> Self {
        let (stop, gaps) = (AtomicBool::new(false), Mutex::default());
        let (expected, loses_disk) = (&[][..], false);
        Self { ledger, report, doors, number, expected, loses_disk, stop, gaps }
    }

    /// The scenario causes answers of these codes.
    pub(crate) fn expecting(self, codes: &'static [&'static str]) -> Self {
        Self { expected: codes, ..self }
    }

    /// The disk is gone when [`Self::expect_death`] was called, and the server may still answer.
    pub(crate) fn losing_its_disk(self) -> Self {
        Self { loses_disk: true, ..self }
    }

    /// From now on connections may break, to any node.
    pub(crate) fn expect_death(&self) {
        self.doors.fall_all();
    }

    /// Workers shall end after what they are doing.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst) && self.report.is_clean()
    }

    /// Whether each block that is read now may be unreadable.
    fn has_lost_disk(&self) -> bool {
        self.loses_disk && self.doors.has_fallen_one()
    }

    /// Where a client continues whose connection broke; nothing if there is no such place.
    fn after_break(&self, place: Place, error: &io::Error) -> Option<Place> {
        self.doors.next(place).unwrap_or_else(|()| {
            let door = place.door;
            let what = format!("a connection broke while the server {door} should run: {error}");
            self.report.violation(what);
            None
        })
    }

    /// Leaves a connection that its server has ended with an answer; where the client continues, or nothing if there is no such place.
    fn leave(&self, connection: &mut Option<Connection>, place: Place) -> Option<Place> {
        if connection.as_ref().is_some_and(Connection::is_over) {
            *connection = None;
            // A server may end a connection without an end of its own.
            return self.doors.next(place).unwrap_or(Some(place));
        }
        Some(place)
    }

    /// Runs the load while `during` runs.
    pub(crate) fn run<T>(&self, during: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            for index in 0..WRITER_COUNT {
                scope.spawn(move || Worker::new(self, index).run());
            }
            for index in 0..READER_COUNT {
                scope.spawn(move || readers::run(self, index));
            }
            let result = during();
            self.stop();
            result
        })
    }

    /// Runs writers while `during` runs that do nothing but append, each to a stream of its own, and measures their gaps.
    pub(crate) fn run_steady<T>(&self, during: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            for index in 0..STEADY_COUNT {
                scope.spawn(move || steady::run(self, index));
            }
            let result = during();
            self.stop();
            result
        })
    }

    /// Runs one of both loads while `during` runs.
    pub(crate) fn run_either<T>(&self, is_steady: bool, during: impl FnOnce() -> T) -> T {
        if is_steady { self.run_steady(during) } else { self.run(during) }
    }

    /// The longest gaps of the steady writers: of those whose node was never harmed, and of the others.
    pub(crate) fn gaps(&self) -> (Duration, Duration) {
        let gaps = lock(&self.gaps);
        let longest = |has_fallen: bool| {
            let wanted = gaps.iter().filter(|g| self.doors.has_ever_fallen(g.door) == has_fallen);
            wanted.map(|gap| gap.longest).max().unwrap_or_default()
        };
        (longest(false), longest(true))
    }

    fn numbers(&self, worker: u64) -> Numbers {
        Numbers::of(self.ledger.seed, &[self.number, worker])
    }

    /// Whether the answer says that nothing was done for now, and may say so.
    fn is_refusal(&self, answer: &Answer) -> bool {
        let code = answer.code();
        ["overloaded", "shutting-down"].contains(&code.as_str())
            || self.expected.contains(&code.as_str())
    }
}
