//! The workloads that others published: whose they are, and what they are compared by.

use super::pairing::{Better, Metric};
use clap::ValueEnum;

/// A workload, named after what it does; [`Workload::source`] says whose it is.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Many streams with a writer for each (Ursula)
    Writes,
    /// One stream with many live readers (Ursula)
    Fanout,
    /// Many clients, each reading a stream of its own from its beginning (Ursula)
    Replay,
    /// Appends over more and more streams, with memory (Durable Streams)
    Throughput,
    /// A thousand clients reading one stream from its beginning (Durable Streams)
    CatchUp,
    /// A long-poll on each of many streams (Durable Streams)
    LongPoll,
    /// One small append after the other (S2)
    Serial,
    /// One commit of one event or of five after the other, beside the bare disk (Seguro)
    Commits,
    /// JSON messages with keys, packed and pipelined (PolarStreams)
    Messages,
    /// Histories that were written a moment ago, read whole
    Recent,
    /// Writers, readers and live readers at the same time
    Mixed,
}

const MEMORY: Metric = lower("server memory peak", "peak memory", "MiB");

const APPENDS: &[Metric] = &[
    higher("appends per second", "appends", "1/s"),
    lower("append latency p50", "p50", "ms"),
    lower("append latency p99", "p99", "ms"),
    lower("server CPU per append", "CPU per append", "µs"),
    MEMORY,
];

const DELIVERIES: &[Metric] = &[
    lower("delivery latency p50", "p50", "ms"),
    lower("delivery latency p99", "p99", "ms"),
    lower("server CPU per delivery", "CPU per delivery", "µs"),
    MEMORY,
];

const REPLAYS: &[Metric] = &[
    higher("bytes per second", "contents", "MiB/s"),
    lower("replay latency p50", "p50", "ms"),
    lower("replay latency p99", "p99", "ms"),
    lower("server CPU per GiB", "CPU per GiB", "s"),
    MEMORY,
];

const COMMITS: &[Metric] = &[
    lower("commit average", "average per commit", "ms"),
    lower("commit maximum", "maximum per commit", "ms"),
    lower("commit minimum", "minimum per commit", "ms"),
    lower("event average", "average per event", "ms"),
    lower("commit latency p50", "p50", "ms"),
    lower("commit p50 in raw writes", "p50 in raw writes", "×"),
    lower(
        "commit p50 in raw writes with bare round trips",
        "p50 in raw writes and round trips",
        "×",
    ),
    lower("server CPU per commit", "CPU per commit", "µs"),
];

const MESSAGES: &[Metric] = &[
    higher("messages per second", "messages", "1/s"),
    lower("append latency p50", "p50", "ms"),
    lower("append latency p99", "p99", "ms"),
    lower("server CPU per message", "CPU per message", "µs"),
    MEMORY,
];

const RECENT: &[Metric] = &[
    higher("reads per second", "reads", "1/s"),
    lower("server CPU per read", "CPU per read", "µs"),
    lower("server CPU per first read", "CPU per first read", "µs"),
    lower("first read latency p50", "first p50", "ms"),
    lower("read latency p50", "p50", "ms"),
    lower("read latency p99", "p99", "ms"),
    MEMORY,
];

const MIXED: &[Metric] = &[
    higher("reads per second", "reads", "1/s"),
    lower("append latency p50", "append p50", "ms"),
    lower("append latency p99", "append p99", "ms"),
    lower("delivery latency p99", "delivery p99", "ms"),
    lower("server CPU per read", "CPU per read", "µs"),
    MEMORY,
];

const fn higher(figure: &'static str, label: &'static str, unit: &'static str) -> Metric {
    Metric { figure, label, unit, better: Better::Higher }
}

const fn lower(figure: &'static str, label: &'static str, unit: &'static str) -> Metric {
    Metric { figure, label, unit, better: Better::Lower }
}

impl Workload {
    /// Its name on the command line.
    pub(crate) fn key(self) -> String {
        let value = self.to_possible_value().expect("no workload is hidden");
        value.get_name().to_owned()
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Writes => "Writes to many streams",
            Self::Fanout => "Fan-out by server-sent events",
            Self::Replay => "Replay after a reconnect",
            Self::Throughput => "Throughput over many streams",
            Self::CatchUp => "Catch-up of one stream",
            Self::LongPoll => "Long-poll",
            Self::Serial => "Serial small appends",
            Self::Commits => "Commits of events",
            Self::Messages => "Messages with keys",
            Self::Recent => "Recent history",
            Self::Mixed => "Everything at once",
        }
    }

    /// Whose it is and what it is.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Writes => {
                "Ursula's multi-stream writes: N streams, one connection for each, 256 B, the next \
                 append when the last was acknowledged."
            }
            Self::Fanout => {
                "Ursula's SSE fan-out: one stream, 50 events of 256 B per second, N live readers; \
                 latency from when the append was due until each reader had it."
            }
            Self::Replay => {
                "Ursula's reconnect: N clients at the same moment, each reading a stream of its own \
                 with 200 events of 1 KiB."
            }
            Self::Throughput => {
                "Durable Streams' write throughput: 256 connections append 256 B to N streams in \
                 turn; the peak of memory is the second figure."
            }
            Self::CatchUp => {
                "Durable Streams' catch-up: 1,000 clients at the same moment read one stream of N \
                 events of 1 KiB."
            }
            Self::LongPoll => {
                "Durable Streams' long-poll: a reader waits on each of N streams, 500 appends of \
                 256 B per second go round them; latency from when the append was due."
            }
            Self::Serial => {
                "S2's small durable append: one connection, one stream, the next append when the \
                 last was acknowledged."
            }
            Self::Commits => {
                "Seguro's commits: one writer, 4,096 events of 1 KiB or of 100 KB, one or five to a \
                 commit, the next commit when the last was acknowledged. A raw write writes the \
                 same bytes, up to whole blocks, to blocks that were written before, and syncs \
                 them. It runs between the commits of the same run. A round trip is the same request \
                 to a responder that stores nothing. On its own machine Seguro published per commit: \
                 FoundationDB 6.34 ms (one event) and 3.70 ms (five), dqlite 13.9 ms and 14.2 ms. Its \
                 rows for 100 KB (4.82 ms, an average above its own maximum) are no measure."
            }
            Self::Messages => {
                "PolarStreams' producers: 6 connections with up to 1,024 messages of 1 KiB JSON out on \
                 each; a key chooses one of 96 streams. One message to an append, and 64 packed into \
                 one; all distinct, and all identical, as its published rates have them. Latency is of \
                 an append in such a pipeline."
            }
            Self::Recent => {
                "Clients that come back: 50 streams of N events, which were written in turn a moment ago, are read whole \
                 over 64 connections: each once, and then again and again."
            }
            Self::Mixed => {
                "N streams, each with a writer of 20 events of 256 B a second, a client that reads the whole history again and \
                 again, and a live reader."
            }
        }
    }

    pub(crate) fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Writes | Self::Throughput | Self::Serial => APPENDS,
            Self::Fanout | Self::LongPoll => DELIVERIES,
            Self::Replay | Self::CatchUp => REPLAYS,
            Self::Commits => COMMITS,
            Self::Messages => MESSAGES,
            Self::Recent => RECENT,
            Self::Mixed => MIXED,
        }
    }
}
