//! The longest turns of a shard's loop when very much falls due at once: `crowds` says how they are measured.
//!
//! `cargo xtask turns` runs each crowd and holds the limit.

mod crowds;

use clap::Parser;
use crowds::Crowd;
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
    #[arg(long)]
    dir: PathBuf,
}

fn main() {
    let Cli { crowd, count, dir } = Cli::parse();
    println!("{}", crowds::longest(crowd, count, &dir));
}
