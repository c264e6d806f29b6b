//! Every dependency says in a sentence what we would have to write without it.

use super::{Finding, Sources, TextFile};

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let manifests = sources.texts.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    manifests.flat_map(|file| [check_sentences(file), check_lints(file)].concat()).collect()
}

fn check_sentences(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    let mut above = "";
    for (number, line) in file.lines() {
        if line.starts_with('[') {
            in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
        } else if in_dependencies && is_foreign(line) && !above.starts_with("# ") {
            let name = line.split(['=', '.']).next().unwrap_or(line).trim();
            let advice = "write above it what we would have to write ourselves without it";
            let what = format!("the dependency `{name}` has no sentence");
            findings.push(Finding::new(&file.path, number, what, advice));
        }
        above = line;
    }
    findings
}

/// Whether a line brings in a crate that is not ours and not explained at the workspace's root.
fn is_foreign(line: &str) -> bool {
    let starts_entry = line.starts_with(|first: char| first.is_ascii_alphabetic());
    let explained = line.contains("workspace = true") || line.contains("path = ");
    starts_entry && line.contains('=') && !explained
}

fn check_lints(file: &TextFile) -> Vec<Finding> {
    let is_root = file.text.contains("[workspace]");
    if is_root || file.text.contains("[lints]\nworkspace = true") {
        return Vec::new();
    }
    let advice = "add `[lints]` with `workspace = true`";
    vec![Finding::new(&file.path, 0, "this crate leaves the workspace's lints", advice)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;

    const LINTS: &str = "\n[lints]\nworkspace = true\n";

    fn of(text: &str) -> Vec<Finding> {
        findings(check, "crates/log/Cargo.toml", &format!("{text}{LINTS}"))
    }

    #[test]
    fn a_dependency_without_a_sentence_is_refused() {
        let found = of("[dependencies]\nbytes = \"1\"\n");
        assert_eq!(found[0].what, "the dependency `bytes` has no sentence");
        assert_eq!(found[0].line, 2);
        assert_eq!(of("[dev-dependencies]\n\nbytes = \"1\"\n").len(), 1);
        assert_eq!(of("[target.'cfg(unix)'.dependencies]\nbytes = \"1\"\n").len(), 1);
    }

    #[test]
    fn a_sentence_or_the_workspace_explains_it() {
        assert_eq!(of("[dependencies]\n# Shared slices.\nbytes = \"1\"\n"), []);
        assert_eq!(of("[dependencies]\nbytes.workspace = true\nlog = { path = \"../log\" }\n"), []);
        assert_eq!(of("[package]\nname = \"x\"\n"), []);
    }

    #[test]
    fn a_crate_keeps_the_lints_of_the_workspace() {
        let found = findings(check, "crates/log/Cargo.toml", "[package]\n");
        assert_eq!(found.len(), 1);
    }
}
