//! The access file: what is wrong is named with its line.

mod support;

use support::{IssuerKey, jwks};
use thalweg_access::file::{self, Secrecy};

fn problems(text: &str) -> Vec<String> {
    let read = |name: &str, secrecy: Secrecy| match (name, secrecy) {
        ("jwks.json", Secrecy::Public) => Ok(jwks(&[&IssuerKey::ed25519("a")]).into_bytes()),
        ("empty.json", Secrecy::Public) => Ok(b"{\"keys\":[]}".to_vec()),
        ("good.key", Secrecy::Secret) => {
            Ok(b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n".to_vec())
        }
        ("short.key", Secrecy::Secret) => Ok(b"hunter2".to_vec()),
        _ => Err("cannot be read: it is not there".to_owned()),
    };
    match file::parse(text, &read) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn one(text: &str) -> String {
    let mut all = problems(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

const TOKEN: &str = "[[token]]\nid = \"a\"\nsha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";
const ISSUER: &str = "[[issuer]]\nissuer = \"i\"\naudience = \"a\"\njwks_file = \"jwks.json\"\nalgorithms = [\"EdDSA\"]\n";

#[test]
fn a_file_with_everything_is_taken() {
    let text = format!(
        "[anonymous]\ngrants = [\"read public/\"]\nlimits = {{ requests_per_s = 5 }}\n{TOKEN}grants = [\"* **\"]\n\
         expires = 2027-01-01T00:00:00+02:00\nlimits = {{ requests_per_s = 200, append_bytes_per_s = \"8MiB\", \
         live_readers = 100, creates_per_s = 1 }}\n{ISSUER}grants = [\"read users/{{sub}}/\"]\ngrants_claim = \"can\"\n\
         [[certificate]]\nsan = \"w\"\ngrants = [\"* **\"]\n[[signing_key]]\nid = \"web\"\nsecret_file = \"good.key\"\n\
         grants = [\"read chat/\"]\nlifetime_s_max = 60\n"
    );
    assert_eq!(problems(&text), [""; 0]);
    assert_eq!(problems(""), [""; 0]);
}

#[test]
fn a_misspelt_key_is_named_with_what_was_meant() {
    let text = format!("{TOKEN}grant = [\"* **\"]\n");
    assert_eq!(one(&text), "line 4: [[token]] has no `grant`; did you mean `grants`?");
    assert_eq!(
        one("\n[[tokens]]\nid = \"a\"\n"),
        "line 2: the access file has no `tokens`; did you mean `token`?"
    );
    let limits = format!("{TOKEN}limits = {{ request_per_s = 1 }}\n");
    assert_eq!(
        one(&limits),
        "line 4: `limits` has no `request_per_s`; did you mean `requests_per_s`?"
    );
    assert!(one("[anonymous]\nxyzzy = 1\n").ends_with("it has grants, limits"));
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = "[[token]]\nid = \"a_b\"\nsha256 = \"12\"\ngrants = [\"raed logs/\", 7]\nexpires = \"soon\"\n";
    let found = problems(text);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found[0].starts_with("line 2: an id is"));
    assert!(found[1].starts_with("line 3: `sha256` is 64"));
    assert_eq!(
        found[2],
        "line 4: `raed logs/`: there is no operation `raed`; did you mean `read`?"
    );
    assert!(found[4].starts_with("line 5: `expires` is a time"));
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(one(&TOKEN.replace("id = \"a\"\n", "")), "line 1: [[token]] needs `id`");
    assert_eq!(one("[[certificate]]\ngrants = []\n"), "line 1: [[certificate]] needs `san`");
    assert!(
        one(&ISSUER.replace("jwks_file = \"jwks.json\"\n", ""))
            .contains("either `jwks_file` or `secret_file`")
    );
    assert!(one(&ISSUER.replace("algorithms = [\"EdDSA\"]\n", "")).contains("`algorithms`"));
    assert_eq!(one("token = 1\n"), "line 1: `token` is written as [[token]]");
    assert!(one("a = \n").starts_with("line 1: this is not TOML"));
}

#[test]
fn two_rules_of_one_name_are_a_mistake() {
    assert_eq!(one(&format!("{TOKEN}{TOKEN}")), "line 5: there is another [[token]] `a`");
    assert_eq!(one(&format!("{ISSUER}{ISSUER}")), "line 7: there is another [[issuer]] `i`");
}

#[test]
fn variables_are_for_issuers() {
    assert!(
        one(&format!("{TOKEN}grants = [\"read u/{{sub}}/\"]\n"))
            .contains("`{sub}` has no value here")
    );
    assert_eq!(problems(&format!("{ISSUER}grants = [\"read u/{{sub}}/\"]\n")), [""; 0]);
}

#[test]
fn secrets_and_public_keys_do_not_mix() {
    let mixed = ISSUER.replace("[\"EdDSA\"]", "[\"EdDSA\", \"HS256\"]");
    assert!(one(&mixed).contains("do not go beside the others"));
    let secret = ISSUER.replace("jwks_file = \"jwks.json\"", "secret_file = \"good.key\"");
    assert!(one(&secret).contains("`algorithms` may name HS256"));
    let public = ISSUER.replace("EdDSA", "HS256");
    assert!(one(&public).contains("need `secret_file`"));
    assert!(one(&ISSUER.replace("EdDSA", "none")).contains("`none` is none of EdDSA"));
    assert!(one(&ISSUER.replace("EdDSA", "RS256")).contains("no key for any"));
    assert!(one(&ISSUER.replace("jwks.json", "empty.json")).contains("no key for any"));
}

#[test]
fn files_beside_it_are_checked() {
    let key = |name: &str| {
        format!("[[signing_key]]\nid = \"web\"\nsecret_file = \"{name}\"\ngrants = []\n")
    };
    assert_eq!(problems(&key("good.key")), [""; 0]);
    assert!(one(&key("short.key")).starts_with("line 3: short.key is not a secret of 32 bytes"));
    assert_eq!(one(&key("gone.key")), "line 3: gone.key cannot be read: it is not there");
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    for bad in ["0", "-1", "\"8 apples\"", "1.5", "true", "\"99999999999TiB\""] {
        let text = format!("{TOKEN}limits = {{ requests_per_s = {bad} }}\n");
        assert!(one(&text).contains("whole number of at least 1"), "{bad}");
    }
    assert!(one(&format!("{TOKEN}expires = 2027-01-01\n")).contains("with its zone"));
    assert!(one(&format!("{TOKEN}expires = 2027-01-01T00:00:00\n")).contains("with its zone"));
}
