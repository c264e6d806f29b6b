//! A thread that ends, ends the process: a server must not run on after a part of it has died.

mod harness;

use harness::{Start, new_dir, pause, until};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// Runs the server with the `number`-th wait for events of each thread changed by `how`.
fn with_changed_wait(number: u32, how: &str) -> Option<Start> {
    let version = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is not installed");
        return None;
    }
    let inject = format!("inject=epoll_wait:{how}:when={number}");
    let strace =
        ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=epoll_wait", "-e", &inject];
    Some(Start::with(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]).under(&strace))
}

#[test]
fn a_loop_that_fails_ends_the_process_with_the_reason() {
    let Some(start) = with_changed_wait(100, "error=EBADF") else { return };
    let dir = new_dir();
    let server = start.serve(dir.path());
    until("the log names the thread", || {
        // So that no other thread comes to its hundredth wait before the loop does.
        let _ = TcpStream::connect(server.address());
        !server.logged("shard-0").is_empty()
    });
    let line = server.logged("shard-0").remove(0);
    assert!(line.contains("ERROR") && line.contains("Bad file descriptor"), "{line}");
    assert!(!server.wait().success());
}

#[test]
fn a_loop_that_is_held_up_is_seen_and_is_no_reason_to_kill_it_at_once() {
    let Some(start) = with_changed_wait(30, "delay_enter=4000000") else { return };
    let dir = new_dir();
    let server = start.serve(dir.path());
    let mut longest = 0;
    until("the loop has been silent for seconds", || {
        longest = longest.max(server.metric("thalweg_loop_silent_seconds"));
        assert_eq!(server.admin("/healthz").status, 200);
        longest >= 2
    });
    until("the loop runs again", || server.metric("thalweg_loop_silent_seconds") == 0);
    assert!(server.metric("thalweg_turn_seconds_count") > 0);
    assert!(server.metric("thalweg_turn_seconds_sum") < 4, "a wait for sockets is no turn");
    server.stop();
}

/// Not a test by itself: what [`a_panic_of_any_thread_ends_the_process`] runs in a process of its own.
#[test]
#[ignore = "ends its process; the test below runs it"]
fn panics_on_a_thread_beside_main() {
    let log = thalweg_server::logging::start(
        thalweg_server::settings::LogFormat::Text,
        thalweg_server::settings::LogLevel::Info,
    );
    log.end_process_on_panic();
    let thread = harness::thread("victim", || panic!("the invariant is broken"));
    thread.join().unwrap_err();
    pause(60_000);
}

#[test]
fn a_panic_of_any_thread_ends_the_process() {
    let name = "panics_on_a_thread_beside_main";
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.signal(), Some(6), "{said}");
    for word in ["ERROR", "victim", "the invariant is broken", "tests/ends.rs"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
}
