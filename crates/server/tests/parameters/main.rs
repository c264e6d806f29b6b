//! Every parameter of reads by record and time, in every way to read, of every kind of stream.
//!
//! One table: *parameter* × catch-up, long-poll, events × JSON, bytes × plain, fork, trimmed, closed. Each cell is asked of a
//! running server, before and after a restart, and compared with what [`Kept`] says that a list of records gives.

#[path = "../harness/mod.rs"]
mod harness;
mod kept;

use harness::events::Events;
use harness::{Answer, JSON, SMALL_LOG, Server, Start, TEXT, new_dir};
use kept::{End, Kept, Part};
use serde_json::Value;

/// What is done to a stream.
const STATES: [&str; 4] = ["plain", "fork", "trimmed", "closed"];

/// A parameter: the query for a stream whose records are known, and the part that it means.
struct Row {
    query: String,
    wanted: Result<Part, End>,
    /// It bounds the answer, so events refuse it.
    is_bound: bool,
}

/// The rows of the table for a stream.
fn rows(kept: &Kept) -> Vec<Row> {
    let (first, next) = (kept.first(), kept.next());
    let middle = first + (next - first) / 2;
    let start = |query: String, wanted: Result<u64, End>| {
        let wanted = wanted.map(|number| kept.part(number, next));
        Row { query, wanted, is_bound: false }
    };
    let mut rows = vec![
        start(format!("record={first}"), Ok(first)),
        start(format!("record={middle}"), Ok(middle)),
        start(format!("record={next}"), Ok(next)),
        start("record=now".into(), Ok(next)),
        start(format!("record={}", next + 1), Err(End::Beyond)),
        start(format!("record={}&clamp=true", next + 9), Ok(next)),
        start(format!("record={}&clamp=false", next + 9), Err(End::Beyond)),
        start("tail_records=2".into(), Ok(next - 2)),
        start("tail_records=0".into(), Ok(next)),
        start("tail_records=999".into(), Ok(first)),
        start("time=0".into(), Ok(first)),
        start(format!("time={}", kept.time_of(middle)), Ok(middle)),
        start(format!("time={}", kept.time_of(middle) + 1), Ok(middle + 1)),
        start("time=2345-06-07T08:09:10Z".into(), Ok(next)),
    ];
    if first > 0 {
        rows.push(start("record=0".into(), Err(End::Trimmed)));
    }
    let bound =
        |query: String, to: u64| Row { query, wanted: Ok(kept.part(middle, to)), is_bound: true };
    rows.extend([
        bound(format!("record={middle}&max_records=1"), middle + 1),
        bound(format!("record={middle}&max_records=999"), next),
        bound(format!("tail_records={}&max_records=2", next - middle), middle + 2),
        bound(format!("record={middle}&until={}", kept.time_of(middle + 2)), middle + 2),
        bound(format!("record={middle}&until=2345-06-07T08:09:10Z"), next),
        bound(format!("time={}&max_records=2", kept.time_of(middle)), middle + 2),
        bound(format!("record={middle}&max_bytes={}", kept.bytes_of(middle, 2)), middle + 2),
        bound(format!("offset={}&max_records=1", kept.offset_of(middle)), middle + 1),
    ]);
    rows
}

/// A server whose streams are as the table needs them.
struct Table {
    server: Server,
    streams: Vec<(String, Kept)>,
}

impl Table {
    fn make(server: Server) -> Self {
        let mut table = Self { server, streams: Vec::new() };
        for kind in [JSON, TEXT] {
            for state in STATES {
                table.add(kind, state);
            }
        }
        table
    }

    fn add(&mut self, kind: &'static str, state: &'static str) {
        let mut client = self.server.connect();
        let path = format!("/{state}/{}", if kind == JSON { "json" } else { "bytes" });
        let mut kept = Kept::new(kind);
        if state == "fork" {
            let source = format!("{path}/source");
            client.put(&source, kind).is(201);
            kept.fill(&mut client, &source, 6);
            let fields = [("Stream-Forked-From", format!("/v1/stream{source}"))];
            client.call("PUT", &path, &[(fields[0].0, &fields[0].1)], b"").is(201);
            client.post(&source, kind, b"9").is(204);
        } else {
            client.put(&path, kind).is(201);
        }
        kept.fill(&mut client, &path, 10);
        match state {
            "trimmed" => {
                let answer =
                    client.call("PATCH", &path, &[("Stream-Trim-Before-Record", "4")], b"");
                kept.trim(&answer.is(204));
            }
            "closed" => {
                client.call("POST", &path, &[("Stream-Closed", "true")], b"").is(204);
                kept.is_closed = true;
            }
            _ => {}
        }
        self.streams.push((path, kept));
    }

    /// Asks every cell.
    fn check(&self) {
        let mut cells = 0;
        for (path, kept) in &self.streams {
            for row in rows(kept) {
                let asked = format!("{path}?{}", row.query);
                let cell = Cell { server: &self.server, kept, row: &row, asked: &asked };
                cell.catch_up();
                cell.long_poll();
                cell.events(path);
                cell.place();
                cells += 4;
            }
        }
        assert!(cells > 8 * 4 * 20, "{cells} cells");
    }
}

/// One cell of the table.
struct Cell<'a> {
    server: &'a Server,
    kept: &'a Kept,
    row: &'a Row,
    asked: &'a str,
}

impl Cell<'_> {
    fn get(&self, live: &str) -> Answer {
        self.server.connect().get(&format!("{}{live}", self.asked))
    }

    /// Whether the answer is the refusal that is wanted.
    fn is_refused(&self, answer: &Answer) -> bool {
        let (status, code, fields) = match &self.row.wanted {
            Ok(_) => return false,
            Err(End::Trimmed) => (410, "offset-trimmed", ["Stream-Head", "Stream-Head"]),
            Err(End::Beyond) => (416, "beyond-tail", ["Stream-Next-Offset", "Stream-Record-Next"]),
        };
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (status, &code.into()),
            "{}",
            self.asked
        );
        for field in fields {
            assert!(answer.field(field).is_some(), "{}: no {field}", self.asked);
        }
        true
    }

    fn numbers(&self, answer: &Answer, part: &Part) {
        let shown = |name| answer.field(name).and_then(|value| value.parse::<u64>().ok());
        let shown = (shown("Stream-Record-Start"), shown("Stream-Record-Next"));
        assert_eq!(shown, (Some(part.from), Some(part.to)), "{}", self.asked);
        assert_eq!(answer.next(), part.end, "{}", self.asked);
    }

    fn is_at_end(&self, part: &Part) -> bool {
        part.to == self.kept.next()
    }

    fn catch_up(&self) {
        let answer = self.get("");
        if self.is_refused(&answer) {
            return;
        }
        let part = self.row.wanted.as_ref().unwrap();
        let answer = answer.is(200);
        self.numbers(&answer, part);
        assert_eq!(answer.text(), part.body, "{}", self.asked);
        let is_up_to_date = answer.field("Stream-Up-To-Date").is_some();
        assert_eq!(is_up_to_date, self.is_at_end(part), "{}", self.asked);
        let is_closed = answer.field("Stream-Closed").is_some();
        assert_eq!(is_closed, self.kept.is_closed && self.is_at_end(part), "{}", self.asked);
    }

    fn long_poll(&self) {
        let answer = self.get("&live=long-poll");
        if self.is_refused(&answer) {
            return;
        }
        let part = self.row.wanted.as_ref().unwrap();
        let is_empty = part.from == part.to;
        let answer = answer.is(if is_empty { 204 } else { 200 });
        self.numbers(&answer, part);
        if !is_empty {
            assert_eq!(answer.text(), part.body, "{}", self.asked);
        }
        let is_closed = answer.field("Stream-Closed").is_some();
        assert_eq!(is_closed, self.kept.is_closed && self.is_at_end(part), "{}", self.asked);
    }

    fn events(&self, path: &str) {
        if self.row.is_bound {
            self.get("&live=sse").fails(400, "invalid-query");
            return;
        }
        if self.row.wanted.is_err() {
            self.is_refused(&self.get("&live=sse"));
            return;
        }
        let part = self.row.wanted.as_ref().unwrap();
        let mut events = Events::follow(self.server.connect(), path, &self.row.query);
        let (bytes, control) = events.up_to_date();
        let body = String::from_utf8(bytes).unwrap();
        let wanted = if part.from == part.to { "" } else { &part.body };
        assert_eq!(body, wanted, "{}", self.asked);
        assert_eq!(control["streamNextOffset"], part.end.as_str(), "{}", self.asked);
        assert_eq!(control["streamNextRecord"], part.to, "{}", self.asked);
        let is_closed = control.get("streamClosed") == Some(&Value::Bool(true));
        assert_eq!(is_closed, self.kept.is_closed, "{}", self.asked);
    }

    /// `HEAD` looks the start up.
    fn place(&self) {
        let answer = self.server.connect().call("HEAD", self.asked, &[], b"");
        match &self.row.wanted {
            // A bound, or an offset, says nothing about a place.
            _ if self.row.query.starts_with("offset=") => {}
            Err(End::Trimmed) => assert_eq!(answer.status, 410, "{}", self.asked),
            Err(End::Beyond) => assert_eq!(answer.status, 416, "{}", self.asked),
            Ok(part) => {
                let answer = answer.is(200);
                let shown = |name| answer.field(name).unwrap_or_default().to_owned();
                assert_eq!(shown("Stream-Offset"), part.start, "{}", self.asked);
                assert_eq!(shown("Stream-Record-Start"), part.from.to_string(), "{}", self.asked);
                let is_there = part.from < self.kept.next();
                assert_eq!(answer.field("Stream-Time").is_some(), is_there, "{}", self.asked);
            }
        }
    }
}

#[test]
fn every_parameter_means_the_same_in_every_way_to_read() {
    let dir = new_dir();
    let flags = [&SMALL_LOG[..], &["--shards", "2", "--long-poll-timeout-ms", "50"]].concat();
    let mut table = Table::make(Start::with(&flags).serve(dir.path()));
    table.check();
    table.server.kill();
    let flags = [&SMALL_LOG[..], &["--shards", "3", "--long-poll-timeout-ms", "50"]].concat();
    table.server = Start::with(&flags).serve(dir.path());
    table.check();
}

/// The next control event, after any data.
fn next_control(events: &mut Events) -> Value {
    loop {
        let event = events.next().expect("the answer continues");
        if event.kind == "control" {
            return serde_json::from_str(&event.data).unwrap();
        }
    }
}

#[test]
fn live_events_count_records_for_those_who_asked_by_record() {
    let (server, _dir) = Server::start(&["--sse-max-duration-ms", "1500"]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    client.post("/s", JSON, b"[1,2,3]").is(204);
    let mut counting = Events::follow(server.connect(), "/s", "record=1");
    let mut plain = Events::follow(server.connect(), "/s", "offset=-1");
    assert_eq!(next_control(&mut counting)["streamNextRecord"], 3);
    assert_eq!(next_control(&mut plain).get("streamNextRecord"), None);
    for (body, next) in [("[4]", 4), ("[5,6]", 6)] {
        client.post("/s", JSON, body.as_bytes()).is(204);
        assert_eq!(next_control(&mut counting)["streamNextRecord"], next);
        assert_eq!(next_control(&mut plain).get("streamNextRecord"), None);
    }
    let last = next_control(&mut counting);
    assert_eq!(last["streamNextRecord"], 6, "the answer ends, and says where to continue");
    assert_eq!(counting.next(), None);
}

#[test]
fn a_character_that_is_cut_leaves_the_number_open() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    client.post("/s", TEXT, b"a\xe2\x82").is(204);
    let mut events = Events::follow(server.connect(), "/s", "record=0");
    let control = next_control(&mut events);
    assert_eq!(control.get("streamNextRecord"), None, "its first bytes belong to record 0");
    client.post("/s", TEXT, b"\xac").is(204);
    assert_eq!(next_control(&mut events)["streamNextRecord"], 2);
}
