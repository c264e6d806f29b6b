//! Background work of the log, and what is reported while the disk refuses it.
//!
//! A full disk refuses one kind of work and takes another: a segment cannot be made while a small
//! checkpoint can. So one success does not end the trouble. It ends when no work has failed for a
//! while. Until then the shard reports it, and answers waiting writes with the reason.

use log::NoRoom;
use model::Monotonic;
use std::io;

/// After the disk refused background work, wait this long before offering it again.
const RETRY_MS: u64 = 250;

/// Without a failure for this long the trouble is over. Several retries lie in between.
const TROUBLE_MS: u64 = 1_000;

/// Merges that found no room are offered again after this long.
const MERGE_RETRY_MS: u64 = 10_000;

/// Why the disk refuses background work, and so in the end data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskTrouble {
    /// There is no space.
    Full,
    /// The quota of the user or project is used up.
    QuotaUsedUp,
    /// The process or the system has no descriptor left for another file.
    NoDescriptors,
    /// Anything else, such as an error of the medium.
    Failing,
}

impl DiskTrouble {
    pub(crate) fn of(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::QuotaExceeded {
            Self::QuotaUsedUp
        } else if log::is_no_room(error) {
            Self::Full
        } else if env::is_out_of_descriptors(error) {
            Self::NoDescriptors
        } else {
            Self::Failing
        }
    }

    /// Whether deletes end it.
    #[must_use]
    pub fn is_no_room(self) -> bool {
        matches!(self, Self::Full | Self::QuotaUsedUp)
    }
}

/// How the disk takes background work.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// Nothing is offered before this.
    blocked_until: Option<Monotonic>,
    trouble: Option<Trouble>,
    merge_refusal: Option<MergeRefusal>,
}

/// There was no room for a merge.
#[derive(Debug)]
struct MergeRefusal {
    error: io::Error,
    /// The last one, or the last retry.
    since: Monotonic,
    is_told: bool,
    /// Nothing was refused since the merges were offered again.
    is_retried: bool,
}

#[derive(Debug)]
struct Trouble {
    /// The last failure.
    error: String,
    kind: DiskTrouble,
    /// What had no room, if that is why.
    no_room: Option<NoRoom>,
    since: Monotonic,
    /// The job that ended last failed.
    is_last: bool,
}

impl Background {
    pub(crate) fn is_disk_full(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.kind.is_no_room())
    }

    /// Whether no job is offered for now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_until.is_some()
    }

    /// Why background work has stopped, if it has.
    pub(crate) fn trouble(&self) -> Option<(DiskTrouble, &str)> {
        self.trouble.as_ref().map(|trouble| (trouble.kind, trouble.error.as_str()))
    }

    /// What has no room, and how much it needs.
    pub(crate) fn no_room(&self) -> Option<NoRoom> {
        self.trouble.as_ref()?.no_room
    }

    /// Why merges found no room, once when that begins.
    pub(crate) fn take_merge_refusal(&mut self) -> Option<&io::Error> {
        let refusal = self.merge_refusal.as_mut()?;
        let is_new = !std::mem::replace(&mut refusal.is_told, true);
        is_new.then_some(&refusal.error)
    }

    pub(crate) fn note(&mut self, now: Monotonic, error: Option<&io::Error>) {
        let Some(error) = error else {
            if let Some(trouble) = &mut self.trouble {
                trouble.is_last = false;
            }
            return;
        };
        let kind = DiskTrouble::of(error);
        let is_again = self.trouble.as_ref().is_some_and(|trouble| trouble.is_last);
        // A job of one group may fail where those of others do not: the log offers theirs next.
        if kind.is_no_room() || is_again {
            self.blocked_until = Some(now.plus_ms(RETRY_MS));
        }
        let no_room = error.get_ref().and_then(|inner| inner.downcast_ref()).copied();
        let error = error.to_string();
        self.trouble = Some(Trouble { error, kind, no_room, since: now, is_last: true });
    }

    pub(crate) fn note_merge_refusal(&mut self, now: Monotonic, error: io::Error) {
        let is_told = self.merge_refusal.take().is_some_and(|last| last.is_told);
        self.merge_refusal = Some(MergeRefusal { error, since: now, is_told, is_retried: false });
    }

    /// Whether merges that found no room are to be offered again.
    pub(crate) fn wants_merge_retry(&mut self, now: Monotonic) -> bool {
        let is_due = |refusal: &mut MergeRefusal| now.ms_since(refusal.since) >= MERGE_RETRY_MS;
        let Some(due) = self.merge_refusal.take_if(is_due) else { return false };
        if !due.is_retried {
            self.merge_refusal = Some(MergeRefusal { since: now, is_retried: true, ..due });
        }
        !due.is_retried
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Monotonic) {
        self.blocked_until = self.blocked_until.filter(|until| now < *until);
        let lasts = |trouble: &Trouble| trouble.is_last || now.ms_since(trouble.since) < TROUBLE_MS;
        self.trouble = self.trouble.take().filter(lasts);
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
    fn after_a_failure_nothing_is_offered_for_a_while() {
        let mut background = Background::default();
        background.note(START, Some(&full()));
        background.tick(START.plus_ms(RETRY_MS - 1));
        assert!(background.blocked_until.is_some());
        background.tick(START.plus_ms(RETRY_MS));
        assert_eq!(background.blocked_until, None);
    }

    #[test]
    fn a_failure_between_successes_stops_nothing() {
        let failed = || io::Error::from(io::ErrorKind::TimedOut);
        let mut background = Background::default();
        background.note(START, Some(&failed()));
        assert!(!background.is_blocked() && background.trouble().is_some());
        background.note(START, None);
        background.note(START, Some(&failed()));
        assert!(!background.is_blocked());
        background.note(START, Some(&failed()));
        assert!(background.is_blocked(), "nothing else is due");
    }

    #[test]
    fn each_trouble_has_its_kind() {
        let errors = [
            (full(), DiskTrouble::Full, true),
            (io::ErrorKind::QuotaExceeded.into(), DiskTrouble::QuotaUsedUp, true),
            (io::Error::from_raw_os_error(24), DiskTrouble::NoDescriptors, false),
            (io::Error::from_raw_os_error(5), DiskTrouble::Failing, false),
        ];
        let mut background = Background::default();
        for (error, kind, is_disk_full) in errors {
            background.note(START, Some(&error));
            assert_eq!(background.trouble().map(|(kind, _)| kind), Some(kind));
            assert_eq!(background.is_disk_full(), is_disk_full);
        }
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
    fn refused_merges_are_reported_once_and_offered_again() {
        let mut background = Background::default();
        background.note_merge_refusal(START, full());
        assert!(background.merge_refusal.as_ref().is_some_and(|refusal| !refusal.is_told));
        background.merge_refusal.as_mut().unwrap().is_told = true;
        let later = |steps| START.plus_ms(steps * MERGE_RETRY_MS);
        assert!(!background.wants_merge_retry(START.plus_ms(MERGE_RETRY_MS - 1)));
        assert!(background.wants_merge_retry(later(1)));
        assert!(!background.wants_merge_retry(later(1)));
        background.note_merge_refusal(later(1), full());
        assert!(background.merge_refusal.as_ref().is_some_and(|refusal| refusal.is_told));
        assert!(background.wants_merge_retry(later(2)));
        assert!(!background.wants_merge_retry(later(3)), "none was refused since");
        assert!(background.merge_refusal.is_none());
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
