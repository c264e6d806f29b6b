//! Two defects of HTTP/2: parts of one answer are sent as another's, and windows that a client gives back are not seen.
//!
//! Both act on frames as they pass, cut into pieces as they may be.

use crate::mutant::Mutant;
use std::collections::BTreeSet;

const HEADER_BYTES: usize = 9;
const PREFACE_BYTES: usize = 24;
const PREFACE_BEGINS: &[u8] = b"PRI * HTTP/2";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// What a mutant does to the frames of one connection.
#[derive(Debug)]
pub(super) struct FrameMutant {
    mutant: Mutant,
    /// `None` until the first bytes have come.
    speaks_frames: Option<bool>,
    input: Passage,
    output: Passage,
    /// Answers that have begun and not ended.
    open: BTreeSet<u32>,
}

/// How far a direction is.
#[derive(Debug, Default)]
struct Passage {
    /// The beginning of a frame that has not come whole.
    header: Vec<u8>,
    /// Bytes that belong to the frame before.
    left: usize,
    is_dropped: bool,
}

impl FrameMutant {
    pub(super) fn new(mutant: Option<Mutant>) -> Option<Self> {
        let mutant = mutant.filter(|mutant| mutant.is_of_frames())?;
        let (input, output) =
            (Passage { left: PREFACE_BYTES, ..Passage::default() }, Passage::default());
        Some(Self { mutant, speaks_frames: None, input, output, open: BTreeSet::new() })
    }

    /// What the server gets of what a client sent.
    pub(super) fn arrive(&mut self, bytes: &[u8]) -> Vec<u8> {
        let begins = &PREFACE_BEGINS[..PREFACE_BEGINS.len().min(bytes.len())];
        let speaks_frames = *self.speaks_frames.get_or_insert(bytes.starts_with(begins));
        if !speaks_frames || self.mutant != Mutant::DeafToWindows {
            return bytes.to_vec();
        }
        self.input.pass(bytes, |header| header[3] != WINDOW_UPDATE)
    }

    /// What a client gets of what the server sent.
    pub(super) fn leave(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.speaks_frames != Some(true) || self.mutant != Mutant::CrossedBodies {
            return bytes;
        }
        let open = &mut self.open;
        self.output.pass(&bytes, |header| {
            let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let is_end = header[4] & END_STREAM != 0;
            match header[3] {
                HEADERS if !is_end => drop(open.insert(id)),
                RESET => drop(open.remove(&id)),
                DATA if is_end => drop(open.remove(&id)),
                DATA => {
                    let other = open.iter().find(|other| **other != id).copied();
                    header[5..].copy_from_slice(&other.unwrap_or(id).to_be_bytes());
                }
                _ => {}
            }
            true
        })
    }
}

impl Passage {
    /// What passes; `look` may change the header of a frame, and says whether it passes.
    fn pass(&mut self, mut bytes: &[u8], mut look: impl FnMut(&mut [u8]) -> bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            let wanted = if self.left > 0 { self.left } else { HEADER_BYTES - self.header.len() };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            bytes = later;
            if self.left > 0 {
                self.left -= now.len();
                if !self.is_dropped {
                    out.extend_from_slice(now);
                }
                continue;
            }
            self.header.extend_from_slice(now);
            if self.header.len() == HEADER_BYTES {
                let mut header = std::mem::take(&mut self.header);
                let length = [0, header[0], header[1], header[2]];
                self.left = u32::from_be_bytes(length) as usize;
                self.is_dropped = !look(&mut header);
                if !self.is_dropped {
                    out.extend_from_slice(&header);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, id: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, id][..], payload].concat()
    }

    #[test]
    fn frames_pass_whole_in_any_pieces() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let window = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9]);
        let data = frame(DATA, 0, 1, b"some");
        let mut mutant = FrameMutant::new(Some(Mutant::DeafToWindows)).unwrap();
        let mut passed = Vec::new();
        for byte in [&preface[..], &window, &data, &window].concat() {
            passed.extend(mutant.arrive(&[byte]));
        }
        assert_eq!(passed, [preface, data].concat());
    }

    #[test]
    fn parts_of_an_answer_cross_over_while_another_is_open() {
        let mut mutant = FrameMutant::new(Some(Mutant::CrossedBodies)).unwrap();
        mutant.arrive(b"PRI * HTTP/2.0");
        let begin = [frame(HEADERS, 4, 1, b"h"), frame(HEADERS, 4, 3, b"h")].concat();
        assert_eq!(mutant.leave(begin.clone()), begin);
        assert_eq!(mutant.leave(frame(DATA, 0, 3, b"x")), frame(DATA, 0, 1, b"x"));
        let end = frame(DATA, END_STREAM, 1, b"");
        assert_eq!(mutant.leave(end.clone()), end);
        assert_eq!(mutant.leave(frame(DATA, 0, 3, b"x")), frame(DATA, 0, 3, b"x"), "alone");
    }
}
