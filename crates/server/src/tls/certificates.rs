//! One certificate chain with its key, from two PEM files.

use super::problem::TlsProblem;
use env::{OperatorFile, read_operator_file};
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Longest file of certificates or of a key: some hundred certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate that expires within so many days is worth a warning.
const EXPIRES_SOON_DAYS: i64 = 14;

/// A chain that clients may get.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Its file.
    pub file: PathBuf,
    /// The names that it is for, in lower case; a wildcard begins with `*.`.
    pub names: Vec<String>,
    /// When it expires, in seconds since 1970.
    pub expires_s: i64,
    /// SHA-256 of the first certificate, in hexadecimal.
    pub fingerprint: String,
    pub(super) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Logs what it is, and warns if it is about to expire.
    pub fn log(&self, now_s: i64) {
        let (file, names) = (self.file.display(), self.names.join(", "));
        let fingerprint = format!("sha256:{}", self.fingerprint);
        let days_left = (self.expires_s - now_s).div_euclid(24 * 60 * 60);
        tracing::info!(%file, names, fingerprint, days_left, "a certificate is in use");
        if days_left < 0 {
            tracing::warn!(%file, "this certificate has expired: clients will refuse it");
        } else if days_left < EXPIRES_SOON_DAYS {
            tracing::warn!(%file, days_left, "this certificate expires soon");
        }
    }

    /// Reads a chain and its key.
    ///
    /// # Errors
    /// [`TlsProblem`] with the file that is wrong: unreadable, no PEM, not in order, or a key that does not fit or that
    /// others can read.
    pub(super) fn read(
        cert_file: &Path,
        key_file: &Path,
        provider: &CryptoProvider,
    ) -> Result<Self, TlsProblem> {
        let chain = read_chain(cert_file)?;
        check_order(cert_file, &chain)?;
        let key = read_key(key_file)?;
        let (names, expires_s) = facts_of(cert_file, &chain[0])?;
        let fingerprint = fingerprint_of(&chain[0]);
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            let what = match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("the key does not belong to the certificate {}", cert_file.display())
                }
                other => format!("the key cannot be used: {other}"),
            };
            TlsProblem::new(key_file, what)
        })?;
        Ok(Self { file: cert_file.to_owned(), names, expires_s, fingerprint, key: Arc::new(key) })
    }
}

/// The certificates of a PEM file, at least one.
pub(super) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let bytes = read_file(file)?.bytes;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| TlsProblem::new(file, format!("this is no PEM: {error}")))?;
    if chain.is_empty() {
        return Err(TlsProblem::new(file, "there is no certificate in it".to_owned()));
    }
    Ok(chain)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsProblem> {
    let read = read_file(file)?;
    if read.is_open_to_others() {
        let what = format!(
            "others can read this key (mode {:04o}); take that away: chmod o= {}",
            read.mode,
            file.display()
        );
        return Err(TlsProblem::new(file, what));
    }
    PrivateKeyDer::from_pem_slice(&read.bytes)
        .map_err(|error| TlsProblem::new(file, format!("there is no private key in it: {error}")))
}

fn read_file(file: &Path) -> Result<OperatorFile, TlsProblem> {
    read_operator_file(file, FILE_BYTES_MAX)
        .map_err(|error| TlsProblem::new(file, format!("it cannot be read: {error}")))
}

fn parse<'a>(file: &Path, der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, TlsProblem> {
    let parsed = X509Certificate::from_der(der);
    parsed.map(|(_, certificate)| certificate).map_err(|error| {
        TlsProblem::new(file, format!("a certificate in it cannot be read: {error}"))
    })
}

/// Each certificate is signed by the one behind it.
fn check_order(file: &Path, chain: &[CertificateDer<'_>]) -> Result<(), TlsProblem> {
    for pair in chain.windows(2) {
        let (one, next) = (parse(file, &pair[0])?, parse(file, &pair[1])?);
        if one.issuer() != next.subject() {
            let what = format!(
                "the chain is not in order: behind `{}` must come `{}`, and `{}` does",
                one.subject(),
                one.issuer(),
                next.subject()
            );
            return Err(TlsProblem::new(file, what));
        }
    }
    Ok(())
}

fn facts_of(file: &Path, der: &CertificateDer<'_>) -> Result<(Vec<String>, i64), TlsProblem> {
    let certificate = parse(file, der)?;
    let names = subject_names(&certificate);
    Ok((names, certificate.validity().not_after.timestamp()))
}

/// The names of a certificate: DNS names and addresses; the common name if there is none.
fn subject_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::URI(uri) => names.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => names.extend(address_of(bytes)),
                _ => {}
            }
        }
    }
    if names.is_empty() {
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        names.extend(common.map(str::to_owned));
    }
    names.sort();
    names.dedup();
    names
}

fn address_of(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| IpAddr::from(octets).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::from(octets).to_string())).ok()
}

/// The names of a client's certificate, which was verified.
pub(super) fn names_of(der: &CertificateDer<'_>) -> Vec<String> {
    parse(Path::new(""), der).map(|certificate| subject_names(&certificate)).unwrap_or_default()
}

fn fingerprint_of(der: &CertificateDer<'_>) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
