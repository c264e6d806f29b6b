//! The end of a snapshot's way at the receiver.

use super::limits::{ASK_MS, FIRST_BYTES_MAX, SILENT_MS_MAX, TRANSFERS_MAX, WINDOW_BYTES};
use super::way::{JobOf, Way};
use super::writing::Writing;
use crate::transfer_job::{TransferCame, TransferWork};
use crate::{ShardCore, Stamp};
use bytes::Bytes;
use cluster::{GroupMessage, PIECE_BYTES_MAX, ReplicaId, TransferEnd, TransferSays};
use log::{Install, InstallError, SnapshotHead, Tails};
use model::{GroupId, Monotonic};

/// A snapshot that comes.
#[derive(Debug)]
pub(super) struct Incoming {
    from: ReplicaId,
    number: u64,
    pub(super) stage: Stage,
    /// The job that works for it, or has worked last. Two leaders may give their snapshots the same number.
    job: u64,
    /// When the leader was heard last.
    heard: Monotonic,
    /// Pieces that are not in their place yet, and their bytes.
    waiting: Vec<Bytes>,
    waiting_bytes: u64,
    /// The next byte that is to come.
    received: u64,
    /// All bytes before are in their place.
    written: u64,
    /// Of head and files; 0 until the head is known.
    total: u64,
    /// What the leader's library says: to be done when everything else is.
    pub(super) message: Option<GroupMessage>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A job looks at what is here.
    Looking,
    /// The leader learns what is here.
    Telling { have: Bytes, sent: u64, got: u64 },
    /// The head comes.
    Heading { head: Vec<u8>, head_bytes: u64 },
    /// A job reads it.
    Understanding,
    /// Files come; a job has them if they are not here.
    Files(Option<Box<Writing>>),
    /// All are durable.
    Whole(Box<Install>),
    /// The log checks and installs them.
    Frozen,
}

impl Incoming {
    fn new((from, number): (ReplicaId, u64), heard: Monotonic) -> Self {
        Self {
            from,
            number,
            stage: Stage::Looking,
            job: 0,
            heard,
            waiting: Vec::new(),
            waiting_bytes: 0,
            received: 0,
            written: 0,
            total: 0,
            message: None,
        }
    }

    pub(super) fn is_of(&self, from: ReplicaId, number: u64) -> bool {
        (self.from, self.number) == (from, number)
    }

    pub(super) fn progress(&self) -> Option<(u64, u64)> {
        (self.total > 0).then_some((self.written, self.total))
    }

    /// Whether it is too late for another snapshot.
    fn is_at_its_end(&self) -> bool {
        self.message.is_some() || matches!(self.stage, Stage::Frozen)
    }

    fn take_waiting(&mut self) -> Vec<Bytes> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

impl ShardCore {
    /// A leader has a snapshot, or asks where it is.
    pub(super) fn hear_offer(&mut self, now: Stamp, way: Way, (is_begun, position): (bool, u64)) {
        let Way { group, peer: from, number } = way;
        let transfers = self.transfers();
        let count = transfers.incoming.len();
        let answer = match transfers.incoming.get_mut(&group) {
            Some(coming) if coming.is_of(from, number) => {
                coming.heard = now.monotonic;
                return self.tell_where(group, position, is_begun);
            }
            Some(coming) if coming.is_at_its_end() => TransferEnd::Busy,
            _ if is_begun => TransferEnd::Lost,
            Some(_) => {
                self.abort_incoming(group);
                return self.begin_incoming(now, way);
            }
            None if count >= TRANSFERS_MAX => TransferEnd::Busy,
            None => return self.begin_incoming(now, way),
        };
        self.say_of_transfer(group, (from, number), TransferSays::End(answer));
    }

    fn begin_incoming(&mut self, now: Stamp, Way { group, peer: from, number }: Way) {
        let coming = Incoming::new((from, number), now.monotonic);
        self.transfers().incoming.insert(group, coming);
        if self.copy_mut(group).has_nothing || self.groups.get(group).state.stream_count() == 0 {
            return self.tell_have(group, Tails::default().encode().into());
        }
        let look = TransferWork::Look(Box::new(self.log.tails(group)));
        self.begin_incoming_job(group, look);
    }

    fn begin_incoming_job(&mut self, group: GroupId, work: TransferWork) {
        let job = self.begin_job(JobOf::Incoming(group), work);
        self.transfers().incoming.get_mut(&group).expect("it is coming").job = job;
    }

    /// Whether a snapshot of a group is on its way.
    pub(in crate::replicated) fn is_snapshot_coming(&mut self, group: GroupId) -> bool {
        self.transfers().incoming.contains_key(&group)
    }

    /// A leader asks where a snapshot is.
    fn tell_where(&mut self, group: GroupId, told: u64, is_begun: bool) {
        let coming = self.transfers().incoming.get_mut(&group).expect("the caller has looked");
        let key = (coming.from, coming.number);
        let (written, received) = (coming.written, coming.received);
        match &mut coming.stage {
            Stage::Looking => {}
            Stage::Telling { sent, got, have } if !is_begun && told <= have.len() as u64 => {
                (*sent, *got) = (told, told);
                self.say_have(group);
            }
            Stage::Whole(_) if coming.message.is_none() => {
                self.say_of_transfer(group, key, TransferSays::End(TransferEnd::Whole));
            }
            Stage::Whole(_) | Stage::Frozen => {
                self.say_of_transfer(group, key, TransferSays::End(TransferEnd::Busy));
            }
            _ => {
                let got = TransferSays::Got { position: written, is_asked: false };
                self.say_of_transfer(group, key, got);
                let next = TransferSays::Got { position: received, is_asked: true };
                self.say_of_transfer(group, key, next);
            }
        }
    }

    /// It is known what is here: the leader learns of it.
    fn tell_have(&mut self, group: GroupId, have: Bytes) {
        let coming = self.transfers().incoming.get_mut(&group).expect("it is coming");
        coming.stage = Stage::Telling { have, sent: 0, got: 0 };
        self.say_have(group);
    }

    /// Says what is here, as far as the window allows.
    fn say_have(&mut self, group: GroupId) {
        loop {
            let Some(coming) = self.transfers().incoming.get_mut(&group) else { return };
            let key = (coming.from, coming.number);
            let Stage::Telling { have, sent, got } = &mut coming.stage else { return };
            let first_bytes = have.len() as u64;
            if *sent == first_bytes || *sent - *got >= WINDOW_BYTES {
                return;
            }
            let position = *sent;
            let from = usize::try_from(position).expect("it is in memory");
            let bytes = have.slice(from..have.len().min(from + PIECE_BYTES_MAX));
            *sent += bytes.len() as u64;
            let piece = TransferSays::Piece { position, first_bytes, bytes };
            self.say_of_transfer(group, key, piece);
        }
    }

    /// The leader says something.
    pub(super) fn hear_sender(&mut self, now: Stamp, group: GroupId, says: TransferSays) {
        let coming = self.transfers().incoming.get_mut(&group).expect("the caller has looked");
        coming.heard = now.monotonic;
        match says {
            TransferSays::Got { position, .. } => {
                if let Stage::Telling { sent, got, .. } = &mut coming.stage {
                    *got = (*got).max(position.min(*sent));
                    self.say_have(group);
                }
            }
            TransferSays::Piece { position, first_bytes, bytes } => {
                if position == coming.received {
                    self.take_piece(group, first_bytes, bytes);
                }
            }
            TransferSays::End(_) if coming.is_at_its_end() => {}
            TransferSays::End(_) => self.abort_incoming(group),
            TransferSays::Offer { .. } => unreachable!("offers are heard elsewhere"),
        }
    }

    fn take_piece(&mut self, group: GroupId, head_bytes: u64, bytes: Bytes) {
        let coming = self.transfers().incoming.get_mut(&group).expect("the caller has looked");
        if matches!(coming.stage, Stage::Telling { .. }) {
            coming.stage = Stage::Heading { head: Vec::new(), head_bytes };
        }
        let length = bytes.len() as u64;
        let takes =
            matches!(coming.stage, Stage::Heading { .. } | Stage::Understanding | Stage::Files(_));
        let most = WINDOW_BYTES + PIECE_BYTES_MAX as u64;
        if !takes || head_bytes > FIRST_BYTES_MAX || coming.waiting_bytes + length > most {
            return self.lose_incoming(group);
        }
        coming.received += length;
        coming.waiting_bytes += length;
        coming.waiting.push(bytes);
        self.work_incoming(group);
    }

    /// Puts pieces in their place.
    fn work_incoming(&mut self, group: GroupId) {
        let Some(coming) = self.transfers().incoming.get_mut(&group) else { return };
        let key = (coming.from, coming.number);
        match &mut coming.stage {
            Stage::Heading { head, head_bytes } => {
                let mut rest = Vec::new();
                for mut bytes in std::mem::take(&mut coming.waiting) {
                    let room = usize::try_from(*head_bytes - head.len() as u64).expect("bounded");
                    let now = bytes.split_to(bytes.len().min(room));
                    head.extend_from_slice(&now);
                    (coming.written, coming.waiting_bytes) = (
                        coming.written + now.len() as u64,
                        coming.waiting_bytes - now.len() as u64,
                    );
                    rest.extend((!bytes.is_empty()).then_some(bytes));
                }
                coming.waiting = rest;
                let job = (head.len() as u64 == *head_bytes)
                    .then(|| TransferWork::UnderstandHead(std::mem::take(head)));
                let got = TransferSays::Got { position: coming.written, is_asked: false };
                if let Some(job) = job {
                    coming.stage = Stage::Understanding;
                    self.begin_incoming_job(group, job);
                }
                self.say_of_transfer(group, key, got);
            }
            Stage::Files(writing) if !coming.waiting.is_empty() => {
                if let Some(writing) = writing.take() {
                    let pieces = coming.take_waiting();
                    self.begin_incoming_job(group, TransferWork::Write(writing, pieces));
                }
            }
            _ => {}
        }
    }

    pub(super) fn note_receiver_job(&mut self, group: GroupId, job: u64, came: TransferCame) {
        let coming = self.transfers().incoming.get_mut(&group);
        let coming = coming.filter(|coming| coming.job == job);
        match (coming, came) {
            // It was given up while the job ran.
            (None, TransferCame::Written(writing, _)) => {
                self.log.abort_install(writing.into_install());
            }
            (None, _) => {}
            (Some(_), TransferCame::Looked(Ok(have))) => self.tell_have(group, have),
            (Some(_), TransferCame::UnderstoodHead(Some(head))) => self.begin_files(group, *head),
            (Some(_), TransferCame::Written(writing, written)) => {
                self.note_written(group, writing, written.is_ok());
            }
            (Some(_), TransferCame::Looked(Err(_)) | TransferCame::UnderstoodHead(None)) => {
                self.lose_incoming(group);
            }
            (Some(_), _) => unreachable!("a job of the other end"),
        }
    }

    fn begin_files(&mut self, group: GroupId, head: SnapshotHead) {
        let total = head.file_bytes();
        if head.group != group {
            return self.lose_incoming(group);
        }
        let copy = self.copy_mut(group);
        let takes_part = copy.halt.is_none() && !copy.has_nothing && !copy.is_empty_handed();
        let install = match self.log.begin_install(head) {
            Ok(install) => install,
            Err(InstallError::NotNewer { .. }) if takes_part => {
                return self.refuse_what_is_here(group);
            }
            Err(_) => return self.lose_incoming(group),
        };
        let coming = self.transfers().incoming.get_mut(&group).expect("the caller has looked");
        coming.total = coming.written + total;
        coming.stage = Stage::Files(Some(Box::new(Writing::new(install))));
        self.work_incoming(group);
    }

    /// All of the snapshot is applied here. The leader is to say so to its library: then entries continue behind it.
    fn refuse_what_is_here(&mut self, group: GroupId) {
        let Some(coming) = self.transfers().incoming.get(&group) else { return };
        let key = (coming.from, coming.number);
        self.abort_incoming(group);
        self.say_of_transfer(group, key, TransferSays::End(TransferEnd::Whole));
    }

    fn note_written(&mut self, group: GroupId, writing: Box<Writing>, is_written: bool) {
        let coming = self.transfers().incoming.get_mut(&group).expect("the caller has looked");
        let key = (coming.from, coming.number);
        if !is_written {
            coming.stage = Stage::Files(Some(writing));
            return self.lose_incoming(group);
        }
        coming.written = coming.received - coming.waiting_bytes;
        let position = coming.written;
        let says = if writing.is_whole() {
            coming.stage = Stage::Whole(Box::new(writing.into_install()));
            TransferSays::End(TransferEnd::Whole)
        } else {
            coming.stage = Stage::Files(Some(writing));
            TransferSays::Got { position, is_asked: false }
        };
        self.say_of_transfer(group, key, says);
        self.work_incoming(group);
    }

    pub(super) fn tick_incoming(&mut self, now: Stamp, group: GroupId) {
        let committed = self.log.committed_index(group);
        let copy = self.copy_mut(group);
        let is_halted = copy.halt.is_some() && !copy.is_empty_handed();
        let coming = &self.transfers().incoming[&group];
        let is_silent = now.monotonic.ms_since(coming.heard) >= SILENT_MS_MAX + ASK_MS;
        let is_late = match &coming.stage {
            Stage::Whole(install) => install.head.index <= committed,
            _ => false,
        };
        if !matches!(coming.stage, Stage::Frozen) && (is_silent || is_late || is_halted) {
            self.abort_incoming(group);
        }
    }

    /// It came to nothing here: the leader may begin again.
    pub(super) fn lose_incoming(&mut self, group: GroupId) {
        let Some(coming) = self.transfers().incoming.get(&group) else { return };
        let key = (coming.from, coming.number);
        self.abort_incoming(group);
        self.say_of_transfer(group, key, TransferSays::End(TransferEnd::Lost));
    }

    /// Gives a snapshot up. What a job has comes back with it.
    pub(in crate::replicated) fn abort_incoming(&mut self, group: GroupId) {
        let Some(coming) = self.transfers().incoming.remove(&group) else { return };
        match coming.stage {
            Stage::Files(Some(writing)) => self.log.abort_install(writing.into_install()),
            Stage::Whole(install) => self.log.abort_install(*install),
            Stage::Frozen => panic!("a snapshot that the log installs is not given up"),
            _ => {}
        }
    }
}
