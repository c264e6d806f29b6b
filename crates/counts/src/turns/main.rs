//! The longest turns of a shard's loop when very much falls due at once: `crowds` says how they are measured.
//!
//! `cargo xtask turns` runs each crowd and holds the limit.

mod audience;
mod crowds;

use audience::Places;
use clap::Parser;
use crowds::Crowd;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The longest turns of one shard's loop, in processor time of its thread, as a line of JSON
#[derive(Parser)]
struct Cli {
    /// What falls due at once
    crowd: Crowd,
    /// How much of it
    #[arg(long)]
    count: u64,
    /// An empty directory
    #[arg(long, required_unless_present = "server")]
    dir: Option<PathBuf>,
    /// Be the clients of the loop at this address
    #[arg(long, requires = "starter", hide = true)]
    server: Option<SocketAddr>,
    /// Where the process waits that started the clients
    #[arg(long, requires = "server", hide = true)]
    starter: Option<SocketAddr>,
}

fn main() {
    let Cli { crowd, count, dir, server, starter } = Cli::parse();
    if let Some((server, starter)) = server.zip(starter) {
        let request = crowd.request().expect("these crowds have clients");
        return audience::run(request, count, Places { server, starter });
    }
    let dir = dir.expect("it is required");
    println!("{}", crowds::longest(crowd, count, &dir));
}
