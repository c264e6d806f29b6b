//! Appends: what is sent, and what an answer says of it.

use super::Round;
use crate::http::{Answer, request};
use crate::ledger::{Fate, State, Stream, Style};
use crate::record::{AppendId, append};
use crate::report::add;

/// Answers to an append of a producer that comes before an earlier one of its own.
const GAPS: [&str; 2] = ["producer-sequence-gap", "producer-epoch-start"];

/// One append under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) id: AppendId,
    /// It was sent before.
    pub(super) is_repeat: bool,
}

/// Registers an append and renders its request.
pub(super) fn begin(round: &Round<'_>, stream: &mut Stream, sent: Sent, closes: bool) -> Vec<u8> {
    let Sent { id, .. } = sent;
    let append = append(stream.kind, id, round.ledger.seed);
    stream.begin(id, &append, closes);
    render(stream, id, &append.body, closes)
}

/// The request of an append.
pub(crate) fn render(stream: &Stream, id: AppendId, body: &[u8], closes: bool) -> Vec<u8> {
    let mut fields = vec![("Content-Type", stream.kind.media_type().to_owned())];
    let writer = &stream.writers[if stream.style == Style::Plain { 0 } else { id.writer as usize }];
    match stream.style {
        Style::Plain => {}
        Style::Producer => {
            fields.push(("Producer-Id", format!("p{}", id.writer)));
            fields.push(("Producer-Epoch", writer.epoch.to_string()));
            fields.push(("Producer-Seq", (id.number - writer.epoch_start).to_string()));
        }
        Style::Sequenced => fields.push(("Stream-Seq", format!("{:016x}", id.number))),
    }
    if closes {
        fields.push(("Stream-Closed", "true".to_owned()));
    }
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, v)| (*name, v.as_str())).collect();
    request("POST", &stream.path, &fields, body)
}

/// Books the answer to an append. What is not an answer to it at all contradicts.
pub(super) fn settle(
    round: &Round<'_>,
    stream: &mut Stream,
    sent: Sent,
    answer: &Answer,
) -> Result<(), String> {
    let id = sent.id;
    let code = answer.code();
    let was = stream.state(id.writer, id.number);
    match (answer.status, answer.next) {
        // A producer's repeat is answered 204, its new append 200; other appends 204.
        (204, Some(_)) if stream.style == Style::Producer => {
            repeated(round, stream, sent)?;
        }
        (200 | 204, Some(end)) => {
            stream.stored(id, end)?;
            add(&round.report.acknowledged, 1);
        }
        _ if code == "stream-seq-conflict" && stream.style == Style::Sequenced => {
            repeated(round, stream, sent)?;
        }
        _ if code == "write-unknown" && round.is_refusal(answer) => {
            add(&round.report.unknown, 1);
            if round.doors.are_several() {
                stream.unanswered(Some(id));
            }
            return Ok(());
        }
        _ if round.is_refusal(answer) => refused(round, stream, id),
        _ if code == "stream-closed" && stream.closed != Fate::No => {
            refused(round, stream, id);
            if !matches!(was, Some(State::Stored(_))) {
                forget(stream, id);
            }
            return Ok(());
        }
        _ if GAPS.contains(&code.as_str()) && has_gap(stream, id) => refused(round, stream, id),
        _ => {
            let path = &stream.path;
            return Err(format!("{path}: {sent:?} ({was:?}) was answered {}", answer.shown()));
        }
    }
    if matches!(stream.state(id.writer, id.number), Some(State::Stored(_))) {
        forget(stream, id);
    }
    Ok(())
}

fn repeated(round: &Round<'_>, stream: &mut Stream, sent: Sent) -> Result<(), String> {
    // A node repeats it by itself when the leader that it had asked is gone; the producer fields make that safe.
    let may_repeat = round.doors.are_several() && stream.style == Style::Producer;
    if !sent.is_repeat && !may_repeat {
        return Err(format!("{}: the new {sent:?} is taken for a repeat", stream.path));
    }
    stream.repeated(sent.id);
    add(&round.report.repeats, 1);
    Ok(())
}

fn refused(round: &Round<'_>, stream: &mut Stream, id: AppendId) {
    stream.refused(id);
    add(&round.report.refused, 1);
}

/// The outcome is known: it need not be sent again.
fn forget(stream: &mut Stream, id: AppendId) {
    if stream.style != Style::Plain {
        stream.writers[id.writer as usize].pending.retain(|number| *number != id.number);
    }
}

/// Whether an earlier append of the producer was not taken, so that this one could not be.
fn has_gap(stream: &Stream, id: AppendId) -> bool {
    let pending = &stream.writers[id.writer as usize].pending;
    pending.first().is_some_and(|first| *first < id.number)
}
