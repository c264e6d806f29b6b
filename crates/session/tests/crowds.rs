//! What thousands are due at the same moment comes in slices, so that no turn of the loop is long.

use crate::support::{Shard, TEXT, delete, get, post, put, request};
use flate2::read::GzDecoder;
use http2::testing::Client;
use std::io::Read;
use thalweg_session::{ConnId, Input};

/// Clients of one stream: more than several turns have room for.
const CROWD: usize = 400;

/// Answers of a kind that one turn may give.
const PER_TURN_MAX: usize = 64;

/// Clients that each ask for this, and have taken what they got for it so far.
fn crowd(shard: &mut Shard, request: &[u8]) -> Vec<ConnId> {
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let conn = shard.connect();
        shard.send(conn, request);
        shard.got(conn);
        crowd.push(conn);
    }
    crowd
}

/// Turns until all of the crowd has heard `what`; how many heard it in each turn in which somebody did.
fn heard_by_turn(shard: &mut Shard, crowd: &[ConnId], what: &str) -> Vec<usize> {
    let mut heard_before = 0;
    let mut by_turn = Vec::new();
    for _ in 0..CROWD {
        shard.sessions.check();
        let has_heard = |conn: &&ConnId| {
            let output = &shard.wires.0[conn].output;
            output.windows(what.len()).any(|window| window == what.as_bytes())
        };
        let heard = crowd.iter().filter(has_heard).count();
        if heard > heard_before {
            by_turn.push(heard - heard_before);
        }
        heard_before = heard;
        if heard == crowd.len() {
            return by_turn;
        }
        shard.turn();
    }
    panic!("{heard_before} of {} have heard {what:?}", crowd.len());
}

fn assert_sliced(by_turn: &[usize]) {
    assert!(by_turn.iter().all(|count| *count <= PER_TURN_MAX), "in one turn each: {by_turn:?}");
}

/// A writer and a crowd that waits for what it writes to the stream `one`.
fn waiting(request: &str) -> (Shard, ConnId, Vec<ConnId>) {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let crowd = crowd(&mut shard, &get(request));
    let writer = shard.connect();
    (shard, writer, crowd)
}

#[test]
fn one_append_answers_some_long_polls_in_each_turn() {
    let (mut shard, writer, crowd) = waiting("one?offset=now&live=long-poll");
    shard.put_in(writer, &post("one", b"news"));
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "news"));
    for conn in crowd {
        let got = shard.got(conn);
        assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("\r\n\r\nnews"), "{got}");
        shard.send(conn, &get("one?offset=-1"));
        assert!(shard.got(conn).ends_with("\r\n\r\nxnews"), "the connection continues");
    }
}

/// A connection of HTTP/2 with a live reader of each of these streams, all of which have heard what there is.
fn line(shard: &mut Shard, mut client: Client, streams: &[String]) -> ConnId {
    let conn = shard.connect();
    for stream in streams {
        let url = format!("http://localhost/v1/stream/{stream}?offset=now&live=sse");
        client.ask("GET", &url, &[], "");
    }
    shard.carry(conn, &mut client);
    conn
}

/// Such connections, with so many readers of the stream `one` each.
fn lines(shard: &mut Shard, count: usize, readers: usize) -> Vec<ConnId> {
    let streams = vec!["one".to_owned(); readers];
    let conns = (0..count).map(|_| line(shard, Client::new(30_000), &streams)).collect();
    assert_eq!(shard.sessions.counts().live_readers, (count * readers) as u64);
    conns
}

#[test]
fn readers_with_connections_of_their_own_hear_in_slices_whatever_the_wire() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let crowd = lines(&mut shard, CROWD, 1);
    let writer = shard.connect();
    shard.put_in(writer, &post("one", b"news"));
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "news"));
}

#[test]
fn readers_that_share_a_connection_hear_in_one_turn() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let crowd = lines(&mut shard, 4, 100);
    let writer = shard.connect();
    shard.put_in(writer, &post("one", b"news"));
    assert_eq!(heard_by_turn(&mut shard, &crowd, "news"), [4]);
    for conn in crowd {
        assert_eq!(shard.got(conn).matches("news").count(), 100, "all at once");
    }
}

#[test]
fn readers_of_many_streams_that_share_a_connection_take_few_writes_in_a_turn() {
    let mut shard = Shard::open();
    let streams: Vec<String> = (0..250).map(|stream| format!("{stream}")).collect();
    streams.iter().for_each(|stream| drop(shard.once(&put(stream, b"x"))));
    let conn = line(&mut shard, Client::new(1 << 20), &streams);
    for stream in &streams {
        let writer = shard.connect();
        shard.put_in(writer, &post(stream, b"news"));
    }
    let mut heard = 0;
    for _ in 0..CROWD {
        let before = shard.wires.0[&conn].write_count;
        shard.turn();
        let wire = &shard.wires.0[&conn];
        let count = wire.write_count - before;
        assert!(count <= PER_TURN_MAX, "{count} writes in one turn");
        let output = String::from_utf8_lossy(&wire.output).into_owned();
        heard = output.matches("news").count();
    }
    assert_eq!(heard, 250);
}

#[test]
fn a_request_waits_for_one_slice_of_the_crowd_only() {
    let (mut shard, writer, crowd) = waiting("one?offset=now&live=long-poll");
    shard.put_in(writer, &post("one", b"news"));
    shard.turn();
    shard.put_in(writer, &get("one?offset=-1"));
    shard.turn();
    assert_eq!(shard.statuses(writer), [204, 200]);
    let is_left = |conn: &ConnId| shard.wires.0[conn].output.is_empty();
    assert!(crowd.iter().filter(|conn| is_left(conn)).count() > CROWD / 2, "before most of them");
}

#[test]
fn a_poll_in_the_line_is_answered_once_whatever_comes_meanwhile() {
    let (mut shard, writer, crowd) = waiting("one?offset=now&live=long-poll");
    shard.put_in(writer, &post("one", b"first"));
    shard.turn();
    shard.put_in(writer, &post("one", b"second"));
    shard.hang_up(crowd[CROWD - 1]);
    shard.pass_ms(30_000);
    for conn in &crowd[..CROWD - 1] {
        let got = shard.got(*conn);
        assert_eq!(got.matches("HTTP/1.1").count(), 1, "{got}");
        assert!(got.ends_with("\r\n\r\nfirst"), "{got}");
    }
    assert_eq!(shard.sessions.watched_count(), 0);
    assert_eq!(shard.sessions.counts().live_readers, 0);
}

#[test]
fn long_polls_that_time_out_together_are_answered_in_slices() {
    let (mut shard, _, crowd) = waiting("one?offset=now&live=long-poll");
    shard.now.monotonic = shard.now.monotonic.plus_ms(20_000);
    shard.handle(Input::Tick);
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "HTTP/1.1 204"));
    shard.run();
    assert_eq!(shard.asked("Unwatch"), 1);
}

#[test]
fn long_polls_of_a_deleted_stream_are_answered_in_slices() {
    let (mut shard, writer, crowd) = waiting("one?offset=now&live=long-poll");
    shard.put_in(writer, &delete("one"));
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "HTTP/1.1 404"));
}

#[test]
fn polls_that_ask_alike_get_the_same_bytes_and_others_their_own() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let zipped = "GET /v1/stream/one?offset=now&live=long-poll HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n";
    let old = get("one?offset=now&live=long-poll");
    let requests = [&old[..], zipped.as_bytes(), &old[..], zipped.as_bytes()];
    let conns = requests.map(|request| {
        let conn = shard.connect();
        shard.send(conn, request);
        conn
    });
    let news = b"news of the day, ".repeat(100);
    shard.once(&post("one", &news));
    let got = conns.map(|conn| std::mem::take(&mut shard.wires.0.get_mut(&conn).unwrap().output));
    assert!(got[0].ends_with(&news) && got[0] == got[2]);
    assert_eq!(got[1], got[3]);
    let mut answer = got[1].splitn(2, |byte| *byte == 0x1f);
    let head = String::from_utf8(answer.next().unwrap().to_vec()).unwrap();
    assert!(head.to_ascii_lowercase().contains("content-encoding: gzip"), "{head}");
    let mut unzipped = Vec::new();
    let body = [&[0x1f], answer.next().unwrap()].concat();
    GzDecoder::new(&body[..]).read_to_end(&mut unzipped).unwrap();
    assert_eq!(unzipped, news);
    assert_eq!(shard.sessions.counts().read_bytes, 4 * news.len() as u64);
}

#[test]
fn readers_of_a_deleted_stream_end_in_slices() {
    let (mut shard, writer, crowd) = waiting("one?offset=now&live=sse");
    shard.put_in(writer, &delete("one"));
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "0\r\n\r\n"));
    assert_eq!(shard.sessions.counts().live_readers, 0);
}

#[test]
fn readers_of_a_closed_stream_get_its_last_event_and_end_in_slices() {
    let (mut shard, writer, crowd) = waiting("one?offset=now&live=sse");
    let closing = request("POST", "one", &format!("{TEXT}Stream-Closed: true\r\n"), b"last");
    shard.put_in(writer, &closing);
    heard_by_turn(&mut shard, &crowd, "0\r\n\r\n");
    for conn in crowd {
        let got = shard.got(conn);
        assert_eq!(
            (got.matches("last").count(), got.matches("0\r\n\r\n").count()),
            (1, 1),
            "{got}"
        );
        shard.send(conn, &get("one?offset=-1"));
        assert!(shard.got(conn).ends_with("xlast"), "the connection continues");
    }
}

#[test]
fn readers_whose_time_is_over_together_end_in_slices() {
    let (mut shard, _, crowd) = waiting("one?offset=now&live=sse");
    shard.now.monotonic = shard.now.monotonic.plus_ms(60_000);
    shard.handle(Input::Tick);
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "0\r\n\r\n"));
    shard.run();
    assert_eq!(shard.sessions.watched_count(), 0);
}

#[test]
fn heartbeats_that_are_due_together_are_sent_in_slices() {
    let (mut shard, _, crowd) = waiting("one?offset=now&live=sse");
    shard.now.monotonic = shard.now.monotonic.plus_ms(15_000);
    shard.handle(Input::Tick);
    assert_sliced(&heard_by_turn(&mut shard, &crowd, ":"));
}

#[test]
fn a_server_that_stops_ends_its_readers_in_slices() {
    let (mut shard, _, crowd) = waiting("one?offset=now&live=sse");
    shard.handle(Input::Stop);
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "0\r\n\r\n"));
    shard.run();
    assert_eq!(shard.sessions.counts().live_readers, 0);
}

#[test]
fn a_server_that_stops_answers_its_long_polls_in_slices() {
    let (mut shard, _, crowd) = waiting("one?offset=now&live=long-poll");
    shard.handle(Input::Stop);
    assert_sliced(&heard_by_turn(&mut shard, &crowd, "HTTP/1.1 204"));
    let got = shard.got(crowd[CROWD - 1]);
    assert!(got.to_ascii_lowercase().contains("connection: close"), "{got}");
}
