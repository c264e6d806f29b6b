//! Real processes with a port for other nodes.

mod harness;

use harness::{Start, new_dir, reserved_address};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// What `thalweg cluster` prints on each of the two outputs.
fn cluster(arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let output = command.arg("cluster").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn token(dir: &Path) -> (String, String) {
    cluster(&["token", "--data-dir", dir.to_str().unwrap()])
}

#[test]
fn a_node_prints_its_token_while_it_runs_and_keeps_it_over_a_restart() {
    let (dir, peers) = (new_dir(), reserved_address().to_string());
    let start = Start::with(&["--peer-listen", &peers, "--admin-listen", "127.0.0.1:0"]);
    let server = start.serve(dir.path());
    let (printed, complaints) = token(dir.path());
    assert_eq!(complaints, "");
    let rest = printed.strip_prefix("thalweg1:").unwrap().strip_suffix('\n').unwrap();
    let (ids, address) = rest.split_once('@').unwrap();
    let (cluster, secret) = ids.split_once(':').unwrap();
    assert_eq!((cluster.len(), secret.len(), address), (16, 64, &peers[..]));
    let report = server.admin("/cluster");
    assert_eq!(report.status, 200);
    let report: Value = serde_json::from_str(&report.text()).unwrap();
    assert_eq!((&report["cluster"], &report["number"]), (&cluster.into(), &1.into()));
    let node = &report["nodes"][0];
    assert_eq!((&node["address"], &node["state"]), (&peers[..].into(), &"up".into()));
    assert_eq!((&node["leaders"], &node["replicas"]), (&64.into(), &64.into()));
    assert_eq!(report["groups"]["leaderless"], 0);
    drop(server);
    let again = start.serve(dir.path());
    assert_eq!(token(dir.path()).0, printed);
    drop(again);
    // Without peers it is still a cluster of one, and serves what it has.
    drop(Start::with(&[]).serve(dir.path()));
}

#[test]
fn a_stranger_at_the_port_of_nodes_gets_no_word_and_clients_are_served() {
    let (dir, peers) = (new_dir(), reserved_address().to_string());
    let server = Start::with(&["--peer-listen", &peers]).serve(dir.path());
    let mut stranger = TcpStream::connect(&peers).unwrap();
    stranger.write_all(&[b'x'; 2048]).unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert_eq!(answer, Vec::<u8>::new());
    let mut client = server.connect();
    client.send(b"PUT /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.answer().status, 201);
}

#[test]
fn a_directory_without_peers_has_no_token_and_says_what_to_do() {
    let dir = new_dir();
    drop(Start::with(&[]).serve(dir.path()));
    let (printed, complaints) = token(dir.path());
    assert_eq!(printed, "");
    assert!(complaints.contains("start it once with --peer-listen"), "{complaints}");
}

#[test]
fn the_status_of_a_node_is_a_table_and_json() {
    let (dir, peers) = (new_dir(), reserved_address().to_string());
    let start = Start::with(&["--peer-listen", &peers, "--admin-listen", "127.0.0.1:0"]);
    let server = start.serve(dir.path());
    let admin = format!("http://{}", server.admin_address());
    let (table, complaints) = cluster(&["status", "--admin", &admin]);
    assert_eq!(complaints, "");
    let row = table.lines().find(|line| line.contains(&peers)).expect(&table);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..6], ["1", "up", &peers, "64", "64", "0"], "{table}");
    assert!(table.contains("all have a leader; 64 have too few voters"), "{table}");
    let (json, _) = cluster(&["status", "--json", "--admin", &admin]);
    assert_eq!(json, server.admin("/cluster").text() + "\n");
}

#[test]
fn a_status_that_nobody_can_tell_says_what_to_do() {
    let nobody = format!("http://{}", reserved_address());
    let (printed, complaints) = cluster(&["status", "--admin", &nobody]);
    assert_eq!(printed, "");
    assert!(complaints.starts_with(&format!("error: cannot ask {nobody}: ")), "{complaints}");
    assert!(complaints.contains("admin_listen") && complaints.contains("--admin"), "{complaints}");
    let dir = new_dir();
    let alone = Start::with(&["--admin-listen", "127.0.0.1:0"]).serve(dir.path());
    let admin = format!("http://{}", alone.admin_address());
    let (_, complaints) = cluster(&["status", "--admin", &admin]);
    assert!(
        complaints.contains("no node of a cluster") && complaints.contains("peer_listen"),
        "{complaints}"
    );
}
