//! What goes wrong in a cluster.

use super::member::Member;
use super::plan::ClusterMutant;
use super::world::{Act, World};
use env::MemoryDisk;
use model::GroupId;
use node::{CopyState, CopyStatus};

/// Mean time between two faults.
const STRIKE_US: u64 = 1_500_000;

/// How long a process that is asked to end takes for it at most.
const PATIENCE_US: u64 = 3_000_000;

impl World {
    /// Something fails, and the next time is drawn.
    pub(super) fn strike(&mut self) {
        if self.is_ending {
            return;
        }
        self.faults += 1;
        let node = self.victim();
        let count = self.members.len();
        let peer = (node + 1 + self.fault_dice.below(count as u64 - 1) as usize) % count;
        match self.fault_dice.below(100) {
            // What was said too early shows when its sender forgets it, and nobody hears its receiver.
            0..60 if self.mutant() == Some(ClusterMutant::EarlyCommits) => {
                self.cut_power(node);
                self.isolate(peer);
            }
            // What a new leader says too early shows where the last one was not heard to the end.
            0..60 if self.mutant() == Some(ClusterMutant::HastyBarriers) => {
                self.is_ambush_set = true;
            }
            // What such a copy says shows when the others fail.
            0..30
                if self.mutant().is_some_and(ClusterMutant::is_of_copies_that_are_out)
                    && self.may_damage() =>
            {
                self.damage(node);
            }
            0..9 => self.kill(node),
            9..14 => self.ask_to_end(node),
            14..28 => self.cut_power(node),
            28..34 => (0..count).for_each(|node| self.cut_power(node)),
            34..45 => self.pause(node),
            45..57 => self.cut(node, peer),
            57..63 => self.isolate(node),
            63..68 => self.is_ambush_set = true,
            68..74 => self.part(node, peer),
            74..78 => self.reset(node, peer),
            78..81 => self.reset_bulk(node, peer),
            84..88 | 92..95 if self.may_damage() => self.damage(node),
            81..88 => self.fail_sync(node),
            88..92 => self.fill_disk(node),
            95..97 if self.growth.is_some() && self.may_damage() => self.exchange(node),
            92..95 => self.drain(node),
            _ => self.slow_down(node),
        }
        let delay_us = self.fault_dice.delay_us(2 * STRIKE_US);
        self.at(delay_us, Act::Strike);
    }

    /// Whether others have what a node loses, and can give it a new id: in a cluster that grows, once it has grown. Where members never
    /// change, a copy that is out holds the log of its shard for good.
    fn may_damage(&mut self) -> bool {
        self.has_grown();
        self.growth.as_ref().is_some_and(|growth| growth.is_grown)
    }

    /// Any node, or a leader.
    fn victim(&mut self) -> usize {
        let node = self.fault_dice.below(self.members.len() as u64) as usize;
        let copies = self.members.iter().flat_map(Member::copies);
        let leaders: Vec<_> = copies.filter_map(|copy| copy.leader).collect();
        if leaders.is_empty() || self.fault_dice.percent(50) {
            return node;
        }
        usize::from(self.fault_dice.pick(&leaders).get()) - 1
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.note(format_args!("node {node} is killed"));
        self.end(node);
        self.members[node].disk.kill_process();
    }

    /// The process of a node gives its groups away, and ends.
    fn ask_to_end(&mut self, node: usize) {
        self.note(format_args!("node {node} is asked to end"));
        if self.members[node].is_up() {
            self.members[node].begin_end(self.now_us + PATIENCE_US);
        }
    }

    pub(super) fn end_if_it_may(&mut self, node: usize) {
        if self.members[node].may_end(self.now_us) {
            self.kill(node);
        }
    }

    /// What was not synced may be lost or torn, and a write may be under way.
    fn cut_power(&mut self, node: usize) {
        if !self.members[node].is_up() {
            return;
        }
        self.note(format_args!("node {node} loses power"));
        if self.fault_dice.percent(50)
            && let Some(job) = self.take_sync(node)
        {
            let changes = self.fault_dice.below(3);
            self.members[node].disk.power_off_after(changes);
            drop(job.run());
        }
        self.end(node);
        let disk = self.members[node].disk.clone();
        disk.crash(&mut self.fault_dice);
        self.break_disk(node);
    }

    /// A mutant's disk is not what it was.
    fn break_disk(&mut self, node: usize) {
        match self.mutant() {
            Some(ClusterMutant::ForgottenCluster) if node > 0 || !self.has_begun() => {}
            Some(ClusterMutant::LostDisk | ClusterMutant::ForgottenCluster) => {
                self.members[node].disk = MemoryDisk::new()
            }
            Some(ClusterMutant::OldDisk) => {
                let old = self.old_images.remove(&node);
                self.old_images.insert(node, self.members[node].disk.durable_image());
                if let Some(old) = old {
                    self.members[node].disk = old;
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, node: usize) {
        if !self.members[node].is_up() {
            return;
        }
        self.members[node].end();
        self.lose_calls(node);
        for peer in (0..self.members.len()).filter(|peer| *peer != node) {
            self.lose_link(node, peer);
        }
        let delay_us = self.fault_dice.between(20_000, 4_000_000);
        self.at(delay_us, Act::Start(node));
    }

    /// Both ways between two nodes begin again, and both hear of it.
    pub(super) fn lose_link(&mut self, node: usize, peer: usize) {
        for pair in [(node, peer), (peer, node)] {
            self.wires.get_mut(&pair).expect("a link").reset();
            let (node, peer) = pair;
            let (delay_us, life) = (self.fault_dice.delay_us(50_000), self.members[node].life);
            self.at(delay_us, Act::Notice { node, peer, life });
        }
    }

    fn pause(&mut self, node: usize) {
        let pause_us = self.fault_dice.between(50_000, 3_000_000);
        self.note(format_args!("node {node} pauses for {pause_us} us"));
        self.members[node].paused_until_us = self.now_us + pause_us;
    }

    /// One way: what `from` says does not arrive.
    fn cut(&mut self, from: usize, to: usize) {
        self.note(format_args!("{from} is not heard by {to}"));
        self.wires.get_mut(&(from, to)).expect("a link").is_cut = true;
        let delay_us = self.fault_dice.between(100_000, 8_000_000);
        self.at(delay_us, Act::Heal { from, to });
    }

    fn isolate(&mut self, node: usize) {
        for peer in (0..self.members.len()).filter(|peer| *peer != node) {
            self.cut(node, peer);
            self.cut(peer, node);
        }
    }

    /// A leader acknowledges something, and an ambush is set: nobody hears what it says at this moment. The next leader has the entry,
    /// and does not know that it is committed.
    pub(super) fn spring_ambush(&mut self, node: usize, group: GroupId) {
        let serves = |copy: CopyStatus| copy.state == CopyState::Serves;
        if self.is_ambush_set && self.members[node].copy_of(group).is_some_and(serves) {
            self.is_ambush_set = false;
            self.isolate(node);
        }
    }

    /// Two nodes do not hear each other; both hear the third.
    fn part(&mut self, node: usize, peer: usize) {
        self.cut(node, peer);
        self.cut(peer, node);
    }

    fn reset(&mut self, node: usize, peer: usize) {
        self.note(format_args!("the link of {node} and {peer} is lost"));
        self.lose_link(node, peer);
    }

    /// What of a snapshot was under way is lost, and nobody says so.
    fn reset_bulk(&mut self, node: usize, peer: usize) {
        self.note(format_args!("{node} and {peer} lose what they had of snapshots on their way"));
        for pair in [(node, peer), (peer, node)] {
            self.wires.get_mut(&pair).expect("a link").bulk.reset();
        }
    }

    /// A way that was cut carries frames again.
    pub(super) fn mend(&mut self, from: usize, to: usize) {
        let wire = self.wires.get_mut(&(from, to)).expect("a link");
        wire.is_cut = false;
        self.lose_link(from, to);
    }

    /// A shard whose sync has failed does nothing more until its node is started again.
    fn fail_sync(&mut self, node: usize) {
        self.note(format_args!("a sync of {node} fails"));
        self.members[node].disk.fail_next_sync(1);
    }

    /// A disk that has little room, until nothing fails any more or it is full again.
    fn fill_disk(&mut self, node: usize) {
        let is_full = self.fault_dice.percent(70);
        let room = self.fault_dice.below(200_000);
        let disk = &self.members[node].disk;
        let capacity = is_full.then(|| disk.used_bytes() + room);
        disk.set_capacity(capacity);
        self.note(format_args!("the disk of {node} holds {capacity:?}"));
    }

    fn slow_down(&mut self, node: usize) {
        let slow_us = self.fault_dice.between(200_000, 3_000_000);
        self.members[node].slow_until_us = self.now_us + slow_us;
    }

    /// Nothing fails any more.
    pub(super) fn heal(&mut self) {
        (self.is_ending, self.is_ambush_set) = (true, false);
        self.note(format_args!("nothing fails any more"));
        for node in 0..self.members.len() {
            self.members[node].disk.fail_nothing();
            self.members[node].disk.set_capacity(None);
            (self.members[node].slow_until_us, self.members[node].paused_until_us) = (0, 0);
            if self.members[node].is_poisoned() || self.members[node].ends_by_us.is_some() {
                self.kill(node);
            }
            for peer in (0..self.members.len()).filter(|peer| *peer != node) {
                self.mend(node, peer);
            }
            self.drain(node);
        }
    }
}
