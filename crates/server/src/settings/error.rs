//! What can be wrong with the settings, in words that say what to change.

use super::Chosen;
use std::fmt;
use std::path::PathBuf;

/// One problem with the settings. None of them is worth a retry: a person must change something.
#[derive(Debug)]
pub enum SettingsError {
    /// A value that its setting does not take.
    BadValue {
        /// The setting, the text and its origin.
        chosen: Chosen,
        /// What the setting takes, in words.
        allowed: String,
    },
    /// A key of the settings file that is no setting.
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Line of the key, counted from 1.
        line: usize,
        /// The key as written.
        key: String,
        /// The setting that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The settings file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The settings file is not TOML.
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line of the mistake, counted from 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// A variable that is not text.
    NotText {
        /// The variable.
        variable: String,
    },
    /// Two values that do not go together.
    Conflict {
        /// The first of them.
        left: Box<Chosen>,
        /// The second.
        right: Box<Chosen>,
        /// The rule that they break.
        rule: &'static str,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadValue { chosen, allowed } => {
                write!(f, "{chosen} is not a value of this setting\n  allowed: {allowed}")
            }
            Self::UnknownKey { path, line, key, nearest } => {
                write!(f, "{}:{line}: there is no setting `{key}`", path.display())?;
                match nearest {
                    Some(name) => write!(f, "\n  did you mean `{name}`?"),
                    None => write!(f, "\n  `thalweg config` prints all settings"),
                }
            }
            Self::Unreadable { path, error } => {
                write!(f, "cannot read the settings file {}: {error}", path.display())
            }
            Self::Malformed { path, line, message } => {
                write!(f, "{}:{line}: this is not TOML: {message}", path.display())
            }
            Self::NotText { variable } => {
                write!(f, "environment variable {variable} is not UTF-8 text")
            }
            Self::Conflict { left, right, rule } => {
                write!(f, "{rule}\n  {left}\n  {right}")
            }
        }
    }
}

impl std::error::Error for SettingsError {}
