//! Every command for a fraction of a second against the server of the same build.

use std::path::PathBuf;
use std::process::{Command, Output};

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
fn a_missing_server_is_explained() {
    let output = bench(&["creates", "--server-bin", "no-such-server"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("cargo build --release") && errors.contains("--url"), "{errors}");
}
