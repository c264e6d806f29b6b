//! Exceptions from lints: each with `#[expect]`, counted, and the count may only fall.

use super::source::{Kind, RustFile, Token};
use super::{Finding, Sources};

const COUNT_FILE: &str = "xtask/expect-count.txt";

/// The crate whose purpose is what the lints refuse elsewhere.
const MAY_ALLOW: &str = "crates/env/";

pub(super) fn check_count(sources: &Sources) -> Vec<Finding> {
    let places: Vec<String> = sources
        .rust
        .iter()
        .flat_map(|file| attributes(file, "expect").map(|line| format!("{}:{line}", file.path)))
        .collect();
    let text = sources.text(COUNT_FILE).map_or("", |file| file.text.trim());
    let Ok(allowed) = text.parse::<usize>() else {
        let advice = format!("write the number of `#[expect]`s into it, now {}", places.len());
        return vec![Finding::new(COUNT_FILE, 0, "this file must hold one number", advice)];
    };
    if places.len() == allowed {
        return Vec::new();
    }
    let what = format!("there are {} `#[expect]`s and {allowed} are written here", places.len());
    let advice = if places.len() < allowed {
        "good: write the lower number into the file".to_owned()
    } else {
        let list = places.join("\n      ");
        format!("the count may only fall; solve one of them another way:\n      {list}")
    };
    vec![Finding::new(COUNT_FILE, 1, what, advice)]
}

pub(super) fn check_allow(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in sources.rust.iter().filter(|file| !file.path.starts_with(MAY_ALLOW)) {
        for line in attributes(file, "allow").filter(|line| !shared_by_tests(file, *line)) {
            let advice = "use `#[expect(…, reason = \"…\")]`, which ends when its reason does";
            findings.push(Finding::new(&file.path, line, "`#[allow]` never ends", advice));
        }
    }
    findings
}

/// Whether the line allows dead code in what several test programs share: each of them leaves other
/// parts unused, so that `#[expect]` would hold for some and fail for others.
fn shared_by_tests(file: &RustFile, line: usize) -> bool {
    let on_line = |token: &&Token| token.line == line;
    file.path.contains("/tests/")
        && file.tokens.iter().filter(on_line).any(|token| token.ident() == Some("dead_code"))
}

/// Lines of the attributes `#[name…]` and `#![name…]`.
fn attributes<'a>(file: &'a RustFile, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let starts = file.tokens.iter().enumerate().filter(|(_, token)| token.is("#"));
    starts.filter_map(move |(at, hash)| {
        let mut rest = file.tokens[at + 1..].iter().skip_while(|token| token.is("!"));
        let bracket = rest.next().is_some_and(|token| token.kind == Kind::Open('['));
        let named = rest.next().and_then(Token::ident) == Some(name);
        (bracket && named).then_some(hash.line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;

    const TWO: &str = "#![expect(a, reason = \"\")]\n#[expect(b, reason = \"\")]\nfn c() {}";

    fn counted(number: &str) -> Vec<Finding> {
        check_count(&Sources::of(&[("crates/log/src/a.rs", TWO), (COUNT_FILE, number)]))
    }

    #[test]
    fn the_count_is_held() {
        assert_eq!(counted("2\n"), []);
    }

    #[test]
    fn one_more_exception_is_refused_and_listed() {
        let found = counted("1\n");
        assert!(found[0].advice.contains("crates/log/src/a.rs:2"), "{}", found[0]);
    }

    #[test]
    fn one_less_must_be_written_down() {
        assert!(counted("3\n")[0].advice.starts_with("good"));
        assert!(counted("")[0].what.contains("one number"));
    }

    #[test]
    fn allow_is_refused_but_for_env_and_what_tests_share() {
        let text = "#[allow(dead_code)]\nfn a() {}";
        assert_eq!(findings(check_allow, "crates/log/src/a.rs", text).len(), 1);
        assert_eq!(findings(check_allow, "crates/env/src/clock.rs", text), []);
        assert_eq!(findings(check_allow, "crates/log/tests/support/mod.rs", text), []);
    }
}
