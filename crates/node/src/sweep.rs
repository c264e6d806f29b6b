//! Asking whether a fork holds a reference, and taking it back if none ever will. See `replicated::sweep`.

use crate::{PinHolder, ShardAnswer, ShardCall, step::Step};
use model::{StreamKey, StreamPath};
use stream::{Command, PinToken};

/// A reference that is asked for.
#[derive(Debug)]
pub(crate) struct SweepSteps {
    source: StreamKey,
    token: PinToken,
    stage: Stage,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Asking,
    GivingBack,
    /// Nothing is left to do.
    Settled,
    /// It is to be asked for again.
    Open,
}

impl SweepSteps {
    pub(crate) fn begin(source: StreamKey, token: PinToken, path: StreamPath) -> (Self, Step) {
        let sweep = Self { source, token, stage: Stage::Asking };
        (sweep, Step::Ask(ShardCall::Holder { path, token }))
    }

    pub(crate) fn source(&self) -> StreamKey {
        self.source
    }

    pub(crate) fn token(&self) -> PinToken {
        self.token
    }

    /// Whether it is to be asked for again.
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(crate) fn step(&mut self, answer: &ShardAnswer) -> Step {
        let was_asking = self.stage == Stage::Asking;
        self.stage = match answer {
            ShardAnswer::Holder(PinHolder::Nobody) if was_asking => Stage::GivingBack,
            ShardAnswer::Holder(PinHolder::Fork) | ShardAnswer::Outcome(_) => Stage::Settled,
            _ => Stage::Open,
        };
        match self.stage {
            Stage::GivingBack => {
                Step::Propose(self.source.into(), Command::Unpin(self.token), Vec::new())
            }
            _ => Step::End,
        }
    }
}
