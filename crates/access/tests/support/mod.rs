//! What tests need of an issuer, a token and a client.

#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses a part of it")]

use aws_lc_rs::{
    encoding::AsDer,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair},
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use model::{Monotonic, Timestamp};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use thalweg_access::{
    Access, Authorized, Client, Cost, Credential, Denied, Named, Need, Now, Operation, Refused,
    Rules, Secret, StaticToken, Verified, file,
};

pub const NOW_S: u64 = 1_800_000_000;

pub fn now() -> Now {
    at_s(NOW_S)
}

pub fn at_s(seconds: u64) -> Now {
    Now { wall: Timestamp::new(seconds * 1000), monotonic: Monotonic::new(seconds * 1_000_000_000) }
}

pub fn client() -> Client<'static> {
    Client { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), is_forwarded: false, names: &[] }
}

/// A request of one operation.
#[derive(Debug, Clone)]
pub struct Ask {
    pub operation: Operation,
    pub path: String,
    pub and: Option<(Operation, String)>,
    pub cost: Cost,
}

impl Ask {
    pub fn new(operation: Operation, path: &str) -> Self {
        Self { operation, path: path.to_owned(), and: None, cost: Cost::default() }
    }
}

impl Named for Ask {
    fn needs(&self) -> [Option<Need<'_>>; 2] {
        let and = self.and.as_ref().map(|(operation, path)| Need { operation: *operation, path });
        [Some(Need { operation: self.operation, path: &self.path }), and]
    }

    fn cost(&self) -> Cost {
        self.cost
    }
}

/// A private key and its public half.
pub struct IssuerKey {
    pub algorithm: Algorithm,
    pub id: &'static str,
    pub private: EncodingKey,
}

impl IssuerKey {
    pub fn ed25519(id: &'static str) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap().to_pkcs8v1().unwrap();
        Self { algorithm: Algorithm::EdDSA, id, private: EncodingKey::from_ed_der(pair.as_ref()) }
    }

    pub fn p256(id: &'static str) -> Self {
        let pair =
            EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap().to_pkcs8v1().unwrap();
        Self { algorithm: Algorithm::ES256, id, private: EncodingKey::from_ec_der(pair.as_ref()) }
    }

    /// Made once: it takes a second.
    pub fn rsa(id: &'static str) -> Self {
        static DER: OnceLock<Vec<u8>> = OnceLock::new();
        let der = DER.get_or_init(|| {
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
            let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
            der.as_ref().to_vec()
        });
        let inner = rsa_private_key(der);
        Self { algorithm: Algorithm::RS256, id, private: EncodingKey::from_rsa_der(&inner) }
    }

    pub fn jwk(&self) -> Value {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(&self.private, self.algorithm).unwrap())
                .unwrap();
        jwk["kid"] = json!(self.id);
        jwk
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(|_| {}, claims)
    }

    pub fn sign_with(&self, change: impl FnOnce(&mut Header), claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.to_owned());
        change(&mut header);
        encode(&header, claims, &self.private).unwrap()
    }
}

/// The key inside a PKCS#8 wrapper: the last octet string.
fn rsa_private_key(pkcs8: &[u8]) -> Vec<u8> {
    let start = (0..pkcs8.len() - 4)
        .find(|at| pkcs8[*at] == 0x04 && pkcs8[at + 1] == 0x82 && pkcs8[at + 4] == 0x30);
    pkcs8[start.expect("an octet string with a sequence") + 4..].to_vec()
}

pub fn jwks(keys: &[&IssuerKey]) -> String {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }).to_string()
}

/// The rules of a file, with `jwks.json` and `secret` beside it.
pub fn rules(text: &str, jwks: &str) -> Rules {
    let read = |name: &str, _| match name {
        "jwks.json" => Ok(jwks.as_bytes().to_vec()),
        "secret" => Ok(vec![9; 32]),
        _ => Err("is not there".to_owned()),
    };
    file::parse(text, &read).unwrap()
}

pub fn access(text: &str, jwks: &str) -> Access {
    Access::new(rules(text, jwks), 7, None)
}

/// A static token, and its table in an access file.
pub fn token(id: &str, grants: &str) -> (String, String) {
    let secret = Secret::new([id.len() as u8 ^ id.as_bytes()[0]; 32]);
    let table = format!(
        "[[token]]\nid = \"{id}\"\nsha256 = \"{}\"\ngrants = {grants}\n",
        secret.hash().render()
    );
    (StaticToken { id, secret }.render(), table)
}

/// Authenticates and decides, as a connection that remembers nothing.
pub fn ask(
    access: &Access,
    credential: &Credential<'_>,
    request: Ask,
    now: Now,
) -> Result<Authorized<Ask>, Denied> {
    let who =
        access.authenticate(&mut Verified::default(), &mut None, credential, client(), now.wall);
    let who = who.map_err(|refused| match refused {
        Refused::Denied(denied) => denied,
        Refused::Later => panic!("a fresh turn has verifications left"),
    })?;
    access.decide(who, client(), request, now)
}

pub fn may(access: &Access, token: &str, operation: Operation, path: &str) -> bool {
    ask(access, &Credential::Bearer(token), Ask::new(operation, path), now()).is_ok()
}
