//! JSON Web Tokens: what is taken, and what is not.

mod support;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use model::Timestamp;
use serde_json::{Value, json};
use support::{Ask, IssuerKey, NOW_S, access, ask, at_s, client, jwks, may, now};
use thalweg_access::{Access, Credential, Denied, Invalid, Operation, Refused, Verified, Who};

const FILE: &str = r#"
[[issuer]]
issuer = "https://auth.example"
audience = "thalweg"
jwks_file = "jwks.json"
algorithms = ["EdDSA", "ES256", "RS256"]
grants = ["read,append users/{sub}/"]
"#;

fn claims() -> Value {
    json!({ "iss": "https://auth.example", "aud": "thalweg", "sub": "ann", "exp": NOW_S + 600 })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = claims();
    change(&mut claims);
    claims
}

fn why(access: &Access, token: &str) -> Denied {
    ask(access, &Credential::Bearer(token), Ask::new(Operation::Read, "users/ann/x"), now())
        .unwrap_err()
}

fn invalid(access: &Access, token: &str) -> Invalid {
    match why(access, token) {
        Denied::Invalid(invalid) => invalid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_of_each_key_type_opens_the_paths_of_its_subject() {
    let keys = [IssuerKey::ed25519("ed"), IssuerKey::p256("ec"), IssuerKey::rsa("rsa")];
    let access = access(FILE, &jwks(&keys.each_ref()));
    for key in &keys {
        let token = key.sign(&claims());
        assert!(may(&access, &token, Operation::Read, "users/ann/x"), "{}", key.id);
        assert!(!may(&access, &token, Operation::Read, "users/anna/x"), "{}", key.id);
        assert!(!may(&access, &token, Operation::Delete, "users/ann/x"), "{}", key.id);
    }
}

#[test]
fn claims_are_checked_one_by_one() {
    let key = IssuerKey::ed25519("ed");
    let access = access(FILE, &jwks(&[&key]));
    let of = |change: fn(&mut Value)| invalid(&access, &key.sign(&with(change)));
    assert_eq!(of(|claims| claims["iss"] = json!("https://auth.example/")), Invalid::Issuer);
    assert_eq!(of(|claims| claims["iss"] = json!(["https://auth.example"])), Invalid::Issuer);
    assert_eq!(of(|claims| claims["aud"] = json!("other")), Invalid::Audience);
    assert_eq!(of(|claims| claims["aud"] = json!(["a", "b"])), Invalid::Audience);
    assert_eq!(of(|claims| claims["aud"] = Value::Null), Invalid::Audience);
    assert_eq!(of(|claims| claims["exp"] = Value::Null), Invalid::Claims);
    assert_eq!(of(|claims| claims["exp"] = json!("1800000600")), Invalid::Claims);
    assert_eq!(of(|claims| claims["exp"] = json!(-1)), Invalid::Claims);
    assert_eq!(of(|claims| claims["nbf"] = json!("soon")), Invalid::Claims);
    assert_eq!(of(|claims| claims["sub"] = json!(7)), Invalid::Claims);
    let many = key.sign(&with(|claims| claims["aud"] = json!(["a", "thalweg"])));
    assert!(may(&access, &many, Operation::Read, "users/ann/x"));
}

#[test]
fn a_token_ends_a_minute_after_its_time_and_begins_a_minute_before() {
    let key = IssuerKey::ed25519("ed");
    let access = access(FILE, &jwks(&[&key]));
    let token = key.sign(&with(|claims| claims["nbf"] = json!(NOW_S)));
    let at = |seconds| {
        ask(
            &access,
            &Credential::Bearer(&token),
            Ask::new(Operation::Read, "users/ann/x"),
            at_s(seconds),
        )
        .map(drop)
    };
    assert_eq!(at(NOW_S - 61), Err(Denied::NotYet { from: Timestamp::new(NOW_S * 1000) }));
    assert_eq!(at(NOW_S - 60), Ok(()));
    assert_eq!(at(NOW_S + 659), Ok(()));
    assert_eq!(at(NOW_S + 660), Err(Denied::Expired { at: Timestamp::new((NOW_S + 600) * 1000) }));
    let endless = key.sign(&with(|claims| claims["exp"] = json!(1e30)));
    assert!(may(&access, &endless, Operation::Read, "users/ann/x"));
}

#[test]
fn a_verified_token_ends_in_time_although_it_is_remembered() {
    let key = IssuerKey::ed25519("ed");
    let access = access(FILE, &jwks(&[&key]));
    let (token, mut verified, mut memory) = (key.sign(&claims()), Verified::default(), None);
    let credential = Credential::Bearer(&token);
    let mut at = |memory: &mut _, seconds: u64| {
        access.authenticate(&mut verified, memory, &credential, client(), at_s(seconds).wall)
    };
    assert!(matches!(at(&mut memory, NOW_S), Ok(Who::Known(_))));
    let expired = Refused::Denied(Denied::Expired { at: Timestamp::new((NOW_S + 600) * 1000) });
    assert_eq!(at(&mut memory, NOW_S + 660).unwrap_err(), expired, "remembered by its connection");
    assert_eq!(at(&mut None, NOW_S + 660).unwrap_err(), expired, "remembered by its shard");
}

#[test]
fn algorithms_and_keys_cannot_be_mixed_up() {
    let (ed, ec, other) =
        (IssuerKey::ed25519("ed"), IssuerKey::p256("ec"), IssuerKey::ed25519("ed"));
    let access = access(FILE, &jwks(&[&ed, &ec]));
    assert_eq!(invalid(&access, &other.sign(&claims())), Invalid::Signature);
    let renamed = ed.sign_with(|header| header.kid = Some("ec".into()), &claims());
    assert_eq!(invalid(&access, &renamed), Invalid::Algorithm);
    let unknown = ed.sign_with(|header| header.kid = Some("new".into()), &claims());
    assert_eq!(invalid(&access, &unknown), Invalid::Key);
    // HS256 with the public key as its secret, in all forms that an attacker has it in.
    for secret in [jwks(&[&ed]), ed.jwk()["x"].as_str().unwrap().to_owned()] {
        let header = Header { kid: Some("ed".into()), ..Header::new(Algorithm::HS256) };
        let forged =
            encode(&header, &claims(), &EncodingKey::from_secret(secret.as_bytes())).unwrap();
        assert_eq!(invalid(&access, &forged), Invalid::Algorithm);
    }
    let token = ed.sign(&claims());
    let [_, body, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
    for head in [r#"{"alg":"none"}"#, r#"{"alg":"None","kid":"ed"}"#, r#"{"kid":"ed"}"#] {
        let head = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, head);
        assert_eq!(invalid(&access, &format!("{head}.{body}.{signature}")), Invalid::Head);
        assert_eq!(invalid(&access, &format!("{head}.{body}.")), Invalid::Head);
    }
}

#[test]
fn heads_that_mean_something_else_are_refused() {
    let key = IssuerKey::ed25519("ed");
    let access = access(FILE, &jwks(&[&key]));
    let critical = key.sign_with(|header| header.crit = Some(vec!["b64".into()]), &claims());
    assert_eq!(invalid(&access, &critical), Invalid::Head);
    let typed = key.sign_with(|header| header.typ = Some("dpop+jwt".into()), &claims());
    assert_eq!(invalid(&access, &typed), Invalid::Head);
    for typ in [None, Some("JWT"), Some("jwt"), Some("at+jwt")] {
        let token = key.sign_with(|header| header.typ = typ.map(Into::into), &claims());
        assert!(may(&access, &token, Operation::Read, "users/ann/x"), "{typ:?}");
    }
    for text in ["", "a", "a.b", "a.b.c.d", "..", "a.b.c"] {
        let denied = invalid(&access, text);
        assert!(matches!(denied, Invalid::NoToken | Invalid::Head), "{text}: {denied:?}");
    }
    let long = key.sign(&with(|claims| claims["pad"] = json!("x".repeat(9 << 10))));
    assert_eq!(invalid(&access, &long), Invalid::TooLong);
}

#[test]
fn every_changed_character_of_a_token_is_noticed() {
    let key = IssuerKey::ed25519("ed");
    let access = access(FILE, &jwks(&[&key]));
    let token = key.sign(&claims());
    for place in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(!may(&access, &changed, Operation::Read, "users/ann/x"), "{place}");
    }
}

#[test]
fn a_token_without_a_key_name_needs_a_single_key() {
    let (one, two) = (IssuerKey::ed25519("one"), IssuerKey::ed25519("two"));
    let token = one.sign_with(|header| header.kid = None, &claims());
    assert!(may(&access(FILE, &jwks(&[&one])), &token, Operation::Read, "users/ann/x"));
    assert_eq!(invalid(&access(FILE, &jwks(&[&one, &two])), &token), Invalid::Key);
}

#[test]
fn new_keys_count_at_once_and_old_ones_no_more() {
    let (old, new) = (IssuerKey::ed25519("old"), IssuerKey::ed25519("new"));
    let (first, second, mut verified, mut memory) =
        (old.sign(&claims()), new.sign(&claims()), Verified::default(), None);
    let before = access(FILE, &jwks(&[&old]));
    let mut by = |access: &Access, token: &str| {
        access
            .authenticate(
                &mut verified,
                &mut memory,
                &Credential::Bearer(token),
                client(),
                now().wall,
            )
            .is_ok()
    };
    assert!(by(&before, &first) && !by(&before, &second));
    let both = Access::new(support::rules(FILE, &jwks(&[&old, &new])), 7, Some(&before));
    assert!(by(&both, &first) && by(&both, &second));
    let after = Access::new(support::rules(FILE, &jwks(&[&new])), 7, Some(&both));
    assert!(!by(&after, &first) && by(&after, &second));
}

#[test]
fn a_turn_verifies_a_few_signatures_and_known_tokens_never_wait() {
    let key = IssuerKey::ed25519("ed");
    let access = access(FILE, &jwks(&[&key]));
    let tokens: Vec<_> =
        (0..10).map(|id| key.sign(&with(|claims| claims["sub"] = json!(id.to_string())))).collect();
    let mut verified = Verified::default();
    let by = |verified: &mut Verified, token: &String| {
        access.authenticate(verified, &mut None, &Credential::Bearer(token), client(), now().wall)
    };
    let first: Vec<_> = tokens.iter().map(|token| by(&mut verified, token).map(drop)).collect();
    assert_eq!(first.iter().filter(|result| result.is_ok()).count(), 8);
    assert_eq!(first[8], Err(Refused::Later));
    assert!(by(&mut verified, &tokens[0]).is_ok(), "it is known");
    verified.begin_turn();
    assert!(by(&mut verified, &tokens[8]).is_ok());
}

#[test]
fn grants_of_a_token_are_cut_down_to_those_of_the_file() {
    let file = FILE.replace("grants = [", "grants_claim = \"can\"\ngrants = [");
    let key = IssuerKey::ed25519("ed");
    let cut = access(&file, &jwks(&[&key]));
    let token = key.sign(&with(|claims| claims["can"] = json!(["* **"])));
    assert!(may(&cut, &token, Operation::Append, "users/ann/x"));
    assert!(
        !may(&cut, &token, Operation::Delete, "users/ann/x")
            && !may(&cut, &token, Operation::Read, "a")
    );
    let less = key.sign(&with(|claims| claims["can"] = json!(["read users/ann/a", "read other"])));
    assert!(may(&cut, &less, Operation::Read, "users/ann/a"));
    assert!(
        !may(&cut, &less, Operation::Read, "users/ann/b")
            && !may(&cut, &less, Operation::Read, "other")
    );
    assert!(
        !may(&cut, &key.sign(&claims()), Operation::Read, "users/ann/a"),
        "no claim grants nothing"
    );
    for bad in [json!("read a"), json!([7]), json!(["read /a"]), json!({})] {
        assert_eq!(invalid(&cut, &key.sign(&with(|claims| claims["can"] = bad))), Invalid::Claims);
    }
}

#[test]
fn a_shared_secret_works_where_the_file_says_so() {
    let file = FILE
        .replace("jwks_file = \"jwks.json\"", "secret_file = \"secret\"")
        .replace(r#"["EdDSA", "ES256", "RS256"]"#, r#"["HS256"]"#);
    let access = access(&file, "");
    let sign = |secret: &[u8]| {
        encode(&Header::new(Algorithm::HS256), &claims(), &EncodingKey::from_secret(secret))
            .unwrap()
    };
    assert!(may(&access, &sign(&[9; 32]), Operation::Read, "users/ann/x"));
    assert_eq!(invalid(&access, &sign(&[8; 32])), Invalid::Signature);
}
