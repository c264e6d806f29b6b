//! An append: judged without changing anything, before it is logged and when it is applied, and then
//! applied. PROTOCOL §5.2.

use crate::{
    Accepted, Append, Applied, Condition, EndState, GroupState, Outcome, Producer, Refusal,
    group::{Mark, visible},
    producer::{Numbering, Receipt, Repeat},
    record::{Extra, NO_EXTRA, StreamRecord},
};
use model::{GroupId, Placement, StreamId, StreamKey};

impl GroupState {
    /// The answer to an append that would change nothing, else `None`.
    #[must_use]
    pub fn check_append(
        &self,
        stream: StreamId,
        append: &Append,
        data_bytes: u64,
    ) -> Option<Outcome> {
        let Some(record) = self.streams.get(stream) else {
            return Some(Outcome::Refused(Refusal::NotFound));
        };
        match judge((self.group, record), append, data_bytes) {
            Verdict::Accept => None,
            Verdict::Answer(outcome) => Some(outcome),
        }
    }

    pub(crate) fn apply_append(
        &mut self,
        mark: Mark,
        stream: StreamId,
        append: &Append,
        data_bytes: u64,
    ) -> Applied {
        if self.losses.is_lost(stream) {
            return Applied::refuse(Refusal::Damaged);
        }
        let (group, producers_max) = (self.group, self.producers_max);
        let Some(record) = self.streams.get_mut(stream) else {
            return Applied::refuse(Refusal::NotFound);
        };
        if let Verdict::Answer(outcome) = judge((group, record), append, data_bytes) {
            return Applied::answer(outcome);
        }
        let (start, first_record) = (record.tail, record.next_record);
        let record_count = append.record_count;
        let marks = match data_bytes {
            0 => None,
            _ => record.mark_times(append.record_time, mark.at),
        };
        record.tail = start.advance(data_bytes);
        record.next_record += u64::from(record_count);
        record.closed |= append.close;
        record.written_at = record.written_at.get().max(mark.at).into();
        if let Some(seq) = &append.stream_seq {
            record.extra_mut().stream_seq = Some(seq.clone());
        }
        if let Some(producer) = &append.producer {
            let bytes = u32::try_from(data_bytes).expect("an append is below 4 GiB");
            let receipt = Receipt { start, first_record, bytes, records: record_count };
            record.extra_mut().producers.accept(producer, (mark.index, receipt), producers_max);
        }
        let placement = Placement { stream, start, first_record, record_count, marks };
        let accepted = Accepted {
            stream,
            tail: record.tail,
            records: Some((first_record, record.next_record)),
            closed: record.closed,
            producer: append.producer.as_ref().map(|producer| (producer.epoch, producer.seq)),
            duplicate: false,
            close_only: data_bytes == 0,
        };
        Applied {
            outcome: Outcome::Appended(accepted),
            placement: (data_bytes > 0).then_some(placement),
            visible: Some(visible(record)),
            effect: None,
        }
    }
}

/// What an append would do.
enum Verdict {
    /// Add the data, the close and the writer's state.
    Accept,
    /// Nothing: this is the answer.
    Answer(Outcome),
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        Self::Answer(Outcome::Refused(refusal))
    }
}

/// Judges `append` with `data_bytes` bytes against the stream as it is.
///
/// The order of the checks is the protocol's: a fenced producer learns of it first, then repeats
/// are recognised, then closed, content type, producer numbers, `Stream-Seq`. What the append wants of the stream
/// besides comes last: a repeat is one although the stream has grown since.
fn judge((group, record): (GroupId, &StreamRecord), append: &Append, data_bytes: u64) -> Verdict {
    if record.deleted {
        return Refusal::Gone.into();
    }
    let extra = record.extra.as_deref().unwrap_or(&NO_EXTRA);
    if let Some(producer) = &append.producer
        && let Err(refusal) = extra.producers.fence(producer)
    {
        return refusal.into();
    }
    if record.closed {
        return judge_closed(record, extra, append, data_bytes);
    }
    if let Some(refusal) = wrong_content_type(record, append, data_bytes) {
        return refusal.into();
    }
    if let Some(producer) = &append.producer {
        match extra.producers.judge(producer) {
            Ok(Numbering::Fresh) => {}
            Ok(Numbering::Duplicate(repeat)) => {
                return duplicate(record, Some((producer, repeat)), data_bytes);
            }
            Err(refusal) => return refusal.into(),
        }
    }
    match (&append.stream_seq, &extra.stream_seq) {
        // PROTOCOL §5.2: bytewise lexicographic, strictly increasing. Our scope is the stream.
        (Some(seq), Some(last)) if seq.as_bytes() <= last.as_bytes() => {
            return Refusal::StreamSeq { last: last.clone() }.into();
        }
        _ => {}
    }
    match append.condition.as_ref().map(|condition| judge_condition(condition, group, record)) {
        Some(Err(refusal)) => refusal.into(),
        Some(Ok(())) | None => Verdict::Accept,
    }
}

/// PROTOCOL §5.2.1: the tuple that closed the stream, and any before it, is answered as a repeat
/// even if its body differs. A close without data is idempotent. Anything else is refused.
fn judge_closed(record: &StreamRecord, extra: &Extra, append: &Append, data_bytes: u64) -> Verdict {
    if let Some(producer) = &append.producer
        && let Some(repeat) = extra.producers.duplicate_of(producer)
    {
        return duplicate(record, Some((producer, repeat)), data_bytes);
    }
    if append.close && data_bytes == 0 && append.producer.is_none() {
        return duplicate(record, None, data_bytes);
    }
    Refusal::Closed { tail: record.tail }.into()
}

fn wrong_content_type(record: &StreamRecord, append: &Append, data_bytes: u64) -> Option<Refusal> {
    // PROTOCOL §5.2: a close without data must not be refused for its content type.
    if data_bytes == 0 || append.content_type.fits(record) {
        return None;
    }
    Some(Refusal::ContentType { expected: record.content_type() })
}

/// The answer to what was accepted before: with its own place, if that is known.
fn duplicate(
    record: &StreamRecord,
    repeat: Option<(&Producer, Repeat)>,
    data_bytes: u64,
) -> Verdict {
    let receipt = repeat.and_then(|(_, repeat)| repeat.receipt);
    let tail = receipt.map_or(record.tail, |receipt| receipt.end());
    Verdict::Answer(Outcome::Appended(Accepted {
        stream: record.id,
        tail,
        records: receipt.map(|receipt| receipt.record_range()),
        // With the end of the stream alone: a client takes the two together.
        closed: record.closed && tail == record.tail,
        producer: repeat.map(|(producer, repeat)| (producer.epoch, repeat.last_seq)),
        duplicate: true,
        close_only: data_bytes == 0,
    }))
}

/// Why what an append wants of its stream does not hold, if so.
fn judge_condition(
    condition: &Condition,
    group: GroupId,
    record: &StreamRecord,
) -> Result<(), Refusal> {
    let StreamRecord { id, next_record, tail, closed, .. } = *record;
    if condition.next_record.is_some_and(|wanted| wanted != next_record) {
        return Err(Refusal::RecordMatch { next_record, tail });
    }
    let is_there = EndState { stream: StreamKey { group, stream: id }, tail, closed };
    if !condition.states.is_empty() && !condition.states.contains(&is_there) {
        return Err(Refusal::Precondition { tail });
    }
    Ok(())
}
