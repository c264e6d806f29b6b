//! Background work of the log, and what is said while the disk refuses it.
//!
//! A full disk refuses one kind of work and takes another: a segment cannot be made while a small
//! checkpoint can. So one success does not end the trouble. It ends when no work has failed for a
//! while; until then the node says so, and writes that wait for the log are told why.

use crate::{Node, Stamp};
use log::{WorkDone, WorkJob};
use model::Monotonic;
use std::io;

/// After the disk refused background work, wait this long before offering it again.
const RETRY_MS: u64 = 250;

/// Without a failure for this long the trouble is over. Several retries lie in between.
const TROUBLE_MS: u64 = 1_000;

/// How the disk takes background work.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// Nothing is offered before this.
    blocked_until: Option<Monotonic>,
    trouble: Option<Trouble>,
    /// Not told yet.
    merge_refusal: Option<io::Error>,
}

#[derive(Debug)]
struct Trouble {
    /// The last failure.
    error: String,
    is_disk_full: bool,
    since: Monotonic,
    /// The job that ended last failed.
    is_last: bool,
}

impl Background {
    pub(crate) fn is_disk_full(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.is_disk_full)
    }

    fn note(&mut self, now: Monotonic, error: Option<&io::Error>) {
        let Some(error) = error else {
            if let Some(trouble) = &mut self.trouble {
                trouble.is_last = false;
            }
            return;
        };
        self.blocked_until = Some(now.plus_ms(RETRY_MS));
        let is_disk_full = error.kind() == io::ErrorKind::StorageFull;
        let error = error.to_string();
        self.trouble = Some(Trouble { error, is_disk_full, since: now, is_last: true });
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Monotonic) {
        self.blocked_until = self.blocked_until.filter(|until| now < *until);
        let lasts = |trouble: &Trouble| trouble.is_last || now.ms_since(trouble.since) < TROUBLE_MS;
        self.trouble = self.trouble.take().filter(lasts);
    }
}

impl Node {
    pub(crate) fn poll_work(&mut self) -> Option<WorkJob> {
        if self.background.blocked_until.is_some() { None } else { self.log.poll_work() }
    }

    pub(crate) fn handle_worked(&mut self, now: Stamp, done: WorkDone) {
        let report = self.log.handle_work(done);
        self.background.note(now.monotonic, report.error.as_ref());
        self.background.merge_refusal =
            report.merge_refusal.or(self.background.merge_refusal.take());
        self.idle.damages.extend(report.damages);
        self.unpark(now);
    }

    /// The last merge that the disk had no room for since the last call. It will be tried when chunks have changed.
    pub fn take_merge_refusal(&mut self) -> Option<io::Error> {
        self.background.merge_refusal.take()
    }

    /// Why background work stands still, if it does (as when the disk is full).
    #[must_use]
    pub fn work_error(&self) -> Option<&str> {
        self.background.trouble.as_ref().map(|trouble| trouble.error.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Monotonic = Monotonic::new(1_000_000_000);

    fn full() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    #[test]
    fn one_success_between_failures_does_not_end_the_trouble() {
        let mut background = Background::default();
        background.note(START, Some(&full()));
        background.note(START.plus_ms(10), None);
        background.tick(START.plus_ms(20));
        assert!(background.is_disk_full());
        background.note(START.plus_ms(260), Some(&full()));
        background.tick(START.plus_ms(TROUBLE_MS + 100));
        assert!(background.is_disk_full());
    }

    #[test]
    fn the_trouble_ends_when_nothing_has_failed_for_a_while() {
        let mut background = Background::default();
        background.note(START, Some(&full()));
        background.note(START.plus_ms(300), None);
        background.tick(START.plus_ms(TROUBLE_MS));
        assert!(!background.is_disk_full());
    }

    #[test]
    fn what_failed_last_and_was_not_tried_again_is_still_trouble() {
        let mut background = Background::default();
        background.note(START, Some(&full()));
        background.tick(START.plus_ms(60_000));
        assert!(background.is_disk_full());
        assert!(background.blocked_until.is_none());
    }
}
