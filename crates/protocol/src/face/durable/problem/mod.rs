//! Errors as clients see them: `application/problem+json`. Source: RFC 9457.
//!
//! # What a client can rely on
//! - `code` never changes its meaning; [`Code`] is the list, [`table`] has the status of each.
//! - `applied` tells whether the write of this request took place: `false`, or `"unknown"` when
//!   only a retry with producer headers (or a read) can tell. An answer with a problem never means
//!   that it surely did. For requests that write nothing it is `false`.
//! - Clients of this protocol retry 429, 503 and other 5xx forever, so what no retry can cure
//!   is a 4xx.

mod challenge;
pub(crate) mod detail;
mod source;
mod table;

pub use table::{Applied, Code, Meaning};

use crate::{
    face::durable::{
        offset,
        response::{EVERY_ANSWER, EXPOSED_NUMBERS, EXPOSED_PLACES, METHODS, NO_SCRIPT},
    },
    field::Field,
    head::{HeadSink, Length},
    trace::TraceId,
};
use model::ByteOffset;

/// One error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: Box<str>,
    facts: Facts,
    trace: Option<TraceId>,
}

/// What the header fields of a problem say beside its status.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Facts {
    None,
    Closed { tail: ByteOffset },
    Trimmed { head: ByteOffset },
    Tail { tail: ByteOffset, next_record: Option<u64> },
    StaleEpoch { current: u64 },
    SeqGap { expected: u64, received: u64 },
    RetryAfter { seconds: u32 },
    Challenge(Box<str>),
}

impl Problem {
    /// A problem with the detail that its code has in the table.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self { code, detail: code.meaning().advice.into(), facts: Facts::None, trace: None }
    }

    /// A problem with its own detail: what was wrong and what to do.
    #[must_use]
    pub fn with_detail(code: Code, detail: impl Into<Box<str>>) -> Self {
        Self { code, detail: detail.into(), facts: Facts::None, trace: None }
    }

    /// Overload: nothing was applied, come back later.
    #[must_use]
    pub fn overloaded(retry_after_seconds: u32) -> Self {
        Self::new(Code::Overloaded).retry_after(retry_after_seconds)
    }

    /// This problem with another `Retry-After` than its code has in the table.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.facts = Facts::RetryAfter { seconds };
        self
    }

    /// This problem with the trace of its request.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceId>) -> Self {
        self.trace = trace;
        self
    }

    /// Which problem it is.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The name of its code.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.code.meaning().name
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.code.meaning().status
    }

    /// What was wrong and what to do.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The connection must be closed after this answer.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.code.meaning().closes
    }

    /// Writes the whole answer, body included (but not for `HEAD`).
    pub fn render<S: HeadSink + ?Sized>(&self, head: &mut S) {
        let meaning = self.code.meaning();
        let body = self.body(&meaning);
        // A page that is refused learns nothing, and its client sees an error of the network, which no library takes for
        // a newer producer's epoch.
        let is_foreign = matches!(self.code, Code::ForeignHost | Code::ForeignOrigin);
        head.start(meaning.status, if is_foreign { &NO_SCRIPT } else { &EVERY_ANSWER });
        head.field(Field::ContentType, "application/problem+json");
        head.field(Field::CacheControl, "no-store");
        self.render_facts(head, &meaning);
        if meaning.closes {
            head.close();
        }
        head.end(Length::Known(body.len() as u64));
        head.body(body.as_bytes());
    }

    fn render_facts<S: HeadSink + ?Sized>(&self, head: &mut S, meaning: &Meaning) {
        match &self.facts {
            Facts::Closed { tail } => {
                // PROTOCOL §5.2, "409 Conflict due to closed stream"
                head.field(Field::StreamClosed, "true");
                head.ascii(Field::StreamNextOffset, &offset::render(*tail));
            }
            Facts::Trimmed { head: first } => {
                head.field(Field::AccessControlExposeHeaders, EXPOSED_PLACES);
                head.ascii(Field::StreamHead, &offset::render(*first));
            }
            Facts::Tail { tail, next_record } => {
                head.ascii(Field::StreamNextOffset, &offset::render(*tail));
                if let Some(next_record) = next_record {
                    head.field(Field::AccessControlExposeHeaders, EXPOSED_NUMBERS);
                    head.number(Field::StreamRecordNext, *next_record);
                }
            }
            // PROTOCOL §5.2.1, "Response Headers"
            Facts::StaleEpoch { current } => head.number(Field::ProducerEpoch, *current),
            Facts::SeqGap { expected, received } => {
                head.number(Field::ProducerExpectedSeq, *expected);
                head.number(Field::ProducerReceivedSeq, *received);
            }
            Facts::RetryAfter { seconds } => head.number(Field::RetryAfter, u64::from(*seconds)),
            Facts::Challenge(challenge) => head.field(Field::WwwAuthenticate, challenge),
            Facts::None => {
                if let Some(seconds) = meaning.retry_after_seconds {
                    head.number(Field::RetryAfter, seconds.into());
                }
                if meaning.status == 401 {
                    // RFC 9110 §15.5.2: there must be a challenge.
                    head.field(Field::WwwAuthenticate, challenge::REALM);
                }
            }
        }
        if meaning.status == 405 {
            head.field(Field::Allow, METHODS);
        }
    }

    fn body(&self, meaning: &Meaning) -> String {
        let mut body = String::with_capacity(256 + self.detail.len());
        body.push_str("{\"type\":\"urn:thalweg:problem:");
        body.push_str(meaning.name);
        body.push_str("\",\"title\":\"");
        body.push_str(meaning.title);
        body.push_str("\",\"status\":");
        body.push_str(&meaning.status.to_string());
        body.push_str(",\"code\":\"");
        body.push_str(meaning.name);
        body.push_str("\",\"applied\":");
        body.push_str(match meaning.applied {
            Applied::No => "false",
            Applied::Unknown => "\"unknown\"",
        });
        body.push_str(",\"detail\":\"");
        detail::escape_into(&mut body, &self.detail);
        if let Some(trace) = &self.trace {
            body.push_str("\",\"trace_id\":\"");
            body.push_str(trace.as_str());
        }
        body.push_str("\"}\n");
        body
    }
}

#[cfg(test)]
mod tests;
