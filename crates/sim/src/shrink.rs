//! A smaller plan that breaks the same promise.

use crate::{
    oracle::Rule,
    plan::Plan,
    run::{Failure, run},
};

/// Leaves out faults and time as long as the same rule is broken. Another choice of faults changes
/// what the seed does afterwards, so this finds a neighbour of the failure, often a simpler one.
#[must_use]
pub fn shrink(failure: Failure) -> Failure {
    let rule = failure.violation.rule;
    let mut best = failure;
    let mut at = 0;
    while at < best.plan.faults.len() {
        let mut plan = best.plan.clone();
        plan.faults.remove(at);
        match attempt(&plan, rule) {
            Some(smaller) => best = smaller,
            None => at += 1,
        }
    }
    let (mut low, mut high) = (0, best.plan.seconds);
    while low + 1 < high {
        let seconds = low.midpoint(high);
        match attempt(&Plan { seconds, ..best.plan.clone() }, rule) {
            Some(shorter) => (best, high) = (shorter, seconds),
            None => low = seconds,
        }
    }
    best
}

fn attempt(plan: &Plan, rule: Rule) -> Option<Failure> {
    run(plan).err().map(|failure| *failure).filter(|failure| failure.violation.rule == rule)
}
