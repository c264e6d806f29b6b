//! Requests behind each other on one connection: under way together, answered in order.

use crate::support::{Shard, TEXT, delete, get, post, put, request};
use node::Request;
use thalweg_session::{Close, Input};

const JSON: &str = "Content-Type: application/json\r\n";

fn all(requests: &[Vec<u8>]) -> Vec<u8> {
    requests.concat()
}

#[test]
fn requests_of_one_stream_in_one_packet_answer_as_one_at_a_time_would() {
    let requests = [
        put("one", b"first"),
        post("one", b"second"),
        get("one"),
        delete("one"),
        put("one", b"third"),
        get("one"),
    ];
    let mut alone = Shard::open();
    let one_at_a_time: Vec<String> = requests.iter().map(|request| alone.once(request)).collect();
    let mut shard = Shard::open();
    let conn = shard.connect();
    shard.send(conn, &all(&requests));
    let got = shard.got(conn);
    assert_eq!(got, one_at_a_time.concat());
    assert!(got.contains("firstsecond") && got.ends_with("third"), "{got}");
}

#[test]
fn appends_behind_each_other_share_a_sync() {
    let mut shard = Shard::open();
    shard.once(&put("one", b""));
    let before = shard.sync_count;
    let conn = shard.connect();
    shard.holds_syncs = true;
    shard.send(conn, &all(&vec![post("one", b"x"); 200]));
    assert_eq!(shard.asked("Append"), 200, "all are under way");
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.statuses(conn), [204; 200]);
    // The first one goes at once, as there is no timer; the rest share the next ones.
    assert!(shard.sync_count - before <= 10, "{} syncs", shard.sync_count - before);
}

#[test]
fn answers_come_in_the_order_of_their_requests() {
    let mut shard = Shard::open();
    shard.once(&put("slow", b"slow"));
    shard.once(&put("quick", b"quick"));
    shard.holds = |request| matches!(request, Request::Read(read) if read.path.as_str() == "slow");
    let conn = shard.connect();
    shard.send(conn, &all(&[get("slow"), get("quick"), get("missing")]));
    assert_eq!(shard.asked("Read"), 3);
    assert_eq!(shard.got(conn), "");
    shard.release();
    let got = shard.got(conn);
    let (slow, quick) = (got.find("slow").unwrap(), got.find("quick").unwrap());
    assert!(slow < quick && quick < got.find("404").unwrap(), "{got}");
}

#[test]
fn a_read_waits_for_the_writes_of_its_stream_before_it_and_others_do_not() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    shard.once(&put("two", b"b"));
    shard.holds_syncs = true;
    let conn = shard.connect();
    shard.send(conn, &all(&[post("one", b"c"), get("two"), get("one"), get("two")]));
    assert_eq!(shard.asked("Read"), 1, "the second waits, and the third behind it");
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.asked("Read"), 3);
    assert_eq!(shard.statuses(conn), [204, 200, 200, 200]);
}

#[test]
fn a_write_waits_for_the_check_of_a_body_before_it() {
    let mut shard = Shard::open();
    shard.once(&request("PUT", "json", JSON, b""));
    shard.once(&put("text", b""));
    let long = format!("[\"{}\"]", "x".repeat(200 << 10)).into_bytes();
    let conn = shard.connect();
    shard.holds_checks = true;
    shard.send(conn, &all(&[request("POST", "json", JSON, &long), post("text", b"x")]));
    assert_eq!(shard.asked("Append"), 1, "another stream does not wait");
    shard.send(conn, &all(&[request("POST", "json", JSON, b"[\"last\"]"), post("text", b"y")]));
    assert_eq!(shard.asked("Append"), 1, "the same one does");
    shard.check();
    assert_eq!(shard.statuses(conn), [204; 4]);
    let got = shard.once(&get("json"));
    assert!(got.ends_with("xxx\",\"last\"]"), "{}", &got[got.len() - 20..]);
}

#[test]
fn so_many_are_under_way_and_no_more() {
    let mut shard = Shard::open();
    shard.once(&put("one", b""));
    shard.holds_syncs = true;
    let conn = shard.connect();
    shard.send(conn, &all(&vec![post("one", b"x"); 1_000]));
    assert_eq!(shard.asked("Append"), 256);
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.statuses(conn), [204; 1_000]);
    shard.holds = |request| matches!(request, Request::Read(_));
    shard.send(conn, &all(&vec![get("one"); 100]));
    assert_eq!(shard.held.len(), 9, "each may bring a window of bytes");
    shard.release();
    assert_eq!(shard.statuses(conn), [200; 100]);
}

#[test]
fn long_appends_are_under_way_together_as_far_as_their_bytes_go() {
    for (body_kib, together) in [(60, 6), (100, 4), (120, 4)] {
        let mut shard = Shard::open();
        shard.once(&put("one", b""));
        let conn = shard.connect();
        shard.holds_syncs = true;
        let body = vec![b'x'; body_kib << 10];
        shard.send(conn, &all(&vec![post("one", &body); 20]));
        assert_eq!(shard.asked("Append"), together, "of {body_kib} KiB");
        shard.holds_syncs = false;
        shard.sync();
        assert_eq!(shard.statuses(conn), [204; 20]);
        let head = shard.once(&request("HEAD", "one", "", b""));
        assert!(head.contains(&format!("{:016}", 20 * body.len())), "{head}");
    }
}

#[test]
fn a_body_that_comes_while_another_request_waits_needs_no_turn_of_its_own() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    let conn = shard.connect();
    shard.holds_syncs = true;
    let long = post("one", &[b'b'; 70_000]);
    shard.send(conn, &post("one", b"c"));
    for piece in long.chunks(20_000) {
        assert_eq!(shard.asked("Append"), 1, "it is not whole");
        shard.send(conn, piece);
    }
    assert_eq!(shard.asked("Append"), 2);
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.statuses(conn), [204; 2]);
    assert!(shard.once(&get("one")).ends_with(&format!("ac{}", "b".repeat(70_000))));
}

#[test]
fn a_request_that_is_too_long_to_wait_has_its_own_turn() {
    let mut shard = Shard::open();
    shard.once(&put("one", b""));
    let conn = shard.connect();
    shard.holds_syncs = true;
    let requests = [post("one", b"a"), post("one", &[b'b'; 140_000]), post("one", b"c")];
    shard.send(conn, &all(&requests));
    assert_eq!(shard.asked("Append"), 1);
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.statuses(conn), [204; 3]);
    assert!(shard.once(&get("one")).ends_with(&format!("a{}c", "b".repeat(140_000))));
}

#[test]
fn a_client_that_takes_nothing_holds_up_itself_alone() {
    let mut shard = Shard::open();
    shard.once(&put("one", &[b'x'; 10_000]));
    let conn = shard.connect_with_room(0);
    shard.send(conn, &all(&vec![get("one"); 200]));
    let asked = shard.asked("Read");
    assert!(asked < 30, "{asked} reads for a client that takes nothing");
    assert!(shard.once(&get("one")).contains("200 OK"));
    for _ in 0..200 {
        shard.take(conn, 20_000);
    }
    assert_eq!(shard.statuses(conn), [200; 200]);
}

#[test]
fn a_client_that_sends_no_more_gets_all_answers() {
    let mut shard = Shard::open();
    shard.holds_syncs = true;
    let conn = shard.connect();
    shard.send(conn, &all(&[put("one", b"a"), post("one", b"b"), put("two", b"")]));
    shard.half_close(conn);
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.statuses(conn), [201, 204, 201]);
    shard.run();
    assert!(shard.wires.0[&conn].closed.is_some());
}

#[test]
fn a_stop_lets_all_that_is_under_way_be_answered() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    shard.holds_syncs = true;
    let conn = shard.connect();
    shard.send(conn, &all(&[post("one", b"b"), post("one", b"c"), put("two", b"d")]));
    shard.handle(Input::Stop);
    shard.holds_syncs = false;
    shard.sync();
    let got = shard.got(conn);
    assert_eq!(got.matches("HTTP/1.1 20").count(), 3, "{got}");
    assert_eq!(got.to_ascii_lowercase().matches("connection: close").count(), 1, "{got}");
}

#[test]
fn a_stop_waits_a_moment_for_the_last_request_of_each_client() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    let [quiet, asking, silent, waiting] = [(); 4].map(|()| shard.connect());
    shard.send(quiet, &get("one"));
    shard.pass_ms(1_100);
    [asking, silent, waiting].into_iter().for_each(|conn| shard.send(conn, &get("one")));
    shard.handle(Input::Stop);
    shard.run();
    let is_closed = |shard: &Shard, conn| shard.wires.0[&conn].closed.is_some();
    let closed = [quiet, asking, silent].map(|conn| is_closed(&shard, conn));
    assert_eq!(closed, [true, false, false], "who was active may be about to ask");
    shard.pass_ms(300);
    shard.send(asking, &post("one", b"b"));
    let got = shard.got(asking);
    assert!(got.contains("HTTP/1.1 204") && got.matches("Connection: close").count() == 1, "{got}");
    shard.send(waiting, &get("one?offset=now&live=long-poll"));
    let got = shard.got(waiting);
    assert!(got.contains("HTTP/1.1 503") && got.contains("shutting-down"), "{got}");
    shard.pass_ms(1_000);
    assert!([asking, silent, waiting].iter().all(|conn| is_closed(&shard, *conn)));
    assert!(shard.sessions.is_finished(shard.now.monotonic));
}

#[test]
fn the_end_of_input_is_found_behind_more_requests_than_a_turn_takes() {
    let mut shard = Shard::open();
    shard.once(&put("a", b"one"));
    let conn = shard.connect();
    shard.send_and_half_close(conn, &get("a").repeat(9));
    assert_eq!(shard.statuses(conn), [200; 9]);
    assert_eq!(shard.wires.0[&conn].closed, Some(Close::Whole));
}

#[test]
fn an_answer_that_ends_the_connection_waits_for_those_behind_it() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    shard.once(&put("two", b"b"));
    shard.holds = |request| matches!(request, Request::Read(_));
    let conn = shard.connect();
    shard.send(conn, &all(&[get("one"), post("two", b"c"), put("three", b"d")]));
    let read = shard.held.pop().unwrap();
    let failure = node::Failure::Io { error: "input/output error".to_owned() };
    shard.handle(Input::Reply(read.ticket, node::Reply::Failed(failure)));
    let got = shard.got(conn);
    let codes: Vec<&str> = got.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(codes, ["500", "204", "201"], "what was applied is answered");
    assert_eq!(got.matches("Connection: close").count(), 1, "{got}");
    assert!(got.rfind("Connection: close") > got.rfind("HTTP/1.1 201"), "{got}");
    assert_eq!(shard.wires.0[&conn].closed, Some(Close::Writes));
}

#[test]
fn nothing_goes_behind_the_last_answer_of_a_connection() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    shard.once(&put("two", b"b"));
    shard.holds = |request| matches!(request, Request::Read(_));
    let conn = shard.connect();
    shard.holds_syncs = true;
    shard.send(conn, &all(&[get("one"), post("two", b"c")]));
    let read = shard.held.pop().unwrap();
    let failure = node::Failure::Io { error: "input/output error".to_owned() };
    shard.handle(Input::Reply(read.ticket, node::Reply::Failed(failure)));
    shard.send(conn, &post("two", b"never"));
    assert_eq!(shard.asked("Append"), 1, "it would never be answered");
    shard.holds_syncs = false;
    shard.sync();
    assert_eq!(shard.statuses(conn), [500, 204]);
}

#[test]
fn an_announced_body_is_no_request_whatever_it_holds() {
    let mut shard = Shard::open();
    shard.once(&put("one", b"a"));
    let conn = shard.connect();
    shard.send(conn, &post("one", b"b"));
    shard.holds = |request| matches!(request, Request::Announce { .. });
    shard.once(&put("two", b"c"));
    let body = delete("two");
    let append = request("POST", "one", &format!("{TEXT}Expect: 100-continue\r\n"), &body);
    let (head, body) = append.split_at(append.len() - body.len());
    shard.send(conn, head);
    shard.send(conn, body);
    assert_eq!(shard.asked("Delete"), 0, "the client did not wait, and its body is a body");
    shard.release();
    assert_eq!(shard.statuses(conn), [204, 100, 204]);
    assert!(shard.once(&get("one")).contains("DELETE /v1/stream/two"));
}
