//! The release binary beside programs that others wrote: pages in Chromium, and the proxies nginx and Caddy.

use crate::node;
use crate::run::{Counts, Failure};
use crate::workspace::Workspace;
use std::path::Path;

/// Where Debian's and Ubuntu's packages have the browser.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Pages in Chromium; left out where there is none.
pub(crate) fn browser(workspace: &Workspace) -> Result<Counts, Failure> {
    let browser = std::env::var("CHROMIUM").unwrap_or_else(|_| CHROMIUM.to_owned());
    if !Path::new(&browser).is_file() {
        println!("{browser} is not there: left out (CHROMIUM names another place)");
        return Ok(Counts::default());
    }
    tests(workspace, "browser", &[("CHROMIUM", &browser)])
}

/// The recipes of docs/proxies.md; a proxy that is not installed is left out.
pub(crate) fn proxies(workspace: &Workspace) -> Result<Counts, Failure> {
    let is_installed = |program: &&str| {
        ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
            .iter()
            .any(|dir| Path::new(dir).join(program).is_file())
    };
    if !["nginx", "caddy"].iter().any(is_installed) {
        println!("neither nginx nor caddy is installed: left out");
        return Ok(Counts::default());
    }
    tests(workspace, "proxy", &[])
}

/// The tests start their own servers.
fn tests(workspace: &Workspace, name: &str, variables: &[(&str, &str)]) -> Result<Counts, Failure> {
    let binary = workspace.server_binary();
    let binary = binary.to_string_lossy();
    let variables = [&[("THALWEG_TEST_BINARY", &*binary)], variables].concat();
    let counts = node::vitest(workspace, name, &variables)?.counts;
    if counts.failed > 0 || counts.passed == 0 {
        let message = format!("the tests in tests/{name} failed");
        return Err(Failure { message, counts: Counts { failed: counts.failed.max(1), ..counts } });
    }
    Ok(counts)
}
