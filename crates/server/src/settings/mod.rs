//! Every setting of the server: one table gives its field, flag, TOML key, environment variable,
//! default, range and help text, so that none of them can drift apart.
//!
//! A setting `append_bytes_max` is the flag `--append-bytes-max`, the key `append_bytes_max` of the
//! settings file and the variable `THALWEG_APPEND_BYTES_MAX`. A flag wins over a variable, a
//! variable over the file, the file over the default. [`Effective::chosen`] keeps the source of every
//! value; `thalweg config` and every error show it.
//!
//! Driven as: [`load()`] with the flags, the environment and a way to read a file. Nothing in here
//! touches the process or the disk by itself. All problems are reported at once.
//!
//! Refused: a `derive` of clap with `env` for each field. Clap cannot distinguish a variable from a flag
//! afterwards, nor name the file and line of a bad value. Layers of partial structs were refused, too:
//! each layer would repeat the list.

mod address;
mod error;
mod flags;
mod kind;
mod load;
mod render;
mod source;
#[cfg(test)]
mod tests;
mod wire_kind;

pub use error::SettingsError;
pub use flags::Flags;
pub use kind::{Anonymous, LogFormat, LogLevel, LogTo};
pub use load::{Effective, Environment, load};
pub use render::render;
pub use source::{Chosen, Source};
pub use wire_kind::{ClientAuth, Hidden, LetIn, Listen, TlsVersion};

use ipnet::IpNet;
use kind::{
    Blocks, Bytes, Choice, Directory, Kind, LogPlace, Number, OptionalAddress, OptionalFile, Switch,
};
use log::WAL_BYTES_MAX;
use model::limits::{APPEND_BYTES_MAX, GROUPS_MAX, POSITION_MAX, PRODUCERS_PER_STREAM_MAX};
use session::PublicUrl;
use std::net::SocketAddr;
use std::path::PathBuf;
use wire_kind::{LetInNames, Listens, Networks, OptionalName, OptionalToken, OptionalUrl};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const MIB64: u64 = 1 << 20;
/// Longest time that a setting may name: a day. Longer ones are mistakes in the unit.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Caches that keep something for so long keep it forever.
const YEAR_S: u32 = 365 * 24 * 60 * 60;

/// One line of the table: all that is known of a setting before its value is.
#[derive(Debug)]
pub struct Setting {
    /// Its name: the key of the settings file and the stem of flag and variable.
    pub key: &'static str,
    /// What it means, in sentences.
    pub help: &'static str,
    /// Its value when nothing is set, in the same text form as a flag takes.
    pub default: &'static str,
    /// The values that it takes, in words.
    pub allowed: fn() -> String,
    /// What stands for the value in help texts.
    pub placeholder: &'static str,
}

impl Setting {
    /// The flag, without its dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("THALWEG_{}", self.key.to_uppercase())
    }
}

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $key:ident: $value:ty = $default:literal as $kind:expr;)+) => {
        /// The effective settings, checked: every field is in its documented range.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            $($(#[doc = $help])+ pub $key: $value,)+
        }

        /// All settings, in the order in which help and `thalweg config` show them.
        pub static TABLE: &[Setting] = &[$(Setting {
            key: stringify!($key),
            help: concat!($($help),+),
            default: $default,
            allowed: || $kind.allowed(),
            placeholder: $kind.placeholder(),
        },)+];

        impl Settings {
            /// Reads the chosen texts; `chosen` holds one element per line of [`TABLE`], in its
            /// order. Problems go to `problems`.
            fn parse(chosen: &[Chosen], problems: &mut Vec<SettingsError>) -> Option<Self> {
                assert_eq!(chosen.len(), TABLE.len(), "one choice per setting");
                let mut next = chosen.iter();
                $(let $key: Option<$value> = parse_one(next.next()?, &$kind, problems);)+
                Some(Self { $($key: $key?,)+ })
            }

            /// Each value as a settings file has it, in the order of [`TABLE`].
            fn to_toml(&self) -> Vec<String> {
                vec![$($kind.to_toml(&self.$key),)+]
            }
        }
    };
}

/// Groups of a data directory, unless the settings or the cluster that it joins say otherwise.
pub(crate) const GROUPS_DEFAULT: u16 = 64;

settings! {
    /// Directory that holds all data. It is made if it is missing; its disk then needs room for two
    /// segments and 2 MiB for each shard.
    data_dir: PathBuf = "./thalweg-data" as Directory;

    /// Whether the data directory may be on btrfs, ZFS or bcachefs. They write changed blocks to new places, so the
    /// write-ahead log cannot keep room for itself. A full disk can then fail a commit. After that the shard takes
    /// no writes until a restart.
    allow_copy_on_write: bool = "off" as Switch;

    /// Addresses and ports that serve streams, with `http://` or `https://` before each. Without that it is
    /// `https` if there is a certificate. Port 0 takes a free one and logs it.
    listen: Vec<Listen> = "127.0.0.1:4437" as Listens;

    /// Certificate chain for TLS, as PEM. It may be replaced while the server runs.
    tls_cert: Option<PathBuf> = "none" as OptionalFile;

    /// Private key of `tls_cert`, as PEM. Others must not be able to read it.
    tls_key: Option<PathBuf> = "none" as OptionalFile;

    /// Directory of further certificates: pairs `X.crt` or `X.pem` and `X.key`, and subdirectories with
    /// `fullchain.pem` and `privkey.pem` or `tls.crt` and `tls.key`. Clients get the one for the name they ask for.
    tls_dir: Option<PathBuf> = "none" as OptionalFile;

    /// Whether the server makes a certificate for itself, in `tls` below `data_dir`. For a laptop: no browser
    /// trusts it unasked.
    tls_self_signed: bool = "off" as Switch;

    /// Oldest version of TLS that is spoken.
    tls_version_min: TlsVersion = "1.2" as Choice(&TlsVersion::NAMES);

    /// Certificates, as PEM, that sign those of clients.
    tls_client_ca: Option<PathBuf> = "none" as OptionalFile;

    /// Whether clients are asked for a certificate: `off`, `optional` or `required`.
    tls_client_auth: ClientAuth = "off" as Choice(&ClientAuth::NAMES);

    /// TLS handshakes in progress at a time, over all shards. Further clients wait.
    tls_handshakes_max: usize = "512" as Number::<usize> { min: 1, max: 100_000 };

    /// How long a TLS handshake may take.
    tls_handshake_timeout_ms: u64 = "10000" as Number::<u64> { min: 1, max: DAY_MS };

    /// Address and port of /healthz, /readyz and /metrics; `off` serves none of them. It has no
    /// access control: keep it off public networks. /healthz fails when an event loop has not run for
    /// a minute, /readyz when a shard refuses writes.
    admin_listen: Option<SocketAddr> = "127.0.0.1:4440" as OptionalAddress;

    /// Address and port for the other nodes of a cluster; `off` is none, and the server is no node. Each of them must know
    /// the cluster's secret. What they say is not encrypted: keep it off public networks.
    peer_listen: Option<SocketAddr> = "off" as OptionalAddress;

    /// Name or address, and port, by which other nodes reach `peer_listen`; `none` is what is listened on.
    advertise: Option<String> = "none" as OptionalName;

    /// Token of a cluster that this node is to join, from `thalweg cluster token` there. The data directory must be empty. Once
    /// the node has joined the token is not needed, and it is never shown.
    join: Option<Hidden> = "none" as OptionalToken;

    /// File with the cluster's secret, in 64 hexadecimal digits; `none` is `cluster.secret` in `data_dir`. The first start
    /// with `peer_listen` makes it. Others must not be able to read it.
    cluster_secret_file: Option<PathBuf> = "none" as OptionalFile;

    /// Seconds after which a node that is away is replaced: its groups get replicas on other nodes, if enough are there. When it
    /// comes back, it gets some again. 0 is never. The node that leads the cluster's own group decides.
    replace_after_seconds: u64 = "600" as Number::<u64> { min: 0, max: 31_536_000 };

    /// File with tokens, issuers and grants: who may do what. `thalweg token add` writes it. It may be replaced while the server
    /// runs.
    access_file: Option<PathBuf> = "none" as OptionalFile;

    /// What clients may do that show no credential. `auto`: what the access file says, or everything if there is none
    /// and the server listens on loopback alone. `all`: everything. `none`: nothing.
    anonymous: Anonymous = "auto" as Choice(&Anonymous::NAMES);

    /// Whether HTTP/2 is spoken: over TLS with clients that ask for it, and in plain with those that begin with it.
    http2: bool = "on" as Switch;

    /// Requests that one connection of HTTP/2 may have under way, live readers included. Each may hold a window of 64 KiB.
    http2_streams_max: u32 = "256" as Number::<u32> { min: 1, max: 10_000 };

    /// Names that `Host` may have besides addresses, `localhost` and what ends with `.localhost`; `*` is all. `auto` is
    /// none of them where everybody on this machine may do everything, and all elsewhere. Web pages can bind their own
    /// names to this machine.
    allowed_hosts: LetIn = "auto" as LetInNames { example: "streams.example.com", has_scheme: false };

    /// Origins of web pages that may change streams, besides those of this machine; `*` is all. `auto` is none of them
    /// where everybody on this machine may do everything or where clients are asked for certificates, and all elsewhere.
    /// With a list, pages of other origins see no answers either.
    cors_origins: LetIn = "auto" as LetInNames { example: "https://app.example.com", has_scheme: true };

    /// Whether pages of listed origins may use what a browser knows of its user: certificates. It needs a list in
    /// `cors_origins`.
    cors_credentials: bool = "off" as Switch;

    /// Seconds for which caches may keep an answer that ends at the tail of a stream: so old may be what a plain GET gets.
    /// While a cache asks again it may answer for five times as long, at most 300 s. With 0 it asks each time. What
    /// never changes is kept for a year all the same.
    tail_max_age_s: u32 = "60" as Number::<u32> { min: 0, max: YEAR_S };

    /// The URL under which clients know the server if a proxy is in front of it. `Location` begins with it. Its path may be there
    /// or not in what the proxy forwards, and in `Stream-Forked-From`.
    public_url: Option<PublicUrl> = "none" as OptionalUrl;

    /// Proxies whose `X-Forwarded-For` says who a client is, for limits by address, and whose `X-Forwarded-Proto` and
    /// `X-Forwarded-Host` say what it has reached. From all others these fields count for nothing.
    trusted_proxies: Vec<IpNet> = "none" as Networks;

    /// Event loops; each has its own connections, groups and write-ahead log. 0 takes one for
    /// every two cores, since the log's syncs have a thread, too. It may differ from one start to
    /// the next.
    shards: u16 = "0" as Number::<u16> { min: 0, max: 256 };

    /// Groups (replicated logs) among which streams are spread. Fixed when the data directory is
    /// made; a later start with another number is refused.
    groups: u16 = "64" as Number::<u16> { min: 1, max: GROUPS_MAX };

    /// Largest body of one append or create.
    append_bytes_max: usize = "64MiB" as Bytes::<usize> { min: 1, max: APPEND_BYTES_MAX };

    /// Idempotent producers that a stream remembers. A new one takes the place of the one that was unused for longest.
    /// What that one repeats later is taken for new. A change holds from the next start on.
    producers_per_stream_max: u32 = "4096" as Number::<u32> { min: 1, max: PRODUCERS_PER_STREAM_MAX };

    /// Largest request line and headers together; a larger head is refused.
    head_bytes_max: usize = "32KiB" as Bytes::<usize> { min: KIB, max: MIB };

    /// Most headers in one request.
    head_count_max: usize = "100" as Number::<usize> { min: 16, max: 1000 };

    /// Connections open at a time, over all shards. One more gets the answer to retry later.
    connections_max: usize = "20000" as Number::<usize> { min: 1, max: 1_000_000 };

    /// Bytes of request bodies held in memory at a time, over all shards. A request that would
    /// exceed it gets the answer to retry later. At least `append_bytes_max`.
    body_bytes_in_flight_max: usize = "256MiB" as Bytes::<usize> { min: 1, max: 1 << 40 };

    /// How long a request's head may take from its first to its last byte.
    head_timeout_ms: u64 = "10000" as Number::<u64> { min: 1, max: DAY_MS };

    /// Slowest body, averaged from its first byte, that is not cut off. 0 allows any.
    body_bytes_per_second_min: u64 = "1024" as Number::<u64> { min: 0, max: MIB64 };

    /// How long a body may take before `body_bytes_per_second_min` is asked of it.
    body_grace_ms: u64 = "5000" as Number::<u64> { min: 0, max: DAY_MS };

    /// How long a connection may wait between two requests.
    idle_timeout_ms: u64 = "75000" as Number::<u64> { min: 1, max: DAY_MS };

    /// How long a client may take no byte of an answer before its connection is closed.
    write_stall_timeout_ms: u64 = "30000" as Number::<u64> { min: 1, max: DAY_MS };

    /// How long a long-poll waits for data before it is answered without any. Keep it below the
    /// timeouts of proxies on the way.
    long_poll_timeout_ms: u64 = "20000" as Number::<u64> { min: 1, max: DAY_MS };

    /// How long one SSE answer lasts before the reader is asked to reconnect, which lets caches
    /// and load balancers spread readers again.
    sse_max_duration_ms: u64 = "60000" as Number::<u64> { min: 1, max: DAY_MS };

    /// How often a silent SSE answer carries a comment, so that proxies keep it open.
    sse_heartbeat_ms: u64 = "15000" as Number::<u64> { min: 1, max: DAY_MS };

    /// How far the wall clock may be ahead of where the monotonic clock says that it should be. At a start the last entry
    /// says that. A clock that is further ahead is not believed. Nothing expires until it is right again or an
    /// operator confirms it, by a PUT of /clock/confirm at `admin_listen`. 0 believes every clock.
    clock_jump_ms_max: u64 = "3600000" as Number::<u64> { min: 0, max: DAY_MS };

    /// Seconds for which a stream keeps what was appended, unless it says so itself. 0 is forever. Here and below at
    /// least as much is kept; what goes, goes by whole appends.
    retention_age_seconds: u64 = "0" as Number::<u64> { min: 0, max: POSITION_MAX };

    /// Bytes that a stream keeps, unless it says so itself. 0 keeps all.
    retention_bytes: u64 = "0" as Bytes::<u64> { min: 0, max: POSITION_MAX };

    /// Records that a stream keeps, unless it says so itself. 0 keeps all.
    retention_records: u64 = "0" as Number::<u64> { min: 0, max: POSITION_MAX };

    /// How long requests in progress may take to end after SIGTERM or SIGINT.
    shutdown_timeout_ms: u64 = "2000" as Number::<u64> { min: 0, max: DAY_MS };

    /// Disk space of one shard's write-ahead log; groups are sealed into chunks early to stay
    /// below it. At least four segments.
    wal_bytes_max: u64 = "1GiB" as Bytes::<u64> { min: 4 * MIB64, max: WAL_BYTES_MAX };

    /// Size of one segment file of a write-ahead log; a larger append gets a segment of its own. Each
    /// has a descriptor, so a log may have 256 of them: `wal_bytes_max` is at most 256 times as much.
    segment_bytes: u64 = "64MiB" as Blocks { min: MIB64, max: WAL_BYTES_MAX / 4 };

    /// Committed data of one group that is sealed into one chunk file. Where there are 64 groups, 6,144 appends are
    /// enough, too. Short appends are sealed earlier, before they leave the memory of `recent_bytes_max`.
    seal_bytes: u64 = "8MiB" as Bytes::<u64> { min: 64 << 10, max: 1 << 30 };

    /// Largest chunk file that merges make. Each holds older data of one group.
    chunk_bytes_max: u64 = "256MiB" as Bytes::<u64> { min: 64 << 10, max: 1 << 30 };

    /// Memory for what was committed last, over all shards: clients that read it need no file. A twelfth of it is for what many
    /// clients read that is older and in no chunk yet. 0 keeps nothing.
    recent_bytes_max: u64 = "128MiB" as Bytes::<u64> { min: 0, max: 1 << 36 };

    /// Memory for pages of chunk files, over all shards: what finds older data without a look at the disk.
    chunk_pages_bytes_max: u64 = "32MiB" as Bytes::<u64> { min: 64 << 10, max: 1 << 36 };

    /// Chunk files that are open at once, over all shards. Others are opened when they are read.
    chunk_files_max: u64 = "512" as Number::<u64> { min: 4, max: 1 << 20 };

    /// Whether answers are compressed for clients that accept it.
    gzip: bool = "on" as Switch;

    /// Where a line of JSON goes for each exchange: a file, `stderr` or `off`. No request waits for it: lines that are not
    /// taken in time are lost and counted. A reload opens the file again.
    access_log: LogTo = "off" as LogPlace;

    /// The same for what was denied, for deletes, trims and changes of retention, and for reloads.
    audit_log: LogTo = "off" as LogPlace;

    /// Form of the log on standard error: `text` for people, `json` for machines.
    log_format: LogFormat = "text" as Choice(&LogFormat::NAMES);

    /// Least urgent level that is logged. An `error` means that a person must look.
    log_level: LogLevel = "info" as Choice(&LogLevel::NAMES);
}

impl Settings {
    /// Whether a certificate is named or made.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.tls_cert.is_some() || self.tls_dir.is_some() || self.tls_self_signed
    }

    /// Whether TLS is spoken at an address of `listen`.
    #[must_use]
    pub fn speaks_tls(&self, listen: &Listen) -> bool {
        listen.tls.unwrap_or_else(|| self.has_certificate())
    }

    /// Serves one address without TLS, as tools do.
    pub fn listen_on(&mut self, address: SocketAddr) {
        self.listen = vec![Listen { tls: Some(false), address }];
    }

    /// Event loops to start on a machine with `cores` cores.
    #[must_use]
    pub fn shard_count(&self, cores: usize) -> u16 {
        if self.shards > 0 {
            return self.shards;
        }
        u16::try_from(cores.div_ceil(2).clamp(1, 256)).expect("clamped to the range of the setting")
    }
}

fn parse_one<K: Kind>(
    chosen: &Chosen,
    kind: &K,
    problems: &mut Vec<SettingsError>,
) -> Option<K::Value> {
    let value = kind.parse(&chosen.text);
    if value.is_none() {
        problems.push(SettingsError::BadValue {
            chosen: chosen.clone(),
            allowed: (chosen.setting.allowed)(),
        });
    }
    value
}

/// The setting whose key is `key`.
fn find(key: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|setting| setting.key == key)
}

/// The name among `names` that `wrong` most likely meant: at most a third of it is different.
fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3))
        .min()
        .map(|(_, name)| name)
}
