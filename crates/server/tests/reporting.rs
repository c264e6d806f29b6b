//! Reporting cannot fail anything: a log without a reader stops neither a request nor the server.

mod harness;

use harness::{Server, Start, TEXT, full_device, is_there, new_dir, read_file, rename_file, until};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes that a pipe of Linux holds.
const PIPE_BYTES: usize = 64 << 10;

/// It serves, and ends when it is told to: the lines that say so come after all others.
fn serves_and_stops(server: Server) {
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    client.post("/s", TEXT, b"stored").is(204);
    assert_eq!(client.get("/s").is(200).text(), "stored");
    server.stop();
}

#[test]
fn a_log_on_a_full_disk_stops_nothing() {
    let dir = new_dir();
    serves_and_stops(Start::with(&[]).serve_logging_to(full_device(), dir.path()));
}

#[test]
fn a_log_whose_reader_has_gone_stops_nothing() {
    let dir = new_dir();
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    serves_and_stops(Start::with(&[]).serve_logging_to(log, dir.path()));
}

#[test]
fn a_log_whose_reader_does_not_read_stops_nothing() {
    let dir = new_dir();
    let (_reader, mut log) = std::io::pipe().unwrap();
    log.write_all(&[b'\n'; PIPE_BYTES]).unwrap();
    serves_and_stops(Start::with(&[]).serve_logging_to(log, dir.path()));
}

/// The status of a command whose standard output and error are these.
fn status(arguments: &[&str], out: impl Into<Stdio>, err: impl Into<Stdio>) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).stdout(out).stderr(err).status().unwrap().code()
}

#[test]
fn messages_that_nobody_takes_change_no_status() {
    let full = || Stdio::from(full_device());
    assert_eq!(status(&["serve", "--groups", "0"], Stdio::null(), full()), Some(2));
    assert_eq!(status(&["bench"], Stdio::null(), full()), Some(2));
    assert_eq!(status(&["no-such-command"], Stdio::null(), full()), Some(2));
    assert_eq!(status(&["config"], full(), full()), Some(1), "a file would not be whole");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (reader, out) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(status(&["config"], out, Stdio::null()), Some(0));
}

/// The lines of a log.
fn lines(path: &Path) -> Vec<Value> {
    let text = String::from_utf8(read_file(path)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn hang_up(server: &Server) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
}

#[test]
fn an_access_log_has_a_line_for_each_request_and_is_opened_again_by_a_signal() {
    let dir = new_dir();
    let [access, audit, old] =
        ["access.log", "audit.log", "old.log"].map(|name| dir.path().join(name));
    let flags = ["--access-log", access.to_str().unwrap(), "--audit-log", audit.to_str().unwrap()];
    let server = Start::with(&flags).serve(&dir.path().join("data"));
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    client.call("GET", "/s?offset=-1", &[("traceparent", &parent)], b"").is(200);
    client.call("DELETE", "/s", &[("Origin", "https://evil.example")], b"").is(403);
    client.call("DELETE", "/s", &[], b"").is(204);
    until("the lines are written", || lines(&access).len() == 4);
    let written = lines(&access);
    assert_eq!(written[1]["target"], "/v1/stream/s?offset=-1");
    assert_eq!((&written[1]["trace"], &written[1]["status"]), (&trace.into(), &200.into()));
    let events: Vec<String> = lines(&audit).iter().map(|line| line["event"].to_string()).collect();
    assert_eq!(events, ["\"denied\"", "\"removal\""]);
    rename_file(&access, &old);
    client.get("/s").is(404);
    until("the file is known by what it is", || lines(&old).len() == 5);
    hang_up(&server);
    until("the file is there again", || is_there(&access));
    client.get("/s").is(404);
    until("the new file is written", || lines(&access).len() == 1);
    assert_eq!(lines(&old).len(), 5);
    until("the reload is noted", || lines(&audit).last().unwrap()["event"] == "reload");
    client.get("/last").is(404);
    server.stop();
    assert_eq!(lines(&access).len(), 2, "the end of the server waits for the last line");
}

#[test]
fn a_log_on_a_full_disk_changes_nothing_for_clients_and_is_counted() {
    let dir = new_dir();
    let flags = ["--access-log", "/dev/full", "--admin-listen", "127.0.0.1:0"];
    let server = Start::with(&flags).serve(&dir.path().join("data"));
    let mut client = server.connect();
    client.put("/s", TEXT).is(201);
    for _ in 0..100 {
        client.post("/s", TEXT, b"x").is(204);
    }
    assert_eq!(client.read_all("/s").len(), 100);
    let unwritten = || {
        let text = server.admin("/metrics").text().to_owned();
        let line = text.lines().find_map(|l| l.strip_prefix("thalweg_log_lines_unwritten_total "));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    until("the lost lines are counted", || unwritten() >= 102);
    assert_eq!(server.awaited_lines("lines of a log are lost").len(), 1, "and once");
    server.stop();
}

#[test]
fn a_log_that_cannot_be_opened_refuses_a_start() {
    let dir = new_dir();
    let path = dir.path().join("none/access.log");
    let start = Start::with(&["--access-log", path.to_str().unwrap()]);
    let said = start.refused(&dir.path().join("data"));
    assert!(said.contains("access_log") && said.contains("none/access.log"), "{said}");
}
