//! Where a value came from.

use super::Setting;
use std::fmt;
use std::path::PathBuf;

/// Where the text of a setting was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: the table's own default.
    Default,
    /// A settings file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Line of the value, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// Its name without dashes.
        flag: String,
    },
}

/// The text that won for one setting, and its origin.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value as text, not yet read.
    pub text: String,
    /// Where the text was found.
    pub source: Source,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Flag { flag } => write!(f, "flag --{flag}"),
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_hidden = self.setting.key == "join" && self.source != Source::Default;
        let text = if is_hidden { "(hidden)" } else { &self.text };
        write!(f, "{} = `{text}` ({})", self.setting.key, self.source)
    }
}
