//! Readers: what they hold of each other's, and what is left of them.

use crate::support::{Shard, TEXT, get, put, request};
use node::Request;

/// Readers of one stream: more than windows are asked for at a time.
const READER_COUNT: usize = 12;

#[test]
fn readers_whose_use_waits_for_the_log_hold_up_no_other_stream() {
    let mut shard = Shard::open();
    let long = vec![b'a'; 200 << 10];
    shard.once(&request("PUT", "waits", &format!("{TEXT}Stream-TTL: 60\r\n"), &long));
    shard.once(&put("other", &vec![b'b'; 3 << 20]));
    let mut readers = Vec::new();
    for _ in 0..READER_COUNT {
        let conn = shard.connect_with_room(100);
        shard.send(conn, &get("waits?offset=-1&live=sse"));
        readers.push(conn);
    }
    // Their next reads wait, as they do while the use of a stream with a lifetime is being logged.
    shard.holds = |request| matches!(request, Request::Read(read) if read.path.as_str() == "waits");
    for conn in &readers {
        shard.take(*conn, 1 << 20);
    }
    assert!(shard.held.len() > 8, "{} reads wait", shard.held.len());
    let got = shard.once(&get("other"));
    assert!(got.len() > 3 << 20, "it got {} bytes", got.len());
    shard.release();
    for conn in readers {
        let got = shard.got(conn);
        assert!(got.matches('a').count() >= long.len(), "{} bytes", got.len());
    }
}

#[test]
fn a_stream_without_readers_is_watched_no_longer() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let poll = shard.connect();
    shard.send(poll, &get("one?offset=now&live=long-poll"));
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (1, 0));
    shard.pass_ms(20_000);
    assert_eq!(shard.statuses(poll), [204], "the poll has timed out");
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (1, 1));
    shard.send(poll, &get("one?offset=now&live=long-poll"));
    shard.hang_up(poll);
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (2, 2));
    let reader = shard.connect();
    shard.send(reader, &get("one?offset=now&live=sse"));
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (3, 2));
    shard.hang_up(reader);
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (3, 3));
    let reader = shard.connect();
    shard.send(reader, &get("one?offset=now&live=sse"));
    shard.pass_ms(60_000);
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (4, 4), "its answer is over");
    assert_eq!(shard.sessions.watched_count(), 0);
}

#[test]
fn a_stream_is_watched_as_long_as_one_reader_is_left() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let (poll, reader) = (shard.connect(), shard.connect());
    shard.send(poll, &get("one?offset=now&live=long-poll"));
    shard.send(reader, &get("one?offset=now&live=sse"));
    shard.hang_up(poll);
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (1, 0));
    shard.once(&crate::support::post("one", b"more"));
    assert!(shard.got(reader).contains("more"));
}

#[test]
fn a_reader_that_a_frame_finds_gone_takes_the_watch_of_no_other() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"x"));
    let readers = [(); 3].map(|()| {
        let conn = shard.connect();
        shard.send(conn, &get("one?offset=now&live=sse"));
        conn
    });
    shard.wires.0.get_mut(&readers[1]).unwrap().is_broken = true;
    for news in ["first", "second"] {
        shard.once(&crate::support::post("one", news.as_bytes()));
        for conn in [readers[0], readers[2]] {
            assert!(shard.got(conn).contains(news), "{news}");
        }
    }
    assert_eq!((shard.asked("Watch"), shard.asked("Unwatch")), (1, 0));
}

/// A long-poll whose news is read by itself: it is too large to be shared. The stream is trimmed before that read.
#[test]
fn a_long_poll_that_falls_behind_the_head_learns_where_that_is() {
    for query in ["offset=now", "record=now", "tail_records=0&max_records=1"] {
        let mut shard = Shard::open();
        shard.once(&put("one", b"x"));
        let poll = shard.connect();
        shard.send(poll, &get(&format!("one?{query}&live=long-poll")));
        shard.holds = |request| matches!(request, Request::Read(_));
        shard.once(&crate::support::post("one", &vec![b'y'; 100_000]));
        shard.once(&crate::support::post("one", b"z"));
        let trimmed = shard.once(&request("PATCH", "one", "Stream-Trim-Before-Record: 2\r\n", b""));
        assert!(trimmed.starts_with("HTTP/1.1 204"), "{trimmed}");
        shard.release();
        let got = shard.got(poll);
        assert!(got.starts_with("HTTP/1.1 410"), "{query}: {got}");
        assert!(got.contains("Stream-Head: 0000000000100001_0000000000000000"), "{query}: {got}");
    }
}
