//! Crashes of real processes on real files. `crates/crash` holds all of it. This module builds it
//! and the server, and passes it their paths.

use crate::run;
use crate::workspace::Workspace;
use clap::Args;
use std::process::Command;

/// Flags of the crash program.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Crashes {
    /// As `cargo xtask crash --help` explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

/// Builds the server, so that none that is older than the code is tried, and runs the crash
/// program.
pub(crate) fn run(workspace: &Workspace, crashes: &Crashes) -> Result<(), String> {
    let binary = workspace.server_binary();
    if !crashes.names("--bin") && !crashes.names("--help") {
        let mut build = cargo(workspace);
        build.args(["build", "--release", "--package", "thalweg-server"]);
        run::check(&mut build, "the server does not build").map_err(|f| f.to_string())?;
    }
    let mut command = cargo(workspace);
    // One that panics still ends its servers and unmounts its disks: in this profile it unwinds.
    command.args(["run", "--profile", "hunt", "--quiet", "--package", "thalweg-crash", "--"]);
    command.args(&crashes.flags);
    if !crashes.names("--bin") {
        command.arg("--bin").arg(binary);
    }
    if !crashes.names("--dir") {
        let name = format!("crash-{}", std::process::id());
        command.arg("--dir").arg(workspace.target.join("xtask").join(name));
    }
    let advice = "a promise was broken; the lines above say which, and how to repeat it";
    run::check(&mut command, advice).map(|_| ()).map_err(|failure| failure.to_string())
}

impl Crashes {
    /// A few cycles of every scenario.
    pub(crate) fn short() -> Self {
        Self { flags: vec!["--short".to_owned()] }
    }

    /// A cluster of three: the busiest node is killed, and all are restarted one after the other.
    pub(crate) fn of_clusters() -> [Self; 2] {
        ["cluster-kill", "cluster-restart"].map(|scenario| Self {
            flags: ["--short", "--scenario", scenario].map(str::to_owned).to_vec(),
        })
    }

    fn names(&self, flag: &str) -> bool {
        let assigned = format!("{flag}=");
        self.flags.iter().any(|given| given == flag || given.starts_with(&assigned))
    }
}

fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&workspace.root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_in_both_forms() {
        let crashes = Crashes { flags: vec!["--bin=x".into(), "--dir".into(), "y".into()] };
        assert!(crashes.names("--bin") && crashes.names("--dir"));
        assert!(!crashes.names("--help"));
    }
}
