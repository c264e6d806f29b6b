//! The events by which live readers get their bytes. PROTOCOL §5.8.
//!
//! # Format
//! ```text
//! event: data
//! data:first line
//! data:  a line that begins with one blank
//! id:0000000000000042_0000000000000000
//!
//! event: control
//! data:{"streamNextOffset":"0000000000000042_0000000000000000","streamCursor":"…","upToDate":true}
//! id:0000000000000042_0000000000000000
//!
//! ```
//! Every data event is followed by its own control event. The lines are [`crate::sse`]'s. The id of
//! both is the offset after the data: a browser's `EventSource` sends it back as `Last-Event-ID` when
//! it connects again, and gets what follows.
//!
//! # Byte exactness
//! Parsers take CR LF, CR and LF for the same line end and bytes that are not UTF-8 for U+FFFD. So
//! the text form alone cannot carry every byte. What we do about it (docs/adr/0013):
//! - Text is cut only between characters. The first bytes of a character whose rest has not come
//!   are held back; the control offset is the one before them.
//! - If the text of an event held a CR or was not UTF-8, its control event has an extra field
//!   `streamDataBase64` with the exact bytes. Clients that do not know it see what a parser sees.
//! - A client that always wants exact bytes asks for base64, see [`crate::request::ReadRequest`].
//! - JSON is exact as JSON: only blanks between tokens can differ.
//!
//! # One frame for all readers
//! Nothing in a frame depends on its reader but the cursor of a client that sent one of its own,
//! and [`put_with_cursor`] replaces that. A frame begins at [`SseEncoder::position`]; it may be
//! sent to exactly those readers whose next offset that is.
//!
//! # Memory
//! JSON and base64 events are written as their bytes come, whatever their size. A text event ends by
//! itself after [`crate::limits::TEXT_EVENT_BYTES_MAX`] source bytes.
//!
//! # Invariant
//! `start of frame + bytes in its data events = position`.

mod control;
mod encoder;
#[cfg(test)]
mod tests;

pub use control::{Control, put_control, put_with_cursor};
pub use encoder::SseEncoder;

use stream::{ContentType, Layout};

/// How the bytes of a stream travel in `data` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As text: `text/*`.
    Text,
    /// As a JSON array per event: `application/json`.
    Json,
    /// In base64: all other types, and readers that ask for it.
    Base64,
}

impl Mode {
    /// The mode of a connection; `base64_asked` is [`crate::request::ReadRequest::base64`].
    #[must_use]
    pub fn of(layout: Layout, content_type: &ContentType, base64_asked: bool) -> Self {
        // PROTOCOL §5.8: other types than these MUST be encoded.
        match (layout.is_json(), content_type.is_text()) {
            _ if base64_asked => Self::Base64,
            (true, _) => Self::Json,
            (_, true) => Self::Text,
            _ => Self::Base64,
        }
    }
}
