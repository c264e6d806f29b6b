//! How much a function takes: at most six values, and a tuple counts as what it holds.
//!
//! Clippy counts parameters (`too-many-arguments-threshold` in clippy.toml). Under such a rule alone tuples
//! become a way around it, and they read worse than the long list: their parts have no names at the call. A
//! struct has names.

use super::source::{Kind, RustFile, Token};
use super::{Finding, Sources};

/// Most values that a function takes, `self` among them.
const VALUES_MAX: usize = 6;

const ADVICE: &str = "make a struct of what belongs together";

pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    sources.rust.iter().flat_map(check_file).collect()
}

fn check_file(file: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, token) in file.tokens.iter().enumerate() {
        let Some(name) = file.tokens.get(at + 1).and_then(Token::ident) else { continue };
        if token.ident() != Some("fn") {
            continue;
        }
        let count = parameters(&file.tokens[at + 2..]).map_or(0, values_in);
        if count > VALUES_MAX {
            let what = format!("`{name}` takes {count} values, more than {VALUES_MAX}");
            findings.push(Finding::new(&file.path, token.line, what, ADVICE));
        }
    }
    findings
}

/// The tokens between the parentheses that follow a function's name and its generics.
fn parameters(tokens: &[Token]) -> Option<&[Token]> {
    let mut angles = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Open('(') if angles == 0 => return inside(&tokens[at..]),
            _ if token.is("<") => angles += 1,
            // Not the end of an arrow in a bound, as in `F: Fn() -> u8`.
            _ if token.is(">") && !(at > 0 && tokens[at - 1].is("-")) => {
                angles = angles.saturating_sub(1);
            }
            _ => {}
        }
    }
    None
}

/// What is between the bracket that `tokens` begin with and the one that closes it.
fn inside(tokens: &[Token]) -> Option<&[Token]> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&tokens[1..at]);
        }
    }
    None
}

fn values_in(parameters: &[Token]) -> usize {
    let pieces = split(parameters).into_iter();
    pieces.map(|piece| type_of(piece).map_or(1, values_of_type)).sum()
}

/// Splits at the commas that are in no bracket and no list of generics.
fn split(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut depth, mut angles, mut start) = (0_usize, 0_usize, 0);
    let mut pieces = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth -= 1,
            _ if token.is("<") => angles += 1,
            _ if token.is(">") && !tokens[at - 1].is("-") => angles = angles.saturating_sub(1),
            _ if token.is(",") && depth == 0 && angles == 0 => {
                pieces.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&tokens[start..]);
    pieces.into_iter().filter(|piece| !piece.is_empty()).collect()
}

/// The type of a parameter: what follows the first colon outside of its pattern.
fn type_of(parameter: &[Token]) -> Option<&[Token]> {
    let mut depth = 0_usize;
    for (at, token) in parameter.iter().enumerate() {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth -= 1,
            _ if token.is(":") && depth == 0 => return Some(&parameter[at + 1..]),
            _ => {}
        }
    }
    None
}

/// One, or for a tuple (behind references, too) the values of its elements.
fn values_of_type(tokens: &[Token]) -> usize {
    let is_reference =
        |token: &&Token| token.is("&") || token.is("'") || token.ident() == Some("mut");
    let references = tokens.iter().take_while(is_reference).count();
    let tokens = &tokens[references..];
    // The lifetime of a reference is a name behind a `'`.
    let tokens = if references > 0
        && tokens.first().is_some_and(|token| token.ident().is_some())
        && tokens.get(1).is_some_and(|token| token.kind == Kind::Open('('))
    {
        &tokens[1..]
    } else {
        tokens
    };
    match tokens.first() {
        Some(token) if token.kind == Kind::Open('(') => {
            let elements = split(inside(tokens).unwrap_or_default());
            elements.into_iter().map(values_of_type).sum::<usize>().max(1)
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::findings;
    use crate::tidy::source::TextFile;

    /// How many values the function of `text` takes.
    fn values(text: &str) -> usize {
        let file = RustFile::parse(&TextFile::new("crates/log/src/a.rs", text));
        let tokens = file.unwrap().tokens;
        values_in(parameters(&tokens[2..]).unwrap())
    }

    #[test]
    fn a_tuple_counts_as_what_it_holds() {
        assert_eq!(values("fn a() {}"), 0);
        assert_eq!(values("fn a(&mut self, b: u8, (c, d): (u8, u16),) {}"), 4);
        assert_eq!(values("fn a(b: &(u8, (u16, u32)), c: &mut (u8, u8)) {}"), 5);
        assert_eq!(values("fn a<'b>(b: &'b (u8, u8), c: &'b str) {}"), 3);
    }

    #[test]
    fn what_is_inside_another_type_is_one_value() {
        assert_eq!(values("fn a<F: Fn(u8, u8) -> u8>(b: Vec<(u8, u8)>, c: F, d: ()) {}"), 3);
        assert_eq!(
            values("fn a(b: &dyn Fn(u8, u8) -> Result<u8, u16>, c: [u8; 2], d: fn(u8) -> u8) {}"),
            3
        );
        assert_eq!(values("fn a(HashMap { b, c }: HashMap<u8, u16>) {}"), 1);
    }

    #[test]
    fn a_function_that_takes_more_than_six_values_is_refused() {
        let long = "fn a(b: (u8, u8, u8), c: (u8, u8, u8), d: u8) {}";
        let found = findings(check, "crates/log/src/a.rs", long);
        assert_eq!(found[0].what, "`a` takes 7 values, more than 6");
        let fits = "fn a(b: (u8, u8, u8), c: (u8, u8, u8)) {}";
        assert_eq!(findings(check, "crates/log/src/a.rs", fits), []);
    }
}
