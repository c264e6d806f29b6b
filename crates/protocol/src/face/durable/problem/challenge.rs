//! Refusals of a credential, each with its challenge. RFC 6750 §3.

use super::{Code, Facts, Problem, detail::quote};
use std::fmt::Write;

/// How every challenge begins.
pub(super) const REALM: &str = "Bearer realm=\"thalweg\"";

impl Problem {
    /// No credential was shown. RFC 6750 §3.1: such a challenge says nothing more.
    #[must_use]
    pub fn token_missing(operation: &str, path: &str) -> Self {
        let detail = format!(
            "Nothing was shown that allows {operation} of {}; send `Authorization: Bearer TOKEN`.",
            quote(path.as_bytes())
        );
        Self::challenged(Code::TokenMissing, detail, REALM.to_owned())
    }

    /// A credential that is not valid. `why` is a sentence of ASCII characters without quotation marks.
    #[must_use]
    pub fn token_invalid(why: &str) -> Self {
        Self::challenged(Code::TokenInvalid, why.to_owned(), invalid_token(why))
    }

    /// A credential that has expired.
    #[must_use]
    pub fn token_expired(at: model::Timestamp) -> Self {
        let at = crate::HttpDate::new(at);
        let at = String::from_utf8_lossy(at.as_bytes());
        let why = format!("The credentials have expired at {at}; get new ones.");
        let challenge = invalid_token(&why);
        Self::challenged(Code::TokenExpired, why, challenge)
    }

    /// A valid credential that does not allow `operation` of `path`. For a producer it is no 403: official producers
    /// take that for a newer epoch, and repeat the request without end.
    #[must_use]
    pub fn access_denied(who: &str, operation: &str, path: &str, is_producer: bool) -> Self {
        let code = if is_producer { Code::ProducerDenied } else { Code::AccessDenied };
        let detail = format!(
            "{} may not {operation} {}; its grants do not name that.",
            quote(who.as_bytes()),
            quote(path.as_bytes())
        );
        let mut challenge = format!("{REALM}, error=\"insufficient_scope\", scope=\"{operation} ");
        put_scope(&mut challenge, path);
        challenge.push('"');
        Self::challenged(code, detail, challenge)
    }

    fn challenged(code: Code, detail: String, challenge: String) -> Self {
        Self { facts: Facts::Challenge(challenge.into()), ..Self::with_detail(code, detail) }
    }
}

fn invalid_token(why: &str) -> String {
    let is_plain = |byte: u8| matches!(byte, 0x20..=0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    assert!(why.bytes().all(is_plain), "RFC 6750 §3: characters of an error_description");
    format!("{REALM}, error=\"invalid_token\", error_description=\"{why}\"")
}

/// Appends a path as one word of a scope; characters that a scope cannot have are percent-encoded. RFC 6750 §3.
fn put_scope(challenge: &mut String, path: &str) {
    for byte in path.bytes() {
        match byte {
            0x21 | 0x23..=0x24 | 0x26..=0x5b | 0x5d..=0x7e => challenge.push(char::from(byte)),
            _ => write!(challenge, "%{byte:02X}").expect("writing to a string succeeds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(problem: &Problem) -> &str {
        match &problem.facts {
            Facts::Challenge(challenge) => challenge,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_challenge_says_what_its_standard_wants() {
        let missing = Problem::token_missing("read", "a");
        assert_eq!((missing.status(), challenge(&missing)), (401, "Bearer realm=\"thalweg\""));
        let invalid = Problem::token_invalid("It is wrong.");
        let text =
            "Bearer realm=\"thalweg\", error=\"invalid_token\", error_description=\"It is wrong.\"";
        assert_eq!((invalid.status(), challenge(&invalid)), (401, text));
        let denied = Problem::access_denied("ci", "append", "chat/42", false);
        let text =
            "Bearer realm=\"thalweg\", error=\"insufficient_scope\", scope=\"append chat/42\"";
        assert_eq!((denied.status(), challenge(&denied)), (403, text));
    }

    #[test]
    fn a_path_cannot_end_its_scope() {
        let denied = Problem::access_denied("ci", "read", "a \"b\\ü%", false);
        assert!(
            challenge(&denied).ends_with("scope=\"read a%20%22b%5C%C3%BC%25\""),
            "{}",
            challenge(&denied)
        );
    }

    #[test]
    fn a_producer_never_gets_a_403() {
        let denied = Problem::access_denied("ci", "append", "a", true);
        assert_eq!((denied.status(), denied.code()), (401, Code::ProducerDenied));
    }

    #[test]
    fn an_end_is_a_date() {
        let expired = Problem::token_expired(model::Timestamp::new(1_800_000_000_000));
        assert_eq!(
            expired.detail(),
            "The credentials have expired at Fri, 15 Jan 2027 08:00:00 GMT; get new ones."
        );
    }
}
