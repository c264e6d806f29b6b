//! What is kept of a stream, and the time of its records.

use super::{
    Request,
    fields::{Fields, parse_number, parse_time},
};
use crate::{
    face::durable::{
        offset,
        problem::{Code, Problem, detail::quote},
    },
    field::{
        STREAM_RECORD_TIME, STREAM_RETENTION_AGE, STREAM_RETENTION_BYTES, STREAM_RETENTION_RECORDS,
        STREAM_TRIM_BEFORE, STREAM_TRIM_BEFORE_RECORD,
    },
};
use model::{StreamPath, TrimBefore, limits};
use stream::{Change, Keep, RecordTime, Retention, RetentionChange};

/// A `PATCH`: it changes settings, or it trims. Both at once could be done by halves.
pub(super) fn parse(path: StreamPath, fields: &Fields<'_>) -> Result<Request, Problem> {
    let retention = change(fields)?;
    let trim = trim(fields)?;
    match (retention.is_empty(), trim) {
        (false, None) => Ok(Request::Change { path, change: Change { retention } }),
        (true, Some(before)) => Ok(Request::Trim { path, before }),
        (true, None) => Err(Problem::new(Code::EmptyChange)),
        (false, Some(_)) => {
            let detail = "A PATCH changes the retention or trims; send two requests.";
            Err(Problem::with_detail(Code::EmptyChange, detail))
        }
    }
}

fn trim(fields: &Fields<'_>) -> Result<Option<TrimBefore>, Problem> {
    match (fields.trim_before, fields.trim_before_record) {
        (None, None) => Ok(None),
        (Some(text), None) => match offset::parse(text.as_bytes()) {
            Ok(at) => Ok(Some(TrimBefore::Offset(at))),
            Err(_) => Err(invalid(STREAM_TRIM_BEFORE, text, "a value of Stream-Next-Offset")),
        },
        (None, Some(text)) => match parse_number(text, limits::POSITION_MAX) {
            Some(number) => Ok(Some(TrimBefore::Record(number))),
            None => Err(invalid(STREAM_TRIM_BEFORE_RECORD, text, "the number of a record")),
        },
        (Some(_), Some(_)) => {
            let detail = "Stream-Trim-Before and Stream-Trim-Before-Record exclude each other.";
            Err(Problem::with_detail(Code::InvalidHeader, detail))
        }
    }
}

/// What a creation says of what is kept.
pub(super) fn retention(fields: &Fields<'_>) -> Result<Retention, Problem> {
    let RetentionChange { age_seconds, bytes, records } = change(fields)?;
    Ok(Retention {
        age_seconds: age_seconds.unwrap_or_default(),
        bytes: bytes.unwrap_or_default(),
        records: records.unwrap_or_default(),
    })
}

fn change(fields: &Fields<'_>) -> Result<RetentionChange, Problem> {
    Ok(RetentionChange {
        age_seconds: keep(STREAM_RETENTION_AGE, fields.retention_age)?,
        bytes: keep(STREAM_RETENTION_BYTES, fields.retention_bytes)?,
        records: keep(STREAM_RETENTION_RECORDS, fields.retention_records)?,
    })
}

fn keep(name: &str, value: Option<&str>) -> Result<Option<Keep>, Problem> {
    match value {
        None => Ok(None),
        Some("default") => Ok(Some(Keep::Default)),
        Some("none") => Ok(Some(Keep::All)),
        Some(text) => match parse_number(text, limits::POSITION_MAX) {
            Some(amount) => Ok(Some(Keep::AtLeast(amount))),
            None => {
                Err(invalid(name, text, "a whole number without leading zeros, none or default"))
            }
        },
    }
}

/// The time that a client gives its records.
#[inline(always)]
pub(super) fn record_time(fields: &Fields<'_>) -> Result<Option<RecordTime>, Problem> {
    let Some(text) = fields.record_time else { return Ok(None) };
    let ms = parse_number(text, u64::MAX).or_else(|| Some(parse_time(text)?.get()));
    match ms {
        Some(ms) => Ok(Some(RecordTime::Given(ms))),
        None => {
            Err(invalid(STREAM_RECORD_TIME, text, "an RFC 3339 time or milliseconds since 1970"))
        }
    }
}

fn invalid(name: &str, value: &str, wanted: &str) -> Problem {
    let detail = format!("{name} is {}, not {wanted}.", quote(value.as_bytes()));
    Problem::with_detail(Code::InvalidHeader, detail)
}
