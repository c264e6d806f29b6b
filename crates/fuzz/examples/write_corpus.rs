//! Writes the first inputs of every target to `corpus`: `cargo xtask fuzz --write-corpus`.
//!
//! Inputs that were committed because they once failed have other names and stay.

use std::io;
use thalweg_fuzz::{TARGETS, fuzz_dir};

fn main() -> io::Result<()> {
    let corpus = fuzz_dir().join("corpus");
    for target in TARGETS {
        let dir = corpus.join(target.name);
        std::fs::create_dir_all(&dir)?;
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number:03}")), seed)?;
        }
        println!("{}: {} inputs", target.name, seeds.len());
    }
    Ok(())
}
