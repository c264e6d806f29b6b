//! How each system is started on an empty directory and loopback ports.

use super::{Places, System};
use crate::failure::Outcome;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Flags of every server of ours: readers and connections stay as long as the measurement.
const LASTING: [&str; 2] = ["--sse-max-duration-ms=3600000", "--idle-timeout-ms=3600000"];

/// The memory that Kafka's own script gives it, and how its garbage is collected.
const KAFKA_HEAP: [&str; 2] = ["-Xmx1G", "-Xms1G"];
const KAFKA_JVM: [&str; 6] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];

/// Groups of a cluster of Ursula: as many as ours has.
const VOTERS_GROUPS: usize = 64;

/// A cluster's name must be 16 bytes in base 64.
const KAFKA_CLUSTER: &str = "dGhhbHdlZy1iZW5jaC0xMQ";

/// Everything that starts a system.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) flags: Vec<String>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Where it runs, if that matters to it.
    pub(crate) directory: Option<PathBuf>,
    /// A file that it reads.
    pub(crate) settings: Option<(PathBuf, String)>,
    /// Flags of the same program, to be run to its end first; none if there is nothing to prepare.
    pub(crate) prepare: Vec<String>,
    /// What of it people must know to repeat it.
    pub(crate) shown: String,
    /// Where its streams are.
    pub(crate) listen: SocketAddr,
    pub(crate) ready: Ready,
}

/// How it is known to be ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) address: SocketAddr,
    pub(crate) probe: Probe,
}

/// What is tried until it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A path that is answered 200.
    Ok(&'static str),
    /// Any answer will do: there is no path for this.
    Answer,
    /// A connection will do: it does not speak HTTP.
    Connection,
}

impl System {
    /// How a node of ours is started with `data` as its directory.
    pub(crate) fn launch_in(
        self,
        places: &Places,
        data: &Path,
        addresses: [SocketAddr; 2],
    ) -> Outcome<Launch> {
        let launch = Launch::new(self.program(places)?, addresses[0]);
        Ok(launch.thalweg(places, &data.display().to_string(), addresses))
    }

    /// How nodes of Ursula are started that listen on these addresses.
    pub(crate) fn launch_voters(
        self,
        places: &Places,
        scratch: &Path,
        nodes: &[[SocketAddr; 2]],
    ) -> Outcome<Vec<Launch>> {
        let launch = |number: usize| {
            let launch = Launch::new(self.program(places)?, nodes[number - 1][0]);
            Ok(launch.ursula(scratch, (number, nodes), self.ursula_fsync()))
        };
        (1..=nodes.len()).map(launch).collect()
    }

    fn ursula_fsync(self) -> &'static str {
        if self == Self::Ursula { "always" } else { "never" }
    }

    /// How it is started with its files in `scratch`; it listens on the first address, and may use
    /// the second.
    pub(crate) fn launch(
        self,
        places: &Places,
        scratch: &Path,
        addresses: [SocketAddr; 2],
    ) -> Outcome<Launch> {
        let [listen, _] = addresses;
        let launch = Launch::new(self.program(places)?, listen);
        let data = scratch.join("data").display().to_string();
        Ok(match self {
            Self::Thalweg => self.launch_in(places, &scratch.join("data"), addresses)?,
            Self::Bare => launch.flags(["bare".to_owned(), listen.to_string()]),
            Self::BareHyper => {
                launch.flags(["bare".to_owned(), listen.to_string(), "--hyper".to_owned()])
            }
            Self::BareReaders => {
                launch.flags(["bare".to_owned(), listen.to_string(), "--readers".to_owned()])
            }
            Self::BareSynced => launch.flags(
                [
                    "bare",
                    &listen.to_string(),
                    "--readers",
                    "--sync-dir",
                    &scratch.display().to_string(),
                ]
                .map(str::to_owned),
            ),
            Self::DurableStreams => launch.durable_streams(&data, "wal"),
            Self::DurableStreamsMemory => launch.durable_streams(&data, "memory"),
            Self::DurableStreamsNode => launch.node(places, &data),
            Self::DurableStreamsAxum => launch.axum(&data),
            Self::Ursula | Self::UrsulaPageCache => {
                launch.ursula(scratch, (1, &[addresses]), self.ursula_fsync())
            }
            Self::S2Lite => launch.s2_lite(&data),
            Self::Nats => launch.nats(scratch, addresses, Some("always")),
            Self::NatsPageCache => launch.nats(scratch, addresses, None),
            Self::Kafka => launch.kafka(scratch, addresses, "log.flush.interval.messages=1"),
            Self::KafkaPageCache => launch.kafka(scratch, addresses, ""),
        })
    }
}

impl Launch {
    fn new(binary: PathBuf, listen: SocketAddr) -> Self {
        Self {
            binary,
            flags: Vec::new(),
            variables: Vec::new(),
            directory: None,
            settings: None,
            prepare: Vec::new(),
            shown: String::new(),
            listen,
            ready: Ready { address: listen, probe: Probe::Answer },
        }
    }

    fn flags(mut self, flags: impl IntoIterator<Item = String>) -> Self {
        self.flags.extend(flags);
        self
    }

    fn ready(mut self, address: SocketAddr, path: &'static str) -> Self {
        self.ready = Ready { address, probe: Probe::Ok(path) };
        self
    }

    fn thalweg(mut self, places: &Places, data: &str, addresses: [SocketAddr; 2]) -> Self {
        let [listen, admin] = addresses;
        let shown = LASTING.iter().map(|flag| (*flag).to_owned());
        let shown: Vec<String> = shown.chain(places.thalweg_flags.iter().cloned()).collect();
        self.shown = shown.join(" ");
        let own = [
            "serve".to_owned(),
            format!("--listen={listen}"),
            format!("--admin-listen={admin}"),
            format!("--data-dir={data}"),
        ];
        self.flags(own).flags(shown).ready(admin, "/readyz")
    }

    fn durable_streams(mut self, data: &str, durability: &str) -> Self {
        self.shown = format!("--durability {durability}");
        let port = self.listen.port().to_string();
        let flags =
            ["--port", &port, "--data-dir", data, "--durability", durability].map(str::to_owned);
        self.flags(flags)
    }

    /// The package is a library: this is the program that its page shows.
    fn node(mut self, places: &Places, data: &str) -> Self {
        let port = self.listen.port();
        let data_text = format!("{data:?}");
        let script = format!(
            "import {{ DurableStreamTestServer }} from '@durable-streams/server'; \
             await new DurableStreamTestServer({{ port: {port}, host: '127.0.0.1', \
             dataDir: {data_text} }}).start()"
        );
        self.binary = "node".into();
        self.directory = Some(places.peers.join("node"));
        self.shown = "dataDir set, else defaults".to_owned();
        self.flags(["--input-type=module".to_owned(), "-e".to_owned(), script])
    }

    /// Its bounds on memory and on a stream's length would refuse what is measured.
    fn axum(mut self, data: &str) -> Self {
        let gib: u64 = 1 << 30;
        self.variables = vec![
            ("DS_SERVER__BIND_ADDRESS", self.listen.to_string()),
            ("DS_STORAGE__MODE", "file-durable".to_owned()),
            ("DS_STORAGE__DATA_DIR", data.to_owned()),
            ("DS_LIMITS__MAX_MEMORY_BYTES", (64 * gib).to_string()),
            ("DS_LIMITS__MAX_STREAM_BYTES", (64 * gib).to_string()),
            ("DS_TRANSPORT__CONNECTION__SSE_RECONNECT_INTERVAL_SECS", "3600".to_owned()),
            ("DS_OBSERVABILITY__RUST_LOG", "warn".to_owned()),
            ("RUST_LOG", "warn".to_owned()),
        ];
        self.shown = "storage.mode=file-durable, limits raised, SSE for an hour".to_owned();
        let listen = self.listen;
        self.ready(listen, "/readyz")
    }

    /// Node `number` of those that listen on `nodes`.
    fn ursula(
        mut self,
        scratch: &Path,
        (number, nodes): (usize, &[[SocketAddr; 2]]),
        fsync: &str,
    ) -> Self {
        let [listen, admin] = nodes[number - 1];
        let (data, settings) = match number {
            1 => ("data".to_owned(), "ursula.toml".to_owned()),
            _ => (format!("data-{number}"), format!("ursula-{number}.toml")),
        };
        let wal = scratch.join(data).display().to_string();
        // All nodes have to agree on it, so several of them want it in their settings.
        let groups = if nodes.len() == 1 {
            String::new()
        } else {
            format!("group_count = {VOTERS_GROUPS}\n")
        };
        let mut text = format!(
            "[server]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\n\
             cluster_id = \"thalweg-bench\"\n\n\
             [raft]\nnode_id = {number}\n{groups}\n\
             [raft.wal]\npath = {wal:?}\nfsync = \"{fsync}\"\n"
        );
        for (at, [peer, _]) in nodes.iter().enumerate() {
            let id = at + 1;
            text += &format!("\n[[raft.peers]]\nnode_id = {id}\nurl = \"http://{peer}\"\n");
        }
        let path = scratch.join(settings);
        let flags = ["server".to_owned(), "--config".to_owned(), path.display().to_string()];
        self.settings = Some((path, text));
        self.variables = vec![("RUST_LOG", "warn".to_owned())];
        let voters = if nodes.len() == 1 { "one node" } else { "cluster of three, 64 groups" };
        self.shown = format!("{voters}, raft.wal.fsync = {fsync}, no cold tier, else defaults");
        self.flags(flags).ready(listen, "/__ursula/ready")
    }

    /// One server without a cluster; with `sync` as its interval, else with the default of two minutes.
    fn nats(mut self, scratch: &Path, addresses: [SocketAddr; 2], sync: Option<&str>) -> Self {
        let [listen, monitor] = addresses;
        let data = scratch.join("data").display().to_string();
        let interval = sync.map_or_else(String::new, |sync| format!(", sync_interval: {sync}"));
        let text = format!(
            "listen: \"{listen}\"\nhttp: \"{monitor}\"\n\
             jetstream: {{ store_dir: {data:?}{interval} }}\n"
        );
        let path = scratch.join("nats.conf");
        let flags = ["--config".to_owned(), path.display().to_string()];
        self.settings = Some((path, text));
        self.shown = format!("one server, file storage{interval}, a subject for each stream");
        self.flags(flags).ready(monitor, "/healthz")
    }

    /// Broker and controller in one process, with the virtual machine's settings of its own script;
    /// `flush` is a line of its settings.
    fn kafka(mut self, scratch: &Path, addresses: [SocketAddr; 2], flush: &str) -> Self {
        let [listen, controller] = addresses;
        let data = scratch.join("data").display().to_string();
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.voters=1@{controller}\n\
             listeners=PLAINTEXT://{listen},CONTROLLER://{controller}\n\
             advertised.listeners=PLAINTEXT://{listen}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             offsets.topic.replication.factor=1\nauto.create.topics.enable=false\n\
             log.dirs={data}\n{flush}\n"
        );
        let path = scratch.join("kafka.properties");
        let settings = path.display().to_string();
        let jars = self.binary.join("*").display().to_string();
        let format = ["kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER, "-c", &settings];
        let java =
            |own: &[&str]| ["-cp", &jars].iter().chain(own).map(|s| (*s).to_owned()).collect();
        self.prepare = java(&format);
        let main: Vec<String> = java(&["kafka.Kafka", &settings]);
        self.settings = Some((path, text));
        self.binary = "java".into();
        let flush = if flush.is_empty() { "flush by default" } else { flush };
        self.shown = format!("KRaft, one broker, {flush}, {}, partitions", KAFKA_HEAP.join(" "));
        self.ready = Ready { address: listen, probe: Probe::Connection };
        let jvm = KAFKA_HEAP.iter().chain(&KAFKA_JVM).map(|flag| (*flag).to_owned());
        let jvm: Vec<String> = jvm.collect();
        self.flags(jvm).flags(main)
    }

    /// It listens on every address of the machine; there is no flag for another one.
    fn s2_lite(mut self, data: &str) -> Self {
        let port = self.listen.port().to_string();
        self.variables = vec![("RUST_LOG", "warn".to_owned())];
        self.shown = "lite --local-root, flush every 5 ms (its default)".to_owned();
        let listen = self.listen;
        let flags = ["lite", "--local-root", data, "--port", &port, "--no-dashboard"];
        self.flags(flags.map(str::to_owned)).ready(listen, "/health")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn launch(system: System) -> Launch {
        let places = Places {
            thalweg: "thalweg".into(),
            thalweg_flags: vec!["--shards=1".to_owned()],
            peers: "peers".into(),
        };
        let addresses = [SocketAddr::from(([127, 0, 0, 1], 5001)), ([127, 0, 0, 1], 5002).into()];
        system.launch(&places, Path::new("scratch"), addresses).unwrap()
    }

    /// All flags, variables and settings of a system.
    fn told(launch: &Launch) -> String {
        let variables = launch.variables.iter().map(|(name, value)| format!("{name}={value}"));
        let settings = launch.settings.iter().map(|(_, text)| text.clone());
        launch.flags.iter().cloned().chain(variables).chain(settings).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_system_listens_where_it_is_told() {
        for system in System::value_variants() {
            let launch = launch(*system);
            assert!(told(&launch).contains("5001"), "{system:?}: {}", told(&launch));
            assert_eq!(launch.listen.port(), 5001);
        }
    }

    #[test]
    fn every_system_with_files_has_them_in_its_scratch_directory() {
        for system in System::value_variants().iter().filter(|system| system.stores()) {
            assert!(told(&launch(*system)).contains("scratch/data"), "{system:?}");
        }
    }

    #[test]
    fn durability_is_a_setting_of_the_system() {
        assert!(told(&launch(System::Ursula)).contains("fsync = \"always\""));
        assert!(told(&launch(System::UrsulaPageCache)).contains("fsync = \"never\""));
        assert!(told(&launch(System::DurableStreams)).contains("--durability wal"));
        assert!(told(&launch(System::DurableStreamsMemory)).contains("--durability memory"));
        assert!(told(&launch(System::DurableStreamsAxum)).contains("file-durable"));
        assert!(told(&launch(System::Nats)).contains("sync_interval: always"));
        assert!(told(&launch(System::Kafka)).contains("log.flush.interval.messages=1\n"));
        assert!(!told(&launch(System::KafkaPageCache)).contains("flush"));
        assert!(!told(&launch(System::NatsPageCache)).contains("sync_interval"));
    }

    #[test]
    fn flags_of_ours_are_passed_on_and_shown() {
        let launch = launch(System::Thalweg);
        assert!(told(&launch).contains("--shards=1") && launch.shown.contains("--shards=1"));
        let Ready { address, probe } = launch.ready;
        assert_eq!((probe, address.port()), (Probe::Ok("/readyz"), 5002));
    }
}
