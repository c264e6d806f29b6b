//! Bodies that name themselves: each append begins with its own number.

use super::{OpNo, Shape};
use crate::dice::Dice;

const JSON_OPEN: &[u8] = b"{\"op\":\"";
const DIGITS: usize = 8;

pub(super) struct Made {
    pub(super) body: Vec<u8>,
    pub(super) stored: Vec<u8>,
    pub(super) ends: Vec<usize>,
}

pub(super) fn make(number: OpNo, shape: Shape, dice: &mut Dice) -> Made {
    if shape == Shape::Json {
        return make_json(number, dice);
    }
    let mut body = format!("{number:08x}").into_bytes();
    let length = length(dice);
    if shape == Shape::Text {
        put_text(&mut body, length, dice);
    } else {
        (0..length).for_each(|_| body.push(dice.next() as u8));
    }
    Made { ends: vec![body.len()], stored: body.clone(), body }
}

/// A body of some `bytes` that is the same all over but for its begin.
pub(super) fn make_large(number: OpNo, bytes: u64, dice: &mut Dice) -> Made {
    let mut body = format!("{number:08x}").into_bytes();
    let length = usize::try_from(bytes / 2 + dice.below(bytes)).expect("a length");
    body.resize(DIGITS + length, dice.next() as u8);
    Made { ends: vec![body.len()], stored: body.clone(), body }
}

fn length(dice: &mut Dice) -> u64 {
    match dice.below(400) {
        0 => dice.between(60_000, 80_000),
        1..10 => dice.between(2_000, 12_000),
        10..40 => 0,
        _ => dice.between(1, 300),
    }
}

/// Text with everything that is awkward in events: line ends of all kinds, leading blanks, NUL,
/// wide characters.
fn put_text(body: &mut Vec<u8>, length: u64, dice: &mut Dice) {
    const PIECES: [&str; 12] =
        ["a", "lorem ", "\n", "\r\n", "\r", " ", ": ", "\u{0}", "ü", "€", "𝄞", "data:"];
    let end = body.len() as u64 + length;
    while (body.len() as u64) < end {
        let piece = if dice.percent(60) { "word " } else { *dice.pick(&PIECES) };
        body.extend_from_slice(piece.as_bytes());
    }
}

fn make_json(number: OpNo, dice: &mut Dice) -> Made {
    let count = if dice.percent(60) { 1 } else { dice.between(2, 6) };
    let mut messages = Vec::new();
    for index in 0..count {
        let padding = "x".repeat(usize::try_from(length(dice) / count).expect("a length"));
        // Commas and brackets in strings and nested values must not be taken for ends.
        let value = *dice.pick(&["[1,2]", "{\"b\":[3,\"]\"]}", "\",}\\\"\"", "null", "1.5e3"]);
        messages.push(format!(
            "{{\"op\":\"{number:08x}\",\"i\":{index},\"v\":{value},\"p\":\"{padding}\"}}"
        ));
    }
    let mut stored = Vec::new();
    let mut ends = Vec::new();
    for message in &messages {
        stored.extend_from_slice(message.as_bytes());
        stored.push(b',');
        ends.push(stored.len());
    }
    let body = if count == 1 && dice.percent(50) {
        messages[0].clone()
    } else {
        format!(" [{}\n] ", messages.join(" , "))
    };
    Made { body: body.into_bytes(), stored, ends }
}

/// Bytes at the start of an append that hold its number.
pub(super) fn marker_bytes(shape: Shape) -> usize {
    if shape == Shape::Json { JSON_OPEN.len() + DIGITS } else { DIGITS }
}

pub(super) fn number(marker: &[u8], shape: Shape) -> Option<OpNo> {
    let digits = if shape == Shape::Json { marker.strip_prefix(JSON_OPEN)? } else { marker };
    OpNo::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The number of the append in a request's body.
pub(super) fn number_in(body: &[u8], shape: Shape) -> Option<OpNo> {
    let first = body.strip_prefix(b" [").unwrap_or(body);
    number(first.get(..marker_bytes(shape))?, shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_tells_its_number() {
        let mut dice = Dice::new(1);
        for shape in [Shape::Text, Shape::Binary, Shape::Json] {
            let made = make(0x1f, shape, &mut dice);
            assert_eq!(number(&made.stored[..marker_bytes(shape)], shape), Some(0x1f));
            assert_eq!(number_in(&made.body, shape), Some(0x1f));
            assert_eq!(made.ends.last(), Some(&made.stored.len()));
        }
    }
}
