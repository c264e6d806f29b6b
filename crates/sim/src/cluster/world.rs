//! The scheduler of a cluster: one queue of everything that will happen.

use super::clients::{Asker, Client};
use super::forkers::Forker;
use super::hits::Damages;
use super::joined::Growth;
use super::member::{Job, Mail, Member, Turn, membership, node_number};
use super::oracle::Oracle;
use super::plan::{ClusterMutant, ClusterPlan, ClusterReport};
use super::streams::{NODES, STREAMS};
use super::watches::Watches;
use super::wires::{CLASSES, Wire};
use crate::{dice::Dice, trace::Trace};
use bytes::Bytes;
use cluster::Class;
use log::{LogOptions, OpenError};
use model::GroupId;
use node::{CopyStatus, PEER_TICK_MS, PeerEvent, Reply, Request, TransferCounts};
use std::collections::{BTreeMap, BTreeSet};

/// How often a shard's clockwork runs.
const TICK_US: u64 = 100_000;

/// Simulated time in which every client must come to its end once nothing fails any more.
const REST_US: u64 = 120_000_000;

/// How long a node tries for a request at most, and some more.
const LATE_US: u64 = 6_000_000;

/// How often copies are compared.
const COMPARE_US: u64 = 500_000;

/// The history of the cluster.
const LINEAGE: u64 = 0x7468_616c;

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Act {
    Turn {
        node: usize,
        life: u64,
    },
    Run {
        node: usize,
        life: u64,
        shard: usize,
        job: Job,
    },
    Tick {
        node: usize,
        life: u64,
    },
    PeerTick {
        node: usize,
        life: u64,
    },
    Frame {
        from: usize,
        to: usize,
        link: (Class, u64),
        bytes: Bytes,
    },
    /// A node learns that its links with a peer are lost.
    Notice {
        node: usize,
        peer: usize,
        life: u64,
    },
    Wake(usize),
    Arrive {
        call: u32,
        node: usize,
        life: u64,
        request: Request,
        data: Vec<u8>,
    },
    Reply {
        call: u32,
        reply: Reply,
    },
    GiveUp {
        call: u32,
    },
    Start(usize),
    /// A node that is no member wants to be one.
    Join(usize),
    /// The first node is to be one of several.
    Begin,
    /// One node takes the place of another.
    Exchange,
    Heal {
        from: usize,
        to: usize,
    },
    Strike,
    Churn,
    Compare,
}

pub(super) struct World {
    pub(super) plan: ClusterPlan,
    pub(super) now_us: u64,
    pub(super) dice: Dice,
    pub(super) fault_dice: Dice,
    pub(super) options: LogOptions,
    pub(super) members: Vec<Member>,
    pub(super) wires: BTreeMap<(usize, usize), Wire>,
    pub(super) oracle: Oracle,
    pub(super) is_ending: bool,
    /// The next leader that acknowledges something is cut off.
    pub(super) is_ambush_set: bool,
    pub(super) faults: u64,
    pub(super) damages: Damages,
    pub(super) hits: u64,
    /// Of a cluster that begins as one node.
    pub(super) growth: Option<Growth>,
    /// What a mutant's disks were.
    pub(super) old_images: BTreeMap<usize, env::MemoryDisk>,
    starts: u64,
    grown_count: u64,
    pub(super) elsewhere_count: u64,
    pub(super) forwarded_count: u64,
    forks_count: usize,
    pub(super) watches: Watches,
    pub(super) clients: Vec<Box<dyn Asker>>,
    /// Clients that have not come to their end.
    pub(super) active: BTreeSet<usize>,
    /// The client of each call, and the node that it asked.
    pub(super) calls: BTreeMap<u32, (usize, usize)>,
    pub(super) call_next: u32,
    pub(super) created: BTreeSet<usize>,
    pub(super) contents: Vec<Vec<u8>>,
    ordered: usize,
    queue: BTreeMap<(u64, u64), Act>,
    queued: u64,
    pub(super) trace: Trace,
}

impl World {
    pub(super) fn new(plan: ClusterPlan) -> Self {
        let mut dice = Dice::new(plan.seed ^ 0x0063_6c75_7374);
        let segment_bytes = *dice.pick(&[64 << 10, 256 << 10, 1 << 20]);
        let options = LogOptions {
            segment_bytes,
            // Half of it is kept for nodes that are away.
            wal_bytes_max: 8 * segment_bytes,
            seal_bytes: *dice.pick(&[16 << 10, 256 << 10]),
            hot_appends: 600,
            long_append_bytes: 200,
            batch_bytes_max: *dice.pick(&[32 << 10, segment_bytes]),
            checkpoint_bytes: *dice.pick(&[16 << 10, 128 << 10]),
            chunk_bytes_max: 512 << 10,
            group_count: u16::try_from(*dice.pick(&[1_u64, 2, 3])).expect("16 bits"),
            recent_bytes_max: *dice.pick(&[0, 1 << 20]),
            read_cache_bytes_max: 64 << 10,
            // All directories of a cluster continue one history: chunks are the same bytes in each.
            lineage: Some(LINEAGE),
            ..LogOptions::default()
        };
        let member = |number| {
            let shard_count = u16::try_from(dice.between(1, 2)).expect("16 bits");
            Member::new(number, shard_count, dice.below(400))
        };
        let count = if plan.grows() { NODES + 1 } else { NODES };
        let members: Vec<Member> = (0..count).map(member).collect();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let wires = pairs.filter(|(from, to)| from != to).map(|pair| (pair, Wire::default()));
        Self {
            plan,
            now_us: 0,
            fault_dice: dice.split(),
            options,
            members,
            wires: wires.collect(),
            oracle: Oracle::default(),
            is_ending: false,
            is_ambush_set: false,
            faults: 0,
            damages: Damages::default(),
            hits: 0,
            growth: None,
            old_images: BTreeMap::new(),
            starts: 0,
            grown_count: 0,
            elsewhere_count: 0,
            forwarded_count: 0,
            forks_count: 0,
            watches: Watches::new(Dice::new(plan.seed ^ 0x0077_6174_6368)),
            clients: Vec::new(),
            active: BTreeSet::new(),
            calls: BTreeMap::new(),
            call_next: 0,
            created: BTreeSet::new(),
            contents: vec![Vec::new(); STREAMS],
            ordered: 0,
            queue: BTreeMap::new(),
            queued: 0,
            trace: Trace::new(plan.verbose),
            dice,
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.plan.seed
    }

    pub(super) fn mutant(&self) -> Option<ClusterMutant> {
        self.plan.mutant
    }

    pub(super) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now_us, what);
    }

    pub(super) fn at(&mut self, delay_us: u64, act: Act) {
        self.queued += 1;
        self.queue.insert((self.now_us + delay_us, self.queued), act);
    }

    /// Carries the plan out.
    pub(super) fn run(&mut self) {
        if self.plan.grows() {
            self.begin_growth();
        }
        for node in 0..self.members.len() {
            if self.mutant() == Some(ClusterMutant::LyingDisks) {
                self.members[node].disk.lie_about_syncs();
            }
            self.start(node);
        }
        for number in 0..usize::try_from(self.dice.between(5, 9)).expect("few") {
            let (left, dice) = (self.dice.between(10, 60), self.dice.split());
            self.add_client(Box::new(Client::new(number, (NODES, left), dice)));
        }
        for _ in 0..self.dice.below(3) {
            let (number, dice) = (self.clients.len(), self.dice.split());
            self.add_client(Box::new(Forker::new(number, number % STREAMS, dice)));
        }
        self.at(0, Act::Compare);
        self.at(100_000, Act::Churn);
        self.at(2_000_000, Act::Strike);
        let until = self.now_us + self.dice.between(10, 40) * 1_000_000;
        self.run_until(until, |_| false);
        self.heal();
        let until = self.now_us + REST_US;
        self.run_until(until, |world| world.active.is_empty());
        if !self.is_at_rest() || !self.grow_up() {
            return;
        }
        // A request that its client has given up may still be under way.
        let until = self.now_us + LATE_US;
        self.run_until(until, |_| false);
        for stream in 0..STREAMS {
            let auditor = Client::auditor(stream, self.dice.split());
            self.add_client(Box::new(auditor));
        }
        let until = self.now_us + REST_US;
        self.run_until(until, |world| world.active.is_empty());
        if !self.is_at_rest() {
            return;
        }
        // Followers hear of the last commits, or get a snapshot.
        let until = self.now_us + REST_US;
        self.run_until(until, |world| world.laggard().is_none());
        if let Some(laggard) = self.laggard() {
            self.oracle.broken(format!("a copy never comes to the end of its log: {laggard}"));
        }
        self.run_until(until, |world| world.hoarder().is_none());
        if let Some(hoarder) = self.hoarder() {
            self.oracle.broken(hoarder);
        }
        self.run_until(until, |world| world.deaf_watcher().is_none());
        if let Some(watcher) = self.deaf_watcher() {
            self.oracle.broken(watcher);
        }
        self.check_changes();
        self.compare();
        if !self.oracle.is_broken() {
            self.ordered = self.oracle.audit(&self.contents);
            self.close();
        }
    }

    /// Streams are deleted, then their forks, and nothing is left of either.
    fn close(&mut self) {
        self.watches.may_go = true;
        for stream in 0..STREAMS {
            let closer = Forker::closer(stream, &self.oracle, self.dice.split());
            self.add_client(Box::new(closer));
        }
        let until = self.now_us + REST_US;
        self.run_until(until, |world| world.active.is_empty());
        if self.is_at_rest() {
            self.forks_count = self.oracle.audit_forks(&self.contents);
        }
        let until = self.now_us + REST_US;
        self.run_until(until, |world| world.unaware_watcher().is_none());
        if let Some(watcher) = self.unaware_watcher() {
            self.oracle.broken(watcher);
        }
    }

    pub(super) fn report(&self) -> ClusterReport {
        let (leaders_count, entries_count, states_count) = self.oracle.counts();
        ClusterReport {
            trace_hash: self.trace.hash(),
            acked_count: self.oracle.acked_count,
            ordered_count: self.ordered,
            images_count: self.oracle.images_count,
            digests_count: self.oracle.digests_count,
            grown_count: self.grown_count,
            elsewhere_count: self.elsewhere_count,
            forwarded_count: self.forwarded_count,
            forks_count: self.forks_count,
            changes_count: self.watches.changes_count,
            leaders_count,
            entries_count,
            states_count,
            starts: self.starts,
            faults: self.faults,
            hits: self.hits,
            installs: self.sum_of(|counts| counts.installs),
            snapshot_bytes: self.sum_of(|counts| counts.sent_bytes),
            resumed: self.sum_of(|counts| counts.resumed),
            simulated_us: self.now_us,
        }
    }

    /// A cluster that grows has grown.
    fn grow_up(&mut self) -> bool {
        let until = self.now_us + REST_US;
        while self.growth.is_some() && !self.has_grown() && !self.oracle.is_broken() {
            if self.now_us >= until {
                let copies = self.describe_copies();
                self.oracle.broken(format!("it does not grow\n{copies}"));
                return false;
            }
            let step_us = self.now_us + 100_000;
            self.run_until(step_us, |_| false);
        }
        self.grown_count = u64::from(self.growth.is_some());
        true
    }

    fn describe_copies(&self) -> String {
        let copies = self.members.iter().flat_map(|member| {
            let copies = member.copies();
            copies.map(|copy| format!("{} {copy:?}", member.number))
        });
        copies.collect::<Vec<_>>().join("\n")
    }

    /// Whether every client has come to its end; else that is broken.
    fn is_at_rest(&mut self) -> bool {
        if self.active.is_empty() {
            return true;
        }
        let copies = self.describe_copies();
        self.oracle.broken(format!("clients {:?} wait for ever\n{copies}", self.active));
        false
    }

    /// A copy that has applied less than another one.
    fn laggard(&self) -> Option<String> {
        let copies = || {
            let members = self.members.iter();
            members.flat_map(|member| {
                let copies = member.copies();
                copies.map(|copy| (member.number, copy))
            })
        };
        // Copies that the group has no more need not follow.
        let mut first: BTreeMap<GroupId, CopyStatus> = BTreeMap::new();
        for (_, copy) in copies() {
            let known = first.entry(copy.group).or_insert_with(|| copy.clone());
            if copy.applied > known.applied {
                *known = copy;
            }
        }
        let lags = |(_, copy): &(usize, CopyStatus)| {
            let first = &first[&copy.group];
            let is_wanted = first.configuration.contains(copy.id);
            is_wanted && copy.applied < first.applied
        };
        let laggard = copies().find(lags)?;
        let all: Vec<String> = copies().map(|copy| format!("{copy:?}")).collect();
        Some(format!("{laggard:?} of\n{}", all.join("\n")))
    }

    fn sum_of(&self, count: fn(&TransferCounts) -> u64) -> u64 {
        self.members.iter().map(|member| count(&member.transfer_counts())).sum()
    }

    fn run_until(&mut self, until_us: u64, is_done: impl Fn(&Self) -> bool) {
        while !self.oracle.is_broken() && !is_done(self) {
            let Some(entry) = self.queue.first_entry() else { break };
            if entry.key().0 > until_us {
                break;
            }
            let ((at_us, _), act) = entry.remove_entry();
            (self.now_us, self.oracle.now_us) = (at_us, at_us);
            self.act(act);
        }
        if self.queue.first_key_value().is_none_or(|((at_us, _), _)| *at_us > until_us) {
            self.now_us = self.now_us.max(until_us);
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Turn { node, life } => self.turn(node, life),
            Act::Run { node, life, shard, job } => self.run_job((node, life), shard, job),
            // A sync that was under way has failed since: somebody starts the node again.
            Act::Tick { node, life }
                if self.is_life(node, life)
                    && self.is_ending
                    && self.members[node].is_poisoned() =>
            {
                self.kill(node);
            }
            Act::Tick { node, life } if self.is_life(node, life) => {
                self.tick(node, || Mail::Tick);
                self.at(TICK_US, Act::Tick { node, life });
            }
            Act::PeerTick { node, life } if self.is_life(node, life) => {
                self.tick(node, || Mail::Peer(PeerEvent::Tick));
                self.at(PEER_TICK_MS * 1000, Act::PeerTick { node, life });
                self.end_if_it_may(node);
            }
            Act::Tick { .. } | Act::PeerTick { .. } => {}
            Act::Frame { from, to, link, bytes } => self.arrive((from, to), link, &bytes),
            Act::Notice { node, peer, life } => {
                if self.is_life(node, life) {
                    self.notice(node, peer);
                }
            }
            Act::Wake(client) => self.wake(client),
            Act::Arrive { call, node, life, request, data } => {
                if self.is_life(node, life) {
                    self.give_request((call, node), request, data);
                }
            }
            Act::Reply { call, reply } => self.hear(call, reply),
            Act::GiveUp { call } => self.give_up(call),
            Act::Start(node) => self.start(node),
            Act::Join(node) => self.join(node),
            Act::Begin => self.begin_membership(),
            Act::Exchange => self.go_on_exchanging(),
            Act::Heal { from, to } => self.mend(from, to),
            Act::Strike => self.strike(),
            Act::Churn => self.churn(),
            Act::Compare => {
                self.compare();
                self.at(COMPARE_US, Act::Compare);
            }
        }
    }

    pub(super) fn is_life(&self, node: usize, life: u64) -> bool {
        self.members[node].life == life && self.members[node].is_up()
    }

    /// Time passes for all shards of a node. While it is paused none does, and what is lost is not made up for.
    fn tick(&mut self, node: usize, mail: impl Fn() -> Mail) {
        if self.members[node].paused_until_us > self.now_us {
            return;
        }
        for shard in 0..self.members[node].shards.len() {
            self.post(node, shard, mail());
        }
    }

    /// A node learns that its links with a peer are lost, and that there are new ones if there are.
    fn notice(&mut self, node: usize, peer: usize) {
        let (number, opening) = (node_number(peer), self.members[peer].life);
        let is_up = self.members[peer].is_up() && !self.wires[&(node, peer)].is_cut;
        for shard in 0..self.members[node].shards.len() {
            self.post(node, shard, Mail::Peer(PeerEvent::Down { node: number }));
            if is_up {
                self.post(node, shard, Mail::Peer(PeerEvent::Up { node: number, opening }));
            }
        }
    }

    pub(super) fn post(&mut self, node: usize, shard: usize, mail: Mail) {
        let member = &mut self.members[node];
        member.inbox.push((shard, mail));
        if !std::mem::replace(&mut member.is_turn_due, true) {
            let pause_us = member.paused_until_us.saturating_sub(self.now_us);
            let (delay_us, life) = (pause_us + self.dice.delay_us(60), self.members[node].life);
            self.at(delay_us, Act::Turn { node, life });
        }
    }

    fn turn(&mut self, node: usize, life: u64) {
        if !self.is_life(node, life) {
            return;
        }
        self.members[node].is_turn_due = false;
        let turn = self.members[node].turn(self.now_us);
        let Turn { replies, mails, jobs, said, changes, is_behind } = turn;
        self.trace.note(
            self.now_us,
            format_args!("turn of {node}: {} {} {}", replies.len(), jobs.len(), said.len()),
        );
        self.oracle.note_leaders(&self.members[node]);
        self.check_left(node);
        self.spread_meta(node);
        if !self.members[node].inbox.is_empty()
            && !std::mem::replace(&mut self.members[node].is_turn_due, true)
        {
            self.at(10, Act::Turn { node, life });
        }
        for mut said in said {
            self.forge(node, &mut said);
            let to = usize::from(said.to.get()) - 1;
            if let Some(wire) = self.wires.get_mut(&(node, to)) {
                wire.push(said.section);
            }
        }
        self.flush(node);
        self.hear_changes(node, changes);
        for (ticket, reply) in replies {
            let (call, delay_us) = (ticket.exchange[0], self.dice.delay_us(300));
            self.check_acknowledged((node, call), &reply);
            let reply = super::clients::sent(reply);
            self.at(delay_us, Act::Reply { call, reply });
        }
        for (shard, mail) in mails {
            self.post(node, shard, mail);
        }
        let is_slow = self.members[node].slow_until_us > self.now_us;
        for (shard, job) in jobs {
            let typical_us = if is_slow { 60_000 } else { 400 };
            let delay_us = self.dice.delay_us(typical_us);
            self.at(delay_us, Act::Run { node, life, shard, job });
        }
        if is_behind && !std::mem::replace(&mut self.members[node].is_turn_due, true) {
            self.at(50, Act::Turn { node, life });
        }
    }

    fn run_job(&mut self, (node, life): (usize, u64), shard: usize, job: Job) {
        if self.is_life(node, life) {
            let mail = job.run();
            self.post(node, shard, mail);
        }
    }

    /// The next sync of a node that waits for its thread, if there is one.
    pub(super) fn take_sync(&mut self, of: usize) -> Option<Job> {
        let is_it =
            |act: &Act| matches!(act, Act::Run { node, job: Job::Sync(_), .. } if *node == of);
        let key = self.queue.iter().find(|(_, act)| is_it(act)).map(|(key, _)| *key)?;
        match self.queue.remove(&key) {
            Some(Act::Run { job, .. }) => Some(job),
            _ => None,
        }
    }

    /// Frames of what a node has said go out.
    fn flush(&mut self, node: usize) {
        let pairs = (0..self.members.len()).flat_map(|to| CLASSES.map(|class| (to, class)));
        for (to, class) in pairs {
            while to != node && self.send_frame((node, to), class) {}
        }
    }

    fn send_frame(&mut self, (node, to): (usize, usize), class: Class) -> bool {
        let at = self.members[node].stamp(self.now_us).wall;
        let delay_us = 30 + self.dice.delay_us(200);
        let now_us = self.now_us;
        let wire = self.wires.get_mut(&(node, to)).expect("a link");
        let (is_cut, link) = (wire.is_cut, (class, wire.lane(class).connection));
        let Some((arrives_us, bytes)) = wire.next_frame(class, at, (now_us, delay_us)) else {
            return false;
        };
        if !is_cut {
            self.at(arrives_us - now_us, Act::Frame { from: node, to, link, bytes });
        }
        true
    }

    fn arrive(&mut self, (from, to): (usize, usize), link: (Class, u64), bytes: &Bytes) {
        let wire = self.wires.get_mut(&(from, to)).expect("a link");
        let is_cut = wire.is_cut;
        let lane = wire.lane(link.0);
        if lane.connection != link.1 || is_cut || !self.members[to].is_up() {
            return;
        }
        for section in lane.arrive(bytes) {
            self.post_section((from, to), section);
        }
    }

    pub(super) fn start(&mut self, node: usize) {
        if self.members[node].is_up() || !self.is_member(node) {
            return;
        }
        self.starts += 1;
        let mut membership = self.membership(node);
        if self.mutant() == Some(ClusterMutant::LonelyVoter) && node == 0 {
            membership.voters.truncate(1);
        }
        let (options, mut dice) = (self.options.clone(), self.dice.split());
        match self.members[node].start(&mut dice, options, &membership) {
            Ok(()) => {}
            // A sync has failed, or the disk is full. Somebody starts it again.
            Err(OpenError::Io { .. }) => {
                self.members[node].disk.kill_process();
                return self.at(500_000, Act::Start(node));
            }
            Err(error) => {
                return self.oracle.broken(format!("node {node} does not start: {error}"));
            }
        }
        self.members[node].is_turn_due = false;
        let life = self.members[node].life;
        let peers = (0..self.members.len()).filter(|peer| *peer != node);
        peers.for_each(|peer| self.lose_link(node, peer));
        self.note(format_args!("node {node} starts"));
        if node == 0 && self.has_begun() {
            self.begin_membership();
        }
        self.at(self.now_us % 1000, Act::Tick { node, life });
        self.at(0, Act::PeerTick { node, life });
    }

    pub(super) fn membership(&self, node: usize) -> node::Membership {
        match self.growth {
            Some(_) => self.membership_in_growth(node),
            None => membership(node, (NODES, self.plan.seed)),
        }
    }

    fn compare(&mut self) {
        for member in &mut self.members {
            self.oracle.compare(member, self.damages.has_hit(member.number));
        }
    }
}
