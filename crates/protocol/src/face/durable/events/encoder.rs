//! From stored bytes to frames, incrementally.

use super::{Control, Mode, control};
use crate::{
    base64,
    face::durable::offset,
    limits::TEXT_EVENT_BYTES_MAX,
    sse::{EventName, EventWriter, event_name},
};
use model::ByteOffset;

const DATA: EventName = event_name!("data");

/// What U+FFFD looks like in UTF-8.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Buffers larger than this are given back after an event, so that a quiet stream stays small.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// What a frame of one event has besides its bytes, at most while the stream is open.
const FRAME_BYTES: usize = 240;

/// Encodes a stream's stored bytes into events.
///
/// # Driving it
/// For each piece that shall be one event (each append, when live): [`Self::begin_event`], any
/// number of [`Self::push`], [`Self::end_event`]. All output is appended to the caller's buffer,
/// which may be sent and emptied between any two calls.
#[derive(Debug)]
pub struct SseEncoder {
    mode: Mode,
    /// After the last byte that has gone into a data event.
    position: ByteOffset,
    /// What came but has not gone out: part of a character, or of three base64 bytes.
    held: Held,
    cursor: u64,
    lines: EventWriter,
    /// JSON: a comma came last; it is written only if a message follows in this event.
    owes_comma: bool,
    /// Text: the source bytes of the event under way.
    source: Vec<u8>,
    /// Text: parsers will not get `source` back from the lines.
    is_lossy: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Held {
    bytes: [u8; 3],
    count: usize,
}

impl Held {
    fn set(&mut self, bytes: &[u8]) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.count = bytes.len();
    }

    fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

impl SseEncoder {
    /// An encoder for a reader, or a group of readers, at `start`.
    #[must_use]
    pub fn new(mode: Mode, start: ByteOffset) -> Self {
        Self {
            mode,
            position: start,
            held: Held::default(),
            cursor: 0,
            lines: EventWriter::new(DATA),
            owes_comma: false,
            source: Vec::new(),
            is_lossy: false,
        }
    }

    /// The next offset of everybody who got all frames so far: where the next frame begins.
    ///
    /// It lies up to 3 bytes behind what was pushed while the rest of a character is missing.
    #[must_use]
    pub fn position(&self) -> ByteOffset {
        self.position
    }

    /// Bytes that were pushed but wait for the rest of their character; they will be in the next
    /// frame.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.count
    }

    /// Room for the frame of one event with `bytes` stored bytes, if its text is short of line ends.
    #[must_use]
    pub fn frame_bytes(&self, bytes: usize) -> usize {
        FRAME_BYTES + if self.mode == Mode::Base64 { bytes.div_ceil(3) * 4 } else { bytes }
    }

    /// Begins an event. `cursor` is [`crate::cursor::current`], the same for all readers.
    ///
    /// # Panics
    /// If the last event was not ended.
    pub fn begin_event(&mut self, cursor: u64) {
        assert!(!self.lines.is_open(), "a data event must be ended before the next one");
        self.cursor = cursor;
    }

    /// Adds stored bytes to the event.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        match self.mode {
            Mode::Text => self.push_text(bytes, out),
            Mode::Json => self.push_json(bytes, out),
            Mode::Base64 => self.push_base64(bytes, out),
        }
    }

    /// Ends the event: writes what is left of it and its control event. Without bytes there is only
    /// the control event. Returns the offset in it, which is [`Self::position`]. `control` has the number of the record
    /// behind what was pushed.
    pub fn end_event(&mut self, control: Control, out: &mut Vec<u8>) -> ByteOffset {
        match self.mode {
            // The rest of a character will never come.
            Mode::Text if control.closed => {
                let held = self.held.take();
                self.put_invalid(held.as_slice(), out);
            }
            Mode::Text => {}
            Mode::Json => {
                if self.lines.is_open() {
                    self.lines.put(b"]", out);
                }
                self.owes_comma = false;
            }
            Mode::Base64 => {
                let held = self.held.take();
                base64::put(out, held.as_slice());
            }
        }
        self.finish(control, out);
        self.position
    }

    fn finish(&mut self, control: Control, out: &mut Vec<u8>) {
        let position = self.position;
        self.lines.close(out, |out| offset::put(out, position));
        // The offset lies before what is held, in a record that may be another one.
        let next_record = control.next_record.filter(|_| self.held.count == 0);
        let control = Control { next_record, ..control };
        let exact = self.is_lossy.then_some(self.source.as_slice());
        control::put(self.position, control, exact, out);
        self.is_lossy = false;
        self.source.clear();
        self.source.shrink_to(KEPT_BYTES_MAX);
    }

    fn push_json(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.lines.is_open() {
            self.lines.put(b"[", out);
        }
        if self.owes_comma {
            self.lines.put(b",", out);
        }
        let without_comma = bytes.strip_suffix(b",");
        self.owes_comma = without_comma.is_some();
        // A CR can only be a blank between tokens, and so may be the LF that parsers make of it.
        self.lines.put(without_comma.unwrap_or(bytes), out);
        self.position = self.position.advance(bytes.len() as u64);
    }

    fn push_base64(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.position = self.position.advance(bytes.len() as u64);
        self.lines.put(b"", out);
        let mut held = self.held.take();
        let missing = if held.count == 0 { 0 } else { (3 - held.count).min(bytes.len()) };
        let (first, rest) = bytes.split_at(missing);
        held.bytes[held.count..held.count + missing].copy_from_slice(first);
        held.count += missing;
        if held.count == 3 {
            base64::put(out, held.as_slice());
            held.count = 0;
        }
        let (whole, tail) = rest.split_at(rest.len() - rest.len() % 3);
        base64::put(out, whole);
        if held.count == 0 {
            held.set(tail);
        }
        self.held = held;
    }

    fn push_text(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = self.complete_held(bytes, out);
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.put_valid(text, out);
                    return;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.put_valid(std::str::from_utf8(valid).unwrap_or_default(), out);
                    let Some(length) = error.error_len() else {
                        self.held.set(after);
                        return;
                    };
                    let (invalid, after) = after.split_at(length);
                    self.put_invalid(invalid, out);
                    rest = after;
                }
            }
        }
    }

    /// Finishes the character that is held, if the bytes for it have come; returns those that do
    /// not belong to it.
    fn complete_held<'b>(&mut self, bytes: &'b [u8], out: &mut Vec<u8>) -> &'b [u8] {
        let held = self.held;
        if held.count == 0 {
            return bytes;
        }
        let mut joined = [0; 7];
        let added = bytes.len().min(4);
        let length = held.count + added;
        joined[..held.count].copy_from_slice(held.as_slice());
        joined[held.count..length].copy_from_slice(&bytes[..added]);
        let joined = &joined[..length];
        let used = match joined.utf8_chunks().next() {
            Some(chunk) if !chunk.valid().is_empty() => {
                let width = chunk.valid().chars().next().map_or(0, char::len_utf8);
                self.held = Held::default();
                self.put_valid(&chunk.valid()[..width], out);
                width
            }
            Some(chunk) if chunk.invalid().len() < length || length > 3 => {
                self.held = Held::default();
                self.put_invalid(chunk.invalid(), out);
                chunk.invalid().len()
            }
            _ => self.hold_longer(joined, out),
        };
        &bytes[used - held.count..]
    }

    /// All of `joined` is either still the beginning of a character or wrong.
    fn hold_longer(&mut self, joined: &[u8], out: &mut Vec<u8>) -> usize {
        let is_beginning =
            std::str::from_utf8(joined).is_err_and(|error| error.error_len().is_none());
        if is_beginning {
            self.held.set(joined);
        } else {
            self.held = Held::default();
            self.put_invalid(joined, out);
        }
        joined.len()
    }

    fn put_valid(&mut self, text: &str, out: &mut Vec<u8>) {
        let mut rest = text;
        while !rest.is_empty() {
            self.make_room(out);
            let (part, after) =
                rest.split_at(floor_boundary(rest, TEXT_EVENT_BYTES_MAX - self.source.len()));
            self.is_lossy |= self.lines.put(part.as_bytes(), out);
            self.account(part.as_bytes());
            rest = after;
        }
    }

    fn put_invalid(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.make_room(out);
        self.lines.put(REPLACEMENT, out);
        self.is_lossy = true;
        self.account(bytes);
    }

    fn account(&mut self, bytes: &[u8]) {
        self.source.extend_from_slice(bytes);
        self.position = self.position.advance(bytes.len() as u64);
    }

    /// Ends the event under way if it could not take another character.
    fn make_room(&mut self, out: &mut Vec<u8>) {
        if self.source.len() + 4 > TEXT_EVENT_BYTES_MAX {
            let (up_to_date, closed, next_record) = (false, false, None);
            let control = Control { cursor: self.cursor, up_to_date, closed, next_record };
            self.finish(control, out);
        }
    }
}

/// The longest length of at most `limit` bytes at which `text` can be cut.
fn floor_boundary(text: &str, limit: usize) -> usize {
    let mut length = text.len().min(limit);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    length
}
