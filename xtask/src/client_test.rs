//! The official TypeScript client against the release binary: what users will do first.

use crate::node;
use crate::run::{Counts, Failure};
use crate::server::Server;
use crate::workspace::Workspace;

/// Runs the tests: against `url` if given, or else against a server of their own.
pub(crate) fn run(workspace: &Workspace, url: Option<&str>) -> Result<Counts, Failure> {
    if let Some(url) = url {
        return tests(workspace, url);
    }
    let server = Server::start(workspace, "client-test", &[])?;
    let counts = tests(workspace, &server.url()).map_err(|failure| server.explain(failure))?;
    server.stop()?;
    Ok(counts)
}

fn tests(workspace: &Workspace, url: &str) -> Result<Counts, Failure> {
    println!("official TypeScript client, {url}");
    let run = node::vitest(workspace, "client", &[("THALWEG_TEST_URL", url)])?;
    let counts = run.counts;
    if counts.failed > 0 || run.skipped > 0 || counts.passed == 0 {
        let message = format!("the client tests failed or were skipped ({})", run.skipped);
        return Err(Failure { message, counts: Counts { failed: counts.failed.max(1), ..counts } });
    }
    Ok(counts)
}
