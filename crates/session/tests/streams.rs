//! Connections that carry many exchanges at once: HTTP/2 from the first byte to the node.

use crate::support::rules::{bearer, reload, rules, table};
use crate::support::{Shard, delete, post, put, request};
use http2::testing::{Client, Exchange};
use thalweg_session::{ConnId, Input, Names, Options, Pages};

const URL: &str = "http://localhost/v1/stream";
const TEXT: (&str, &str) = ("content-type", "text/plain");

/// A shard and one connection to it.
struct Line {
    shard: Shard,
    conn: ConnId,
    client: Client,
}

impl Line {
    fn open() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        Self::over(Shard::with(options))
    }

    fn over(mut shard: Shard) -> Self {
        let conn = shard.connect();
        // Less than the window of the connection, which all of them share.
        Self { shard, conn, client: Client::new(30_000) }
    }

    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> usize {
        self.ask_with(method, path, &[TEXT], body)
    }

    fn ask_with(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> usize {
        self.client.ask(method, &format!("{URL}/{path}"), fields, body.to_vec())
    }

    /// Moves bytes both ways until nothing moves.
    fn run(&mut self) {
        self.shard.carry(self.conn, &mut self.client);
    }

    /// Does one request.
    fn once(&mut self, method: &str, path: &str, body: &[u8]) -> &Exchange {
        let place = self.ask(method, path, body);
        self.run();
        let exchange = &self.client.exchanges[place];
        assert!(exchange.is_complete, "{method} {path}: {:?} {}", exchange.status, exchange.text());
        exchange
    }

    fn status(&self, place: usize) -> Option<u16> {
        self.client.exchanges[place].status
    }
}

#[test]
fn answers_of_one_turn_go_out_with_one_write() {
    let mut line = Line::open();
    line.once("PUT", "a", b"");
    line.shard.holds_syncs = true;
    let places: Vec<usize> = (0..20).map(|_| line.ask("POST", "a", b"x")).collect();
    line.run();
    let before = line.shard.wires.0[&line.conn].write_count;
    line.shard.holds_syncs = false;
    line.shard.sync();
    assert_eq!(line.shard.wires.0[&line.conn].write_count, before + 1);
    line.run();
    let exchanges = places.iter().map(|place| &line.client.exchanges[*place]);
    let offsets: Vec<&str> = exchanges
        .map(|exchange| exchange.field("stream-next-offset").expect("it is done"))
        .collect();
    assert!(offsets.is_sorted() && offsets.first() < offsets.last(), "{offsets:?}");
}

#[test]
fn a_stream_lives_from_its_creation_to_its_end() {
    let mut line = Line::open();
    let created = line.once("PUT", "a", b"");
    assert_eq!(created.status, Some(201));
    assert_eq!(created.field("location"), Some("http://localhost/v1/stream/a"));
    let big = vec![b'x'; 1_000_000];
    assert_eq!(line.once("POST", "a", &big).status, Some(204));
    let answer = line.once("GET", "a", b"");
    assert_eq!((answer.status, answer.received.len()), (Some(200), big.len()));
    assert_eq!(answer.field("content-length"), Some("1000000"));
    let head = line.once("HEAD", "a", b"");
    assert!(head.received.is_empty() && head.field("stream-next-offset").is_some());
    assert_eq!(
        line.once("GET", "nothing", b"").field("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(line.once("OPTIONS", "a", b"").status, Some(204));
    assert_eq!(line.once("DELETE", "a", b"").status, Some(204));
    assert_eq!(line.once("GET", "a", b"").status, Some(404));
    assert_eq!(line.shard.sessions.connection_count(), 1);
}

#[test]
fn an_answer_has_the_fields_that_it_has_over_http1() {
    let mut line = Line::open();
    line.once("PUT", "a", b"some");
    let old = line.shard.once(&request("GET", "a", "", b""));
    let (head, body) = old.split_once("\r\n\r\n").unwrap();
    let new = line.once("GET", "a", b"");
    assert_eq!(new.text(), body);
    let mut fields: Vec<String> =
        head.lines().skip(1).map(|field| field.split_once(':').unwrap().0.to_lowercase()).collect();
    let mut names: Vec<String> = new.fields.iter().map(|(name, _)| name.clone()).collect();
    fields.sort();
    names.sort();
    assert_eq!(names, fields);
    for (name, value) in &new.fields {
        assert!(head.contains(&format!(": {value}")), "{name}: {value}\n{head}");
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut line = Line::open();
    let place = line.ask("PUT", "a", b"some text");
    line.client.poll();
    for byte in line.client.take_output() {
        let conn = line.conn;
        line.shard.send(conn, &[byte]);
    }
    line.run();
    assert_eq!(line.status(place), Some(201));
}

#[test]
fn a_hundred_live_readers_share_a_connection() {
    let mut line = Line::open();
    line.once("PUT", "a", b"");
    let readers: Vec<usize> = (0..100)
        .map(|number| {
            let live = if number % 2 == 0 { "sse" } else { "long-poll" };
            line.ask("GET", &format!("a?offset=now&live={live}"), b"")
        })
        .collect();
    line.run();
    assert_eq!(line.shard.sessions.counts().live_readers, 100);
    assert_eq!(line.once("POST", "a", b"news").status, Some(204));
    for place in &readers {
        assert!(line.client.exchanges[*place].text().contains("news"), "{place}");
    }
    assert_eq!(line.shard.sessions.counts().live_readers, 50);
    line.client.reset(readers[0]);
    line.run();
    assert_eq!(line.shard.sessions.counts().live_readers, 49, "one was given up");
    let conn = line.conn;
    line.shard.hang_up(conn);
    assert_eq!(line.shard.sessions.counts().live_readers, 0);
    assert_eq!(line.shard.sessions.connection_count(), 0);
}

/// A client with windows of a megabyte, as browsers have, and so many live readers of the stream `a`.
fn wide(readers: usize) -> Line {
    let mut line = Line { client: Client::new(1 << 20), ..Line::open() };
    line.once("PUT", "a", b"");
    for _ in 0..readers {
        line.ask("GET", "a?offset=now&live=sse", b"");
    }
    line.run();
    assert_eq!(line.shard.sessions.counts().live_readers, readers as u64);
    line
}

fn assert_all_heard(line: &mut Line, what: &str) {
    line.run();
    let lacking = |place: &usize| !line.client.exchanges[*place].text().contains(what);
    let lacking: Vec<usize> = (1..line.client.exchanges.len()).filter(lacking).collect();
    assert!(lacking.is_empty(), "{lacking:?} have not heard {what:?}");
}

#[test]
fn live_readers_get_all_of_a_frame_though_the_library_takes_no_more_at_once() {
    let mut line = wide(150);
    // Together these frames are more than a connection gives the library before it is polled.
    let news = [vec![b'y'; 3_000], b"END".to_vec()].concat();
    line.shard.once(&post("a", &news));
    assert_all_heard(&mut line, "END");
    line.shard.once(&post("a", b"SECOND"));
    assert_all_heard(&mut line, "SECOND");
}

#[test]
fn pieces_that_are_longer_than_a_stream_gives_at_once_arrive_whole() {
    let mut line = wide(2);
    let long = [vec![b'y'; 65_000], b"END".to_vec(), vec![b'z'; 500]].concat();
    line.shard.once(&post("a", &long));
    assert_all_heard(&mut line, "zz\nid:");
    let fields = "Content-Type: application/json\r\n";
    for length in 65_530..65_540 {
        line.shard.once(&request("PUT", "json", fields, b""));
        let message = format!("[\"{}\"]", "y".repeat(length));
        line.shard.once(&request("POST", "json", fields, message.as_bytes()));
        let answer = line.once("GET", "json?offset=-1", b"");
        assert!(answer.text().ends_with("y\"]"));
        line.shard.once(&delete("json"));
    }
}

#[test]
fn a_stalled_reader_holds_up_no_other_and_is_ended() {
    let mut line = Line::open();
    line.once("PUT", "a", &vec![b'x'; 3_000_000]);
    let stalled = line.ask("GET", "a", b"");
    line.client.exchanges[stalled].is_stalled = true;
    line.run();
    assert_eq!(line.status(stalled), Some(200));
    for _ in 0..30 {
        assert_eq!(line.once("POST", "b", b"x").status, Some(404));
        line.shard.pass_ms(1_000);
    }
    line.shard.pass_ms(1_000);
    line.run();
    line.client.exchanges[stalled].is_stalled = false;
    line.run();
    assert!(line.client.exchanges[stalled].is_broken, "it took nothing for thirty seconds");
    assert_eq!(line.once("HEAD", "a", b"").status, Some(200));
}

#[test]
fn what_a_client_gives_up_counts_until_the_node_has_answered() {
    let mut line = Line::with(Options { http2_streams_max: 10, ..Options::default() });
    line.once("PUT", "a", b"");
    line.shard.holds = |request| matches!(request, node::Request::Append { .. });
    for _ in 0..10 {
        let place = line.ask("POST", "a", b"x");
        line.run();
        line.client.reset(place);
        line.run();
    }
    assert_eq!(line.shard.held.len(), 10);
    let late = line.ask("POST", "a", b"x");
    line.run();
    assert_eq!(line.shard.held.len(), 10, "no more is taken from this client");
    line.shard.release();
    line.run();
    assert_eq!(line.status(late), Some(204));
    assert_eq!(line.shard.asked("Append"), 11);
    assert_eq!(line.shard.sessions.connection_count(), 1);
}

#[test]
fn resets_without_end_end_the_connection() {
    let mut line = Line::open();
    line.once("PUT", "a", b"");
    line.shard.holds = |request| matches!(request, node::Request::Append { .. });
    let mut count = 0;
    while !line.client.is_over && count < 3_000 {
        let place = line.ask("POST", "a", b"x");
        line.run();
        line.client.reset(place);
        line.run();
        line.client.exchanges.clear();
        if line.shard.held.len() > 100 {
            line.shard.release();
            line.shard.holds = |request| matches!(request, node::Request::Append { .. });
        }
        count += 1;
    }
    assert!((1_000..1_100).contains(&count), "{count}");
    line.shard.release();
    line.shard.pass_ms(5_000);
    assert_eq!(line.shard.sessions.connection_count(), 0);
}

#[test]
fn a_client_that_takes_nothing_is_read_no_further() {
    let mut shard = Shard::open();
    shard.once(&put("a", &vec![b'x'; 200_000]));
    let conn = shard.connect_with_room(0);
    let mut client = Client::new(1 << 30);
    for _ in 0..300 {
        client.ask("GET", &format!("{URL}/a"), &[], "");
    }
    client.poll();
    let bytes = client.take_output();
    shard.send(conn, &bytes);
    let began = shard.asked("Read");
    shard.send(conn, &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(shard.asked("Read"), began);
    // It is ended like every other that takes nothing.
    shard.pass_ms(31_000);
    assert_eq!(shard.sessions.connection_count(), 0);
}

#[test]
fn bodies_over_the_bound_are_refused_and_the_connection_continues() {
    let mut line = Line::with(Options { body_bytes_in_flight_max: 100_000, ..Options::default() });
    line.once("PUT", "a", b"");
    let place = line.ask("POST", "a", &vec![b'x'; 150_000]);
    line.run();
    assert_eq!(line.status(place), Some(503));
    assert_eq!(line.once("POST", "a", &vec![b'x'; 90_000]).status, Some(204));
    assert_eq!(line.shard.admission.body_bytes(), 0);
    let mut line = Line::with(Options { append_bytes_max: 1_000, ..Options::default() });
    line.once("PUT", "a", b"");
    let too_long = line.ask("POST", "a", &[b'x'; 1_001]);
    let announced = line.ask_with("POST", "a", &[TEXT, ("content-length", "1002")], &[b'x'; 1_002]);
    line.run();
    assert_eq!((line.status(too_long), line.status(announced)), (Some(413), Some(413)));
    assert_eq!(line.once("POST", "a", &[b'x'; 1_000]).status, Some(204));
}

#[test]
fn a_body_that_nobody_wants_is_read_past_for_a_second() {
    let mut line = Line::with(Options { append_bytes_max: 1_000, ..Options::default() });
    line.once("PUT", "a", b"");
    let body = vec![b'x'; 300_000];
    let refused = [line.ask("POST", "a", &body), line.ask("POST", "nothing", b"some")];
    let slow = line.ask("POST", "a", &body);
    line.client.exchanges[slow].is_withholding = true;
    line.run();
    for (place, status) in refused.into_iter().zip([413, 404]) {
        let exchange = &line.client.exchanges[place];
        assert_eq!((exchange.status, exchange.is_complete), (Some(status), true));
        assert_eq!(exchange.unsent_bytes(), 0, "its stream is not reset");
    }
    // Its length is not announced: it is refused when a byte too many has come.
    assert_eq!(line.status(slow), None);
    let announced = line.ask_with("POST", "a", &[TEXT, ("content-length", "300000")], &body);
    line.client.exchanges[announced].is_withholding = true;
    line.run();
    assert_eq!(line.status(announced), Some(413));
    let count = line.shard.sessions.connection_count();
    line.shard.pass_ms(900);
    assert_eq!(line.shard.sessions.connection_count(), count, "it is waited for");
    line.shard.pass_ms(1_000);
    assert_eq!(line.shard.sessions.connection_count(), count - 1, "no longer");
    line.client.exchanges[announced].is_withholding = false;
    line.run();
    assert!(line.client.exchanges[announced].is_complete && !line.client.is_over);
    assert_eq!(line.once("POST", "a", b"x").status, Some(204), "others continue");
}

#[test]
fn requests_are_decided_as_over_http1() {
    let mut line = Line::open();
    line.once("PUT", "a", b"first");
    reload(&mut line.shard, &rules(&table("x", r#"["read **"]"#, ""), None));
    let token = bearer("x");
    let token = token.trim_end().split_once(": ").unwrap().1;
    let may = line.ask_with("GET", "a", &[("authorization", token)], b"");
    let denied = line.ask_with("POST", "a", &[TEXT, ("authorization", token)], b"x");
    let nobody = line.ask("GET", "a", b"");
    line.run();
    let statuses = [may, denied, nobody].map(|place| line.status(place).unwrap());
    assert_eq!(statuses, [200, 403, 401]);
    assert_eq!(line.shard.asked("Append"), 0);
    // Three that are not valid cost the connection.
    for _ in 0..3 {
        line.ask_with("GET", "a", &[("authorization", "Bearer no")], b"");
        line.run();
    }
    let late = line.ask_with("GET", "a", &[("authorization", token)], b"");
    line.run();
    assert!(line.client.exchanges[late].is_broken);
}

#[test]
fn foreign_pages_are_refused() {
    let local = || Names::Local([].into());
    let pages = Pages { hosts: local(), origins: local(), ..Pages::default() };
    let mut line = Line::with(Options { pages: pages.into(), ..Options::default() });
    line.once("PUT", "a", b"");
    let origin = ("origin", "https://evil.example");
    let foreign = line.ask_with("DELETE", "a", &[origin], b"");
    let rebound = line.client.ask("GET", "http://evil.example/v1/stream/a", &[], "");
    line.run();
    assert_eq!((line.status(foreign), line.status(rebound)), (Some(403), Some(421)));
    assert_eq!(line.shard.asked("Delete"), 0);
}

#[test]
fn a_connection_without_exchanges_is_sent_away() {
    let mut line = Line::open();
    line.once("PUT", "a", b"");
    line.shard.pass_ms(74_000);
    line.run();
    assert!(!line.client.is_over);
    line.shard.pass_ms(2_000);
    line.run();
    line.shard.pass_ms(2_000);
    line.run();
    assert!(line.client.is_over);
    assert_eq!(line.shard.sessions.connection_count(), 0);
}

#[test]
fn a_stop_ends_what_waits_and_lets_the_rest_finish() {
    let mut line = Line::open();
    line.once("PUT", "a", b"");
    line.shard.holds = |request| matches!(request, node::Request::Append { .. });
    let poll = line.ask("GET", "a?offset=now&live=long-poll", b"");
    let sse = line.ask("GET", "a?offset=now&live=sse", b"");
    let append = line.ask("POST", "a", b"x");
    line.run();
    line.shard.handle(Input::Stop);
    line.shard.run();
    line.run();
    assert_eq!(line.status(poll), Some(204));
    assert!(line.client.exchanges[sse].is_complete);
    line.shard.release();
    line.run();
    assert_eq!(line.status(append), Some(204));
    line.shard.pass_ms(200);
    line.run();
    let now = line.shard.now.monotonic;
    assert!(line.shard.sessions.is_finished(now) && line.client.is_over);
}

#[test]
fn it_is_refused_where_it_is_not_spoken() {
    let mut shard = Shard::with(Options { http2: false, ..Options::default() });
    let conn = shard.connect();
    shard.send(conn, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(shard.statuses(conn), [505]);
}

/// A client that is silently gone, behind a network that says nothing, would keep its readers for as long as the kernel does.
#[test]
fn a_silent_client_is_asked_for_a_sign_of_life() {
    let mut line = Line::with(Options { sse_max_duration_ms: 1 << 40, ..Options::default() });
    line.once("PUT", "a", b"");
    let reader = line.ask("GET", "a?offset=now&live=sse", b"");
    line.run();
    for _ in 0..10 {
        line.shard.pass_ms(5_000);
        line.run();
    }
    assert!(!line.client.exchanges[reader].is_broken, "it has answered");
    // From here on it says nothing, and takes what comes.
    line.shard.pass_ms(35_000);
    let conn = line.conn;
    assert!(line.shard.wires.0[&conn].closed.is_none(), "it has time to answer");
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0];
    let output = &line.shard.wires.0[&conn].output;
    assert_eq!(output.windows(9).filter(|head| *head == ping).count(), 1, "it is asked once");
    line.shard.pass_ms(31_000);
    assert!(line.shard.wires.0[&conn].closed.is_some());
    assert_eq!(line.shard.sessions.connection_count(), 0, "its readers are gone, too");
}
