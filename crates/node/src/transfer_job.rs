//! What snapshots on their way have done on other threads: all that reads or writes files, or grows with the number of
//! streams.

use crate::replicated::{Rebuilt, Source, Writing};
use bytes::Bytes;
use log::{Export, ExportError, ExportJob, SnapshotHead, Tails, TailsJob, WorkDone};
use std::io;
use std::sync::Arc;
use stream::GroupState;

/// A job of a snapshot on its way. It may wait for the disk, and nobody waits for it.
#[derive(Debug)]
pub struct TransferJob {
    /// What the shard knows it by.
    pub(crate) number: u64,
    pub(crate) work: TransferWork,
}

/// What came of a [`TransferJob`].
#[derive(Debug)]
pub struct TransferDone {
    pub(crate) number: u64,
    pub(crate) came: TransferCame,
}

#[derive(Debug)]
pub(crate) enum TransferWork {
    /// Looks at what is here, to say it to a leader.
    Look(Box<TailsJob>),
    /// Reads what a receiver has said.
    Understand(Vec<u8>),
    Export(Box<ExportJob>),
    /// Reads what is to be sent from a position on.
    Read {
        source: Arc<Source>,
        position: u64,
    },
    /// Reads what a leader has said.
    UnderstandHead(Vec<u8>),
    Write(Box<Writing>, Vec<Bytes>),
    /// Makes a state of an installed checkpoint. The log learns of it behind that.
    Rebuild(WorkDone),
    /// Of a large state that takes time.
    Drop(Box<GroupState>),
}

#[derive(Debug)]
pub(crate) enum TransferCame {
    Looked(io::Result<Bytes>),
    Understood(Option<Tails>),
    Exported(Result<(Box<Export>, Bytes), ExportError>),
    Read(u64, io::Result<Bytes>),
    UnderstoodHead(Option<Box<SnapshotHead>>),
    Written(Box<Writing>, io::Result<()>),
    Rebuilt(WorkDone, Box<Rebuilt>),
    Dropped,
}

impl TransferJob {
    /// Does it.
    #[must_use]
    pub fn run(self) -> TransferDone {
        let came = match self.work {
            TransferWork::Look(job) => {
                TransferCame::Looked(job.run().map(|tails| tails.encode().into()))
            }
            TransferWork::Understand(bytes) => TransferCame::Understood(Tails::decode(&bytes)),
            TransferWork::Export(job) => {
                let exported = job.run();
                TransferCame::Exported(exported.map(|export| {
                    let head = export.head.encode().into();
                    (Box::new(export), head)
                }))
            }
            TransferWork::Read { source, position } => {
                TransferCame::Read(position, source.read(position))
            }
            TransferWork::UnderstandHead(bytes) => {
                TransferCame::UnderstoodHead(SnapshotHead::decode(&bytes).map(Box::new))
            }
            TransferWork::Write(mut writing, pieces) => {
                let written = pieces.iter().try_for_each(|bytes| writing.write(bytes));
                TransferCame::Written(writing, written)
            }
            TransferWork::Rebuild(done) => {
                let installed = done.installed().expect("a snapshot was installed");
                let rebuilt = Box::new(Rebuilt::of(installed));
                TransferCame::Rebuilt(done, rebuilt)
            }
            TransferWork::Drop(state) => {
                drop(state);
                TransferCame::Dropped
            }
        };
        TransferDone { number: self.number, came }
    }
}
