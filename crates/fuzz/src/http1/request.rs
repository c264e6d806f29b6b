//! Requests, and what answers reflect of them.

use model::{ByteOffset, GroupId, ReadFrom, StreamId, StreamKey, Timestamp};
use protocol::client::parse_answer;
use protocol::etag::ETag;
use protocol::http1::{Exchange, Head, HeadLimits, HeadReader, HeadWriter, HeaderSlots, Version};
use protocol::problem::Problem;
use protocol::request::{self, CreateRequest, Request, Way};
use protocol::response;
use protocol::{HttpDate, Viewers};
use serde_json::Value;
use stream::{ContentType, Lifetime, Lineage, Outcome, StreamInfo};

/// Input: one request, head and body.
pub fn run(data: &[u8]) {
    let mut slots = HeaderSlots::new();
    match HeadReader::default().read(data, &mut slots, &HeadLimits::default()) {
        Ok(None) => {}
        Ok(Some(head)) => check(&head, &data[head.head_bytes..]),
        Err(error) => check_problem(&Problem::from(error)),
    }
}

fn check(head: &Head<'_, '_>, body: &[u8]) {
    let request = match request::parse(&head.request, &Way::LOCAL) {
        Ok(request) => request,
        Err(problem) => return check_problem(&problem),
    };
    match request {
        Request::Create(create) => check_create(create, body),
        Request::Append(append) => match append.finish(body) {
            Ok(ready) => {
                let is_empty = ready.data.is_empty();
                assert_eq!(
                    is_empty,
                    ready.append.record_count == 0,
                    "data and records go together"
                );
                assert!(!is_empty || ready.append.close, "an append adds or closes");
            }
            Err(problem) => check_problem(&problem),
        },
        Request::Read(read) => {
            if let ReadFrom::At(offset) = read.offset {
                let _ = protocol::offset::render(offset);
            }
            let tag = ETag {
                stream: StreamKey { group: GroupId::new(0), stream: StreamId::new(0) },
                start: ByteOffset::ZERO,
                end: ByteOffset::new(9),
                closed: true,
            };
            let _ = read.if_none_match.is_some_and(|list| tag.matches(&list));
        }
        Request::Resolve { .. } | Request::Change { .. } | Request::Trim { .. } => {}
        Request::Head(_) | Request::Delete(_) | Request::Preflight { .. } => {}
    }
}

fn check_create(create: CreateRequest, body: &[u8]) {
    assert!(
        create.asked.content_type.is_some() || create.asked.fork.is_some(),
        "only forks inherit a type"
    );
    let ready = match create.finish(body) {
        Ok(ready) => ready,
        Err(problem) => return check_problem(&problem),
    };
    let content_type = ready.asked.content_type.clone();
    let content_type = content_type.unwrap_or_else(|| ContentType::new("text/plain"));
    assert_eq!(ready.data.is_empty(), ready.asked.record_count == 0);
    let info = StreamInfo {
        stream: StreamId::new(1),
        layout: content_type.layout(),
        content_type: content_type.clone(),
        created_at: Timestamp::new(0),
        written_at: Timestamp::new(0),
        lifetime: ready.asked.lifetime,
        head: ByteOffset::ZERO,
        first_record: 0,
        next_record: u64::from(ready.asked.record_count),
        mark: None,
        retention: ready.asked.retention,
        tail: ByteOffset::new(body.len() as u64),
        closed: ready.asked.close,
        lineage: Lineage::default(),
    };
    let outcome = Outcome::Created(info.into());
    let out = written(|head| response::outcome(head, &outcome, &ready.location));
    let answer = parse_answer(&out, false).expect("an answer of ours").expect("a whole head");
    assert_eq!((answer.status, answer.head_bytes), (201, out.len()));
    // Whitespace inside a field is answered as spaces (RFC 9110 §5.5).
    let shown = content_type.as_str().trim().replace('\t', " ");
    assert_eq!(answer.media_type.as_deref(), Some(shown.as_str()));
    assert_eq!(answer.closed, ready.asked.close);
    if let Lifetime::ExpiresAt(at) = ready.asked.lifetime {
        assert!(at <= Timestamp::new(253_402_387_200_000), "no date lies behind the calendar");
    }
}

/// A problem is one whole answer whose body is JSON, whatever it shows of the request.
fn check_problem(problem: &Problem) {
    let out = written(|head| problem.render(head));
    let answer = parse_answer(&out, false).expect("an answer of ours").expect("a whole head");
    assert_eq!(answer.status, problem.status());
    assert!((400..600).contains(&answer.status));
    let body: Value = serde_json::from_slice(&out[answer.head_bytes..]).expect("JSON");
    assert_eq!(body["detail"].as_str(), Some(problem.detail()));
}

fn written(write: impl FnOnce(&mut HeadWriter<'_, '_>)) -> Vec<u8> {
    let date = HttpDate::new(Timestamp::new(0));
    let exchange = Exchange {
        version: Version::Http11,
        keep_alive: true,
        is_head: false,
        date: &date,
        viewers: Viewers::All,
    };
    let mut out = Vec::new();
    write(&mut HeadWriter::new(&mut out, &exchange));
    out
}

/// Requests of every kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let put = "PUT /v1/stream/a%20b HTTP/1.1\r\nHost: h\r\n";
    let post = "POST /v1/stream/a HTTP/1.1\r\nHost: h\r\n";
    let json = "Content-Type: application/json\r\n";
    let requests = [
        format!("{put}\r\n"),
        format!("{put}{json}Stream-Closed: TRUE\r\nStream-TTL: 60\r\n\r\n[{{\"a\":1}},2]"),
        format!("{put}Stream-Expires-At: 2030-01-01T00:00:00.5+02:00\r\n\r\nx"),
        format!(
            "{put}Stream-Forked-From: /v1/stream/s\r\n\
             Stream-Fork-Offset: 0000000000000007_0000000000000000\r\n\
             Stream-Fork-Sub-Offset: 2\r\n\r\nx"
        ),
        format!("{post}{json}Stream-Seq: 7\r\n\r\n[]"),
        format!("{post}Stream-Closed: true\r\n\r\n"),
        format!(
            "{post}Content-Type: text/plain\r\nProducer-Id: p\r\nProducer-Epoch: 1\r\n\
             Producer-Seq: 9007199254740991\r\n\r\nx"
        ),
        "GET /v1/stream/a?offset=now&live=sse&cursor=9&encoding=base64 HTTP/1.1\r\nHost: h\r\n\
         If-None-Match: W/\"0-0:0:9:c\", *\r\nAccept-Encoding: gzip;q=0.5\r\n\r\n"
            .to_owned(),
        "HEAD /v1/stream/../a HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "DELETE /v1/stream/%2e%2E HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "PATCH /v1/stream/a HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "PATCH /v1/stream/a HTTP/1.1\r\nHost: h\r\nStream-Retention-Age: 60\r\n\
         Stream-Retention-Bytes: none\r\nStream-Retention-Records: default\r\n\r\n"
            .to_owned(),
        "PATCH /v1/stream/a HTTP/1.1\r\nHost: h\r\nStream-Trim-Before-Record: 7\r\n\r\n".to_owned(),
        format!(
            "{post}{json}If-Match: \"3-7:0:9:c\", W/\"x\"\r\nStream-Record-Match: 7\r\n\
             Stream-Record-Numbers: true\r\nStream-Record-Time: 2026-01-01T00:00:00Z\r\n\r\n[1]"
        ),
        "GET /v1/stream/a?time=1700000000000&max_records=2&max_bytes=9&until=2026-01-01T00:00:00Z \
         HTTP/1.1\r\nHost: h\r\n\r\n"
            .to_owned(),
        "HEAD /v1/stream/a?tail_records=3&clamp=true HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "GET /elsewhere/`\\\" HTTP/1.0\r\n\r\n".to_owned(),
    ];
    requests.into_iter().map(String::into_bytes).collect()
}
