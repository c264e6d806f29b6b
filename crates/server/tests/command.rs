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
    assert_eq!(text(&output.stdout), concat!("thalweg ", env!("CARGO_PKG_VERSION"), "\n"));
}
