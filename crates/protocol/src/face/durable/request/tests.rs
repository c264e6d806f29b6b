use super::*;
use crate::http1::{HeadLimits, HeadReader, HeaderSlots};
use model::{ByteOffset, ReadFrom, Timestamp};
use proptest::prelude::*;
use std::borrow::Cow;
use stream::{AppendType, Lifetime, Producer};

/// Parses a request of this line and these fields.
fn request(line: &str, fields: &[(&str, &str)]) -> Result<Request, Problem> {
    let mut text = format!("{line} HTTP/1.1\r\nHost: example.com:4437\r\n").into_bytes();
    for (name, value) in fields {
        text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    let mut slots = HeaderSlots::new();
    let head = HeadReader::default().read(&text, &mut slots, &HeadLimits::default());
    parse(&head.unwrap().unwrap().request, &Way::LOCAL)
}

fn refused(line: &str, fields: &[(&str, &str)]) -> Code {
    match request(line, fields) {
        Ok(request) => panic!("{line} {fields:?} was taken: {request:?}"),
        Err(problem) => problem.code(),
    }
}

fn create(fields: &[(&str, &str)]) -> CreateRequest {
    match request("PUT /v1/stream/a", fields) {
        Ok(Request::Create(create)) => create,
        other => panic!("{other:?}"),
    }
}

fn asked(fields: &[(&str, &str)]) -> stream::CreateRequest {
    *create(fields).asked
}

fn append(fields: &[(&str, &str)]) -> AppendRequest {
    match request("POST /v1/stream/a", fields) {
        Ok(Request::Append(append)) => append,
        other => panic!("{other:?}"),
    }
}

fn read(query: &str, fields: &[(&str, &str)]) -> ReadRequest {
    match request(&format!("GET /v1/stream/a{query}"), fields) {
        Ok(Request::Read(read)) => read,
        other => panic!("{other:?}"),
    }
}

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

#[test]
fn only_writes_of_json_take_json() {
    for method in ["PUT", "POST"] {
        let takes =
            |fields: &[_]| request(&format!("{method} /v1/stream/a"), fields).unwrap().takes_json();
        assert!(takes(&[JSON]), "{method}");
        assert!(!takes(&[TEXT]) && !takes(&[]), "{method}");
    }
    assert!(!request("GET /v1/stream/a", &[JSON]).unwrap().takes_json());
}

#[test]
fn paths_are_decoded_once() {
    for (encoded, decoded) in [
        ("a/b%2Fc", "a/b/c"),
        ("%C3%BC", "ü"),
        ("%2525", "%25"),
        ("a+b", "a+b"),
        ("a//b/", "a//b/"),
    ] {
        let line = format!("HEAD /v1/stream/{encoded}");
        assert_eq!(request(&line, &[]), Ok(Request::Head(StreamPath::new(decoded).unwrap())));
    }
    for bad in ["%", "%4", "%zz", "%ff", "%00", "a/%2e%2e/b", "./a", "a%0ab"] {
        assert_eq!(refused(&format!("GET /v1/stream/{bad}"), &[]), Code::InvalidPath, "{bad}");
    }
    assert_eq!(refused(&format!("GET /v1/stream/{}", "a".repeat(1025)), &[]), Code::InvalidPath);
}

#[test]
fn routes_that_are_no_streams_say_so() {
    for path in ["/", "/v1/stream", "/v1/stream/", "/v1/streams/a", "/health"] {
        assert_eq!(refused(&format!("GET {path}"), &[]), Code::UnknownRoute);
    }
    // PROTOCOL §6
    for path in ["__ds", "__ds/subscriptions/x", "%5F_ds/x", "__ds%2Fx"] {
        assert_eq!(refused(&format!("PUT /v1/stream/{path}"), &[]), Code::Reserved);
    }
    for path in ["__dsx", "__", "__a/b", "%5F%5Fregistry"] {
        assert_eq!(refused(&format!("PUT /v1/stream/{path}"), &[]), Code::InvalidPath, "{path}");
    }
    for path in ["__registry__", "__presence__/x", "_a", "a/__b"] {
        assert!(request(&format!("HEAD /v1/stream/{path}"), &[]).is_ok(), "{path}");
    }
    assert_eq!(refused("TRACE /v1/stream/a", &[]), Code::MethodNotAllowed);
    assert_eq!(request("OPTIONS *", &[]), Ok(Request::Preflight { fields: None }));
}

// PROTOCOL §5.1
#[test]
fn a_creation_has_a_content_type_a_lifetime_and_a_location() {
    let plain = create(&[]);
    assert_eq!(plain.asked.content_type.unwrap().as_str(), "application/octet-stream");
    assert_eq!(plain.asked.lifetime, Lifetime::Forever);
    assert_eq!(&*plain.location, b"http://example.com:4437/v1/stream/a");
    assert_eq!(asked(&[("Stream-TTL", "3600")]).lifetime, Lifetime::Ttl { seconds: 3600 });
    assert_eq!(asked(&[("Stream-TTL", "0")]).lifetime, Lifetime::Ttl { seconds: 0 });
    let longest = asked(&[("Stream-TTL", "18446744073709551615")]);
    assert_eq!(longest.lifetime, Lifetime::Ttl { seconds: u64::MAX });
    for at in ["1970-01-01T00:00:01.500Z", "1970-01-01T01:00:01.5+01:00", "1970-01-01t00:00:01.5z"]
    {
        let expected = Lifetime::ExpiresAt(Timestamp::new(1500));
        assert_eq!(asked(&[("Stream-Expires-At", at)]).lifetime, expected, "{at}");
    }
}

#[test]
fn malformed_lifetimes_are_refused() {
    for ttl in
        ["", "abc", "-1", "+3600", "03600", "3600.0", "3.6e3", "00", " 1 2", "18446744073709551616"]
    {
        assert_eq!(
            refused("PUT /v1/stream/a", &[("Stream-TTL", ttl)]),
            Code::InvalidLifetime,
            "{ttl}"
        );
    }
    for at in
        ["", "not-a-timestamp", "2030-01-01", "2030-01-01T00:00:00", "2030-13-01T00:00:00Z", "1e9"]
    {
        assert_eq!(
            refused("PUT /v1/stream/a", &[("Stream-Expires-At", at)]),
            Code::InvalidLifetime,
            "{at}"
        );
    }
    let both = [("Stream-TTL", "1"), ("Stream-Expires-At", "2030-01-01T00:00:00Z")];
    assert_eq!(refused("PUT /v1/stream/a", &both), Code::InvalidLifetime);
}

// PROTOCOL §4.1
#[test]
fn only_true_closes() {
    for value in ["true", "TRUE", "True"] {
        assert!(asked(&[("Stream-Closed", value)]).close);
    }
    for value in ["false", "yes", "1", "", "true true"] {
        assert!(!asked(&[("Stream-Closed", value)]).close, "{value}");
    }
}

// PROTOCOL §4.2
#[test]
fn a_fork_names_its_source_by_its_url_path() {
    let offset = "0000000000000007_0000000000000000";
    let fork = asked(&[
        ("Stream-Forked-From", "/v1/stream/s/%C3%BC"),
        ("Stream-Fork-Offset", offset),
        ("Stream-Fork-Sub-Offset", "3"),
    ]);
    assert_eq!(fork.content_type, None);
    let request = fork.fork.unwrap();
    assert_eq!(
        (request.source.as_str(), request.offset, request.sub_offset),
        ("s/ü", Some(ByteOffset::new(7)), 3)
    );
    let at_tail = asked(&[("Stream-Forked-From", "/v1/stream/s")]).fork.unwrap();
    assert_eq!((at_tail.offset, at_tail.sub_offset), (None, 0));
}

#[test]
fn malformed_forks_are_refused() {
    for source in [
        "",
        "s",
        "/s",
        "/v1/stream/",
        "http://h/v1/stream/s",
        "/v1/stream/s?x",
        "/v1/stream/%zz",
        "/v1/stream/__ds/x",
    ] {
        assert_eq!(
            refused("PUT /v1/stream/a", &[("Stream-Forked-From", source)]),
            Code::InvalidFork,
            "{source}"
        );
    }
    let source = ("Stream-Forked-From", "/v1/stream/s");
    for offset in ["", "-1", "now", "7", "0_7", "0000000000000000_000000000000000x"] {
        assert_eq!(
            refused("PUT /v1/stream/a", &[source, ("Stream-Fork-Offset", offset)]),
            Code::InvalidFork
        );
    }
    for sub_offset in ["", "-1", "abc", "1.5", "05", "+1"] {
        assert_eq!(
            refused("PUT /v1/stream/a", &[source, ("Stream-Fork-Sub-Offset", sub_offset)]),
            Code::InvalidFork
        );
    }
    assert_eq!(refused("PUT /v1/stream/a", &[("Stream-Fork-Sub-Offset", "0")]), Code::InvalidFork);
    let offset = ("Stream-Fork-Offset", "0000000000000000_0000000000000000");
    assert_eq!(refused("PUT /v1/stream/a", &[offset]), Code::InvalidFork);
}

#[test]
fn a_fork_without_a_type_leaves_its_body_to_the_sources_type() {
    let fork = || create(&[("Stream-Forked-From", "/v1/stream/s")]);
    let (body, empty) = (fork().finish(b"[1]").unwrap(), fork().finish(b"").unwrap());
    assert_eq!((body.asked.record_count, &*body.data), (1, &b"[1]"[..]));
    assert_eq!((empty.asked.record_count, &*empty.data), (0, &b""[..]));
}

// PROTOCOL §5.2
#[test]
fn an_append_takes_its_body_as_its_type_says() {
    let text = append(&[TEXT]).finish(b"[1, 2]").unwrap();
    assert_eq!((text.append.record_count, &*text.data), (1, &b"[1, 2]"[..]));
    assert!(matches!(text.data, Cow::Borrowed(_)), "bytes are not copied");
    let json = append(&[JSON]).finish(b" [1, [2]] ").unwrap();
    assert_eq!((json.append.record_count, &*json.data), (2, &b"1,[2],"[..]));
    let refused = |fields: &[(&str, &str)], body| append(fields).finish(body).unwrap_err().code();
    assert_eq!(refused(&[TEXT], b""), Code::EmptyAppend);
    assert_eq!(refused(&[], b"x"), Code::InvalidContentType);
    assert_eq!(refused(&[("Content-Type", "")], b"x"), Code::InvalidContentType);
    assert_eq!(refused(&[("Content-Type", "text")], b"x"), Code::InvalidContentType);
    assert_eq!(refused(&[JSON], b"[]"), Code::InvalidJson);
    assert_eq!(refused(&[JSON, ("Stream-Closed", "true")], b"[]"), Code::InvalidJson);
    assert_eq!(refused(&[JSON], b"{"), Code::InvalidJson);
}

#[test]
fn a_compressed_body_is_refused_since_readers_would_not_know() {
    for line in ["PUT /v1/stream/a", "POST /v1/stream/a"] {
        assert_eq!(refused(line, &[TEXT, ("Content-Encoding", "gzip")]), Code::ContentEncoding);
        assert!(request(line, &[TEXT, ("content-encoding", "Identity")]).is_ok());
    }
}

// PROTOCOL §5.2, "close-only requests"; §9.1.3
#[test]
fn a_close_without_data_ignores_the_content_type() {
    for fields in [
        &[("Stream-Closed", "true")][..],
        &[("Stream-Closed", "true"), ("Content-Type", "nonsense")],
    ] {
        let ready = append(fields).finish(b"").unwrap();
        assert!(
            ready.append.close
                && ready.append.content_type == AppendType::Unnamed
                && ready.append.record_count == 0
        );
    }
    let created = create(&[JSON]).finish(b"[]").unwrap();
    assert_eq!((created.asked.record_count, &*created.data), (0, &b""[..]));
}

// PROTOCOL §5.2.1
#[test]
fn producer_fields_come_together() {
    let all =
        [("Producer-Id", "p"), ("Producer-Epoch", "0"), ("Producer-Seq", "9007199254740991"), TEXT];
    let ready = append(&all).finish(b"x").unwrap();
    assert_eq!(
        ready.append.producer,
        Some(Producer { id: "p".into(), epoch: 0, seq: (1 << 53) - 1 })
    );
    for missing in 0..3 {
        let mut some = all.to_vec();
        some.remove(missing);
        assert_eq!(refused("POST /v1/stream/a", &some), Code::InvalidProducer);
        assert_eq!(refused("POST /v1/stream/a", &all[missing..=missing]), Code::InvalidProducer);
    }
    for number in ["", "1abc", "0xyz", "1e3", "-1", "+1", "01", "1.0", "9007199254740992"] {
        for place in [1, 2] {
            let mut bad = all;
            bad[place].1 = number;
            assert_eq!(refused("POST /v1/stream/a", &bad), Code::InvalidProducer, "{number}");
        }
    }
    let mut anonymous = all;
    anonymous[0].1 = "";
    assert_eq!(refused("POST /v1/stream/a", &anonymous), Code::InvalidProducer);
}

#[test]
fn single_fields_come_once() {
    for name in [
        "Stream-Closed",
        "Stream-TTL",
        "Content-Type",
        "Producer-Id",
        "Stream-Seq",
        "Stream-Forked-From",
    ] {
        let twice = [(name, "1"), (name, "1")];
        assert_eq!(refused("POST /v1/stream/a", &twice), Code::InvalidHeader, "{name}");
    }
    assert_eq!(refused("POST /v1/stream/a", &[("Stream-Seq", "")]), Code::InvalidHeader);
}

// PROTOCOL §8
#[test]
fn a_read_begins_at_an_offset() {
    assert_eq!(read("", &[]).offset, ReadFrom::Begin);
    assert_eq!(read("?offset=-1&foo=bar&baz", &[]).offset, ReadFrom::Begin);
    assert_eq!(read("?offset=%2D1", &[]).offset, ReadFrom::Begin);
    assert_eq!(read("?live=sse&offset=now", &[]).offset, ReadFrom::Now);
    let at = read("?offset=0000000000000009_0000000000000000", &[]);
    assert_eq!(at.offset, ReadFrom::At(ByteOffset::new(9)));
}

// WHATWG HTML §9.2.4: the header of a connection that continues after an event.
#[test]
fn the_last_event_of_a_reader_of_events_wins_over_the_query() {
    let id = [("Last-Event-ID", "0000000000000009_0000000000000000")];
    let nine = ReadFrom::At(ByteOffset::new(9));
    for start in ["offset=-1", "offset=now", "record=3", "tail_records=2", "time=5"] {
        let back = read(&format!("?live=sse&{start}"), &id);
        assert_eq!((back.offset, back.resumes_events), (nine, true), "{start}");
        let first = read(&format!("?live=sse&{start}"), &[]);
        assert!(first.offset != nine && !first.resumes_events, "{start}");
    }
    for other in ["?offset=-1", "?offset=-1&live=long-poll"] {
        assert_eq!(read(other, &id).offset, ReadFrom::Begin, "only readers of events have one");
    }
    for id in ["", "-1", "now", "9,1", "17", "0000000000000009_9000000000000000"] {
        let refused = refused("GET /v1/stream/a?offset=-1&live=sse", &[("Last-Event-ID", id)]);
        assert_eq!(refused, Code::InvalidOffset, "{id}");
    }
}

#[test]
fn malformed_reads_are_refused() {
    for query in [
        "offset=",
        "offset",
        "offset=a&offset=b",
        "offset=-1&offset=-1",
        "offset=0,1",
        "offset=0%201",
        "offset=-1%00",
        "offset=../x",
        "offset=now%0A",
        "offset=NOW",
        "offset=-2",
        "offset=%",
        "offset=%zz",
        "offset=+1",
    ] {
        assert_eq!(
            refused(&format!("GET /v1/stream/a?{query}"), &[]),
            Code::InvalidOffset,
            "{query}"
        );
    }
    assert_eq!(refused("GET /v1/stream/a?live=long-poll", &[]), Code::OffsetMissing);
    assert_eq!(refused("GET /v1/stream/a?live=sse", &[]), Code::OffsetMissing);
    for live in ["", "poll", "SSE"] {
        assert_eq!(
            refused(&format!("GET /v1/stream/a?offset=-1&live={live}"), &[]),
            Code::InvalidQuery
        );
    }
}

#[test]
fn a_read_says_what_its_client_can_take() {
    let plain = read("?offset=-1&live=long-poll&cursor=12", &[]);
    assert_eq!(
        (plain.live, plain.cursor, plain.accepts_gzip, plain.base64),
        (Live::LongPoll, Some(12), false, false)
    );
    assert_eq!(read("?cursor=abc", &[]).cursor, None);
    let more =
        read("?encoding=base64", &[("Accept-Encoding", "br, gzip"), ("If-None-Match", "\"x\"")]);
    assert_eq!(
        (more.accepts_gzip, more.base64, more.if_none_match.as_deref()),
        (true, true, Some("\"x\""))
    );
    assert!(read("", &[("Stream-SSE-Data-Encoding", "Base64")]).base64);
}

#[test]
fn the_second_part_of_an_offset_is_ignored_or_reserved() {
    let counted = read("?offset=0000000000000009_0000000000000001", &[]);
    assert_eq!(counted.offset, ReadFrom::At(ByteOffset::new(9)));
    let reserved = "0000000000000009_1000000000000000";
    let read = request(&format!("GET /v1/stream/a?offset={reserved}"), &[]).unwrap_err();
    assert_eq!(read.code(), Code::InvalidOffset);
    let fields = [("Stream-Forked-From", "/v1/stream/s"), ("Stream-Fork-Offset", reserved)];
    let fork = request("PUT /v1/stream/a", &fields).unwrap_err();
    assert_eq!(fork.code(), Code::InvalidFork);
    assert!(read.detail().contains("reserved") && fork.detail().contains("reserved"));
}

// RFC 9110 §13.1.1: never applied to another state than the one that was named.
#[test]
fn a_precondition_is_for_appends() {
    for field in [("If-Match", "\"7-42:0:9\""), ("if-match", ""), ("IF-MATCH", "*")] {
        for method in ["PUT", "PATCH", "DELETE"] {
            let line = format!("{method} /v1/stream/a");
            assert_eq!(refused(&line, &[TEXT, field]), Code::PreconditionUnsupported);
            assert_eq!(refused(&line, &[field, field]), Code::PreconditionUnsupported);
        }
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(request(&format!("{method} /v1/stream/a"), &[field]).is_ok(), "{method}");
        }
    }
}

fn condition(fields: &[(&str, &str)]) -> Option<Box<stream::Condition>> {
    match request("POST /v1/stream/a", fields).unwrap() {
        Request::Append(append) => append.announced().condition,
        other => panic!("{other:?} is no append"),
    }
}

// RFC 9110 §13.1.1: strong comparison; a list names several states.
#[test]
fn an_append_names_the_states_that_it_is_for() {
    let state = |group, stream, tail, closed| stream::EndState {
        stream: model::StreamKey {
            group: model::GroupId::new(group),
            stream: model::StreamId::new(stream),
        },
        tail: ByteOffset::new(tail),
        closed,
    };
    let listed =
        condition(&[("If-Match", "\"7-42:0:9\", W/\"7-42:0:8\" ,\"x\",\"1-2:3:4:c\"")]).unwrap();
    assert_eq!(listed.states, [state(7, 42, 9, false), state(1, 2, 4, true)]);
    assert_eq!(condition(&[("If-Match", " * ")]).unwrap().states, []);
    assert_eq!(condition(&[]), None);
    let numbered = condition(&[("Stream-Record-Match", "12")]).unwrap();
    assert_eq!((numbered.next_record, &numbered.states[..]), (Some(12), &[][..]));
    for none in ["", "W/\"7-42:0:9\"", "\"07-42:0:9\"", "\"7-42:0:9:d\"", "\"7-42:0:9", "7-42:0:9"]
    {
        assert_eq!(
            refused("POST /v1/stream/a", &[("If-Match", none)]),
            Code::PreconditionFailed,
            "{none}"
        );
    }
    let twice = [("If-Match", "*"), ("If-Match", "*")];
    assert_eq!(refused("POST /v1/stream/a", &twice), Code::InvalidHeader, "never as if absent");
    let many = vec!["\"7-42:0:9\""; 17].join(",");
    assert_eq!(refused("POST /v1/stream/a", &[("If-Match", &many)]), Code::InvalidHeader);
    assert_eq!(refused("POST /v1/stream/a", &[("Stream-Record-Match", "-1")]), Code::InvalidHeader);
}

#[test]
fn a_read_begins_at_one_place_and_has_bounds() {
    let begins = |query: &str| read(query, &[]).offset;
    assert_eq!(begins("?record=7"), ReadFrom::Record(7));
    assert_eq!(begins("?record=now"), ReadFrom::Now);
    assert_eq!(begins("?tail_records=0"), ReadFrom::TailRecords(0));
    assert_eq!(begins("?time=1500"), ReadFrom::Time(1500));
    assert_eq!(begins("?time=1970-01-01T00:00:01.5Z"), ReadFrom::Time(1500));
    assert_eq!(begins("?live=sse&record=7"), ReadFrom::Record(7));
    assert_eq!(read("?offset=-1", &[]).records, None, "nothing is asked of records");
    let bounded = read("?max_records=2&max_bytes=30&until=9&clamp=true", &[]).records.unwrap();
    let bounds = model::Bounds { records_max: Some(2), bytes_max: Some(30), until: Some(9) };
    assert_eq!(bounded, model::ReadRecords { bounds, clamp: true });
    for query in [
        "record=1&offset=-1",
        "record=1&time=1",
        "tail_records=1&time=1",
        "record=01",
        "record=-1",
        "record=",
        "time=yesterday",
        "until=-1",
        "max_records=0",
        "max_bytes=0",
        "clamp=yes&record=1",
        "record=1&live=sse&max_records=1",
        "record=1&record=1",
        "record=9007199254740993",
    ] {
        assert_eq!(
            refused(&format!("GET /v1/stream/a?{query}"), &[]),
            Code::InvalidQuery,
            "{query}"
        );
    }
    let path = StreamPath::new("a").unwrap();
    let place = Request::Resolve { path: path.clone(), from: ReadFrom::Record(5), clamp: false };
    assert_eq!(request("HEAD /v1/stream/a?record=5", &[]), Ok(place));
    assert_eq!(request("HEAD /v1/stream/a?offset=junk", &[]), Ok(Request::Head(path)));
}

#[test]
fn a_patch_does_one_thing() {
    use stream::{Keep, RetentionChange};
    let patch = |fields: &[(&str, &str)]| request("PATCH /v1/stream/a", fields);
    let path = StreamPath::new("a").unwrap();
    let retention = RetentionChange {
        age_seconds: Some(Keep::AtLeast(60)),
        bytes: Some(Keep::All),
        records: Some(Keep::Default),
    };
    let all = [
        ("Stream-Retention-Age", "60"),
        ("Stream-Retention-Bytes", "none"),
        ("Stream-Retention-Records", "default"),
    ];
    let change = stream::Change { retention };
    assert_eq!(patch(&all), Ok(Request::Change { path: path.clone(), change }));
    let before = model::TrimBefore::Record(9);
    assert_eq!(patch(&[("Stream-Trim-Before-Record", "9")]), Ok(Request::Trim { path, before }));
    let refused = |fields: &[(&str, &str)]| patch(fields).unwrap_err().code();
    assert_eq!(refused(&[]), Code::EmptyChange);
    assert_eq!(refused(&[all[0], ("Stream-Trim-Before-Record", "9")]), Code::EmptyChange);
    let both = [
        ("Stream-Trim-Before-Record", "9"),
        ("Stream-Trim-Before", "0000000000000009_0000000000000000"),
    ];
    assert_eq!(refused(&both), Code::InvalidHeader);
    for (name, value) in [
        ("Stream-Trim-Before", "9"),
        ("Stream-Retention-Age", "1.5"),
        ("Stream-Retention-Bytes", ""),
    ] {
        assert_eq!(refused(&[(name, value)]), Code::InvalidHeader, "{name}: {value}");
    }
    let created = asked(&[TEXT, all[0], ("Stream-Record-Time", "5")]);
    assert_eq!(created.retention.age_seconds, Keep::AtLeast(60));
    assert_eq!(created.record_time, Some(stream::RecordTime::Given(5)));
}

proptest! {
    #[test]
    fn no_target_panics(path in "[/a-z%0-9._-]{0,30}", query in "[a-z=&%0-9_-]{0,40}") {
        let _ = request(&format!("GET /v1/stream/{path}?{query}"), &[]);
    }

    #[test]
    fn no_field_panics(value in "[ -~]{0,60}") {
        for name in ["Content-Type", "Stream-TTL", "Stream-Expires-At", "Stream-Forked-From", "Stream-Fork-Offset",
            "If-None-Match", "Accept-Encoding", "Producer-Epoch", "Stream-Closed",
            "If-Match", "Stream-Record-Match", "Stream-Record-Numbers", "Stream-Record-Time", "Stream-Retention-Age", "Stream-Trim-Before"] {
            for line in ["PUT /v1/stream/a", "POST /v1/stream/a", "PATCH /v1/stream/a", "GET /v1/stream/a"] {
                if let Ok(Request::Append(append)) = request(line, &[(name, &value)]) {
                    let _ = append.finish(value.as_bytes());
                }
            }
        }
    }

    #[test]
    fn no_entity_tag_list_panics(list in "[W/\"a-z,* ]{0,40}") {
        let stream = model::StreamKey { group: model::GroupId::new(0), stream: model::StreamId::new(1) };
        let tag = crate::etag::ETag { stream, start: ByteOffset::ZERO, end: ByteOffset::ZERO, closed: false };
        let _ = tag.matches(&list);
    }
}
