//! What changes while the server runs: certificates, their keys, the certificates that sign those of clients, and access.
//!
//! A reload is asked for by SIGHUP, by the admin server, or by a file that has changed. Everything is read and checked
//! as a whole. Either all of it counts from then on, or nothing changes and the log says why. Connections keep the
//! certificate that they began with. New rules for access count for the next request, and for what lasts.
//!
//! # Manner
//! [`Reloads::look`] is called every second. A file that has changed is taken up when it has been the same for two
//! looks. So a certificate whose key is still being written is no mistake.

use crate::access::{self, AccessProblem};
use crate::metrics::NodeMetrics;
use crate::settings::Settings;
use crate::tls::{self, FILES_MAX, Tls, TlsProblem};
use ::access::Access;
use env::{FileStamp, list_operator_files};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Somebody asks for a reload and waits for what comes of it.
pub type Ask = oneshot::Sender<Result<(), String>>;

/// Where the admin server asks for a reload.
pub type Asker = mpsc::Sender<Ask>;

/// What changes together.
#[derive(Debug, Clone)]
pub struct InForce {
    /// What connections with TLS are made with.
    pub tls: Option<Tls>,
    /// What clients may do.
    pub access: Arc<Access>,
}

/// What is in force, and what its files were then.
#[derive(Debug)]
pub struct Reloads {
    settings: Settings,
    metrics: Arc<NodeMetrics>,
    in_force: InForce,
    loaded: Vec<FileStamp>,
    /// Files that the rules for access were read from, among those that were loaded.
    access_files: Vec<FileStamp>,
    /// What the last look has found, if that is not what was loaded.
    changed: Option<Vec<FileStamp>>,
}

impl Reloads {
    /// Reads the certificates that the settings name; `access` was read before.
    ///
    /// # Errors
    /// All problems there are.
    pub fn begin(
        settings: &Settings,
        metrics: &Arc<NodeMetrics>,
        (access, access_files): (Arc<Access>, Vec<FileStamp>),
    ) -> Result<Self, Vec<TlsProblem>> {
        let now_s = now_s(metrics);
        let loaded = stamps(settings);
        let tls = tls::load(settings, None, now_s)?;
        let reloads = Self {
            settings: settings.clone(),
            metrics: Arc::clone(metrics),
            in_force: InForce { tls, access },
            loaded: [loaded, access_files.clone()].concat(),
            access_files,
            changed: None,
        };
        reloads.show(now_s);
        Ok(reloads)
    }

    /// What is in force.
    #[must_use]
    pub fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// Whether files have changed since they were read, and are complete as far as one can see.
    pub fn look(&mut self) -> bool {
        let mut found = stamps(&self.settings);
        found.extend(self.access_files.iter().map(|file| FileStamp::of(&file.path)));
        if found == self.loaded {
            self.changed = None;
            return false;
        }
        let is_at_rest = self.changed.as_ref() == Some(&found);
        self.changed = Some(found);
        is_at_rest
    }

    /// Reads everything again; the new value if all of it is right. It is not read again by itself until it changes.
    ///
    /// # Errors
    /// What is wrong, in words. The old value stays in force.
    pub fn reload(&mut self) -> Result<InForce, String> {
        let now_s = now_s(&self.metrics);
        self.loaded = stamps(&self.settings);
        self.changed = None;
        let tls = tls::load(&self.settings, self.in_force.tls.as_ref(), now_s);
        let access = access::load(&self.settings, Some(&self.in_force.access));
        self.loaded.extend(access.files.iter().cloned());
        self.access_files = access.files;
        match (tls, access.access) {
            (Ok(tls), Ok(access)) => {
                self.in_force = InForce { tls, access: Arc::new(access) };
                self.metrics.reloads.add(1);
                self.show(now_s);
                Ok(self.in_force.clone())
            }
            (tls, access) => {
                let tls = tls.err().into_iter().flatten();
                let access = access.err().into_iter().flatten();
                let problems: Vec<String> = tls
                    .map(|problem: TlsProblem| problem.to_string())
                    .chain(access.map(|problem: AccessProblem| problem.to_string()))
                    .collect();
                self.metrics.reloads_failed.add(1);
                for problem in &problems {
                    tracing::error!(problem, "a reload failed: what was in force stays");
                }
                Err(problems.join("; "))
            }
        }
    }

    fn show(&self, now_s: i64) {
        let certificates = self.in_force.tls.as_ref().map(|tls| tls.certificates.iter());
        let certificates = certificates.into_iter().flatten();
        let expiries = certificates.inspect(|one| one.log(now_s)).map(|one| one.expires_s);
        let first_s = expiries.min().and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
        self.metrics.certificate_expires_s.set(first_s);
    }
}

fn now_s(metrics: &NodeMetrics) -> i64 {
    i64::try_from(metrics.clock().now_wall().get() / 1000).unwrap_or(i64::MAX)
}

/// All files that a reload reads.
fn stamps(settings: &Settings) -> Vec<FileStamp> {
    let named = [&settings.tls_cert, &settings.tls_key, &settings.tls_client_ca];
    let mut all: Vec<FileStamp> =
        named.into_iter().flatten().map(|path| FileStamp::of(path)).collect();
    let listed = settings.tls_dir.as_ref().map(|dir| list_operator_files(dir, FILES_MAX));
    all.extend(listed.and_then(Result::ok).unwrap_or_default());
    all
}
