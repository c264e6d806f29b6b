//! Server-sent events. PROTOCOL §5.8.

mod encoder;

pub use encoder::{Control, HEARTBEAT, SseEncoder, put_control, put_with_cursor};

use stream::ContentType;

/// How the bytes of a stream travel in `data` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As text: `text/*`.
    Text,
    /// As a JSON array per event: `application/json`.
    Json,
    /// In base64: all other types, and whoever asks for it.
    Base64,
}

impl Mode {
    /// The mode of a connection.
    #[must_use]
    pub fn of(content_type: &ContentType, base64_asked: bool) -> Self {
        // PROTOCOL §5.8: other types than these MUST be encoded.
        match (content_type.is_json(), content_type.is_text()) {
            _ if base64_asked => Self::Base64,
            (true, _) => Self::Json,
            (_, true) => Self::Text,
            _ => Self::Base64,
        }
    }
}
