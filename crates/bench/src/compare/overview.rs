//! The page that is read first: one picture, one table, and where this server is behind.
//!
//! The table has one case of each workload, the one in which this server looks worst beside the best other system. So nothing is
//! chosen to please.

use super::chart::{self, Bar};
use super::page::{self, ratio};
use super::pairing::{Better, Contest, Finding, Metric, Verdict, findings};
use super::record::{CaseRecord, Comparison, ContenderRecord};
use super::workloads::Workload;
use crate::failure::Outcome;
use crate::report::number;
use crate::spread::Spread;
use std::fmt::Write;

/// The page's name in its directory, and that of its picture.
pub(crate) const FILE: &str = "README.md";
pub(crate) const PICTURE: &str = "overview.svg";

/// This server beside the best other system, by one metric in one case.
struct Duel<'a> {
    case: &'a CaseRecord,
    metric: &'a Metric,
    peer: &'a str,
    /// Medians of the turns.
    ours: f64,
    theirs: f64,
    contest: Contest,
}

impl<'a> Duel<'a> {
    /// None if no other system was measured.
    fn of(comparison: &'a Comparison, case: &'a CaseRecord, metric: &'a Metric) -> Option<Self> {
        let (own, peers) = comparison.rivals()?;
        let median = |one: &ContenderRecord| {
            Spread::of(&case.values(&one.key, metric)).map(|spread| spread.median)
        };
        let found = peers.filter_map(|peer| Some((peer, median(peer)?)));
        let (peer, theirs) = match metric.better {
            Better::Higher => found.max_by(|one, other| one.1.total_cmp(&other.1)),
            Better::Lower => found.min_by(|one, other| one.1.total_cmp(&other.1)),
        }?;
        let contest = Contest::of(case, &own.key, &peer.key, metric)?;
        let (peer, ours) = (peer.label.as_str(), median(own)?);
        Some(Self { case, metric, peer, ours, theirs, contest })
    }

    /// How many times better than the other one.
    fn lead(&self) -> f64 {
        match self.metric.better {
            Better::Higher => self.contest.ratio.median,
            Better::Lower => 1.0 / self.contest.ratio.median,
        }
    }

    fn cells(&self) -> String {
        let Metric { label, unit, .. } = self.metric;
        let (ours, theirs) = (number(self.ours), number(self.theirs));
        let ratio = format!("{} ×", number(self.contest.ratio.median));
        let ratio = match self.contest.verdict {
            Verdict::Behind => format!("**{ratio}**"),
            _ => ratio,
        };
        format!("{label}, {unit} | {ours} | {theirs} ({}) | {ratio} |", self.peer)
    }
}

/// The case of a workload in which this server looks worst by its first metric: by that metric, and by the server's CPU time.
fn worst(comparison: &Comparison, workload: Workload) -> Vec<Duel<'_>> {
    let Some(first) = workload.metrics().first() else { return Vec::new() };
    let cases = comparison.cases.iter().filter(|case| case.workload == workload);
    let duels = cases.filter_map(|case| Duel::of(comparison, case, first));
    let worst = duels.min_by(|one, other| one.lead().total_cmp(&other.lead()));
    let is_cpu = |metric: &&Metric| metric.figure.starts_with("server CPU");
    let cpu = workload.metrics().iter().find(is_cpu);
    let of_cpu = worst.as_ref().zip(cpu);
    let of_cpu = of_cpu.and_then(|(duel, metric)| Duel::of(comparison, duel.case, metric));
    worst.into_iter().chain(of_cpu).collect()
}

/// The page and its picture, with their names.
pub(crate) fn render_all(comparison: &Comparison) -> Outcome<Vec<(String, String)>> {
    let duels: Vec<Vec<Duel<'_>>> = comparison
        .workloads()
        .into_iter()
        .map(|workload| worst(comparison, workload))
        .filter(|duels| !duels.is_empty())
        .collect();
    let bars = duels.iter().flatten().map(|duel| Bar {
        label: format!("{}, {}: {}", duel.case.workload.title(), duel.case.name, duel.metric.label),
        lead: duel.lead(),
    });
    let picture = chart::render_leads(&bars.collect::<Vec<Bar>>())?;
    let page = render(comparison, &duels);
    Ok(vec![(FILE.to_owned(), page), (PICTURE.to_owned(), picture)])
}

fn render(comparison: &Comparison, duels: &[Vec<Duel<'_>>]) -> String {
    let Comparison { commit, pairs, .. } = comparison;
    let findings = findings(comparison);
    let of = |verdict| findings.iter().filter(move |found| found.contest.verdict == verdict);
    let mut page = String::from("# Thalweg beside other systems\n\n");
    let _ = writeln!(page, "Commit {commit}:\n\n{}", comparison.occasions());
    if comparison.is_trial {
        page.push_str("**A trial with small numbers: its figures mean nothing.**\n\n");
    }
    put_systems(&mut page, comparison);
    let _ = writeln!(
        page,
        "Of {} comparisons Thalweg is behind in {}, ahead in {}, and {} are undecided. Each is of {pairs} turns. All that was measured,\n\
         and how, is in [details.md]({}).\n",
        findings.len(),
        of(Verdict::Behind).count(),
        of(Verdict::Ahead).count(),
        of(Verdict::Undecided).count(),
        page::FILE
    );
    let _ = writeln!(page, "![Thalweg beside the best other system]({PICTURE})\n");
    page.push_str(
        "Of each workload the table and the picture have the case in which Thalweg looks worst, beside the system that is best in it.\n\n\
         | Workload | Case | Figure | Thalweg | The best other | Thalweg ÷ |\n|---|---|---|---:|---:|---:|\n",
    );
    for duel in duels.iter().flatten() {
        let title = duel.case.workload.title();
        let _ = writeln!(page, "| {title} | {} | {}", duel.case.name, duel.cells());
    }
    page.push_str("\n## Where Thalweg is behind\n\n");
    of(Verdict::Behind).for_each(|found| put_finding(&mut page, found));
    if of(Verdict::Behind).count() == 0 {
        page.push_str("Nowhere.\n");
    }
    page
}

/// The systems, by what they have done when they acknowledge.
fn put_systems(page: &mut String, comparison: &Comparison) {
    for contender in comparison.contenders.iter().filter(|one| !one.is_yardstick) {
        let _ = writeln!(page, "- {}: {}", contender.label, contender.durability);
    }
    page.push('\n');
}

fn put_finding(page: &mut String, found: &Finding<'_>) {
    let title = found.case.workload.title();
    let (case, peer, metric) = (&found.case.name, found.peer, found.metric.label);
    let ratio = ratio(&found.contest.ratio);
    let _ = writeln!(page, "- {title}, {case}, {metric}: {ratio} of {peer}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::record::tests::comparison;

    fn page(rates: &[(f64, f64)]) -> String {
        let files = render_all(&comparison(rates)).unwrap();
        files.into_iter().find(|(name, _)| name == FILE).unwrap().1
    }

    #[test]
    fn the_first_page_counts_and_names_the_best_other_system() {
        let page = page(&[(200.0, 100.0), (300.0, 100.0)]);
        for part in [
            "Commit abc:\n\n- 2026-01-02, 0 × ",
            "- Ours: fdatasync before it",
            "Of 1 comparisons Thalweg is behind in 0, ahead in 1, and 0 are undecided.",
            "| Writes to many streams | 7 streams | appends, 1/s | 250 | 100 (Theirs) | 2.50 × |",
            "Nowhere.",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn losses_are_listed() {
        let page = page(&[(50.0, 100.0), (60.0, 100.0)]);
        let loss = "- Writes to many streams, 7 streams, appends: 0.55 × (0.50–0.60) of Theirs";
        assert!(page.contains(loss) && page.contains("| **0.55 ×** |"), "{page}");
    }

    #[test]
    fn the_picture_has_a_bar_for_each_line_of_the_table() {
        let files = render_all(&comparison(&[(50.0, 100.0), (60.0, 100.0)])).unwrap();
        let (_, svg) = files.iter().find(|(name, _)| name == PICTURE).unwrap();
        for part in ["<svg", "Writes to many streams, 7 streams: appends", "0.55"] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
    }

    #[test]
    fn the_worst_case_and_the_best_system_are_shown() {
        let mut comparison = comparison(&[(200.0, 100.0), (300.0, 100.0)]);
        let mut worse = comparison_of(&[(90.0, 100.0), (90.0, 100.0)]);
        worse.name = "8 streams".to_owned();
        comparison.cases.push(worse);
        let [duel] = &worst(&comparison, Workload::Writes)[..] else { panic!("one metric") };
        assert_eq!((duel.case.name.as_str(), duel.peer), ("8 streams", "Theirs"));
        assert!(duel.lead() < 1.0);
    }

    #[test]
    fn nobody_is_behind_a_responder_that_stores_nothing() {
        let mut comparison = comparison(&[(50.0, 100.0), (60.0, 100.0)]);
        comparison.contenders[1].is_yardstick = true;
        assert!(
            worst(&comparison, Workload::Writes).is_empty() && findings(&comparison).is_empty()
        );
    }

    fn comparison_of(rates: &[(f64, f64)]) -> CaseRecord {
        comparison(rates).cases.pop().unwrap()
    }
}
