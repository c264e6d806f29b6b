//! From flags, environment, file and defaults to checked settings.

use super::{Chosen, Flags, Setting, Settings, SettingsError, Source, TABLE, find, nearest};
use log::{ALL_SEGMENTS_MAX, WAL_SEGMENTS_MAX};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

const CONFIG_VARIABLE: &str = "THALWEG_CONFIG";
const PREFIX: &str = "THALWEG_";

/// The variables of the process that are meant for us.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// Keeps those of `variables` whose name starts with `THALWEG_`.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let named = variables.into_iter().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            name.starts_with(PREFIX).then_some((name, value))
        });
        Self(named.collect())
    }

    fn text(&self, variable: &str) -> Result<Option<String>, SettingsError> {
        let Some(value) = self.0.get(variable) else { return Ok(None) };
        // Set to nothing is not set: compose files cannot leave a variable out.
        if value.is_empty() {
            return Ok(None);
        }
        let text = value.to_str().map(str::to_owned);
        text.map(Some).ok_or_else(|| SettingsError::NotText { variable: variable.to_owned() })
    }

    /// Variables that look like a misspelt setting. Others with our prefix are left alone:
    /// container platforms invent names such as `THALWEG_SERVICE_HOST`.
    fn misspelt(&self) -> Vec<String> {
        let known: Vec<String> = TABLE.iter().map(Setting::variable).collect();
        let unknown =
            self.0.keys().filter(|name| *name != CONFIG_VARIABLE && !known.contains(name));
        unknown
            .filter_map(|name| {
                let stem = name.strip_prefix(PREFIX)?.to_lowercase();
                let meant = find(nearest(&stem, TABLE.iter().map(|setting| setting.key))?)?;
                Some(format!("{name} is no setting; did you mean {}?", meant.variable()))
            })
            .collect()
    }
}

/// The settings in force and how they came about.
#[derive(Debug)]
pub struct Effective {
    /// The checked values.
    pub settings: Settings,
    /// The text and origin of each, in the order of the table.
    pub chosen: Vec<Chosen>,
    /// What looks like a mistake but does not stop a start, one sentence each.
    pub warnings: Vec<String>,
}

/// Chooses and checks every setting: flag before variable before file before default. `read_file`
/// is asked for the settings file only if one is named.
///
/// # Errors
/// Every [`SettingsError`] there is, so that a person can correct all of them at once.
pub fn load(
    flags: &Flags,
    environment: &Environment,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Effective, Vec<SettingsError>> {
    let mut problems = Vec::new();
    let in_file = file_values(flags, environment, read_file, &mut problems);
    let chosen: Vec<Chosen> = TABLE
        .iter()
        .map(|setting| choose(setting, flags, environment, &in_file, &mut problems))
        .collect();
    let settings = Settings::parse(&chosen, &mut problems);
    if let Some(settings) = &settings {
        check_relations(settings, &chosen, &mut problems);
    }
    match settings {
        Some(settings) if problems.is_empty() => {
            Ok(Effective { settings, chosen, warnings: environment.misspelt() })
        }
        _ => Err(problems),
    }
}

fn choose(
    setting: &'static Setting,
    flags: &Flags,
    environment: &Environment,
    in_file: &BTreeMap<&'static str, Chosen>,
    problems: &mut Vec<SettingsError>,
) -> Chosen {
    if let Some(text) = flags.values.get(setting.key) {
        let source = Source::Flag { flag: setting.flag() };
        return Chosen { setting, text: text.clone(), source };
    }
    let variable = setting.variable();
    match environment.text(&variable) {
        Ok(Some(text)) => {
            return Chosen { setting, text, source: Source::Environment { variable } };
        }
        Ok(None) => {}
        Err(problem) => problems.push(problem),
    }
    in_file.get(setting.key).cloned().unwrap_or_else(|| Chosen {
        setting,
        text: setting.default.to_owned(),
        source: Source::Default,
    })
}

fn file_values(
    flags: &Flags,
    environment: &Environment,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
    problems: &mut Vec<SettingsError>,
) -> BTreeMap<&'static str, Chosen> {
    let named = match (&flags.config, environment.text(CONFIG_VARIABLE)) {
        (Some(path), _) => Some(path.clone()),
        (None, Ok(text)) => text.map(PathBuf::from),
        (None, Err(problem)) => {
            problems.push(problem);
            None
        }
    };
    let Some(path) = named else { return BTreeMap::new() };
    match read_file(&path) {
        Ok(text) => parse_file(&path, &text, problems),
        Err(error) => {
            problems.push(SettingsError::Unreadable { path, error });
            BTreeMap::new()
        }
    }
}

fn parse_file(
    path: &Path,
    text: &str,
    problems: &mut Vec<SettingsError>,
) -> BTreeMap<&'static str, Chosen> {
    let mut values = BTreeMap::new();
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            problems.push(SettingsError::Malformed {
                path: path.to_owned(),
                line: line_of(text, error.span()),
                message: error.message().to_owned(),
            });
            return values;
        }
    };
    for (key, value) in table.get_ref() {
        let line = line_of(text, Some(key.span()));
        let key: &str = key.get_ref();
        match find(key) {
            Some(setting) => {
                let text = value_text(value.get_ref());
                let source = Source::File { path: path.to_owned(), line };
                values.insert(setting.key, Chosen { setting, text, source });
            }
            None => problems.push(SettingsError::UnknownKey {
                path: path.to_owned(),
                line,
                key: key.to_owned(),
                nearest: nearest(key, TABLE.iter().map(|setting| setting.key)),
            }),
        }
    }
    values
}

fn line_of(text: &str, span: Option<Range<usize>>) -> usize {
    let start = span.map_or(0, |span| span.start).min(text.len());
    text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A TOML value in the text form that flags take. Kinds that no setting takes become words that
/// no setting takes.
fn value_text(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.clone().into_owned(),
        DeValue::Integer(number) => {
            let decimal = i64::from_str_radix(number.as_str(), number.radix());
            decimal.map_or_else(|_| number.as_str().to_owned(), |number| number.to_string())
        }
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(values) => {
            let texts: Vec<String> =
                values.iter().map(|value| value_text(value.get_ref())).collect();
            texts.join(",")
        }
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Whether a rule holds, the keys of its two settings, and what it says.
type Rule = (bool, &'static str, &'static str, &'static str);

/// Rules between two settings; a rule within one is its range in the table.
fn check_relations(settings: &Settings, chosen: &[Chosen], problems: &mut Vec<SettingsError>) {
    let s = settings;
    let is_admin = |listen: &super::Listen| {
        listen.address.port() != 0 && Some(listen.address) == s.admin_listen
    };
    let same_port = s.listen.iter().any(is_admin);
    let segment_count = u64::from(s.shards.max(1)) * (s.wal_bytes_max / s.segment_bytes);
    let rules: [Rule; 6] = [
        (!same_port, "listen", "admin_listen", "streams and admin need two addresses"),
        (
            s.body_bytes_in_flight_max >= s.append_bytes_max,
            "body_bytes_in_flight_max",
            "append_bytes_max",
            "all bodies together must be allowed at least the bytes of one",
        ),
        (
            s.wal_bytes_max / 4 >= s.segment_bytes,
            "wal_bytes_max",
            "segment_bytes",
            "a write-ahead log needs room for at least four segments",
        ),
        (
            s.wal_bytes_max / s.segment_bytes <= WAL_SEGMENTS_MAX,
            "wal_bytes_max",
            "segment_bytes",
            "a write-ahead log has at most 256 segments, each of them an open file: take larger segments or a \
             smaller wal_bytes_max",
        ),
        (
            segment_count <= ALL_SEGMENTS_MAX,
            "shards",
            "segment_bytes",
            "the write-ahead logs of all shards have at most 32768 segments: take larger segments, a smaller \
             wal_bytes_max or fewer shards",
        ),
        (
            s.seal_bytes <= s.wal_bytes_max / 4,
            "seal_bytes",
            "wal_bytes_max",
            "a group must be sealed before it fills a quarter of the write-ahead log",
        ),
    ];
    let all = rules.into_iter().chain(tls_rules(s)).chain(peer_rules(s)).chain([cors_rule(s)]);
    for (holds, left, right, rule) in all {
        if !holds {
            let of = |key| {
                let found = chosen.iter().find(|chosen| chosen.setting.key == key);
                Box::new(found.expect("a rule names settings of the table").clone())
            };
            problems.push(SettingsError::Conflict { left: of(left), right: of(right), rule });
        }
    }
}

fn peer_rules(s: &Settings) -> [Rule; 5] {
    let peers = s.peer_listen;
    let is_streams = s.listen.iter().any(|listen| Some(listen.address) == peers);
    [
        (!is_streams, "peer_listen", "listen", "streams and other nodes need two addresses"),
        (
            peers.is_none() || peers != s.admin_listen,
            "peer_listen",
            "admin_listen",
            "other nodes and admin need two addresses",
        ),
        (
            peers.is_none_or(|listen| listen.port() > 0),
            "peer_listen",
            "advertise",
            "other nodes must find this one after a restart: peer_listen needs a port",
        ),
        (
            s.advertise.is_none() || peers.is_some(),
            "advertise",
            "peer_listen",
            "nobody can be told where this node is if it does not listen",
        ),
        (
            s.join.is_none() || peers.is_some(),
            "peer_listen",
            "join",
            "a node that joins must say where the others reach it",
        ),
    ]
}

fn cors_rule(s: &Settings) -> Rule {
    (
        !s.cors_credentials || matches!(s.cors_origins, super::LetIn::Listed(_)),
        "cors_credentials",
        "cors_origins",
        "certificates of users are for pages of named origins alone: cors_origins must be a list",
    )
}

fn tls_rules(s: &Settings) -> [Rule; 4] {
    let wants_tls = s.listen.iter().any(|listen| s.speaks_tls(listen));
    [
        (
            !wants_tls || s.has_certificate(),
            "listen",
            "tls_cert",
            "an https:// address needs a certificate: tls_cert with tls_key, tls_dir or tls_self_signed",
        ),
        (
            s.tls_cert.is_some() == s.tls_key.is_some(),
            "tls_cert",
            "tls_key",
            "a certificate needs its key, and a key its certificate",
        ),
        (
            !(s.tls_self_signed && (s.tls_cert.is_some() || s.tls_dir.is_some())),
            "tls_self_signed",
            "tls_cert",
            "a server with a certificate makes none for itself",
        ),
        (
            (s.tls_client_auth == super::ClientAuth::Off) == s.tls_client_ca.is_none(),
            "tls_client_auth",
            "tls_client_ca",
            "certificates of clients need both: tls_client_auth other than off, and tls_client_ca",
        ),
    ]
}
