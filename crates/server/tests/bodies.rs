//! Large bodies of JSON, which are checked beside the loop: nothing but time differs from small ones.

mod harness;

use harness::client::request;
use harness::{Client, JSON, PATIENCE, Server, until};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// An array of `count` messages of about a hundred bytes.
fn array(count: usize, tag: &str) -> String {
    let filler = "x".repeat(80);
    let messages: Vec<String> =
        (0..count).map(|number| format!(r#"{{"{tag}":{number},"f":"{filler}"}}"#)).collect();
    format!("[{}]", messages.join(","))
}

/// What is between the brackets.
fn inner(array: &str) -> &str {
    &array[1..array.len() - 1]
}

fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, &[("Content-Type", JSON)], body.as_bytes())
}

#[test]
fn large_and_small_ones_are_stored_in_the_order_in_which_they_were_sent() {
    let (server, _dir) = Server::start(&["--shards", "2"]);
    for number in 0..8 {
        let mut client = server.connect();
        let path = format!("/s/{number}");
        let (first, large) = (array(4_000, "first"), array(3_000, "large"));
        let create = request("PUT", &path, &[("Content-Type", JSON)], first.as_bytes());
        let all = [create, post(&path, &large), post(&path, "[1,2]"), post(&path, &large)].concat();
        client.send(&all);
        client.answer().is(201);
        for _ in 0..3 {
            client.answer().is(204);
        }
        let stored = String::from_utf8(client.read_all(&path)).unwrap();
        let pieces = stored.replace("][", ",");
        let expected = [inner(&first), inner(&large), "1,2", inner(&large)].join(",");
        assert_eq!(pieces, format!("[{expected}]"));
    }
}

#[test]
fn a_body_that_is_no_json_is_refused_and_the_connection_stays_open() {
    let (server, _dir) = Server::start(&[]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let large = array(5_000, "n");
    let cut_off = &large[..large.len() - 1];
    client.send(&[post("/s", cut_off), post("/s", "[1]")].concat());
    let answer = client.answer().fails(400, "invalid-json");
    assert!(answer.text().contains(&format!("column {}", cut_off.len())), "{}", answer.text());
    client.answer().is(204);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let answer = client.post("/s", JSON, deep.as_bytes()).fails(400, "invalid-json");
    assert!(answer.text().contains("deeper than 128"), "{}", answer.text());
    let refused = client.call("PUT", "/t", &[("Content-Type", JSON)], cut_off.as_bytes());
    refused.fails(400, "invalid-json");
    client.get("/t").fails(404, "stream-not-found");
    assert_eq!(client.get("/s").text(), "[1]");
}

#[test]
fn more_of_them_at_once_than_wait_for_a_check_are_all_stored_once() {
    const CLIENTS: usize = 200;
    let (server, _dir) = Server::start(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let whole = post("/s", &array(1_500, "n"));
    let (last, begin) = whole.split_last().unwrap();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(begin));
    let wanted = CLIENTS * (array(1_500, "n").len() - 1);
    until("all but the last bytes are there", || {
        server.metric("thalweg_body_bytes_in_flight") == wanted as u64
    });
    clients.iter_mut().for_each(|client| client.send(&[*last]));
    for client in &mut clients {
        client.answer().is(204);
    }
    let stored = String::from_utf8(client.read_all("/s")).unwrap();
    assert_eq!(stored.matches(r#""n":1499,"#).count(), CLIENTS);
    until("nothing is charged", || server.metric("thalweg_body_bytes_in_flight") == 0);
}

#[test]
fn others_are_served_while_one_is_checked() {
    let (server, _dir) = Server::start(&["--shards", "1"]);
    let (mut large, mut other) = (server.connect(), server.connect());
    large.put("/s", JSON).is(201);
    let mut body = "[1],".repeat(8 * MIB).into_bytes();
    body.splice(..1, *b"[[");
    let whole = request("POST", "/s", &[("Content-Type", JSON)], &body);
    let (last, begin) = whole.split_last().unwrap();
    large.send(begin);
    other.get("/none").is(404);
    large.send(&[*last]);
    large.set_patience(Duration::from_millis(1));
    let mut served = 0;
    while !large.is_answered() {
        other.get("/none").is(404);
        served += 1;
    }
    large.set_patience(PATIENCE);
    large.answer().fails(400, "invalid-json");
    assert!(served >= 10, "{served} answers to others while 32 MiB were checked");
}

#[test]
fn a_client_that_vanishes_behind_one_leaves_no_charge() {
    let (server, _dir) = Server::start(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]);
    let mut client = server.connect();
    client.put("/s", JSON).is(201);
    let large = array(100_000, "n");
    for _ in 0..5 {
        let mut vanishing = server.connect();
        vanishing.send(&post("/s", &large));
    }
    client.post("/s", JSON, b"[1]").is(204);
    until("nothing is charged", || server.metric("thalweg_body_bytes_in_flight") == 0);
    let stored = String::from_utf8(client.read_all("/s")).unwrap();
    let (whole, last) =
        (stored.matches(r#""n":0,"#).count(), stored.matches(r#""n":99999,"#).count());
    assert!(whole == last && whole <= 5, "{whole} begin and {last} end");
}
