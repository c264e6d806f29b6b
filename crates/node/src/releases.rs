//! References on sources that forks no longer need: each is given back, again and again until it is.

use model::StreamKey;
use stream::PinToken;

/// References to give back.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// The last attempt failed, or none was made yet: they come with the next tick.
    waiting: Vec<(StreamKey, PinToken)>,
}

impl Releases {
    /// Gives a reference back at the next tick.
    pub(crate) fn retry(&mut self, source: StreamKey, token: PinToken) {
        self.waiting.push((source, token));
    }

    /// Takes those whose tick has come.
    pub(crate) fn take(&mut self) -> Vec<(StreamKey, PinToken)> {
        std::mem::take(&mut self.waiting)
    }
}
