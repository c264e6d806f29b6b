//! Answers as a client sees them, without what every answer carries: `testdata/answers.txt`.

use crate::builders::{accepted, answer, info, request};
use model::{ByteOffset, GroupId, ReadFrom, Timestamp};
use stream::{Accepted, ConfigField, ContentType, Lifetime, Outcome, Refusal, StreamInfo};
use thalweg_protocol::{
    BodyFraming, HttpDate, Viewers,
    events::Mode,
    http1::{Exchange, HeadWriter, Version},
    problem::{Code, Problem},
    request::{Live, ReadRequest},
    response::{
        BodyPlan, ReadAnswer, appended, long_poll_timeout, metadata, outcome, preflight, read, sse,
    },
};

/// The field that scripts need to see others, and its second line in answers that have more of them.
const EXPOSES: &str = "Access-Control-Expose-Headers: ";
const EXPOSES_MORE: &str = "Access-Control-Expose-Headers: Stream-";

/// A request that is `HEAD` or not, whose answer all pages may see.
fn exchange(date: &HttpDate, is_head: bool) -> Exchange<'_> {
    let (version, viewers) = (Version::Http11, Viewers::All);
    Exchange { version, keep_alive: true, is_head, date, viewers }
}

/// Writes with `write`; returns status line and fields, without those that every answer carries.
fn shown(write: impl FnOnce(&mut HeadWriter<'_, '_>)) -> String {
    let date = HttpDate::new(Timestamp::new(0));
    let exchange = exchange(&date, false);
    let mut out = vec![];
    write(&mut HeadWriter::new(&mut out, &exchange));
    let text = String::from_utf8(out).unwrap();
    let (common, rest): (Vec<&str>, Vec<&str>) = text.split("\r\n").partition(|line| {
        [
            "X-Content-Type-Options: nosniff",
            "Cross-Origin-Resource-Policy: cross-origin",
            "Access-Control-Allow-Origin: *",
            "Date: Thu, 01 Jan 1970 00:00:00 GMT",
        ]
        .contains(line)
            || line.starts_with(EXPOSES) && !line.starts_with(EXPOSES_MORE)
    });
    assert_eq!(common.len(), 5, "every answer carries these");
    rest.join("\n").trim_end().to_owned()
}

fn shown_append(accepted: &Accepted) -> String {
    shown(|sink| appended(sink, accepted))
}

fn shown_read(answer: &ReadAnswer<'_>) -> String {
    shown(|sink| {
        read(sink, answer);
    })
}

type Titled = (&'static str, String);

fn writes() -> Vec<Titled> {
    let producer = Accepted { producer: Some((1, 5)), ..accepted(9) };
    let duplicate = Accepted { duplicate: true, ..producer.clone() };
    let closing = Accepted { closed: true, close_only: true, ..producer.clone() };
    let open = info("text/plain", 9);
    let closed = StreamInfo { closed: true, ..open.clone() };
    let write = |came: Outcome| shown(|sink| outcome(sink, &came, b"http://h/v1/stream/a"));
    vec![
        ("append", shown_append(&accepted(9))),
        ("append by a producer", shown_append(&producer)),
        ("duplicate", shown_append(&duplicate)),
        ("close by a producer, without data", shown_append(&closing)),
        ("create", write(Outcome::Created(open.into()))),
        ("create again", write(Outcome::Existed(closed.into()))),
        ("delete", write(Outcome::Deleted)),
        ("preflight", shown(|sink| preflight(sink, None))),
    ]
}

fn descriptions() -> Vec<Titled> {
    let ttl = StreamInfo { lifetime: Lifetime::Ttl { seconds: 60 }, ..info("text/plain", 9) };
    let at = Lifetime::ExpiresAt(Timestamp::new(1500));
    let expiring = StreamInfo { lifetime: at, closed: true, ..info("text/plain", 9) };
    vec![
        ("metadata", shown(|sink| metadata(sink, GroupId::new(7), &ttl))),
        (
            "metadata of a closed stream that expires",
            shown(|sink| metadata(sink, GroupId::new(7), &expiring)),
        ),
    ]
}

fn reads() -> Vec<Titled> {
    let begin = request(ReadFrom::Begin, Live::CatchUp);
    let now = request(ReadFrom::Now, Live::CatchUp);
    let known = ReadRequest { if_none_match: Some("\"7-42:0:9\"".into()), ..begin.clone() };
    let open = info("text/plain", 9);
    let json = info("application/json", 9);
    let closed = StreamInfo { closed: true, ..open.clone() };
    let ttl = StreamInfo { lifetime: Lifetime::Ttl { seconds: 60 }, ..open.clone() };
    let stable = ReadAnswer { is_stable: true, ..answer(&begin, &open, 0, 4) };
    let with_lifetime = ReadAnswer { info: &ttl, ..stable };
    let compressed = ReadAnswer { gzip: true, ..answer(&begin, &open, 0, 9) };
    vec![
        ("read to the tail", shown_read(&answer(&begin, &open, 0, 9))),
        ("read to the tail of JSON", shown_read(&answer(&begin, &json, 0, 9))),
        ("read to the end", shown_read(&answer(&begin, &closed, 0, 9))),
        ("read a part", shown_read(&answer(&begin, &closed, 0, 4))),
        ("read a stable part", shown_read(&stable)),
        ("read a stable part of a stream with a lifetime", shown_read(&with_lifetime)),
        ("read at the tail", shown_read(&answer(&begin, &open, 9, 9))),
        ("read at the end", shown_read(&answer(&begin, &closed, 9, 9))),
        ("read now", shown_read(&answer(&now, &json, 9, 9))),
        ("read compressed", shown_read(&compressed)),
        ("read what is known", shown_read(&answer(&known, &open, 0, 9))),
        ("read what was known, but is closed now", shown_read(&answer(&known, &closed, 0, 9))),
    ]
}

fn live_reads() -> Vec<Titled> {
    let poll = ReadRequest { cursor: Some(3), ..request(ReadFrom::Begin, Live::LongPoll) };
    let open = info("text/plain", 9);
    let closed = StreamInfo { closed: true, ..open.clone() };
    let with_data = ReadAnswer { cursor: Some(7), ..answer(&poll, &open, 0, 9) };
    let at_end = ReadAnswer { cursor: Some(7), ..answer(&poll, &closed, 9, 9) };
    let events = |mode| {
        shown(|sink| {
            sse(sink, mode);
        })
    };
    vec![
        ("long-poll with data", shown_read(&with_data)),
        ("long-poll in vain", shown(|sink| long_poll_timeout(sink, &open, 7, false))),
        ("long-poll at the end", shown_read(&at_end)),
        ("events", events(Mode::Text)),
        ("events in base64", events(Mode::Base64)),
    ]
}

fn problems() -> Vec<Titled> {
    let refused = |refusal: Refusal| shown(|sink| outcome(sink, &Outcome::Refused(refusal), b""));
    let problem = |problem: Problem| shown(|sink| problem.render(sink));
    let expected = ContentType::new("text/\"x");
    vec![
        ("closed", refused(Refusal::Closed { tail: ByteOffset::new(9) })),
        ("stale epoch", refused(Refusal::StaleEpoch { current: 3 })),
        ("gap", refused(Refusal::SeqGap { expected: 3, received: 5 })),
        ("other configuration", refused(Refusal::Config { differs: ConfigField::Lifetime })),
        ("other type", refused(Refusal::ContentType { expected })),
        ("deleted", refused(Refusal::Gone)),
        ("overload", problem(Problem::overloaded(3))),
        ("method", problem(Problem::new(Code::MethodNotAllowed))),
        ("damage", problem(Problem::damaged("c/1.chunk", 4096, 8191))),
    ]
}

fn transcript() -> String {
    let answers = [writes(), descriptions(), reads(), live_reads(), problems()].concat();
    answers.into_iter().map(|(title, text)| format!("# {title}\n{text}\n\n")).collect()
}

#[test]
fn answers_are_as_the_transcript_shows() {
    let golden = include_str!("../../testdata/answers.txt");
    for (ours, theirs) in transcript().split("\n\n# ").zip(golden.split("\n\n# ")) {
        assert_eq!(ours.trim_end(), theirs.trim_end());
    }
    assert_eq!(transcript().trim_end(), golden.trim_end());
}

#[test]
fn a_read_plan_covers_the_stored_bytes_and_their_frame() {
    let date = HttpDate::new(Timestamp::new(0));
    let exchange = exchange(&date, false);
    let (begin, json) = (request(ReadFrom::Begin, Live::CatchUp), info("application/json", 9));
    let plan = read(&mut HeadWriter::new(&mut vec![], &exchange), &answer(&begin, &json, 0, 9));
    let BodyPlan::Range { start, end, frame, framing } = plan else { panic!("{plan:?}") };
    assert_eq!((start.get(), end.get(), frame.prefix, frame.suffix), (0, 8, &b"["[..], &b"]"[..]));
    assert_eq!(framing, BodyFraming::Plain);
    let plan = read(&mut HeadWriter::new(&mut vec![], &exchange), &answer(&begin, &json, 9, 9));
    let BodyPlan::Range { start, end, frame, .. } = plan else { panic!("{plan:?}") };
    assert_eq!((start, end, frame.body_bytes(0)), (ByteOffset::new(9), ByteOffset::new(9), 2));
}

#[test]
fn a_problem_has_no_body_for_head() {
    let date = HttpDate::new(Timestamp::new(0));
    let exchange = exchange(&date, true);
    let mut out = vec![];
    Problem::new(Code::NotFound).render(&mut HeadWriter::new(&mut out, &exchange));
    assert!(out.ends_with(b"\r\n\r\n"));
}
