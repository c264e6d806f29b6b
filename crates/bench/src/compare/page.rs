//! All figures of a comparison: what was measured, and how.

use super::chart;
use super::pairing::{Contest, Metric};
use super::record::{CaseRecord, Comparison, Part};
use super::workloads::Workload;
use crate::report::number;
use crate::spread::Spread;
use std::fmt::Write;

/// The page's name in its directory, and that of the figures.
pub(crate) const FILE: &str = "details.md";
pub(crate) const FIGURES: &str = "figures.json";

const READING: &str = "\
Every run has a server of its own on an empty directory. The systems take turns (A B C, then C B A). A ratio\n\
compares the two runs of one turn: Thalweg's figure divided by the other's. The report gives the median of the\n\
ratios and, in brackets, the least and the greatest. *Ahead* and *behind* need every pair to say the same. A run\n\
counts only if nothing was refused and everything acknowledged was read back unchanged. Server CPU is user and\n\
system time of the server's process. The client runs on the same machine and takes its share.\n";

/// The whole page.
pub(crate) fn render(comparison: &Comparison) -> String {
    let mut page = String::from("# Thalweg beside other systems: all figures\n\n");
    put_head(&mut page, comparison);
    for workload in comparison.workloads() {
        put_workload(&mut page, comparison, workload);
    }
    put_problems(&mut page, comparison);
    page
}

fn put_head(page: &mut String, comparison: &Comparison) {
    let Comparison { commit, pairs, .. } = comparison;
    let parts: Vec<&Part> = comparison.used_parts().map(|(_, part)| part).collect();
    let _ = writeln!(page, "Commit {commit}:\n\n{}", comparison.occasions());
    let commands = parts.iter().map(|part| format!("thalweg bench {}\n", part.command));
    let _ = writeln!(page, "```sh\n{}```\n", commands.collect::<String>());
    let _ = writeln!(
        page,
        "{READING}\nTurns of each case: {pairs}. All figures: [{FIGURES}]({FIGURES}).\n"
    );
    if comparison.is_trial {
        page.push_str("**A trial with small numbers: its figures mean nothing.**\n\n");
    }
    let loads: Vec<String> = parts.iter().map(|part| format!("{:.2}", part.load)).collect();
    let loads = loads.join(", ");
    let _ = writeln!(page, "Load of the machine before the first run of each command: {loads}.\n");
    page.push_str("| System | Release and settings | When it acknowledges |\n|---|---|---|\n");
    for contender in &comparison.contenders {
        let server =
            if contender.server.is_empty() { "no run succeeded" } else { &contender.server };
        let _ = writeln!(page, "| {} | {server} | {} |", contender.label, contender.durability);
    }
    page.push('\n');
    if !comparison.skipped.is_empty() {
        let names = comparison.skipped.join(", ");
        let _ = writeln!(page, "Left out, because not installed: {names}.\n");
    }
}

fn put_workload(page: &mut String, comparison: &Comparison, workload: Workload) {
    let _ = writeln!(page, "## {}\n\n{}\n", workload.title(), workload.source());
    let cases: Vec<&CaseRecord> =
        comparison.cases.iter().filter(|case| case.workload == workload).collect();
    if let Some(case) = cases.first() {
        let _ = writeln!(page, "Measured on {}.\n", comparison.machine_of(case).processor());
    }
    put_figures(page, comparison, &cases, workload.metrics());
    put_ratios(page, comparison, &cases, workload.metrics());
    for metric in workload.metrics() {
        let name = chart::file_name(workload, metric);
        let _ = writeln!(page, "![{}, {}]({name})", workload.title(), metric.label);
    }
    page.push('\n');
    for case in cases {
        if let Some(command) = case.command() {
            let _ = writeln!(page, "- {}: `thalweg bench {command}`", case.name);
        }
    }
    page.push('\n');
}

fn put_figures(
    page: &mut String,
    comparison: &Comparison,
    cases: &[&CaseRecord],
    metrics: &[Metric],
) {
    let heads = metrics.iter().map(|metric| format!(" {}, {} |", metric.label, metric.unit));
    let _ = writeln!(page, "| Case | System | Durability |{}", heads.collect::<String>());
    let _ = writeln!(page, "|---|---|---|{}", "---:|".repeat(metrics.len()));
    for case in cases {
        for contender in comparison.contenders.iter().filter(|c| case.has(&c.key)) {
            let cells = metrics.iter().map(|metric| {
                let spread = Spread::of(&case.values(&contender.key, metric));
                spread.map_or_else(|| " – |".to_owned(), |s| format!(" {} |", number(s.median)))
            });
            let cells: String = cells.collect();
            let durability = short(&contender.durability);
            let _ = writeln!(page, "| {} | {} | {durability} |{cells}", case.name, contender.label);
        }
    }
    page.push('\n');
}

/// The text of a narrow column: the first words.
fn short(durability: &str) -> &str {
    durability.split([' ', ':', ',']).next().filter(|word| *word != "page").unwrap_or("page cache")
}

fn put_ratios(
    page: &mut String,
    comparison: &Comparison,
    cases: &[&CaseRecord],
    metrics: &[Metric],
) {
    let Some((ours, peers)) = comparison.contenders.split_first() else { return };
    let heads = metrics.iter().map(|metric| format!(" {} |", metric.label));
    let _ = writeln!(page, "| Case | Thalweg ÷ |{}", heads.collect::<String>());
    let _ = writeln!(page, "|---|---|{}", "---|".repeat(metrics.len()));
    for case in cases {
        for peer in peers.iter().filter(|peer| case.has(&peer.key)) {
            let cells = metrics.iter().map(|metric| {
                let contest = Contest::of(case, &ours.key, &peer.key, metric);
                contest.map_or_else(
                    || " – |".to_owned(),
                    |contest| format!(" {} {} |", ratio(&contest.ratio), contest.verdict.word()),
                )
            });
            let cells: String = cells.collect();
            let _ = writeln!(page, "| {} | {} |{cells}", case.name, peer.label);
        }
    }
    page.push('\n');
}

/// A ratio, with the least and the greatest of all turns.
pub(super) fn ratio(spread: &Spread) -> String {
    let Spread { least, median, most } = *spread;
    let text = |value: f64| if value < 0.1 { format!("{value:.4}") } else { format!("{value:.2}") };
    format!("{} × ({}–{})", text(median), text(least), text(most))
}

fn put_problems(page: &mut String, comparison: &Comparison) {
    let mut lines = Vec::new();
    for case in &comparison.cases {
        for (turn, attempts) in case.turns.iter().enumerate() {
            for attempt in attempts {
                let Some(problem) = attempt.problem() else { continue };
                let (key, turn) = (case.workload.key(), turn + 1);
                let (name, who) = (&case.name, &attempt.contender);
                lines.push(format!("- {key}, {name}, turn {turn}, {who}: {problem}"));
            }
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(page, "## Runs that do not count\n\n{}", lines.join("\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::record::tests::comparison;

    #[test]
    fn a_report_says_what_was_measured_and_how() {
        let page = render(&comparison(&[(200.0, 100.0), (300.0, 100.0)]));
        for part in [
            "Commit abc",
            "Measured on 0 × .",
            "thalweg bench compare --pairs 2",
            "| Ours | ours 1 --flag | fdatasync before it |",
            "Left out, because not installed: Absent.",
            "| 7 streams | Ours | fdatasync | 250 |",
            "| 7 streams | Theirs | 2.50 × (2.00–3.00) ahead |",
            "![Writes to many streams, appends](writes-appends.svg)",
            "`thalweg bench appends --streams 7`",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("do not count"), "{page}");
    }

    #[test]
    fn what_failed_is_listed_and_does_not_count() {
        let mut comparison = comparison(&[(200.0, 100.0), (300.0, 100.0)]);
        let run = comparison.cases[0].turns[1][1].run.as_mut().unwrap();
        run.check("nothing was refused (3)", false);
        let page = render(&comparison);
        let problem = "- writes, 7 streams, turn 2, theirs: nothing was refused (3)";
        assert!(page.contains(problem), "{page}");
        assert!(page.contains("| 2.00 × (2.00–2.00) undecided |"), "{page}");
    }

    #[test]
    fn small_ratios_keep_their_digits() {
        let spread = Spread { least: 0.0123, median: 0.5, most: 20.0 };
        assert_eq!(ratio(&spread), "0.50 × (0.0123–20.00)");
    }

    #[test]
    fn durability_is_short_in_narrow_columns() {
        assert_eq!(short("page cache: no log"), "page cache");
        assert_eq!(short("fsync of its log"), "fsync");
    }

    #[test]
    fn who_does_not_fit_a_workload_has_no_row() {
        let mut comparison = comparison(&[(200.0, 100.0), (300.0, 100.0)]);
        for turn in &mut comparison.cases[0].turns {
            turn.pop();
        }
        let page = render(&comparison);
        assert!(page.contains("| 7 streams | Ours |"), "{page}");
        assert!(!page.contains("| 7 streams | Theirs |"), "{page}");
    }
}
