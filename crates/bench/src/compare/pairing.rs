//! Ratios of pairs, and what may be said of them.

use super::record::{CaseRecord, Comparison};
use crate::spread::Spread;

/// A figure that systems are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Its name in a run.
    pub(crate) figure: &'static str,
    /// Its name in tables.
    pub(crate) label: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// What the pairs of one metric say of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Better in every pair.
    Ahead,
    /// Worse in every pair.
    Behind,
    /// Now this, now that, or too few pairs to say.
    Undecided,
}

/// This server against one peer by one metric in one case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contest {
    /// Ours divided by theirs.
    pub(crate) ratio: Spread,
    pub(crate) verdict: Verdict,
}

/// One line of the summary.
#[derive(Debug)]
pub(crate) struct Finding<'a> {
    pub(crate) case: &'a CaseRecord,
    pub(crate) peer: &'a str,
    pub(crate) metric: Metric,
    pub(crate) contest: Contest,
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Behind => "**behind**",
            Self::Undecided => "undecided",
        }
    }
}

impl Contest {
    /// None without a pair.
    pub(crate) fn of(case: &CaseRecord, ours: &str, theirs: &str, metric: &Metric) -> Option<Self> {
        Self::of_pairs(&case.pairs(ours, theirs, metric), metric.better)
    }

    fn of_pairs(pairs: &[(f64, f64)], better: Better) -> Option<Self> {
        // Nothing is what a figure below its grain says; it has no ratio.
        let whole = pairs.iter().filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0);
        let ratios: Vec<f64> = whole.map(|(ours, theirs)| ours / theirs).collect();
        let ratio = Spread::of(&ratios)?;
        let above = ratio.least > 1.0;
        let below = ratio.most < 1.0;
        let verdict = match (above, below, better) {
            _ if ratios.len() < 2 => Verdict::Undecided,
            (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Ahead,
            (true, _, Better::Lower) | (_, true, Better::Higher) => Verdict::Behind,
            _ => Verdict::Undecided,
        };
        Some(Self { ratio, verdict })
    }
}

/// Every contest of a comparison.
pub(crate) fn findings(comparison: &Comparison) -> Vec<Finding<'_>> {
    let Some((ours, peers)) = comparison.rivals() else { return Vec::new() };
    let mut findings = Vec::new();
    for case in &comparison.cases {
        for peer in peers.clone() {
            for metric in case.workload.metrics() {
                let contest = Contest::of(case, &ours.key, &peer.key, metric);
                findings.extend(contest.map(|contest| Finding {
                    case,
                    peer: &peer.label,
                    metric: *metric,
                    contest,
                }));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pairs: &[(f64, f64)], better: Better) -> Verdict {
        Contest::of_pairs(pairs, better).unwrap().verdict
    }

    #[test]
    fn a_ratio_is_of_the_two_runs_of_one_turn() {
        let pairs = [(2.0, 1.0), (30.0, 10.0), (100.0, 25.0)];
        let contest = Contest::of_pairs(&pairs, Better::Higher).unwrap();
        let Spread { least, median, most } = contest.ratio;
        assert_eq!((least, median, most), (2.0, 3.0, 4.0));
    }

    #[test]
    fn only_what_every_pair_says_is_decided() {
        let (more, less) = ([(2.0, 1.0), (3.0, 2.0)], [(1.0, 2.0), (2.0, 3.0)]);
        assert_eq!(verdict(&more, Better::Higher), Verdict::Ahead);
        assert_eq!(verdict(&more, Better::Lower), Verdict::Behind);
        assert_eq!(verdict(&less, Better::Higher), Verdict::Behind);
        assert_eq!(verdict(&less, Better::Lower), Verdict::Ahead);
        assert_eq!(verdict(&[(2.0, 1.0), (1.0, 2.0)], Better::Higher), Verdict::Undecided);
        assert_eq!(verdict(&[(2.0, 1.0)], Better::Higher), Verdict::Undecided);
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert!(Contest::of_pairs(&[], Better::Higher).is_none());
        assert!(Contest::of_pairs(&[(1.0, 0.0), (0.0, 1.0)], Better::Lower).is_none());
    }
}
