//! Static tokens: what a client sends, and what the access file keeps of it.
//!
//! # Format
//! `thw_<id>_<43 characters>_<6 characters>`: the id, a secret of 32 random bytes in base64url, and the CRC-32C of all
//! before it. The prefix and the sum let scanners of source code find a leaked token and nothing else.
//!
//! # Why a fast hash
//! The file keeps the SHA-256 of the secret. Slow hashes protect passwords, which can be guessed. 256 random bits
//! cannot.

use crate::limits::ID_BYTES_MAX;
use aws_lc_rs::{constant_time::verify_slices_are_equal, digest};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

const PREFIX: &str = "thw_";
const SECRET_CHARACTERS: usize = 43;
const SUM_CHARACTERS: usize = 6;

/// The secret of a static token. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// The SHA-256 of a [`Secret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash(pub(crate) [u8; 32]);

/// A static token as a client sends it, taken apart. Its sum is right; whether it is known is another question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticToken<'a> {
    /// Names it in the access file.
    pub id: &'a str,
    /// Proves it.
    pub secret: Secret,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A secret from 32 random bytes.
    #[must_use]
    pub const fn new(random: [u8; 32]) -> Self {
        Self(random)
    }

    /// What the access file keeps.
    #[must_use]
    pub fn hash(&self) -> SecretHash {
        SecretHash(sha256(&self.0))
    }
}

/// The SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl SecretHash {
    /// Whether it is the hash of `secret`, in a time that does not depend on where they differ.
    #[must_use]
    pub fn is_of(&self, secret: &Secret) -> bool {
        verify_slices_are_equal(&self.0, &secret.hash().0).is_ok()
    }

    /// From 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hex(text)?.try_into().ok().map(Self)
    }

    /// As 64 hexadecimal digits.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The bytes that hexadecimal digits say.
pub(crate) fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Whether `id` may name a token or a key: 1 to [`ID_BYTES_MAX`] letters, digits, `-` and `.`.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_allowed)
}

impl<'a> StaticToken<'a> {
    /// Whether `text` claims to be a static token, so that it is nothing else.
    #[must_use]
    pub fn is_claimed_by(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Takes a token apart; `None` if it is malformed or its sum is wrong.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (id, rest) = rest.split_once('_')?;
        let is_ascii = rest.is_ascii() && rest.len() == SECRET_CHARACTERS + 1 + SUM_CHARACTERS;
        if !is_ascii || !is_id(id) || rest.as_bytes()[SECRET_CHARACTERS] != b'_' {
            return None;
        }
        let (secret, found) = (&rest[..SECRET_CHARACTERS], &rest[SECRET_CHARACTERS + 1..]);
        let before = &text[..text.len() - SUM_CHARACTERS - 1];
        if found != sum(before) {
            return None;
        }
        let mut bytes = [0; 32];
        let length = URL_SAFE_NO_PAD.decode_slice(secret, &mut bytes).ok()?;
        (length == bytes.len()).then_some(Self { id, secret: Secret(bytes) })
    }

    /// The token as a client sends it.
    ///
    /// # Panics
    /// If the id may not name a token ([`is_id`]).
    #[must_use]
    pub fn render(&self) -> String {
        assert!(is_id(self.id), "an id has letters, digits, `-` and `.`");
        let before = format!("{PREFIX}{}_{}", self.id, URL_SAFE_NO_PAD.encode(self.secret.0));
        let sum = sum(&before);
        format!("{before}_{sum}")
    }
}

fn sum(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(crc32c::crc32c(text.as_bytes()).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: &str) -> String {
        StaticToken { id, secret: Secret([7; 32]) }.render()
    }

    #[test]
    fn a_token_is_read_as_it_was_made() {
        let text = token("ci.build-2");
        assert!(text.starts_with("thw_ci.build-2_") && text.len() == 4 + 10 + 1 + 43 + 1 + 6);
        let parsed = StaticToken::parse(&text).unwrap();
        assert_eq!(parsed, StaticToken { id: "ci.build-2", secret: Secret([7; 32]) });
    }

    #[test]
    fn the_form_of_a_token_never_changes() {
        assert_eq!(token("ci"), "thw_ci_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc_dpUJrw");
        let hash = Secret([7; 32]).hash();
        assert_eq!(
            hash.render(),
            "4bb06f8e4e3a7715d201d573d0aa423762e55dabd61a2c02278fa56cc6d294e0"
        );
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let text = token("ci");
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(StaticToken::parse(&changed), None, "{changed}");
        }
        for text in ["", "thw_", "thw__", "thw_ci_", &text[1..], &text[..text.len() - 1], "thw_ü_x"]
        {
            assert_eq!(StaticToken::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_hash_knows_its_secret() {
        let hash = SecretHash::parse(&Secret([7; 32]).hash().render()).unwrap();
        assert!(hash.is_of(&Secret([7; 32])) && !hash.is_of(&Secret([8; 32])));
        assert_eq!(SecretHash::parse("12"), None);
        assert_eq!(SecretHash::parse(&"g".repeat(64)), None);
    }

    #[test]
    fn ids_cannot_be_taken_for_something_else() {
        assert!(is_id("a") && is_id("web-1.eu") && is_id(&"x".repeat(64)));
        for id in ["", "a_b", "a b", "a/b", "ü", &"x".repeat(65)] {
            assert!(!is_id(id), "{id}");
        }
    }
}
