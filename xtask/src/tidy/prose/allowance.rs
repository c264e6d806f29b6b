//! What older pages may still break, counted.
//!
//! A line of the file is a list of pages with commas between them, and the number of findings that
//! they may have together. A page without a line may have none.

use super::{Finding, TextFile};
use std::collections::BTreeMap;

pub(super) const FILE: &str = "xtask/prose-allowance.txt";

/// One line of the file.
struct Allowance<'a> {
    line: usize,
    pages: Vec<&'a str>,
    count: usize,
}

/// The findings on pages that have more of them than they may.
pub(super) fn check(
    file: Option<&TextFile>,
    found: &BTreeMap<String, Vec<Finding>>,
) -> Vec<Finding> {
    let (allowances, mut findings) = parse(file);
    for allowance in &allowances {
        let pages = allowance.pages.iter().filter_map(|page| found.get(*page));
        let all: Vec<&Finding> = pages.flatten().collect();
        if all.len() > allowance.count {
            findings.push(exceeded(allowance, all.len()));
            findings.extend(all.into_iter().cloned());
        }
    }
    let listed = |page: &String| allowances.iter().any(|one| one.pages.contains(&page.as_str()));
    let others = found.iter().filter(|(page, _)| !listed(page));
    findings.extend(others.flat_map(|(_, findings)| findings.iter().cloned()));
    findings
}

fn exceeded(allowance: &Allowance<'_>, found: usize) -> Finding {
    let what = format!("{found} findings of prose, and {} are allowed", allowance.count);
    let advice =
        format!("the number may only fall; mend a sentence in {}", allowance.pages.join(" or "));
    Finding::new(FILE, allowance.line, what, advice)
}

fn parse(file: Option<&TextFile>) -> (Vec<Allowance<'_>>, Vec<Finding>) {
    let (mut allowances, mut findings) = (Vec::new(), Vec::new());
    let Some(file) = file else { return (allowances, findings) };
    for (line, text) in file.lines().filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
    {
        match text.split_once(' ').map(|(pages, count)| (pages, count.parse())) {
            Some((pages, Ok(count))) => {
                allowances.push(Allowance { line, pages: pages.split(',').collect(), count });
            }
            _ => {
                let advice =
                    "write the pages, with commas between them, and how many they may have";
                findings.push(Finding::new(FILE, line, "this is no allowance", advice));
            }
        }
    }
    (allowances, findings)
}

#[cfg(test)]
mod tests {
    use super::FILE;
    use crate::tidy::Sources;
    use crate::tidy::prose::check;

    fn count(allowance: &str) -> usize {
        let two = [("docs/a.md", "It goes on."), ("docs/b.md", "It stands.")];
        check(&Sources::of(&[two[0], two[1], (FILE, allowance)])).len()
    }

    #[test]
    fn a_page_may_have_what_is_written_for_it() {
        assert_eq!(count(""), 2);
        assert_eq!(count("# pages\n\ndocs/a.md 1\n"), 1);
        assert_eq!(count("docs/a.md 1\ndocs/b.md 3\n"), 0);
    }

    #[test]
    fn pages_may_share_a_number() {
        assert_eq!(count("docs/a.md,docs/b.md 2\n"), 0);
        assert_eq!(count("docs/a.md,docs/b.md 1\n"), 3, "both, and that they are too many");
    }

    #[test]
    fn a_line_that_is_no_allowance_is_refused() {
        assert_eq!(count("docs/a.md\n"), 3);
    }
}
