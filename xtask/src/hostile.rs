//! The attacks of `crates/server/tests/hostile` in their long form, on an optimised server.

use crate::run;
use crate::workspace::Workspace;
use std::process::Command;

/// Builds and runs them; the figures of each attack are printed as it ends.
pub(crate) fn run(workspace: &Workspace) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&workspace.root);
    command.args(["test", "--release", "--package", "thalweg-server", "--test", "hostile", "--"]);
    command.args(["--ignored", "--nocapture"]);
    let advice =
        "healthy clients or memory did not stay within their limits; the lines above say when";
    run::check(&mut command, advice).map(|_| ()).map_err(|failure| failure.to_string())
}
