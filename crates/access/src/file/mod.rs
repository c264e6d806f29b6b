//! The access file: TOML that names who may do what.
//!
//! # Format
//! ```toml
//! [anonymous]                          # clients that show nothing; without it they may do nothing
//! grants = ["read public/"]
//!
//! [[token]]                            # written by `thalweg token add`
//! id = "ci"
//! sha256 = "…"
//! grants = ["create,append logs/ci/"]
//! expires = 2027-01-01T00:00:00Z
//! limits = { requests_per_s = 200 }
//!
//! [[issuer]]                           # JWTs
//! issuer = "https://auth.example"
//! audience = "thalweg"
//! jwks_file = "jwks.json"
//! algorithms = ["EdDSA"]
//! grants = ["read,append users/{sub}/"]
//!
//! [[certificate]]
//! san = "worker.internal"
//! grants = ["* **"]
//!
//! [[signing_key]]                      # signed URLs
//! id = "web"
//! secret_file = "web.key"
//! grants = ["read chat/"]
//! ```
//!
//! # Invariants
//! - A file is taken whole or not at all: every problem is reported, each with its line.
//! - A key that is not known is a problem. A misspelt limit must not be no limit.

mod keys;
mod rules;
mod table;

pub use keys::secret;
pub use rules::parse;

use std::fmt;

/// What is wrong with an access file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, counted from 1.
    pub line: usize,
    /// What, and what to write instead.
    pub message: String,
}

/// Whether others may read a file without harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// It holds public keys.
    Public,
    /// It holds a secret: its reader checks that nobody else can read it.
    Secret,
}

/// Reads a file that the access file names. The error says why not, as the end of a sentence.
pub type ReadFile<'a> = &'a dyn Fn(&str, Secrecy) -> Result<Vec<u8>, String>;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// The name among `names` that `wrong` most likely meant: at most a third of it is different.
pub(crate) fn nearest(
    wrong: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    names
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3))
        .min()
        .map(|(_, name)| name)
}
