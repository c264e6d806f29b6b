//! JSON Web Tokens of issuers that the access file names.
//!
//! # What is checked, in this order
//! 1. length, three parts, `typ` (`JWT` or `at+jwt`), no `crit`;
//! 2. `iss` names an issuer, `alg` is one of its algorithms, `kid` picks a key, and the key fits the algorithm;
//! 3. the signature;
//! 4. `aud` holds the audience, `exp` and `nbf` against the `now` that is given.
//!
//! Source: RFC 7519, RFC 8725 (best practices), RFC 9068 (access tokens).
//!
//! # Why the library's own checks are off
//! It reads the system's clock. Here time is an argument, so that the simulator decides when a token ends.

use crate::{
    denied::{Denied, Invalid},
    grant::{Grant, GrantTemplate},
    limits::{GRANTS_MAX, LEEWAY_MS, TOKEN_BYTES_MAX},
};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Header, Validation, dangerous::insecure_decode_claims,
    decode, decode_header,
};
use model::Timestamp;
use serde_json::{Map, Value};

type Claims = Map<String, Value>;

/// An issuer, with its keys.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) name: Box<str>,
    pub(crate) audience: Box<str>,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) keys: Vec<Key>,
    /// The claim that holds grants; they are cut down to `grants`.
    pub(crate) grants_claim: Option<Box<str>>,
    pub(crate) grants: Vec<GrantTemplate>,
}

/// A key of an issuer.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) id: Option<Box<str>>,
    /// The algorithms that it is for.
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) key: DecodingKey,
}

/// What a valid token says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) subject: Box<str>,
    pub(crate) grants: Vec<Grant>,
    /// What it may do at most, where the token itself says what it may do.
    pub(crate) bounds: Option<Vec<Grant>>,
    pub(crate) valid_until: Timestamp,
}

/// A token before its signature is verified.
pub(crate) struct Presented<'a> {
    text: &'a str,
    header: Header,
    pub(crate) issuer: &'a Issuer,
    key: &'a Key,
}

impl<'a> Presented<'a> {
    /// Looks at what costs little, and finds the key.
    ///
    /// # Errors
    /// [`Invalid`] if it cannot be a token of one of `issuers`.
    pub(crate) fn find(text: &'a str, issuers: &'a [Issuer]) -> Result<Self, Invalid> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Invalid::TooLong);
        }
        if text.bytes().filter(|byte| *byte == b'.').count() != 2 {
            return Err(Invalid::NoToken);
        }
        let header = decode_header(text).map_err(|_| Invalid::Head)?;
        if !is_type(header.typ.as_deref()) || header.crit.is_some() {
            return Err(Invalid::Head);
        }
        let claims: Claims = insecure_decode_claims(text).map_err(|_| Invalid::Claims)?;
        let name = claims.get("iss").and_then(Value::as_str).ok_or(Invalid::Issuer)?;
        let issuer = issuers.iter().find(|issuer| &*issuer.name == name).ok_or(Invalid::Issuer)?;
        if !issuer.algorithms.contains(&header.alg) {
            return Err(Invalid::Algorithm);
        }
        let key = issuer.key_for(&header)?;
        Ok(Self { text, header, issuer, key })
    }

    /// Verifies the signature, then the claims.
    ///
    /// # Errors
    /// [`Denied`] says why the token is not valid at `now`.
    pub(crate) fn verify(&self, now: Timestamp) -> Result<Verdict, Denied> {
        let mut validation = Validation::new(self.header.alg);
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) =
            (false, false, false);
        validation.required_spec_claims.clear();
        let decoded = decode::<Claims>(self.text, &self.key.key, &validation);
        let claims = decoded.map_err(|_| Denied::Invalid(Invalid::Signature))?.claims;
        self.issuer.judge(&claims, now)
    }
}

impl Issuer {
    fn key_for(&self, header: &Header) -> Result<&Key, Invalid> {
        let fits = |key: &&Key| key.algorithms.contains(&header.alg);
        match header.kid.as_deref() {
            Some(kid) => {
                let named = self.keys.iter().find(|key| key.id.as_deref() == Some(kid));
                named
                    .ok_or(Invalid::Key)
                    .and_then(|key| if fits(&key) { Ok(key) } else { Err(Invalid::Algorithm) })
            }
            None => {
                let mut fitting = self.keys.iter().filter(fits);
                match (fitting.next(), fitting.next()) {
                    (Some(key), None) => Ok(key),
                    // Without a name nobody knows which one is meant.
                    _ => Err(Invalid::Key),
                }
            }
        }
    }

    fn judge(&self, claims: &Claims, now: Timestamp) -> Result<Verdict, Denied> {
        let malformed = Denied::Invalid(Invalid::Claims);
        if !has_audience(claims.get("aud"), &self.audience) {
            return Err(Denied::Invalid(Invalid::Audience));
        }
        let at = claims.get("exp").and_then(numeric_date).ok_or(malformed.clone())?;
        let valid_until = at.plus_ms(LEEWAY_MS);
        if valid_until <= now {
            return Err(Denied::Expired { at });
        }
        if let Some(from) = claims.get("nbf") {
            let from = numeric_date(from).ok_or(malformed.clone())?;
            if from > now.plus_ms(LEEWAY_MS) {
                return Err(Denied::NotYet { from });
            }
        }
        let subject = match claims.get("sub") {
            None => "",
            Some(subject) => subject.as_str().ok_or(malformed.clone())?,
        };
        let value_of = |name: &str| claims.get(name).and_then(Value::as_str);
        let bound: Vec<Grant> =
            self.grants.iter().filter_map(|grant| grant.bind(&value_of)).collect();
        let (grants, bounds) = match &self.grants_claim {
            None => (bound, None),
            Some(claim) => {
                let own = own_grants(claims.get(&**claim)).ok_or(malformed)?;
                let bounds = (!self.grants.is_empty()).then_some(bound);
                (own, bounds)
            }
        };
        Ok(Verdict { subject: subject.into(), grants, bounds, valid_until })
    }
}

/// Whether `typ` is that of an access token. Many issuers leave it out.
fn is_type(typ: Option<&str>) -> bool {
    let known = ["JWT", "at+jwt", "application/at+jwt"];
    typ.is_none_or(|typ| known.iter().any(|known| typ.eq_ignore_ascii_case(known)))
}

fn has_audience(claim: Option<&Value>, audience: &str) -> bool {
    match claim {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(audience)),
        _ => false,
    }
}

/// A time in seconds, whole or not. One that is further away than any clock shows means forever.
fn numeric_date(value: &Value) -> Option<Timestamp> {
    if let Some(seconds) = value.as_u64() {
        return Some(Timestamp::new(seconds.saturating_mul(1000)));
    }
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    Some(Timestamp::new((seconds * 1000.0) as u64))
}

/// The grants that a token brings; `None` if they are none. A token without any may do nothing.
fn own_grants(claim: Option<&Value>) -> Option<Vec<Grant>> {
    let Some(claim) = claim else { return Some(Vec::new()) };
    let texts = claim.as_array().filter(|texts| texts.len() <= GRANTS_MAX)?;
    texts.iter().map(|text| Grant::parse(text.as_str()?).ok()).collect()
}

/// The algorithms that a key of this family may be used with.
pub(crate) fn is_symmetric(algorithm: Algorithm) -> bool {
    algorithm.family() == AlgorithmFamily::Hmac
}
