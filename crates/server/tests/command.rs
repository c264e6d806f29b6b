//! The `thalweg` command as a user meets it.

use std::process::{Command, Output};

fn thalweg(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints text")
}

#[test]
fn config_prints_values_with_their_origin() {
    let output = thalweg(&["config", "--shards", "3"], &[("THALWEG_GROUPS", "7")]);
    let printed = text(&output.stdout);
    assert!(output.status.success());
    assert!(printed.contains("# Source: flag --shards; default: 0.\nshards = 3\n"), "{printed}");
    assert!(
        printed.contains("# Source: environment variable THALWEG_GROUPS; default: 64.\ngroups = 7"),
        "{printed}"
    );
}

#[test]
fn a_wrong_setting_ends_with_status_2_before_anything_is_served() {
    let output = thalweg(&["serve", "--groups", "0"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "error: groups = `0` (flag --groups) is not a value of this setting\n  \
         allowed: a whole number from 1 to 4096\n"
    );
}

#[test]
fn a_wrong_settings_file_names_its_line() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/misspelt.toml");
    let output = thalweg(&["config", "--config", file], &[]);
    assert_eq!(output.status.code(), Some(2));
    let printed = text(&output.stderr);
    assert!(printed.contains("misspelt.toml:3: there is no setting `gzipp`"), "{printed}");
    assert!(printed.contains("did you mean `gzip`?"), "{printed}");
}

#[test]
fn without_a_command_the_help_teaches() {
    let output = thalweg(&[], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Try it:\n  thalweg serve\n"));
}

#[test]
fn the_version_is_printed() {
    let output = thalweg(&["version"], &[]);
    assert_eq!(text(&output.stdout), concat!("thalweg ", env!("THALWEG_VERSION"), "\n"));
}

/// Runs a line of shell in `dir`, with the server's binary as `$0`.
fn shell(dir: &std::path::Path, line: &str) {
    let arguments = ["-ec", line, env!("CARGO_BIN_EXE_thalweg")];
    let status = Command::new("sh").args(arguments).current_dir(dir).status().unwrap();
    assert!(status.success(), "{line}");
}

#[test]
fn bench_becomes_the_program_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    shell(dir.path(), "cp \"$0\" thalweg");
    let own = dir.path().join("thalweg");
    let bench = || Command::new(&own).args(["bench", "appends", "--help"]).output().unwrap();
    let output = bench();
    assert_eq!(output.status.code(), Some(2));
    let printed = text(&output.stderr);
    assert!(printed.contains("cargo build --release -p thalweg-bench"), "{printed}");

    let script =
        "printf '#!/bin/sh\\necho got $*\\nexit 7\\n' > thalweg-bench; chmod +x thalweg-bench";
    shell(dir.path(), script);
    let output = bench();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "got appends --help\n"));
}
