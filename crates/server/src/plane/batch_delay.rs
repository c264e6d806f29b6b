//! How many writes a commit on the loop waits for, where no peers send any.
//!
//! Clients that wait for each answer send their next write just after one. By then the loop has already
//! begun the next commit. Two halves of the clients then alternate, and each write waits for two syncs. So
//! a commit on the loop first looks for more writes. It stops once it has as many as an earlier batch, no
//! more come, or the wait would exceed the sync that it saves.
//!
//! Trials find the number to wait for. Now and then a batch waits for as many writes as it and the one
//! before it have together: these are the clients that alternate. If they do not come, trials become rarer.
//!
//! Of many clients some write while the loop takes in what others have written. So a batch that has all that it
//! waits for looks again as long as that finds writes, as often as a commit beside peers.

use super::commit_hold::CommitHold;
use model::Monotonic;

/// Longest wait for the next write. On one machine an answer and the next request take 10 to 40 µs.
const GAP_NS_MAX: u64 = 50_000;

/// Batches between two trials, at least and at most.
const TRIAL_BATCHES_MIN: u32 = 8;
const TRIAL_BATCHES_MAX: u32 = 1024;

/// What the last batches say about the next one.
#[derive(Debug)]
pub(super) struct BatchDelay {
    /// Writes that the present batch has.
    count: usize,
    /// Of these, those that the last look had.
    seen: usize,
    /// Writes that it waits for; 0 before the first look.
    goal: usize,
    /// Looks since it has those.
    looks: CommitHold,
    began: Monotonic,
    /// When the last of its writes came.
    latest: Monotonic,
    /// Writes of the batch before.
    last_count: usize,
    /// Writes that came when they were waited for.
    expected: usize,
    batches_until_trial: u32,
    batches_between_trials: u32,
    /// What the last sync took: no wait is longer.
    sync_ns: u64,
}

impl Default for BatchDelay {
    fn default() -> Self {
        Self {
            count: 0,
            seen: 0,
            goal: 0,
            looks: CommitHold::default(),
            began: Monotonic::default(),
            latest: Monotonic::default(),
            last_count: 0,
            expected: 1,
            batches_until_trial: TRIAL_BATCHES_MIN,
            batches_between_trials: TRIAL_BATCHES_MIN,
            sync_ns: 0,
        }
    }
}

impl BatchDelay {
    /// Writes that the present batch has.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A write has come for the present batch.
    pub(super) fn note_write(&mut self) {
        self.count += 1;
    }

    /// Whether the batch should wait for another write; asked again until it says no.
    pub(super) fn waits(&mut self, now: Monotonic) -> bool {
        if self.count == 0 {
            return false;
        }
        if self.goal == 0 {
            self.begin(now);
        }
        let has_found = self.count > self.seen;
        if has_found {
            (self.seen, self.latest) = (self.count, now);
        }
        if self.count < self.goal {
            return now.get() - self.latest.get() < GAP_NS_MAX
                && now.get() - self.began.get() < self.sync_ns;
        }
        // A single client would pay for a look each time.
        self.count > 1 && self.looks.waits(now, has_found)
    }

    fn begin(&mut self, now: Monotonic) {
        self.began = now;
        self.goal = if self.is_trial_due() { self.last_count + self.count } else { self.expected };
    }

    fn is_trial_due(&self) -> bool {
        self.batches_until_trial == 0
    }

    /// The batch is complete, on whichever thread it is written.
    pub(super) fn end(&mut self) {
        if self.count == 0 {
            return;
        }
        let came = self.count >= self.goal;
        let has_looked = self.goal > 0;
        if has_looked {
            self.expected = self.goal.min(self.count);
        }
        if has_looked && self.is_trial_due() {
            let longer = (self.batches_between_trials * 2).min(TRIAL_BATCHES_MAX);
            self.batches_between_trials = if came { TRIAL_BATCHES_MIN } else { longer };
            self.batches_until_trial = self.batches_between_trials;
        } else {
            self.batches_until_trial = self.batches_until_trial.saturating_sub(1);
        }
        self.last_count = self.count;
        (self.count, self.seen, self.goal) = (0, 0, 0);
        self.looks.end();
    }

    pub(super) fn note_sync(&mut self, took_ns: u64) {
        self.sync_ns = took_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC_NS: u64 = 80_000;

    /// Clients that each send their next write `answer_ns` after the answer to the last one.
    struct Clients {
        batch_delay: BatchDelay,
        now_ns: u64,
        /// When the next write of each comes.
        due_ns: Vec<u64>,
        answer_ns: u64,
    }

    impl Clients {
        /// They begin one sync after another, so that they alternate.
        fn new(count: u64, answer_ns: u64) -> Self {
            let due_ns = (0..count).map(|number| number * SYNC_NS).collect();
            let mut batch_delay = BatchDelay::default();
            batch_delay.note_sync(SYNC_NS);
            Self { batch_delay, now_ns: 0, due_ns, answer_ns }
        }

        /// Takes what has come; whose it was.
        fn take(&mut self) -> Vec<usize> {
            let now_ns = self.now_ns;
            let mut taken = Vec::new();
            for (number, due_ns) in self.due_ns.iter_mut().enumerate() {
                if *due_ns <= now_ns {
                    *due_ns = u64::MAX;
                    self.batch_delay.note_write();
                    taken.push(number);
                }
            }
            taken
        }

        fn commits(&mut self, count: usize) {
            for _ in 0..count {
                self.commit();
            }
        }

        /// One commit: how many writes it had, and how long it waited for them.
        fn commit(&mut self) -> (usize, u64) {
            self.now_ns = self.now_ns.max(*self.due_ns.iter().min().unwrap());
            let began_ns = self.now_ns;
            let mut taken = self.take();
            while self.batch_delay.waits(Monotonic::new(self.now_ns)) {
                self.now_ns += 1_000;
                taken.extend(self.take());
            }
            let waited_ns = self.now_ns - began_ns;
            self.batch_delay.end();
            self.now_ns += SYNC_NS;
            for number in &taken {
                self.due_ns[*number] = self.now_ns + self.answer_ns;
            }
            (taken.len(), waited_ns)
        }
    }

    #[test]
    fn clients_that_alternate_come_together_and_stay() {
        for count in [2, 3, 8] {
            let mut clients = Clients::new(count, 20_000);
            assert!((0..5).any(|_| clients.commit().0 < count as usize), "they begin apart");
            clients.commits(100);
            let together = (0..100).filter(|_| clients.commit().0 == count as usize).count();
            assert!(together >= 95, "{together} of 100 with {count}");
        }
    }

    #[test]
    fn nobody_is_waited_for_who_does_not_come() {
        for (count, answer_ns) in [(1, 20_000), (2, 5_000_000)] {
            let mut clients = Clients::new(count, answer_ns);
            clients.commits(10_000);
            let waits = (0..2_048).filter(|_| clients.commit().1 > 1_000).count();
            assert!(waits <= 6, "{waits} of 2,048 with {count}");
        }
    }

    #[test]
    fn a_wait_is_shorter_than_the_sync_that_it_saves() {
        let mut batch_delay = BatchDelay::default();
        batch_delay.note_sync(10_000);
        batch_delay.note_write();
        batch_delay.expected = 100;
        assert!(batch_delay.waits(Monotonic::new(0)));
        batch_delay.note_write();
        assert!(batch_delay.waits(Monotonic::new(9_000)));
        batch_delay.note_write();
        assert!(!batch_delay.waits(Monotonic::new(10_000)));
        batch_delay.end();
        assert_eq!(batch_delay.expected, 3, "no more are waited for than came");
    }

    #[test]
    fn a_gap_ends_the_wait() {
        let mut batch_delay = BatchDelay::default();
        batch_delay.note_sync(u64::MAX);
        batch_delay.note_write();
        batch_delay.expected = 3;
        assert!(batch_delay.waits(Monotonic::new(0)));
        batch_delay.note_write();
        assert!(batch_delay.waits(Monotonic::new(GAP_NS_MAX)));
        assert!(batch_delay.waits(Monotonic::new(2 * GAP_NS_MAX - 1)), "the last write was later");
        assert!(!batch_delay.waits(Monotonic::new(2 * GAP_NS_MAX)));
    }

    /// A batch before the first trial, whose looks find so many writes: how often it looks.
    fn looks_of(batch_delay: &mut BatchDelay, founds: &[usize]) -> usize {
        let mut looks = 0;
        for found in founds {
            (0..*found).for_each(|_| batch_delay.note_write());
            if !batch_delay.waits(Monotonic::new(0)) {
                break;
            }
            looks += 1;
        }
        batch_delay.end();
        looks
    }

    #[test]
    fn a_batch_looks_while_that_finds_writes() {
        let mut batch_delay = BatchDelay::default();
        assert_eq!(looks_of(&mut batch_delay, &[2, 0, 5]), 1);
        assert_eq!(looks_of(&mut batch_delay, &[2, 5, 5, 0, 5]), 3);
        assert_eq!(looks_of(&mut batch_delay, &[2; 10]), 4);
        assert_eq!(looks_of(&mut batch_delay, &[0, 2]), 0, "no batch");
        assert_eq!(looks_of(&mut batch_delay, &[1, 2]), 0, "one client");
        assert_eq!(batch_delay.expected, 1, "nobody waits for what looks have found");
    }
}
