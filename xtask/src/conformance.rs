//! The protocol's own conformance suite against the release binary.
//!
//! The number of tests is part of the check: a suite that silently runs fewer tests proves less.

use crate::node::{self, Run};
use crate::run::{Counts, Failure};
use crate::server::{LONG_POLL_TIMEOUT_MS, Server};
use crate::workspace::Workspace;
use std::path::Path;

/// Core tests in the pinned version of the suite, without those of subscriptions.
const CORE_TESTS: u64 = 332;

/// One way in which a server can be told to make appends durable.
struct Durability {
    name: &'static str,
    flags: &'static [&'static str],
}

/// All of them. Each has to pass the whole suite.
const DURABILITIES: [Durability; 1] =
    [Durability { name: "sync before acknowledgement", flags: &[] }];

/// Runs the suite: against `url` if given, or else once per durability.
pub(crate) fn run(workspace: &Workspace, url: Option<&str>) -> Result<Counts, Failure> {
    if let Some(url) = url {
        return suite(workspace, url, &Way::plain("the given server"));
    }
    let mut counts = Counts::default();
    for durability in &DURABILITIES {
        let server = Server::start(workspace, "conformance", durability.flags)?;
        let result = suite(workspace, &server.url(), &Way::plain(durability.name));
        // First what the tests say: it is more telling than how the server ended.
        counts = counts.and(result.map_err(|failure| server.explain(failure))?);
        server.stop()?;
    }
    Ok(counts)
}

/// How the suite reaches a server.
pub(crate) struct Way<'a> {
    pub(crate) name: &'a str,
    /// With TLS, the file of the certificate that is trusted.
    pub(crate) certificate: Option<&'a Path>,
    /// With HTTP/2, how the client comes to speak it: `alpn` or `prior-knowledge`. The run fails if it speaks anything else.
    pub(crate) http2: Option<&'static str>,
    /// The token that each request shows.
    pub(crate) token: Option<&'a str>,
}

impl<'a> Way<'a> {
    /// HTTP/1.1 without TLS.
    pub(crate) const fn plain(name: &'a str) -> Self {
        Self { name, certificate: None, http2: None, token: None }
    }
}

/// Runs the suite against a server.
pub(crate) fn suite(workspace: &Workspace, url: &str, way: &Way<'_>) -> Result<Counts, Failure> {
    let name = way.name;
    println!("conformance suite, {name}, {url}");
    let timeout = LONG_POLL_TIMEOUT_MS.to_string();
    let mut variables =
        vec![("THALWEG_TEST_URL", url), ("THALWEG_TEST_LONG_POLL_TIMEOUT_MS", timeout.as_str())];
    variables.extend(way.http2.map(|how| ("THALWEG_TEST_HTTP2", how)));
    variables.extend(way.token.map(|token| ("THALWEG_TEST_TOKEN", token)));
    let certificate = way.certificate.map(Path::to_string_lossy);
    variables.extend(certificate.iter().map(|file| ("NODE_EXTRA_CA_CERTS", file.as_ref())));
    let run = node::vitest(workspace, "conformance", &variables)?;
    let counts = judge(&run)?;
    println!("conformance suite, {name}: all {CORE_TESTS} core tests passed");
    Ok(counts)
}

fn judge(run: &Run) -> Result<Counts, Failure> {
    let Run { counts, skipped } = *run;
    if counts.failed > 0 {
        let message = format!("the conformance suite of {CORE_TESTS} core tests failed");
        return Err(Failure { message, counts });
    }
    if counts.passed != CORE_TESTS {
        let message = format!(
            "the suite ran {} core tests (and skipped {skipped}) instead of {CORE_TESTS}; if its \
             version was changed on purpose, change CORE_TESTS in xtask/src/conformance.rs",
            counts.passed
        );
        return Err(Failure { message, counts: Counts { failed: 1, ..counts } });
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(passed: u64, failed: u64) -> Result<Counts, Failure> {
        judge(&Run { counts: Counts { passed, failed }, skipped: 30 })
    }

    #[test]
    fn all_core_tests_have_to_pass() {
        assert_eq!(judged(CORE_TESTS, 0).unwrap().passed, CORE_TESTS);
        assert_eq!(judged(CORE_TESTS - 1, 1).unwrap_err().counts.failed, 1);
    }

    #[test]
    fn a_suite_that_ran_fewer_tests_is_a_failure() {
        let failure = judged(CORE_TESTS - 1, 0).unwrap_err();
        assert!(failure.message.contains("CORE_TESTS"), "{failure}");
        assert_eq!(failure.counts.failed, 1);
    }
}
