//! What must hold of a cluster, whatever fails.

use super::hits::Damages;
use super::member::Member;
use super::streams::{group_of, name_of};
use crate::history::History;
use cluster::{Configuration, NodeNumber, StateDigest};
use env::{Disk, MemoryDisk, SeededRandom};
use log::LogOptions;
use model::{EntryIndex, GroupId, StreamPath};
use node::{CopyState, CopyStatus};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of entries that are read at once to be compared.
const ENTRY_BYTES_MAX: u64 = 1 << 20;

/// An append: its stream and its bytes, which begin with its number.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) stream: usize,
    pub(super) bytes: Vec<u8>,
    /// When it was asked for first.
    pub(super) begun_us: u64,
    /// It was acknowledged.
    pub(super) is_acked: bool,
    /// Each try was refused for certain.
    pub(super) is_refused: bool,
}

/// The nodes, and what is needed to look at their disks.
pub(super) struct Disks<'a> {
    pub(super) members: &'a [Member],
    /// What each of them is opened with.
    pub(super) opened: &'a [node::Membership],
    pub(super) damages: &'a Damages,
    pub(super) options: &'a LogOptions,
}

/// All bytes of a fork of a stream.
#[derive(Debug)]
pub(super) struct ForkRead {
    pub(super) stream: usize,
    pub(super) fork: StreamPath,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    violation: Option<String>,
    pub(super) history: History,
    pub(super) ops: Vec<Op>,
    /// Forks that were ever asked for, by the stream of their source.
    pub(super) forks: BTreeSet<(usize, StreamPath)>,
    pub(super) fork_reads: Vec<ForkRead>,
    /// The node that leads a group in a term.
    leaders: BTreeMap<(u16, u64), usize>,
    /// The newest committed configuration of each group that a leader has known, and up to where it knew what is committed.
    configurations: BTreeMap<GroupId, (EntryIndex, Configuration)>,
    /// Term and checksum of each applied entry.
    entries: BTreeMap<(u16, u64), (u64, u32)>,
    /// Up to where each life of each node was compared.
    compared: BTreeMap<(usize, u64, u16), u64>,
    /// Checksum of the state of a group at an index.
    states: BTreeMap<(u16, u64), u32>,
    /// What the copies of a group say of that, and the first node that has said it.
    digests: BTreeMap<(u16, u64), (StateDigest, usize)>,
    /// How often another copy has said the same.
    pub(super) digests_count: u64,
    pub(super) acked_count: u64,
    pub(super) now_us: u64,
    pub(super) images_count: u64,
}

impl Oracle {
    /// Records what was broken, unless something was before.
    pub(super) fn broken(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    pub(super) fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.leaders.len(), self.entries.len(), self.states.len())
    }

    /// Looks at a node after a turn: a term has one leader.
    pub(super) fn note_leaders(&mut self, member: &Member) {
        let copies = member.copies();
        let leads = |copy: &CopyStatus| matches!(copy.state, CopyState::Begins | CopyState::Serves);
        for copy in copies.filter(leads) {
            let key = (copy.group.get(), copy.term.get());
            let known = *self.leaders.entry(key).or_insert(member.number);
            if known != member.number {
                self.broken(format!("{} and {} lead group and term {key:?}", known, member.number));
            }
            if copy.state == CopyState::Serves {
                let newest = self.configurations.entry(copy.group).or_default();
                if copy.committed > newest.0 {
                    *newest = (copy.committed, copy.configuration);
                }
            }
        }
    }

    /// A node has left the cluster, and nobody has said that its disk is lost: no group counts on it.
    pub(super) fn check_left(&mut self, node: NodeNumber) {
        let is_of = |(_, configuration): &(EntryIndex, Configuration)| {
            let mut voters = configuration.voters.iter().chain(&configuration.outgoing);
            voters.any(|id| id.node() == node)
        };
        let held = self.configurations.iter().find(|(_, newest)| is_of(newest));
        if let Some((group, newest)) = held {
            let what = format!("node {node} was removed and votes in group {group}: {newest:?}");
            self.broken(what);
        }
    }

    /// Compares what a node has applied with what others have.
    pub(super) fn compare(&mut self, member: &mut Member, may_halt: bool) {
        let life = member.life;
        for shard in 0..member.shards.len() {
            for copy in member.shards[shard].copies() {
                if copy.state == CopyState::Removed {
                    continue;
                }
                if copy.state == CopyState::Halted {
                    if may_halt {
                        continue;
                    }
                    self.broken(format!("node {} has halted group {}", member.number, copy.group));
                }
                self.compare_entries((member, shard, life), &copy);
                self.compare_state((member, shard), &copy);
            }
            self.compare_digests(member, shard);
        }
    }

    /// Compares what copies say of their states.
    fn compare_digests(&mut self, member: &Member, shard: usize) {
        let report = member.shards[shard].report();
        for check in report.into_iter().flat_map(|report| report.checks) {
            let key = (check.group.get(), check.index.get());
            let said = (check.digest, member.number);
            let (known, by) = *self.digests.entry(key).or_insert(said);
            if known != check.digest {
                self.broken(format!(
                    "two digests of group and index {key:?}, by {by} and {}",
                    said.1
                ));
            }
            self.digests_count += u64::from(by != member.number);
        }
    }

    fn compare_entries(
        &mut self,
        (member, shard, life): (&Member, usize, u64),
        CopyStatus { group, applied, .. }: &CopyStatus,
    ) {
        let log = member.shards[shard].log();
        let Some(first) = log.first_index(*group) else { return };
        let seen = self.compared.entry((member.number, life, group.get())).or_insert(0);
        let mut next = first.get().max(*seen + 1);
        *seen = applied.get();
        while next <= applied.get() {
            let Ok(read) = log.entries(*group, EntryIndex::new(next), ENTRY_BYTES_MAX) else {
                return;
            };
            let Ok(found) = read.run() else { return };
            for stored in found.iter().take_while(|stored| stored.entry().index <= *applied) {
                let entry = stored.entry();
                next = entry.index.get() + 1;
                let crc =
                    stored.command_crc ^ stored.data_crc.rotate_left(7) ^ u32::from(entry.kind);
                let this = (entry.term.get(), crc);
                let key = (group.get(), entry.index.get());
                let known = *self.entries.entry(key).or_insert(this);
                if known != this {
                    let what = format!("group and index {key:?} has {known:?} and {this:?}");
                    self.broken(format!("{what}, the latter on node {}", member.number));
                }
            }
        }
    }

    fn compare_state(
        &mut self,
        (member, shard): (&mut Member, usize),
        CopyStatus { group, applied, .. }: &CopyStatus,
    ) {
        let Some(bytes) = member.shards[shard].checkpoint_bytes(*group) else { return };
        let this = crc32c::crc32c(&bytes);
        let key = (group.get(), applied.get());
        let known = *self.states.entry(key).or_insert(this);
        if known != this {
            self.broken(format!("two states at group and index {key:?}, one on {}", member.number));
        }
    }

    /// The group of an append.
    pub(super) fn group_of(&self, op: usize, options: &LogOptions) -> GroupId {
        group_of(self.ops[op].stream, options)
    }

    /// An append was acknowledged: a majority has it on stable storage. A node that was damaged may have had it before.
    pub(super) fn check_images(
        &mut self,
        Disks { members, opened, damages, options }: &Disks<'_>,
        (acked_by, op): (usize, usize),
    ) {
        self.images_count += 1;
        let (group, bytes) = (self.group_of(op, options), &self.ops[op].bytes);
        let begun_us = self.ops[op].begun_us;
        let held_it = |member: &Member| damages.may_have_cost(member.number, begun_us);
        let holds = |member: &&Member| {
            let with = (*options, &opened[member.number]);
            held_it(member) || has_entry(&member.disk, with, group, bytes)
        };
        let holders: Vec<usize> =
            members.iter().filter(holds).map(|member| member.number).collect();
        let copies = members
            .iter()
            .flat_map(Member::copies)
            .filter(|copy| copy.group == group && copy.applied.get() > 0);
        // What a change of voters follows was committed by those before.
        let has_quorum = |copy: &CopyStatus| {
            copy.configuration.is_quorum(|id| holders.contains(&(usize::from(id.node().get()) - 1)))
        };
        let copies: Vec<CopyStatus> = copies.collect();
        if !copies.is_empty() && !copies.iter().any(has_quorum) {
            let what = format!("append {op} was acknowledged by node {acked_by}");
            self.broken(format!("{what}, and only {holders:?} have it on their disks"));
        }
    }

    /// All appends are known: acknowledged ones are there once, refused ones nowhere.
    pub(super) fn audit(&mut self, contents: &[Vec<u8>]) -> usize {
        let mut places: BTreeMap<usize, u64> = BTreeMap::new();
        for (stream, content) in contents.iter().enumerate() {
            let mut at = 0;
            while at < content.len() {
                let Some((op, length)) = op_at(&content[at..]) else {
                    return self.fail(format!("stream {stream} is garbled at {at}"));
                };
                let is_it = self.ops.get(op).is_some_and(|known| {
                    known.stream == stream && content[at..].starts_with(&known.bytes)
                });
                if !is_it || places.insert(op, at as u64).is_some() {
                    return self
                        .fail(format!("append {op} is twice, or garbled, at {at} of {stream}"));
                }
                at += length;
            }
        }
        for op in 0..self.ops.len() {
            let Op { is_acked, is_refused, .. } = self.ops[op];
            match places.contains_key(&op) {
                false if is_acked => {
                    self.broken(format!("append {op} was acknowledged and is lost"))
                }
                true if is_refused => self.broken(format!("append {op} was refused and is there")),
                _ => {}
            }
        }
        let mut ordered = 0;
        for stream in 0..contents.len() {
            let path = name_of(stream);
            match self.history.check(&path, |op| places.get(&op).copied()) {
                Ok(count) => ordered += count,
                Err(what) => self.broken(format!("no order explains stream {stream}: {what}")),
            }
        }
        ordered
    }

    /// The bytes of each fork are the first ones of its source.
    pub(super) fn audit_forks(&mut self, contents: &[Vec<u8>]) -> usize {
        let differs = |read: &&ForkRead| !contents[read.stream].starts_with(&read.bytes);
        if let Some(read) = self.fork_reads.iter().find(differs) {
            let ForkRead { stream, fork, bytes } = read;
            self.broken(format!(
                "{} bytes of {fork} are not those of stream {stream}",
                bytes.len()
            ));
        }
        self.fork_reads.len()
    }

    fn fail(&mut self, what: String) -> usize {
        self.broken(what);
        0
    }
}

/// The appends in the content of a stream, up to what is none.
pub(super) fn ops_in(content: &[u8]) -> BTreeSet<usize> {
    let mut rest = content;
    let mut found = BTreeSet::new();
    while let Some((op, length)) = op_at(rest) {
        found.insert(op);
        rest = &rest[length..];
    }
    found
}

/// An append begins with its number, and no other has the same.
const OP_HEAD_BYTES: usize = 9;

/// Number and length of the append that bytes begin with.
fn op_at(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.iter().position(|byte| *byte == b';')?;
    let number = std::str::from_utf8(bytes.get(1..OP_HEAD_BYTES)?).ok()?;
    Some((number.parse().ok()?, end + 1))
}

/// Whether some file of a disk has these bytes.
fn holds(disk: &MemoryDisk, bytes: &[u8]) -> bool {
    disk.paths().into_iter().any(|path| {
        let Ok(file) = disk.open(&path) else { return false };
        let mut content = vec![0; file.len().map_or(0, |length| length as usize)];
        file.read_exact_at(&mut content, 0).is_ok()
            && content.windows(bytes.len()).any(|window| window == bytes)
    })
}

/// Whether the entries on stable storage hold an append, or a checkpoint may.
fn has_entry(
    disk: &MemoryDisk,
    (options, opened): (&LogOptions, &node::Membership),
    group: GroupId,
    bytes: &[u8],
) -> bool {
    let image = disk.durable_image();
    let (port, dir) =
        (std::sync::Arc::new(image.clone()), std::path::Path::new(super::member::DIR));
    let random = &mut SeededRandom::new(1);
    let with = (options.clone(), 1);
    let Ok(opened) = node::open_member((port, random), dir, with, opened) else {
        return false;
    };
    let log = opened.shards[0].log();
    if !log.is_replicated(group) {
        // Its one voter has it in some file.
        return holds(&image, &bytes[..OP_HEAD_BYTES]);
    }
    let last = log.last_index(group);
    // Behind a snapshot there may be no entry.
    let Some(first) = log.first_index(group) else { return last.get() > 0 };
    let mut next = first;
    while next <= last {
        let Ok(found) = log.entries(group, next, ENTRY_BYTES_MAX).map(log::EntryRead::run) else {
            return false;
        };
        let Ok(found) = found else { return false };
        for stored in found {
            if stored.entry().data[..] == *bytes {
                return true;
            }
            next = stored.entry().index.next();
        }
    }
    // A checkpoint stands for entries that the log has given up.
    first.get() > 1
}
