//! Links that lead somewhere, formats that are found, short pages, and words of one machine only.

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
        for (number, target, anchor) in links(file) {
            let path = resolve(&file.path, target);
            if !exists(sources, &path) {
                let what = format!("the link to `{target}` leads nowhere");
                let advice = "correct it, or write the page";
                findings.push(Finding::new(&file.path, number, what, advice));
            } else if anchor.is_some_and(|anchor| !has_heading(sources, &path, anchor)) {
                let what = format!("`{path}` has no heading for `#{}`", anchor.unwrap_or_default());
                let advice = "name a heading: small letters, hyphens for blanks, no other marks";
                findings.push(Finding::new(&file.path, number, what, advice));
            }
        }
    }
    findings
}

/// Pages that stay short, and the most lines that they may have.
const SHORT_PAGES: &[(&str, usize)] =
    &[("README.md", 100), ("docs/performance.md", 100), ("ARCHITECTURE.md", 500)];

pub(super) fn check_lengths(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, lines_max) in SHORT_PAGES {
        let lines = sources.text(path).map_or(0, |page| page.lines().count());
        if lines > *lines_max {
            let what = format!("{lines} lines, more than {lines_max}");
            let advice = "move what only some readers need to a page of its own, and link it";
            findings.push(Finding::new(path, 0, what, advice));
        }
    }
    findings
}

pub(super) fn check_formats_are_linked(sources: &Sources) -> Vec<Finding> {
    let formats = documents(sources).filter(|file| file.path.starts_with("docs/format/"));
    let unlinked = formats.filter(|format| {
        let others = documents(sources).filter(|file| file.path != format.path);
        !others
            .flat_map(|file| links(file).map(|(_, target, _)| resolve(&file.path, target)))
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

/// The links within the repository: line, path and anchor. Without a path, the page itself is meant.
fn links(file: &TextFile) -> impl Iterator<Item = (usize, &str, Option<&str>)> {
    let own = file.path.rsplit('/').next().unwrap_or_default();
    file.lines().flat_map(move |(number, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once([')', ' ']));
        targets.map(|(target, _)| target).filter(|target| !target.contains(':')).map(
            move |target| {
                let (path, anchor) =
                    target.split_once('#').map_or((target, None), |(path, at)| (path, Some(at)));
                (number, if path.is_empty() { own } else { path }, anchor)
            },
        )
    })
}

/// Whether the page at `path` has a heading that a link with `anchor` leads to.
fn has_heading(sources: &Sources, path: &str, anchor: &str) -> bool {
    let Some(page) = sources.text(path) else { return false };
    let headings = page.lines().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| slug(line)).any(|slug| slug == anchor)
}

/// The anchor that Markdown pages give a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
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
        let text = "# Here\n[a](missing.md) and [b](https://example.com/x.md) and [c](#here)";
        let found = findings(check_links, "docs/a.md", text);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("missing.md"));
    }

    #[test]
    fn links_go_up_and_into_directories() {
        let sources = Sources::of(&[
            ("docs/a.md", "[x](../crates/log) [y](./b.md#part)"),
            ("docs/b.md", "## Part"),
            ("crates/log/Cargo.toml", ""),
        ]);
        assert_eq!(check_links(&sources), []);
    }

    #[test]
    fn an_anchor_names_a_heading() {
        let page = ("docs/b.md", "# One\n## What it `costs`, in counts\n");
        let of = |text| check_links(&Sources::of(&[("docs/a.md", text), page]));
        assert_eq!(of("[x](b.md#what-it-costs-in-counts) [y](b.md#one)"), []);
        assert!(of("first\n[x](b.md#two)")[0].what.contains("#two"));
        assert_eq!(of("# Own\n[x](#own) [y](#other)").len(), 1);
    }

    #[test]
    fn the_way_in_stays_short() {
        assert_eq!(findings(check_lengths, "README.md", &"x\n".repeat(100)), []);
        assert_eq!(findings(check_lengths, "README.md", &"x\n".repeat(101)).len(), 1);
        assert_eq!(findings(check_lengths, "docs/other.md", &"x\n".repeat(900)), []);
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
