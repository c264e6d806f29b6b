//! What the settings say of TLS, read from their files and checked as a whole.
//!
//! # Invariants
//! - A [`Tls`] is complete or not made: nothing of it is found wrong when a client comes.
//! - Connections keep the one they began with.

use super::{certificates::Certificate, names::ByName, problem::TlsProblem, self_signed};
use crate::settings::{ClientAuth, Settings, TlsVersion};
use env::list_operator_files;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ProducesTickets, ServerConfig, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of `tls_dir` that are looked at, at most.
pub(crate) const FILES_MAX: usize = 4096;

/// Tickets that a client of TLS 1.3 gets: enough for two connections that begin at once.
const TICKETS: usize = 2;

/// The certificates in force and what connections are made with.
#[derive(Debug, Clone)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
    /// All certificates; the first is for clients that ask for no name, or for one that nobody has.
    pub certificates: Arc<[Certificate]>,
    /// The keys of tickets, and the rules for clients' certificates under which they were given.
    tickets: Arc<dyn ProducesTickets>,
    client_rules: ClientRules,
}

/// Under which rules a client was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClientRules {
    auth: ClientAuth,
    roots: Vec<Vec<u8>>,
}

/// Reads what the settings name; `None` if they name no certificate. Tickets of `before` stay good unless the rules
/// for clients' certificates have changed, which a ticket would pass by.
///
/// # Errors
/// All problems there are.
pub fn load(
    settings: &Settings,
    before: Option<&Tls>,
    now_s: i64,
) -> Result<Option<Tls>, Vec<TlsProblem>> {
    if !settings.has_certificate() {
        return Ok(None);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut problems = Vec::new();
    let certificates = certificates(settings, &provider, now_s, &mut problems);
    let roots = client_roots(settings, &mut problems);
    check_names(&certificates, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    assert!(!certificates.is_empty(), "settings that name a certificate give one or a problem");
    make(settings, before, provider, (certificates, roots))
        .map(Some)
        .map_err(|problem| vec![problem])
}

fn make(
    settings: &Settings,
    before: Option<&Tls>,
    provider: Arc<CryptoProvider>,
    (certificates, roots): (Vec<Certificate>, Vec<Vec<u8>>),
) -> Result<Tls, TlsProblem> {
    let client_rules = ClientRules { auth: settings.tls_client_auth, roots };
    let problem = |what: String| {
        let file = settings.tls_client_ca.clone().unwrap_or_default();
        TlsProblem { file, what }
    };
    let tickets = match before.filter(|before| before.client_rules == client_rules) {
        Some(before) => Arc::clone(&before.tickets),
        None => aws_lc_rs::Ticketer::new()
            .map_err(|error| problem(format!("no keys for tickets: {error}")))?,
    };
    let versions: &[_] = match settings.tls_version_min {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| problem(error.to_string()))?;
    let builder = match client_rules.auth {
        ClientAuth::Off => builder.with_no_client_auth(),
        auth => {
            let mut store = RootCertStore::empty();
            for root in &client_rules.roots {
                let added = store.add(root.clone().into());
                added.map_err(|error| problem(format!("this signs no certificate: {error}")))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(store.into(), provider);
            let verifier = match auth {
                ClientAuth::Required => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|error| problem(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(ByName::new(&certificates)));
    // Which one a client has chosen shows in its first bytes.
    config.alpn_protocols = match settings.http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    config.ticketer = Arc::clone(&tickets);
    config.send_tls13_tickets = TICKETS;
    config.max_early_data_size = 0;
    Ok(Tls { config: Arc::new(config), certificates: certificates.into(), tickets, client_rules })
}

/// The certificates that the settings name, in the order in which they answer clients without a name.
fn certificates(
    settings: &Settings,
    provider: &CryptoProvider,
    now_s: i64,
    problems: &mut Vec<TlsProblem>,
) -> Vec<Certificate> {
    let mut pairs = Vec::new();
    if let (Some(cert), Some(key)) = (&settings.tls_cert, &settings.tls_key) {
        pairs.push((cert.clone(), key.clone()));
    }
    if settings.tls_self_signed {
        match self_signed::files(settings, provider, now_s) {
            Ok(pair) => pairs.push(pair),
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(dir) = &settings.tls_dir {
        match pairs_in(dir) {
            Ok(found) if found.is_empty() && pairs.is_empty() => {
                let what = "there is no pair of certificate and key in it".to_owned();
                problems.push(TlsProblem::new(dir, what));
            }
            Ok(found) => pairs.extend(found),
            Err(error) => {
                problems.push(TlsProblem::new(dir, format!("it cannot be read: {error}")));
            }
        }
    }
    let mut certificates = Vec::new();
    for (cert, key) in pairs {
        match Certificate::read(&cert, &key, provider) {
            Ok(certificate) => certificates.push(certificate),
            Err(problem) => problems.push(problem),
        }
    }
    certificates
}

/// Pairs of files in the layouts that certbot, Kubernetes and people use, by name.
fn pairs_in(dir: &Path) -> std::io::Result<Vec<(PathBuf, PathBuf)>> {
    let files = list_operator_files(dir, FILES_MAX)?;
    let files: BTreeSet<PathBuf> = files.into_iter().map(|file| file.path).collect();
    let pairs = files.iter().filter_map(|cert| {
        let key = match cert.file_name()?.to_str()? {
            "fullchain.pem" => cert.with_file_name("privkey.pem"),
            name if name.ends_with(".crt") || name.ends_with(".pem") => cert.with_extension("key"),
            _ => return None,
        };
        files.contains(&key).then(|| (cert.clone(), key))
    });
    Ok(pairs.collect())
}

fn client_roots(settings: &Settings, problems: &mut Vec<TlsProblem>) -> Vec<Vec<u8>> {
    let Some(file) = &settings.tls_client_ca else { return Vec::new() };
    match super::certificates::read_chain(file) {
        Ok(roots) => roots.into_iter().map(|root| root.to_vec()).collect(),
        Err(problem) => {
            problems.push(problem);
            Vec::new()
        }
    }
}

/// A name that two certificates have is a mistake: which one a client gets would be chance.
fn check_names(certificates: &[Certificate], problems: &mut Vec<TlsProblem>) {
    let mut owners: HashMap<&str, &Certificate> = HashMap::new();
    for certificate in certificates {
        for name in &certificate.names {
            if let Some(owner) = owners.insert(name, certificate) {
                let what = format!("{name} is in {}, too", owner.file.display());
                problems.push(TlsProblem::new(&certificate.file, what));
            }
        }
    }
}
