//! A bounded stack, for tests that something does not recurse.

use std::thread::Builder;

/// Runs `work` on a thread with a stack of so many bytes, and waits for its result. Work that needs more
/// aborts the process.
///
/// # Panics
/// If `work` does, or if there is no thread.
pub fn run_on_stack<T: Send + 'static>(
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let thread = Builder::new().stack_size(stack_bytes).spawn(work).expect("a thread for a test");
    thread.join().expect("the work on a bounded stack ends")
}
