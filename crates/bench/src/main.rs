//! `thalweg-bench`: the figures of docs/performance.md, measured.
//!
//! # What
//! Each command starts a server on an empty directory, or takes the URL of a running one. It puts one
//! kind of load on the server and reads back what was acknowledged. Then it prints figures as text,
//! as JSON or as the table of docs/performance.md.
//!
//! # How it measures
//! - Load comes from one thread and a hand-written HTTP/1.1 over epoll ([`load`]): it shares the
//!   machine with the server, so it must cost little. Its own CPU time is printed beside the
//!   server's.
//! - Only acknowledgements count. What was acknowledged must be there when it is read back; a run
//!   that finds otherwise fails.
//! - CPU time is that of the whole process, the kernel's included; memory is `VmRSS` and `VmHWM`.
//! - In an open loop (`--rate`) a latency begins when the request was due, not when there was a free
//!   connection for it: waiting in our own queue counts.
//!
//! # Code map
//! - [`cli`]: flags and commands; [`commands`]: one module for each; [`compare`]: one system beside others.
//! - [`systems`]: what can be measured; [`api`]: the requests of each system; [`nats`] and [`kafka`]: those
//!   without HTTP.
//! - [`server`]: the process under load; [`keeper`]: its end; [`process`]: what the operating system knows
//!   of it.
//! - [`load`]: sockets and loops; [`payload`]: bytes that name the place where they belong.
//! - [`report`]: the results; [`machine`]: where they were measured; [`disk`]: the most that its disk can
//!   do.

mod api;
mod cli;
mod commands;
mod compare;
mod disk;
mod failure;
mod gauge;
mod kafka;
mod keeper;
mod latency;
mod load;
mod machine;
mod nats;
mod payload;
mod process;
mod progress;
mod report;
mod server;
mod spread;
mod systems;

use std::process::ExitCode;

fn main() -> ExitCode {
    process::raise_descriptor_limit();
    match commands::run(cli::parse()) {
        Ok(passed) if passed => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("error: a check failed, see above");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
