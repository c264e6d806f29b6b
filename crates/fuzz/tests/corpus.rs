//! Every committed input passes, without a fuzzer; and every target has its parts.

use std::path::Path;
use thalweg_fuzz::{TARGETS, Target};

/// The inputs that a target fails on; the test's output has the reason for each.
fn failed(target: &Target, inputs: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<String> {
    let fails = |input: &[u8]| std::panic::catch_unwind(|| (target.run)(input)).is_err();
    inputs.filter(|(_, input)| fails(input)).map(|(name, _)| name).collect()
}

#[test]
fn every_first_input_passes() {
    let mut all = Vec::new();
    for target in TARGETS {
        let seeds = (0..).zip((target.seeds)());
        let seeds = seeds.map(|(number, seed)| (format!("{} {number}", target.name), seed));
        let empty = (format!("{}, empty", target.name), Vec::new());
        all.extend(failed(target, seeds.chain([empty])));
    }
    assert!(all.is_empty(), "{all:?}");
}

/// A seed of an old format is refused at once, and the target behind it is not fuzzed.
#[test]
fn the_committed_first_inputs_are_those_of_the_targets() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = corpus.join(target.name).join(format!("seed-{number:03}"));
            let committed = std::fs::read(&path).unwrap_or_default();
            assert!(
                committed == *seed,
                "{}: run `cargo xtask fuzz --write-corpus`",
                path.display()
            );
        }
    }
}

#[test]
fn every_committed_input_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut all = Vec::new();
    for target in TARGETS {
        let inputs = std::fs::read_dir(corpus.join(target.name)).expect(target.name);
        let inputs = inputs.map(|input| {
            let path = input.expect("a readable directory").path();
            let bytes = std::fs::read(&path).expect("a readable input");
            (path.display().to_string(), bytes)
        });
        all.extend(failed(target, inputs));
    }
    assert!(all.is_empty(), "{all:?}");
}

#[test]
fn every_target_has_its_program() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let count = std::fs::read_dir(&programs).expect("the programs").count();
    assert_eq!(count, TARGETS.len());
    for target in TARGETS {
        let text = std::fs::read_to_string(programs.join(format!("{}.rs", target.name)));
        assert!(text.expect(target.name).contains("thalweg_fuzz::"));
    }
}
