//! A certificate that the server makes for itself: for a laptop, where nobody signs one.
//!
//! It is kept below the data directory, so that a client that has pinned its fingerprint finds the same one after a
//! restart. A start replaces one that expires within a month.

use super::{certificates::Certificate, problem::TlsProblem};
use crate::settings::Settings;
use env::{make_operator_dir, replace_operator_file};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::crypto::CryptoProvider;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// How long a certificate is good for: browsers take at most about 13 months.
const LIFETIME_S: i64 = 390 * 24 * 60 * 60;

/// So long before it expires, it is replaced.
const RENEW_BEFORE_S: i64 = 30 * 24 * 60 * 60;

/// The files of the certificate, which is made if there is none that lasts and fits its key.
///
/// # Errors
/// [`TlsProblem`] if it cannot be made or kept.
pub(super) fn files(
    settings: &Settings,
    provider: &CryptoProvider,
    now_s: i64,
) -> Result<(PathBuf, PathBuf), TlsProblem> {
    let dir = settings.data_dir.join("tls");
    let (cert, key) = (dir.join("self-signed.crt"), dir.join("self-signed.key"));
    let lasts = Certificate::read(&cert, &key, provider)
        .is_ok_and(|found| found.expires_s - now_s > RENEW_BEFORE_S);
    if !lasts {
        let addresses: Vec<_> = settings.listen.iter().map(|one| one.address.ip()).collect();
        make(&dir, (&cert, &key), &addresses, now_s)?;
    }
    Ok((cert, key))
}

fn make(
    dir: &Path,
    (cert, key): (&Path, &Path),
    addresses: &[IpAddr],
    now_s: i64,
) -> Result<(), TlsProblem> {
    let failed = |file: &Path, error: &dyn std::fmt::Display| {
        TlsProblem::new(file, format!("a certificate cannot be made: {error}"))
    };
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.push(rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase());
    let known = addresses.iter().filter(|ip| !ip.is_unspecified()).map(IpAddr::to_string);
    names.extend(known);
    names.retain(|name| !name.is_empty() && name.is_ascii());
    names.sort();
    names.dedup();
    let mut params = CertificateParams::new(names).map_err(|error| failed(cert, &error))?;
    params.distinguished_name.push(DnType::CommonName, "Thalweg, self-signed");
    let time = |seconds: i64| time::OffsetDateTime::from_unix_timestamp(seconds);
    params.not_before = time(now_s - 60).map_err(|error| failed(cert, &error))?;
    params.not_after = time(now_s + LIFETIME_S).map_err(|error| failed(cert, &error))?;
    let pair = KeyPair::generate().map_err(|error| failed(key, &error))?;
    let signed = params.self_signed(&pair).map_err(|error| failed(cert, &error))?;
    make_operator_dir(dir).map_err(|error| failed(dir, &error))?;
    let write = |file: &Path, text: String, mode| {
        let written = replace_operator_file(file, text.as_bytes(), mode);
        written.map_err(|error| failed(file, &error))
    };
    write(key, pair.serialize_pem(), 0o600)?;
    write(cert, signed.pem(), 0o644)
}
