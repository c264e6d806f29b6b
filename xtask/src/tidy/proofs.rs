//! A document that names a test as its proof names one that exists.
//!
//! Such a name is written as `path/of/file.rs::name_of_test`, in backticks and from the root.

use super::source::TextFile;
use super::{Finding, Sources, asserts};

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in sources.texts.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, path, name) in named_tests(document) {
            let file = sources.rust.iter().find(|file| file.path == path);
            if !file.is_some_and(|file| asserts::test_names(file).contains(name)) {
                let what = format!("there is no test `{path}::{name}`");
                let advice = "name the test that proves it now, or write it";
                findings.push(Finding::new(&document.path, line, what, advice));
            }
        }
    }
    findings
}

/// Line, file and name of each test that a document names.
fn named_tests(document: &TextFile) -> impl Iterator<Item = (usize, &str, &str)> {
    document.lines().flat_map(|(number, line)| {
        let quoted = line.split('`').skip(1).step_by(2);
        let named = quoted.filter_map(|word| word.split_once("::"));
        named
            .filter(|(path, name)| path.ends_with(".rs") && !name.contains(' '))
            .map(move |(path, name)| (number, path, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: (&str, &str) =
        ("crates/log/tests/a.rs", "#[test]\nfn it_holds() { assert!(true); }\nfn other() {}");

    fn of(text: &str) -> Vec<Finding> {
        check(&Sources::of(&[RUST, ("docs/a.md", text)]))
    }

    #[test]
    fn a_test_that_exists_may_be_named() {
        assert_eq!(of("| x | `crates/log/tests/a.rs::it_holds`, `a::b` |"), []);
    }

    #[test]
    fn a_name_without_a_test_is_refused() {
        for name in ["it_held", "other", "it"] {
            let found = of(&format!("first\n`crates/log/tests/a.rs::{name}`"));
            assert_eq!(found[0].line, 2, "{name}");
        }
        assert_eq!(of("`crates/log/tests/b.rs::it_holds`").len(), 1);
    }
}
