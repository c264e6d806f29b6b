//! The official clients in TypeScript and Python against the release binary: what users will do first. And tokens that
//! Node has signed.

use crate::node;
use crate::python;
use crate::run::{Counts, Failure};
use crate::server::Server;
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;

const URL: &str = "THALWEG_TEST_URL";
const READ_TOKEN: &str = "THALWEG_TEST_READ_TOKEN";
const BINARY: &str = "THALWEG_TEST_BINARY";

/// Runs the tests: against `url` if given, or else against a server of their own. That one has an access file, with a
/// token that may only read; clients without a token may do everything.
pub(crate) fn run(workspace: &Workspace, url: Option<&str>) -> Result<Counts, Failure> {
    if let Some(url) = url {
        // What needs the token is skipped.
        let run = tests(workspace, &[(URL, url)])?;
        return Ok(run.counts.and(python::run(workspace, &[(URL, url)])?));
    }
    let scratch = workspace.scratch("client-test-access")?;
    let file = scratch.join("access.toml");
    let token = add_token(workspace, &file)?;
    let file = file.to_string_lossy();
    let flags = ["--access-file", &file, "--anonymous", "all"];
    let server = Server::start(workspace, "client-test", &flags)?;
    let binary = workspace.server_binary().to_string_lossy().into_owned();
    let variables = [(URL, server.url()), (READ_TOKEN, token), (BINARY, binary)];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let run = tests(workspace, &variables).map_err(|failure| server.explain(failure))?;
    if run.skipped > 0 {
        let message = format!("{} client tests were skipped", run.skipped);
        return Err(server.explain(Failure { message, counts: run.counts }));
    }
    let python = python::run(workspace, &variables).map_err(|failure| server.explain(failure))?;
    server.stop()?;
    let _ = std::fs::remove_dir_all(&scratch);
    Ok(run.counts.and(python))
}

/// A token that may only read, made as users make one.
fn add_token(workspace: &Workspace, file: &Path) -> Result<String, Failure> {
    let output = Command::new(workspace.server_binary())
        .args(["token", "add", "--id", "reader", "--grant", "read **", "--access-file"])
        .arg(file)
        .output()
        .map_err(|error| format!("cannot run the server's binary: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("`thalweg token add` failed: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn tests(workspace: &Workspace, variables: &[(&str, &str)]) -> Result<node::Run, Failure> {
    println!("official TypeScript client, {}", variables[0].1);
    let run = node::vitest(workspace, "client", variables)?;
    let counts = run.counts;
    if counts.failed > 0 || counts.passed == 0 {
        let message = "the client tests failed".to_owned();
        return Err(Failure { message, counts: Counts { failed: counts.failed.max(1), ..counts } });
    }
    Ok(run)
}
