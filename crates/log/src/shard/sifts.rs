//! Chunks of a damaged replica that are not whole: what of that is the shard's.

use crate::paths::chunk_dir;
use crate::shard::ShardLog;
use crate::snapshot::{SiftDone, SiftTask, Sifting, ToSift};
use crate::work::WorkReport;
use model::GroupId;
use std::io;
use std::sync::Arc;

impl ShardLog {
    /// Sets chunks aside that are damaged: the group gets a snapshot that takes the place of all. A report of a job names the group when it
    /// is done, [`crate::WorkReport::sifted`]. Then [`ShardLog::tails`] names what is whole.
    ///
    /// # Panics
    /// If the group belongs to another shard.
    pub fn sift(&mut self, group: GroupId) {
        self.group_mut(group).sifting = Some(Sifting::Upto(0));
        self.is_work_due.set(true);
    }

    /// The next chunk to look at, of a group that is to be sifted.
    pub(crate) fn next_sift(&mut self) -> Option<(usize, SiftTask)> {
        let root = &self.store.root;
        let groups = self.groups.iter().enumerate();
        groups.filter(|(_, group)| !group.is_frozen()).find_map(|(index, group)| {
            let Some(Sifting::Upto(last)) = group.sifting else { return None };
            let files = group.chunks.list().files().iter().filter(|file| file.seq > last);
            let what = match files.min_by_key(|file| file.seq) {
                Some(chunk) => ToSift::Chunk(Arc::clone(chunk)),
                None => ToSift::Unreadable(group.chunks.held.unreadable.clone()),
            };
            let dir = chunk_dir(root, group.id.get());
            let installs = group.installs.saturating_add(1);
            Some((index, SiftTask { group: group.id, dir, installs, what }))
        })
    }

    /// Takes the result of a look.
    pub(super) fn end_sift(
        &mut self,
        (task, result): (SiftTask, io::Result<SiftDone>),
        report: &mut WorkReport,
    ) {
        let group = self.end_group_job(task.group, result.as_ref().err());
        group.end_job();
        match result {
            Ok(done) => {
                if let Some(number) = done.aside {
                    group.chunks.replace(&[number], &[]);
                    group.merge_may_help = true;
                }
                group.sifting = Some(done.sifting);
                if done.sifting == Sifting::Done {
                    group.chunks.held.unreadable.clear();
                    report.sifted = Some(task.group);
                }
            }
            Err(error) => report.error = Some(error),
        }
    }
}
