//! The end of a snapshot's way at the leader.

use super::limits::{
    ASK_MS, BARE_MS, CHECKPOINT_MS, FIRST_BYTES_MAX, REST_MS, SILENT_MS_MAX, TRANSFERS_MAX,
    WINDOW_BYTES,
};
use super::rebuilt::row_ends;
use super::source::Source;
use super::way::JobOf;
use crate::owner_header::{OwnerHeader, decode_configuration};
use crate::replicated::Halt;
use crate::transfer_job::{TransferCame, TransferWork};
use crate::{ShardCore, Stamp};
use bytes::Bytes;
use cluster::{
    Configuration, LogPosition, PIECE_BYTES_MAX, ReplicaId, SnapshotPoint, TransferEnd,
    TransferSays,
};
use log::{Export, ExportError, Tails};
use model::{GroupId, Monotonic, Term};
use std::sync::Arc;

/// A snapshot that leaves.
#[derive(Debug)]
pub(super) struct Outgoing {
    number: u64,
    term: Term,
    stage: Stage,
    /// When the receiver was heard last, and asked last.
    heard: Monotonic,
    asked: Monotonic,
}

#[derive(Debug)]
enum Stage {
    /// The receiver says what it has.
    Asking {
        have: Vec<u8>,
    },
    /// A job works on it.
    Preparing {
        have: Vec<u8>,
    },
    /// A newer checkpoint is needed first.
    Waiting {
        have: Vec<u8>,
        since: Monotonic,
    },
    Sending(Box<Sending>),
    /// All is with the receiver: the library is to tell it.
    Offered {
        point: SnapshotPoint,
    },
    /// The receiver needs nothing: a message of the library is to find that out.
    Bare {
        since: Monotonic,
    },
}

#[derive(Debug)]
struct Sending {
    source: Arc<Source>,
    point: SnapshotPoint,
    sent: u64,
    /// Up to where the receiver has written it.
    got: u64,
    /// What was read from `sent` on.
    ahead: Bytes,
    is_reading: bool,
}

/// A snapshot that leaves, by group and receiver.
type Key = (GroupId, ReplicaId);

impl Outgoing {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// What the receiver has said so far.
    fn have_bytes(&self) -> u64 {
        match &self.stage {
            Stage::Asking { have } => have.len() as u64,
            _ => 0,
        }
    }
}

impl ShardCore {
    /// Begins what libraries ask for.
    pub(super) fn begin_wanted(&mut self, now: Stamp) {
        for group in self.replicated_groups() {
            let copy = self.copy_mut(group);
            if !copy.is_running() || !copy.replica.is_leader() {
                continue;
            }
            let wanted = copy.replica.wanted_snapshots();
            if wanted.is_empty() {
                continue;
            }
            let term = copy.replica.term();
            let configuration = copy.replica.configuration().clone();
            for to in wanted {
                if !configuration.contains(to) || !self.is_present(group, to) {
                    continue;
                }
                let transfers = self.transfers();
                let is_known = transfers.outgoing.contains_key(&(group, to));
                let rests = transfers.resting.contains_key(&(group, to));
                if is_known || rests || transfers.outgoing.len() >= TRANSFERS_MAX {
                    continue;
                }
                transfers.last_number += 1;
                let number = transfers.last_number;
                let (heard, asked) = (now.monotonic, now.monotonic);
                let stage = Stage::Asking { have: Vec::new() };
                let outgoing = Outgoing { number, term, stage, heard, asked };
                transfers.outgoing.insert((group, to), outgoing);
                self.ask_receiver(now, (group, to));
            }
        }
    }

    /// Whether a replica's id is the last one that its node was given.
    fn is_present(&mut self, group: GroupId, id: ReplicaId) -> bool {
        self.members().meta().is_none_or(|meta| meta.replica(group, id.node()) <= id)
    }

    /// Offers, for the first time or again.
    pub(super) fn ask_receiver(&mut self, now: Stamp, key: Key) {
        let Some(out) = self.transfers().outgoing.get_mut(&key) else { return };
        out.asked = now.monotonic;
        let is_begun = !matches!(out.stage, Stage::Asking { .. });
        let says = TransferSays::Offer { is_begun, position: out.have_bytes() };
        let number = out.number;
        self.say_of_transfer(key.0, (key.1, number), says);
    }

    /// It is over: the library learns of it (rule 4), and may ask again.
    fn end_outgoing(&mut self, now: Stamp, key: Key) {
        if !self.forget_outgoing(key) {
            return;
        }
        self.transfers().resting.insert(key, now.monotonic.plus_ms(REST_MS));
        self.fail_offer(key);
    }

    fn forget_outgoing(&mut self, key: Key) -> bool {
        let outgoing = &mut self.transfers().outgoing;
        let was_there = outgoing.remove(&key).is_some();
        if outgoing.keys().all(|(group, _)| *group != key.0) {
            // Entries need not be kept any more.
            let _ = self.log.keep_from(key.0, None);
        }
        was_there
    }

    fn fail_offer(&mut self, (group, to): Key) {
        let copy = self.copy_mut(group);
        if copy.leads() {
            copy.replica.snapshot_failed(to);
            self.touch_group(group);
        }
    }

    pub(super) fn tick_outgoing(&mut self, now: Stamp, key: Key) {
        let Some(out) = self.transfers().outgoing.get(&key) else { return };
        let (term, heard, asked) = (out.term, out.heard, out.asked);
        let ms_since = |then| now.monotonic.ms_since(then);
        let (is_quiet, is_late) = match &out.stage {
            Stage::Asking { .. } | Stage::Sending(_) | Stage::Offered { .. } => (true, false),
            Stage::Preparing { .. } => (false, false),
            Stage::Waiting { since, .. } => (false, ms_since(*since) >= CHECKPOINT_MS),
            Stage::Bare { since } => (ms_since(*since) >= BARE_MS, false),
        };
        let is_bare = matches!(out.stage, Stage::Bare { .. });
        let copy = self.copy_mut(key.0);
        // A group that has removed the replica meanwhile has nothing for it any more.
        let is_replica = copy.replica.configuration().contains(key.1);
        let leads = copy.leads() && copy.replica.term() == term && is_replica;
        let is_present = self.is_present(key.0, key.1);
        if !leads || self.is_caught_up(key) {
            self.forget_outgoing(key);
        } else if is_quiet && (is_bare || ms_since(heard) >= SILENT_MS_MAX || !is_present) {
            self.end_outgoing(now, key);
        } else {
            if is_late {
                self.understand(key);
            }
            if !is_bare && ms_since(heard.max(asked)) >= ASK_MS {
                self.ask_receiver(now, key);
            }
            self.send_pieces(now, key);
        }
    }

    /// Whether the receiver has acknowledged what the snapshot has.
    fn is_caught_up(&mut self, key: Key) -> bool {
        let index = match &self.transfers().outgoing[&key].stage {
            Stage::Sending(sending) => sending.point.last.index,
            Stage::Offered { point } => point.last.index,
            _ => return false,
        };
        let followers = self.copy_mut(key.0).replica.followers();
        followers.iter().any(|follower| follower.id == key.1 && follower.matched >= index)
    }

    /// The receiver says something.
    pub(super) fn hear_receiver(&mut self, now: Stamp, key: Key, says: TransferSays) {
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        out.heard = now.monotonic;
        match says {
            TransferSays::Piece { position, first_bytes, bytes } => {
                self.hear_have(now, key, (position, first_bytes, &bytes));
            }
            TransferSays::Got { position, is_asked } => self.hear_got(now, key, position, is_asked),
            TransferSays::End(TransferEnd::Whole) => self.offer_to_library(key),
            TransferSays::End(TransferEnd::Busy) => {
                if matches!(out.stage, Stage::Asking { .. }) {
                    self.end_outgoing(now, key);
                }
            }
            TransferSays::End(TransferEnd::Lost) => self.end_outgoing(now, key),
            TransferSays::Offer { .. } => unreachable!("offers are heard elsewhere"),
        }
    }

    fn hear_have(&mut self, now: Stamp, key: Key, (position, total, bytes): (u64, u64, &[u8])) {
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        let number = out.number;
        let Stage::Asking { have } = &mut out.stage else { return };
        let is_next = position == have.len() as u64;
        if total > FIRST_BYTES_MAX || position.saturating_add(bytes.len() as u64) > total {
            return self.end_outgoing(now, key);
        }
        if is_next {
            have.extend_from_slice(bytes);
        }
        let position = have.len() as u64;
        let got = TransferSays::Got { position, is_asked: false };
        self.say_of_transfer(key.0, (key.1, number), got);
        if position == total {
            self.understand(key);
        }
    }

    /// What the receiver has said is read, and then exported against.
    fn understand(&mut self, key: Key) {
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        let (Stage::Asking { have } | Stage::Waiting { have, .. } | Stage::Preparing { have }) =
            &mut out.stage
        else {
            return;
        };
        let have = std::mem::take(have);
        out.stage = Stage::Preparing { have: have.clone() };
        let of = JobOf::Outgoing(key.0, key.1, out.number);
        self.begin_job(of, TransferWork::Understand(have));
    }

    pub(super) fn note_sender_job(&mut self, key: Key, number: u64, came: TransferCame) {
        let now = self.members().now;
        let out = self.transfers().outgoing.get_mut(&key);
        let Some(out) = out.filter(|out| out.number == number) else { return };
        match came {
            TransferCame::Understood(None) => self.end_outgoing(now, key),
            TransferCame::Understood(Some(have)) => self.export(now, key, have),
            TransferCame::Exported(exported) => match exported {
                Ok((export, head)) => self.begin_sending(now, key, (*export, head)),
                Err(error) => self.note_no_export(now, key, &error),
            },
            TransferCame::Read(position, bytes) => {
                let Stage::Sending(sending) = &mut out.stage else { return };
                sending.is_reading = false;
                match bytes {
                    Ok(bytes) if position == sending.sent => sending.ahead = bytes,
                    // The receiver has said meanwhile that it is elsewhere.
                    Ok(_) => {}
                    Err(_) => return self.end_outgoing(now, key),
                }
                self.send_pieces(now, key);
            }
            _ => unreachable!("a job of the other end"),
        }
    }

    fn export(&mut self, now: Stamp, key: Key, have: Tails) {
        let (group, to) = key;
        let sealed = have.sealed;
        let copy = self.copy_mut(group);
        let has_log = sealed.get() > 0 && !copy.replica.is_empty_handed(to);
        if let Some(term) = copy.replica.term_of(sealed).filter(|_| has_log) {
            // It has as much as the log begins with. A message of a snapshot that it need not install says so to the library.
            let last = LogPosition { index: sealed, term };
            let configuration = copy.replica.configuration().clone();
            let point = SnapshotPoint { last, configuration };
            return self.offer_bare(now, key, point);
        }
        match self.log.export(group, have, row_ends) {
            Ok(job) => {
                let number = self.transfers().outgoing[&key].number;
                let of = JobOf::Outgoing(group, to, number);
                self.begin_job(of, TransferWork::Export(Box::new(job)));
            }
            Err(error) => self.note_no_export(now, key, &error),
        }
    }

    fn note_no_export(&mut self, now: Stamp, key: Key, error: &ExportError) {
        match error {
            ExportError::NoCheckpoint => self.wait_for_checkpoint(now, key),
            ExportError::Replaced => self.understand(key),
            ExportError::Damaged { .. } => {
                self.end_outgoing(now, key);
                self.halt(key.0, Halt::Damage);
                self.touch_group(key.0);
            }
            ExportError::NotReplicated | ExportError::Io(_) => self.end_outgoing(now, key),
        }
    }

    /// The export needs another checkpoint than there is.
    fn wait_for_checkpoint(&mut self, now: Stamp, key: Key) {
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        let Stage::Preparing { have } = &mut out.stage else { return };
        out.stage = Stage::Waiting { have: std::mem::take(have), since: now.monotonic };
        let may = self.copy_mut(key.0).may_checkpoint();
        if may && self.checkpoint.is_none() && !self.copies_rows(key.0) {
            self.begin_checkpoint(key.0);
        }
    }

    /// A checkpoint of a group is durable: snapshots that wait for it continue.
    pub(crate) fn note_checkpointed(&mut self, group: GroupId) {
        if self.replication.is_none() {
            return;
        }
        let outgoing = self.transfers().outgoing.iter();
        let waits = outgoing
            .filter(|((of, _), out)| *of == group && matches!(out.stage, Stage::Waiting { .. }));
        let waiting: Vec<Key> = waits.map(|(key, _)| *key).collect();
        waiting.into_iter().for_each(|key| self.understand(key));
    }

    fn begin_sending(&mut self, now: Stamp, key: Key, (export, head): (Export, Bytes)) {
        let (group, to) = key;
        if self.lacks_bytes(group, &export) {
            self.end_outgoing(now, key);
            // Until it has applied what was committed before, it does not know what was trimmed.
            if self.copy_mut(group).is_serving() {
                self.halt(group, Halt::Damage);
            }
            return self.touch_group(group);
        }
        let Some(configuration) = configuration_of(&export).filter(|it| it.contains(to)) else {
            return self.wait_for_checkpoint(now, key);
        };
        if head.len() as u64 > FIRST_BYTES_MAX {
            return self.end_outgoing(now, key);
        }
        let last = LogPosition { index: export.head.index, term: export.head.term };
        let point = SnapshotPoint { last, configuration };
        let source = Arc::new(Source::new(head, export));
        let (ahead, is_reading) = (Bytes::new(), false);
        let sending = Sending { source, point, sent: 0, got: 0, ahead, is_reading };
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        out.stage = Stage::Sending(Box::new(sending));
        // Entries behind it are kept while the log has room: it shall be of use when it is there.
        let _ = self.log.keep_from(group, Some(last.index.next()));
        self.send_pieces(now, key);
    }

    /// Whether bytes are in no chunk that the state still needs: the stream was not deleted since, nor trimmed so far.
    fn lacks_bytes(&self, group: GroupId, export: &Export) -> bool {
        let state = &self.groups.get(group).state;
        export.gone.iter().any(|(stream, to)| state.floor(*stream).is_some_and(|floor| floor < *to))
    }

    fn hear_got(&mut self, now: Stamp, key: Key, position: u64, is_asked: bool) {
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        let Stage::Sending(sending) = &mut out.stage else { return };
        if position > sending.sent {
            // Nobody says that of what was not sent.
            return self.end_outgoing(now, key);
        }
        if !is_asked {
            sending.got = sending.got.max(position);
        } else if position < sending.sent {
            (sending.sent, sending.ahead) = (position, Bytes::new());
            self.transfers().counts.resumed += 1;
        }
        self.send_pieces(now, key);
    }

    /// Sends what the window and the pace allow.
    fn send_pieces(&mut self, now: Stamp, key: Key) {
        self.transfers().pace.fill(now.monotonic);
        loop {
            let transfers = self.transfers();
            let Some(out) = transfers.outgoing.get_mut(&key) else { return };
            let Stage::Sending(sending) = &mut out.stage else { return };
            let Sending { source, sent, got, ahead, is_reading, .. } = &mut **sending;
            if *sent == source.bytes() || sent.saturating_sub(*got) >= WINDOW_BYTES {
                return;
            }
            let number = out.number;
            if ahead.is_empty() {
                if !std::mem::replace(is_reading, true) {
                    let work = TransferWork::Read { source: Arc::clone(source), position: *sent };
                    self.begin_job(JobOf::Outgoing(key.0, key.1, number), work);
                }
                return;
            }
            let length = ahead.len().min(PIECE_BYTES_MAX);
            if !transfers.pace.take(length as u64) {
                return;
            }
            transfers.counts.sent_bytes += length as u64;
            let (position, first_bytes) = (*sent, source.head_bytes());
            let bytes = ahead.split_to(length);
            *sent += length as u64;
            let piece = TransferSays::Piece { position, first_bytes, bytes };
            self.say_of_transfer(key.0, (key.1, number), piece);
        }
    }

    /// All is with the receiver.
    fn offer_to_library(&mut self, key: Key) {
        let point = match &self.transfers().outgoing[&key].stage {
            Stage::Sending(sending) => sending.point.clone(),
            Stage::Offered { point } => {
                // The library's message was lost.
                let point = point.clone();
                self.fail_offer(key);
                point
            }
            _ => return,
        };
        self.begin_offer(key, point);
    }

    fn begin_offer(&mut self, key: Key, point: SnapshotPoint) {
        if self.may_offer(key, &point) {
            let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
            out.stage = Stage::Offered { point };
        }
    }

    fn offer_bare(&mut self, now: Stamp, key: Key, point: SnapshotPoint) {
        let number = self.transfers().outgoing[&key].number;
        self.say_of_transfer(key.0, (key.1, number), TransferSays::End(TransferEnd::Lost));
        if !self.may_offer(key, &point) {
            return self.end_outgoing(now, key);
        }
        let out = self.transfers().outgoing.get_mut(&key).expect("the caller has looked");
        out.stage = Stage::Bare { since: now.monotonic };
    }

    /// Tells the library that a snapshot lies ready. If that cannot be now, it is when the receiver says so again.
    fn may_offer(&mut self, (group, to): Key, point: &SnapshotPoint) -> bool {
        let copy = self.copy_mut(group);
        let may = copy.is_running()
            && copy.replica.is_leader()
            && copy.replica.offer_snapshot(to, point.clone());
        self.touch_group(group);
        may
    }
}

/// The configuration at a checkpoint; `None` if it has none, or one that only a newer version knows.
fn configuration_of(export: &Export) -> Option<Configuration> {
    let header = OwnerHeader::decode(&export.header).ok()?;
    decode_configuration(header.cluster?).ok()
}
