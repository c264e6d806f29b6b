//! Idempotent producers of one stream. PROTOCOL §5.2.1.
//!
//! # Invariants
//! - A producer's epoch never falls; within an epoch its last sequence never falls.
//! - As many are remembered as the group's log says ([`crate::Command::KeepProducers`]). The one unused for
//!   longest goes first, decided by entry indexes. So every replica forgets the same one, and so does recovery.

use crate::{Producer, Refusal};
use model::{ByteOffset, EntryIndex};
use std::collections::BTreeMap;

/// What is remembered of one producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub epoch: u64,
    pub last_seq: u64,
    pub used: EntryIndex,
    pub receipt: Receipt,
}

/// The place of the last append that was accepted: a repetition is answered with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub start: ByteOffset,
    pub first_record: u64,
    pub bytes: u32,
    pub records: u32,
}

impl Receipt {
    /// Number of its first record, and of the one behind it.
    pub(crate) fn record_range(&self) -> (u64, u64) {
        (self.first_record, self.first_record + u64::from(self.records))
    }

    /// Where the append ends.
    pub(crate) fn end(&self) -> ByteOffset {
        self.start.advance(self.bytes.into())
    }
}

/// What a producer's numbers say about an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    Fresh,
    Duplicate(Repeat),
}

/// An append that was accepted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// The highest sequence that was accepted.
    pub last_seq: u64,
    /// Where the repeated append is, if it is the one with that sequence.
    pub receipt: Option<Receipt>,
}

/// The producers of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers(BTreeMap<Box<str>, ProducerState>);

impl Producers {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &ProducerState)> {
        self.0.iter().map(|(id, state)| (&**id, state))
    }

    pub(crate) fn restore(&mut self, id: Box<str>, state: ProducerState) {
        self.0.insert(id, state);
    }

    /// Whether the producer's epoch has been fenced off. PROTOCOL §5.2.1: this is answered even
    /// by a closed stream, so that a zombie learns of its successor.
    pub(crate) fn fence(&self, producer: &Producer) -> Result<(), Refusal> {
        match self.0.get(&producer.id) {
            Some(known) if producer.epoch < known.epoch => {
                Err(Refusal::StaleEpoch { current: known.epoch })
            }
            _ => Ok(()),
        }
    }

    /// What is known of this append, if its numbers were accepted before.
    pub(crate) fn duplicate_of(&self, producer: &Producer) -> Option<Repeat> {
        let known = self.0.get(&producer.id)?;
        let is_repeat = known.epoch == producer.epoch && producer.seq <= known.last_seq;
        let receipt = (producer.seq == known.last_seq).then_some(known.receipt);
        is_repeat.then_some(Repeat { last_seq: known.last_seq, receipt })
    }

    /// Judges the numbers of an append. PROTOCOL §5.2.1, "Validation Logic".
    pub(crate) fn judge(&self, producer: &Producer) -> Result<Numbering, Refusal> {
        self.fence(producer)?;
        if let Some(repeat) = self.duplicate_of(producer) {
            return Ok(Numbering::Duplicate(repeat));
        }
        let received = producer.seq;
        match self.0.get(&producer.id) {
            None if received == 0 => Ok(Numbering::Fresh),
            None => Err(Refusal::SeqGap { expected: 0, received }),
            Some(known) if producer.epoch > known.epoch => {
                if received == 0 {
                    Ok(Numbering::Fresh)
                } else {
                    Err(Refusal::EpochStart { received })
                }
            }
            Some(known) if received == known.last_seq + 1 => Ok(Numbering::Fresh),
            Some(known) => Err(Refusal::SeqGap { expected: known.last_seq + 1, received }),
        }
    }

    /// Remembers an accepted append, and at most `count_max` producers.
    pub(crate) fn accept(
        &mut self,
        producer: &Producer,
        (used, receipt): (EntryIndex, Receipt),
        count_max: u32,
    ) {
        let state = ProducerState { epoch: producer.epoch, last_seq: producer.seq, used, receipt };
        if let Some(known) = self.0.get_mut(&producer.id) {
            *known = state;
            return;
        }
        let count_max = usize::try_from(count_max).expect("counts have 32 bits").max(1);
        if self.0.len() >= count_max {
            self.forget_oldest(self.0.len() + 1 - count_max);
        }
        self.0.insert(producer.id.clone(), state);
    }

    /// Forgets the `count` producers that were unused for longest. No two were used by the same entry.
    fn forget_oldest(&mut self, count: usize) {
        let mut used: Vec<EntryIndex> = self.0.values().map(|state| state.used).collect();
        let (_, newest_to_go, _) = used.select_nth_unstable(count - 1);
        let newest_to_go = *newest_to_go;
        self.0.retain(|_, state| state.used > newest_to_go);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(epoch: u64, seq: u64) -> Producer {
        Producer { id: "p".into(), epoch, seq }
    }

    /// The append number `seq` of ten bytes.
    fn receipt(seq: u64) -> Receipt {
        Receipt { start: ByteOffset::new(seq * 10), first_record: seq, bytes: 10, records: 1 }
    }

    fn after(accepted: &[(u64, u64)]) -> Producers {
        let mut producers = Producers::default();
        for (epoch, seq) in accepted {
            let used = (EntryIndex::new(1), receipt(*seq));
            producers.accept(&numbers(*epoch, *seq), used, 10);
        }
        producers
    }

    #[test]
    fn a_producer_starts_at_sequence_zero() {
        let none = Producers::default();
        assert_eq!(none.judge(&numbers(3, 0)), Ok(Numbering::Fresh));
        let gap = Refusal::SeqGap { expected: 0, received: 2 };
        assert_eq!(none.judge(&numbers(0, 2)), Err(gap));
    }

    #[test]
    fn a_repeat_answers_the_highest_sequence_and_the_last_one_its_place() {
        let producers = after(&[(0, 0), (0, 1), (0, 2)]);
        let repeat = |receipt| Ok(Numbering::Duplicate(Repeat { last_seq: 2, receipt }));
        assert_eq!(producers.judge(&numbers(0, 1)), repeat(None));
        assert_eq!(producers.judge(&numbers(0, 2)), repeat(Some(receipt(2))));
    }

    #[test]
    fn a_gap_names_the_sequence_that_is_missing() {
        let producers = after(&[(0, 0), (0, 1)]);
        let gap = Refusal::SeqGap { expected: 2, received: 3 };
        assert_eq!(producers.judge(&numbers(0, 3)), Err(gap));
        assert_eq!(producers.judge(&numbers(0, 2)), Ok(Numbering::Fresh));
    }

    #[test]
    fn a_newer_epoch_fences_the_older_and_starts_at_zero() {
        let producers = after(&[(1, 0)]);
        assert_eq!(producers.judge(&numbers(0, 1)), Err(Refusal::StaleEpoch { current: 1 }));
        assert_eq!(producers.judge(&numbers(2, 1)), Err(Refusal::EpochStart { received: 1 }));
        assert_eq!(producers.judge(&numbers(2, 0)), Ok(Numbering::Fresh));
    }

    #[test]
    fn the_producer_unused_for_longest_makes_room() {
        let mut producers = Producers::default();
        let accept = |producers: &mut Producers, (id, seq): (&str, u64), used, count_max| {
            let producer = Producer { id: id.into(), epoch: 0, seq };
            producers.accept(&producer, (EntryIndex::new(used), receipt(seq)), count_max);
        };
        let left = |producers: &Producers| {
            producers.iter().map(|(id, _)| id.to_owned()).collect::<Vec<_>>()
        };
        for (used, from) in [(1, ("a", 0)), (2, ("b", 0)), (3, ("c", 0)), (4, ("a", 1))] {
            accept(&mut producers, from, used, 3);
        }
        assert_eq!(left(&producers), ["a", "b", "c"]);
        accept(&mut producers, ("d", 0), 5, 3);
        assert_eq!(left(&producers), ["a", "c", "d"], "b was unused for longest");
        accept(&mut producers, ("e", 0), 6, 2);
        assert_eq!(left(&producers), ["d", "e"], "the limit was lowered");
    }
}
