//! The files of `crates/` that one append runs through: what a reader of the hot path has to read.
//!
//! callgrind names the file of each function that ran, and of each line that was inlined into it. A
//! file counts if a function of it ran; files with inlined lines alone are a second number. It counts
//! only if it costs more in a run with more appends: what a process runs once, or now and then, is in no append.

use super::measure::{self, ShardRun, Span};
use crate::run::Failure;
use crate::workspace::Workspace;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// An append of 256 bytes with a commit of its own, on one shard.
const WORKLOAD: &str = "append-1";

/// What a function takes at least that runs in each append. Others run once in hundreds, at moments that differ from run to run.
const INSTRUCTIONS_MIN: f64 = 4.0;

/// Most files with an executed function.
const FILES_MAX: usize = 24;

/// Most lines of one of them.
const LINES_MAX: usize = 500;

/// Counts appends, and prints the files.
pub(super) fn count(workspace: &Workspace, scratch: &Path) -> Result<(), Failure> {
    for run in runs(workspace, scratch) {
        run.totals()?;
    }
    print(workspace, scratch)
}

/// The runs with few appends and with many.
fn runs<'a>(workspace: &'a Workspace, scratch: &'a Path) -> [ShardRun<'a>; 2] {
    let span = span();
    let run = |operations| ShardRun {
        workspace,
        scratch,
        workload: WORKLOAD,
        operations,
        callgrind: true,
    };
    [span.few, span.many].map(run)
}

fn span() -> Span {
    measure::span_of(WORKLOAD).expect("a workload of the table")
}

/// Prints the files, with their lines and their instructions for each append, from what callgrind wrote of the runs. Fails if they
/// are too many or one of them is too long.
pub(super) fn print(workspace: &Workspace, scratch: &Path) -> Result<(), Failure> {
    let span = span();
    let [few, many] = runs(workspace, scratch).map(|run| {
        let profile = run.profile()?;
        Ok::<_, Failure>(costs_by_file(&profile, &workspace.root.join("crates")))
    });
    let (few, many) = (few?, many?);
    let per_append = |costs: fn(&Costs) -> &BTreeMap<String, u64>| {
        let few = costs(&few);
        let grown = costs(&many).iter().map(|(file, cost)| {
            let grown = cost.saturating_sub(few.get(file).copied().unwrap_or_default());
            (file.clone(), span.per_operation(0.0, grown as f64))
        });
        let executed = grown.filter(|(file, cost)| !is_harness(file) && *cost >= INSTRUCTIONS_MIN);
        executed.collect::<Vec<_>>()
    };
    let functions = per_append(|costs| &costs.functions);
    let mut long = Vec::new();
    for (file, cost) in &functions {
        let text = std::fs::read_to_string(workspace.root.join("crates").join(file));
        let lines = text.unwrap_or_default().lines().count();
        println!("{cost:>8.0} instructions  {lines:>4} lines  crates/{file}");
        if lines > LINES_MAX {
            long.push(format!("crates/{file} has {lines} lines"));
        }
    }
    let lines = per_append(|costs| &costs.lines);
    println!("{} files with an executed function in one append", functions.len());
    println!("{} files with an executed line, with inlined functions", lines.len());
    judge(functions.len(), &long)
}

fn judge(files_count: usize, long: &[String]) -> Result<(), Failure> {
    if files_count > FILES_MAX {
        let why =
            format!("one append runs through {files_count} files; at most {FILES_MAX} are allowed");
        return Err(Failure::new(why));
    }
    if !long.is_empty() {
        let why = format!(
            "at most {LINES_MAX} lines are allowed on the way of an append: {}",
            long.join(", ")
        );
        return Err(Failure::new(why));
    }
    Ok(())
}

/// What counts, and what stands for the thread that runs the loop of a server.
fn is_harness(file: &str) -> bool {
    file.starts_with("counts/") || file == "server/src/plane/driver.rs"
}

/// Instructions by file, from the root of a profile.
#[derive(Debug, Default, PartialEq, Eq)]
struct Costs {
    /// By the file of the function that ran, with what was inlined into it.
    functions: BTreeMap<String, u64>,
    /// By the file of the line that ran.
    lines: BTreeMap<String, u64>,
}

/// Instructions of each file below `root`, by its path from there, in a profile of callgrind.
fn costs_by_file(profile: &str, root: &Path) -> Costs {
    let prefix = format!("{}/", root.display());
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut costs = Costs::default();
    let (mut of_function, mut of_line) = (None, None);
    let mut is_of_call = false;
    for line in profile.lines() {
        let words = ["fl=", "fi=", "fe=", "cfi=", "cfl="];
        let position = words.iter().find_map(|word| Some((*word, line.strip_prefix(word)?)));
        if let Some((word, position)) = position {
            let (id, name) = position.split_once(' ').unwrap_or((position, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            let file = names.get(id).and_then(|name| name.strip_prefix(&prefix));
            match word {
                "fl=" => (of_function, of_line) = (file, file),
                "fi=" | "fe=" => of_line = file,
                // The file of a function that is called has lines of its own elsewhere.
                _ => {}
            }
        } else if line.starts_with("calls=") {
            // The next line is what the called function cost.
            is_of_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            let cost = cost.filter(|_| !is_of_call).unwrap_or_default();
            let of = [(of_function, &mut costs.functions), (of_line, &mut costs.lines)];
            for (file, costs) in of {
                if let Some(file) = file {
                    *costs.entry(file.to_owned()).or_default() += cost;
                }
            }
            is_of_call = false;
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_counted_for_the_function_and_for_the_line() {
        let profile = "fl=(1) /w/crates/log/src/a.rs\nfn=(1) f\n10 5\n+1 2\ncfi=(2) /w/crates/b.rs\n\
            cfn=(2) g\ncalls=1 3\n* 100\nfi=(3) /usr/x.rs\n7 1\nfi=(4) /w/crates/c.rs\n8 4\nfe=(1)\n\
            12 3\n\nfl=(2)\nfn=(2)\n3 100\n";
        let costs = costs_by_file(profile, Path::new("/w/crates"));
        let of = |costs: &[(&str, u64)]| {
            costs.iter().map(|(file, cost)| ((*file).to_owned(), *cost)).collect()
        };
        let functions = of(&[("b.rs", 100), ("log/src/a.rs", 15)]);
        let lines = of(&[("b.rs", 100), ("c.rs", 4), ("log/src/a.rs", 10)]);
        assert_eq!(costs, Costs { functions, lines });
    }
}
