//! Judges a creation against a stream that has the path already.

use crate::{
    ConfigField, ContentType, Create, ForkRequest, Lifetime, Outcome, Refusal, record::StreamRecord,
};

/// The configuration that a `PUT` asks for, as far as it said. PROTOCOL §5.1.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// `None` on a fork that inherits it.
    pub content_type: Option<&'a ContentType>,
    /// `Forever` on a fork that inherits it.
    pub lifetime: Lifetime,
    /// Closed from the start.
    pub close: bool,
    /// The fork that was asked for.
    pub fork: Option<&'a ForkRequest>,
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
        None => Outcome::Existed(record.info()),
        Some(differs) => Outcome::Refused(Refusal::Config { differs }),
    }
}

fn difference(record: &StreamRecord, wanted: Wanted<'_>) -> Option<ConfigField> {
    let fork = record.fork();
    if fork.map(|fork| &fork.request) != wanted.fork {
        return Some(ConfigField::Fork);
    }
    if wanted.content_type.is_some_and(|wanted| *wanted != record.content_type) {
        return Some(ConfigField::ContentType);
    }
    if fork.map_or(record.lifetime, |fork| fork.lifetime) != wanted.lifetime {
        return Some(ConfigField::Lifetime);
    }
    // PROTOCOL §5.1, "Closure status matching".
    (record.closed != wanted.close).then_some(ConfigField::Closed)
}
