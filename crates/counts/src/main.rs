//! Work whose cost is counted: instructions, allocations, bytes, system calls.
//!
//! # Why
//! Times differ from run to run and from machine to machine; counts hardly do. So the repository holds
//! counts as limits, and a change that makes an append dearer is seen before a merge.
//!
//! # What
//! `shard` runs one shard's real loop, turn by turn, with its clients, in one thread. The clock is still and
//! jobs run in place: two runs do the same. `client` sends appends to a real server, one after the
//! other, while another program counts what its process does. The longest turns of a loop are another program's,
//! `thalweg-turns`: what it needs would change what the compiler inlines here.
//!
//! # Driving it
//! `cargo xtask counts` runs each twice with different numbers of operations. What a run costs once
//! (opening files, making streams, growing tables) is the same in both; the difference is the
//! operations'. Totals are printed as one line of JSON.

mod client;
mod plane;
mod workload;

use clap::{Parser, Subcommand};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use workload::Workload;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Work that is counted
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Requests through one shard's loop, in one thread
    Shard {
        /// What to do
        workload: Workload,
        /// How often
        #[arg(long)]
        operations: u64,
        /// An empty directory
        #[arg(long)]
        dir: PathBuf,
    },
    /// Appends to a running server, one after the other
    Client {
        /// Its address
        #[arg(long)]
        address: SocketAddr,
        /// How many
        #[arg(long)]
        operations: u64,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Shard { workload, operations, dir } => {
            count_shard(workload, operations, &dir);
            Ok(())
        }
        Command::Client { address, operations } => client::append_serially(address, operations),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn count_shard(workload: Workload, operations: u64, dir: &std::path::Path) {
    let totals = workload.run(operations, dir);
    let heap = ALLOCATOR.stats();
    let line = json!({
        "allocations": heap.allocations + heap.reallocations,
        "allocated_bytes": heap.bytes_allocated,
        "wal_bytes": totals.wal_bytes,
        "answer_bytes": totals.answer_bytes,
    });
    println!("{line}");
}
