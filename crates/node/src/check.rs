//! What must be true of a shard between two turns.
//!
//! Each part asserts what is its own; here is what two of them must agree on. [`ShardCore::poll_output`]
//! checks at the end of each turn in a debug build, and so does the simulator.

use crate::{
    ShardCore,
    group::{Group, ReplyTo},
};

impl ShardCore {
    /// Asserts what holds between two turns. Call it when [`Self::poll_output`] has answered `None`.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        self.groups.check();
        self.reads.check();
        self.log.check();
        self.releases.check();
        self.watchers.check();
        self.write_queue.check();
        self.damage.check();
        self.operations.check(self.awaited());
        self.check_log();
    }

    /// The operations that an answer of this shard is on its way to: from its log, or from its disk.
    fn awaited(&self) -> impl Iterator<Item = u64> {
        let proposed = self.groups.iter().flat_map(Group::receivers);
        proposed.chain(self.reads.receivers()).filter_map(|reply_to| match reply_to {
            ReplyTo::Operation(number) => Some(number),
            _ => None,
        })
    }

    /// The log and the state machines have come equally far, and a log that has failed carries nothing.
    fn check_log(&self) {
        for group in self.groups.iter() {
            let id = group.state.group();
            let (applied, logged) = (group.state.applied(), self.log.applied_index(id));
            assert_eq!(applied, logged, "group {id} and its log differ in what is applied");
            let is_cut = self.poison.is_some() && group.proposed_count() > 0;
            assert!(!is_cut, "group {id} waits for a log that has failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Process, append, create, fork_of, path_in};
    use crate::{Request, shard::Proposal};
    use env::MemoryDisk;
    use model::StreamKey;
    use stream::{Command, PinToken};

    /// A shard with an append and a fork on their way to the disk.
    fn busy() -> (Process, StreamKey) {
        let mut process = Process::open(&MemoryDisk::new(), 1);
        let path = path_in(0, "a");
        process.with_text(&path, b"text");
        let key = process.head(&path).0;
        process.held.syncs = Some(Vec::new());
        process.offer(append(&path, b"more"));
        process.offer(create(&path_in(1, "fork"), None, Some(fork_of(&path, None, 0)), b""));
        process.offer(Request::Watch { key });
        process.settle();
        process.shards[0].check();
        (process, key)
    }

    /// Whether a check finds what `harm` does to a busy shard.
    fn finds(harm: impl FnOnce(&mut ShardCore, StreamKey)) -> bool {
        let (mut process, key) = busy();
        harm(&mut process.shards[0], key);
        let shard = std::panic::AssertUnwindSafe(&process.shards[0]);
        std::panic::catch_unwind(|| shard.check()).is_err()
    }

    #[test]
    fn a_check_finds_each_broken_invariant() {
        assert!(!finds(|_, _| ()), "nothing is wrong");
        let number = |core: &ShardCore| core.awaited().next().expect("the fork's pin");
        assert!(finds(|core, _| drop(core.operations.take(number(core)))), "a lost operation");
        let ask_again = |core: &mut ShardCore, key| {
            let proposal = Proposal { key, command: Command::Expire, data: &[] };
            let reply_to = ReplyTo::Operation(number(core));
            core.propose(crate::testing::START, proposal, reply_to).expect("there is room");
        };
        assert!(finds(ask_again), "an operation with two answers");
        assert!(finds(|core, _| core.poison = Some("sick".into())), "a failed log with entries");
        let token = |key: StreamKey| PinToken { fork_group: key.group, nonce: 1 };
        assert!(finds(|core, key| core.releases.add(key, token(key))), "a release not begun");
        let apply = |core: &mut ShardCore, key: StreamKey| {
            let group = core.groups.get_mut(key.group);
            group.skip_to(group.state.applied().next());
        };
        assert!(finds(apply), "an entry applied before it is durable");
        let propose = |core: &mut ShardCore, key: StreamKey| {
            let group = core.groups.get_mut(key.group);
            let index = group.state.applied();
            group.note_proposed(index, (key.stream, Command::Expire), ReplyTo::Nobody);
        };
        assert!(finds(propose), "an entry proposed twice");
        let commit = |core: &mut ShardCore, key: StreamKey| {
            let group = core.groups.get_mut(key.group);
            let _ = group.role.durable(group.state.applied().next());
        };
        assert!(finds(commit), "an entry committed and not applied");
    }
}
