//! Opening a data directory: state machines are rebuilt from checkpoints and the log.

use crate::{
    ShardCore,
    group::{Group, Groups},
};
use env::{Disk, Random, SeededRandom};
use log::{
    CheckpointRow, Damage, DamageKind, DataDir, Entry, LogOptions, OpenError, Owner,
    RecoveryReport, Replay,
};
use model::{ByteOffset, EntryIndex, GroupId, PathHash, Placement, ShardId, StreamId, StreamKey};
use std::{collections::HashMap, path::Path, sync::Arc};
use stream::{Command, CommandKind, GroupState, LoggedCommand, NO_STREAM, Outcome, PinToken};

/// A recovered data directory.
#[derive(Debug)]
pub struct Opened {
    /// One core per shard, in order.
    pub shards: Vec<ShardCore>,
    /// What recovery found.
    pub report: RecoveryReport,
    /// Everything that was lost, one report for each place.
    pub damages: Vec<Damage>,
    /// Streams found.
    pub stream_count: u64,
}

/// Opens or makes the data directory `dir` for `shard_count` shards.
///
/// # Errors
/// [`OpenError`], each of which says what to do.
pub fn open(
    disk: Arc<dyn Disk>,
    random: &mut dyn Random,
    dir: &Path,
    options: LogOptions,
    shard_count: u16,
) -> Result<Opened, OpenError> {
    let mut rebuild = Rebuild::default();
    let data_dir = DataDir::open(disk, dir, options, Owner::SERVER, random)?;
    let opened = log::open(data_dir, shard_count, &mut rebuild)?;
    for group in (0..opened.group_count).map(GroupId::new) {
        let log = opened.shards.iter().find(|log| log.owns(group));
        let group_state = rebuild.group(group);
        if let Some(log) = log {
            pass_over_lost_end(group_state, log.applied_index(group));
        }
        group_state.state.forgive_lost_touches();
    }
    let orphans = orphaned_pins(&rebuild.groups);
    let stream_count = rebuild.groups.iter().map(|group| group.state.stream_count() as u64).sum();
    let mut parts = ShardsToBe { orphans, groups: rebuild.groups, group_count: opened.group_count };
    let mut shards = Vec::new();
    for (shard, log) in (0..).zip(opened.shards) {
        let mut core = parts.core(ShardId::new(shard), shard_count, log, random.next_u64());
        core.damage.note_reported(&rebuild.damages);
        shards.push(core);
    }
    let report = opened.report;
    Ok(Opened { shards, report, damages: rebuild.damages, stream_count })
}

/// Entries that were lost at the end of a group's log have no entry behind them at which they are
/// missed; the next one comes after them all the same.
fn pass_over_lost_end(group: &mut Group, last: EntryIndex) {
    if group.state.applied() < last {
        group.skip_to(last);
    }
}

struct ShardsToBe {
    orphans: Vec<(StreamKey, PinToken)>,
    groups: Vec<Group>,
    group_count: u16,
}

impl ShardsToBe {
    fn core(
        &mut self,
        shard: ShardId,
        shard_count: u16,
        log: log::ShardLog,
        seed: u64,
    ) -> ShardCore {
        let is_mine = |group: GroupId| group.shard(shard_count) == shard;
        let groups = self.groups.extract_if(.., |group| is_mine(group.state.group())).collect();
        let orphans = self.orphans.extract_if(.., |(_, token)| is_mine(token.fork_group));
        let orphans = orphans.collect();
        let groups = Groups::new((shard, shard_count), self.group_count, groups);
        let mut core = ShardCore::new(groups, log, SeededRandom::new(seed).next_u64());
        core.resume_releases(orphans);
        core
    }
}

/// References whose fork was never created: a crash came between the two.
fn orphaned_pins(groups: &[Group]) -> Vec<(StreamKey, PinToken)> {
    let mut orphans = Vec::new();
    for Group { state, .. } in groups {
        for (stream, pin) in state.pins() {
            let home = groups.get(usize::from(pin.token.fork_group.get()));
            if !home.is_some_and(|home| home.state.holds_token(&pin.fork_path, pin.token)) {
                orphans.push((StreamKey { group: state.group(), stream }, pin.token));
            }
        }
    }
    orphans
}

/// Rebuilds the state machines while the log replays.
#[derive(Default)]
struct Rebuild {
    /// By group number.
    groups: Vec<Group>,
    damages: Vec<Damage>,
    /// Streams whose creation was lost, by group and hash of the path.
    unmade: HashMap<(GroupId, PathHash), StreamId>,
}

/// What a damage takes away.
enum Loss {
    /// Bytes at known places, or nothing: reads of them say so by themselves.
    Bytes,
    /// Part of the state of a stream.
    State,
}

impl Loss {
    fn of(kind: DamageKind) -> Self {
        use DamageKind as K;
        match kind {
            K::BatchHeader | K::EntryHeader | K::SegmentMissing => Self::Bytes,
            K::ChunkHeader | K::ChunkRow | K::StreamData => Self::Bytes,
            K::EntryData | K::HeaderRepaired => Self::Bytes,
            K::FormatCopy | K::UnreadableBlock => Self::Bytes,
            // Entries that are not in the log either are reported as missing.
            K::CheckpointHeader => Self::Bytes,
            K::EntryPayload | K::EntriesMissing => Self::State,
            K::CheckpointRow | K::CheckpointPayload => Self::State,
        }
    }
}

impl Rebuild {
    fn state(&mut self, group: GroupId) -> &mut GroupState {
        &mut self.group(group).state
    }

    fn group(&mut self, group: GroupId) -> &mut Group {
        let place = usize::from(group.get());
        while self.groups.len() <= place {
            let next = u16::try_from(self.groups.len()).expect("group numbers have 16 bits");
            self.groups.push(Group::new(GroupId::new(next)));
        }
        &mut self.groups[place]
    }

    /// Records that the state of `damage` is lost.
    fn lose(&mut self, group: GroupId, damage: &Damage) {
        match (damage.stream, damage.path_hash, damage.entries) {
            // An unpin that is remembered once more is sent once more.
            _ if damage.entry_kind == Some(CommandKind::UnpinDone as u8) => {}
            (Some(stream), Some(path_hash), Some(_)) => self.unmake(group, stream, path_hash),
            (Some(stream), Some(path_hash), None) => {
                self.state(group).mark_damaged(stream, path_hash);
            }
            (Some(stream), None, Some((entry, _))) => {
                lose_entry(self.state(group), stream, entry);
            }
            (None, _, Some((_, last))) => self.state(group).lose_up_to(last),
            (_, _, None) => self.state(group).lose_one(),
        }
    }

    /// Records that the creation of `stream` was lost.
    fn unmake(&mut self, group: GroupId, stream: StreamId, path_hash: PathHash) {
        if self.state(group).lose_creation(stream, path_hash) {
            self.unmade.insert((group, path_hash), stream);
        }
    }

    /// Whether an entry is a repetition of a creation that was lost: requests for the same path that came
    /// together. It was refused, and must not make the stream instead.
    fn repeats_lost(&self, entry: &Entry<'_>) -> bool {
        if !is_creation(entry.kind) {
            return false;
        }
        let path_hash = PathHash::new(entry.stream.get());
        let lost = self.unmade.get(&(entry.group, path_hash));
        let state = &self.groups[usize::from(entry.group.get())].state;
        lost.is_some_and(|lost| state.damaged_at(path_hash) == Some(*lost))
    }
}

/// Records that `entry` was lost, which names `stream` in its header.
fn lose_entry(state: &mut GroupState, stream: StreamId, entry: EntryIndex) {
    if stream == NO_STREAM {
        state.lose_unnamed(entry);
    } else {
        state.lose(stream);
    }
}

fn is_creation(kind: u8) -> bool {
    kind == CommandKind::Create as u8
}

/// The stream of a lost entry; for a creation also the hash of its path. The header of a creation names
/// that hash instead of a stream, and the new stream has the entry's index.
fn subject(kind: u8, named: StreamId, entry: EntryIndex) -> (StreamId, Option<PathHash>) {
    if is_creation(kind) && named != NO_STREAM {
        (StreamId::new(entry.get()), Some(PathHash::new(named.get())))
    } else {
        (named, None)
    }
}

/// A damage in terms of streams.
fn with_subject(mut damage: Damage) -> Damage {
    if let (Some(kind), Some(named), Some((entry, _))) =
        (damage.entry_kind, damage.stream, damage.entries)
    {
        let (stream, path_hash) = subject(kind, named, entry);
        (damage.stream, damage.path_hash) = (Some(stream), path_hash);
    }
    damage
}

impl Replay for Rebuild {
    fn restore(
        &mut self,
        group: GroupId,
        applied: EntryIndex,
        header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) {
        let group = self.group(group);
        // Checksums have vouched for the bytes: what does not decode is a defect of ours.
        let restored = group.state.restore_header(applied, header);
        restored.expect("an intact checkpoint header decodes");
        let _ = group.role.durable(applied);
        for row in rows {
            if group.state.restore_row(row.stream, row.bytes).is_err() {
                group.state.mark_damaged(row.stream, row.path_hash);
            }
        }
    }

    fn apply(&mut self, entry: &Entry<'_>) -> Option<Placement> {
        let group = self.group(entry.group);
        if group.state.applied().next() < entry.index {
            group.skip_to(EntryIndex::new(entry.index.get() - 1));
        }
        let Ok(command) = Command::decode(entry.kind, entry.command) else {
            group.skip_to(entry.index);
            match subject(entry.kind, entry.stream, entry.index) {
                (stream, Some(path_hash)) => self.unmake(entry.group, stream, path_hash),
                (stream, None) => lose_entry(&mut group.state, stream, entry.index),
            }
            return None;
        };
        if self.repeats_lost(entry) {
            let group = self.group(entry.group);
            group.skip_to(entry.index);
            group.state.note_refused_creation(entry.index);
            return None;
        }
        let group = self.group(entry.group);
        let data_bytes = entry.data.len() as u64;
        let logged = LoggedCommand { stream: entry.stream, command, data_bytes };
        // What recovery finds is durable; the role says how much of it is committed.
        let committed = group.role.durable(entry.index).entry(entry);
        let applied = group.apply(&committed, logged);
        if is_creation(entry.kind) && !matches!(applied.outcome, Outcome::Created(_)) {
            group.state.note_refused_creation(entry.index);
        }
        applied.placement
    }

    fn damaged(&mut self, damage: &Damage) {
        let damage = with_subject(damage.clone());
        if let (Some(group), Loss::State) = (damage.group, Loss::of(damage.kind)) {
            self.lose(group, &damage);
        }
        self.damages.push(damage);
    }

    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        self.state(key.group).head_or_lost(key.stream)
    }
}
