//! Web pages in Chromium against the release binary.

use crate::node;
use crate::run::{Counts, Failure};
use crate::workspace::Workspace;
use std::path::Path;

/// Where Debian's and Ubuntu's packages have the browser.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Runs the tests, which start their own servers; leaves them out where there is no browser.
pub(crate) fn run(workspace: &Workspace) -> Result<Counts, Failure> {
    let browser = std::env::var("CHROMIUM").unwrap_or_else(|_| CHROMIUM.to_owned());
    if !Path::new(&browser).is_file() {
        println!("{browser} is not there: left out (CHROMIUM names another place)");
        return Ok(Counts::default());
    }
    let binary = workspace.server_binary();
    let binary = binary.to_string_lossy();
    let variables = [("THALWEG_TEST_BINARY", &*binary), ("CHROMIUM", &browser)];
    let counts = node::vitest(workspace, "browser", &variables)?.counts;
    if counts.failed > 0 || counts.passed == 0 {
        let message = "the browser tests failed".to_owned();
        return Err(Failure { message, counts: Counts { failed: counts.failed.max(1), ..counts } });
    }
    Ok(counts)
}
