//! Background work on its way through the disk.

use crate::checkpoint::CheckpointTask;
use crate::chunk::copy::{CopyDone, MergeTask, SealTask};
use crate::damage::Damage;
use crate::wal::fill::{FillDone, FillWork};
use env::Disk;
use model::GroupId;
use std::io;
use std::sync::Arc;

/// A piece of background work: run it on any thread and hand the result to `handle_work`.
#[derive(Debug)]
#[must_use = "work that is not run stalls its shard"]
pub struct WorkJob {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) task: Task,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// A change of the shard's own lane.
    Fill(FillWork),
    /// A removal from a lane that no shard writes any more.
    Drain(FillWork),
    Seal(SealTask),
    Merge(MergeTask),
    Checkpoint(CheckpointTask),
}

impl WorkJob {
    /// Whether it makes, renames or removes a segment. Appends wait when there is no segment for them, so it should
    /// not stand behind copies, which take seconds.
    #[must_use]
    pub fn is_of_segments(&self) -> bool {
        matches!(self.task, Task::Fill(_) | Task::Drain(_))
    }

    /// Does the work. Blocks, for seconds if the disk is slow.
    pub fn run(self) -> WorkDone {
        let disk = &*self.disk;
        let done = match self.task {
            Task::Fill(work) => TaskDone::Fill(work.run(disk)),
            Task::Drain(work) => TaskDone::Drain(work.run(disk)),
            Task::Seal(task) => {
                let result = task.run(disk);
                TaskDone::Seal(task, result)
            }
            Task::Merge(task) => {
                let result = task.run(disk);
                TaskDone::Merge(task, result)
            }
            Task::Checkpoint(task) => {
                let result = task.run(disk);
                TaskDone::Checkpoint(task, result)
            }
        };
        WorkDone { done }
    }
}

/// Result of a [`WorkJob`].
#[derive(Debug)]
pub struct WorkDone {
    pub(crate) done: TaskDone,
}

#[derive(Debug)]
pub(crate) enum TaskDone {
    Fill(FillDone),
    Drain(FillDone),
    Seal(SealTask, io::Result<CopyDone>),
    Merge(MergeTask, io::Result<CopyDone>),
    Checkpoint(CheckpointTask, io::Result<()>),
}

/// What a piece of background work came to.
#[derive(Debug, Default)]
pub struct WorkReport {
    /// The disk refused. The same work will be offered again: wait a little before polling.
    pub error: Option<io::Error>,
    /// The disk had no room for a merge. It is offered again when the group's chunks or what is dead in them has
    /// changed: nothing but space and long runs depends on it.
    pub merge_refusal: Option<io::Error>,
    /// Damage that the work met. The intact rest was kept.
    pub damages: Vec<Damage>,
    /// The group whose checkpoint is now durable, with everything it needs.
    pub checkpointed: Option<GroupId>,
}
