//! Judges an append, without changing anything.

use crate::{
    Accepted, Append, Outcome, Refusal,
    producer::Numbering,
    record::{Extra, StreamRecord},
};

/// What an append would do.
pub(crate) enum Verdict {
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
/// are recognised, then closed, content type, producer numbers, `Stream-Seq`.
pub(crate) fn judge(record: &StreamRecord, append: &Append, data_bytes: u64) -> Verdict {
    if record.deleted {
        return Refusal::Gone.into();
    }
    let empty = Extra::default();
    let extra = record.extra.as_deref().unwrap_or(&empty);
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
            Ok(Numbering::Duplicate { last_seq }) => {
                return duplicate(record, Some((producer.epoch, last_seq)), data_bytes);
            }
            Err(refusal) => return refusal.into(),
        }
    }
    match (&append.stream_seq, &extra.stream_seq) {
        // PROTOCOL §5.2: bytewise lexicographic, strictly increasing. Our scope is the stream.
        (Some(seq), Some(last)) if seq.as_bytes() <= last.as_bytes() => {
            Refusal::StreamSeq { last: last.clone() }.into()
        }
        _ => Verdict::Accept,
    }
}

/// PROTOCOL §5.2.1: the tuple that closed the stream, and any before it, is answered as a repeat
/// even if its body differs. A close without data is idempotent. Anything else is refused.
fn judge_closed(record: &StreamRecord, extra: &Extra, append: &Append, data_bytes: u64) -> Verdict {
    if let Some(producer) = &append.producer
        && let Some(last_seq) = extra.producers.duplicate_of(producer)
    {
        return duplicate(record, Some((producer.epoch, last_seq)), data_bytes);
    }
    if append.close && data_bytes == 0 && append.producer.is_none() {
        return duplicate(record, None, data_bytes);
    }
    Refusal::Closed { tail: record.tail }.into()
}

fn wrong_content_type(record: &StreamRecord, append: &Append, data_bytes: u64) -> Option<Refusal> {
    // PROTOCOL §5.2: a close without data must not be refused for its content type.
    if data_bytes == 0 || append.content_type.as_ref() == Some(&record.content_type) {
        return None;
    }
    Some(Refusal::ContentType { expected: record.content_type.clone() })
}

fn duplicate(record: &StreamRecord, producer: Option<(u64, u64)>, data_bytes: u64) -> Verdict {
    Verdict::Answer(Outcome::Appended(Accepted {
        stream: record.id,
        tail: record.tail,
        closed: record.closed,
        producer,
        duplicate: true,
        close_only: data_bytes == 0,
    }))
}
