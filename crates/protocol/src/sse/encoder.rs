//! x
use super::Mode;
use model::ByteOffset;
/// A comment that keeps the connection alive and means nothing.
pub const HEARTBEAT: &[u8] = b":\n\n";

/// What a control event says beside the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The cursor; left out when `closed`.
    pub cursor: u64,
    /// Nothing follows at the moment.
    pub up_to_date: bool,
    /// Nothing will ever follow.
    pub closed: bool,
}
/// Encodes a stream's bytes into events.
#[derive(Debug)]
pub struct SseEncoder {
    mode: Mode,
    position: ByteOffset,
}
impl SseEncoder {
    /// Begins at `at`.
    #[must_use]
    pub fn new(mode: Mode, at: ByteOffset) -> Self {
        Self { mode, position: at }
    }
    /// Where the next frame begins: the offset that a reader of it must be at.
    #[must_use]
    pub fn position(&self) -> ByteOffset {
        let _ = self.mode;
        self.position
    }
    /// Begins a data event (nothing is written before its first bytes come).
    pub fn begin_event(&mut self, _cursor: u64) {
        todo!()
    }
    /// Adds stored bytes to the event.
    pub fn push(&mut self, _bytes: &[u8], _out: &mut Vec<u8>) {
        todo!()
    }
    /// Ends the data event and writes its control event; returns the offset that it names.
    pub fn end_event(&mut self, _control: Control, _out: &mut Vec<u8>) -> ByteOffset {
        todo!()
    }
}
/// Writes a control event without data before it.
pub fn put_control(_next: ByteOffset, _control: Control, _out: &mut Vec<u8>) {
    todo!()
}
/// Copies a shared frame with another cursor.
pub fn put_with_cursor(_frame: &[u8], _cursor: u64, _out: &mut Vec<u8>) {
    todo!()
}
