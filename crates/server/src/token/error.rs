//! What can go wrong with a command, in words that say what to do.

use crate::access::AccessProblem;
use std::fmt;
use std::path::PathBuf;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum TokenError {
    /// The file is wrong, or would be.
    File(Vec<AccessProblem>),
    /// The file cannot be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What was asked for is wrong; the sentence says what to write instead.
    Argument(String),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(problems) => {
                let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&problems.join("\n"))
            }
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Argument(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for TokenError {}
