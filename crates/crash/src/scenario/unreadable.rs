//! Reads of one file fail while the server starts and serves, as on a disk that has lost blocks. The server starts all
//! the same. Streams that are hit say so; all others are intact, and writes are taken.
//!
//! `strace` makes the reads fail: those of one file, from one of them on. Of a segment of the log only two reads fail:
//! more can hide the last entries of a group (docs/reliability.md, known gaps). Each trial has a copy of the same directory.

use crate::http::{Connection, request};
use crate::report::{Report, add};
use crate::scenario::bit_flip::{choose, on_copies, serve};
use crate::server::{Server, quiet};
use crate::trial::{Options, Outcome, Trial, Verdict};
use crate::verify::Allowed;
use std::path::Path;
use std::process::Command;

/// Where reads fail. A segment of the log is hit as often as a chunk.
const PLACES: [&str; 6] = ["chunks", "wal", "checkpoints", "chunks", "wal", "FORMAT"];
const TRIALS_PER_BASE: u64 = 6;

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    if !quiet(Command::new("strace").arg("-V")) {
        return Ok(Verdict::Skipped("strace is not installed".to_owned()));
    }
    let cycles = options.cycles(3, 30);
    on_copies((options, report), "unreadable", (cycles, TRIALS_PER_BASE), |trial, done| {
        one(trial, PLACES[done % PLACES.len()])
    })
}

fn one(trial: &mut Trial<'_>, place: &str) -> Outcome<()> {
    let Some((file, _)) = choose(&trial.start.data, place, &mut trial.numbers) else {
        return Ok(());
    };
    let first = trial.numbers.within(1, 20);
    // One read of many blocks, and the first of the single blocks that are tried after it.
    let when = if place == "wal" { format!("{first}..{}", first + 1) } else { format!("{first}+") };
    let what = format!("reads of {} fail ({when})", file.display());
    trial.start.under = failing_reads(&file, &when);
    let server = serve(trial);
    trial.start.under.clear();
    let server = server.map_err(|error| format!("{what}: {error}"))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let allowed = Allowed { damaged_file: Some(name), read_only: true, ..Allowed::default() };
    let damaged = trial.verify(&server, allowed).map_err(|error| format!("{what}: {error}"))?;
    if place == "FORMAT" && !damaged.is_empty() {
        return Err(format!("{what}, and {} streams are damaged", damaged.len()));
    }
    add(&trial.report.flips_felt, u64::from(!damaged.is_empty()));
    takes_writes(&server).map_err(|error| format!("{what}: {error}"))?;
    server.kill()
}

/// Words before the server's: reads of a file fail, those with these numbers.
fn failing_reads(file: &Path, when: &str) -> Vec<String> {
    let calls = "pread64,preadv2,sendfile";
    let words = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-P"].map(str::to_owned);
    let file = file.display().to_string();
    let trace = format!("trace={calls}");
    let inject = format!("inject={calls}:error=EIO:when={when}");
    let rest = [file, "-e".to_owned(), trace, "-e".to_owned(), inject];
    words.into_iter().chain(rest).collect()
}

/// A new stream can be made, written, read and deleted.
fn takes_writes(server: &Server) -> Outcome<()> {
    let mut connection = Connection::open(server.address).map_err(|error| error.to_string())?;
    let text = [("Content-Type", "text/plain")];
    for (method, body) in [("PUT", &b""[..]), ("POST", b"taken"), ("GET", b""), ("DELETE", b"")] {
        let request = request(method, "/beside-unreadable-blocks", &text, body);
        let answer = connection.call(&request).map_err(|error| error.to_string())?;
        if !answer.is_success() {
            return Err(format!("{method} is answered {}", answer.shown()));
        }
    }
    Ok(())
}
