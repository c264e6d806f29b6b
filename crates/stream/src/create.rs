//! Judges a creation against a stream that has the path already.

use crate::{
    ConfigField, ContentType, Create, ForkRequest, Lifetime, Outcome, RecordTime, Refusal,
    Retention, record::StreamRecord,
};
use model::{StreamId, StreamPath};

/// A creation as its client asks for it, from the parser to the group. Its first data travels beside
/// it. [`Create`] is what is logged of it. PROTOCOL §5.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRequest {
    /// The stream.
    pub path: StreamPath,
    /// What it shall hold. `None` inherits the type of the source, and only on a fork.
    pub content_type: Option<ContentType>,
    /// When it goes away by itself. `Forever` inherits on a fork.
    pub lifetime: Lifetime,
    /// Create it closed.
    pub close: bool,
    /// Where it branches off.
    pub fork: Option<ForkRequest>,
    /// What is kept of it. A repeated creation may ask for something else.
    pub retention: Retention,
    /// The largest record time of the data, if one was given.
    pub record_time: Option<RecordTime>,
    /// Records in the data. A fork without content type learns it with its source's.
    pub record_count: u32,
}

/// What a creation finds at its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateCheck {
    /// Nothing.
    Free,
    /// A stream whose lifetime has run out. It must be expired first.
    Expired(StreamId),
    /// A stream that decides the answer.
    Answered(Outcome),
}

/// The configuration that a creation asks for, as far as it names one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    content_type: Option<&'a ContentType>,
    lifetime: Lifetime,
    close: bool,
    fork: Option<&'a ForkRequest>,
}

impl<'a> From<&'a CreateRequest> for Wanted<'a> {
    fn from(asked: &'a CreateRequest) -> Self {
        Self {
            content_type: asked.content_type.as_ref(),
            lifetime: asked.lifetime,
            close: asked.close,
            fork: asked.fork.as_ref(),
        }
    }
}

impl<'a> From<&'a Create> for Wanted<'a> {
    fn from(create: &'a Create) -> Self {
        Self {
            content_type: Some(&create.content_type),
            lifetime: create.fork.as_ref().map_or(create.lifetime, |fork| fork.lifetime),
            close: create.close,
            fork: create.fork.as_ref().map(|fork| &fork.request),
        }
    }
}

/// `Existed` if the stream is what is wanted, else why not.
pub(crate) fn judge_existing(record: &StreamRecord, wanted: Wanted<'_>) -> Outcome {
    if record.deleted {
        return Outcome::Refused(Refusal::PathBlocked);
    }
    match difference(record, wanted) {
        None => Outcome::Existed(Box::new(record.info())),
        Some(differs) => Outcome::Refused(Refusal::Config { differs }),
    }
}

fn difference(record: &StreamRecord, wanted: Wanted<'_>) -> Option<ConfigField> {
    let fork = record.fork();
    if fork.map(|fork| &fork.request) != wanted.fork {
        return Some(ConfigField::Fork);
    }
    if wanted.content_type.is_some_and(|wanted| !record.has_type(wanted)) {
        return Some(ConfigField::ContentType);
    }
    if fork.map_or(record.lifetime.get(), |fork| fork.lifetime) != wanted.lifetime {
        return Some(ConfigField::Lifetime);
    }
    // PROTOCOL §5.1, "Closure status matching".
    (record.closed != wanted.close).then_some(ConfigField::Closed)
}
