//! One sync fails, and later ones succeed again: the shard must not acknowledge anything more, because
//! nobody knows what the failed one left out.
//!
//! `strace` makes a chosen `fdatasync` of each thread fail once.

use crate::http::{Connection, request};
use crate::ledger::{Fate, lock};
use crate::report::Report;
use crate::server::{Server, quiet};
use crate::trial::{Options, Outcome, Trial, Verdict, wait_until};
use crate::verify::Allowed;
use std::process::Command;
use std::time::Duration;

const EXPECTED: &[&str] = &["write-unknown", "storage-failed", "disk-full"];
/// How long the log is still read, and answers checked, after the failure.
const LINGER: Duration = Duration::from_millis(300);
/// Streams that are asked one by one after the failure.
const ASKED_COUNT: usize = 20;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    if !quiet(Command::new("strace").arg("-V")) {
        return Ok(Verdict::Skipped("strace is not installed".to_owned()));
    }
    let cycles = options.cycles(2, 10);
    let mut trial = Trial::new(options, report, "sync-failure", &options.dir.join("sync"))?;
    for _ in 0..cycles {
        let server = trial.serve()?;
        let round = trial.round(&server);
        round.run(|| std::thread::sleep(Duration::from_millis(300)));
        server.stop()?;
        let server = serve_with_failure(&mut trial)?;
        fail(&mut trial, &server)?;
        check_poisoned(&trial, &server)?;
        let allowed = Allowed { read_only: true, unsettled: true, ..Allowed::default() };
        trial.verify(&server, allowed)?;
        server.kill()?;
        let server = trial.serve()?;
        trial.verify(&server, Allowed::default())?;
        server.stop()?;
        trial.count_cycle(cycles);
    }
    Ok(Verdict::Done)
}

/// One shard, so that all streams share the failure.
fn serve_with_failure(trial: &mut Trial<'_>) -> Outcome<Server> {
    let number = trial.numbers.within(20, 200);
    let inject = format!("inject=fdatasync:error=EIO:when={number}");
    let strace = "strace -D -f -qq -o /dev/null -e trace=fdatasync -e";
    trial.start.under = strace.split(' ').map(str::to_owned).chain([inject]).collect();
    trial.start.flags = vec!["--shards=1".to_owned()];
    let server = trial.start.serve();
    trial.start.under.clear();
    server
}

/// Writes until the server says that it is poisoned, and a little longer.
fn fail(trial: &mut Trial<'_>, server: &Server) -> Outcome<()> {
    let round = trial.round(server).expecting(EXPECTED);
    let told = round.run(|| {
        let told = wait_until("/readyz tells of a failed sync", || {
            let (status, text) = server.readiness()?;
            Ok(status == 503 && text.contains("poisoned"))
        });
        std::thread::sleep(LINGER);
        told
    });
    told?;
    trial.clean()
}

/// No write is taken any more, of whatever kind.
fn check_poisoned(trial: &Trial<'_>, server: &Server) -> Outcome<()> {
    let mut connection = Connection::open(server.address).map_err(|error| error.to_string())?;
    let streams = trial.ledger.all();
    let open = streams.iter().map(|stream| lock(stream)).filter(|stream| stream.is_open());
    let kinds = open.take(ASKED_COUNT).map(|s| (s.path.clone(), s.kind.media_type()));
    for (path, media_type) in kinds.collect::<Vec<_>>() {
        let fields = [("Content-Type", media_type)];
        let new = format!("{path}/new");
        let requests = [
            request("POST", &path, &fields, b"1"),
            request("POST", &path, &[("Stream-Closed", "true")], b""),
            request("DELETE", &path, &[], b""),
            request("PUT", &new, &fields, b""),
        ];
        for request in requests {
            let answer = connection.call(&request).map_err(|error| error.to_string())?;
            if answer.code() != "storage-failed" {
                let method = String::from_utf8_lossy(&request[..6]).into_owned();
                let what = format!("after a failed sync {method}… {path}: {}", answer.shown());
                trial.report.violation(what);
            }
        }
    }
    let is_any = streams.iter().any(|stream| lock(stream).created == Fate::Done);
    assert!(is_any, "the load made streams before the failure");
    trial.clean()
}
