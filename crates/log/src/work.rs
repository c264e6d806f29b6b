//! Work.
use crate::damage::Damage;
/// Background work.
#[derive(Debug)]
#[must_use = "a job that is not run stalls its shard"]
pub struct WorkJob {}
impl WorkJob {
    /// Does the work; blocks.
    pub fn run(self) -> WorkDone { unimplemented!() }
}
/// Result of a [`WorkJob`].
#[derive(Debug)]
pub struct WorkDone {}
/// What a piece of background work came to.
#[derive(Debug, Default)]
pub struct WorkReport {
    /// The disk refused; the same work will be offered again: wait a little before polling.
    pub error: Option<std::io::Error>,
    /// Damage that the work met. The intact rest was kept.
    pub damages: Vec<Damage>,
}
