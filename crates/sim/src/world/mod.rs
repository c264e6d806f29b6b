//! The scheduler: one queue of everything that will happen, and the hands that do it.

mod bounds;
mod calls;
mod disk;
mod formats;
mod frames;
mod reload;
mod stop;
mod turn_cost;
mod wires;

use crate::{
    clients::{Client, Cut},
    clock::SimClock,
    dice::Dice,
    fault::{EVICTED_TICKS_PERCENT, FaultKind, job_delay_us},
    mutant::Mutant,
    oracle::{Oracle, Rule},
    passing::Passing,
    plan::{FRAMES, Plan, log_options, read_cache_bytes_max, recent_bytes_max},
    plane::{Job, Mail, Outbox, Piece, PlaneOptions, session_options, slice_limits},
    process::Process,
    rules::rules,
    trace::Trace,
    witnesses::Block,
};
use calls::Call;
use env::{DiskOperation, MemoryDisk};
use formats::FlippedFormats;
use log::{LogOptions, OpenError};
use model::ShardId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use turn_cost::{TurnBegun, TurnWork};
use wires::WireEnd;

/// How often a shard's clockwork runs.
const TICK_US: u64 = 100_000;

/// Entries of one shard that may wait for the disk: what the clients can have sent, and what the
/// node adds by itself.
const IN_FLIGHT_MAX: u64 = 2_000;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Act {
    Wake(usize),
    /// A client gives up.
    GiveUp {
        call: u32,
    },
    /// Nobody listened.
    Refused {
        call: u32,
    },
    /// A client of HTTP/2 takes answers again that it has left.
    TakeFrames {
        wire: u32,
    },
    /// Bytes reach a client.
    Hear {
        wire: u32,
        bytes: Vec<u8>,
        ends: bool,
        damage: bool,
    },
    /// Mail reaches a shard.
    Deliver {
        life: u64,
        shard: usize,
        mail: Box<Mail>,
    },
    Turn {
        life: u64,
        shard: usize,
    },
    /// A thread finishes a job.
    Run {
        life: u64,
        job: u64,
    },
    Tick {
        life: u64,
    },
    Stop,
    /// A shard of a process that stops has finished, or will soon.
    Close {
        life: u64,
        shard: usize,
    },
    Start,
    DiskHasRoom,
    /// Its operations fail no more.
    DiskWorks,
    Strike,
    /// The access file changes.
    Reload,
    /// Everything is quiet: stop, damage the disk, start.
    Hit(FaultKind),
}

#[derive(Debug)]
struct Seat {
    client: Box<dyn Client>,
    is_done: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) clock: SimClock,
    pub(crate) disk: MemoryDisk,
    /// Blocks of WALs that faults have changed.
    pub(crate) lost_blocks: BTreeSet<Block>,
    /// Segments that cannot be opened, and how often a process had started before.
    pub(crate) closed_segments: Vec<(PathBuf, u64)>,
    pub(crate) fault_dice: Dice,
    /// Choices of the faults that came later.
    pub(crate) later_dice: Dice,
    pub(crate) oracle: Oracle,
    pub(crate) process: Option<Process>,
    pub(crate) slow_until_us: u64,
    /// Until here files may take room that nobody needs.
    pub(crate) sick_until_us: u64,
    /// When the last fault ended; `None` while there are some.
    pub(crate) well_since_us: Option<u64>,
    /// What the disk has when nothing else fills it, if there is a limit.
    pub(crate) room_bytes: Option<u64>,
    pub(crate) backward_jumps: u64,
    pub(crate) flipped_formats: FlippedFormats,
    pub(crate) flips: u64,
    /// Most changes of the disk that one job made.
    pub(crate) job_changes_max: u64,
    /// Changes of the disk that the last start made.
    pub(crate) start_changes: u64,
    pub(crate) is_ending: bool,
    /// The power goes in the middle of the next commit.
    pub(crate) tears_commit: bool,
    /// The process or the power goes in the next work on files.
    pub(crate) cuts_work: bool,
    pub(crate) starts: u64,
    pub(crate) steps: u64,
    pub(crate) ordered_count: usize,
    dice: Dice,
    /// Choices of HTTP/2.
    frames_dice: Dice,
    client_dice: Dice,
    passing: Passing,
    options: LogOptions,
    plane: PlaneOptions,
    queue: BTreeMap<(u64, u64), Act>,
    queued: u64,
    life: u64,
    seats: Vec<Seat>,
    calls: BTreeMap<u32, Call>,
    call_next: u32,
    wires: BTreeMap<u32, WireEnd>,
    wire_next: u32,
    job_next: u64,
    /// No client begins anything before this.
    pub(crate) quiet_until_us: u64,
    poisoned_since_us: Option<u64>,
    /// Files removed so far when no job was under way, last.
    removed_before_jobs: u64,
    trace: Trace,
}

/// Parts the moments of reloads from the other choices of a seed.
const RELOADS: u64 = 0x7265_6c6f;

/// Parts the choice of slices from the others of a seed.
const SLICES: u64 = 0x0051_1ce5;

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut dice = Dice::new(plan.seed);
        let is_small = plan.faults.contains(&FaultKind::SmallDisk);
        let options = LogOptions {
            recent_bytes_max: recent_bytes_max(plan.seed),
            read_cache_bytes_max: read_cache_bytes_max(plan.seed),
            ..log_options(&mut dice)
        };
        let options = disk::options(is_small, options);
        let shard_count = u16::try_from(dice.between(1, 3)).expect("16 bits");
        let mut sessions = session_options(&mut dice);
        // Of its own, so that it moves no other choice of a seed.
        let slices = slice_limits(&mut Dice::new(plan.seed ^ SLICES), &mut sessions);
        let trace = Trace::new(plan.verbose);
        let mut later_dice = Dice::new(plan.seed ^ 0x726f_6f6d);
        let (disk, room_bytes) = disk::new(plan.seed, is_small, &mut later_dice);
        let is_open = !plan.has_access || plan.mutant == Some(Mutant::OpenDoor);
        let access = (!is_open).then(|| rules(plan.mutant, true, None));
        let mut plane = PlaneOptions { shard_count, sessions, slices, access, mutant: plan.mutant };
        let mut frames_dice = Dice::new(plan.seed ^ FRAMES).split();
        plane.sessions.http2_streams_max = *frames_dice.pick(&[1, 3, 256, 256]);
        if plan.faults.contains(&FaultKind::TornSector) {
            disk.shear_sectors();
        }
        Self {
            clock: SimClock::new(),
            disk,
            lost_blocks: BTreeSet::new(),
            closed_segments: Vec::new(),
            fault_dice: dice.split(),
            client_dice: dice.split(),
            oracle: Oracle::new(options.group_count),
            process: None,
            slow_until_us: 0,
            sick_until_us: 0,
            well_since_us: None,
            room_bytes,
            later_dice,
            backward_jumps: 0,
            flipped_formats: FlippedFormats::default(),
            flips: 0,
            job_changes_max: 0,
            start_changes: 0,
            is_ending: false,
            tears_commit: false,
            cuts_work: false,
            starts: 0,
            steps: 0,
            ordered_count: 0,
            dice,
            frames_dice,
            passing: Passing::new(Dice::new(plan.seed ^ RELOADS)),
            options,
            plane,
            queue: BTreeMap::new(),
            queued: 0,
            life: 0,
            seats: Vec::new(),
            calls: BTreeMap::new(),
            call_next: 0,
            wires: BTreeMap::new(),
            wire_next: 0,
            job_next: 0,
            quiet_until_us: 0,
            poisoned_since_us: None,
            removed_before_jobs: 0,
            trace,
            plan,
        }
    }

    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.clock.now_us, what);
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    pub(crate) fn at(&mut self, at_us: u64, act: Act) {
        self.queued += 1;
        self.queue.insert((at_us.max(self.clock.now_us), self.queued), act);
    }

    pub(crate) fn after(&mut self, us: u64, act: Act) {
        self.at(self.clock.now_us + us, act);
    }

    pub(crate) fn setup_dice(&mut self) -> Dice {
        self.dice.split()
    }

    pub(crate) fn add_client(&mut self, client: Box<dyn Client>) {
        self.seats.push(Seat { client, is_done: false });
        let seat = self.seats.len() - 1;
        let wait = self.dice.below(500_000);
        self.after(wait, Act::Wake(seat));
    }

    pub(crate) fn all_done(&self) -> bool {
        self.seats.iter().all(|seat| seat.is_done)
    }

    /// Clients that are not done yet, and the state of the shards, for the report.
    pub(crate) fn undone(&self) -> Vec<String> {
        let undone = self.seats.iter().filter(|seat| !seat.is_done);
        let clients = undone.map(|seat| format!("{:.160}", format!("{:?}", seat.client)));
        let shards = self.process.iter().flat_map(Process::open_shards);
        let shards = shards.map(|shard| {
            let (core, log) = (shard.core.stats(), shard.core.log().stats());
            format!("{:?} {core:?} {log:?}", shard.core.disk_trouble())
        });
        clients.chain(shards).collect()
    }

    /// Does everything up to `until_us`, or until a promise is broken or all clients are done.
    pub(crate) fn run_until(&mut self, until_us: u64) {
        self.run_while(until_us, |world| !world.all_done());
    }

    /// Does everything up to `until_us`, or until a promise is broken.
    fn pass_until(&mut self, until_us: u64) {
        self.run_while(until_us, |_| true);
    }

    fn run_while(&mut self, until_us: u64, is_running: impl Fn(&Self) -> bool) {
        while self.oracle.violation().is_none() && is_running(self) {
            let Some(entry) = self.queue.first_entry() else { break };
            let (at_us, _) = *entry.key();
            if at_us > until_us {
                break;
            }
            let act = entry.remove();
            self.clock.now_us = at_us;
            self.steps += 1;
            self.act(act);
        }
        self.clock.now_us = self.clock.now_us.max(until_us.min(self.clock.now_us + 1));
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Wake(seat) => self.wake(seat),
            Act::GiveUp { call } => self.give_up(call),
            Act::Refused { call } => self.finish(call, Cut::No, false),
            Act::TakeFrames { wire } => self.take_frames(wire),
            Act::Hear { wire, bytes, ends, damage } => self.hear(wire, bytes, ends, damage),
            Act::Deliver { life, shard, mail } => self.deliver(life, shard, *mail),
            Act::Turn { life, shard } => self.turn(life, shard),
            Act::Run { life, job } => self.run_job(life, job),
            Act::Tick { life } => self.tick(life),
            Act::Stop => self.begin_stop(),
            Act::Close { life, shard } => self.close_shard(life, shard),
            Act::Start => self.start(),
            Act::DiskHasRoom => self.give_room(),
            Act::DiskWorks => self.disk.fail_nothing(),
            Act::Strike => {
                if !self.is_ending {
                    let wait_ms = self.strike();
                    self.after(wait_ms * 1000, Act::Strike);
                }
            }
            Act::Reload => self.reload(),
            Act::Hit(kind) => self.hit(kind),
        }
    }

    pub(crate) fn begin_faults(&mut self) {
        let wait = self.dice.between(1_000_000, 8_000_000);
        self.after(wait, Act::Strike);
    }

    // The process.

    fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        if self.has_fault(FaultKind::Reshard) && self.dice.percent(50) {
            let count = u16::try_from(self.dice.between(1, 4)).expect("16 bits");
            // More shards need more room for deletes than a full disk has kept.
            let is_refused = self.has_fault(FaultKind::SmallDisk) && count > self.plane.shard_count;
            self.plane.shard_count = if is_refused { self.plane.shard_count } else { count };
        }
        if !self.is_ending {
            self.may_die_in_recovery();
        }
        self.disk.fail_nothing();
        if self.has_fault(FaultKind::FailedRead) && self.fault_dice.percent(30) {
            let skip = self.fault_dice.below(60);
            self.disk.fail(DiskOperation::Read, skip, 1);
        }
        self.perhaps_fail_start();
        self.perhaps_open_segments();
        self.life += 1;
        self.starts += 1;
        let start = (self.clock.stamp(), self.plane.clone(), self.life);
        let changes = self.disk.change_count();
        let opened = Process::start(&self.disk, &mut self.dice, self.options.clone(), start);
        match opened {
            Ok(process) => {
                self.start_changes = self.disk.change_count() - changes;
                self.started(process);
            }
            Err(error) => self.not_started(&error),
        }
    }

    fn started(&mut self, mut process: Process) {
        self.disk.power_off_after(None);
        if self.has_fault(FaultKind::FailedStart) {
            self.disk.fail_nothing();
        }
        self.poisoned_since_us = None;
        let report = &process.report;
        let damages: Vec<String> = process.damages.iter().map(ToString::to_string).collect();
        let line = format!(
            "life {} with {} shards: {} replayed, {} checkpoints, {} torn, damages {damages:?}",
            process.life,
            process.shards.len(),
            report.entries_replayed,
            report.checkpoints_restored,
            report.torn_tails.len(),
        );
        if report.entries_replayed == 0 && report.checkpoints_restored == 0 {
            self.clock.believe();
        }
        self.note(format_args!("{line}"));
        self.check_formats(&mut process.damages);
        if !process.damages.is_empty() && !self.oracle.damage_possible {
            let detail = format!("damage without a fault that made it: {damages:?}");
            self.oracle.broken(Rule::Damage, detail);
        }
        for damage in &process.damages {
            self.oracle.hit_groups.insert(damage.group.map(model::GroupId::get));
        }
        let life = process.life;
        self.process = Some(process);
        self.after(TICK_US, Act::Tick { life });
        self.may_stop_soon();
    }

    fn not_started(&mut self, error: &OpenError) {
        self.note(format_args!("open failed: {error}"));
        match error {
            OpenError::FormatDamaged { .. } if self.restore_formats() => {}
            OpenError::Io { .. } if self.disk.is_off() || self.may_fail_syncs() => {
                self.settle_after_recovery();
            }
            error => self.oracle.broken(Rule::Refused, format!("open failed: {error}")),
        }
        let wait = self.dice.between(1_000, 3_000_000);
        self.after(wait, Act::Start);
    }

    fn deliver(&mut self, life: u64, shard: usize, mail: Mail) {
        let Some(process) = self.process.as_mut().filter(|process| process.life == life) else {
            return;
        };
        process.inboxes[shard].push(mail);
        if !std::mem::replace(&mut process.turn_is_due[shard], true) {
            let busy_until_us = process.busy_until_us[shard];
            let wait = self.dice.delay_us(30);
            self.at((self.clock.now_us + wait).max(busy_until_us), Act::Turn { life, shard });
        }
    }

    fn turn(&mut self, life: u64, shard: usize) {
        let now = self.clock.stamp();
        let Some(process) = self.process.as_mut().filter(|process| process.life == life) else {
            return;
        };
        process.turn_is_due[shard] = false;
        let mail = std::mem::take(&mut process.inboxes[shard]);
        // What comes for a closed shard is read by nobody.
        let Some(open) = &mut process.shards[shard] else { return };
        let begun = TurnBegun { mails: mail.len(), work: TurnWork::so_far(&self.disk, open) };
        let out = open.turn(now, mail);
        let stats = open.core.stats();
        let work = TurnWork::so_far(&self.disk, open);
        let cost_us = begun.cost_us(&work, &out);
        let (wires, open_wires) = (open.wire_count(), self.open_wires(shard));
        self.spend_turn(shard, cost_us, begun.mails);
        self.send_out(life, shard, out);
        // Clients that have gone may linger for a moment.
        if wires > open_wires + 2 * self.seats.len() {
            let detail = format!("{wires} connections, of which clients have {open_wires}");
            self.oracle.broken(Rule::Bounds, detail);
        }
        if stats.in_flight_count > IN_FLIGHT_MAX {
            let detail = format!("{} entries in flight", stats.in_flight_count);
            self.oracle.broken(Rule::Bounds, detail);
        }
    }

    fn send_out(&mut self, life: u64, shard: usize, out: Outbox) {
        for (to, mail) in out.mails {
            self.mail(life, shard, to, mail);
        }
        for job in out.jobs {
            self.begin_job(life, shard, job);
        }
        for piece in out.answers {
            let Some(end) = self.wires.get_mut(&piece.wire) else { continue };
            let delay = self.dice.delay_us(500);
            let at = (self.clock.now_us + delay).max(end.hears_at);
            end.hears_at = at;
            let Piece { wire, bytes, ends, by_damage: damage } = piece;
            self.at(at, Act::Hear { wire, bytes, ends, damage });
        }
        for wire in out.stalled {
            self.stall(wire);
        }
        if out.is_behind {
            self.deliver(life, shard, Mail::Again);
        }
    }

    /// Messages of a pair of shards arrive in their order.
    fn mail(&mut self, life: u64, from: usize, to: ShardId, mail: Mail) {
        let delay = self.dice.delay_us(50);
        let process = self.process.as_mut().expect("a turn is under way");
        let pair = (u16::try_from(from).expect("16 bits"), to.get());
        let arrival = process.arrivals.entry(pair).or_default();
        *arrival = (*arrival).max(self.clock.now_us + delay);
        let at = *arrival;
        let mail = Box::new(mail);
        self.at(at, Act::Deliver { life, shard: usize::from(to.get()), mail });
    }

    fn begin_job(&mut self, life: u64, shard: usize, job: Job) {
        self.job_next += 1;
        let number = self.job_next;
        let is_slow = self.clock.now_us < self.slow_until_us;
        let delay = job_delay_us(&mut self.dice, is_slow);
        let is_stalled =
            self.plan.mutant == Some(Mutant::StalledSync) && matches!(job, Job::Sync(_));
        let process = self.process.as_mut().expect("a turn is under way");
        process.jobs.insert(number, (shard, job));
        if !is_stalled {
            self.after(delay, Act::Run { life, job: number });
        }
    }

    fn run_job(&mut self, life: u64, number: u64) {
        let Some(process) = self.process.as_mut().filter(|process| process.life == life) else {
            return;
        };
        if self.cuts_work && matches!(process.jobs[&number].1, Job::Work(_)) {
            return self.end_damaged();
        }
        let (shard, job) = process.jobs.remove(&number).expect("a job runs once");
        let changes = self.disk.change_count();
        let mail = match job {
            Job::Sync(job) if self.tears_commit => return self.end_in_commit(job),
            Job::Sync(job) => Mail::Synced(job.run()),
            Job::Work(job) => Mail::Worked(job.run()),
            Job::Check(job) => Mail::Checked(Box::new(job.run())),
            Job::Read(job) => Mail::ReadDone(Box::new(job.run())),
        };
        let made = self.disk.change_count() - changes;
        self.job_changes_max = self.job_changes_max.max(made);
        let wait = self.dice.delay_us(60);
        self.after(wait, Act::Deliver { life, shard, mail: Box::new(mail) });
    }

    fn tick(&mut self, life: u64) {
        let Some(process) = self.process.as_ref().filter(|process| process.life == life) else {
            return;
        };
        process.open_shards().for_each(|shard| shard.core.log().check_all());
        let (count, is_poisoned) = (process.shards.len(), process.is_poisoned());
        for shard in 0..count {
            self.deliver(life, shard, Mail::Tick);
        }
        self.after(TICK_US, Act::Tick { life });
        self.perhaps_evict(EVICTED_TICKS_PERCENT);
        self.check_bounds();
        let since = *self.poisoned_since_us.get_or_insert(self.clock.now_us);
        if !is_poisoned {
            self.poisoned_since_us = None;
        } else if self.clock.now_us - since > 3_000_000 {
            // Somebody looks at the disk and restarts the server.
            let power = self.fault_dice.percent(50) && self.has_fault(FaultKind::PowerLoss);
            let end = if power { crate::fault::End::PowerLoss } else { crate::fault::End::Kill };
            self.end_process(end);
        }
    }
}
