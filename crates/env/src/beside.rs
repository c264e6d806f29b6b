//! Jobs that may run while their owner does something else.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// Jobs that may be begun before the first is waited for.
const BEGUN_MAX: usize = 4;

/// Runs jobs one after the other, in the order in which they were begun.
pub struct Beside<T> {
    helper: Option<Helper<T>>,
    /// Without a helper: what was begun. Each runs when its result is waited for.
    jobs: VecDeque<Job<T>>,
    /// Jobs whose results nobody has waited for.
    begun: usize,
}

/// The thread of the jobs, which ends when no more can come.
struct Helper<T> {
    jobs: SyncSender<Job<T>>,
    results: Receiver<T>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> Beside<T> {
    /// With a thread of its own, if it is wanted and the system gives one.
    #[must_use]
    pub fn new(wants_thread: bool) -> Self {
        let helper = if wants_thread { Helper::new().ok() } else { None };
        Self { helper, jobs: VecDeque::new(), begun: 0 }
    }

    /// Jobs that were begun and not waited for.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.begun
    }

    /// Begins a job.
    ///
    /// # Panics
    /// If [`BEGUN_MAX`] were begun and not waited for, or if an earlier one did on the thread.
    pub fn begin(&mut self, job: impl FnOnce() -> T + Send + 'static) {
        assert!(self.begun < BEGUN_MAX, "jobs are waited for");
        self.begun += 1;
        match &self.helper {
            Some(helper) => helper.jobs.send(Box::new(job)).expect("no job panics"),
            None => self.jobs.push_back(Box::new(job)),
        }
    }

    /// The result of the oldest job that was begun; `None` if there is none.
    ///
    /// # Panics
    /// If the job did.
    pub fn wait(&mut self) -> Option<T> {
        self.begun = self.begun.checked_sub(1)?;
        Some(match &self.helper {
            Some(helper) => helper.results.recv().expect("no job panics"),
            None => self.jobs.pop_front().expect("it was begun")(),
        })
    }
}

impl<T: Send + 'static> Helper<T> {
    fn new() -> std::io::Result<Self> {
        let (jobs, next) = sync_channel::<Job<T>>(BEGUN_MAX);
        let (done, results) = sync_channel(BEGUN_MAX);
        let work = move || {
            for job in next {
                // Its owner may be gone.
                drop(done.send(job()));
            }
        };
        let thread = Builder::new().name("thalweg-beside".to_owned()).spawn(work)?;
        Ok(Self { jobs, results, thread })
    }
}

impl<T> Drop for Beside<T> {
    /// Waits for what the thread was given. Without one, jobs that nobody has waited for never run.
    fn drop(&mut self) {
        if let Some(Helper { jobs, thread, .. }) = self.helper.take() {
            drop(jobs);
            // A panic is not lost: the thread has reported it.
            drop(thread.join());
        }
    }
}

impl<T> fmt::Debug for Beside<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = self.helper.as_ref().map(|helper| &helper.thread);
        formatter
            .debug_struct("Beside")
            .field("thread", &thread)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::{self, ThreadId};

    fn id() -> ThreadId {
        thread::current().id()
    }

    #[test]
    fn results_come_in_order_and_only_a_thread_works_ahead() {
        for has_thread in [false, true] {
            let (mut beside, (sender, receiver)) = (Beside::new(has_thread), sync_channel(3));
            assert!(beside.wait().is_none());
            for number in 0..3 {
                let sender = sender.clone();
                beside.begin(move || {
                    sender.send(id()).unwrap();
                    number
                });
            }
            assert_eq!(beside.begun(), 3);
            if has_thread {
                assert_ne!(receiver.recv().unwrap(), id());
            } else {
                assert!(receiver.try_recv().is_err(), "nobody has waited yet");
            }
            let results: Vec<u32> = std::iter::from_fn(|| beside.wait()).collect();
            assert_eq!((results, beside.begun()), (vec![0, 1, 2], 0));
            assert!(has_thread || receiver.try_iter().all(|ran_on| ran_on == id()));
        }
    }

    #[test]
    fn a_thread_ends_what_was_begun_when_its_owner_goes() {
        for has_thread in [false, true] {
            let (mut beside, runs) = (Beside::new(has_thread), Arc::new(AtomicU32::new(0)));
            for _ in 0..2 {
                let runs = Arc::clone(&runs);
                beside.begin(move || runs.fetch_add(1, Ordering::Relaxed));
            }
            drop(beside);
            assert_eq!(runs.load(Ordering::Relaxed), if has_thread { 2 } else { 0 });
        }
    }

    #[test]
    #[should_panic(expected = "no job panics")]
    fn a_panic_of_a_job_is_its_owners() {
        let mut beside = Beside::new(true);
        beside.begin(|| panic!("of the job"));
        beside.wait();
    }
}
