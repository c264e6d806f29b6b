//! Clients: what one shows of itself, and what that is worth.

use crate::{
    grant::{Grant, Operation},
    meter::Meter,
    signed_url::SignedUrl,
};
use model::Timestamp;
use std::net::IpAddr;
use std::sync::Arc;

/// What a request shows of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Nothing.
    None,
    /// Something that is none of these.
    Unknown,
    /// A token.
    Bearer(&'a str),
    /// A signature in its URL.
    Signed(SignedUrl<'a>),
}

/// What a connection shows of the client at its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// Its address. That of a trusted proxy's client, if it comes through one.
    pub address: IpAddr,
    /// Whether a proxy says so: other requests of its connection may have other addresses.
    pub is_forwarded: bool,
    /// The names in its verified certificate, in the order in which they are looked up; none without one.
    pub names: &'a [String],
}

/// A client that is known, with what it may do. Its debug form shows no token.
#[derive(Debug, Clone)]
pub struct Principal {
    /// For logs: the id of a token, the subject of a JWT, or what it is otherwise.
    pub(crate) name: Arc<str>,
    pub(crate) kind: PrincipalKind,
    pub(crate) grants: Arc<[Grant]>,
    /// It may do nothing outside of these, whatever its grants say.
    pub(crate) bounds: Option<Arc<[Grant]>>,
    pub(crate) valid_until: Option<Timestamp>,
    pub(crate) meter: Option<Meter>,
    /// Of the rules that it was judged by.
    pub(crate) generation: u64,
    pub(crate) credential: KeptCredential,
}

/// What makes a client known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// Nothing.
    Anonymous,
    /// A token of the access file.
    Token,
    /// A token of an issuer.
    Jwt,
    /// A certificate.
    Certificate,
    /// A signed URL.
    SignedUrl,
}

/// What a client has shown, kept so that new rules can judge it again.
#[derive(Clone)]
pub(crate) enum KeptCredential {
    /// Nothing but what its connection shows.
    Connection,
    Bearer(Arc<str>),
    Signed(Box<KeptUrl>),
}

#[derive(Clone)]
pub(crate) struct KeptUrl {
    path: Box<str>,
    prefix: Option<Box<str>>,
    key: Box<str>,
    expires: Box<str>,
    signature: Box<str>,
}

impl std::fmt::Debug for KeptCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connection => "Connection",
            Self::Bearer(_) => "Bearer",
            Self::Signed(_) => "Signed",
        })
    }
}

impl KeptCredential {
    pub(crate) fn of_url(url: &SignedUrl<'_>) -> Self {
        Self::Signed(Box::new(KeptUrl {
            path: url.path.into(),
            prefix: url.prefix.map(Into::into),
            key: url.key.into(),
            expires: url.expires.into(),
            signature: url.signature.into(),
        }))
    }

    pub(crate) fn as_credential(&self) -> Credential<'_> {
        match self {
            Self::Connection => Credential::None,
            Self::Bearer(text) => Credential::Bearer(text),
            Self::Signed(url) => Credential::Signed(SignedUrl {
                path: &url.path,
                prefix: url.prefix.as_deref(),
                key: &url.key,
                expires: &url.expires,
                signature: &url.signature,
            }),
        }
    }
}

impl PrincipalKind {
    /// For logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Token => "token",
            Self::Jwt => "jwt",
            Self::Certificate => "certificate",
            Self::SignedUrl => "signed_url",
        }
    }
}

impl Principal {
    /// For logs: the id of a token, the subject of a JWT, or what it is otherwise. Never a secret.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What makes it known.
    #[must_use]
    pub fn kind(&self) -> PrincipalKind {
        self.kind
    }

    /// When it is not known any more, if ever.
    #[must_use]
    pub fn valid_until(&self) -> Option<Timestamp> {
        self.valid_until
    }

    /// Whether it is known no more at `now`.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.valid_until.is_some_and(|until| until <= now)
    }

    /// Whether it may do `operation` with `path`.
    #[inline]
    #[must_use]
    pub fn may(&self, operation: Operation, path: &str) -> bool {
        let any = |grants: &[Grant]| grants.iter().any(|grant| grant.allows(operation, path));
        any(&self.grants) && self.bounds.as_deref().is_none_or(any)
    }
}
