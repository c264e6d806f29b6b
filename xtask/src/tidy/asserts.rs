//! A test that asserts nothing proves little: each must reach an assertion, in itself or in a
//! function of its own crate that it names.

use super::source::{Kind, RustFile, Token};
use super::{Finding, Sources};
use std::collections::{BTreeMap, BTreeSet};

/// One function with the names in its body.
struct Function<'a> {
    file: &'a RustFile,
    name: &'a str,
    line: usize,
    is_test: bool,
    words: BTreeSet<&'a str>,
}

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<Function<'_>>> = BTreeMap::new();
    for file in &sources.rust {
        crates.entry(file.crate_name()).or_default().extend(functions(file));
    }
    crates.values().flat_map(|functions| check_crate(functions)).collect()
}

fn check_crate(functions: &[Function<'_>]) -> Vec<Finding> {
    let asserting = asserting_names(functions);
    let silent = functions.iter().filter(|f| f.is_test && !asserts(f, &asserting));
    silent
        .map(|function| {
            let what = format!("the test `{}` asserts nothing", function.name);
            let advice = "assert what must hold, not only that nothing panics";
            Finding::new(&function.file.path, function.line, what, advice)
        })
        .collect()
}

/// Names of the functions that assert, themselves or through others, up to a fixed point.
fn asserting_names<'a>(functions: &[Function<'a>]) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    loop {
        let before = names.len();
        let found = functions.iter().filter(|f| !f.is_test && asserts(f, &names)).map(|f| f.name);
        let found: Vec<&str> = found.collect();
        names.extend(found);
        if names.len() == before {
            return names;
        }
    }
}

fn asserts(function: &Function<'_>, asserting: &BTreeSet<&str>) -> bool {
    function.words.iter().any(|word| {
        let direct = ["assert", "debug_assert", "prop_assert"].iter().any(|p| word.starts_with(p));
        direct
            || ["panic", "unreachable", "unwrap_err", "expect_err", "should_panic"].contains(word)
            || asserting.contains(word)
    })
}

/// Names of the tests in a file.
pub(super) fn test_names(file: &RustFile) -> BTreeSet<&str> {
    functions(file).into_iter().filter(|f| f.is_test).map(|f| f.name).collect()
}

fn functions(file: &RustFile) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    let mut attributes: Vec<&str> = Vec::new();
    for (at, token) in file.tokens.iter().enumerate() {
        if token.is("#") {
            let inside = file.tokens[at + 1..].iter().take_while(|t| t.kind != Kind::Close(']'));
            attributes.extend(inside.filter_map(Token::ident));
        } else if token.ident() == Some("fn") {
            found.extend(function(file, at, &attributes));
            attributes.clear();
        } else if token.is(";")
            || token.ident() == Some("impl")
            || matches!(token.kind, Kind::Close('}'))
        {
            attributes.clear();
        }
    }
    found
}

fn function<'a>(file: &'a RustFile, at: usize, attributes: &[&'a str]) -> Option<Function<'a>> {
    let name = file.tokens.get(at + 1)?;
    let body = body(&file.tokens[at + 2..])?;
    let words = body.iter().filter_map(Token::ident).chain(attributes.iter().copied());
    Some(Function {
        file,
        name: name.ident()?,
        line: name.line,
        is_test: attributes.contains(&"test"),
        words: words.collect(),
    })
}

/// The tokens from a function's first brace to the one that closes it.
fn body(tokens: &[Token]) -> Option<&[Token]> {
    let mut depth = 0_usize;
    let mut start = None;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open(open) => {
                if open == '{' && depth == 0 {
                    start = Some(at);
                }
                depth += 1;
            }
            Kind::Close(_) => {
                depth = depth.checked_sub(1)?;
                if let Some(start) = start.filter(|_| depth == 0) {
                    return Some(&tokens[start..at]);
                }
            }
            Kind::Other(ref text) if text == ";" && depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;

    fn of(text: &str) -> Vec<Finding> {
        findings(check, "crates/log/src/a.rs", text)
    }

    #[test]
    fn a_test_without_an_assertion_is_refused() {
        let found = of("#[test]\nfn it_runs() { run(); }\nfn run() {}");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].line, found[0].what.as_str()),
            (2, "the test `it_runs` asserts nothing")
        );
    }

    #[test]
    fn an_assertion_may_stand_in_a_function_that_the_test_calls() {
        let text =
            "#[test]\nfn it_holds() { one(); }\nfn one() { two() }\nfn two() { assert!(true) }";
        assert_eq!(of(text), []);
    }

    #[test]
    fn a_test_that_must_panic_asserts_that() {
        assert_eq!(of("#[test]\n#[should_panic(expected = \"x\")]\nfn a() { run(); }"), []);
    }

    #[test]
    fn functions_for_tests_alone_are_no_tests() {
        assert_eq!(of("#[cfg(test)]\nimpl A { fn harm(&mut self) { self.a = 1; } }"), []);
    }

    #[test]
    fn functions_without_bodies_are_passed_over() {
        assert_eq!(
            of("trait A { fn a(&self) -> [u8; 4]; }\n#[test]\nfn b() { assert!(true) }"),
            []
        );
    }
}
