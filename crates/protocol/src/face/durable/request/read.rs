//! `GET`. PROTOCOL §5.6–5.8 and §8.

use super::{
    Request,
    fields::{Fields, parse_number, parse_time, percent_decode},
};
use crate::{
    encoding,
    face::durable::{
        cursor,
        offset::{self, OffsetError},
        problem::{Code, Problem, detail::quote},
    },
    limits::IF_NONE_MATCH_BYTES_MAX,
};
use model::{Bounds, ReadFrom, ReadRecords, StreamPath, limits};
use std::borrow::Cow;

/// A read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stream.
    pub path: StreamPath,
    /// Where to begin: `offset`, which is `-1` (or left out) for the head, and `now` for the tail.
    pub offset: ReadFrom,
    /// What is asked of records and times, if anything.
    pub records: Option<ReadRecords>,
    /// How to continue at the tail.
    pub live: Live,
    /// The cursor that the client echoes.
    pub cursor: Option<u64>,
    /// `If-None-Match` as it came; see [`crate::etag::ETag::matches`].
    pub if_none_match: Option<Box<str>>,
    /// The client takes gzip.
    pub accepts_gzip: bool,
    /// The client wants all SSE data in base64: `encoding=base64`, or the request field
    /// `Stream-SSE-Data-Encoding: base64`.
    pub base64: bool,
    /// A browser's `EventSource` comes back: [`Self::offset`] is the id of the last event that it got.
    pub resumes_events: bool,
}

/// How a read continues at the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// It ends. PROTOCOL §5.6.
    CatchUp,
    /// It waits for the next append. PROTOCOL §5.7.
    LongPoll,
    /// It follows all appends. PROTOCOL §5.8.
    Sse,
}

impl ReadRequest {
    pub(super) fn parse(
        path: StreamPath,
        query: &str,
        fields: &Fields<'_>,
    ) -> Result<Self, Problem> {
        let query = Query::parse(query)?;
        let live = live(query.live.as_deref())?;
        let if_none_match = fields.if_none_match.text();
        let asks_base64 =
            |value: Option<&str>| value.is_some_and(|value| value.eq_ignore_ascii_case("base64"));
        let last_event = fields.last_event_id.filter(|_| live == Live::Sse);
        let offset = match last_event {
            Some(id) => resumed(id)?,
            None => query.start(live)?,
        };
        Ok(Self {
            path,
            offset,
            records: query.records(live)?,
            live,
            cursor: query.cursor.as_deref().and_then(cursor::parse),
            if_none_match: if_none_match
                .filter(|list| list.len() <= IF_NONE_MATCH_BYTES_MAX)
                .map(Into::into),
            accepts_gzip: fields.accept_encoding.text().is_some_and(encoding::accepts_gzip),
            base64: asks_base64(query.encoding.as_deref()) || asks_base64(fields.sse_data_encoding),
            resumes_events: last_event.is_some(),
        })
    }
}

fn live(value: Option<&str>) -> Result<Live, Problem> {
    match value {
        None => Ok(Live::CatchUp),
        Some("long-poll") => Ok(Live::LongPoll),
        Some("sse") => Ok(Live::Sse),
        Some(other) => {
            let detail = format!("live is {}, neither long-poll nor sse.", quote(other.as_bytes()));
            Err(Problem::with_detail(Code::InvalidQuery, detail))
        }
    }
}

fn read_offset(value: Option<&str>, live: Live) -> Result<ReadFrom, Problem> {
    match value {
        // PROTOCOL §5.7, §5.8: live reads must name an offset.
        None if live != Live::CatchUp => Err(Problem::new(Code::OffsetMissing)),
        None | Some("-1") => Ok(ReadFrom::Begin),
        Some("now") => Ok(ReadFrom::Now),
        Some(text) => offset::parse(text.as_bytes()).map(ReadFrom::At).map_err(|error| {
            let quoted = quote(text.as_bytes());
            Problem::with_detail(Code::InvalidOffset, no_offset(&quoted, error))
        }),
    }
}

/// Where to continue after the event with this id. It wins over the query, which is that of the first connection.
fn resumed(id: &str) -> Result<ReadFrom, Problem> {
    offset::parse(id.as_bytes()).map(ReadFrom::At).map_err(|_| {
        let quoted = quote(id.as_bytes());
        let detail = format!("Last-Event-ID is {quoted}, which is the id of no event of a stream.");
        Problem::with_detail(Code::InvalidOffset, detail)
    })
}

fn no_offset(quoted: &str, error: OffsetError) -> String {
    match error {
        OffsetError::Malformed => format!(
            "The offset {quoted} is none; use -1, now, or a value of Stream-Next-Offset as it came."
        ),
        OffsetError::Reserved => format!(
            "The offset {quoted} is reserved: no second part of 10^15 or more has a meaning yet; use a value of Stream-Next-Offset as it came."
        ),
    }
}

/// The parameters of a query that the protocol defines. Others are ignored. PROTOCOL §5.6–5.8.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query<'q> {
    offset: Option<Cow<'q, str>>,
    live: Option<Cow<'q, str>>,
    cursor: Option<Cow<'q, str>>,
    encoding: Option<Cow<'q, str>>,
    record: Option<Cow<'q, str>>,
    tail_records: Option<Cow<'q, str>>,
    time: Option<Cow<'q, str>>,
    clamp: Option<Cow<'q, str>>,
    max_records: Option<Cow<'q, str>>,
    max_bytes: Option<Cow<'q, str>>,
    until: Option<Cow<'q, str>>,
}

impl<'q> Query<'q> {
    fn parse(query: &'q str) -> Result<Self, Problem> {
        let mut found = Self::default();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match key {
                "offset" => &mut found.offset,
                "live" => &mut found.live,
                "cursor" => &mut found.cursor,
                "encoding" => &mut found.encoding,
                "record" => &mut found.record,
                "tail_records" => &mut found.tail_records,
                "time" => &mut found.time,
                "clamp" => &mut found.clamp,
                "max_records" => &mut found.max_records,
                "max_bytes" => &mut found.max_bytes,
                "until" => &mut found.until,
                _ => continue,
            };
            let code = if key == "offset" { Code::InvalidOffset } else { Code::InvalidQuery };
            let invalid =
                |why: &str| Problem::with_detail(code, format!("The query parameter {key} {why}."));
            let value = percent_decode(value).ok_or_else(|| invalid("has a bad percent escape"))?;
            if slot.replace(value).is_some() {
                return Err(invalid("comes twice"));
            }
        }
        Ok(found)
    }
}

/// Records and times.
impl Query<'_> {
    /// Where to begin: at most one of `offset`, `record`, `tail_records` and `time`.
    fn start(&self, live: Live) -> Result<ReadFrom, Problem> {
        let by_record = self.record_start()?;
        match (by_record, self.offset.as_deref()) {
            (None, offset) => read_offset(offset, live),
            (Some(from), None) => Ok(from),
            (Some(_), Some(_)) => Err(one_start()),
        }
    }

    fn record_start(&self) -> Result<Option<ReadFrom>, Problem> {
        let record = match self.record.as_deref() {
            Some("now") => Some(ReadFrom::Now),
            _ => count("record", &self.record)?.map(ReadFrom::Record),
        };
        let tail = count("tail_records", &self.tail_records)?.map(ReadFrom::TailRecords);
        let time = time("time", &self.time)?.map(ReadFrom::Time);
        let mut starts = [record, tail, time].into_iter().flatten();
        match (starts.next(), starts.next()) {
            (start, None) => Ok(start),
            (_, Some(_)) => Err(one_start()),
        }
    }

    /// What is asked of records besides the start; `None` if the read is about bytes alone.
    fn records(&self, live: Live) -> Result<Option<ReadRecords>, Problem> {
        let bounds = Bounds {
            records_max: positive("max_records", &self.max_records)?,
            bytes_max: positive("max_bytes", &self.max_bytes)?,
            until: time("until", &self.until)?,
        };
        if live == Live::Sse && bounds != Bounds::default() {
            let detail =
                "max_records, max_bytes and until bound one answer; a stream of events has no end.";
            return Err(Problem::with_detail(Code::InvalidQuery, detail));
        }
        let has_start =
            [&self.record, &self.tail_records, &self.time].into_iter().any(Option::is_some);
        let is_wanted = has_start || bounds != Bounds::default();
        Ok(is_wanted.then_some(ReadRecords { bounds, clamp: self.clamps()? }))
    }

    fn clamps(&self) -> Result<bool, Problem> {
        match self.clamp.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(invalid("clamp", other, "true or false")),
        }
    }
}

/// `HEAD`: of a stream, or of a place in it.
pub(super) fn head(path: StreamPath, query: &str) -> Result<Request, Problem> {
    let query = Query::parse(query)?;
    match query.record_start()? {
        None => Ok(Request::Head(path)),
        Some(from) => Ok(Request::Resolve { path, from, clamp: query.clamps()? }),
    }
}

fn one_start() -> Problem {
    let detail = "A read begins at one of offset, record, tail_records and time.";
    Problem::with_detail(Code::InvalidQuery, detail)
}

fn invalid(key: &str, value: &str, wanted: &str) -> Problem {
    let detail = format!("{key} is {}, not {wanted}.", quote(value.as_bytes()));
    Problem::with_detail(Code::InvalidQuery, detail)
}

fn count(key: &str, value: &Option<Cow<'_, str>>) -> Result<Option<u64>, Problem> {
    let Some(value) = value.as_deref() else { return Ok(None) };
    let number = parse_number(value, limits::POSITION_MAX);
    number.map(Some).ok_or_else(|| invalid(key, value, "a whole number without leading zeros"))
}

fn positive(key: &str, value: &Option<Cow<'_, str>>) -> Result<Option<u64>, Problem> {
    match count(key, value)? {
        Some(0) => Err(invalid(key, "0", "at least 1")),
        number => Ok(number),
    }
}

/// Milliseconds since 1970, or an RFC 3339 time.
fn time(key: &str, value: &Option<Cow<'_, str>>) -> Result<Option<u64>, Problem> {
    let Some(value) = value.as_deref() else { return Ok(None) };
    let ms = parse_number(value, u64::MAX).or_else(|| Some(parse_time(value)?.get()));
    ms.map(Some).ok_or_else(|| invalid(key, value, "an RFC 3339 time or milliseconds since 1970"))
}
