//! What a request shows of its sender, and the trace that it belongs to.
//!
//! # Why apart
//! It is read before a request is decided, and only where somebody asks: a server that is open to everybody does not
//! look for credentials.

use super::{Way, fields::percent_decode};
use crate::{
    face::durable::problem::detail::{cut, escape_into},
    field::{self, AUTHORIZATION, PRODUCER_ID, TRACEPARENT},
    head::{Method, RequestHead},
    trace::TraceId,
};
use std::borrow::Cow;
use std::net::IpAddr;

/// What a head shows besides what it asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown<'b> {
    /// How the sender proves itself.
    pub proof: Proof<'b>,
    /// It is a producer, whose library takes a 403 for a newer epoch.
    pub is_producer: bool,
    /// The trace of which it is a part.
    pub trace: Option<TraceId>,
    /// Whose address it is, if trusted proxies say another one than the connection has.
    pub client: Option<IpAddr>,
}

/// How a sender proves itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Proof<'b> {
    /// Not at all.
    #[default]
    None,
    /// In a way that is not understood.
    Unknown,
    /// With a token. RFC 6750 §2.1.
    Bearer(&'b str),
    /// With a signature in the query. It is long and rare.
    Signed(Box<SignedQuery<'b>>),
}

/// The parameters of a signed URL, decoded. What is missing is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignedQuery<'b> {
    /// `prefix`: what was signed instead of the path.
    pub prefix: Option<Cow<'b, str>>,
    /// `key`: the id of the key.
    pub key: Cow<'b, str>,
    /// `expires`: when it ends, in seconds of Unix time.
    pub expires: Cow<'b, str>,
    /// `signature`
    pub signature: Cow<'b, str>,
}

const BEARER: &[u8] = b"bearer ";
const SIGNATURE: &str = "signature";

impl<'b> Shown<'b> {
    /// Looks for all of it in a head.
    #[must_use]
    pub fn find(head: &RequestHead<'_, 'b>, way: &Way<'_>) -> Self {
        let client = way.client(head);
        let client = (client != way.address).then_some(client);
        let mut shown = Self { client, ..Self::default() };
        let mut authorization_count = 0;
        for item in head.fields {
            let is = |ours: &'static str| field::is(item.name, ours);
            match item.name.len() {
                13 if is(AUTHORIZATION) => {
                    authorization_count += 1;
                    shown.proof = bearer(item.value);
                }
                11 if is(PRODUCER_ID) => shown.is_producer = true,
                11 if is(TRACEPARENT) => shown.trace = TraceId::parse(item.value),
                _ => {}
            }
        }
        match (authorization_count, head.query) {
            (0, Some(query)) => shown.proof = signed(query),
            (0 | 1, _) => {}
            // Two proofs: nobody knows which one a proxy has looked at.
            _ => shown.proof = Proof::Unknown,
        }
        shown
    }
}

fn bearer(value: &[u8]) -> Proof<'_> {
    let token = value.split_at_checked(BEARER.len()).and_then(|(scheme, token)| {
        let is_bearer = scheme.eq_ignore_ascii_case(BEARER);
        std::str::from_utf8(token.trim_ascii()).ok().filter(|_| is_bearer)
    });
    token.map_or(Proof::Unknown, Proof::Bearer)
}

fn signed(query: &str) -> Proof<'_> {
    if !query.contains(SIGNATURE) {
        return Proof::None;
    }
    let mut found = SignedQuery::default();
    let mut is_signed = false;
    let mut seen = [false; 4];
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match key {
            "prefix" => 0,
            "key" => 1,
            "expires" => 2,
            SIGNATURE => 3,
            _ => continue,
        };
        let Some(value) = percent_decode(value) else { return Proof::Unknown };
        if std::mem::replace(&mut seen[place], true) {
            return Proof::Unknown;
        }
        match place {
            0 => found.prefix = Some(value),
            1 => found.key = value,
            2 => found.expires = value,
            _ => (found.signature, is_signed) = (value, true),
        }
    }
    if is_signed { Proof::Signed(Box::new(found)) } else { Proof::None }
}

/// Bytes of a method and of a target that a log shows.
const METHOD_SHOWN_BYTES_MAX: usize = 32;
const TARGET_SHOWN_BYTES_MAX: usize = 2 << 10;

/// Bytes that a log shows of both.
pub(crate) const ASKED_BYTES_MAX: usize = METHOD_SHOWN_BYTES_MAX + TARGET_SHOWN_BYTES_MAX;

/// What a head says for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Method and target, as members of an object.
    members: Box<str>,
    /// Whether it takes something away: a stream, its beginning, or what it keeps.
    pub takes_away: bool,
}

impl Asked {
    /// Looks at a head.
    #[must_use]
    pub fn of(head: &RequestHead<'_, '_>) -> Self {
        let target = loggable_target(head);
        let mut members = String::with_capacity(32 + head.method_text.len() + target.len());
        members.push_str("\"method\":\"");
        escape_into(&mut members, cut(head.method_text, METHOD_SHOWN_BYTES_MAX));
        members.push_str("\",\"target\":\"");
        escape_into(&mut members, cut(&target, TARGET_SHOWN_BYTES_MAX));
        members.push('"');
        let takes_away = matches!(head.method, Method::Delete | Method::Patch);
        Self { members: members.into(), takes_away }
    }

    /// Method and target, as members of an object.
    pub(crate) fn members(&self) -> &str {
        &self.members
    }
}

/// A target as logs may show it: without the value of a signature.
#[must_use]
fn loggable_target(head: &RequestHead<'_, '_>) -> String {
    let mut target = head.path.to_owned();
    for (place, pair) in head.query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        target.push(if place == 0 { '?' } else { '&' });
        // A key that is escaped means nothing here, and is not shown either.
        let key = pair.split_once('=').map_or(pair, |(key, _)| key);
        match percent_decode(key) {
            Some(key) if key != SIGNATURE => target.push_str(pair),
            _ => target.push_str("signature=..."),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<'b>(query: Option<&'b str>, fields: &[(&'b str, &'b str)]) -> Shown<'b> {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| httparse::Header { name, value: value.as_bytes() })
            .collect();
        let (method, method_text, path) = (Method::Get, "GET", "/v1/stream/a");
        let head =
            RequestHead { method, method_text, path, query, authority: None, fields: &fields };
        Shown::find(&head, &Way::LOCAL)
    }

    #[test]
    fn a_token_is_found_whatever_the_case() {
        for (name, value) in [("Authorization", "Bearer abc"), ("AUTHORIZATION", "bEARER  abc ")] {
            assert_eq!(shown(None, &[(name, value)]).proof, Proof::Bearer("abc"));
        }
        for value in ["", "abc", "Basic abc", "Bearer", "Bearerabc"] {
            assert_eq!(shown(None, &[("authorization", value)]).proof, Proof::Unknown, "{value}");
        }
        let twice = [("authorization", "Bearer a"), ("authorization", "Bearer a")];
        assert_eq!(shown(None, &twice).proof, Proof::Unknown);
    }

    #[test]
    fn a_signed_query_is_taken_apart() {
        let query = "offset=-1&expires=17&key=web&signature=a%2Db&prefix=chat%2F";
        let Proof::Signed(found) = shown(Some(query), &[]).proof else { panic!() };
        let expected = ("17", "web", "a-b", Some("chat/"));
        assert_eq!(
            (&*found.expires, &*found.key, &*found.signature, found.prefix.as_deref()),
            expected
        );
        assert_eq!(shown(Some("expires=17&key=web"), &[]).proof, Proof::None);
        assert_eq!(shown(Some("mysignature=1"), &[]).proof, Proof::None);
        for query in ["signature=a&signature=b", "signature=%zz", "key=a&key=b&signature=c"] {
            assert_eq!(shown(Some(query), &[]).proof, Proof::Unknown, "{query}");
        }
        let both = shown(Some("signature=a"), &[("authorization", "Bearer t")]);
        assert_eq!(both.proof, Proof::Bearer("t"), "a header wins");
    }

    #[test]
    fn no_signature_is_shown() {
        let target = |query| {
            let (method, method_text, path, fields) = (Method::Get, "GET", "/v1/stream/a", &[]);
            loggable_target(&RequestHead {
                method,
                method_text,
                path,
                query,
                authority: None,
                fields,
            })
        };
        assert_eq!(target(None), "/v1/stream/a");
        assert_eq!(
            target(Some("offset=-1&signature=abc&key=web")),
            "/v1/stream/a?offset=-1&signature=...&key=web"
        );
        assert_eq!(
            target(Some("sig%6eature=abc&signature")),
            "/v1/stream/a?signature=...&signature=..."
        );
    }
}
