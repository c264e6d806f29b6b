//! Sizes of files, names of modules, and what must not be left behind.
//!
//! Sizes of functions are clippy's (`too-many-lines-threshold` in clippy.toml).

use super::source::{Kind, RustFile};
use super::{Finding, Sources};

/// A file above this is refused.
const FILE_LINES_MAX: usize = 800;
/// A file above this is worth another look.
const FILE_LINES_NOTED: usize = 500;

/// Names that say nothing about what is inside.
const BANNED_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "types", "base"];

/// Macros that mean "not done".
const LEFTOVERS: &[&str] = &["todo", "unimplemented", "dbg"];

pub(super) fn check_file_sizes(sources: &Sources) -> Vec<Finding> {
    let long = sized(sources).filter(|(_, lines)| *lines > FILE_LINES_MAX);
    long.map(|(path, lines)| {
        let what = format!("{lines} lines, more than {FILE_LINES_MAX}");
        Finding::new(path, 0, what, "split it by what it knows, never into part1 and part2")
    })
    .collect()
}

/// Files that are not wrong but long.
pub(super) fn notes(sources: &Sources) -> Vec<String> {
    let long = sized(sources).filter(|(_, n)| (FILE_LINES_NOTED + 1..=FILE_LINES_MAX).contains(n));
    long.map(|(path, lines)| format!("{path} has {lines} lines; look at it again")).collect()
}

fn sized(sources: &Sources) -> impl Iterator<Item = (&str, usize)> {
    let code = sources.texts.iter().filter(|file| file.is_rust() || file.path.ends_with(".ts"));
    code.map(|file| (file.path.as_str(), file.text.lines().count()))
}

pub(super) fn check_module_names(sources: &Sources) -> Vec<Finding> {
    let advice = "name it after what it knows or does";
    let mut findings = Vec::new();
    for file in &sources.rust {
        let parts = file.path.trim_end_matches(".rs").split('/');
        for name in parts.filter(|part| BANNED_NAMES.contains(part)) {
            let what = format!("`{name}` is no name for a module");
            findings.push(Finding::new(&file.path, 0, what, advice));
        }
        for (name, line) in inline_modules(file) {
            if BANNED_NAMES.contains(&name) {
                let what = format!("`{name}` is no name for a module");
                findings.push(Finding::new(&file.path, line, what, advice));
            }
        }
    }
    findings
}

fn inline_modules(file: &RustFile) -> impl Iterator<Item = (&str, usize)> {
    file.tokens.windows(3).filter_map(|window| {
        let inline = window[0].ident() == Some("mod") && window[2].kind == Kind::Open('{');
        inline.then(|| Some((window[1].ident()?, window[1].line)))?
    })
}

pub(super) fn check_leftovers(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &sources.rust {
        for window in file.tokens.windows(2) {
            let name = window[0].ident().filter(|name| LEFTOVERS.contains(name));
            if let Some(name) = name.filter(|_| window[1].is("!")) {
                let what = format!("`{name}!` was left behind");
                findings.push(Finding::new(&file.path, window[0].line, what, "finish it"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;

    #[test]
    fn a_file_over_the_limit_is_refused() {
        let long = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(findings(check_file_sizes, "crates/log/src/a.rs", &long).len(), 1);
        let fits = "\n".repeat(FILE_LINES_MAX);
        assert_eq!(findings(check_file_sizes, "crates/log/src/a.rs", &fits), []);
        assert_eq!(notes(&Sources::of(&[("a.rs", &fits)])).len(), 1);
    }

    #[test]
    fn a_module_that_says_nothing_is_refused() {
        assert_eq!(findings(check_module_names, "crates/log/src/util.rs", "").len(), 1);
        assert_eq!(findings(check_module_names, "crates/log/src/helpers/a.rs", "").len(), 1);
        let inline = findings(check_module_names, "crates/log/src/a.rs", "\nmod common { }");
        assert_eq!(inline[0].line, 2);
        assert_eq!(findings(check_module_names, "crates/log/src/segment.rs", ""), []);
    }

    #[test]
    fn unfinished_code_is_refused() {
        let text = "fn a() { dbg!(1); todo!() }\nfn b() { unimplemented!() }";
        let found = findings(check_leftovers, "crates/log/src/a.rs", text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 1, 2]);
        let named = "const A: &str = \"todo!\"; // dbg!";
        assert_eq!(findings(check_leftovers, "crates/log/src/a.rs", named), []);
    }
}
