//! The files of `crates/` that one append runs through: what a reader of the hot path has to read.
//!
//! callgrind names the file of each line that ran, inlined functions too. A file counts if it costs more
//! in a run with more appends: what a process runs once is in no append.

use super::measure::{self, ShardRun};
use crate::run::Failure;
use crate::workspace::Workspace;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// An append of 256 bytes with a commit of its own, on one shard.
const WORKLOAD: &str = "append-1";

/// Prints the files, with their lines and their instructions for each append.
pub(super) fn print(workspace: &Workspace, scratch: &Path) -> Result<(), Failure> {
    let span = measure::span_of(WORKLOAD).expect("a workload of the table");
    let [few, many] = [span.few, span.many].map(|operations| {
        let run = ShardRun { workspace, scratch, workload: WORKLOAD, operations, callgrind: true };
        let profile = run.profile()?;
        Ok::<_, Failure>(costs_by_file(&profile, &workspace.root.join("crates")))
    });
    let (few, many) = (few?, many?);
    let mut count = 0;
    for (file, cost) in many {
        let grown = cost.saturating_sub(few.get(&file).copied().unwrap_or_default());
        let per_operation = span.per_operation(0.0, grown as f64);
        if file.starts_with("counts/") || per_operation < 1.0 {
            continue;
        }
        let text = std::fs::read_to_string(workspace.root.join("crates").join(&file));
        let lines = text.unwrap_or_default().lines().count();
        println!("{per_operation:>8.0} instructions  {lines:>4} lines  crates/{file}");
        count += 1;
    }
    println!("{count} files with an executed function in one append");
    Ok(())
}

/// Instructions of each file below `root`, by its path from there, in a profile of callgrind.
fn costs_by_file(profile: &str, root: &Path) -> BTreeMap<String, u64> {
    let prefix = format!("{}/", root.display());
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut costs = BTreeMap::new();
    let mut file = None;
    let mut is_of_call = false;
    for line in profile.lines() {
        let position = ["fl=", "fi=", "fe="].iter().find_map(|word| line.strip_prefix(word));
        if let Some(position) = position {
            let (id, name) = position.split_once(' ').unwrap_or((position, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            file = names.get(id).and_then(|name| name.strip_prefix(&prefix));
        } else if line.starts_with("calls=") {
            // The next line is what the called function cost.
            is_of_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if let (Some(file), Some(cost), false) = (file, cost, is_of_call) {
                *costs.entry(file.to_owned()).or_default() += cost;
            }
            is_of_call = false;
        } else if let Some((id, name)) = line.strip_prefix("cfi=").and_then(|at| at.split_once(' '))
        {
            names.insert(id, name);
        } else if let Some((id, name)) = line.strip_prefix("cfl=").and_then(|at| at.split_once(' '))
        {
            names.insert(id, name);
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_for_their_own_file() {
        let profile = "fl=(1) /w/crates/log/src/a.rs\nfn=(1) f\n10 5\n+1 2\ncfi=(2) /w/crates/b.rs\n\
            cfn=(2) g\ncalls=1 3\n* 100\nfi=(3) /usr/x.rs\n7 1\nfe=(1)\n12 3\n\nfl=(2)\nfn=(2)\n3 100\n";
        let costs = costs_by_file(profile, Path::new("/w/crates"));
        let expected = [("b.rs", 100), ("log/src/a.rs", 10)];
        assert_eq!(costs, expected.map(|(file, cost)| (file.to_owned(), cost)).into());
    }
}
