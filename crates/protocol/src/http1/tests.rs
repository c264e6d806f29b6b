use super::*;
use crate::{Authority, CommonFields, Field, HeadSink, HttpDate, Viewers, problem::Problem};
use model::Timestamp;
use proptest::prelude::*;

/// Stories of a transcript: bytes that arrive, and the line that tells what we made of them.
fn stories(text: &str) -> Vec<(String, Vec<u8>, String)> {
    let (mut stories, mut shown, mut bytes, mut told) = (vec![], String::new(), vec![], false);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line {
            "----" => told = true,
            "" => {}
            verdict if told => {
                stories.push((
                    std::mem::take(&mut shown),
                    std::mem::take(&mut bytes),
                    verdict.to_owned(),
                ));
                told = false;
            }
            input => {
                shown.push_str(input);
                bytes.extend(unescape(input));
            }
        }
    }
    assert!(shown.is_empty(), "a story lacks its verdict: {shown}");
    stories
}

fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = vec![];
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        bytes.push(match escaped {
            None => byte,
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'x') => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            Some(other) => other,
        });
    }
    bytes
}

fn verdict(bytes: &[u8]) -> String {
    let mut slots = HeaderSlots::new();
    match HeadReader::default().read(bytes, &mut slots, &HeadLimits::default()) {
        Ok(None) => "needs more".into(),
        Ok(Some(head)) => format!(
            "{:?} {} query={} at={} body={:?}{}{} head={}",
            head.request.method,
            head.request.path,
            head.request.query.unwrap_or("-"),
            head.request.authority.map_or("-", |name| name.text()),
            head.framing,
            if head.keep_alive { "" } else { " close" },
            if head.expect_continue { " continue" } else { "" },
            head.head_bytes,
        ),
        Err(error) => {
            let problem = Problem::from(error);
            assert!(problem.closes());
            format!("{error:?} -> {}", problem.status())
        }
    }
}

fn check(transcript: &str) -> usize {
    let stories = stories(transcript);
    for (shown, bytes, expected) in &stories {
        assert_eq!(&verdict(bytes), expected, "{shown}");
    }
    stories.len()
}

#[test]
fn heads_are_read_as_the_transcript_tells() {
    check(include_str!("../../testdata/heads.txt"));
}

#[test]
fn ambiguous_requests_are_refused() {
    let transcript = include_str!("../../testdata/smuggling.txt");
    assert!(stories(transcript).iter().all(|(_, _, verdict)| verdict.contains("->")));
    assert!(check(transcript) > 35);
}

#[test]
fn a_head_that_comes_byte_by_byte_is_searched_once() {
    let bytes = b"\r\nPOST /v1/stream/a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: i\r\n\r\n";
    let mut reader = HeadReader::default();
    let limits = HeadLimits::default();
    let head_bytes = 60;
    for length in 0..head_bytes {
        let mut slots = HeaderSlots::new();
        assert!(reader.read(&bytes[..length], &mut slots, &limits).unwrap().is_none(), "{length}");
    }
    let mut slots = HeaderSlots::new();
    let head = reader.read(bytes, &mut slots, &limits).unwrap().unwrap();
    assert_eq!((head.framing, head.head_bytes), (Framing::Length(3), head_bytes));
    let mut slots = HeaderSlots::new();
    let next = reader.read(&bytes[head_bytes + 3..], &mut slots, &limits).unwrap().unwrap();
    assert_eq!(next.request.authority, Authority::new(b"i"));
}

#[test]
fn bytes_that_are_no_http_get_the_same_answer_however_they_arrive() {
    let hello = b"\x16\x03\x01\n\r\n\r\n";
    for end in [1, 4, hello.len()] {
        let mut slots = HeaderSlots::new();
        let read =
            HeadReader::default().read(&hello[..end], &mut slots, &HeadLimits::default()).err();
        assert_eq!(read, Some(HeadError::NotHttp), "{end} bytes");
    }
}

#[test]
fn heads_lines_and_bodies_have_limits() {
    let limits = HeadLimits { head_bytes_max: 200, body_bytes_max: 10 };
    let refuse = |text: String| {
        let mut slots = HeaderSlots::new();
        HeadReader::default().read(text.as_bytes(), &mut slots, &limits).unwrap_err()
    };
    assert_eq!(refuse(format!("GET /{}", "a".repeat(300))), HeadError::TargetTooLong);
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(300));
    assert_eq!(refuse(long), HeadError::HeadTooLong { limit_bytes: 200 });
    let body = HeadError::BodyTooLong { length_bytes: 11, limit_bytes: 10 };
    assert_eq!(refuse("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n".into()), body);
    let many = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
        "X: y\r\n".repeat(crate::limits::HEADER_COUNT_MAX)
    );
    let mut slots = HeaderSlots::new();
    let refused = HeadReader::default().read(many.as_bytes(), &mut slots, &HeadLimits::default());
    assert_eq!(refused.unwrap_err(), HeadError::TooManyFields);
}

fn decode(input: &[u8], step: usize) -> Result<(Vec<u8>, usize), ChunkError> {
    let (mut decoder, mut body, mut consumed) = (ChunkedDecoder::new(1000), vec![], 0);
    for piece in input.chunks(step) {
        let done = decoder.decode(piece, &mut body)?;
        consumed += done.consumed;
        if done.done {
            return Ok((body, consumed));
        }
    }
    Ok((body, usize::MAX))
}

#[test]
fn chunks_are_joined_whatever_the_pieces() {
    let input = b"5;name=\"v\"\r\nhello\r\n0A\r\n, world...\r\n0\r\nTrailer: x\r\n\r\nGET /";
    for step in 1..input.len() {
        assert_eq!(decode(input, step), Ok((b"hello, world...".to_vec(), input.len() - 5)));
    }
}

#[test]
fn chunks_that_parsers_disagree_on_are_refused() {
    for (input, error) in [
        (&b"5\nhello\r\n"[..], ChunkError::Size),
        (b"5 \r\nhello\r\n", ChunkError::Size),
        (b" 5\r\nhello\r\n", ChunkError::Size),
        (b"+5\r\n", ChunkError::Size),
        (b"0x5\r\n", ChunkError::Size),
        (b"-1\r\n", ChunkError::Size),
        (b"\r\n", ChunkError::Size),
        (b";a\r\n", ChunkError::Size),
        (b"00000000000000005\r\n", ChunkError::Size),
        (b"5\rhello", ChunkError::LineEnd),
        (b"5;a\nhello\r\n", ChunkError::LineEnd),
        (b"5;a\0\r\nhello\r\n", ChunkError::LineEnd),
        (b"5\r\nhelloX\r\n", ChunkError::LineEnd),
        (b"5\r\nhello\n0\r\n\r\n", ChunkError::LineEnd),
        (b"0\r\n\n", ChunkError::LineEnd),
        (b"0\r\nA: b\n\r\n", ChunkError::LineEnd),
        (b"ffffffffffffffff\r\n", ChunkError::BodyTooLong { limit_bytes: 1000 }),
    ] {
        assert_eq!(decode(input, 1), Err(error), "{}", input.escape_ascii());
    }
    let long = format!("5;{}\r\n", "a".repeat(300));
    assert_eq!(decode(long.as_bytes(), 7), Err(ChunkError::LineTooLong));
    let trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(3000));
    assert_eq!(decode(trailers.as_bytes(), 7), Err(ChunkError::TrailersTooLong));
    let endless = "1\r\na\r\n".repeat(1001);
    assert_eq!(decode(endless.as_bytes(), 100), Err(ChunkError::BodyTooLong { limit_bytes: 1000 }));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1usize..20) {
        verdict(&bytes);
        let _ = decode(&bytes, step);
    }

    #[test]
    fn no_damaged_request_panics(place in 0usize..80, byte in any::<u8>()) {
        let mut bytes = b"POST /v1/stream/a?offset=now HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nA: b\r\n\r\n".to_vec();
        let place = place.min(bytes.len() - 1);
        bytes[place] = byte;
        verdict(&bytes);
    }

    #[test]
    fn chunks_come_back(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8), step in 1usize..50) {
        let mut wire = vec![];
        for piece in &pieces {
            put_chunk(&mut wire, piece);
        }
        wire.extend_from_slice(LAST_CHUNK);
        prop_assert_eq!(decode(&wire, step), Ok((pieces.concat(), wire.len())));
    }
}

/// No common fields but the date.
static NONE: CommonFields =
    crate::head::common_fields! { shown: true, all: {}, listed: {}, both: {} };

fn exchange(date: &HttpDate, version: Version, keep_alive: bool) -> Exchange<'_> {
    Exchange { version, keep_alive, is_head: false, date, viewers: Viewers::All }
}

fn ending(version: Version, keep_alive: bool, length: Length) -> (String, BodyFraming) {
    let date = HttpDate::new(Timestamp::new(0));
    let (exchange, mut out) = (exchange(&date, version, keep_alive), vec![]);
    let mut head = HeadWriter::new(&mut out, &exchange);
    head.start(200, &NONE);
    let framing = head.end(length);
    assert_eq!(head.status(), 200);
    let text = String::from_utf8(out).unwrap();
    (text.split_once("GMT\r\n").unwrap().1.to_owned(), framing)
}

#[test]
fn an_answer_says_how_its_body_ends() {
    use {BodyFraming::*, Version::*};
    let known = Length::Known(7);
    assert_eq!(ending(Http11, true, known), ("Content-Length: 7\r\n\r\n".into(), Plain));
    assert_eq!(ending(Http11, false, Length::None), ("Connection: close\r\n\r\n".into(), Plain));
    assert_eq!(
        ending(Http10, true, Length::None),
        ("Connection: keep-alive\r\n\r\n".into(), Plain)
    );
    assert_eq!(
        ending(Http11, true, Length::Unknown),
        ("Transfer-Encoding: chunked\r\n\r\n".into(), Chunked)
    );
    assert_eq!(
        ending(Http10, true, Length::Unknown),
        ("Connection: close\r\n\r\n".into(), UntilClose)
    );
}

#[test]
fn no_value_can_end_its_line() {
    let date = HttpDate::new(Timestamp::new(0));
    let exchange = exchange(&date, Version::Http11, true);
    let mut out = vec![];
    let mut head = HeadWriter::new(&mut out, &exchange);
    head.start(200, &NONE);
    head.field(Field::Location, "a\r\nInjected: b\0");
    head.end(Length::None);
    assert!(String::from_utf8(out).unwrap().contains("Location: a  Injected: b \r\n"));
}
