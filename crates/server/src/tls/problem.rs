//! What can be wrong with the files of TLS.

use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong with a file of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsProblem {
    /// The file.
    pub file: PathBuf,
    /// What is wrong, and perhaps what to do.
    pub what: String,
}

impl TlsProblem {
    pub(super) fn new(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), what }
    }
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}
