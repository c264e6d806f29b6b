//! Which certificate a client gets, by the name that it asks for.

use super::certificates::Certificate;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Certificates by name. An exact name comes before a wildcard, and the first certificate answers everybody else.
#[derive(Debug)]
pub(super) struct ByName {
    first: Arc<CertifiedKey>,
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows the star: `.example.com`.
    wildcards: HashMap<String, Arc<CertifiedKey>>,
}

impl ByName {
    /// # Panics
    /// If there is no certificate.
    pub(super) fn new(certificates: &[Certificate]) -> Self {
        let first = certificates.first().expect("at least one certificate").key.clone();
        let mut all = Self { first, exact: HashMap::new(), wildcards: HashMap::new() };
        for certificate in certificates {
            for name in &certificate.names {
                let key = Arc::clone(&certificate.key);
                match name.strip_prefix('*') {
                    Some(rest) => all.wildcards.entry(rest.to_owned()).or_insert(key),
                    None => all.exact.entry(name.clone()).or_insert(key),
                };
            }
        }
        all
    }

    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let Some(name) = name.map(str::to_ascii_lowercase) else { return Arc::clone(&self.first) };
        let wildcard = || self.wildcards.get(&name[name.find('.')?..]);
        let found = self.exact.get(&name).or_else(wildcard).unwrap_or(&self.first);
        Arc::clone(found)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name()))
    }
}
