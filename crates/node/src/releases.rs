//! References on sources that forks no longer need: each is given back, again and again until it is.

use model::StreamKey;
use std::collections::VecDeque;
use stream::PinToken;

/// References to give back.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    due: VecDeque<(StreamKey, PinToken)>,
    /// The last attempt failed, or none was made yet: they are due with the next tick.
    waiting: Vec<(StreamKey, PinToken)>,
}

impl Releases {
    /// Gives a reference back in this turn.
    pub(crate) fn add(&mut self, source: StreamKey, token: PinToken) {
        self.due.push_back((source, token));
    }

    /// Gives a reference back at the next tick.
    pub(crate) fn retry(&mut self, source: StreamKey, token: PinToken) {
        self.waiting.push((source, token));
    }

    pub(crate) fn tick(&mut self) {
        self.due.extend(self.waiting.drain(..));
    }

    /// Takes the next one that is due.
    pub(crate) fn poll(&mut self) -> Option<(StreamKey, PinToken)> {
        self.due.pop_front()
    }

    /// Asserts that each reference that was due in this turn was taken.
    ///
    /// # Panics
    /// If one was not.
    pub(crate) fn check(&self) {
        assert!(self.due.is_empty(), "references were not given back: {:?}", self.due);
    }
}
