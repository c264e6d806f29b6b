//! The figures as JSON and as Markdown.

use crate::compare::Row;
use crate::system::Failure;
use crate::workload::Outcome;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

#[derive(Serialize)]
struct Report<'a> {
    commit: String,
    kernel: String,
    cores: usize,
    rows: &'a [Row],
}

/// Median, lowest and highest of the ratios of paired rates.
fn ratios(row: &Row) -> Option<(f64, f64, f64)> {
    let pairs = row.ours.iter().zip(&row.theirs);
    let mut ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours.rate() / theirs.rate()).collect();
    ratios.sort_by(f64::total_cmp);
    Some((*ratios.get(ratios.len() / 2)?, *ratios.first()?, *ratios.last()?))
}

fn median(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    let mut values: Vec<f64> = outcomes.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        at(middle.wrapping_sub(1)).midpoint(at(middle))
    } else {
        at(middle)
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Writes `figures.json` and `figures.md` into `dir`.
pub(crate) fn write(dir: &Path, rows: &[Row]) -> Result<(), Failure> {
    let report = Report {
        commit: said(Command::new("git").args(["describe", "--always", "--dirty"])),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        cores: std::thread::available_parallelism()?.get(),
        rows,
    };
    std::fs::write(dir.join("figures.json"), serde_json::to_vec_pretty(&report)?)?;
    std::fs::write(dir.join("figures.md"), markdown(&report)?)?;
    Ok(())
}

fn markdown(report: &Report<'_>) -> Result<String, Failure> {
    let mut out = String::new();
    let Report { commit, kernel, cores, rows } = report;
    writeln!(
        out,
        "Commit {commit}, Linux {kernel}, {cores} cores. Entries of 500 to 1,024 bytes,"
    )?;
    writeln!(out, "all different, a stream per thread, read back and compared after each run.\n")?;
    writeln!(
        out,
        "| work | threads | system | acknowledged when | entries/s | p50 / p99 µs | CPU µs per entry | peak MiB | refused |"
    )?;
    writeln!(out, "|---|---:|---|---|---:|---:|---:|---:|---:|")?;
    for row in *rows {
        write_line(&mut out, row, "Thalweg", &row.ours)?;
        write_line(&mut out, row, &format!("{:?}", row.peer), &row.theirs)?;
        match (&row.failure, ratios(row)) {
            (Some(failure), _) => writeln!(out, "| | | | **no result**: {failure} | | | | | |")?,
            (None, Some((ratio, low, high))) => {
                let text =
                    format!("**{ratio:.2} ×** ({low:.2} to {high:.2}, {} pairs)", row.ours.len());
                writeln!(out, "| | | ratio | | {text} | | | | |")?;
            }
            (None, None) => {}
        }
    }
    Ok(out)
}

fn write_line(out: &mut String, row: &Row, name: &str, of: &[Outcome]) -> Result<(), Failure> {
    let Some(first) = of.first() else { return Ok(()) };
    let work = format!("{:?}, {:?}", row.load.work, row.load.sync);
    writeln!(
        out,
        "| {work} | {} | {name} | {} | {:.0} | {:.0} / {:.0} | {:.2} | {:.0} | {:.0} |",
        row.load.threads,
        first.durability,
        median(of, Outcome::rate),
        median(of, |one| one.p50_us as f64),
        median(of, |one| one.p99_us as f64),
        median(of, |one| one.cpu_us_per_entry),
        median(of, |one| one.memory_peak_kib as f64) / 1024.0,
        median(of, |one| one.refused as f64),
    )?;
    Ok(())
}
