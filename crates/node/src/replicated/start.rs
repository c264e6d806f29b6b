//! A copy continues where its log ends.

use super::copy::{GroupCopy, Halt, Pending};
use super::retire::halt_of;
use crate::Membership;
use cluster::{
    Change, Configuration, KIND_CHANGE, LogPosition, Note, Replica, ReplicaId, Start, Terms,
};
use log::{Damage, DamageKind, ShardLog};
use model::{EntryIndex, GroupId, Term};
use std::collections::BTreeMap;

/// What an entry weighs that was not looked at. Its bytes count for how much goes into one message, and a message that
/// becomes too long is cut.
const ENTRY_BYTES_ASSUMED: u32 = 1 << 10;

/// Bytes of entries that are read at once.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// Bits of the number of a question that count those of one opening.
const QUESTION_BITS: u32 = 40;

/// The copy of a group. Its log is applied up to where the log knows; `restored` is how far its state has come, and less if
/// a checkpoint is lost. `configuration` is the one there.
///
/// A group that has had one voter continues where it is: its first term was 1. Once others are members there is none: each group of
/// the first node was a copy before them, and one without a note has lost it.
pub(crate) fn to_copy(
    log: &ShardLog,
    (id, restored): (GroupId, EntryIndex),
    configuration: Configuration,
    (membership, damages): (&Membership, &[Damage]),
) -> GroupCopy {
    let found = log.last_note(id).map(note_of_log);
    let is_new = !log.is_replicated(id);
    let applied = log.applied_index(id);
    let ahead = Ahead::read(log, id, applied);
    let terms = ahead.as_ref().and_then(|ahead| terms_of(log, id, ahead));
    let is_hit = damages.iter().any(|damage| may_concern(damage, id));
    let is_damaged = match is_new {
        true if membership.is_founder() => !membership.is_alone(),
        true => is_hit,
        false => is_hit || found.is_none() || terms.is_none() || restored != applied,
    };
    let noted = log.last_note(id).and_then(|note| halt_of(note.vote));
    // What the log of a copy that is out says of terms and voters nobody asks for: it may contradict itself.
    let is_out = is_damaged || noted.is_some();
    let first = Note { term: Term::new(1), vote: None, commit: EntryIndex::new(0) };
    let note = found.unwrap_or(first);
    let changes = ahead.filter(|_| !is_out).map_or_else(BTreeMap::new, |ahead| ahead.changes);
    let mut configurations = vec![configuration.clone()];
    for change in changes.values() {
        let after = configurations.last().and_then(|before| before.after(change));
        configurations.extend(after);
    }
    let replica = Replica::new(Start {
        id: membership.replica_in(&configurations),
        seed: seed(membership.seed, id),
        configuration: configuration.clone(),
        note,
        terms: terms.filter(|_| !is_out).unwrap_or_else(|| Terms::new(at(applied, note.term))),
        applied,
        changes,
    });
    let question = membership.opening << QUESTION_BITS;
    // Behind the note of this opening no entry is without one.
    let pending = Pending { is_new, note: Some(note), ..Pending::default() };
    let mut copy = GroupCopy::new(replica, (applied, question), pending, configuration);
    copy.is_retired = noted.is_some();
    copy.halt = noted.or(is_damaged.then_some(Halt::Damage));
    copy
}

fn at(index: EntryIndex, term: Term) -> LogPosition {
    let term = if index.get() == 0 { Term::new(0) } else { term };
    LogPosition { index, term }
}

/// Groups of a node do not all time out at the same moment.
fn seed(seed: u64, id: GroupId) -> u64 {
    seed ^ (u64::from(id.get()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn note_of_log(note: log::Note) -> Note {
    Note { term: note.term, vote: ReplicaId::from_bits(note.vote), commit: note.commit }
}

/// What is behind the applied entries: it may commit, or never.
struct Ahead {
    /// Changes of the voters, by index.
    changes: BTreeMap<u64, Change>,
}

impl Ahead {
    /// Reads the entries behind `applied`: few are not committed at any time. `None` if one cannot be read.
    fn read(log: &ShardLog, id: GroupId, applied: EntryIndex) -> Option<Self> {
        let mut changes = BTreeMap::new();
        if !log.is_replicated(id) {
            return Some(Self { changes });
        }
        let mut next = applied.next();
        while next <= log.last_index(id) {
            for stored in log.entries(id, next, AHEAD_BYTES_MAX).ok()?.run().ok()? {
                let entry = stored.entry();
                if entry.kind == KIND_CHANGE {
                    changes.insert(entry.index.get(), Change::decode(&entry.command).ok()?);
                }
                next = entry.index.next();
            }
        }
        Some(Self { changes })
    }
}

/// Index and term of the entries of the log; `None` if some are not known.
fn terms_of(log: &ShardLog, id: GroupId, ahead: &Ahead) -> Option<Terms> {
    let last = log.last_index(id);
    let base = log.first_index(id).map_or(last.get(), |first| first.get() - 1);
    let base = EntryIndex::new(base);
    let base_term = match base.get() {
        0 => Term::new(0),
        // All entries of a group that has had one voter are of the first term.
        _ if !log.is_replicated(id) => Term::new(1),
        _ => log.term_of(id, base)?,
    };
    let mut terms = Terms::new(LogPosition { index: base, term: base_term });
    for index in (base.get() + 1..=last.get()).map(EntryIndex::new) {
        let place = LogPosition { index, term: log.term_of(id, index)? };
        terms.push(place, ENTRY_BYTES_ASSUMED, ahead.changes.contains_key(&index.get()));
    }
    Some(terms)
}

/// Whether something of the group may be lost that this node had synced.
pub(crate) fn may_concern(damage: &Damage, id: GroupId) -> bool {
    let is_harmless = matches!(damage.kind, DamageKind::HeaderRepaired | DamageKind::FormatCopy);
    !is_harmless && damage.group.is_none_or(|group| group == id)
}
