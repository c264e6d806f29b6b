//! The workloads that others published, with their parameters.

use super::pairing::{Better, Metric};
use crate::cli::{Appends, Command, Compare, LongPoll, Replay, SseFanout};
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
}

/// One workload with one set of parameters.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) name: String,
    pub(crate) command: Command,
}

const MEMORY: Metric = lower("server memory peak", "peak memory", "MiB");

const APPENDS: &[Metric] = &[
    Metric { figure: "appends per second", label: "appends", unit: "1/s", better: Better::Higher },
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
    Metric { figure: "bytes per second", label: "contents", unit: "MiB/s", better: Better::Higher },
    lower("replay latency p50", "p50", "ms"),
    lower("replay latency p99", "p99", "ms"),
    lower("server CPU per GiB", "CPU per GiB", "s"),
    MEMORY,
];

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
        }
    }

    pub(crate) fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Writes | Self::Throughput | Self::Serial => APPENDS,
            Self::Fanout | Self::LongPoll => DELIVERIES,
            Self::Replay | Self::CatchUp => REPLAYS,
        }
    }

    fn cases(self, asked: &Compare) -> Vec<Case> {
        let sizes: &[u64] = match self {
            Self::Writes => &[100, 500, 2000],
            Self::Fanout => &[50, 200, 500, 1000],
            Self::Replay => &[100, 500, 1000],
            Self::Throughput => &[100, 1000, 10_000, 100_000],
            Self::CatchUp => &[200, 2000],
            Self::LongPoll => &[100, 1000],
            Self::Serial => &[128, 256],
        };
        // The small sizes of a trial are still different from each other.
        let shown = if asked.quick { &sizes[..2] } else { sizes };
        shown.iter().map(|size| self.case(*size, asked)).collect()
    }

    fn case(self, size: u64, asked: &Compare) -> Case {
        let count = if asked.quick && self != Self::Serial { size.div_ceil(20) } else { size };
        let seconds = asked.seconds;
        let unit = match self {
            Self::Writes | Self::Throughput | Self::LongPoll => "streams",
            Self::Fanout => "readers",
            Self::Replay => "clients",
            Self::CatchUp => "events",
            Self::Serial => "B",
        };
        let name = format!("{} {unit}", crate::report::grouped(&count.to_string()));
        let command = match self {
            Self::Writes => appends(asked, count, count as usize, 256),
            Self::Throughput => appends(asked, count, if asked.quick { 16 } else { 256 }, 256),
            Self::Serial => appends(asked, 1, 1, count as usize),
            Self::Fanout => {
                let (readers, rate, event_bytes) = (count as usize, 50.0, 256);
                Command::SseFanout(SseFanout { readers, rate, event_bytes, seconds })
            }
            Self::Replay => replay(count as usize, true, 200),
            Self::CatchUp => replay(if asked.quick { 20 } else { 1000 }, false, count),
            Self::LongPoll => {
                let (streams, rate, writers, event_bytes) = (count as usize, 500.0, 16, 256);
                Command::LongPoll(LongPoll { streams, rate, writers, event_bytes, seconds })
            }
        };
        Case { workload: self, name, command }
    }
}

fn appends(asked: &Compare, streams: u64, connections: usize, payload_bytes: usize) -> Command {
    Command::Appends(Appends {
        streams,
        connections,
        pinned: streams == connections as u64,
        depth: 1,
        payload_bytes,
        seconds: asked.seconds,
        rate: asked.rate,
        producer: false,
        verify_streams: 500,
    })
}

fn replay(clients: usize, own_stream: bool, events: u64) -> Command {
    Command::Replay(Replay { clients, own_stream, events, event_bytes: 1024, rounds: 3 })
}

/// Everything that was asked for; all workloads if none was named.
pub(crate) fn cases(asked: &Compare) -> Vec<Case> {
    let all = Workload::value_variants();
    let chosen = if asked.workload.is_empty() { all } else { &asked.workload };
    chosen.iter().flat_map(|workload| workload.cases(asked)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn asked(flags: &[&str]) -> Compare {
        let args = ["thalweg-bench", "compare"].iter().chain(flags);
        let Command::Compare(compare) = Cli::try_parse_from(args).unwrap().command else {
            panic!("`compare` was typed")
        };
        compare
    }

    fn names(flags: &[&str]) -> Vec<String> {
        cases(&asked(flags)).into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn the_parameters_are_those_of_the_sources() {
        assert_eq!(
            names(&["--workload", "writes"]),
            ["100 streams", "500 streams", "2,000 streams"]
        );
        assert_eq!(names(&["--workload", "catch-up"]), ["200 events", "2,000 events"]);
        let fanout = names(&["--workload", "fanout"]);
        assert_eq!(fanout, ["50 readers", "200 readers", "500 readers", "1,000 readers"]);
    }

    #[test]
    fn a_writer_has_a_stream_of_its_own_where_the_source_says_so() {
        let cases = cases(&asked(&["--workload", "writes,throughput", "--rate", "900"]));
        for case in cases {
            let Command::Appends(appends) = case.command else { panic!("both append") };
            assert_eq!(appends.pinned, case.workload == Workload::Writes);
            assert_eq!(appends.rate, Some(900.0));
        }
    }

    #[test]
    fn a_trial_is_small_and_has_every_workload() {
        let cases = cases(&asked(&["--quick"]));
        assert_eq!(cases.len(), 2 * Workload::value_variants().len());
        let names: std::collections::BTreeSet<_> =
            cases.iter().map(|case| (case.workload.key(), case.name.clone())).collect();
        assert_eq!(names.len(), cases.len());
    }
}
