//! Fixed seeds of the engine's world must hold and repeat, and each of its defects must be found out.

use thalweg_sim::{EngineFailure, EngineMutant, EnginePlan, EngineReport, run_engine};

fn plan(seed: u64, mutant: Option<EngineMutant>) -> EnginePlan {
    EnginePlan { seed, mutant, verbose: false }
}

fn run(seed: u64) -> Result<EngineReport, Box<EngineFailure>> {
    run_engine(plan(seed, None))
}

#[test]
fn seeds_0_to_299_hold() {
    let broken: Vec<String> =
        (0..300).filter_map(|seed| run(seed).err()).map(|failure| failure.to_string()).collect();
    assert!(broken.is_empty(), "{} of 300:\n{}", broken.len(), broken.join("\n"));
}

/// A hole at the start of a segment was reported at the end of the one before it; when that one was
/// recycled, the hole was taken for damage.
#[test]
fn a_hole_behind_a_recycled_segment_is_no_damage() {
    run(13_901).unwrap();
}

/// A hole of two whole segments and more was remembered as one of two. When the segment in which it began was
/// recycled, its end was taken for damage.
#[test]
fn a_hole_that_reaches_over_whole_segments_is_no_damage() {
    run(541_677_670_392).unwrap();
}

#[test]
fn a_seed_replays_and_another_one_is_another_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).unwrap().trace_hash, run(8).unwrap().trace_hash);
}

#[test]
fn most_acts_are_acknowledged() {
    let acked: u64 = (0..20).map(|seed| run(seed).unwrap().acked_count).sum();
    assert!(acked > 5_000, "{acked}");
}

#[test]
fn every_mutant_is_found_out() {
    for mutant in EngineMutant::ALL {
        let found = (0..60).find_map(|seed| run_engine(plan(seed, Some(*mutant))).err());
        let failure = found.unwrap_or_else(|| panic!("{mutant:?} was not found out"));
        assert!(!failure.detail.contains("panic"), "{mutant:?}: {}", failure.detail);
    }
}
