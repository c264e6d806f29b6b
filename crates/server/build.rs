//! Tells the release binary of which commit it is, for `thalweg version` and the metrics.
//!
//! Without git, or outside a checkout, it is the version alone. Debug builds do not ask: they would be built again
//! after each commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A build script is built by the profile of what it is for.
    let commit =
        (!cfg!(debug_assertions)).then(|| git(&["rev-parse", "--short=12", "HEAD"])).flatten();
    if let Some(log) = commit.as_ref().and_then(|_| git(&["rev-parse", "--git-path", "logs/HEAD"]))
    {
        println!("cargo:rerun-if-changed={log}");
    }
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=THALWEG_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
