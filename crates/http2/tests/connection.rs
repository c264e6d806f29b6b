//! Connections in memory: what a client gets, and what hostile ones cannot do.

use bytes::Bytes;
use model::Timestamp;
use protocol::{HttpDate, Length, Viewers, events::Mode};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_http2::{
    AnswerWriter, Connection, Data, Options, Polled, Ready, Stream, limits, testing::Client,
};

const STREAMS_MAX: u32 = 8;

/// A server that answers by what a test tells it.
struct Server {
    connection: Connection,
    ready: Arc<Ready>,
    streams: BTreeMap<u64, Box<Stream>>,
    last_key: u64,
    is_over: bool,
}

impl Server {
    fn new() -> Self {
        let ready = Arc::<Ready>::default();
        let options = Options { streams_max: STREAMS_MAX, head_bytes_max: 4096 };
        let connection = Connection::new(&options, 0, &ready);
        Self { connection, ready, streams: BTreeMap::new(), last_key: 0, is_over: false }
    }

    /// One round of input; the streams that were opened.
    fn poll(&mut self, may_accept: bool) -> Vec<u64> {
        self.connection.allow_input();
        let mut opened = Vec::new();
        loop {
            match self.connection.poll(may_accept) {
                Polled::Request(_, mut stream) => {
                    self.last_key += 1;
                    stream.name(self.last_key, &self.ready);
                    let _ = stream.look();
                    self.streams.insert(self.last_key, stream);
                    opened.push(self.last_key);
                }
                Polled::Waits => return opened,
                Polled::Over => {
                    self.is_over = true;
                    return opened;
                }
            }
        }
    }

    fn exchange(&mut self, client: &mut Client) -> Vec<u64> {
        let mut opened = Vec::new();
        for _ in 0..8 {
            client.poll();
            self.connection.receive(&client.take_output());
            opened.extend(self.poll(true));
            client.receive(&self.connection.take_output());
            client.poll();
        }
        opened
    }

    fn stream(&mut self, key: u64) -> &mut Stream {
        self.streams.get_mut(&key).expect("it was opened")
    }

    fn answer(&mut self, key: u64, length: Length) {
        let date = HttpDate::new(Timestamp::new(1_700_000_000_000));
        let mut writer = AnswerWriter::new(&date, false, Viewers::All);
        protocol::response::sse(&mut writer, Mode::Text);
        let endless = writer.finish();
        assert_eq!((endless.status(), endless.is_whole), (200, false));
        let mut writer = AnswerWriter::new(&date, false, Viewers::All);
        protocol::response::preflight(&mut writer, None);
        let whole = writer.finish();
        assert!(whole.is_whole && whole.body.is_empty());
        let answer = if length == Length::None { whole } else { endless };
        let is_end = length == Length::None;
        self.stream(key).answer(answer, is_end).expect("somebody waits");
    }
}

const URL: &str = "http://localhost/v1/stream/a";

#[test]
fn a_request_with_a_body_is_answered() {
    let (mut server, mut client) = (Server::new(), Client::new(65_535));
    let body = vec![7; 700_000];
    let place = client.ask("POST", URL, &[("content-type", "text/plain")], body.clone());
    let [key] = server.exchange(&mut client)[..] else { panic!("one request") };
    let mut received = Vec::new();
    for _ in 0..200 {
        while let Data::Bytes(bytes) = server.stream(key).read() {
            received.extend_from_slice(&bytes);
            server.stream(key).release(bytes.len());
        }
        server.exchange(&mut client);
    }
    assert!(matches!(server.stream(key).read(), Data::End) && received == body);
    server.answer(key, Length::Unknown);
    let answer = Bytes::from(vec![9; 300_000]);
    let mut left = answer.clone();
    while !left.is_empty() {
        let room = server.stream(key).room(left.len());
        let part = left.split_to(room);
        server.stream(key).send(part, left.is_empty()).unwrap();
        server.exchange(&mut client);
    }
    let exchange = &client.exchanges[place];
    assert_eq!((exchange.status, exchange.is_complete), (Some(200), true));
    assert_eq!(exchange.field("cache-control"), Some("no-cache"));
    assert_eq!(exchange.received, answer);
    assert_eq!(exchange.field("date"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
}

#[test]
fn a_client_without_a_window_gets_nothing_and_holds_up_no_other() {
    let (mut server, mut client) = (Server::new(), Client::new(1_000));
    let (stalled, other) = (client.ask("GET", URL, &[], ""), client.ask("GET", URL, &[], ""));
    let [one, two] = server.exchange(&mut client)[..] else { panic!("two requests") };
    client.exchanges[stalled].is_stalled = true;
    for key in [one, two] {
        server.answer(key, Length::Unknown);
    }
    let mut sent = [0, 0];
    for _ in 0..100 {
        for (place, key) in [one, two].into_iter().enumerate() {
            let room = server.stream(key).room(500);
            sent[place] += room;
            server.stream(key).send(Bytes::from(vec![1; room]), false).unwrap();
        }
        server.exchange(&mut client);
    }
    assert_eq!(sent[0], 1_000);
    assert!(sent[1] >= 40_000, "{sent:?}");
    assert_eq!(client.exchanges[other].received.len(), sent[1]);
    // Room that comes back is written down.
    assert_eq!(server.stream(one).room(500), 0);
    let _ = server.stream(one).look();
    let _ = server.ready.take();
    client.exchanges[stalled].is_stalled = false;
    server.exchange(&mut client);
    assert!(server.ready.take().contains(&one));
    assert_eq!(server.stream(one).room(500), 500);
}

#[test]
fn short_pieces_need_no_question_until_so_many_are_held() {
    let (mut server, mut client) = (Server::new(), Client::new(1_000));
    let place = client.ask("GET", URL, &[], "");
    let [key] = server.exchange(&mut client)[..] else { panic!("one request") };
    client.exchanges[place].is_stalled = true;
    server.answer(key, Length::Unknown);
    assert!(!server.stream(key).takes(1), "nobody has asked for room yet");
    assert_eq!(server.stream(key).room(700), 700);
    let mut given = Vec::new();
    for number in 0_u8.. {
        if !server.stream(key).takes(700) {
            break;
        }
        given.extend(vec![number; 700]);
        server.stream(key).send(Bytes::from(vec![number; 700]), false).unwrap();
        server.exchange(&mut client);
    }
    assert!(given.len() <= limits::STREAM_HELD_BYTES_MAX && given.len() > 3_000, "{}", given.len());
    // The client had room for the first and takes nothing more: neither is more held.
    assert_eq!(server.stream(key).room(700), 0);
    assert!(!server.stream(key).takes(1));
    let _ = server.stream(key).look();
    let _ = server.ready.take();
    client.exchanges[place].is_stalled = false;
    server.exchange(&mut client);
    assert!(server.ready.take().contains(&key), "room that comes back is written down");
    assert_eq!(client.exchanges[place].received, given);
    assert_eq!(server.stream(key).room(700), 700);
    assert!(server.stream(key).takes(700));
    // A client that gives it up is noticed although no question was asked.
    server.stream(key).send(Bytes::from(vec![0; 700]), false).unwrap();
    let _ = server.stream(key).look();
    let _ = server.ready.take();
    server.stream(key).send(Bytes::from(vec![0; 700]), false).unwrap();
    client.reset(place);
    server.exchange(&mut client);
    assert!(server.ready.take().contains(&key));
    assert!(server.stream(key).look().is_err());
}

#[test]
fn what_a_client_gives_up_is_noticed() {
    let (mut server, mut client) = (Server::new(), Client::new(65_535));
    let place = client.ask("GET", URL, &[], "");
    let [key] = server.exchange(&mut client)[..] else { panic!("one request") };
    assert!(server.stream(key).look().is_ok());
    let _ = server.ready.take();
    client.reset(place);
    server.exchange(&mut client);
    assert!(server.ready.take().contains(&key));
    assert!(server.stream(key).look().is_err());
    assert!(!server.is_over);
}

#[test]
fn many_streams_with_endless_windows_hold_a_bounded_number_of_bytes() {
    let (mut server, mut client) = (Server::new(), Client::new(1 << 30));
    for _ in 0..STREAMS_MAX {
        client.ask("GET", URL, &[], "");
    }
    let keys = server.exchange(&mut client);
    assert_eq!(keys.len(), STREAMS_MAX as usize);
    // The window of the connection is another one.
    client.receive(&[]);
    server.connection.receive(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0]);
    server.poll(true);
    keys.iter().for_each(|key| server.answer(*key, Length::Unknown));
    let mut held = 0;
    for key in &keys {
        let room = server.stream(*key).room(1 << 20);
        held += room;
        server.stream(*key).send(Bytes::from(vec![0; room]), false).unwrap();
    }
    assert!(held <= limits::UNSENT_BYTES_MAX, "{held}");
    assert!(!keys.iter().any(|key| server.stream(*key).takes(1)), "nor is a short piece taken");
    assert_eq!(server.stream(keys[0]).room(1), 0);
    // Output is bounded, too, and room comes back with it.
    let mut taken = 0;
    for _ in 0..20 {
        server.poll(true);
        let output = server.connection.take_output();
        assert!(output.len() <= limits::OUTPUT_BYTES_MAX + 16_384 + 9, "{}", output.len());
        taken += output.len();
    }
    assert!(taken > held && server.stream(keys[0]).room(1) == 1);
}

#[test]
fn no_more_requests_are_taken_than_the_server_wants() {
    let (mut server, mut client) = (Server::new(), Client::new(65_535));
    for _ in 0..3 {
        client.ask("GET", URL, &[], "");
    }
    client.poll();
    server.connection.receive(&client.take_output());
    assert!(server.poll(false).is_empty());
    assert_eq!(server.poll(true).len(), 3);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;

/// `GET http://h/` in HPACK.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'h'];

fn opened() -> Server {
    let mut server = Server::new();
    server.connection.receive(PREFACE);
    server.connection.receive(&frame(4, 0, 0, &[]));
    server.poll(true);
    server
}

#[test]
fn streams_that_are_opened_and_reset_without_end_end_the_connection() {
    let mut server = opened();
    let mut count = 0;
    for stream in (1..100_000).step_by(2) {
        server.connection.receive(&frame(1, END_HEADERS | END_STREAM, stream, GET));
        for key in server.poll(true) {
            server.connection.receive(&frame(3, 0, stream, &[0, 0, 0, 8]));
            server.poll(true);
            assert!(server.stream(key).look().is_err());
            server.streams.remove(&key);
            server.connection.note_reset(5);
        }
        let _ = server.connection.take_output();
        count += 1;
        if server.is_over {
            break;
        }
    }
    assert!(server.is_over && count <= limits::RESETS_MAX + 2, "{count}");
}

#[test]
fn a_head_without_an_end_ends_the_connection() {
    for payload in [vec![0x82], vec![0; 16_000]] {
        let mut server = opened();
        server.connection.receive(&frame(1, 0, 1, GET));
        for _ in 0..1_000 {
            server.connection.receive(&frame(9, 0, 1, &payload));
            server.poll(true);
        }
        assert!(server.is_over && server.streams.is_empty());
    }
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    let mut server = opened();
    for _ in 0..100_000 {
        server.connection.receive(&frame(6, 0, 0, &[0; 8]));
    }
    let before = server.connection.input_bytes();
    for _ in 0..200 {
        let left = server.connection.input_bytes();
        server.poll(true);
        let used = left - server.connection.input_bytes();
        assert!(used <= limits::INPUT_BYTES_PER_POLL, "{used}");
    }
    // Nothing was taken, so the library has stopped to read.
    assert!(server.connection.input_bytes() > before / 2);
    assert!(server.connection.take_output().len() <= limits::OUTPUT_BYTES_MAX + 64);
}

#[test]
fn a_head_that_is_too_long_never_becomes_a_request() {
    let (mut server, mut client) = (Server::new(), Client::new(65_535));
    let long = "x".repeat(5_000);
    client.ask("GET", URL, &[("x-long", &long)], "");
    let other = client.ask("GET", URL, &[], "");
    let keys = server.exchange(&mut client);
    assert_eq!(keys.len(), 1, "the other one does");
    server.answer(keys[0], Length::None);
    server.exchange(&mut client);
    assert_eq!(client.exchanges[other].status, Some(204));
}

#[test]
fn half_a_frame_is_nothing_and_the_end_of_input_is_the_end() {
    let mut server = opened();
    let whole = frame(1, END_HEADERS | END_STREAM, 1, GET);
    server.connection.receive(&whole[..whole.len() - 1]);
    assert!(server.poll(true).is_empty() && !server.is_over);
    server.connection.end_input();
    server.poll(true);
    assert!(server.is_over);
}

#[test]
fn a_client_that_is_sent_away_may_finish_what_it_began() {
    let (mut server, mut client) = (Server::new(), Client::new(65_535));
    let place = client.ask("GET", URL, &[], "");
    let [key] = server.exchange(&mut client)[..] else { panic!("one request") };
    server.connection.shut_down();
    server.exchange(&mut client);
    assert!(!server.is_over);
    let late = client.ask("GET", URL, &[], "");
    server.answer(key, Length::None);
    server.exchange(&mut client);
    assert!(client.exchanges[place].is_complete && client.exchanges[late].is_broken);
    server.streams.clear();
    server.exchange(&mut client);
    assert!(server.is_over);
}
