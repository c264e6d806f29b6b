//! The workloads, and the counts of each.

use super::instrument::Instrument;
use crate::run::{self, Failure};
use crate::server::Server;
use crate::workspace::Workspace;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) workload: &'static str,
    /// What was counted.
    pub(super) what: &'static str,
    /// Per operation.
    pub(super) value: f64,
    /// How far two counts of the same code may differ.
    pub(super) tolerance_percent: f64,
}

/// Operations of the two runs of a workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) few: u64,
    pub(super) many: u64,
}

/// The workloads of one shard's loop. Where each operation waits for a sync they are fewer.
const SHARD: [(&str, Span); 6] = [
    ("append-1", Span { few: 512, many: 1536 }),
    ("append-32", Span { few: 512, many: 2560 }),
    ("append-32-token", Span { few: 512, many: 2560 }),
    ("live-32", Span { few: 512, many: 2560 }),
    ("create-32", Span { few: 512, many: 2560 }),
    ("read", Span { few: 512, many: 2560 }),
];

/// What the program of the workloads counts of itself, with a tolerance. A table with a randomly
/// seeded hash grows or does not while it is watched; what is written is exact.
const OWN: [(&str, f64); 4] =
    [("allocations", 0.5), ("allocated_bytes", 6.0), ("wal_bytes", 0.0), ("answer_bytes", 0.0)];

/// How far the instructions of one thread may differ: another processor takes another `memcpy`.
const INSTRUCTIONS_TOLERANCE_PERCENT: f64 = 8.0;

const SERVER: &str = "server-serial";
const SERVER_SPAN: Span = Span { few: 400, many: 1200 };

/// What is counted of the server, with a tolerance and a number of tries. Its threads wake each other as
/// the system likes, and other load of the machine adds system calls. So the least of the tries counts. Where a sync takes more
/// than a millisecond it runs beside the loop, which takes nearly twice the calls.
const SERVER_COUNTS: [(Instrument, f64, u32); 3] =
    [(Instrument::Callgrind, 20.0, 1), (Instrument::Dhat, 25.0, 1), (Instrument::Strace, 90.0, 3)];

/// Everything that can be counted here.
pub(super) fn all(workspace: &Workspace, scratch: &Path) -> Result<Vec<Counted>, Failure> {
    let callgrind = Instrument::Callgrind.is_usable(scratch);
    let mut counted = Vec::new();
    for (workload, span) in SHARD {
        let [few, many] = [span.few, span.many].map(|operations| {
            let run = ShardRun { workspace, scratch, workload, operations, callgrind };
            run.totals()
        });
        counted.extend(differences(workload, span, &few?, &many?));
    }
    for (instrument, tolerance_percent, tries) in SERVER_COUNTS {
        // Callgrind was tried above.
        let is_usable = match instrument {
            Instrument::Callgrind => callgrind,
            Instrument::Dhat | Instrument::Strace => instrument.is_usable(scratch),
        };
        if !is_usable {
            continue;
        }
        let mut value = f64::INFINITY;
        for _ in 0..tries {
            let [few, many] = [SERVER_SPAN.few, SERVER_SPAN.many]
                .map(|operations| server_total(workspace, scratch, instrument, operations));
            value = value.min(SERVER_SPAN.per_operation(few?, many?));
        }
        counted.push(Counted {
            workload: SERVER,
            what: instrument.what(),
            value,
            tolerance_percent,
        });
    }
    Ok(counted)
}

impl Counted {
    /// Whether callgrind has counted it.
    pub(super) fn is_instructions(&self) -> bool {
        self.what == Instrument::Callgrind.what()
    }
}

impl Span {
    pub(super) fn per_operation(self, few: f64, many: f64) -> f64 {
        (many - few) / (self.many - self.few) as f64
    }
}

/// What a run printed of itself, and what was counted of it from outside.
pub(super) struct Totals {
    own: Value,
    instructions: Option<f64>,
}

fn differences(workload: &'static str, span: Span, few: &Totals, many: &Totals) -> Vec<Counted> {
    let mut counted = Vec::new();
    if let (Some(few), Some(many)) = (few.instructions, many.instructions) {
        let value = span.per_operation(few, many);
        let tolerance_percent = INSTRUCTIONS_TOLERANCE_PERCENT;
        counted.push(Counted {
            workload,
            what: Instrument::Callgrind.what(),
            value,
            tolerance_percent,
        });
    }
    for (what, tolerance_percent) in OWN {
        let [few, many] = [few, many].map(|totals| totals.own[what].as_f64().unwrap_or(f64::NAN));
        let value = span.per_operation(few, many);
        // What a workload has nothing of, reads of bytes in the log, needs no limit.
        if value != 0.0 {
            counted.push(Counted { workload, what, value, tolerance_percent });
        }
    }
    counted
}

/// The numbers of operations of a workload of the loop.
pub(super) fn span_of(workload: &str) -> Option<Span> {
    SHARD.iter().find(|(name, _)| *name == workload).map(|(_, span)| *span)
}

/// One run of a workload of the loop.
pub(super) struct ShardRun<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) scratch: &'a Path,
    pub(super) workload: &'a str,
    pub(super) operations: u64,
    pub(super) callgrind: bool,
}

impl ShardRun<'_> {
    fn stem(&self) -> PathBuf {
        self.scratch.join(format!("{}-{}", self.workload, self.operations))
    }

    /// What callgrind wrote of the run, which was made.
    pub(super) fn profile(&self) -> Result<String, Failure> {
        let profile = self.stem().with_extension("profile");
        std::fs::read_to_string(&profile)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", profile.display())))
    }

    pub(super) fn totals(&self) -> Result<Totals, Failure> {
        let stem = self.stem();
        let program = self.workspace.counts_binary().display().to_string();
        let mut words = Vec::new();
        if self.callgrind {
            words.extend(Instrument::Callgrind.prefix(&stem));
        }
        words.push(program);
        let output = Command::new(&words[0])
            .args(&words[1..])
            .args(["shard", self.workload, "--operations", &self.operations.to_string(), "--dir"])
            .arg(stem.with_extension("data"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", words[0]))?;
        if !output.status.success() {
            return Err(Failure::new(format!("{} ended: {}", self.workload, output.status)));
        }
        let own = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{} printed something else: {error}", self.workload))?;
        let count = || Instrument::Callgrind.count(&stem);
        let instructions = self.callgrind.then(count).transpose()?;
        Ok(Totals { own, instructions })
    }
}

/// What a server was counted to do while one client sent it `operations` appends in turn.
fn server_total(
    workspace: &Workspace,
    scratch: &Path,
    instrument: Instrument,
    operations: u64,
) -> Result<f64, Failure> {
    let stem = scratch.join(format!("server-{}-{operations}", instrument.what()));
    let prefix = instrument.prefix(&stem);
    let server = Server::start_under(workspace, "counted", &prefix, &["--shards", "1"])?;
    let mut client = Command::new(workspace.counts_binary());
    client.args(["client", "--address", &server.address().to_string()]);
    client.args(["--operations", &operations.to_string()]);
    run::check(&mut client, "the client of the counted server failed")?;
    server.stop()?;
    instrument.count(&stem).map_err(Failure::new)
}
