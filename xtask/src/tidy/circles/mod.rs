//! Files of a crate that import each other in a circle: their number is written down and may only fall.
//!
//! # Why
//! A file in a circle cannot be read without all the others of it. An arrow goes from a file to the one
//! that defines what it names, by `use` or by a path that begins with `crate` or `super`. Re-exports are
//! followed to the definition and are no arrows themselves. Tests are left out.

mod imports;

use super::source::RustFile;
use super::{Finding, Sources};
use imports::{Import, imports};
use std::collections::{BTreeMap, BTreeSet};

const TABLE_FILE: &str = "xtask/circles.txt";

/// Re-exports that are followed one after the other.
const REEXPORTS_MAX: usize = 8;

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let mut table = read_table(sources);
    let mut findings = Vec::new();
    for (name, files) in crates(sources) {
        let written = table.remove(&name).unwrap_or(0);
        let circles = Crate::new(&files).in_circles();
        if circles.len() == written {
            continue;
        }
        let what = format!("crate `{name}` has {} files in circles, not {written}", circles.len());
        let advice = if circles.len() < written {
            "good: write the lower number into the file, and leave out the line at 0".to_owned()
        } else {
            let list: Vec<&str> = circles.iter().map(|file| file.path.as_str()).collect();
            format!(
                "move what both sides need to a file below them:\n      {}",
                list.join("\n      ")
            )
        };
        findings.push(Finding::new(TABLE_FILE, 0, what, advice));
    }
    let gone = table.into_keys().map(|name| format!("there is no crate `{name}`"));
    findings.extend(gone.map(|what| Finding::new(TABLE_FILE, 0, what, "remove its line")));
    findings
}

/// The arrows between the files of one crate, from the path that names to the path that defines.
pub(super) fn arrows_of<'a>(sources: &'a Sources, name: &str) -> Vec<(&'a str, &'a str)> {
    let Some(files) = crates(sources).remove(name) else { return Vec::new() };
    let files = files.as_slice();
    let graph = Crate::new(files);
    let path = |at: usize| files[at].path.as_str();
    let from = |at: usize| graph.arrows(at).into_iter().map(move |to| (path(at), path(to)));
    let arrows = (0..files.len()).flat_map(from);
    arrows.collect()
}

/// Lines of a crate's name and a number.
fn read_table(sources: &Sources) -> BTreeMap<String, usize> {
    let text = sources.text(TABLE_FILE).map_or("", |file| file.text.as_str());
    let line = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// The source files of each crate.
fn crates(sources: &Sources) -> BTreeMap<String, Vec<&RustFile>> {
    let mut crates: BTreeMap<String, Vec<&RustFile>> = BTreeMap::new();
    for file in sources.rust.iter().filter(|file| file.path.starts_with("crates/")) {
        if file.path.split('/').nth(2) == Some("src") && !file.path.ends_with("/tests.rs") {
            crates.entry(file.crate_name().to_owned()).or_default().push(file);
        }
    }
    crates
}

/// The path of a module inside its crate.
type Module = Vec<String>;

/// The files of one crate, by module.
struct Crate<'a> {
    files: &'a [&'a RustFile],
    imports: Vec<Vec<Import>>,
    by_module: BTreeMap<Module, usize>,
    modules: Vec<Module>,
}

impl<'a> Crate<'a> {
    fn new(files: &'a [&'a RustFile]) -> Self {
        let modules: Vec<Module> = files.iter().map(|file| module_of(&file.path)).collect();
        let by_module = (0..).zip(&modules).map(|(at, module)| (module.clone(), at)).collect();
        let imports = files.iter().map(|file| imports(file)).collect();
        Self { files, imports, by_module, modules }
    }

    /// Files from which some way leads through others back to them.
    fn in_circles(&self) -> Vec<&'a RustFile> {
        let arrows: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|at| self.arrows(at)).collect();
        let returns = |start: usize| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(at) = open.pop() {
                open.extend(arrows[at].iter().filter(|to| seen.insert(**to)));
            }
            seen.contains(&start)
        };
        (0..self.files.len()).filter(|at| returns(*at)).map(|at| self.files[at]).collect()
    }

    /// The other files that define what this one names.
    fn arrows(&self, at: usize) -> BTreeSet<usize> {
        let named = self.imports[at].iter().filter(|import| !import.is_reexport);
        let paths = named.filter_map(|import| self.absolute(&import.path, at));
        paths.filter_map(|path| self.resolve(path)).filter(|to| *to != at).collect()
    }

    /// A path from the root of the crate; `None` if it leads out of it.
    fn absolute(&self, path: &[String], at: usize) -> Option<Module> {
        let mut module = self.modules[at].clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (module, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    module.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                let child: Module = module.iter().cloned().chain([first.to_owned()]).collect();
                self.by_module.get(&child)?;
            }
        }
        module.extend_from_slice(rest);
        Some(module)
    }

    /// The file that defines what a path names, through re-exports.
    fn resolve(&self, mut path: Module) -> Option<usize> {
        for _ in 0..REEXPORTS_MAX {
            let lengths = (0..=path.len()).rev();
            let found =
                lengths.filter_map(|length| self.by_module.get(&path[..length]).zip(Some(length)));
            let (&at, length) = found.into_iter().next()?;
            let Some(name) = path.get(length) else { return Some(at) };
            let exports = self.imports[at].iter().filter(|import| import.is_reexport);
            let Some(import) = exports.into_iter().find(|import| import.name == *name) else {
                return Some(at);
            };
            let Some(target) = self.absolute(&import.path, at) else { return Some(at) };
            path = target.into_iter().chain(path[length + 1..].iter().cloned()).collect();
        }
        None
    }
}

/// `crates/log/src/wal/mod.rs` is `wal`, `crates/log/src/lib.rs` the root.
fn module_of(path: &str) -> Module {
    let inside = path.splitn(4, '/').nth(3).unwrap_or(path);
    let stem = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut parts: Module = stem.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)], table: &str) -> Vec<String> {
        let files: Vec<(&str, &str)> = files.iter().copied().chain([(TABLE_FILE, table)]).collect();
        check(&Sources::of(&files)).into_iter().map(|finding| finding.what).collect()
    }

    const A: &str = "crates/x/src/a.rs";
    const B: &str = "crates/x/src/b/mod.rs";
    const C: &str = "crates/x/src/b/c.rs";

    #[test]
    fn files_that_import_each_other_are_counted() {
        let two = [(A, "use crate::b::B; struct A;"), (B, "fn f(a: &crate::a::A) {} struct B;")];
        assert_eq!(of(&two, ""), ["crate `x` has 2 files in circles, not 0"]);
        assert_eq!(of(&two, "x 2\n"), [""; 0]);
        assert_eq!(of(&two, "x 3\n").len(), 1, "the number follows what there is");
        assert_eq!(of(&[(A, "use crate::b::B;"), (B, "struct B;")], ""), [""; 0]);
    }

    #[test]
    fn a_longer_circle_and_groups_of_names_are_seen() {
        let three = [
            (A, "use crate::b::{B, c::{self, C}}; struct A;"),
            (B, "struct B;"),
            (C, "use super::super::a::A; struct C;"),
        ];
        assert_eq!(of(&three, ""), ["crate `x` has 2 files in circles, not 0"]);
    }

    #[test]
    fn reexports_lead_to_the_definition() {
        let facade =
            [(A, "use crate::b::C;"), (B, "pub(crate) use c::C;"), (C, "use super::D as E;")];
        assert_eq!(of(&facade, ""), [""; 0], "the facade itself points nowhere");
        let circle =
            [(A, "use crate::b::C; struct A;"), (B, "pub use c::C;"), (C, "use crate::a::A;")];
        assert_eq!(of(&circle, ""), ["crate `x` has 2 files in circles, not 0"]);
    }

    #[test]
    fn tests_and_other_crates_are_no_arrows() {
        let files = [
            (A, "use log::b::B; #[cfg(test)] mod tests { use crate::b::B; } struct A;"),
            (B, "use crate::a::A; struct B;"),
        ];
        assert_eq!(of(&files, ""), [""; 0]);
        assert_eq!(of(&files, "y 2"), ["there is no crate `y`"]);
    }
}
