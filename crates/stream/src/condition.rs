//! What an append wants of its stream. It is compared in the order of the log. So of all appends that want the same
//! state, one at most is accepted.

use crate::{
    DecodeError,
    codec::{Reader, Writer},
};
use model::{ByteOffset, StreamKey};

/// What must hold of a stream, or the append changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// The append's first record gets this number.
    pub next_record: Option<u64>,
    /// The stream is one of these in this state; without any, any in any.
    pub states: Vec<EndState>,
}

/// How a stream ends: what the tag of an answer that reaches its tail says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndState {
    /// Which stream.
    pub stream: StreamKey,
    /// After its last byte.
    pub tail: ByteOffset,
    /// No more bytes will come.
    pub closed: bool,
}

/// Most states of one condition.
pub const CONDITION_STATES_MAX: usize = 16;

impl Condition {
    /// Whether it wants anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Writer<'_> {
    /// A list of streams, each with a number: twice the tail, and one more if the stream is closed.
    pub(crate) fn end_states(&mut self, states: &[EndState]) {
        self.number(states.len() as u64);
        for EndState { stream, tail, closed } in states {
            self.key(*stream);
            self.number(tail.get() << 1 | u64::from(*closed));
        }
    }
}

impl Reader<'_> {
    pub(crate) fn end_states(&mut self) -> Result<Vec<EndState>, DecodeError> {
        let count = self.number()?;
        if !(1..=CONDITION_STATES_MAX as u64).contains(&count) {
            return self.error();
        }
        let state = |_| {
            let (stream, number) = (self.key()?, self.number()?);
            Ok(EndState { stream, tail: ByteOffset::new(number >> 1), closed: number & 1 != 0 })
        };
        (0..count).map(state).collect()
    }
}
