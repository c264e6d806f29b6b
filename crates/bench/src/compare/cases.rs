//! Every workload with its parameters, as commands.

use super::workloads::Workload;
use crate::cli::{
    Appends, Command, Commits, Compare, LongPoll, Messages, Mixed, Recent, Replay, SseFanout,
};
use crate::report::grouped;
use clap::ValueEnum;

/// One workload with one set of parameters.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) name: String,
    pub(crate) command: Command,
}

impl Workload {
    fn cases(self, asked: &Compare) -> Vec<Case> {
        let sizes: &[u64] = match self {
            Self::Writes => &[100, 500, 2000],
            Self::Fanout => &[50, 200, 500, 1000],
            Self::Replay => &[100, 500, 1000],
            Self::Throughput => &[100, 1000, 10_000, 100_000],
            Self::CatchUp => &[200, 2000],
            Self::LongPoll => &[100, 1000],
            Self::Serial => &[128, 256],
            Self::Commits => return commit_cases(asked),
            Self::Messages => return message_cases(asked),
            Self::Recent => return recent_cases(asked),
            Self::Mixed => &[10, 50],
        };
        // The small sizes of a trial are still different from each other.
        let shown = if asked.quick { &sizes[..2] } else { sizes };
        shown.iter().map(|size| self.case(*size, asked)).collect()
    }

    fn case(self, size: u64, asked: &Compare) -> Case {
        let count = if asked.quick && self != Self::Serial { size.div_ceil(20) } else { size };
        let seconds = asked.seconds;
        let (unit, command) = match self {
            Self::Writes => ("streams", appends(asked, count, count as usize, 256)),
            Self::Throughput => {
                ("streams", appends(asked, count, if asked.quick { 16 } else { 256 }, 256))
            }
            Self::Serial => ("B", appends(asked, 1, 1, count as usize)),
            Self::Fanout => {
                let (readers, rate, event_bytes) = (count as usize, 50.0, 256);
                ("readers", Command::SseFanout(SseFanout { readers, rate, event_bytes, seconds }))
            }
            Self::Replay => ("clients", replay(count as usize, true, 200)),
            Self::CatchUp => ("events", replay(if asked.quick { 20 } else { 1000 }, false, count)),
            Self::LongPoll => {
                let (streams, rate, writers, event_bytes) = (count as usize, 500.0, 16, 256);
                let long_poll = LongPoll { streams, rate, writers, event_bytes, seconds };
                ("streams", Command::LongPoll(long_poll))
            }
            Self::Mixed => {
                let (streams, rate, event_bytes) = (count as usize, 20.0 * count as f64, 256);
                ("streams", Command::Mixed(Mixed { streams, rate, event_bytes, seconds }))
            }
            Self::Commits | Self::Messages | Self::Recent => {
                unreachable!("their cases have two sizes")
            }
        };
        let name = format!("{} {unit}", grouped(&count.to_string()));
        Case { workload: self, name, command }
    }
}

/// Single and batched commits of small events, and of those that other systems have to take apart.
fn commit_cases(asked: &Compare) -> Vec<Case> {
    let of = |(batch, size, event_bytes): (u64, &str, usize)| Case {
        workload: Workload::Commits,
        name: format!("{batch} × {size}"),
        command: Command::Commits(Commits {
            events: if asked.quick { 80 } else { 4096 },
            batch,
            event_bytes,
        }),
    };
    let (small, large) = (("1 KiB", 1024), ("100 KB", 100_000));
    let all = [(1, small), (5, small), (1, large), (5, large)];
    corners(asked, &all).map(|(batch, (size, bytes))| of((batch, size, bytes))).collect()
}

/// Messages one by one and packed, distinct and alike.
fn message_cases(asked: &Compare) -> Vec<Case> {
    let of = |(batch, identical): (usize, bool)| Case {
        workload: Workload::Messages,
        name: format!("{batch} × {}", if identical { "identical" } else { "distinct" }),
        command: Command::Messages(Messages {
            streams: 96,
            connections: 6,
            batch,
            in_flight: 1024,
            message_bytes: 1024,
            identical,
            warm_up_seconds: warm_up_seconds(asked),
            seconds: asked.seconds,
        }),
    };
    corners(asked, &[(1, false), (1, true), (64, false), (64, true)]).map(of).collect()
}

/// Few bytes, many small events, many bytes, and both.
fn recent_cases(asked: &Compare) -> Vec<Case> {
    let of = |(events, event_bytes): (u64, usize)| Case {
        workload: Workload::Recent,
        name: format!("{} × {event_bytes} B", grouped(&events.to_string())),
        command: Command::Recent(Recent {
            streams: 50,
            events,
            event_bytes,
            connections: 64,
            client_threads: 1,
            seconds: asked.seconds,
        }),
    };
    corners(asked, &[(5, 1024), (100, 256), (200, 1024), (2000, 256)]).map(of).collect()
}

/// All four, or in a trial the two that differ in everything.
fn corners<T: Copy>(asked: &Compare, all: &[T; 4]) -> impl Iterator<Item = T> {
    let shown = if asked.quick { vec![all[0], all[3]] } else { all.to_vec() };
    shown.into_iter()
}

/// In a trial nothing is warm: its figures mean nothing.
fn warm_up_seconds(asked: &Compare) -> f64 {
    if asked.quick { 0.0 } else { asked.warm_up_seconds }
}

fn appends(asked: &Compare, streams: u64, connections: usize, payload_bytes: usize) -> Command {
    Command::Appends(Appends {
        streams,
        connections,
        pinned: streams == connections as u64,
        depth: 1,
        payload_bytes,
        warm_up_seconds: warm_up_seconds(asked),
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
        let recent = names(&["--workload", "recent"]);
        assert_eq!(recent, ["5 × 1024 B", "100 × 256 B", "200 × 1024 B", "2,000 × 256 B"]);
    }

    #[test]
    fn a_writer_has_a_stream_of_its_own_where_the_source_says_so() {
        let cases = cases(&asked(&["--workload", "writes,throughput", "--rate", "900"]));
        for case in cases {
            let Command::Appends(appends) = case.command else { panic!("both append") };
            assert_eq!(appends.pinned, case.workload == Workload::Writes);
            assert_eq!((appends.rate, appends.warm_up_seconds), (Some(900.0), 2.0));
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

    #[test]
    fn commits_hold_one_event_or_five_small_or_large() {
        let asked = asked(&["--workload", "commits"]);
        let all: Vec<_> = cases(&asked).into_iter().map(|case| (case.name, case.command)).collect();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["1 × 1 KiB", "5 × 1 KiB", "1 × 100 KB", "5 × 100 KB"]);
        let Command::Commits(commits) = &all[3].1 else { panic!("all commit") };
        assert_eq!((commits.events, commits.batch, commits.event_bytes), (4096, 5, 100_000));
    }

    #[test]
    fn messages_go_alone_and_packed_distinct_and_alike() {
        let all = names(&["--workload", "messages"]);
        assert_eq!(all, ["1 × distinct", "1 × identical", "64 × distinct", "64 × identical"]);
        let trial = names(&["--workload", "messages", "--quick"]);
        assert_eq!(trial, ["1 × distinct", "64 × identical"]);
    }
}
