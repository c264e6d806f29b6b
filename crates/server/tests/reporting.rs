//! Reporting cannot fail anything: a log without a reader stops neither a request nor the server.

mod harness;

use harness::{Server, Start, TEXT, full_device, new_dir};
use std::io::Write;
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
