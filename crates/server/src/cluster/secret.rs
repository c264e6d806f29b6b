//! The cluster's secret: a file that only its owner reads, and the token that carries it.
//!
//! # Format
//! The file has 64 hexadecimal digits and a line end. A token is `thalweg1:CLUSTER:SECRET@HOST:PORT`, with the cluster's id
//! in 16 digits and the secret in 64.

use super::ClusterError;
use crate::settings::Settings;
use cluster::Secret;
use env::{Random, read_operator_file, replace_operator_file};
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "cluster.secret";

const FILE_BYTES_MAX: u64 = 4096;

/// What a joiner knows from its token.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) cluster: u64,
    pub(super) secret: Secret,
    /// A member that can be asked.
    pub(super) address: String,
}

/// Where the secret is.
pub(super) fn path(settings: &Settings) -> PathBuf {
    settings.cluster_secret_file.clone().unwrap_or_else(|| path_in(&settings.data_dir))
}

/// Where a data directory has it, if the settings name no other file.
pub(super) fn path_in(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

/// Reads the secret.
///
/// # Errors
/// [`ClusterError::Secret`].
pub(super) fn read(path: &Path) -> Result<Secret, ClusterError> {
    find(path)?.ok_or_else(|| {
        wrong(
            path,
            "is missing; copy it from another node, with mode 0600 (setting cluster_secret_file)",
        )
    })
}

/// Reads the secret, or makes one if there is none and `may_make`. It is durable when it is given back.
///
/// # Errors
/// [`ClusterError::Secret`].
pub(super) fn read_or_make(
    path: &Path,
    may_make: bool,
    random: &mut dyn Random,
) -> Result<Secret, ClusterError> {
    if !may_make {
        return read(path);
    }
    if let Some(secret) = find(path)? {
        return Ok(secret);
    }
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    make(path, &bytes)?;
    Ok(Secret::new(bytes))
}

fn find(path: &Path) -> Result<Option<Secret>, ClusterError> {
    let file = match read_operator_file(path, FILE_BYTES_MAX) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(path, &format!("cannot be read: {error}"))),
    };
    if file.is_open_to_others() {
        let advice = format!(
            "can be read or changed by others (mode {:04o}); take that away: chmod o= {}",
            file.mode,
            path.display()
        );
        return Err(wrong(path, &advice));
    }
    let text = std::str::from_utf8(&file.bytes).ok().map(str::trim);
    match text.and_then(parse) {
        Some(bytes) => Ok(Some(Secret::new(bytes))),
        None => {
            Err(wrong(path, "is no secret of a cluster: 64 hexadecimal digits and nothing else"))
        }
    }
}

fn wrong(path: &Path, what: &str) -> ClusterError {
    ClusterError::Secret { file: path.to_owned(), what: what.to_owned() }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

/// Keeps the secret of a token. It is durable when this returns.
///
/// # Errors
/// [`ClusterError::Secret`], also if there is another one.
pub(super) fn write(path: &Path, secret: &Secret) -> Result<(), ClusterError> {
    match find(path)? {
        Some(found) if found.bytes() == secret.bytes() => Ok(()),
        Some(_) => Err(wrong(path, "has another secret than the token; remove one of the two")),
        None => make(path, secret.bytes()),
    }
}

fn make(path: &Path, bytes: &[u8; 32]) -> Result<(), ClusterError> {
    let text = hexadecimal(bytes) + "\n";
    let made = replace_operator_file(path, text.as_bytes(), 0o600);
    made.map_err(|error| wrong(path, &format!("cannot be made: {error}")))
}

/// What a token says.
///
/// # Errors
/// [`ClusterError::Token`]. No part of the token is in it.
pub(super) fn parse_token(text: &str) -> Result<Token, ClusterError> {
    let parts = || {
        let (ids, address) = text.strip_prefix("thalweg1:")?.split_once('@')?;
        let (cluster, secret) = ids.split_once(':')?;
        let cluster = (cluster.len() == 16).then(|| u64::from_str_radix(cluster, 16).ok())??;
        let secret = Secret::new(parse(secret)?);
        let has_port = address.rsplit_once(':')?.1.parse::<u16>().is_ok();
        has_port.then(|| Token { cluster, secret, address: address.to_owned() })
    };
    parts().ok_or(ClusterError::Token)
}

/// The token with which a node joins `cluster` at `address`.
pub(super) fn token(cluster: u64, secret: &Secret, address: &str) -> String {
    format!("thalweg1:{cluster:016x}:{}@{address}", hexadecimal(secret.bytes()))
}
