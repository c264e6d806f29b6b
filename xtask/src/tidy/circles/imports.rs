//! The names that a file takes from elsewhere: by `use`, or by a path that begins with `crate` or `super`.

use crate::tidy::source::{Kind, RustFile, Token};

/// One name that is imported, or used by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// Its path as written.
    pub(super) path: Vec<String>,
    /// Its name here; empty if it is only used by its path.
    pub(super) name: String,
    /// Whether others may take it from here.
    pub(super) is_reexport: bool,
}

pub(super) fn imports(file: &RustFile) -> Vec<Import> {
    let tokens: Vec<&Token> = file.tokens.iter().filter(|token| !token.in_test).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].ident() {
            Some("use") => {
                let mut reader = Reader { tokens: &tokens, at: at + 1, found: Vec::new() };
                reader.tree(&[]);
                let is_reexport = is_public(&tokens[..at]);
                found.extend(reader.found.into_iter().map(|(path, name)| Import {
                    path,
                    name,
                    is_reexport,
                }));
                at = reader.at;
            }
            Some("crate" | "super") if starts_path(&tokens, at) => {
                let mut reader = Reader { tokens: &tokens, at, found: Vec::new() };
                let path = reader.path();
                found.push(Import { path, name: String::new(), is_reexport: false });
                at = reader.at;
            }
            _ => at += 1,
        }
    }
    found
}

/// Whether the tokens before an item end with `pub` or `pub(…)`.
fn is_public(before: &[&Token]) -> bool {
    match before {
        [.., last] if last.ident() == Some("pub") => true,
        [.., visibility, open, _, close] => {
            visibility.ident() == Some("pub")
                && open.kind == Kind::Open('(')
                && close.kind == Kind::Close(')')
        }
        _ => false,
    }
}

fn is_separator(tokens: &[&Token], at: usize) -> bool {
    let is_colon = |at: usize| tokens.get(at).is_some_and(|token| token.is(":"));
    is_colon(at) && is_colon(at + 1)
}

/// Whether a path begins here, and not only continues.
fn starts_path(tokens: &[&Token], at: usize) -> bool {
    is_separator(tokens, at + 1) && (at < 2 || !is_separator(tokens, at - 2))
}

/// Reads paths and trees of them.
struct Reader<'a> {
    tokens: &'a [&'a Token],
    at: usize,
    found: Vec<(Vec<String>, String)>,
}

impl Reader<'_> {
    /// Names with separators between them.
    fn path(&mut self) -> Vec<String> {
        let mut path = Vec::new();
        while let Some(name) = self.tokens.get(self.at).and_then(|token| token.ident()) {
            path.push(name.to_owned());
            self.at += 1;
            if !is_separator(self.tokens, self.at) {
                break;
            }
            self.at += 2;
        }
        path
    }

    /// A path and what is below it: nothing, another name, or a group of trees.
    fn tree(&mut self, before: &[String]) {
        if is_separator(self.tokens, self.at) {
            self.at += 2;
        }
        let mut path = [before, &self.path()].concat();
        let next = self.tokens.get(self.at);
        if next.is_some_and(|token| token.kind == Kind::Open('{')) {
            self.at += 1;
            self.group(&path);
            return;
        }
        if next.is_some_and(|token| token.is("*")) {
            self.at += 1;
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.tokens.get(self.at).and_then(|token| token.ident()) == Some("as") {
            let alias = self.tokens.get(self.at + 1).and_then(|token| token.ident());
            name = alias.unwrap_or("_").to_owned();
            self.at += 2;
        }
        self.found.push((path, name));
    }

    /// Trees up to the closing brace.
    fn group(&mut self, before: &[String]) {
        while let Some(token) = self.tokens.get(self.at) {
            if token.kind == Kind::Close('}') {
                self.at += 1;
                return;
            }
            if token.is(",") {
                self.at += 1;
            } else {
                let start = self.at;
                self.tree(before);
                // Whatever is no tree is passed over.
                self.at = self.at.max(start + 1);
            }
        }
    }
}
