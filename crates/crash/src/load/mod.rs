//! Many connections that write, read, create, close, delete and fork until the server dies or they are
//! told to stop.

mod appends;
mod readers;
mod worker;

use crate::http::Answer;
use crate::ledger::Ledger;
use crate::numbers::Numbers;
use crate::report::Report;
pub(crate) use appends::render;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use worker::Worker;

/// Workers that write. Each owns streams and takes part in shared ones.
pub(crate) const WRITER_COUNT: u32 = 26;
/// Workers that read.
const READER_COUNT: u32 = 6;

/// What all workers of one round share.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) report: &'a Report,
    pub(crate) address: SocketAddr,
    /// Which round it is: workers of another one draw other numbers.
    pub(crate) number: u64,
    /// Refusals that the scenario brings about.
    expected: &'static [&'static str],
    /// Its disk goes before the server does.
    loses_disk: bool,
    stop: AtomicBool,
    dying: AtomicBool,
}

impl<'a> Round<'a> {
    pub(crate) fn new(
        ledger: &'a Ledger,
        report: &'a Report,
        address: SocketAddr,
        number: u64,
    ) -> Self {
        let (stop, dying) = (AtomicBool::new(false), AtomicBool::new(false));
        let (expected, loses_disk) = (&[][..], false);
        Self { ledger, report, address, number, expected, loses_disk, stop, dying }
    }

    /// The scenario causes answers of these codes.
    pub(crate) fn expecting(self, codes: &'static [&'static str]) -> Self {
        Self { expected: codes, ..self }
    }

    /// The disk is gone when [`Self::expect_death`] was called, and the server may still answer.
    pub(crate) fn losing_its_disk(self) -> Self {
        Self { loses_disk: true, ..self }
    }

    /// From now on connections may break.
    pub(crate) fn expect_death(&self) {
        self.dying.store(true, Ordering::SeqCst);
    }

    /// Workers shall end after what they are doing.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    fn is_running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst) && self.report.is_clean()
    }

    fn is_dying(&self) -> bool {
        self.dying.load(Ordering::SeqCst)
    }

    /// Whether each block that is read now may be unreadable.
    fn has_lost_disk(&self) -> bool {
        self.loses_disk && self.is_dying()
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
