//! Opening a data directory: state machines are rebuilt from checkpoints and the log.

use crate::{
    DiskTrouble, Membership, ShardCore,
    group::{Group, Groups},
    owner_header::{OwnerHeader, decode_configuration, decode_meta},
    replicated::{Replication, may_concern, to_copy},
    role::Role,
};
use cluster::{
    Change, Configuration, KIND_CHANGE, KIND_CHECK, KIND_META, KIND_NOOP, Meta, MetaCommand,
};
use env::{Disk, Random, SeededRandom};
use log::{
    CheckpointRow, Damage, DamageKind, DataDir, Entry, LogOptions, NewerVersion, OpenError, Owner,
    RecoveryReport, Replay, ShardLog,
};
use model::{
    ByteOffset, EntryIndex, GroupId, PathHash, Placement, ShardId, StreamId, StreamKey, Timestamp,
};
use std::{collections::HashMap, path::Path, sync::Arc};
use stream::{
    Command, CommandKind, DecodeError, GroupState, LoggedCommand, Outcome, PinToken, Subject,
};

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
    open_dir((disk, random), dir, (options, shard_count), None)
}

/// Opens or makes the data directory `dir` of a member of a cluster, whose groups have replicas on other nodes. See
/// [`crate::PeerEvent`] for how its shards are driven.
///
/// # Errors
/// As [`open`]; [`OpenError::Replicas`] if the directory has what a node alone wrote.
pub fn open_member(
    (disk, random): (Arc<dyn Disk>, &mut dyn Random),
    dir: &Path,
    (options, shard_count): (LogOptions, u16),
    membership: &Membership,
) -> Result<Opened, OpenError> {
    open_dir((disk, random), dir, (options, shard_count), Some(membership))
}

fn open_dir(
    (disk, random): (Arc<dyn Disk>, &mut dyn Random),
    dir: &Path,
    (options, shard_count): (LogOptions, u16),
    membership: Option<&Membership>,
) -> Result<Opened, OpenError> {
    let own_group_count = u16::from(membership.is_some_and(|it| it.meta.is_some()));
    // Other members see how often its log was opened, and refuse an old copy of it.
    let marks_empty = membership.is_some_and(|it| !it.is_alone());
    let options = LogOptions { own_group_count, marks_empty, ..options };
    let mut replay =
        StateReplay { first: membership.map(Membership::first), ..StateReplay::default() };
    let start = membership.and_then(|it| it.meta.as_ref());
    replay.meta = start.map(|start| Meta::new(start.cluster, options.group_count));
    let data_dir = DataDir::open(disk, dir, options, Owner::SERVER, random)?;
    let opened = log::open(data_dir, shard_count, &mut replay)?;
    let membership = membership.map(|own| own.opened(opened.report.epoch));
    let total = opened.group_count + own_group_count;
    let has_copies = (0..total)
        .map(GroupId::new)
        .any(|group| opened.shards.iter().any(|log| log.owns(group) && log.is_replicated(group)));
    // Nobody has joined yet: it is a node alone.
    let membership = membership.filter(|it| has_copies || !it.is_alone());
    let membership = membership.as_ref();
    let total = if membership.is_some() { total } else { opened.group_count };
    for group in (0..total).map(GroupId::new) {
        let log = opened.shards.iter().find(|log| log.owns(group));
        let Some(log) = log else { continue };
        let found = log.is_replicated(group);
        // Where other groups are copies, what said so of this one may be what is damaged. It is out then.
        let is_lost = || has_copies && replay.damages.iter().any(|it| may_concern(it, group));
        match membership {
            Some(membership)
                if found || membership.may_begin(log.last_index(group)) || is_lost() =>
            {
                replay.begin_copy(log, group, membership);
            }
            None if !found => {
                let group_state = replay.group(group);
                pass_over_lost_end(group_state, log.applied_index(group));
                group_state.state.forgive_lost_touches();
            }
            _ => return Err(OpenError::Replicas { dir: dir.to_owned(), found }),
        }
    }
    if membership.is_some() && own_group_count > 0 {
        let meta = replay.meta.take().map(Box::new);
        replay.group(GroupId::new(opened.group_count)).meta = meta;
    }
    // Forks of groups that other nodes lead are not known here.
    let orphans = if membership.is_none() { orphaned_pins(&replay.groups) } else { Vec::new() };
    let stream_count = replay.groups.iter().map(|group| group.state.stream_count() as u64).sum();
    let last_uses = replay.groups.iter().map(|group| group.state.last_logged_use());
    let last = last_uses.max().unwrap_or_default().max(replay.last);
    let groups = replay.groups;
    let mut parts = ShardsToBe { orphans, groups, group_count: opened.group_count, last };
    let poison = opened.unsynced.as_ref().map(|error| (DiskTrouble::of(error), error.to_string()));
    let mut shards = Vec::new();
    for (shard, log) in (0..).zip(opened.shards) {
        let mut core = parts.core(ShardId::new(shard), shard_count, log, random.next_u64());
        core.damage.note_reported(&replay.damages);
        core.poison.clone_from(&poison);
        core.replication = membership.map(|own| Box::new(Replication::new(own)));
        core.publish_meta();
        core.begin_retiring();
        shards.push(core);
    }
    let report = opened.report;
    Ok(Opened { shards, report, damages: replay.damages, stream_count })
}

/// Entries that were lost at the end of a group's log, or with a checkpoint, have none behind them at which they are
/// missed. The next one comes after them all the same.
fn pass_over_lost_end(group: &mut Group, last: EntryIndex) {
    if group.state.applied() < last {
        group.skip_to(last);
    }
}

struct ShardsToBe {
    orphans: Vec<(StreamKey, PinToken)>,
    groups: Vec<Group>,
    group_count: u16,
    /// The time of the last entry.
    last: Timestamp,
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
        let seed = SeededRandom::new(seed).next_u64();
        let mut core = ShardCore::new(groups, log, seed, self.last);
        if core.groups.iter().all(|group| group.role.is_in_charge()) {
            core.resume_releases(orphans);
        }
        core.put_down_all();
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
struct StateReplay {
    /// By group number.
    groups: Vec<Group>,
    damages: Vec<Damage>,
    /// The latest time of an entry.
    last: Timestamp,
    /// Streams whose creation was lost, by group and hash of the path.
    unmade: HashMap<(GroupId, PathHash), StreamId>,
    /// The voters and learners of replicated groups, where checkpoints or entries have named them.
    configurations: HashMap<GroupId, Configuration>,
    /// Those with which each group began.
    first: Option<Configuration>,
    /// The cluster's own state, if there is such a group.
    meta: Option<Meta>,
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
            // Nothing that was applied is lost.
            K::UncommittedEntry | K::NoteMissing => Self::Bytes,
            K::EntryPayload | K::EntriesMissing => Self::State,
            K::CheckpointRow | K::CheckpointPayload => Self::State,
        }
    }
}

impl StateReplay {
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

    /// The group has replicas elsewhere: its state is what was applied so far.
    fn begin_copy(&mut self, log: &ShardLog, id: GroupId, membership: &Membership) {
        let configuration = self.configurations.remove(&id).unwrap_or_else(|| membership.first());
        let restored = self.group(id).state.applied();
        let copy = to_copy(log, (id, restored), configuration, (membership, &self.damages));
        pass_over_lost_end(self.group(id), log.applied_index(id));
        self.group(id).role = Role::Replicated(Box::new(copy));
    }

    /// A committed change of a group's voters. An impossible one changes nothing, as in life.
    fn change(&mut self, entry: &Entry<&[u8]>) -> Result<(), NewerVersion> {
        let newer = |_| NewerVersion::new(format_args!("a change of the voters"));
        let change = Change::decode(entry.command).map_err(newer)?;
        let first = self.first.clone().unwrap_or_default();
        let configuration = self.configurations.entry(entry.group).or_insert(first);
        if let Some(after) = configuration.after(&change) {
            *configuration = after;
        }
        Ok(())
    }

    /// A committed change of the cluster's own state.
    fn change_meta(&mut self, entry: &Entry<&[u8]>) -> Result<(), NewerVersion> {
        let newer = |_| NewerVersion::new(format_args!("a change of the cluster"));
        let command = MetaCommand::decode(entry.command).map_err(newer)?;
        let none = NewerVersion::new(format_args!("a change of the cluster, which has no state"));
        self.meta.as_mut().ok_or(none)?.apply(&command);
        Ok(())
    }

    /// Records that the state of `damage` is lost.
    fn lose(&mut self, group: GroupId, damage: &Damage) {
        if let (Some(subject), Some((entry, _))) = (subject_of(damage), damage.entries) {
            return self.lose_entry(group, subject, (damage.entry_kind, entry));
        }
        match (damage.stream, damage.path_hash, damage.entries) {
            (Some(stream), Some(path_hash), _) => {
                self.state(group).mark_damaged(stream, path_hash);
            }
            (_, _, Some((_, last))) => self.state(group).lose_up_to(last),
            (_, _, None) => self.state(group).lose_one(),
        }
    }

    /// Records that `entry`, of this kind and about `subject`, was lost.
    fn lose_entry(
        &mut self,
        group: GroupId,
        subject: Subject,
        (kind, entry): (Option<u8>, EntryIndex),
    ) {
        match subject {
            // An unpin that is remembered once more is sent once more.
            _ if kind == Some(CommandKind::UnpinDone as u8) => {}
            Subject::Path(path_hash) => self.unmake(group, made_by(entry), path_hash),
            Subject::Stream(stream) => self.state(group).lose(stream),
            Subject::Group => self.state(group).lose_unnamed(entry),
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
    fn repeats_lost(&self, entry: &Entry<&[u8]>) -> bool {
        if !is_creation(entry.kind) {
            return false;
        }
        let path_hash = PathHash::new(entry.subject.get());
        let lost = self.unmade.get(&(entry.group, path_hash));
        let state = &self.groups[usize::from(entry.group.get())].state;
        lost.is_some_and(|lost| state.damaged_at(path_hash) == Some(*lost))
    }
}

fn is_creation(kind: u8) -> bool {
    kind == CommandKind::Create as u8
}

/// What a newer version wrote, if that is why bytes do not decode.
fn newer(error: DecodeError) -> Option<NewerVersion> {
    error.newer.map(NewerVersion::new)
}

/// The stream that a creation logged as `entry` makes.
fn made_by(entry: EntryIndex) -> StreamId {
    StreamId::new(entry.get())
}

/// What a damaged entry was about, if its header tells.
fn subject_of(damage: &Damage) -> Option<Subject> {
    Some(Subject::of_entry(damage.entry_kind?, damage.subject?))
}

/// A damage in terms of streams.
fn with_subject(mut damage: Damage) -> Damage {
    let entry = damage.entries.map(|(first, _)| first);
    match (subject_of(&damage), entry) {
        (Some(Subject::Path(path_hash)), Some(entry)) => {
            (damage.stream, damage.path_hash) = (Some(made_by(entry)), Some(path_hash));
        }
        (Some(Subject::Stream(stream)), _) => damage.stream = Some(stream),
        (Some(Subject::Path(_) | Subject::Group) | None, _) => {}
    }
    damage
}

impl Replay for StateReplay {
    fn restore(
        &mut self,
        group: GroupId,
        applied: EntryIndex,
        header: &[u8],
        rows: &mut dyn Iterator<Item = CheckpointRow<'_>>,
    ) -> Result<(), NewerVersion> {
        let OwnerHeader { streams, cluster, meta } = OwnerHeader::decode(header)?;
        if let Some(part) = meta {
            self.meta = Some(decode_meta(part)?);
        }
        if let Some(part) = cluster {
            self.configurations.insert(group, decode_configuration(part)?);
        }
        let group = self.group(group);
        if let Err(error) = group.state.restore_header(applied, streams) {
            // Checksums have vouched for the bytes: what else does not decode is a defect of ours.
            return Err(newer(error).expect("an intact checkpoint header decodes"));
        }
        let _ = group.solo().durable(applied);
        for row in rows {
            if let Err(error) = group.state.restore_row(row.stream, row.bytes) {
                newer(error).map_or(Ok(()), Err)?;
                group.state.mark_damaged(row.stream, row.path_hash);
            }
        }
        Ok(())
    }

    fn apply(&mut self, entry: &Entry<&[u8]>) -> Result<Option<Placement>, NewerVersion> {
        let subject = Subject::of_entry(entry.kind, entry.subject);
        self.last = self.last.max(entry.at);
        let group = self.group(entry.group);
        if group.state.applied().next() < entry.index {
            group.skip_to(EntryIndex::new(entry.index.get() - 1));
        }
        if matches!(entry.kind, KIND_NOOP | KIND_CHANGE | KIND_META | KIND_CHECK) {
            group.skip_to(entry.index);
            match entry.kind {
                KIND_CHANGE => self.change(entry)?,
                KIND_META => self.change_meta(entry)?,
                _ => {}
            }
            return Ok(None);
        }
        let command = match Command::decode(entry.kind, entry.command) {
            Ok(command) => command,
            Err(error) => {
                newer(error).map_or(Ok(()), Err)?;
                group.skip_to(entry.index);
                self.lose_entry(entry.group, subject, (None, entry.index));
                return Ok(None);
            }
        };
        if self.repeats_lost(entry) {
            let group = self.group(entry.group);
            group.skip_to(entry.index);
            group.state.note_refused_creation(entry.index);
            return Ok(None);
        }
        let group = self.group(entry.group);
        let data_bytes = entry.data.len() as u64;
        let logged = LoggedCommand { subject, command, data_bytes };
        // What recovery finds is durable; the role says how much of it is committed.
        let committed = group.solo().durable(entry.index).entry(entry);
        let applied = group.apply(&committed, logged);
        if is_creation(entry.kind) && !matches!(applied.outcome, Outcome::Created(_)) {
            group.state.note_refused_creation(entry.index);
        }
        Ok(applied.placement)
    }

    fn damaged(&mut self, damage: &Damage) {
        let damage = with_subject(damage.clone());
        if let (Some(group), Loss::State) = (damage.group, Loss::of(damage.kind)) {
            self.lose(group, &damage);
        }
        self.damages.push(damage);
    }

    fn head(&mut self, key: StreamKey) -> Option<ByteOffset> {
        self.state(key.group).floor_or_lost(key.stream)
    }
}
