//! `GroupState::apply` against a reference model, under random steps that shrink.
//!
//! The reference ([`reference`]) is written from the protocol's rules with whole streams in plain
//! lists. After each step every answer and every query of both must be the same. `PROPTEST_CASES`
//! sets how many sequences are tried.

mod bug;
mod compare;
mod pair;
mod reference;
mod steps;

use bug::Bug;
use pair::Pair;
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use std::panic;
use steps::Step;

/// Enough for a stream to be made, forked, closed, deleted and made again.
const STEPS_MAX: usize = 120;

fn run(steps: &[Step], bug: Option<Bug>) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(bug);
    for step in steps {
        pair.take(step)?;
        pair.compare()?;
    }
    Ok(())
}

fn fails(steps: &[Step], bug: Option<Bug>) -> bool {
    !matches!(panic::catch_unwind(|| run(steps, bug)), Ok(Ok(())))
}

/// Without the steps that the failure does not need: proptest takes steps away before it makes the
/// others simpler, and some can go only then.
fn without_idle_steps(mut steps: Vec<Step>, bug: Option<Bug>) -> Vec<Step> {
    for position in (0..steps.len()).rev() {
        let mut fewer = steps.clone();
        fewer.remove(position);
        if fails(&fewer, bug) {
            steps = fewer;
        }
    }
    steps
}

/// The steps after which the two differ, as few as possible; `None` if they never do.
fn difference(mut runner: TestRunner, bug: Option<Bug>) -> Option<Vec<Step>> {
    let sequences = prop::collection::vec(steps::step(), 1..STEPS_MAX);
    match runner.run(&sequences, |steps| run(&steps, bug)) {
        Ok(()) => None,
        Err(TestError::Fail(reason, steps)) => {
            eprintln!("{reason}");
            Some(without_idle_steps(steps, bug))
        }
        Err(abort) => panic!("{abort}"),
    }
}

#[test]
fn every_answer_is_the_reference_models() {
    let config = Config { failure_persistence: None, ..Config::default() };
    if let Some(steps) = difference(TestRunner::new(config), None) {
        let reason = run(&steps, None);
        panic!("{reason:?} after {steps:#?}");
    }
}

#[test]
fn a_reference_that_tells_one_rule_wrongly_is_caught_in_a_few_steps() {
    for bug in bug::ALL {
        let config = Config { cases: 512, failure_persistence: None, ..Config::default() };
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let steps = difference(TestRunner::new_with_rng(config, random), Some(bug));
        let steps = steps.unwrap_or_else(|| panic!("{bug:?} went unnoticed"));
        assert!(steps.len() <= 6, "{bug:?} was shrunk only to {steps:#?}");
    }
}
