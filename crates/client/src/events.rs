//! Server-sent events, read as their bytes come. Source: WHATWG HTML §9.2.6.

use crate::EVENT_BYTES_MAX;
use std::io;

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What follows `event:`.
    pub kind: String,
    /// The data lines, joined by line feeds.
    pub data: Vec<u8>,
}

/// Cuts bytes into events. Lines may end with LF or CR LF; a CR alone ends none, since no server of
/// this protocol writes one.
#[derive(Debug, Default)]
pub struct EventReader {
    line: Vec<u8>,
    kind: String,
    data: Vec<u8>,
    has_data: bool,
}

impl EventReader {
    /// Takes bytes and gives the events that they complete to `dispatch`.
    ///
    /// # Errors
    /// If an event is longer than [`EVENT_BYTES_MAX`].
    pub fn push(&mut self, bytes: &[u8], mut dispatch: impl FnMut(Event)) -> io::Result<()> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let mut line = std::mem::take(&mut self.line);
            if let Some(event) = self.take_line(line.strip_suffix(b"\r").unwrap_or(&line)) {
                dispatch(event);
            }
            line.clear();
            self.line = line;
        }
        self.line.extend_from_slice(rest);
        if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
            return Err(io::Error::other("an event is longer than this client takes"));
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Event> {
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(Event { kind, data });
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => self.kind = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            let dispatch = |event: Event| {
                events.push((event.kind, String::from_utf8(event.data).unwrap()));
            };
            reader.push(piece, dispatch).unwrap();
        }
        events
    }

    #[test]
    fn events_come_whole_wherever_the_bytes_were_cut() {
        let text =
            b":\n\nevent: data\ndata:first\ndata:  second\n\nevent: control\ndata:{}\r\n\r\n";
        let wanted = [("data", "first\n second"), ("control", "{}")];
        let wanted = wanted.map(|(kind, data)| (kind.to_owned(), data.to_owned()));
        for cut in 0..text.len() {
            assert_eq!(read(&[&text[..cut], &text[cut..]]), wanted, "{cut}");
        }
    }

    #[test]
    fn an_event_without_an_empty_line_has_not_come_yet() {
        assert_eq!(read(&[b"event: data\ndata:x\n"]), []);
    }
}
