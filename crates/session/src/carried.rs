//! What a connection knows that carries many exchanges at once.

use crate::{slab::ConnId, wire::Line};
use model::Monotonic;
use std::collections::BTreeSet;

/// The exchanges of one connection.
#[derive(Debug)]
pub(crate) struct Streams {
    pub line: Line,
    /// Each is a connection in here.
    pub open: BTreeSet<ConnId>,
    /// Input of the last round that brought no request.
    pub idle_bytes: usize,
    /// When something has come last.
    pub heard: Monotonic,
    /// It was asked for a sign of life since.
    pub is_asked: bool,
    /// A live frame was put on it since its frames were sent last.
    is_framed: bool,
}

/// What becomes of a line whose client says nothing while exchanges are open.
pub(crate) enum Silence {
    Bearable,
    /// The client is asked for a sign of life.
    Ask,
    /// It has given none.
    Over,
}

impl Streams {
    pub(crate) fn new(line: Line, now: Monotonic) -> Self {
        let (open, idle_bytes, is_asked, is_framed) = Default::default();
        Self { line, open, idle_bytes, heard: now, is_asked, is_framed }
    }

    /// A live frame is put on it; whether that is the first one since its frames were sent.
    pub(crate) fn note_frame(&mut self) -> bool {
        !std::mem::replace(&mut self.is_framed, true)
    }

    /// What is to be sent, in the buffer that was lent.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.is_framed = false;
        self.line.take_output()
    }

    /// Takes what has come.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Monotonic) {
        self.line.receive(bytes);
        (self.heard, self.is_asked) = (now, false);
    }

    /// What becomes of it, if its client is asked after `patience_ms` and has as long to answer.
    pub(crate) fn silence(&self, now: Monotonic, patience_ms: u64) -> Silence {
        let silent_ms = now.ms_since(self.heard);
        if self.is_asked && silent_ms >= patience_ms.saturating_mul(2) {
            Silence::Over
        } else if !self.is_asked && silent_ms >= patience_ms {
            Silence::Ask
        } else {
            Silence::Bearable
        }
    }

    pub(crate) fn ask_for_life(&mut self) {
        self.is_asked = true;
        self.line.ask_for_life();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }
}
