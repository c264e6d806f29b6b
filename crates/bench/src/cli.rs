//! What can be asked.

use crate::api::ApiStyle;
use crate::compare::Workload;
use crate::systems::System;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

const ABOUT: &str = "Measures a durable stream server: rates, latencies, memory, recovery";

const EXAMPLES: &str = "\
Try it (builds of this program and the server side by side):
  cargo build --release -p thalweg-server -p thalweg-bench
  target/release/thalweg-bench appends --streams 1000 --connections 64 --seconds 10
  target/release/thalweg-bench table --json figures.json     every figure of docs/performance.md

Compare:
  thalweg-bench appends --against bare                       the same load, nothing stored
  thalweg-bench appends --cluster 3 --against ursula         three nodes of another system
  thalweg-bench appends --cluster 3                          three nodes, each append on two disks at least
  thalweg-bench appends --url http://127.0.0.1:4437 --pid 4711    a server that runs already
  thalweg-bench appends --against ursula                     another system, after `cargo xtask peers`
  thalweg-bench compare --workload writes,fanout             this server beside others, in turns

Each command starts a server on an empty directory and loopback ports, and removes both. Only
acknowledged requests count, and what was acknowledged is read back. Exit code 1: a check failed.
Results depend on the disk: give --dir on the disk that matters, never a tmpfs.";

/// `thalweg-bench` and what follows it.
#[derive(Parser, Debug)]
#[command(name = "thalweg-bench", version, about = ABOUT, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which server, where, and what becomes of the results.
#[derive(Args, Debug, Clone)]
pub(crate) struct Place {
    /// Server to start; the default is `thalweg` beside this program
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) server_bin: Option<PathBuf>,
    /// Flag for the server, repeatable, as in `--server-arg=--shards=1`
    #[arg(long, global = true, value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) server_arg: Vec<String>,
    /// What to start and measure
    #[arg(long, global = true, value_enum, default_value_t = System::Thalweg)]
    pub(crate) against: System,
    /// Start so many nodes as a cluster: 1 or 3, of this server, or of Ursula for `appends`. Clients spread over them, and
    /// CPU time is that of all
    #[arg(long, global = true, value_name = "NODES", value_parser = ["1", "3"], default_value = "1")]
    pub(crate) cluster: String,
    /// How the server given by --url is asked; a system that is started is asked in its own style
    #[arg(long, global = true, value_enum, default_value_t = ApiStyle::Durable)]
    pub(crate) api_style: ApiStyle,
    /// Where `cargo xtask peers` has installed other systems [default: `peers` in the build
    /// directory that this program is in]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) peers_dir: Option<PathBuf>,
    /// Measure a server that runs already instead of starting one
    #[arg(long, global = true, value_name = "http://HOST:PORT")]
    pub(crate) url: Option<String>,
    /// Process of the server given by --url, for its CPU time and memory
    #[arg(long, global = true, requires = "url")]
    pub(crate) pid: Option<u32>,
    /// Directory for data; a new one below it is used and removed [default: the system's for
    /// temporary files]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Write all results with commit, machine and settings to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// How readers get a stream.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// GET, page by page
    Get,
    /// Server-sent events
    Sse,
}

#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Command {
    /// Memory, disk and descriptors of streams that nobody uses
    IdleStreams(IdleStreams),
    /// Rate and latency of creates, each of a new stream
    Creates(Creates),
    /// Rate, latency and CPU time of appends
    Appends(Appends),
    /// Commits of events one after the other, beside bare writes and syncs of the same bytes
    Commits(Commits),
    /// Rate of JSON messages with keys, packed into appends and pipelined
    Messages(Messages),
    /// Creates and appends in turns, and the ratio of their rates
    CreatesVsAppends(CreatesVsAppends),
    /// Time from start to ready after kill -9 and after SIGTERM, with many streams
    Recovery(Recovery),
    /// Time from SIGTERM to exit with idle connections and live readers
    Shutdown(Shutdown),
    /// Memory, and the latency of others, while slow readers take a long stream
    SlowReaders(SlowReaders),
    /// Latency from append to every one of many live readers
    SseFanout(SseFanout),
    /// Latency of reading a stream from its beginning, by many clients at once
    Replay(Replay),
    /// Cost of reading histories that were written a moment ago: first once, then again and again
    Recent(Recent),
    /// Writers, readers of whole histories and live readers in one run
    Mixed(Mixed),
    /// Latency from append to the one long-poll that waits for it, over many streams
    LongPoll(LongPoll),
    /// Answer every request at once and store nothing, until killed; prints the address
    Bare(Bare),
    /// Every figure of docs/performance.md, as Markdown
    Table(Table),
    /// This server beside others, in turns, as a report with plots
    Compare(Compare),
    /// One report of the figures of several comparisons: parts of one that takes hours
    Report(Report),
}

/// Arguments of `idle-streams`.
#[derive(Args, Debug, Clone)]
pub(crate) struct IdleStreams {
    /// Streams to create
    #[arg(long, default_value_t = 100_000, value_parser = at_least::<u64, 1>)]
    pub(crate) streams: u64,
    /// Connections that create them
    #[arg(long, default_value_t = 64, value_parser = at_least::<usize, 1>)]
    pub(crate) connections: usize,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 8, value_parser = at_least::<usize, 1>)]
    pub(crate) depth: usize,
    /// Longest wait for the data directory to settle
    #[arg(long, default_value_t = 60)]
    pub(crate) settle_seconds: u64,
}

/// Arguments of `creates`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Creates {
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 64, value_parser = at_least::<usize, 1>)]
    pub(crate) connections: usize,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
}

/// Arguments of `appends`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Appends {
    /// Streams that are appended to in turn
    #[arg(long, default_value_t = 1000, value_parser = at_least::<u64, 1>)]
    pub(crate) streams: u64,
    /// Connections
    #[arg(long, default_value_t = 64, value_parser = at_least::<usize, 1>)]
    pub(crate) connections: usize,
    /// Each connection appends to one stream of its own; needs as many streams as connections
    #[arg(long)]
    pub(crate) pinned: bool,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 1, value_parser = at_least::<usize, 1>)]
    pub(crate) depth: usize,
    /// Bytes of each append, at least 16; no two are alike
    #[arg(long, default_value_t = 256, value_parser = at_least::<usize, 16>)]
    pub(crate) payload_bytes: usize,
    /// How long to append before it is measured, for what compiles or allocates as it goes
    #[arg(long, default_value_t = 0.0)]
    pub(crate) warm_up_seconds: f64,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
    /// Open loop: appends due per second, with latency from when each was due
    #[arg(long, value_parser = above_zero)]
    pub(crate) rate: Option<f64>,
    /// Each connection is an idempotent producer
    #[arg(long)]
    pub(crate) producer: bool,
    /// Streams that are read back and compared, at most
    #[arg(long, default_value_t = 2000)]
    pub(crate) verify_streams: u64,
}

/// Arguments of `commits`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Commits {
    /// Events in all
    #[arg(long, default_value_t = 4096, value_parser = at_least::<u64, 1>)]
    pub(crate) events: u64,
    /// Events of each commit
    #[arg(long, default_value_t = 1, value_parser = at_least::<u64, 1>)]
    pub(crate) batch: u64,
    /// Bytes of each event, at least 16; no two are alike
    #[arg(long, default_value_t = 1024, value_parser = at_least::<usize, 16>)]
    pub(crate) event_bytes: usize,
}

/// Arguments of `messages`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Messages {
    /// Streams, of which a message's key chooses one; a multiple of the connections
    #[arg(long, default_value_t = 96, value_parser = at_least::<u64, 1>)]
    pub(crate) streams: u64,
    /// Connections; each has streams of its own
    #[arg(long, default_value_t = 6, value_parser = at_least::<usize, 1>)]
    pub(crate) connections: usize,
    /// Messages that are packed into one append
    #[arg(long, default_value_t = 64, value_parser = at_least::<usize, 1>)]
    pub(crate) batch: usize,
    /// Messages that each connection may have out, not acknowledged yet
    #[arg(long, default_value_t = 1024, value_parser = at_least::<usize, 1>)]
    pub(crate) in_flight: usize,
    /// Bytes of each message
    #[arg(long, default_value_t = 1024, value_parser = at_least::<usize, 16>)]
    pub(crate) message_bytes: usize,
    /// All messages are alike; without it no two are
    #[arg(long)]
    pub(crate) identical: bool,
    /// How long to append before it is measured, for what compiles or allocates as it goes
    #[arg(long, default_value_t = 0.0)]
    pub(crate) warm_up_seconds: f64,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
}

/// Arguments of `creates-vs-appends`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CreatesVsAppends {
    /// Connections of both
    #[arg(long, default_value_t = 64, value_parser = at_least::<usize, 1>)]
    pub(crate) connections: usize,
    /// Length of each turn
    #[arg(long, default_value_t = 5.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
    /// Turns of each kind
    #[arg(long, default_value_t = 4, value_parser = at_least::<usize, 1>)]
    pub(crate) pairs: usize,
    /// Streams that are appended to
    #[arg(long, default_value_t = 1000, value_parser = at_least::<u64, 1>)]
    pub(crate) streams: u64,
    /// Bytes of each append
    #[arg(long, default_value_t = 256, value_parser = at_least::<usize, 16>)]
    pub(crate) payload_bytes: usize,
}

/// Arguments of `recovery`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Recovery {
    /// Streams to create
    #[arg(long, default_value_t = 100_000, value_parser = at_least::<u64, 1>)]
    pub(crate) streams: u64,
    /// Leave them empty instead of appending 64 bytes to each
    #[arg(long)]
    pub(crate) empty: bool,
    /// Streams that are read and compared after each start
    #[arg(long, default_value_t = 500)]
    pub(crate) verify_streams: u64,
}

/// Arguments of `shutdown`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Shutdown {
    /// Connections that were used once and wait
    #[arg(long, default_value_t = 1000)]
    pub(crate) idle: usize,
    /// Live readers
    #[arg(long, default_value_t = 100)]
    pub(crate) readers: usize,
    /// Clients leave connections open that the server has ended, as dead ones do
    #[arg(long)]
    pub(crate) stubborn: bool,
}

/// Arguments of `slow-readers`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SlowReaders {
    /// Length of the stream
    #[arg(long, default_value_t = 2.0, value_parser = above_zero)]
    pub(crate) stream_gib: f64,
    /// Readers
    #[arg(long, default_value_t = 50)]
    pub(crate) readers: usize,
    /// What each of them takes
    #[arg(long, default_value_t = 65_536, value_parser = at_least::<u64, 1>)]
    pub(crate) bytes_per_second: u64,
    /// How long to measure
    #[arg(long, default_value_t = 30.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
    /// How they read
    #[arg(long, value_enum, default_value_t = Via::Get)]
    pub(crate) via: Via,
}

/// Arguments of `sse-fanout`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SseFanout {
    /// Live readers of one stream
    #[arg(long, default_value_t = 1000)]
    pub(crate) readers: usize,
    /// Appends per second
    #[arg(long, default_value_t = 50.0, value_parser = above_zero)]
    pub(crate) rate: f64,
    /// Bytes of each append
    #[arg(long, default_value_t = 256, value_parser = at_least::<usize, 16>)]
    pub(crate) event_bytes: usize,
    /// How long to measure
    #[arg(long, default_value_t = 20.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
}

/// Arguments of `replay`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Replay {
    /// Clients that begin at the same moment
    #[arg(long, default_value_t = 1000, value_parser = at_least::<usize, 1>)]
    pub(crate) clients: usize,
    /// Each client reads a stream of its own instead of one stream for all
    #[arg(long)]
    pub(crate) own_stream: bool,
    /// Appends in the stream
    #[arg(long, default_value_t = 200, value_parser = at_least::<u64, 1>)]
    pub(crate) events: u64,
    /// Bytes of each append
    #[arg(long, default_value_t = 1024, value_parser = at_least::<usize, 16>)]
    pub(crate) event_bytes: usize,
    /// Times that all of them read it
    #[arg(long, default_value_t = 5, value_parser = at_least::<usize, 1>)]
    pub(crate) rounds: usize,
}

/// Arguments of `recent`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Recent {
    /// Streams, which are filled in turn
    #[arg(long, default_value_t = 50, value_parser = at_least::<u64, 1>)]
    pub(crate) streams: u64,
    /// Appends in each stream
    #[arg(long, default_value_t = 100, value_parser = at_least::<u64, 1>)]
    pub(crate) events: u64,
    /// Bytes of each append
    #[arg(long, default_value_t = 256, value_parser = at_least::<usize, 16>)]
    pub(crate) event_bytes: usize,
    /// Connections that read
    #[arg(long, default_value_t = 64, value_parser = at_least::<usize, 1>)]
    pub(crate) connections: usize,
    /// Threads of the clients
    #[arg(long, default_value_t = 1, value_parser = at_least::<usize, 1>)]
    pub(crate) client_threads: usize,
    /// How long to read again and again
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
}

/// Arguments of `mixed`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Mixed {
    /// Streams, each with a writer, a reader of its whole history and a live reader
    #[arg(long, default_value_t = 50, value_parser = at_least::<usize, 1>)]
    pub(crate) streams: usize,
    /// Appends per second over all streams
    #[arg(long, default_value_t = 1000.0, value_parser = above_zero)]
    pub(crate) rate: f64,
    /// Bytes of each append
    #[arg(long, default_value_t = 256, value_parser = at_least::<usize, 16>)]
    pub(crate) event_bytes: usize,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
}

/// Arguments of `long-poll`.
#[derive(Args, Debug, Clone)]
pub(crate) struct LongPoll {
    /// Streams, each with one reader
    #[arg(long, default_value_t = 100, value_parser = at_least::<usize, 1>)]
    pub(crate) streams: usize,
    /// Appends per second over all streams
    #[arg(long, default_value_t = 500.0, value_parser = above_zero)]
    pub(crate) rate: f64,
    /// Connections that append; an append that finds none free waits, and its latency grows
    #[arg(long, default_value_t = 16, value_parser = at_least::<usize, 1>)]
    pub(crate) writers: usize,
    /// Bytes of each append
    #[arg(long, default_value_t = 256, value_parser = at_least::<usize, 16>)]
    pub(crate) event_bytes: usize,
    /// How long to measure
    #[arg(long, default_value_t = 20.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
}

/// Arguments of `bare`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Bare {
    /// Where to listen; port 0 is any that is free
    #[arg(default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Through hyper instead of the plain loop, over HTTP/1.1 and HTTP/2
    #[arg(long)]
    pub(crate) hyper: bool,
    /// With reads, long-polls and server-sent events of what is in memory
    #[arg(long, conflicts_with = "hyper")]
    pub(crate) readers: bool,
    /// With --readers: write appends to a file in this directory and sync it before they are acknowledged
    #[arg(long, requires = "readers")]
    pub(crate) sync_dir: Option<PathBuf>,
}

/// Arguments of `table`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Table {
    /// Small numbers: tries every command in about a minute; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Arguments of `compare`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Compare {
    /// What to run, comma-separated [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) workload: Vec<Workload>,
    /// Whom to compare with, comma-separated; those that are not installed are left out. `thalweg`
    /// is a second server of this project
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "durable-streams,durable-streams-node,durable-streams-axum,ursula,s2-lite,nats,\
                         kafka"
    )]
    pub(crate) peers: Vec<System>,
    /// Turns of each case; with fewer than two nothing is decided
    #[arg(long, default_value_t = 3, value_parser = at_least::<usize, 1>)]
    pub(crate) pairs: usize,
    /// How long runs that append as fast as they can do so before they are measured: systems that
    /// compile as they run are slow at first
    #[arg(long, default_value_t = 2.0)]
    pub(crate) warm_up_seconds: f64,
    /// How long each run measures, where that is not given by what is to be read
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    pub(crate) seconds: f64,
    /// Open loop: appends due per second in the workloads that append as fast as they can
    #[arg(long, value_parser = above_zero)]
    pub(crate) rate: Option<f64>,
    /// Where the report, its plots and the figures go
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    pub(crate) out: PathBuf,
    /// Server of the peer `thalweg`, as for a change against its parent
    #[arg(long, value_name = "PATH")]
    pub(crate) other_server_bin: Option<PathBuf>,
    /// Small numbers: tries every workload; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Arguments of `report`.
#[derive(Args, Debug, Clone)]
pub(crate) struct Report {
    /// The figures.json of each comparison; all of the same commit and number of turns, each workload of one machine
    #[arg(required = true, value_name = "FIGURES")]
    pub(crate) figures: Vec<PathBuf>,
    /// Where the report, its plots and the figures go
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    pub(crate) out: PathBuf,
}

/// A number that is at least `MIN`.
fn at_least<T: TryFrom<u64>, const MIN: u64>(text: &str) -> Result<T, String> {
    let number = text.parse().map_err(|error| format!("{error}"))?;
    if number < MIN {
        return Err(format!("it must be at least {MIN}"));
    }
    T::try_from(number).map_err(|_| "it is too large".to_owned())
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let fits = number.is_finite() && number > 0.0;
    if fits { Ok(number) } else { Err("it must be above 0".to_owned()) }
}

pub(crate) fn parse() -> Cli {
    Cli::parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::command().find_subcommand("table").is_some());
    }

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        for wrong in [
            "appends --streams 0",
            "appends --payload-bytes 3",
            "appends --seconds 0",
            "appends --depth 0",
            "sse-fanout --rate 0",
            "sse-fanout --rate nan",
            "replay --rounds 0",
            "long-poll --streams 0",
        ] {
            let words = std::iter::once("thalweg-bench").chain(wrong.split(' '));
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains("it must be"), "{wrong}: {error}");
        }
    }

    #[test]
    fn flags_of_the_server_are_passed_on() {
        let args = ["thalweg-bench", "--server-arg=--shards=1", "replay", "--clients", "3"];
        let cli = Cli::try_parse_from(args).unwrap();
        assert_eq!(cli.place.server_arg, ["--shards=1"]);
        let Command::Replay(replay) = cli.command else { panic!("`replay` was typed") };
        assert_eq!((replay.clients, replay.events), (3, 200));
    }
}
