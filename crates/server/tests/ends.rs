//! A thread that ends, ends the process: a server must not run on after a part of it has died.

mod harness;

use harness::{Start, Watch, new_dir, pause, read_file, until, wall_clock};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// From the failure of a thread to the end of the process. It takes milliseconds on a quiet machine.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Runs the server with the `number`-th wait for events of each thread changed by `how`, and the waits written to
/// `trace`.
fn with_changed_wait(number: u32, how: &str, trace: &Path) -> Option<Start> {
    let version = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is not installed");
        return None;
    }
    let inject = format!("inject=epoll_wait:{how}:when={number}");
    let trace = trace.to_str().expect("a plain path");
    let strace = ["strace", "-D", "-f", "-qq", "-ttt", "-o", trace];
    let strace = [&strace[..], &["-e", "trace=epoll_wait", "-e", &inject]].concat();
    Some(Start::with(&["--shards", "1", "--admin-listen", "127.0.0.1:0"]).under(&strace))
}

/// When the first wait was changed.
fn changed_at(trace: &Path) -> f64 {
    let text = String::from_utf8(read_file(trace)).unwrap();
    let line = text.lines().find(|line| line.contains("INJECTED")).expect("a wait was changed");
    // The number of the thread comes first.
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_loop_that_fails_ends_the_process_with_the_reason() {
    let dir = new_dir();
    let trace = dir.path().join("trace");
    let Some(start) = with_changed_wait(100, "error=EBADF", &trace) else { return };
    let server = start.serve(&dir.path().join("data"));
    until("the log names the thread", || {
        // So that no other thread comes to its hundredth wait before the loop does.
        let _ = TcpStream::connect(server.address());
        !server.logged("shard-0").is_empty()
    });
    let line = server.logged("shard-0").remove(0);
    assert!(line.contains("ERROR") && line.contains("Bad file descriptor"), "{line}");
    assert!(!server.wait().success());
    let took = Duration::from_secs_f64(wall_clock() - changed_at(&trace));
    println!("the process ended {took:.1?} after its loop failed");
    assert!(took < ENDS_WITHIN, "the process ended {took:?} after its loop failed");
}

#[test]
fn a_loop_that_is_held_up_is_seen_and_is_no_reason_to_kill_it_at_once() {
    let dir = new_dir();
    let trace = dir.path().join("trace");
    let Some(start) = with_changed_wait(30, "delay_enter=4000000", &trace) else { return };
    let server = start.serve(&dir.path().join("data"));
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
    let thread = harness::thread("victim", || {
        println!("{ABOUT_TO_PANIC}");
        panic!("the invariant is broken")
    });
    thread.join().unwrap_err();
    pause(60_000);
}

const ABOUT_TO_PANIC: &str = "the next line panics";

#[test]
fn a_panic_of_any_thread_ends_the_process() {
    let name = "panics_on_a_thread_beside_main";
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(ABOUT_TO_PANIC)), "it came to the panic");
    let watch = Watch::start();
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = process.wait().unwrap();
    let took = watch.elapsed();
    println!("the process ended {took:.1?} after its thread had panicked");
    assert_eq!(status.signal(), Some(6), "{said}");
    assert!(took < ENDS_WITHIN, "the process ended {took:?} after its thread had panicked");
    for word in ["ERROR", "victim", "the invariant is broken", "tests/ends.rs"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
}
