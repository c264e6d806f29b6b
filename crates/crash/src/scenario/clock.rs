//! The clock of the server goes back and forth between starts, by up to a day. What has no lifetime
//! must not notice. One stream has a lifetime of two hours and is used in each cycle. It must not expire either: a clock
//! that is ahead by more than one hour is not believed.
//!
//! libfaketime changes the time for the process only, and leaves the machine's clock alone. The monotonic
//! clock, which no setting of a clock changes, stays as it is.

use crate::http::{Connection, request};
use crate::report::Report;
use crate::server::Server;
use crate::trial::{Options, Outcome, Trial, Verdict};
use crate::verify::Allowed;
use std::path::Path;
use std::time::Duration;

const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

const DAY_SECONDS: u64 = 86_400;

/// A stream with a lifetime: longer than any jump that is believed.
const MORTAL: &str = "/mortal";
const LIFETIME: [(&str, &str); 2] = [("Content-Type", "text/plain"), ("Stream-TTL", "7200")];

pub(crate) fn run(options: &Options, report: &Report) -> Outcome<Verdict> {
    let Some(library) = LIBRARIES.iter().find(|library| Path::new(library).exists()) else {
        return Ok(Verdict::Skipped(
            "libfaketime is not installed (Debian's package libfaketime)".to_owned(),
        ));
    };
    let cycles = options.cycles(3, 30);
    let mut trial = Trial::new(options, report, "clock", &options.dir.join("clock"))?;
    set_clock(&mut trial, library, 0);
    let mut server = trial.serve()?;
    use_mortal(&server, &request("PUT", MORTAL, &LIFETIME, b"lives"))?;
    for _ in 0..cycles {
        let pause = Duration::from_millis(trial.numbers.within(50, 800));
        let round = trial.round(&server);
        let killed = round.run(|| {
            std::thread::sleep(pause);
            round.expect_death();
            server.kill()
        });
        killed?;
        trial.clean()?;
        let drawn = trial.numbers.within(0, 2 * DAY_SECONDS);
        set_clock(&mut trial, library, drawn.cast_signed() - DAY_SECONDS.cast_signed());
        server = trial.serve()?;
        trial.verify(&server, Allowed::default())?;
        use_mortal(&server, &request("GET", MORTAL, &[], b""))?;
        trial.count_cycle(cycles);
    }
    server.kill()?;
    Ok(Verdict::Done)
}

/// Makes or reads the stream with a lifetime, which is a use of it.
fn use_mortal(server: &Server, request: &[u8]) -> Outcome<()> {
    let answer = Connection::open(server.address).and_then(|mut to| to.call(request));
    let answer = answer.map_err(|error| format!("the stream with a lifetime: {error}"))?;
    let is_well = answer.is_success();
    if is_well { Ok(()) } else { Err(format!("the stream with a lifetime: {}", answer.shown())) }
}

/// Shifts the clock of the next start by so many seconds.
fn set_clock(trial: &mut Trial<'_>, library: &str, seconds: i64) {
    trial.start.under = vec![
        "env".to_owned(),
        format!("LD_PRELOAD={library}"),
        format!("FAKETIME={seconds:+}s"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ];
}
