//! One run: clients and faults for a while, then healing, then the audit.

use crate::{
    clients::{
        Auditor, Contender, Forker, Guest, Hoarder, Keeper, Manner, Mortal, Owner, Pipeliner,
        Reader, Writer,
    },
    dice::Dice,
    fault::{End, FaultKind},
    oracle::{Rule, Shape, Violation},
    plan::{ACCESS, Plan},
    world::{Act, World},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Simulated time in which everything must come to rest once nothing fails any more.
const REST_US: u64 = 600_000_000;

/// Then what faults have left on the disk is removed.
const AFTER_FAULTS_US: u64 = 10_000_000;

/// What a run that broke no promise has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Names everything that happened.
    pub trace_hash: u64,
    /// Appends that were acknowledged.
    pub acked_count: u64,
    /// Operations of shared streams for which an order was found.
    pub ordered_count: usize,
    /// Bytes that readers compared.
    pub compared_bytes: u64,
    /// Starts of the process.
    pub starts: u64,
    /// Simulated time in microseconds.
    pub simulated_us: u64,
    /// Steps of the scheduler.
    pub steps: u64,
    /// Places on disk that were damaged.
    pub flips: u64,
    /// Streams that answered so.
    pub damaged_count: usize,
}

/// A run that broke a promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What was run.
    pub plan: Plan,
    /// What was broken.
    pub violation: Violation,
    /// When, in simulated microseconds.
    pub at_us: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.plan.faults.iter().map(|fault| fault.name()).collect();
        writeln!(f, "seed {} broke a promise: {}", self.plan.seed, self.violation)?;
        writeln!(f, "  after {} ms, faults: {}", self.at_us / 1000, names.join(" "))?;
        write!(f, "  again: cargo xtask sim --seed {}", self.plan.seed)?;
        let drawn = Plan::of_seed(self.plan.seed);
        if drawn.seconds != self.plan.seconds {
            write!(f, " --seconds {}", self.plan.seconds)?;
        }
        if drawn.http2_percent != self.plan.http2_percent {
            write!(f, " --http2-percent {}", self.plan.http2_percent)?;
        }
        if drawn.has_access != self.plan.has_access {
            write!(f, " --access {}", self.plan.has_access)?;
        }
        if drawn.faults != self.plan.faults {
            let names = if names.is_empty() { "none".into() } else { names.join(",") };
            write!(f, " --faults {names}")?;
        }
        Ok(())
    }
}

/// Carries a plan out.
///
/// # Errors
/// The first broken promise; a panic of the program counts as one.
pub fn run(plan: &Plan) -> Result<Report, Box<Failure>> {
    let mut world = World::new(plan.clone());
    let result = catch_unwind(AssertUnwindSafe(|| execute(&mut world)));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        world.oracle.broken(Rule::Panic, text);
        // No other violation came first: a run ends at its first one.
    }
    match world.oracle.take_violation() {
        Some(violation) => {
            Err(Box::new(Failure { plan: plan.clone(), violation, at_us: world.clock.now_us }))
        }
        None => Ok(Report {
            trace_hash: world.trace_hash(),
            acked_count: world.oracle.acked_count,
            ordered_count: world.ordered_count,
            compared_bytes: world.oracle.compared_bytes,
            starts: world.starts,
            simulated_us: world.clock.now_us,
            steps: world.steps,
            flips: world.flips,
            damaged_count: world.oracle.damaged.len(),
        }),
    }
}

fn execute(world: &mut World) {
    let mut dice = world.setup_dice();
    if world.plan.mutant == Some(crate::mutant::Mutant::LyingSync) {
        world.disk.lie_about_syncs();
    }
    populate(world, &mut dice);
    populate_small_disk(world);
    populate_kept(world);
    populate_guests(world);
    world.at(0, Act::Start);
    world.begin_faults();
    let until = world.clock.now_us + world.plan.seconds * 1_000_000;
    world.run_until(until);
    heal(world, &mut dice);
    world.run_until(world.clock.now_us + REST_US);
    check_rest(world, "the clients");
    world.add_client(Box::new(Auditor::new()));
    world.run_until(world.clock.now_us + REST_US);
    check_rest(world, "the audit");
    world.oracle.audit();
    world.ordered_count = world.oracle.check_histories();
    world.check_hoarded();
}

fn check_rest(world: &mut World, who: &str) {
    if world.oracle.violation().is_none() && !world.all_done() {
        let detail = format!("{who} did not come to rest: {:?}", world.undone());
        world.oracle.broken(Rule::Bounds, detail);
    }
}

fn heal(world: &mut World, dice: &mut Dice) {
    if world.oracle.violation().is_some() {
        return;
    }
    world.is_ending = true;
    world.well_since_us = Some(world.clock.now_us);
    world.sick_until_us = world.sick_until_us.min(world.clock.now_us + AFTER_FAULTS_US);
    world.give_room();
    world.disk.fail_nothing();
    world.slow_until_us = 0;
    world.tears_commit = false;
    world.cuts_work = false;
    let is_poisoned = world.process.as_ref().is_some_and(|process| process.is_poisoned());
    if dice.percent(50) || is_poisoned {
        world.end_process(End::Kill);
    }
}

fn populate(world: &mut World, dice: &mut Dice) {
    let shapes = [Shape::Text, Shape::Binary, Shape::Json];
    for number in 0..dice.between(2, 6) {
        let shape = *dice.pick(&shapes);
        let stream = world.oracle.add_stream(&format!("shared/{number}"), shape);
        for (place, manner) in manners(dice, number).into_iter().enumerate() {
            let closes = dice.percent(25);
            let left = dice.between(20, 400);
            let writer = Writer::new(stream, manner, place == 0, (left, closes));
            world.add_client(Box::new(writer));
        }
        for _ in 0..dice.between(1, 4) {
            world.add_client(Box::new(Reader::new(stream, dice.percent(25))));
        }
    }
    for number in 0..dice.between(0, 3) {
        let shape = *dice.pick(&shapes);
        let lives = dice.between(1, 12);
        world.add_client(Box::new(Owner::new(format!("own/{number}"), shape, lives)));
    }
    for number in 0..dice.between(0, 3) {
        let ttl = dice.percent(75).then(|| dice.between(2, 30));
        let expires_in = dice.between(3, 40);
        world.add_client(Box::new(Mortal::new(format!("mortal/{number}"), ttl, expires_in)));
    }
    for number in 0..dice.between(0, 3) {
        let left = dice.between(1, 12);
        world.add_client(Box::new(Forker::new(format!("fork/{number}"), left)));
    }
    for number in 0..dice.between(0, 2) {
        let shape = *dice.pick(&shapes);
        let packets = dice.between(5, 80);
        world.add_client(Box::new(Pipeliner::new(format!("pipe/{number}"), shape, packets)));
    }
}

/// So many writers want to be the next one, in some seeds.
const CROWD: u64 = 64;

/// Streams whose beginning goes away, and streams whose writers wait for a state.
fn populate_kept(world: &mut World) {
    let mut dice = world.later_dice.split();
    let shapes = [Shape::Text, Shape::Binary, Shape::Json];
    for number in 0..dice.between(0, 2) {
        let (shape, left) = (*dice.pick(&shapes), dice.between(20, 300));
        world.add_client(Box::new(Keeper::new(format!("keep/{number}"), shape, left)));
    }
    for number in 0..dice.below(2) {
        let stream = world.oracle.add_stream(&format!("contended/{number}"), *dice.pick(&shapes));
        for place in 0..dice.between(2, 6) {
            let left = dice.between(5, 60);
            world.add_client(Box::new(Contender::new(stream, place == 0, left)));
        }
    }
    if dice.percent(10) {
        let stream = world.oracle.add_stream("contended/crowd", *dice.pick(&shapes));
        for place in 0..CROWD {
            let left = dice.between(1, 8);
            world.add_client(Box::new(Contender::new(stream, place == 0, left)));
        }
    }
}

/// Clients with few rights.
fn populate_guests(world: &mut World) {
    if !world.plan.has_access {
        return;
    }
    world.begin_reloads();
    let mut dice = Dice::new(world.plan.seed ^ ACCESS).split();
    for name in 0..dice.between(1, 3) {
        world.add_client(Box::new(Guest::new(name, dice.between(50, 400))));
    }
}

/// A small disk is filled and emptied.
fn populate_small_disk(world: &mut World) {
    if !world.has_fault(FaultKind::SmallDisk) {
        return;
    }
    for name in 0..world.later_dice.between(2, 5) {
        let dice = &mut world.later_dice;
        let (streams, bytes) = (dice.between(1, 12), dice.between(30_000, 80_000));
        let hoarder = Hoarder::new(name, (streams, bytes), dice.between(1, 2));
        world.add_client(Box::new(hoarder));
    }
}

fn manners(dice: &mut Dice, stream: u64) -> Vec<Manner> {
    let mut manners = vec![Manner::Plain];
    if dice.percent(50) {
        manners.push(Manner::Conditional { next: 1 });
    }
    for number in 0..dice.below(3) {
        let id = format!("p{stream}-{number}");
        manners.push(Manner::Idempotent { id, epoch: dice.below(3), seq: 0 });
    }
    manners
}
