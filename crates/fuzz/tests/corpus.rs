//! Every committed input passes, without a fuzzer; and every target has its parts.

use env::{Random, SeededRandom};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thalweg_fuzz::{TARGETS, Target, fuzz_dir};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Changed inputs of each target.
const CHANGED_COUNT: usize = 1000;

/// Memory that one input may take in all, given back or not: some kilobytes must not ask for more.
const ALLOCATED_BYTES_MAX: usize = 64 << 20;

/// Longest changed input.
const INPUT_BYTES_MAX: usize = 4096;

/// Memory is counted for the whole process, so one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The committed inputs of a target, by path, in order.
fn committed(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = fuzz_dir().join("corpus").join(target.name);
    let inputs = std::fs::read_dir(dir).expect(target.name).map(|input| {
        let path = input.expect("a readable directory").path();
        let bytes = std::fs::read(&path).expect("a readable input");
        (path.display().to_string(), bytes)
    });
    let mut inputs: Vec<_> = inputs.collect();
    inputs.sort();
    inputs
}

/// The inputs that a target fails on; the test's output has the reason for each.
fn failed(target: &Target, inputs: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<String> {
    let fails = |input: &[u8]| std::panic::catch_unwind(|| (target.run)(input)).is_err();
    inputs.filter(|(_, input)| fails(input)).map(|(name, _)| name).collect()
}

#[test]
fn every_first_input_passes() {
    let _alone = alone();
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
    let _alone = alone();
    let corpus = fuzz_dir().join("corpus");
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
    let _alone = alone();
    let all = TARGETS.iter().flat_map(|target| failed(target, committed(target).into_iter()));
    assert_eq!(all.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Changes some bytes of `input`, as often as the dice say.
fn changed(mut input: Vec<u8>, other: &[u8], dice: &mut SeededRandom) -> Vec<u8> {
    for _ in 0..=dice.below(4) {
        let at = dice.below(input.len() as u64 + 1) as usize;
        let length = 1 + dice.below(8) as usize;
        let end = input.len().min(at + length);
        match dice.below(7) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..end)),
            2 => input[at..end].iter_mut().for_each(|byte| *byte ^= 1 << dice.below(8)),
            3 => input[at..end].fill([0, 1, 0x7f, 0x80, 0xff][dice.below(5) as usize]),
            4 => input[at..end].iter_mut().for_each(|byte| *byte = dice.next_u64() as u8),
            5 => {
                let twice = input[at..end].to_vec();
                input.splice(at..at, twice);
            }
            _ => {
                let from = dice.below(other.len() as u64 + 1) as usize;
                input.splice(at.., other[from..].iter().copied());
            }
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

/// What a fuzzer does, without its knowledge of the code: always the same inputs, so that a change is refused for what it is, and
/// not for luck. `cargo xtask fuzz` finds more.
#[test]
fn inputs_with_changed_bytes_pass() {
    let _alone = alone();
    let mut all = Vec::new();
    for target in TARGETS {
        let inputs = committed(target);
        let mut dice = SeededRandom::new(1);
        for number in 0..CHANGED_COUNT {
            let mut pick = || &inputs[dice.below(inputs.len() as u64) as usize];
            let ((name, one), (_, other)) = (pick(), pick());
            let input = changed(one.clone(), other, &mut dice);
            let name = format!("{name}, changed, number {number}: {input:?}");
            let region = Region::new(ALLOCATOR);
            all.extend(failed(target, std::iter::once((name.clone(), input))));
            if region.change().bytes_allocated > ALLOCATED_BYTES_MAX {
                all.push(format!("{name} takes too much memory"));
            }
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn every_target_has_its_program() {
    let _alone = alone();
    let programs = fuzz_dir().join("fuzz_targets");
    let count = std::fs::read_dir(&programs).expect("the programs").count();
    assert_eq!(count, TARGETS.len());
    for target in TARGETS {
        let text = std::fs::read_to_string(programs.join(format!("{}.rs", target.name)));
        assert!(text.expect(target.name).contains("thalweg_fuzz::"));
    }
}
