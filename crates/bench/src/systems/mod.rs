//! Every system that can be measured: how it is called, asked, started, and when it acknowledges.
//!
//! `cargo xtask peers` installs the peers into one directory, a root for each, in the exact versions
//! that are written here. They start as their own pages say for one durable node. Limits are raised
//! where the default would end a measurement; [`launch`] has the flags.

mod launch;

pub(crate) use launch::{Launch, Probe, Ready};

use crate::api::ApiStyle;
use crate::failure::{Failure, Outcome};
use clap::ValueEnum;
use std::path::{Path, PathBuf};

/// What is started and measured.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum System {
    /// This server
    #[value(alias = "server")]
    Thalweg,
    /// A responder that reads the same requests and stores nothing: what the machine can do at most
    Bare,
    /// The same on hyper, the HTTP library of most servers in Rust
    BareHyper,
    /// The same for readers: their sockets, heads and frames, and a file that is sent
    BareReaders,
    /// The same, with a block written and synced before each append is acknowledged
    BareSynced,
    /// Durable Streams' server in Rust, with its write-ahead log
    DurableStreams,
    /// The same without the log
    DurableStreamsMemory,
    /// Durable Streams' reference server on Node.js, with files
    DurableStreamsNode,
    /// The crate durable-streams-server, on axum, with files
    DurableStreamsAxum,
    /// Ursula, one node, with its log synced
    Ursula,
    /// The same, with its log in the page cache
    UrsulaPageCache,
    /// S2 Lite on the local disk
    S2Lite,
    /// NATS JetStream with its files synced
    Nats,
    /// The same, with its files in the page cache
    NatsPageCache,
    /// Kafka, one broker, with its log flushed for every append
    Kafka,
    /// The same, with its log in the page cache
    KafkaPageCache,
}

/// Where programs are, and where a system's files go.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The server of this project.
    pub(crate) thalweg: PathBuf,
    /// More flags for it.
    pub(crate) thalweg_flags: Vec<String>,
    /// Where peers were installed.
    pub(crate) peers: PathBuf,
}

impl System {
    /// Its name on the command line.
    pub(crate) fn key(self) -> String {
        let value = self.to_possible_value().expect("no system is hidden");
        value.get_name().to_owned()
    }

    /// Its name in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Thalweg => "Thalweg",
            Self::Bare => "bare responder",
            Self::BareHyper => "bare responder on hyper",
            Self::BareReaders => "bare responder for readers",
            Self::BareSynced => "bare responder, synced",
            Self::DurableStreams => "Durable Streams (Rust)",
            Self::DurableStreamsMemory => "Durable Streams (Rust), memory",
            Self::DurableStreamsNode => "Durable Streams (Node)",
            Self::DurableStreamsAxum => "durable-streams-server (axum)",
            Self::Ursula => "Ursula",
            Self::UrsulaPageCache => "Ursula, page cache",
            Self::S2Lite => "S2 Lite",
            Self::Nats => "NATS JetStream",
            Self::NatsPageCache => "NATS JetStream, page cache",
            Self::Kafka => "Kafka",
            Self::KafkaPageCache => "Kafka, page cache",
        }
    }

    /// The release that is measured; none for what is built here.
    pub(crate) fn version(self) -> Option<&'static str> {
        match self {
            Self::Thalweg | Self::Bare | Self::BareHyper | Self::BareReaders | Self::BareSynced => {
                None
            }
            Self::DurableStreams | Self::DurableStreamsMemory => Some("0.1.5"),
            Self::DurableStreamsNode => Some("0.3.7"),
            Self::DurableStreamsAxum => Some("0.3.0"),
            Self::Ursula | Self::UrsulaPageCache => Some("0.11.5"),
            Self::S2Lite => Some("0.43.4"),
            Self::Nats | Self::NatsPageCache => Some("2.15.1"),
            Self::Kafka | Self::KafkaPageCache => Some("4.3.1"),
        }
    }

    /// When it acknowledges an append: what no figure may be read without.
    pub(crate) fn durability(self) -> &'static str {
        match self {
            Self::Thalweg => "fdatasync before every acknowledgement, one node",
            Self::Bare | Self::BareHyper => "stores nothing",
            Self::BareReaders => "keeps it in memory",
            Self::BareSynced => {
                "keeps it in memory; fdatasync of its bytes before every acknowledgement"
            }
            Self::DurableStreams => {
                "fdatasync of its log before an append is acknowledged, one node"
            }
            Self::DurableStreamsMemory => "page cache: no log, no sync",
            Self::DurableStreamsNode => "fdatasync of the stream's file per append, one node",
            Self::DurableStreamsAxum => "fdatasync of the stream's file per append, one node",
            Self::Ursula => "fsync of its log before an append is acknowledged, one voter",
            Self::UrsulaPageCache => "page cache: its log is not synced, one voter",
            Self::S2Lite => {
                "fsync of the object that holds an append before it is acknowledged, one node"
            }
            Self::Nats => "fsync of its file for each message (sync_interval always), one replica",
            Self::Kafka => {
                "fsync of the partition's log before an append is acknowledged \
                 (log.flush.interval.messages=1), acks=all of one replica"
            }
            Self::KafkaPageCache => {
                "page cache: the system writes when it likes (Kafka's default), acks=all of one replica"
            }
            Self::NatsPageCache => {
                "page cache: synced every two minutes (sync_interval's default), one replica"
            }
        }
    }

    pub(crate) fn style(self) -> ApiStyle {
        match self {
            Self::Ursula | Self::UrsulaPageCache => ApiStyle::Ursula,
            Self::S2Lite => ApiStyle::S2,
            Self::Nats | Self::NatsPageCache => ApiStyle::Nats,
            Self::Kafka | Self::KafkaPageCache => ApiStyle::Kafka,
            _ => ApiStyle::Durable,
        }
    }

    /// Whether it stores what it acknowledges, so that it can be read back.
    pub(crate) fn stores(self) -> bool {
        !matches!(self, Self::Bare | Self::BareHyper | Self::BareReaders | Self::BareSynced)
    }

    /// The file that must be there to start it.
    pub(crate) fn program(self, places: &Places) -> Outcome<PathBuf> {
        let below = |path: &str| places.peers.join(path);
        Ok(match self {
            Self::Thalweg => places.thalweg.clone(),
            Self::Bare | Self::BareHyper | Self::BareReaders | Self::BareSynced => {
                std::env::current_exe()?
            }
            Self::DurableStreams | Self::DurableStreamsMemory => {
                below("durable-streams/bin/durable-streams-server")
            }
            Self::DurableStreamsNode => below("node/node_modules/@durable-streams/server"),
            Self::DurableStreamsAxum => below("durable-streams-axum/bin/durable-streams-server"),
            Self::Ursula | Self::UrsulaPageCache => below("ursula/bin/ursula"),
            Self::S2Lite => below("s2/bin/s2"),
            Self::Nats | Self::NatsPageCache => below("nats/bin/nats-server"),
            Self::Kafka | Self::KafkaPageCache => below("kafka/libs"),
        })
    }

    /// Says what to do if it is not installed.
    pub(crate) fn check_installed(self, places: &Places) -> Outcome<()> {
        let program = self.program(places)?;
        if program.exists() {
            return Ok(());
        }
        let path = program.display();
        Err(Failure::new(match self {
            Self::Thalweg => format!(
                "there is no server at {path}; build it with `cargo build --release`, name another \
                 one with --server-bin, or take one that runs with --url"
            ),
            _ => format!(
                "{} is not installed: there is no {path}; run `cargo xtask peers`, or name the \
                 directory with --peers-dir",
                self.label()
            ),
        }))
    }
}

/// Where `cargo xtask peers` puts them: `target/peers`, when this program is in `target/release`.
pub(crate) fn default_peers_directory(own: &Path) -> PathBuf {
    let target = own.parent().and_then(Path::parent);
    target.map_or_else(|| PathBuf::from("target/peers"), |target| target.join("peers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_missing_says_how_to_get_it() {
        let places = Places {
            thalweg: "no-such-server".into(),
            thalweg_flags: Vec::new(),
            peers: "no-such-directory".into(),
        };
        for system in System::value_variants().iter().filter(|system| system.stores()) {
            let failure = system.check_installed(&places).unwrap_err().to_string();
            let advice =
                if *system == System::Thalweg { "cargo build" } else { "cargo xtask peers" };
            assert!(failure.contains(advice), "{failure}");
        }
        assert!(System::Bare.check_installed(&places).is_ok());
    }

    #[test]
    fn every_peer_has_a_version_and_a_durability() {
        for system in System::value_variants() {
            let is_ours = *system == System::Thalweg || !system.stores();
            assert_eq!(system.version().is_none(), is_ours, "{system:?}");
            assert!(!system.durability().is_empty());
        }
    }

    #[test]
    fn peers_are_beside_the_build() {
        let found = default_peers_directory(Path::new("x/target/release/thalweg-bench"));
        assert_eq!(found, Path::new("x/target/peers"));
    }
}
