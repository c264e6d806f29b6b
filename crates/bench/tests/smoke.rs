//! Every command for a fraction of a second against the server of the same build.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const BENCH: &str = env!("CARGO_BIN_EXE_thalweg-bench");

/// The server beside the benchmark; tests of this crate alone do not build it.
fn server() -> Option<PathBuf> {
    let server = PathBuf::from(BENCH).with_file_name("thalweg");
    if !server.is_file() {
        eprintln!("skipped: there is no {}", server.display());
    }
    server.is_file().then_some(server)
}

fn bench(args: &[&str]) -> Output {
    Command::new(BENCH).args(args).output().expect("the benchmark was built")
}

#[test]
fn every_row_of_the_table_is_measured() {
    if server().is_none() {
        return;
    }
    let json = std::env::temp_dir().join(format!("thalweg-bench-smoke-{}", std::process::id()));
    let output = bench(&["table", "--quick", "--json", json.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(!text.contains("not measured") && !text.contains("FAILED"), "{text}");

    let report = std::fs::read_to_string(&json).unwrap();
    std::fs::remove_file(&json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), text.lines().filter(|line| line.contains("<br>")).count());
    for run in runs {
        assert!(!run["figures"].as_array().unwrap().is_empty(), "{run}");
        assert!(run["durability"].as_str().is_some_and(|text| !text.is_empty()), "{run}");
    }
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
}

#[test]
fn the_yardstick_needs_no_server() {
    let output = bench(&["appends", "--against", "bare", "--streams", "4", "--seconds", "0.2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("appends per second"), "{text}");
}

#[test]
fn who_reads_the_figures_may_go_away() {
    let command = ["appends", "--against", "bare", "--streams", "4", "--seconds", "0.2"];
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(BENCH).args(command).stdout(writer).stderr(Stdio::piped()).output();
    let output = output.expect("the benchmark was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn commits_and_messages_are_read_back() {
    if server().is_none() {
        return;
    }
    let commits = ["commits", "--events", "40", "--batch", "5", "--event-bytes", "100000"];
    let messages = ["messages", "--seconds", "0.2", "--warm-up-seconds", "0.1", "--batch", "8"];
    for (args, checks, figure) in [
        (commits, 4, "commit p50 in raw writes with bare round trips"),
        (messages, 4, "messages per second"),
    ] {
        let output = bench(&args);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
        assert_eq!(text.lines().filter(|line| line.starts_with("  ok ")).count(), checks, "{text}");
        assert!(text.contains(figure), "{text}");
    }
    let output = bench(&["replay", "--against", "nats"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("reads over HTTP"), "{errors}");
}

#[test]
fn a_cluster_is_grown_and_what_it_acknowledged_is_read_back() {
    if server().is_none() {
        return;
    }
    let args = ["appends", "--cluster", "3", "--streams", "16", "--connections", "6"];
    let output = bench(&[&args[..], &["--seconds", "0.3", "--server-arg=--groups=4"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.starts_with("appends --cluster 3 ") && text.contains("per second"), "{text}");
    let output = bench(&["recovery", "--cluster", "3"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--cluster starts nodes of this server"), "{errors}");
}

#[test]
fn a_missing_server_is_explained() {
    let output = bench(&["creates", "--server-bin", "no-such-server"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("cargo build --release") && errors.contains("--url"), "{errors}");
}

/// An empty directory that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const COMPARE: [&str; 7] = ["compare", "--quick", "--pairs", "2", "--seconds", "0.2", "--peers"];

#[test]
fn two_servers_take_turns_and_a_report_comes_out() {
    if server().is_none() {
        return;
    }
    let out = Scratch::new("compare");
    let own = ["thalweg", "--workload", "writes,replay", "--out", out.path()];
    let output = bench(&[&COMPARE[..], &own].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let read = |name: &str| std::fs::read_to_string(Path::new(out.path()).join(name)).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&read("figures.json")).unwrap();
    let cases = figures["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let turns = case["turns"].as_array().unwrap();
        assert_eq!(turns.len(), 2);
        for turn in turns {
            let order: Vec<&str> =
                turn.as_array().unwrap().iter().map(|a| a["contender"].as_str().unwrap()).collect();
            assert_eq!(order, ["thalweg", "thalweg-other"]);
            assert!(turn[1]["run"]["figures"][0]["value"].as_f64().unwrap() > 0.0, "{turn}");
        }
    }
    assert!(
        read("README.md").contains("(overview.svg)") && read("overview.svg").starts_with("<svg")
    );
    let page = read("details.md");
    assert!(page.contains("| Thalweg, the other one |") && page.contains("A trial"), "{page}");
    for plot in ["writes-appends.svg", "replay-p99.svg"] {
        assert!(page.contains(plot) && read(plot).starts_with("<svg"), "{plot}");
    }
}

#[test]
fn nobody_to_compare_with_is_reported() {
    if server().is_none() {
        return;
    }
    let own = ["ursula,s2-lite", "--peers-dir", "no-such-directory"];
    let output = bench(&[&COMPARE[..], &own].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("left out: Ursula is not installed"), "{errors}");
    assert!(errors.contains("cargo xtask peers") && errors.contains("no peer is installed"));
}

/// Processes with `text` among their arguments.
fn processes(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    arguments.filter(|bytes| String::from_utf8_lossy(bytes).contains(text)).count()
}

#[test]
fn an_interruption_leaves_no_server_behind() {
    if server().is_none() {
        return;
    }
    let (dir, out) = (Scratch::new("interrupt"), Scratch::new("interrupt-out"));
    let own = ["thalweg", "--seconds", "60", "--dir", dir.path(), "--out", out.path()];
    let arguments = [&COMPARE[..4], &["--peers"], &own[..]].concat();
    let quiet =
        Command::new(BENCH).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = quiet.unwrap();
    let data = format!("--data-dir={}", dir.path());
    let start = Instant::now();
    while processes(&data) == 0 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(processes(&data), 1, "a server was started");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(processes(&data), 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
