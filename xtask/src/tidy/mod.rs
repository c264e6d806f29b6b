//! `cargo xtask tidy`: the rules of this workspace that no compiler knows.
//!
//! A rule is a function from the sources (and the packages) to findings. A finding says where, what
//! is wrong and what to do. Each rule has a test that shows it a violation.

mod arrows;
mod asserts;
mod circles;
mod dependencies;
mod documents;
mod exceptions;
mod knowledge;
mod modules;
mod parameters;
mod proofs;
mod prose;
mod shape;
mod source;

use crate::workspace::{Package, Workspace};
use source::{RustFile, TextFile};
use std::fmt;

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, from the root.
    path: String,
    /// The line, counted from 1; 0 stands for the whole file.
    line: usize,
    /// What is wrong.
    what: String,
    /// What to do.
    advice: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, advice } = self;
        if *line == 0 {
            write!(f, "{path}: {what}\n    {advice}")
        } else {
            write!(f, "{path}:{line}: {what}\n    {advice}")
        }
    }
}

/// All that rules look at.
struct Sources {
    packages: Vec<Package>,
    /// Every text file that is or would be in the repository.
    texts: Vec<TextFile>,
    /// The Rust files among them, as tokens.
    rust: Vec<RustFile>,
}

impl Sources {
    fn text(&self, path: &str) -> Option<&TextFile> {
        self.texts.iter().find(|file| file.path == path)
    }
}

type Rule = fn(&Sources) -> Vec<Finding>;

const RULES: &[Rule] = &[
    arrows::check,
    asserts::check,
    circles::check,
    dependencies::check,
    documents::check_links,
    documents::check_lengths,
    documents::check_formats_are_linked,
    documents::check_words,
    documents::check_lock_files,
    exceptions::check_count,
    exceptions::check_allow,
    knowledge::check,
    modules::check,
    parameters::check,
    proofs::check,
    prose::check,
    shape::check_file_sizes,
    shape::check_module_names,
    shape::check_leftovers,
];

/// What `cargo xtask tidy` may be asked for.
#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// List every finding about the prose of this page (docs/format/wal.md, crates/log), also those
    /// that are allowed, instead of checking all rules
    #[arg(long, value_name = "PAGE")]
    prose: Option<String>,
}

/// Checks every rule and prints what is wrong.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), String> {
    let texts = source::read(&workspace.root)?;
    let (rust, mut findings) = source::parse(&texts);
    let sources = Sources { packages: workspace.packages.clone(), texts, rust };
    if let Some(page) = &options.prose {
        list_prose(&sources, page);
        return Ok(());
    }
    findings.extend(RULES.iter().flat_map(|rule| rule(&sources)));
    findings.sort_by(|a, b| (&a.path, a.line, &a.what).cmp(&(&b.path, b.line, &b.what)));
    for note in shape::notes(&sources) {
        println!("note: {note}");
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, {} rules, nothing wrong", sources.texts.len(), RULES.len());
        return Ok(());
    }
    Err(format!("tidy: findings above: {}", findings.len()))
}

/// Prints what the prose of the pages below `page` breaks, and how much that is.
fn list_prose(sources: &Sources, page: &str) {
    for (name, findings) in prose::findings(sources) {
        if name.starts_with(page) && !findings.is_empty() {
            for finding in &findings {
                println!("{finding}");
            }
            println!("{name} {}", findings.len());
        }
    }
}

#[cfg(test)]
impl Sources {
    /// Sources of the given files alone.
    fn of(files: &[(&str, &str)]) -> Self {
        let texts: Vec<TextFile> =
            files.iter().map(|(path, text)| TextFile::new(path, text)).collect();
        let rust = texts.iter().filter(|file| file.is_rust());
        let rust = rust.map(|file| RustFile::parse(file).expect("the test's source parses"));
        Self { packages: Vec::new(), rust: rust.collect(), texts }
    }
}

/// The findings of `rule` for one file.
#[cfg(test)]
fn findings(rule: Rule, path: &str, text: &str) -> Vec<Finding> {
    rule(&Sources::of(&[(path, text)]))
}
