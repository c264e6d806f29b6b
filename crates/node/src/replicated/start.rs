//! A copy continues where its log ends.

use super::copy::{GroupCopy, Halt, Pending};
use super::retire::RETIRED;
use crate::Membership;
use cluster::{Configuration, LogPosition, Note, Replica, ReplicaId, Start, Terms};
use log::{Damage, DamageKind, ShardLog};
use model::{EntryIndex, GroupId, Term};
use std::collections::BTreeMap;

/// What an entry weighs that was not looked at. Its bytes count for how much goes into one message, and a message that
/// becomes too long is cut.
const ENTRY_BYTES_ASSUMED: u32 = 1 << 10;

/// Bits of the number of a question that count those of one opening.
const QUESTION_BITS: u32 = 40;

/// The copy of a group. Its log is applied up to where the log knows; `restored` is how far its state has come, and less if
/// a checkpoint is lost. `configuration` is the one there, if a checkpoint has it.
pub(crate) fn to_copy(
    log: &ShardLog,
    (id, restored): (GroupId, EntryIndex),
    configuration: Option<Configuration>,
    (membership, damages): (&Membership, &[Damage]),
) -> GroupCopy {
    let found = log.last_note(id).map(note_of_log);
    let terms = terms_of(log, id);
    let is_new = !log.is_replicated(id);
    let applied = log.applied_index(id);
    let is_damaged = damages.iter().any(|damage| may_concern(damage, id))
        || (!is_new && (found.is_none() || terms.is_none() || restored != applied));
    let first = Note { term: Term::new(1), vote: None, commit: EntryIndex::new(0) };
    let note = found.unwrap_or(first);
    let own = membership.replica();
    let replica = Replica::new(Start {
        id: own,
        seed: seed(membership.seed, id),
        configuration: configuration.unwrap_or_else(|| Configuration::of(&membership.voters)),
        note,
        terms: terms.filter(|_| !is_damaged).unwrap_or_else(|| Terms::new(at(applied, note.term))),
        applied,
        changes: BTreeMap::new(),
    });
    let question = membership.opening << QUESTION_BITS;
    // Behind the note of this opening no entry is without one.
    let pending = Pending { is_new, note: Some(note), ..Pending::default() };
    let mut copy = GroupCopy::new(replica, (applied, question), pending);
    copy.is_retired = log.last_note(id).is_some_and(|note| note.vote == RETIRED);
    copy.halt = (is_damaged || copy.is_retired).then_some(Halt::Damage);
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

/// Index and term of the entries of the log; `None` if some are not known.
fn terms_of(log: &ShardLog, id: GroupId) -> Option<Terms> {
    let last = log.last_index(id);
    let base = log.first_index(id).map_or(last.get(), |first| first.get() - 1);
    let base = EntryIndex::new(base);
    let base_term = if base.get() == 0 { Term::new(0) } else { log.term_of(id, base)? };
    let mut terms = Terms::new(LogPosition { index: base, term: base_term });
    for index in (base.get() + 1..=last.get()).map(EntryIndex::new) {
        let place = LogPosition { index, term: log.term_of(id, index)? };
        terms.push(place, ENTRY_BYTES_ASSUMED, false);
    }
    Some(terms)
}

/// Whether something of the group may be lost that this node had synced.
fn may_concern(damage: &Damage, id: GroupId) -> bool {
    let is_harmless = matches!(damage.kind, DamageKind::HeaderRepaired | DamageKind::FormatCopy);
    !is_harmless && damage.group.is_none_or(|group| group == id)
}
