//! References on sources whose fork was never made: the leader of the source's group finds them and takes them back.
//!
//! # How
//! A fork takes its reference in one group and is made in another. Between the two its coordinator may end, lose its term or
//! not hear the answer. So the leader asks for each reference that it has given, some time later, and for all of a group when it takes
//! charge. The answer comes from the leader of the fork's group. A fork that holds its reference gives it back when it is
//! deleted; such a reference is not asked for again.
//!
//! # What is certain
//! A creation is logged in the term that its reference names ([`stream::PinToken`]). A leader of a later term has applied all
//! entries of earlier ones. If the fork is not there, it never will be. In the same term the leader knows what
//! it has proposed and what is on its way.

use crate::{
    PinHolder, ShardCore, Stamp, operation::Operation, proposed::Proposed, sweep::SweepSteps,
};
use model::{GroupId, Monotonic, StreamKey, StreamPath};
use std::collections::VecDeque;
use stream::{Command, PinToken, Subject};

/// How long after it was given, or asked for in vain, a reference is asked for.
const SWEEP_MS: u64 = 10_000;

/// References asked for at once, and in one tick.
const SWEEPS_MAX: usize = 64;
const SWEEPS_PER_TICK_MAX: usize = 16;

/// References to be asked for.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// In the order in which they are due.
    due: VecDeque<(Monotonic, StreamKey, PinToken)>,
    under_way: usize,
}

impl ShardCore {
    /// A reference is given by a command that is applied now.
    pub(super) fn note_pin(&mut self, group: GroupId, proposed: &Proposed) {
        if let (Command::Pin(pin), Subject::Stream(stream)) = (&proposed.command, proposed.subject)
            && self.groups.get(group).role.is_in_charge()
        {
            let due = self.members().now.monotonic.plus_ms(SWEEP_MS);
            let source = StreamKey { group, stream };
            self.members().sweeps.due.push_back((due, source, pin.token));
        }
    }

    /// Asks for all references of a group of which this node has taken charge.
    pub(super) fn sweep_all(&mut self, group: GroupId) {
        let pins = self.groups.get(group).state.pins();
        let members = self.members();
        let due = members.now.monotonic.plus_ms(SWEEP_MS);
        members.sweeps.due.retain(|(_, source, _)| source.group != group);
        let sources =
            pins.into_iter().map(|(stream, pin)| (StreamKey { group, stream }, pin.token));
        members.sweeps.due.extend(sources.map(|(source, token)| (due, source, token)));
    }

    /// Asks for references that are due.
    pub(super) fn sweep(&mut self, now: Stamp) {
        for _ in 0..SWEEPS_PER_TICK_MAX {
            let sweeps = &mut self.members().sweeps;
            let is_due = sweeps.due.front().is_some_and(|(due, ..)| *due <= now.monotonic);
            if !is_due || sweeps.under_way >= SWEEPS_MAX {
                return;
            }
            let (_, source, token) = sweeps.due.pop_front().expect("one is due");
            let group = self.groups.get(source.group);
            // The next leader asks by itself.
            let path =
                group.state.pin_path(source.stream, token).filter(|_| group.role.is_in_charge());
            let Some(path) = path.cloned() else { continue };
            self.members().sweeps.under_way += 1;
            let (sweep, step) = SweepSteps::begin(source, token, path);
            self.drive(now, Operation::Sweep(sweep), step);
        }
    }

    pub(crate) fn end_sweep(&mut self, sweep: &SweepSteps) {
        let members = self.members();
        members.sweeps.under_way -= 1;
        if sweep.is_open() {
            let due = members.now.monotonic.plus_ms(SWEEP_MS);
            members.sweeps.due.push_back((due, sweep.source(), sweep.token()));
        }
    }

    /// Whether a fork of a group that is led here holds a reference.
    pub(crate) fn holder_of(&self, path: &StreamPath, token: PinToken) -> PinHolder {
        let group = self.groups.of_path(path);
        let is_it = |made: &stream::Create| made.fork.as_ref().is_some_and(|it| it.token == token);
        let is_proposed =
            |proposed: &Proposed| matches!(&proposed.command, Command::Create(made) if is_it(made));
        let is_on_its_way = |operation: &Operation| matches!(operation, Operation::Fork(fork) if fork.token() == Some(token));
        if group.state.holds_token(path, token) {
            PinHolder::Fork
        } else if token.term < group.role.term() {
            PinHolder::Nobody
        } else if token.term > group.role.term()
            || group.role.copy().is_none_or(|copy| copy.proposed().any(is_proposed))
            || self.operations.waiting().any(is_on_its_way)
        {
            PinHolder::Undecided
        } else {
            PinHolder::Nobody
        }
    }
}
