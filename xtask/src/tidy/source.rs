//! The files of the repository, as text and as Rust tokens.
//!
//! Rules look at tokens, not at text, so that a word in a comment or in a string is never mistaken
//! for code. Tokens are flat: one sequence per file, with the line of each and whether it is test
//! code. Documentation comments are left out.

use super::Finding;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

/// A text file of the repository.
#[derive(Debug, Clone)]
pub(super) struct TextFile {
    /// Its path from the root, with slashes.
    pub(super) path: String,
    /// Its contents.
    pub(super) text: String,
}

/// A Rust file as tokens.
#[derive(Debug)]
pub(super) struct RustFile {
    /// Its path from the root, with slashes.
    pub(super) path: String,
    /// Its tokens in order.
    pub(super) tokens: Vec<Token>,
}

/// One token.
#[derive(Debug, Clone)]
pub(super) struct Token {
    /// What it is.
    pub(super) kind: Kind,
    /// Its line, counted from 1.
    pub(super) line: usize,
    /// Whether it belongs to tests.
    pub(super) in_test: bool,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or keyword.
    Ident(String),
    /// The inside of a string or byte string, escapes as written.
    Text(String),
    /// Any other literal, and every punctuation character.
    Other(String),
    /// `(`, `[` or `{`.
    Open(char),
    /// `)`, `]` or `}`.
    Close(char),
}

impl Token {
    /// The name, if it is one.
    pub(super) fn ident(&self) -> Option<&str> {
        if let Kind::Ident(name) = &self.kind { Some(name) } else { None }
    }

    /// The inside of a string, if it is one.
    pub(super) fn string(&self) -> Option<&str> {
        if let Kind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Whether it is this punctuation character.
    pub(super) fn is(&self, punctuation: &str) -> bool {
        matches!(&self.kind, Kind::Other(text) if text == punctuation)
    }
}

impl TextFile {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines with their numbers, counted from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }
}

impl RustFile {
    pub(super) fn parse(file: &TextFile) -> Result<Self, Finding> {
        let stream = TokenStream::from_str(&file.text).map_err(|error| {
            let line = error.span().start().line;
            Finding::new(&file.path, line, "this is not Rust", "make it compile first")
        })?;
        let path = file.path.clone();
        let in_test = path.contains("/tests/") || path.ends_with("/tests.rs");
        let mut tokens = Vec::new();
        flatten(stream, in_test, &mut tokens);
        Ok(Self { path, tokens })
    }

    /// The crate's directory below `crates/`, or the first directory for anything else.
    pub(super) fn crate_name(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or(path)
    }
}

fn flatten(stream: TokenStream, in_test: bool, tokens: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut test_item = false;
    let mut at = 0;
    while at < trees.len() {
        if let Some(length) = doc_attribute(&trees[at..]) {
            at += length;
            continue;
        }
        test_item |= is_cfg_test(&trees[at..]);
        let line = trees[at].span().start().line;
        let in_test = in_test || test_item;
        match &trees[at] {
            TokenTree::Group(group) => {
                let (open, close) = delimiters(group.delimiter());
                tokens.push(Token { kind: Kind::Open(open), line, in_test });
                flatten(group.stream(), in_test, tokens);
                let line = group.span_close().start().line;
                tokens.push(Token { kind: Kind::Close(close), line, in_test });
                test_item &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Ident(ident) => {
                tokens.push(Token { kind: Kind::Ident(ident.to_string()), line, in_test });
            }
            TokenTree::Punct(punct) => {
                let text = punct.as_char().to_string();
                test_item &= text != ";";
                tokens.push(Token { kind: Kind::Other(text), line, in_test });
            }
            TokenTree::Literal(literal) => {
                let kind = literal_kind(&literal.to_string());
                tokens.push(Token { kind, line, in_test });
            }
        }
        at += 1;
    }
}

/// The length of a documentation attribute at the start of `trees`; comments become these.
fn doc_attribute(trees: &[TokenTree]) -> Option<usize> {
    let TokenTree::Punct(hash) = trees.first()? else { return None };
    if hash.as_char() != '#' {
        return None;
    }
    let inner = matches!(trees.get(1), Some(TokenTree::Punct(bang)) if bang.as_char() == '!');
    let group_at = 1 + usize::from(inner);
    let TokenTree::Group(group) = trees.get(group_at)? else { return None };
    let mut inside = group.stream().into_iter();
    let is_doc = matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc");
    let assigns = matches!(inside.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '=');
    (is_doc && assigns).then_some(group_at + 1)
}

fn is_cfg_test(trees: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = trees else { return false };
    let condition: String = group.stream().to_string().split_whitespace().collect();
    hash.as_char() == '#' && condition == "cfg(test)"
}

const fn delimiters(delimiter: Delimiter) -> (char, char) {
    match delimiter {
        Delimiter::Parenthesis => ('(', ')'),
        Delimiter::Bracket => ('[', ']'),
        Delimiter::Brace => ('{', '}'),
        Delimiter::None => (' ', ' '),
    }
}

fn literal_kind(text: &str) -> Kind {
    match (text.find('"'), text.rfind('"')) {
        (Some(first), Some(last)) if first < last && !text.starts_with('\'') => {
            Kind::Text(text[first + 1..last].to_owned())
        }
        _ => Kind::Other(text.to_owned()),
    }
}

/// Every text file that git has or would take.
pub(super) fn read(root: &Path) -> Result<Vec<TextFile>, String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    // A name that cannot be read was deleted, or is no text.
    let read = |name| Some(TextFile::new(name, &std::fs::read_to_string(root.join(name)).ok()?));
    Ok(names.lines().filter_map(read).collect())
}

/// The Rust files among `texts`; one that is not Rust is a finding.
pub(super) fn parse(texts: &[TextFile]) -> (Vec<RustFile>, Vec<Finding>) {
    let mut files = Vec::new();
    let mut findings = Vec::new();
    for file in texts.iter().filter(|file| file.is_rust()) {
        match RustFile::parse(file) {
            Ok(parsed) => files.push(parsed),
            Err(finding) => findings.push(finding),
        }
    }
    (files, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RustFile {
        RustFile::parse(&TextFile::new("crates/log/src/a.rs", text)).unwrap()
    }

    #[test]
    fn comments_are_no_tokens() {
        let file = parse("//! unsafe\n/// todo!()\nfn a() { /* dbg!() */ }");
        let names: Vec<&str> = file.tokens.iter().filter_map(Token::ident).collect();
        assert_eq!(names, ["fn", "a"]);
        assert_eq!(file.tokens[0].line, 3);
    }

    #[test]
    fn a_test_module_is_test_code_and_what_follows_is_not() {
        let file = parse("fn a() {}\n#[cfg(test)]\nmod t { fn b() {} }\nfn c() {}");
        let in_test = |name: &str| {
            file.tokens.iter().find(|token| token.ident() == Some(name)).unwrap().in_test
        };
        assert!(!in_test("a"));
        assert!(in_test("b"));
        assert!(!in_test("c"));
    }

    #[test]
    fn a_test_use_does_not_make_the_rest_test_code() {
        let file = parse("#[cfg(test)]\nuse x::y;\nfn c() {}");
        assert!(!file.tokens.last().unwrap().in_test);
    }

    #[test]
    fn strings_of_all_forms_are_read() {
        let file = parse("const A: &[&[u8]] = &[b\"one\", br#\"two\"#];\nconst C: char = '\"';");
        let strings: Vec<&str> = file.tokens.iter().filter_map(Token::string).collect();
        assert_eq!(strings, ["one", "two"]);
    }
}
