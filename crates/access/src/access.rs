//! The rules in force, and who is who under them.
//!
//! # Driving it
//! [`Access::authenticate`] finds who asks, then [`crate::Authorized`] is made by [`Access::decide`]. [`Access`] is a value
//! that never changes; new rules are a new value, with a new generation.
//!
//! # Invariants
//! - What was verified under one generation is verified again under the next.
//! - A credential that is shown and not valid is refused. It never falls back to what anonymous clients may do.

use crate::{
    denied::{Denied, Invalid},
    grant::Grant,
    jwt::{Issuer, Presented, Verdict},
    limits::{REMEMBERED_BYTES_MAX, TOKEN_BYTES_MAX},
    meter::{Limits, Meter, MeterTable},
    principal::{Client, Credential, KeptCredential, Principal, PrincipalKind},
    signed_url::SignedUrl,
    token::{SecretHash, StaticToken, sha256},
    verified::Verified,
};
use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};
use model::Timestamp;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

/// What an access file says.
#[derive(Debug, Default)]
pub struct Rules {
    /// Clients that show nothing.
    pub anonymous: AnonymousRule,
    pub(crate) tokens: Vec<TokenRule>,
    pub(crate) issuers: Vec<IssuerRule>,
    pub(crate) certificates: Vec<CertificateRule>,
    pub(crate) signing_keys: Vec<SigningKeyRule>,
}

impl std::fmt::Display for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { anonymous, tokens, issuers, certificates, signing_keys } = self;
        write!(
            f,
            "{} tokens, {} issuers, {} certificates, {} signing keys; {} grants for anonymous clients",
            tokens.len(),
            issuers.len(),
            certificates.len(),
            signing_keys.len(),
            anonymous.grants.len()
        )
    }
}

/// What clients that show nothing may do.
#[derive(Debug, Clone, Default)]
pub struct AnonymousRule {
    /// What they may do.
    pub grants: Vec<Grant>,
    /// What each address may use.
    pub limits: Limits,
}

#[derive(Debug)]
pub(crate) struct TokenRule {
    pub(crate) id: Box<str>,
    pub(crate) hash: SecretHash,
    pub(crate) grants: Vec<Grant>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
pub(crate) struct IssuerRule {
    pub(crate) issuer: Issuer,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
pub(crate) struct CertificateRule {
    pub(crate) san: Box<str>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) limits: Limits,
}

pub(crate) struct SigningKeyRule {
    pub(crate) id: Box<str>,
    pub(crate) secret: Vec<u8>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) lifetime_s_max: u64,
}

impl std::fmt::Debug for SigningKeyRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeyRule").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The rules in force.
#[derive(Debug)]
pub struct Access {
    generation: u64,
    /// Everybody may do everything, and nobody is asked who it is.
    is_open: bool,
    anonymous: Principal,
    anonymous_meters: Option<Arc<MeterTable>>,
    known: Known,
    /// Spreads clients over meters in a way that they do not know.
    seed: u64,
}

/// The clients that can be known.
#[derive(Debug, Default)]
struct Known {
    tokens: HashMap<Box<str>, Token>,
    issuers: Vec<Issuer>,
    /// In the order of `issuers`.
    issuer_meters: Vec<Option<Arc<MeterTable>>>,
    certificates: HashMap<Box<str>, Certificate>,
    signing_keys: HashMap<Box<str>, SigningKey>,
}

#[derive(Debug)]
struct Token {
    name: Arc<str>,
    hash: SecretHash,
    grants: Arc<[Grant]>,
    expires: Option<Timestamp>,
    meters: Option<Arc<MeterTable>>,
}

#[derive(Debug)]
struct Certificate {
    name: Arc<str>,
    grants: Arc<[Grant]>,
    meters: Option<Arc<MeterTable>>,
}

#[derive(Debug)]
struct SigningKey {
    name: Arc<str>,
    key: hmac::Key,
    grants: Arc<[Grant]>,
    lifetime_s_max: u64,
}

/// The client that asks.
#[derive(Debug, Clone)]
pub enum Who {
    /// A client that has shown nothing.
    Anonymous,
    /// A client that is known.
    Known(Arc<Principal>),
}

/// Why a client is not known now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// What it has shown is not valid.
    Denied(Denied),
    /// This turn has verified enough signatures: ask again in the next.
    Later,
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::Denied(Denied::Invalid(invalid))
    }
}

/// A principal that has shown nothing and may do nothing.
pub(crate) fn anybody(generation: u64) -> Principal {
    Principal {
        name: "anonymous".into(),
        kind: PrincipalKind::Anonymous,
        grants: Arc::default(),
        bounds: None,
        valid_until: None,
        meter: None,
        generation,
        credential: KeptCredential::Connection,
    }
}

impl Access {
    /// Everybody may do everything. `previous` are the rules until now.
    #[must_use]
    pub fn open(previous: Option<&Self>) -> Self {
        let rules = AnonymousRule { grants: vec![Grant::ALL], ..AnonymousRule::default() };
        let rules = Rules { anonymous: rules, ..Rules::default() };
        Self { is_open: true, ..Self::new(rules, 0, previous) }
    }

    /// The rules of an access file. Meters continue from `previous`, the rules until now. `seed` spreads clients over
    /// meters.
    #[must_use]
    pub fn new(rules: Rules, seed: u64, previous: Option<&Self>) -> Self {
        let generation = previous.map_or(1, |previous| previous.generation + 1);
        let Rules { anonymous, tokens, issuers, certificates, signing_keys } = rules;
        let meters = |limits, before: Option<&Arc<MeterTable>>| {
            kept_meters(limits, before, MeterTable::single)
        };
        let shared = |limits, before: Option<&Arc<MeterTable>>| {
            kept_meters(limits, before, MeterTable::shared)
        };
        let old = previous.map(|previous| &previous.known);
        let anonymous_before = previous.and_then(|previous| previous.anonymous_meters.as_ref());
        let known = Known {
            tokens: tokens
                .into_iter()
                .map(|rule| {
                    let before = old.and_then(|old| old.tokens.get(&rule.id)?.meters.as_ref());
                    let token = Token {
                        name: (*rule.id).into(),
                        hash: rule.hash,
                        grants: rule.grants.into(),
                        expires: rule.expires,
                        meters: meters(rule.limits, before),
                    };
                    (rule.id, token)
                })
                .collect(),
            issuer_meters: issuers
                .iter()
                .map(|rule| {
                    shared(rule.limits, old.and_then(|old| old.issuer_meters(&rule.issuer.name)))
                })
                .collect(),
            issuers: issuers.into_iter().map(|rule| rule.issuer).collect(),
            certificates: certificates
                .into_iter()
                .map(|rule| {
                    let before =
                        old.and_then(|old| old.certificates.get(&rule.san)?.meters.as_ref());
                    let (name, grants) = ((*rule.san).into(), rule.grants.into());
                    (rule.san, Certificate { name, grants, meters: meters(rule.limits, before) })
                })
                .collect(),
            signing_keys: signing_keys
                .into_iter()
                .map(|rule| (rule.id.clone(), SigningKey::new(rule)))
                .collect(),
        };
        Self {
            generation,
            is_open: false,
            anonymous: Principal { grants: anonymous.grants.into(), ..anybody(generation) },
            anonymous_meters: shared(anonymous.limits, anonymous_before),
            known,
            seed: previous.map_or(seed, |previous| previous.seed),
        }
    }

    /// Whether everybody may do everything, so that nobody need be asked who it is.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Counts the rules that were in force before these.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a client that shows nothing may read this path, so that a shared cache may keep it for everybody.
    #[must_use]
    pub fn may_anyone_read(&self, path: &str) -> bool {
        self.is_open || self.anonymous.may(crate::grant::Operation::Read, path)
    }

    /// What clients that show nothing may do, in the words of the access file.
    pub fn anonymous_grants(&self) -> impl Iterator<Item = String> {
        self.anonymous.grants.iter().map(ToString::to_string)
    }

    /// What a static token may do at `now`, for people.
    ///
    /// # Errors
    /// Why it may do nothing.
    pub fn explain(&self, token: &str, now: Timestamp) -> Result<String, String> {
        let credential = Credential::Bearer(token);
        let client =
            Client { address: IpAddr::from([127, 0, 0, 1]), is_forwarded: false, names: &[] };
        let who = self.authenticate(&mut Verified::default(), &mut None, &credential, client, now);
        match who {
            Ok(who) => {
                let principal = self.principal(&who);
                let grants: Vec<String> =
                    principal.grants.iter().map(ToString::to_string).collect();
                Ok(format!("{}\t{}", principal.name, grants.join("; ")))
            }
            Err(Refused::Denied(Denied::Invalid(why))) => Err(why.sentence().to_owned()),
            Err(Refused::Denied(Denied::Expired { .. })) => {
                Err("The token has expired.".to_owned())
            }
            Err(other) => Err(format!("{other:?}")),
        }
    }

    pub(crate) fn principal<'a>(&'a self, who: &'a Who) -> &'a Principal {
        match who {
            Who::Anonymous => &self.anonymous,
            Who::Known(principal) => principal,
        }
    }

    /// The meter of `who`, if it is limited.
    pub(crate) fn meter(&self, who: &Who, address: IpAddr) -> Option<Meter> {
        match who {
            Who::Known(principal) => principal.meter.clone(),
            Who::Anonymous => {
                let table = self.anonymous_meters.as_ref()?;
                Some(table.meter(self.hash(&network_of(address))))
            }
        }
    }

    fn hash(&self, of: &impl Hash) -> u64 {
        let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(self.seed);
        of.hash(&mut hasher);
        hasher.digest()
    }

    /// Finds who asks. `remembered` is what the connection was known by last, and is brought up to date.
    ///
    /// # Errors
    /// [`Refused`] if the credential is not valid at `now`, or cannot be verified in this turn.
    pub fn authenticate(
        &self,
        verified: &mut Verified,
        remembered: &mut Option<Arc<Principal>>,
        credential: &Credential<'_>,
        client: Client<'_>,
        now: Timestamp,
    ) -> Result<Who, Refused> {
        match credential {
            Credential::None if client.names.is_empty() => Ok(Who::Anonymous),
            Credential::None => Ok(self.by_certificate(remembered, client.names)),
            Credential::Unknown => Err(Invalid::Scheme.into()),
            Credential::Signed(url) => Ok(Who::Known(Arc::new(self.by_url(url, now)?))),
            Credential::Bearer(text) => {
                if let Some(known) = remembered
                    && known.generation == self.generation
                    && known.is_shown_by(text)
                {
                    return not_over(Arc::clone(known), now);
                }
                let known = self.by_token(verified, text, now)?;
                if text.len() <= REMEMBERED_BYTES_MAX {
                    *remembered = Some(Arc::clone(&known));
                }
                not_over(known, now)
            }
        }
    }

    fn by_token(
        &self,
        verified: &mut Verified,
        text: &str,
        now: Timestamp,
    ) -> Result<Arc<Principal>, Refused> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Invalid::TooLong.into());
        }
        if StaticToken::is_claimed_by(text) {
            return self.by_static_token(text).map(Arc::new).map_err(Refused::from);
        }
        if self.known.issuers.is_empty() {
            return Err(Invalid::NoToken.into());
        }
        verified.use_rules(self.generation);
        let hash = sha256(text.as_bytes());
        if let Some(known) = verified.get(&hash) {
            return Ok(known);
        }
        let presented = Presented::find(text, &self.known.issuers)?;
        if !verified.take_verification() {
            return Err(Refused::Later);
        }
        let verdict = presented.verify(now)?;
        let known = Arc::new(self.by_verdict(text, presented.issuer, verdict));
        verified.put(hash, Arc::clone(&known));
        Ok(known)
    }

    fn by_static_token(&self, text: &str) -> Result<Principal, Invalid> {
        let shown = StaticToken::parse(text).ok_or(Invalid::Malformed)?;
        let token = self.known.tokens.get(shown.id).ok_or(Invalid::Unknown)?;
        if !token.hash.is_of(&shown.secret) {
            return Err(Invalid::Unknown);
        }
        Ok(Principal {
            name: Arc::clone(&token.name),
            kind: PrincipalKind::Token,
            grants: Arc::clone(&token.grants),
            valid_until: token.expires,
            meter: token.meters.as_ref().map(|meters| meters.meter(0)),
            credential: KeptCredential::Bearer(text.into()),
            ..anybody(self.generation)
        })
    }

    fn by_verdict(&self, text: &str, issuer: &Issuer, verdict: Verdict) -> Principal {
        let Verdict { subject, grants, bounds, valid_until } = verdict;
        let place = self.known.issuers.iter().position(|other| other.name == issuer.name);
        let meters = place.and_then(|place| self.known.issuer_meters[place].as_ref());
        Principal {
            name: if subject.is_empty() { (*issuer.name).into() } else { (*subject).into() },
            kind: PrincipalKind::Jwt,
            grants: grants.into(),
            bounds: bounds.map(Into::into),
            valid_until: Some(valid_until),
            meter: meters.map(|meters| meters.meter(self.hash(&(&issuer.name, &subject)))),
            credential: KeptCredential::Bearer(text.into()),
            ..anybody(self.generation)
        }
    }

    /// A certificate comes with a connection, unasked. One without a rule shows nothing that counts.
    fn by_certificate(&self, remembered: &mut Option<Arc<Principal>>, names: &[String]) -> Who {
        if let Some(known) = remembered
            && known.generation == self.generation
            && known.kind == PrincipalKind::Certificate
        {
            return Who::Known(Arc::clone(known));
        }
        let found = names.iter().find_map(|name| self.known.certificates.get(name.as_str()));
        let Some(found) = found else { return Who::Anonymous };
        let known = Arc::new(Principal {
            name: Arc::clone(&found.name),
            kind: PrincipalKind::Certificate,
            grants: Arc::clone(&found.grants),
            meter: found.meters.as_ref().map(|meters| meters.meter(0)),
            ..anybody(self.generation)
        });
        *remembered = Some(Arc::clone(&known));
        Who::Known(known)
    }

    fn by_url(&self, url: &SignedUrl<'_>, now: Timestamp) -> Result<Principal, Denied> {
        let malformed = Denied::Invalid(Invalid::Url);
        let key = self.known.signing_keys.get(url.key).ok_or(malformed.clone())?;
        let (at, scope) = url.expires_at().zip(url.scope()).ok_or(malformed.clone())?;
        if !url.is_signed_by(&key.key) {
            return Err(Denied::Invalid(Invalid::Signature));
        }
        if at <= now {
            return Err(Denied::Expired { at });
        }
        if at > now.plus_ms(key.lifetime_s_max.saturating_mul(1000)) {
            return Err(Denied::Invalid(Invalid::UrlLifetime));
        }
        Ok(Principal {
            name: Arc::clone(&key.name),
            kind: PrincipalKind::SignedUrl,
            grants: Arc::clone(&key.grants),
            bounds: Some(Arc::new([scope])),
            valid_until: Some(at),
            credential: KeptCredential::of_url(url),
            ..anybody(self.generation)
        })
    }
}

impl Principal {
    /// Whether `text` is the token that made it known, in a time that does not depend on where they differ.
    fn is_shown_by(&self, text: &str) -> bool {
        match &self.credential {
            KeptCredential::Bearer(kept) => {
                verify_slices_are_equal(kept.as_bytes(), text.as_bytes()).is_ok()
            }
            KeptCredential::Connection | KeptCredential::Signed(_) => false,
        }
    }
}

impl Known {
    fn issuer_meters(&self, name: &str) -> Option<&Arc<MeterTable>> {
        let place = self.issuers.iter().position(|issuer| &*issuer.name == name)?;
        self.issuer_meters[place].as_ref()
    }
}

impl SigningKey {
    fn new(rule: SigningKeyRule) -> Self {
        Self {
            name: (*rule.id).into(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &rule.secret),
            grants: rule.grants.into(),
            lifetime_s_max: rule.lifetime_s_max,
        }
    }
}

/// The meters of before if they have the same limits, so that a reload gives nobody a new share.
fn kept_meters(
    limits: Limits,
    before: Option<&Arc<MeterTable>>,
    make: fn(Limits) -> Arc<MeterTable>,
) -> Option<Arc<MeterTable>> {
    if limits.is_none() {
        return None;
    }
    let kept = before.filter(|before| *before.limits() == limits);
    Some(kept.map_or_else(|| make(limits), Arc::clone))
}

/// What one client has to itself: an address, or with IPv6 a network of 64 bits.
fn network_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() & !u128::from(u64::MAX) | 1 << 32,
    }
}

fn not_over(known: Arc<Principal>, now: Timestamp) -> Result<Who, Refused> {
    match known.valid_until {
        Some(until) if until <= now => {
            let leeway_ms =
                if known.kind == PrincipalKind::Jwt { crate::limits::LEEWAY_MS } else { 0 };
            let at = Timestamp::new(until.get() - leeway_ms);
            Err(Denied::Expired { at }.into())
        }
        _ => Ok(Who::Known(known)),
    }
}
