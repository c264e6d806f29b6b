//! Giving back the reference of a fork that was deleted or never made.

use crate::{
    Failure, ShardAnswer, ShardCall,
    step::{Step, Target, View},
};
use model::StreamKey;
use stream::{Command, PinToken};

/// An unpin on its way to the source's group.
#[derive(Debug)]
pub(crate) struct UnpinSteps {
    source: StreamKey,
    token: PinToken,
    /// It is done there, and being noted here.
    is_done: bool,
}

impl UnpinSteps {
    pub(crate) fn begin(source: StreamKey, token: PinToken) -> (Self, Step) {
        let call = ShardCall::Propose(source, Command::Unpin(token));
        (Self { source, token, is_done: false }, Step::Ask(call))
    }

    /// Once the unpin is durable it is pending no more. If it failed it comes again.
    pub(crate) fn step(&mut self, view: &mut View<'_>, answer: &ShardAnswer) -> Step {
        if std::mem::replace(&mut self.is_done, true) {
            return Step::End;
        }
        if let ShardAnswer::Failed(failure) = answer {
            // A shard that has stopped does nothing more until the next start, which sends it again.
            if !matches!(failure, Failure::Poisoned { .. }) {
                view.releases.retry(self.source, self.token);
            }
            return Step::End;
        }
        let group = self.token.fork_group;
        let mut pending = view.groups.get(group).state.pending_unpins();
        if !pending.any(|(known, _)| known == self.token) {
            return Step::End;
        }
        let to = Target { group, stream: None };
        Step::Propose(to, Command::UnpinDone(self.token), Vec::new())
    }
}
