//! Signed URLs: a read that a browser's `EventSource` can make, which sends no header of ours.
//!
//! # Format
//! The signature is the HMAC-SHA-256, in base64url without padding, of
//! `thalweg-url-v1\nGET\n<path>\n<expires>`. The path is the decoded path of the stream, or a prefix that ends with a
//! slash. `expires` is in seconds of Unix time. The key is that of the file.
//!
//! # Invariants
//! - A signed path that ends with a slash is a prefix, always. A stream whose own path ends with one cannot be signed
//!   alone: its signature would open everything under it.

use crate::grant::{Grant, Operation, Operations};
use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{StreamPath, Timestamp};

/// What a signed URL says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedUrl<'a> {
    /// The path that is asked for.
    pub path: &'a str,
    /// The prefix that was signed instead, if one was.
    pub prefix: Option<&'a str>,
    /// The id of the key.
    pub key: &'a str,
    /// When it ends, in seconds of Unix time, as written.
    pub expires: &'a str,
    /// The signature as written.
    pub signature: &'a str,
}

impl<'a> SignedUrl<'a> {
    /// The path or prefix that is signed.
    pub(crate) fn signed_path(&self) -> &'a str {
        self.prefix.unwrap_or(self.path)
    }

    /// When it ends; `None` if that is no number.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        let is_plain =
            !self.expires.is_empty() && self.expires.bytes().all(|byte| byte.is_ascii_digit());
        let seconds: u64 = self.expires.parse().ok().filter(|_| is_plain)?;
        Some(Timestamp::new(seconds.checked_mul(1000)?))
    }

    /// What it allows, if its signature is right; `None` if it covers something else than its path.
    pub(crate) fn scope(&self) -> Option<Grant> {
        let signed = self.signed_path();
        let is_prefix = self.prefix.is_some();
        if is_prefix != signed.ends_with('/') || StreamPath::new(signed).is_err() {
            return None;
        }
        let grant = if is_prefix {
            Grant::new(Operations::only(Operation::Read), signed)
        } else {
            Grant::exact(Operations::only(Operation::Read), signed)
        };
        grant.allows(Operation::Read, self.path).then_some(grant)
    }

    /// Whether `key` has signed it.
    pub(crate) fn is_signed_by(&self, key: &hmac::Key) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(self.signature) else { return false };
        hmac::verify(key, message(self.signed_path(), self.expires).as_bytes(), &signature).is_ok()
    }
}

/// The signature for a path, or a prefix that ends with a slash, until `expires_s`.
#[must_use]
pub fn sign(secret: &[u8], path: &str, expires_s: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, message(path, &expires_s.to_string()).as_bytes());
    URL_SAFE_NO_PAD.encode(tag.as_ref())
}

fn message(path: &str, expires: &str) -> String {
    format!("thalweg-url-v1\nGET\n{path}\n{expires}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = &[9; 32];

    fn url<'a>(path: &'a str, prefix: Option<&'a str>, signature: &'a str) -> SignedUrl<'a> {
        SignedUrl { path, prefix, key: "web", expires: "1795000000", signature }
    }

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, SECRET)
    }

    #[test]
    fn a_signature_is_good_for_its_path_and_time_alone() {
        let signature = sign(SECRET, "chat/42", 1_795_000_000);
        assert_eq!(signature, "81YVa9FXlwl6IQN762ljXXlmSkG1Lxmzcw_VQH6d7j8");
        let good = url("chat/42", None, &signature);
        assert!(good.is_signed_by(&key()));
        assert!(!url("chat/43", None, &signature).is_signed_by(&key()));
        assert!(!SignedUrl { expires: "1795000001", ..good }.is_signed_by(&key()));
        assert!(!good.is_signed_by(&hmac::Key::new(hmac::HMAC_SHA256, &[8; 32])));
        assert!(!url("chat/42", None, "").is_signed_by(&key()));
        assert!(!url("chat/42", None, &signature[1..]).is_signed_by(&key()));
    }

    #[test]
    fn a_prefix_covers_what_is_under_it() {
        let signature = sign(SECRET, "chat/", 1_795_000_000);
        let good = url("chat/42", Some("chat/"), &signature);
        assert!(good.is_signed_by(&key()));
        assert!(good.scope().unwrap().allows(Operation::Read, "chat/42"));
        assert_eq!(url("chatter", Some("chat/"), &signature).scope(), None);
        assert_eq!(url("chat/42", Some("chat"), &signature).scope(), None);
        assert_eq!(url("chat/42", Some(""), &signature).scope(), None);
        assert_eq!(url("chat/42", Some("**"), &signature).scope(), None);
    }

    #[test]
    fn a_path_that_looks_like_more_than_a_stream_is_not_more() {
        assert_eq!(url("chat/", None, "").scope(), None, "it would be taken for a prefix");
        assert!(!url("chat/42", None, "").scope().unwrap().allows(Operation::Append, "chat/42"));
        let all = url("**", None, "").scope().unwrap();
        assert!(all.allows(Operation::Read, "**") && !all.allows(Operation::Read, "other"));
    }

    #[test]
    fn an_end_is_a_plain_number() {
        let at = |expires| SignedUrl { expires, ..url("a", None, "") }.expires_at();
        assert_eq!(at("17"), Some(Timestamp::new(17_000)));
        for expires in ["", "+17", "-1", "1e3", "18446744073709551615", "99999999999999999999"] {
            assert_eq!(at(expires), None, "{expires}");
        }
    }
}
