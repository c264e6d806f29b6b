//! The lines of one data event.

use memchr::memchr2;

/// Writes text as lines of a data event, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Lines {
    is_open: bool,
    /// Nothing of the line under way has been written yet.
    line_is_empty: bool,
    /// The last byte was a CR, whose line end is written: a LF right after it belongs to it.
    after_cr: bool,
}

impl Lines {
    /// Writes `text`; begins the event if this is its first. Returns whether there was a CR in it.
    pub(super) fn put(&mut self, text: &[u8], out: &mut Vec<u8>) -> bool {
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

    /// Ends the event if it was begun.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        if self.is_open {
            out.extend_from_slice(b"\n\n");
        }
        *self = Self::default();
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        if !self.is_open {
            out.extend_from_slice(b"event: data\ndata:");
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
