//! What files beside the access file hold: keys and secrets. Errors are ends of sentences that begin with a file's name.

use crate::{
    jwt::{Key, is_symmetric},
    limits::{KEYS_MAX, RSA_MODULUS_BYTES_MIN, SECRET_BYTES_MIN},
    token::hex,
};
use base64::{Engine, engine::general_purpose as base64_of};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};

/// A secret of 32 bytes: as they are, or as a line of base64 or hexadecimal digits.
///
/// # Errors
/// A sentence without its beginning, which is the name of the file.
pub fn secret(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if bytes.len() == SECRET_BYTES_MIN {
        return Ok(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default().trim_end();
    let decoded = hex(text)
        .filter(|_| text.len() == 2 * SECRET_BYTES_MIN)
        .or_else(|| base64_of::URL_SAFE_NO_PAD.decode(text).ok())
        .or_else(|| base64_of::URL_SAFE.decode(text).ok())
        .or_else(|| base64_of::STANDARD.decode(text).ok())
        .or_else(|| base64_of::STANDARD_NO_PAD.decode(text).ok());
    decoded.filter(|secret| secret.len() == SECRET_BYTES_MIN).ok_or_else(|| {
        "is not a secret of 32 bytes, in base64, hexadecimal digits or as they are; `openssl rand -base64 32` makes one"
            .to_owned()
    })
}

/// The secret of an issuer that signs with HMAC: the bytes of the file without a line end.
pub(super) fn shared(bytes: &[u8], algorithms: &[Algorithm]) -> Result<Vec<Key>, String> {
    let secret = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if secret.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "has {} bytes; a secret has at least {SECRET_BYTES_MIN}",
            secret.len()
        ));
    }
    if !algorithms.iter().all(|algorithm| is_symmetric(*algorithm)) {
        return Err(
            "is a secret; `algorithms` may name HS256, HS384 and HS512 beside it, no others"
                .to_owned(),
        );
    }
    Ok(vec![Key {
        id: None,
        algorithms: algorithms.to_vec(),
        key: DecodingKey::from_secret(secret),
    }])
}

/// The public keys of an issuer: a JSON Web Key Set.
pub(super) fn public(bytes: &[u8], algorithms: &[Algorithm]) -> Result<Vec<Key>, String> {
    if algorithms.iter().any(|algorithm| is_symmetric(*algorithm)) {
        return Err("has public keys; HS256, HS384 and HS512 need `secret_file` instead".to_owned());
    }
    let set: JwkSet = serde_json::from_slice(bytes)
        .map_err(|error| format!("is not a JSON Web Key Set: {error}"))?;
    if set.keys.len() > KEYS_MAX {
        return Err(format!("has more than {KEYS_MAX} keys"));
    }
    let mut keys = Vec::new();
    for (place, jwk) in set.keys.iter().enumerate() {
        let key =
            key_of(jwk).map_err(|why| format!("has a key, the one at {place}, that {why}"))?;
        keys.extend(key);
    }
    if !keys.iter().any(|key| key.algorithms.iter().any(|algorithm| algorithms.contains(algorithm)))
    {
        return Err("has no key for any of `algorithms`".to_owned());
    }
    Ok(keys)
}

/// A key with the algorithms that it is for; `None` if it is for something else.
fn key_of(jwk: &Jwk) -> Result<Option<Key>, String> {
    let is_for_signatures =
        jwk.common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature);
    let Some(mut algorithms) = algorithms_of(jwk).filter(|_| is_for_signatures) else {
        return Ok(None);
    };
    if let Some(only) = jwk.common.key_algorithm {
        let Ok(only) = only.to_string().parse::<Algorithm>() else { return Ok(None) };
        algorithms.retain(|algorithm| *algorithm == only);
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|error| format!("cannot be read: {error}"))?;
    if let DecodingKeyKind::RsaModulusExponent { n, .. } = key.kind()
        && n.len() < RSA_MODULUS_BYTES_MIN
    {
        return Err("is an RSA key of less than 2048 bits".to_owned());
    }
    Ok(Some(Key { id: jwk.common.key_id.as_deref().map(Into::into), algorithms, key }))
}

/// What a key of this type can verify; `None` for a type that is not used here.
fn algorithms_of(jwk: &Jwk) -> Option<Vec<Algorithm>> {
    match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(vec![Algorithm::ES256]),
            EllipticCurve::P384 => Some(vec![Algorithm::ES384]),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(vec![Algorithm::EdDSA])
        }
        AlgorithmParameters::RSA(_) => Some(AlgorithmFamily::Rsa.algorithms().to_vec()),
        _ => None,
    }
}

/// A number of bytes, as in `8MiB`.
pub(super) fn size(text: &str) -> Option<u64> {
    const SUFFIXES: [(&str, u64); 8] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
        ("B", 1),
    ];
    let found =
        SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (digits, factor) = found.unwrap_or((text, 1));
    let digits = digits.trim_end();
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_plain)?.checked_mul(factor)
}
