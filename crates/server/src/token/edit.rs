//! An access file in the hands of an editor: comments, order and everything else stay as they were.

use super::error::TokenError;
use crate::access::{FILE_BYTES_MAX, read_rules_from};
use env::{OperatorFile, read_operator_file, replace_operator_file};
use std::io;
use std::path::{Path, PathBuf};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

/// The mode of a new access file: it has hashes and no secrets, and is still nobody else's business.
const NEW_MODE: u32 = 0o640;

const BEGINNING: &str =
    "# Who may do what. `thalweg token add` adds tokens, `thalweg token check` finds mistakes.\n\n";

/// An access file and where it is.
pub(super) struct AccessFile {
    path: PathBuf,
    document: DocumentMut,
    mode: u32,
}

/// Reads a text, and the mode of its file.
fn read_with_mode(path: &Path) -> Result<(String, u32), TokenError> {
    let io_error = |error| TokenError::Io { path: path.to_owned(), error };
    let OperatorFile { bytes, mode } =
        read_operator_file(path, FILE_BYTES_MAX).map_err(io_error)?;
    let text = String::from_utf8(bytes).map_err(|_| io_error(io::ErrorKind::InvalidData.into()))?;
    Ok((text, mode))
}

/// Reads a text.
pub(super) fn read(path: &Path) -> Result<String, TokenError> {
    Ok(read_with_mode(path)?.0)
}

impl AccessFile {
    /// # Errors
    /// If it cannot be read, or the server would not take it.
    pub(super) fn open(path: &Path) -> Result<Self, TokenError> {
        let (text, mode) = read_with_mode(path)?;
        read_rules_from(path, &text).map_err(TokenError::File)?;
        let document = text.parse().map_err(|error: toml_edit::TomlError| {
            TokenError::Argument(format!("{}: {error}", path.display()))
        })?;
        Ok(Self { path: path.to_owned(), document, mode })
    }

    /// As [`Self::open`], or a new file if there is none.
    pub(super) fn open_or_begin(path: &Path) -> Result<Self, TokenError> {
        match Self::open(path) {
            Err(TokenError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                let document = BEGINNING.parse().expect("comments are TOML");
                Ok(Self { path: path.to_owned(), document, mode: NEW_MODE })
            }
            other => other,
        }
    }

    fn tokens(&self) -> impl Iterator<Item = &Table> {
        self.document.get("token").and_then(Item::as_array_of_tables).into_iter().flatten()
    }

    pub(super) fn has_token(&self, id: &str) -> bool {
        self.tokens().any(|table| id_of(table) == Some(id))
    }

    pub(super) fn add_token(
        &mut self,
        id: &str,
        sha256: &str,
        grants: &[String],
        expires: Option<&str>,
    ) {
        let mut table = Table::new();
        table["id"] = value(id);
        table["sha256"] = value(sha256);
        table["grants"] = value(grants.iter().map(String::as_str).collect::<Array>());
        if let Some(expires) = expires {
            table["expires"] =
                value(expires.parse::<toml_edit::Datetime>().expect("a time of our own"));
        }
        if self.document.is_empty() {
            // The comment of a new file belongs above its first token.
            let beginning = self.document.trailing().as_str().unwrap_or_default().to_owned();
            self.document.set_trailing("");
            table.decor_mut().set_prefix(beginning);
        }
        let tokens =
            self.document.entry("token").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        tokens.as_array_of_tables_mut().expect("the file was checked").push(table);
    }

    pub(super) fn remove_token(&mut self, id: &str) {
        if let Some(tokens) = self.document.get_mut("token").and_then(Item::as_array_of_tables_mut)
        {
            tokens.retain(|table| id_of(table) != Some(id));
        }
    }

    /// One line for each token: id, end, grants.
    pub(super) fn token_lines(&self) -> String {
        let line = |table: &Table| {
            let expires =
                table.get("expires").and_then(Item::as_value).map(|value| value.to_string());
            let grants = table.get("grants").and_then(Item::as_array).into_iter().flatten();
            let grants: Vec<&str> = grants.filter_map(|grant| grant.as_str()).collect();
            let id = id_of(table).unwrap_or_default();
            let expires = expires.map_or_else(|| "never".to_owned(), |text| text.trim().to_owned());
            format!("{id}\t{expires}\t{}\n", grants.join("; "))
        };
        self.tokens().map(line).collect()
    }

    /// Puts the file in the place of the old one.
    ///
    /// # Errors
    /// If the server would not take it, or it cannot be written. The old file is as it was.
    pub(super) fn save(&self) -> Result<(), TokenError> {
        let text = self.document.to_string();
        read_rules_from(&self.path, &text).map_err(TokenError::File)?;
        replace_operator_file(&self.path, text.as_bytes(), self.mode)
            .map_err(|error| TokenError::Io { path: self.path.clone(), error })
    }
}

fn id_of(table: &Table) -> Option<&str> {
    table.get("id").and_then(Item::as_str)
}

/// A path for a URL: all but unreserved characters and slashes is escaped.
pub(super) fn percent_encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}
