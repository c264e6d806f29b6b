//! The lines of one event.

use memchr::memchr2;

/// What each line of an event's text begins with.
pub(crate) const DATA: &str = "data:";

/// The name of an event, as `event_name!` makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventName {
    /// The line with the name, and the beginning of the first line of text.
    pub(crate) opening: &'static str,
}

/// Makes an [`EventName`] of a literal.
macro_rules! event_name {
    ($name:literal) => {
        $crate::sse::EventName { opening: concat!("event: ", $name, "\ndata:") }
    };
}
pub(crate) use event_name;

impl EventName {
    /// The line with the name, its line end included.
    pub(crate) fn line(self) -> &'static str {
        &self.opening[..self.opening.len() - DATA.len()]
    }

    /// Writes an event of one line, which `text` writes without any line end; `id` writes its id.
    pub(crate) fn put_line(
        self,
        out: &mut Vec<u8>,
        text: impl FnOnce(&mut Vec<u8>),
        id: impl FnOnce(&mut Vec<u8>),
    ) {
        out.extend_from_slice(self.opening.as_bytes());
        text(out);
        put_end(out, id);
    }
}

/// Ends the last line of an event's text, and the event.
fn put_end(out: &mut Vec<u8>, id: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"\nid:");
    id(out);
    out.extend_from_slice(b"\n\n");
}

/// Writes text as lines of an event, piece by piece.
#[derive(Debug)]
pub(crate) struct EventWriter {
    name: EventName,
    is_open: bool,
    /// Nothing of the line under way has been written yet.
    line_is_empty: bool,
    /// The last byte was a CR, whose line end is written: a LF right after it belongs to it.
    after_cr: bool,
}

impl EventWriter {
    /// A writer of events of this name, one after the other.
    pub(crate) fn new(name: EventName) -> Self {
        Self { name, is_open: false, line_is_empty: false, after_cr: false }
    }

    /// Writes `text`; begins the event if this is its first. Returns whether there was a CR in it.
    pub(crate) fn put(&mut self, text: &[u8], out: &mut Vec<u8>) -> bool {
        self.open(out);
        let mut rest = text;
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        let mut saw_cr = false;
        while let Some(end) = memchr2(b'\r', b'\n', rest) {
            self.put_within(&rest[..end], out);
            out.extend_from_slice(b"\ndata:");
            self.line_is_empty = true;
            let is_cr = rest[end] == b'\r';
            saw_cr |= is_cr;
            rest = &rest[end + 1..];
            if is_cr {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.put_within(rest, out);
        saw_cr
    }

    /// Ends the event if it was begun, with the id that `id` writes.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>, id: impl FnOnce(&mut Vec<u8>)) {
        if self.is_open {
            put_end(out, id);
        }
        *self = Self::new(self.name);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        if !self.is_open {
            out.extend_from_slice(self.name.opening.as_bytes());
            (self.is_open, self.line_is_empty) = (true, true);
        }
    }

    fn put_within(&mut self, part: &[u8], out: &mut Vec<u8>) {
        let Some(first) = part.first() else { return };
        if self.line_is_empty && *first == b' ' {
            // Parsers eat one blank after `data:`.
            out.push(b' ');
        }
        self.line_is_empty = false;
        out.extend_from_slice(part);
    }
}
