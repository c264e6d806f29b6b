//! From the text of an access file to rules.

use super::{
    Problem, ReadFile, Secrecy, keys,
    table::{At, Problems, Table},
};
use crate::{
    access::{AnonymousRule, CertificateRule, IssuerRule, Rules, SigningKeyRule, TokenRule},
    grant::{Grant, GrantError, GrantTemplate},
    jwt::{Issuer, is_symmetric},
    limits::{GRANTS_MAX, RULES_MAX},
    meter::Limits,
    token::{SecretHash, is_id},
};
use jsonwebtoken::Algorithm;
use model::Timestamp;
use std::collections::HashSet;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use toml::de::{DeTable, DeValue};

/// How long a signed URL may be good for when the file does not say.
const LIFETIME_S_MAX: u64 = 86_400;

/// Reads an access file. `read` reads the files that it names.
///
/// # Errors
/// Every [`Problem`] there is, so that a person can correct all of them at once.
pub fn parse(text: &str, read: ReadFile<'_>) -> Result<Rules, Vec<Problem>> {
    let mut problems = Problems::new(text);
    let file = match DeTable::parse(text) {
        Ok(file) => file,
        Err(error) => {
            let span = error.span().unwrap_or_default();
            problems.add(&span, format!("this is not TOML: {}", error.message()));
            return Err(problems.into_found());
        }
    };
    let mut reader = Reader { problems, read, ids: HashSet::new() };
    let rules = reader.rules(Table::new("the access file", file.get_ref(), 0..0));
    let problems = reader.problems.into_found();
    if problems.is_empty() { Ok(rules) } else { Err(problems) }
}

struct Reader<'t> {
    problems: Problems<'t>,
    read: ReadFile<'t>,
    /// What names a rule, by its kind: twice the same is a mistake.
    ids: HashSet<(&'static str, String)>,
}

impl<'t> Reader<'t> {
    fn rules(&mut self, mut file: Table<'t>) -> Rules {
        let anonymous = file.table(("anonymous", "[anonymous]"), &mut self.problems);
        let tokens = file.tables(("token", "[[token]]"), &mut self.problems);
        let issuers = file.tables(("issuer", "[[issuer]]"), &mut self.problems);
        let certificates = file.tables(("certificate", "[[certificate]]"), &mut self.problems);
        let signing_keys = file.tables(("signing_key", "[[signing_key]]"), &mut self.problems);
        let count = tokens.len() + issuers.len() + certificates.len() + signing_keys.len();
        if count > RULES_MAX {
            self.problems.add(&(0..0), format!("{count} rules are more than {RULES_MAX}"));
        }
        file.end(&mut self.problems);
        Rules {
            anonymous: anonymous.map_or_else(AnonymousRule::default, |table| self.anonymous(table)),
            tokens: tokens.into_iter().filter_map(|table| self.token(table)).collect(),
            issuers: issuers.into_iter().filter_map(|table| self.issuer(table)).collect(),
            certificates: certificates
                .into_iter()
                .filter_map(|table| self.certificate(table))
                .collect(),
            signing_keys: signing_keys
                .into_iter()
                .filter_map(|table| self.signing_key(table))
                .collect(),
        }
    }

    fn anonymous(&mut self, mut table: Table<'t>) -> AnonymousRule {
        let grants = self.grants(&mut table);
        let limits = self.limits(&mut table);
        table.end(&mut self.problems);
        AnonymousRule { grants, limits }
    }

    fn token(&mut self, mut table: Table<'t>) -> Option<TokenRule> {
        let id = self.id(&mut table);
        let hash = table.needed_text("sha256", &mut self.problems).and_then(|text| {
            let hash = SecretHash::parse(text.value);
            if hash.is_none() {
                self.problems.add(
                    &text.span,
                    "`sha256` is 64 hexadecimal digits, as `thalweg token add` writes them",
                );
            }
            hash
        });
        let grants = self.grants(&mut table);
        let expires = self.time(&mut table, "expires");
        let limits = self.limits(&mut table);
        table.end(&mut self.problems);
        Some(TokenRule { id: id?, hash: hash?, grants, expires, limits })
    }

    fn certificate(&mut self, mut table: Table<'t>) -> Option<CertificateRule> {
        let san = table.needed_text("san", &mut self.problems);
        if let Some(san) = &san {
            self.note_id("[[certificate]]", san);
        }
        let grants = self.grants(&mut table);
        let limits = self.limits(&mut table);
        table.end(&mut self.problems);
        Some(CertificateRule { san: san?.value.into(), grants, limits })
    }

    fn signing_key(&mut self, mut table: Table<'t>) -> Option<SigningKeyRule> {
        let id = self.id(&mut table);
        let secret = table.needed_text("secret_file", &mut self.problems);
        let secret = secret.and_then(|name| self.file(&name, Secrecy::Secret, keys::secret));
        let grants = self.grants(&mut table);
        let lifetime_s_max = self.number(&mut table, "lifetime_s_max").unwrap_or(LIFETIME_S_MAX);
        table.end(&mut self.problems);
        Some(SigningKeyRule { id: id?, secret: secret?, grants, lifetime_s_max })
    }

    fn issuer(&mut self, mut table: Table<'t>) -> Option<IssuerRule> {
        let name = table.needed_text("issuer", &mut self.problems);
        if let Some(name) = &name {
            self.note_id("[[issuer]]", name);
        }
        let audience = table.needed_text("audience", &mut self.problems);
        let algorithms = self.algorithms(&mut table);
        let jwks_file = table.text("jwks_file", &mut self.problems);
        let secret_file = table.text("secret_file", &mut self.problems);
        let keys = match (jwks_file, secret_file) {
            // Without algorithms no key can be judged, and that is reported already.
            _ if algorithms.is_empty() => None,
            (Some(name), None) => {
                self.file(&name, Secrecy::Public, |bytes| keys::public(bytes, &algorithms))
            }
            (None, Some(name)) => {
                self.file(&name, Secrecy::Secret, |bytes| keys::shared(bytes, &algorithms))
            }
            _ => {
                let message = "[[issuer]] needs either `jwks_file` or `secret_file`";
                self.problems.add(&table.span().clone(), message);
                None
            }
        };
        let grants_claim = table.text("grants_claim", &mut self.problems);
        let grants = self.templates(&mut table);
        let limits = self.limits(&mut table);
        table.end(&mut self.problems);
        let issuer = Issuer {
            name: name?.value.into(),
            audience: audience?.value.into(),
            algorithms,
            keys: keys?,
            grants_claim: grants_claim.map(|claim| claim.value.into()),
            grants,
        };
        Some(IssuerRule { issuer, limits })
    }

    /// The algorithms of an issuer: symmetric or asymmetric ones, never both.
    fn algorithms(&mut self, table: &mut Table<'t>) -> Vec<Algorithm> {
        let Some(names) = table.texts("algorithms", &mut self.problems) else {
            self.problems.add(
                &table.span().clone(),
                "[[issuer]] needs `algorithms`, as in [\"EdDSA\", \"ES256\"]",
            );
            return Vec::new();
        };
        let mut algorithms: Vec<Algorithm> = Vec::new();
        let mut are_right = true;
        for name in &names {
            let algorithm = name.value.parse::<Algorithm>();
            let message = match &algorithm {
                Err(_) => Some(format!(
                    "`{}` is none of EdDSA, ES256, ES384, RS256, RS384, RS512, PS256, PS384, PS512, HS256, HS384, HS512",
                    name.value
                )),
                Ok(one) if algorithms.iter().any(|other| is_symmetric(*other) != is_symmetric(*one)) => Some(
                    "HS256, HS384 and HS512 do not go beside the others: a public key would be their secret"
                        .to_owned(),
                ),
                Ok(_) => None,
            };
            algorithms.extend(algorithm);
            if let Some(message) = message {
                are_right = false;
                self.problems.add(&name.span, message);
            }
        }
        if names.is_empty() {
            self.problems.add(&table.span().clone(), "`algorithms` names at least one");
        }
        if are_right { algorithms } else { Vec::new() }
    }

    fn file<T>(
        &mut self,
        name: &At<&str>,
        secrecy: Secrecy,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let read = (self.read)(name.value, secrecy).and_then(|bytes| parse(&bytes));
        read.map_err(|why| self.problems.add(&name.span, format!("{} {why}", name.value))).ok()
    }

    fn id(&mut self, table: &mut Table<'t>) -> Option<Box<str>> {
        let id = table.needed_text("id", &mut self.problems)?;
        if !is_id(id.value) {
            self.problems.add(&id.span, "an id is 1 to 64 letters, digits, `-` and `.`");
            return None;
        }
        self.note_id(table.name(), &id);
        Some(id.value.into())
    }

    fn note_id(&mut self, kind: &'static str, id: &At<&str>) {
        if !self.ids.insert((kind, id.value.to_owned())) {
            self.problems.add(&id.span, format!("there is another {kind} `{}`", id.value));
        }
    }

    fn grants(&mut self, table: &mut Table<'t>) -> Vec<Grant> {
        self.grants_by(table, Grant::parse)
    }

    fn templates(&mut self, table: &mut Table<'t>) -> Vec<GrantTemplate> {
        self.grants_by(table, GrantTemplate::parse)
    }

    fn grants_by<G>(
        &mut self,
        table: &mut Table<'t>,
        parse: fn(&str) -> Result<G, GrantError>,
    ) -> Vec<G> {
        let Some(texts) = table.texts("grants", &mut self.problems) else { return Vec::new() };
        if texts.len() > GRANTS_MAX {
            self.problems.add(&table.span().clone(), format!("more than {GRANTS_MAX} grants"));
        }
        let parse = |text: At<&str>| {
            parse(text.value)
                .map_err(|error| {
                    self.problems.add(&text.span, format!("`{}`: {error}", text.value))
                })
                .ok()
        };
        texts.into_iter().filter_map(parse).collect()
    }

    fn limits(&mut self, table: &mut Table<'t>) -> Limits {
        let Some(mut limits) = table.table(("limits", "`limits`"), &mut self.problems) else {
            return Limits::default();
        };
        let found = Limits {
            requests_per_s: self.number(&mut limits, "requests_per_s"),
            creates_per_s: self.number(&mut limits, "creates_per_s"),
            append_bytes_per_s: self.number(&mut limits, "append_bytes_per_s"),
            live_readers: self
                .number(&mut limits, "live_readers")
                .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        };
        limits.end(&mut self.problems);
        found
    }

    /// A whole number of at least 1, which may be a size such as `"8MiB"`.
    fn number(&mut self, table: &mut Table<'t>, key: &'static str) -> Option<u64> {
        let value = table.get(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => {
                number.as_str().replace('_', "").parse().ok()
            }
            DeValue::String(text) => keys::size(text),
            _ => None,
        };
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.problems.add(
                &value.span(),
                format!("`{key}` is a whole number of at least 1, or a size as in \"8MiB\""),
            );
        }
        number
    }

    fn time(&mut self, table: &mut Table<'t>, key: &'static str) -> Option<Timestamp> {
        let value = table.get(key)?;
        let text = match value.get_ref() {
            DeValue::Datetime(time) => time.to_string(),
            DeValue::String(text) => text.to_string(),
            _ => String::new(),
        };
        let at = OffsetDateTime::parse(&text.replacen(' ', "T", 1), &Rfc3339).ok();
        let ms = at.and_then(|at| u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok());
        if ms.is_none() {
            self.problems.add(
                &value.span(),
                format!("`{key}` is a time with its zone, as in 2027-01-01T00:00:00Z"),
            );
        }
        // A time that cannot be read must not become none.
        Some(ms.map_or(Timestamp::new(0), Timestamp::new))
    }
}
