//! What an append wants of its stream: `If-Match` and `Stream-Record-Match`. Both are judged in the order of the log.

use super::fields::{Fields, Listed, parse_number};
use crate::face::durable::{
    etag::ETag,
    problem::{Code, Problem, detail::quote},
};
use model::limits;
use stream::{CONDITION_STATES_MAX, Condition, EndState};

/// The condition of an append, if it has one.
#[inline(always)]
pub(super) fn condition(fields: &Fields<'_>) -> Result<Option<Box<Condition>>, Problem> {
    if fields.record_match.is_none() && fields.if_match.is_absent() {
        return Ok(None);
    }
    let next_record = match fields.record_match {
        None => None,
        Some(text) => Some(parse_number(text, limits::POSITION_MAX).ok_or_else(|| {
            let quoted = quote(text.as_bytes());
            let detail = format!("Stream-Record-Match is {quoted}, not the number of a record.");
            Problem::with_detail(Code::InvalidHeader, detail)
        })?),
    };
    let states = match fields.if_match {
        Listed::Absent => Vec::new(),
        Listed::Once(list) if list.trim_ascii() == "*" => Vec::new(),
        Listed::Once(list) => states(list)?,
        Listed::Unusable => {
            let detail = "If-Match comes twice or is not UTF-8; send its tags in one line.";
            return Err(Problem::with_detail(Code::InvalidHeader, detail));
        }
    };
    Ok(Some(Box::new(Condition { next_record, states })))
}

/// The states that a list of tags names. Weak tags and those of other servers name none.
fn states(list: &str) -> Result<Vec<EndState>, Problem> {
    let states = ETag::strong_tags(list)
        .map(|tag| EndState { stream: tag.stream, tail: tag.end, closed: tag.closed })
        .collect::<Vec<_>>();
    if states.len() > CONDITION_STATES_MAX {
        let detail = format!("If-Match names more than {CONDITION_STATES_MAX} tags.");
        return Err(Problem::with_detail(Code::InvalidHeader, detail));
    }
    if states.is_empty() {
        return Err(Problem::new(Code::PreconditionFailed));
    }
    Ok(states)
}
