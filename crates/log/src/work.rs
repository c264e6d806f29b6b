//! Background work on its way through the disk.

use crate::checkpoint::CheckpointTask;
use crate::checkpoint_rows::CheckpointRows;
use crate::chunk::copy::{CopyDone, MergeTask, SealTask};
use crate::chunk::count::{CountDone, CountTask};
use crate::chunk::leftovers::{RemovalDone, RemovalTask};
use crate::chunk::writer::{ChunkName, WRITING_NAME};
use crate::damage::Damage;
use crate::paths::remove_if_there;
use crate::snapshot::{InstallEnd, InstallError, InstallTask, Installed, SiftDone, SiftTask};
use crate::store::Store;
use crate::wal::fill::{FillDone, FillWork};
use crate::wal::room::NoRoom;
use env::Disk;
use model::GroupId;
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};

/// A piece of background work: run it on any thread and hand the result to `handle_work`.
#[derive(Debug)]
#[must_use = "work that is not run stalls its shard"]
pub struct WorkJob {
    /// With the lock of the directory: nobody else may write there before the job has ended.
    pub(crate) store: Store,
    pub(crate) task: Box<Task>,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// A change of the shard's own WAL.
    Fill(FillWork),
    /// A removal from a WAL that no shard writes any more.
    Drain(FillWork),
    /// With the bytes of the disk that it leaves free.
    Seal(SealTask, u64),
    Merge(MergeTask),
    /// The end of something that nobody needs.
    Free(Spent),
    /// A look at what has died in chunks.
    Count(CountTask),
    /// Of files that merges have left.
    Remove(RemovalTask),
    Checkpoint(CheckpointTask),
    Install(Box<InstallTask>),
    Sift(SiftTask),
}

/// What takes many milliseconds to give back: an index whose appends are sealed, or segments without a name. To close one of
/// these gives its blocks back.
pub(crate) type Spent = Box<dyn Any + Send>;

impl WorkJob {
    /// The group whose data it copies; `None` if it makes, renames or removes a segment, or gives memory back. Appends wait when there is no
    /// segment for them, so that should not wait behind copies, which take seconds.
    #[must_use]
    pub fn group(&self) -> Option<GroupId> {
        match &*self.task {
            Task::Fill(_) | Task::Drain(_) | Task::Free(_) => None,
            Task::Seal(task, _) => Some(GroupId::new(task.name.identity.group)),
            Task::Merge(task) => Some(GroupId::new(task.name.identity.group)),
            Task::Count(task) => Some(task.group),
            Task::Remove(task) => Some(task.group),
            Task::Checkpoint(task) => Some(task.group),
            Task::Install(task) => Some(task.group()),
            Task::Sift(task) => Some(task.group),
        }
    }

    /// Does the work. Blocks, for seconds if the disk is slow.
    pub fn run(self) -> WorkDone {
        let disk = &*self.store.disk;
        let root = self.store.root.clone();
        let done = match *self.task {
            Task::Fill(work) => TaskDone::Fill(work.run(disk)),
            Task::Drain(work) => TaskDone::Drain(work.run(disk)),
            Task::Seal(task, kept_free_bytes) => {
                let needs = Needs { what: "a chunk", bytes: task.bytes_max, kept_free_bytes };
                let result = needs.check(disk, &root).and_then(|()| task.run(disk));
                let end = CopyEnd::clean(disk, &task.name, result);
                TaskDone::Seal(task, end)
            }
            Task::Merge(task) => {
                let end = CopyEnd::clean(disk, &task.name, task.run(disk));
                TaskDone::Merge(task, end)
            }
            Task::Free(spent) => {
                drop(spent);
                TaskDone::Free
            }
            Task::Count(task) => {
                let result = task.run();
                TaskDone::Count(task, result)
            }
            Task::Remove(task) => {
                let done = task.run(disk);
                TaskDone::Remove(task, done)
            }
            Task::Install(task) => {
                let group = task.group();
                TaskDone::Install(group, task.run(disk))
            }
            Task::Sift(task) => {
                let result = task.run(disk);
                TaskDone::Sift(task, result)
            }
            Task::Checkpoint(mut task) => {
                let (what, bytes) = ("a checkpoint", task.bytes());
                let needs = Needs { what, bytes, kept_free_bytes: 0 };
                let result = needs.check(disk, &root).and_then(|()| task.run(disk));
                if result.is_ok() {
                    // Here, because to free tens of megabytes takes the loop milliseconds.
                    task.rows = CheckpointRows::new();
                }
                TaskDone::Checkpoint(task, result)
            }
        };
        WorkDone { done: Box::new(done), free_bytes: disk.free_bytes(&root).ok() }
    }
}

/// The room that a job needs.
struct Needs {
    what: &'static str,
    bytes: u64,
    /// What it leaves free.
    kept_free_bytes: u64,
}

impl Needs {
    /// # Errors
    /// `StorageFull` with a [`NoRoom`], or what the disk answers.
    fn check(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let free_bytes = disk.free_bytes(dir)?;
        let needed_bytes = self.bytes.saturating_add(self.kept_free_bytes);
        if free_bytes < needed_bytes {
            return Err(NoRoom { what: self.what, needed_bytes, free_bytes }.into());
        }
        Ok(())
    }
}

/// How a copy into a new chunk ended.
#[derive(Debug)]
pub(crate) struct CopyEnd {
    pub(crate) result: io::Result<CopyDone>,
    /// What a copy that failed has written and could not remove.
    pub(crate) left: Vec<PathBuf>,
}

impl CopyEnd {
    /// Gives the space of a copy that failed back at once; its own error is the one to tell.
    pub(crate) fn clean(disk: &dyn Disk, name: &ChunkName, result: io::Result<CopyDone>) -> Self {
        let mut left = Vec::new();
        if result.is_err() {
            // Its name may have been given and not be durable: the next try has another one.
            left.extend([name.dir.join(WRITING_NAME), name.path()]);
            left.retain(|file| remove_if_there(disk, file).is_err());
        }
        Self { result, left }
    }
}

/// Result of a [`WorkJob`].
#[derive(Debug)]
pub struct WorkDone {
    pub(crate) done: Box<TaskDone>,
    /// What is free on the disk behind it, if the disk says.
    pub(crate) free_bytes: Option<u64>,
}

impl WorkDone {
    /// The snapshot that was installed, if that was the work.
    #[must_use]
    pub fn installed(&self) -> Option<&Installed> {
        match &*self.done {
            TaskDone::Install(_, InstallEnd::Done(done)) => Some(&done.installed),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum TaskDone {
    Fill(FillDone),
    Drain(FillDone),
    Seal(SealTask, CopyEnd),
    Merge(MergeTask, CopyEnd),
    Free,
    Count(CountTask, io::Result<CountDone>),
    Remove(RemovalTask, RemovalDone),
    Checkpoint(CheckpointTask, io::Result<()>),
    Install(GroupId, InstallEnd),
    Sift(SiftTask, io::Result<SiftDone>),
}

/// What a piece of background work came to.
#[derive(Debug, Default)]
pub struct WorkReport {
    /// The disk refused. The same work will be offered again: wait a little before polling.
    pub error: Option<io::Error>,
    /// The disk had no room for a merge, on which nothing but space and long runs depends. It is offered again when
    /// the group's chunks or what is dead in them has changed, and after `retry_merges`.
    pub merge_refusal: Option<io::Error>,
    /// Nothing was written or removed: it was counted how much is dead.
    pub is_count: bool,
    /// Damage that the work met. The intact rest was kept.
    pub damages: Vec<Damage>,
    /// The group whose checkpoint is now durable, with everything it needs.
    pub checkpointed: Option<GroupId>,
    /// What has come of [`crate::ShardLog::finish_install`].
    pub installed: Option<Result<Installed, (GroupId, InstallError)>>,
    /// The group whose damaged chunks were all set aside: [`crate::ShardLog::sift`].
    pub sifted: Option<GroupId>,
}
