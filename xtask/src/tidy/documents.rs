//! Links that lead somewhere, formats that are found, and words that belong to one machine only.

use super::{Finding, Sources, TextFile};

/// Paths of one machine. In two pieces each, so that this file passes its own check.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/", "target"),
    concat!("/tmp/", "conf"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

pub(super) fn check_words(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &sources.texts {
        for (number, line) in file.lines() {
            if let Some(word) = MACHINE_PATHS.iter().find(|word| line.contains(**word)) {
                let what = format!("`{word}` exists on one machine only");
                let advice = "say it without the path, or take the path as an argument";
                findings.push(Finding::new(&file.path, number, what, advice));
            }
        }
    }
    findings
}

pub(super) fn check_links(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in documents(sources) {
        for (number, target) in links(file) {
            if !exists(sources, &resolve(&file.path, target)) {
                let what = format!("the link to `{target}` leads nowhere");
                let advice = "correct it, or write the page";
                findings.push(Finding::new(&file.path, number, what, advice));
            }
        }
    }
    findings
}

pub(super) fn check_formats_are_linked(sources: &Sources) -> Vec<Finding> {
    let formats = documents(sources).filter(|file| file.path.starts_with("docs/format/"));
    let unlinked = formats.filter(|format| {
        let others = documents(sources).filter(|file| file.path != format.path);
        !others
            .flat_map(|file| links(file).map(|(_, target)| resolve(&file.path, target)))
            .any(|target| target == format.path)
    });
    unlinked
        .map(|format| {
            let advice = "link it from the architecture page or from the format it belongs to";
            Finding::new(&format.path, 0, "no page links this format", advice)
        })
        .collect()
}

pub(super) fn check_lock_files(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in sources.texts.iter().filter(|file| file.path.ends_with("package-lock.json")) {
        if let Some((number, _)) = file.lines().find(|(_, line)| line.contains("\"resolved\"")) {
            let advice = "run `npm install --omit-lockfile-registry-resolved`; the checksums stay";
            let what = "the lock file says where packages were fetched from";
            findings.push(Finding::new(&file.path, number, what, advice));
        }
    }
    findings
}

fn documents(sources: &Sources) -> impl Iterator<Item = &TextFile> {
    sources.texts.iter().filter(|file| file.path.ends_with(".md"))
}

/// Targets of the links within the repository, with their lines, without anchors.
fn links(file: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    file.lines().flat_map(|(number, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets
            .filter_map(|(target, _)| target.split(['#', ' ']).next())
            .filter(|target| !target.is_empty() && !target.contains(':'))
            .map(move |target| (number, target))
    })
}

/// The path from the root of what `target` in the file `from` means.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn exists(sources: &Sources, path: &str) -> bool {
    let inside = format!("{path}/");
    sources.texts.iter().any(|file| file.path == path || file.path.starts_with(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;

    #[test]
    fn paths_of_one_machine_are_refused() {
        for word in MACHINE_PATHS {
            let text = format!("first\nsee {word}x");
            assert_eq!(findings(check_words, "docs/a.md", &text)[0].line, 2, "{word}");
        }
        assert_eq!(findings(check_words, "docs/a.md", "see /var/lib/thalweg"), []);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_refused() {
        let text = "[a](missing.md) and [b](https://example.com/x.md) and [c](#here)";
        let found = findings(check_links, "docs/a.md", text);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("missing.md"));
    }

    #[test]
    fn links_go_up_and_into_directories() {
        let sources = Sources::of(&[
            ("docs/a.md", "[x](../crates/log) [y](./b.md#part)"),
            ("docs/b.md", ""),
            ("crates/log/Cargo.toml", ""),
        ]);
        assert_eq!(check_links(&sources), []);
    }

    #[test]
    fn a_format_that_nobody_links_is_refused() {
        let own = ("docs/format/wal.md", "[itself](wal.md)");
        assert_eq!(check_formats_are_linked(&Sources::of(&[own])).len(), 1);
        let linked = ("ARCHITECTURE.md", "[the log](docs/format/wal.md)");
        assert_eq!(check_formats_are_linked(&Sources::of(&[own, linked])), []);
    }

    #[test]
    fn a_lock_file_names_no_host() {
        let text = "{\n\"resolved\": \"https://example.com/a.tgz\"\n}";
        assert_eq!(findings(check_lock_files, "tests/x/package-lock.json", text).len(), 1);
        assert_eq!(findings(check_lock_files, "tests/x/package-lock.json", "{}"), []);
    }
}
