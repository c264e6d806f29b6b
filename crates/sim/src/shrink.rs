//! A smaller plan that breaks the same promise.

use crate::{
    oracle::Rule,
    plan::Plan,
    run::{Failure, run},
};

/// Runs that a search may take. Each ends by itself, so the search does.
pub const RUNS_MAX: u32 = 60;

/// Leaves out faults and time as long as the same rule is broken. Another choice of faults changes
/// what the seed does afterwards, so this finds a neighbour of the failure, often a simpler one.
#[must_use]
pub fn shrink(failure: Failure) -> Failure {
    let mut search = Search { rule: failure.violation.rule, best: failure, left: RUNS_MAX };
    // What happens after the failure is not needed: this makes every later run shorter.
    search.try_seconds(search.best.at_us / 1_000_000 + 1);
    search.leave_out_http2();
    search.leave_out_access();
    while search.leave_out_faults() {}
    search.leave_out_time();
    search.best
}

struct Search {
    rule: Rule,
    best: Failure,
    left: u32,
}

impl Search {
    /// Runs a plan; keeps it if it breaks the same rule.
    fn attempt(&mut self, plan: &Plan) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        match run(plan) {
            Err(failure) if failure.violation.rule == self.rule => {
                self.best = *failure;
                true
            }
            _ => false,
        }
    }

    fn try_seconds(&mut self, seconds: u64) -> bool {
        let plan = Plan { seconds, ..self.best.plan.clone() };
        seconds < self.best.plan.seconds && self.attempt(&plan)
    }

    fn leave_out_http2(&mut self) {
        if self.best.plan.http2_percent > 0 {
            let plan = Plan { http2_percent: 0, ..self.best.plan.clone() };
            self.attempt(&plan);
        }
    }

    fn leave_out_access(&mut self) {
        if self.best.plan.has_access {
            let plan = Plan { has_access: false, ..self.best.plan.clone() };
            self.attempt(&plan);
        }
    }

    /// Tries each fault once; returns whether one could be left out.
    fn leave_out_faults(&mut self) -> bool {
        let before = self.best.plan.faults.len();
        let mut at = 0;
        while at < self.best.plan.faults.len() {
            let mut plan = self.best.plan.clone();
            plan.faults.remove(at);
            if !self.attempt(&plan) {
                at += 1;
            }
        }
        self.best.plan.faults.len() < before && self.left > 0
    }

    fn leave_out_time(&mut self) {
        let (mut low, mut high) = (0, self.best.plan.seconds);
        while low + 1 < high {
            let seconds = low.midpoint(high);
            if self.try_seconds(seconds) { high = seconds } else { low = seconds }
        }
    }
}
