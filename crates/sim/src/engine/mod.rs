//! The embedded engine from one seed: real `engine` and `log` on a simulated disk, in one thread.
//!
//! # What
//! A run is some lives of one directory. In each life a caller appends, commits cursors, trims and
//! reads, and a driver does what the engine's threads would do, in any order. A life ends in order,
//! by a kill, or by power loss at any change of the disk; openings are interrupted, too. Syncs fail
//! and the disk fills up.
//!
//! # What must hold
//! - Ids are contiguous; batches are whole; what is read is what was written.
//! - After each opening the engine holds what was done up to some moment, over all streams together.
//! - Nothing acknowledged is behind that moment: after power loss, nothing that was also synced.
//! - No damage is reported, because none was done.
//!
//! # Map
//! `scene`: what a run consists of; `life`: what happens between two openings; `model`: what must be there; `mutant`: defects that
//! these rules must find out.

mod life;
mod model;
mod mutant;
mod scene;

pub use mutant::EngineMutant;
pub use scene::EnginePlan;

use crate::dice::Dice;
use ::engine::{Driver, Durability, Engine, OpenError, Options};
use env::Disk;
use life::{End, Life};
use model::{Act, Model};
use scene::Scene;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    time::Duration,
};

const DIR: &str = "/engine";

/// Changes of the disk within which an interrupted opening loses its power.
const OPENING_CHANGES_MAX: u64 = 60;

/// Openings in a row that power loss may interrupt.
const INTERRUPTIONS_MAX: u64 = 3;

/// What a run that broke no promise has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineReport {
    /// Names everything that happened.
    pub trace_hash: u64,
    /// Acts that were acknowledged.
    pub acked_count: u64,
    /// Openings that were completed.
    pub lives: u64,
}

/// A run that broke a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFailure {
    /// What was run.
    pub plan: EnginePlan,
    /// What was broken.
    pub detail: String,
}

impl fmt::Display for EngineFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, detail } = self;
        writeln!(f, "the engine with seed {} broke a promise: {detail}", plan.seed)?;
        write!(f, "  again: cargo xtask sim --engine --seed {}", plan.seed)
    }
}

/// Carries a plan out.
///
/// # Errors
/// The first broken promise; a panic counts as one.
pub fn run_engine(plan: EnginePlan) -> Result<EngineReport, Box<EngineFailure>> {
    let mut world = EngineWorld::new(plan);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        Err(format!("panic: {text}"))
    });
    match result {
        Ok(()) => Ok(EngineReport {
            trace_hash: world.scene.trace_hash(),
            acked_count: world.acked_count,
            lives: world.lives,
        }),
        Err(detail) => Err(Box::new(EngineFailure { plan, detail })),
    }
}

#[derive(Debug)]
struct EngineWorld {
    scene: Scene,
    options: Options,
    acked_count: u64,
    lives: u64,
}

/// Sizes that make a few hundred acts go through every kind of file.
fn draw_options(dice: &mut Dice) -> Options {
    let segment_bytes = *dice.pick(&[64 << 10, 128 << 10]);
    Options {
        durability: Durability::Each,
        segment_bytes,
        wal_bytes_max: segment_bytes * dice.between(4, 8),
        seal_bytes: *dice.pick(&[4 << 10, 16 << 10, 64 << 10]),
        wait_ms_max: 500,
    }
}

impl EngineWorld {
    fn new(plan: EnginePlan) -> Self {
        let mut scene = Scene::new(plan);
        Self { options: draw_options(&mut scene.dice), scene, acked_count: 0, lives: 0 }
    }

    fn run(&mut self) -> Result<(), String> {
        let mut model = Model::default();
        let mut left = None;
        for _ in 0..self.scene.dice.between(3, 8) {
            let (engine, driver, was_cut) = self.open()?;
            if let Some((life, end)) = left.take() {
                model = self.check_opening(life, end, was_cut, &engine)?;
            }
            self.lives += 1;
            let mut life = Life::new(model.clone(), engine.durability());
            let end = life.live(&mut self.scene, (engine, driver))?;
            self.acked_count += life.acked as u64;
            left = Some((life, end));
        }
        Ok(())
    }

    fn try_open(&mut self) -> Result<(Engine, Driver), OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(self.scene.disk.clone());
        let disk = self.scene.plan.mutant.map_or(Arc::clone(&disk), |mutant| mutant.disk(disk));
        let (clock, options) = (Arc::clone(&self.scene.clock), self.options.clone());
        Engine::open_driven(disk, clock, &mut self.scene.dice, Path::new(DIR), options)
    }

    /// Opens the engine, after some openings that power loss interrupts; whether there was one.
    fn open(&mut self) -> Result<(Engine, Driver, bool), String> {
        let modes =
            [Durability::Each, Durability::None, Durability::Periodic(Duration::from_millis(1))];
        let mut was_cut = false;
        let interruptions = if self.scene.dice.percent(30) {
            self.scene.dice.between(1, INTERRUPTIONS_MAX)
        } else {
            0
        };
        for _ in 0..interruptions {
            self.options.durability = *self.scene.dice.pick(&modes);
            self.scene.disk.power_off_after(self.scene.dice.below(OPENING_CHANGES_MAX));
            let opened = self.try_open();
            // Now the power is off, if it was not before: what stops the engine writes nothing.
            self.scene.disk.power_off_after(0);
            drop(opened);
            self.scene.disk.crash(&mut self.scene.dice);
            was_cut = true;
        }
        self.options.durability = *self.scene.dice.pick(&modes);
        let opened = self.try_open().map_err(|error| format!("it does not open: {error}"))?;
        let (durability, tails) =
            (self.options.durability, model::STREAMS.map(|s| opened.0.tail(s)));
        self.scene.note(format_args!("opened with {durability:?}, tails {tails:?}"));
        if !opened.0.damages().is_empty() {
            return Err(format!("damage that nothing did: {:?}", opened.0.damages()));
        }
        Ok((opened.0, opened.1, was_cut))
    }

    /// Finds the moment of the last life that the engine holds now; the model of it.
    fn check_opening(
        &mut self,
        life: Life,
        end: End,
        was_cut: bool,
        engine: &Engine,
    ) -> Result<Model, String> {
        let certain = if end == End::Power || was_cut { life.durable } else { life.acked };
        let mut model = life.base;
        let mut found = model.matches(engine).then(|| (0, model.clone()));
        for (number, act) in (1..).zip(&life.acts) {
            model.apply(act);
            if model.matches(engine) {
                found = Some((number, model.clone()));
            }
        }
        let tails = model::STREAMS.map(|stream| engine.ends(stream));
        let Some((moment, mut model)) = found else {
            return Err(format!("after {end:?} the engine holds no moment of its life: {tails:?}"));
        };
        let (acts, lost) = (life.acts.len(), certain.saturating_sub(moment));
        if lost > 0 {
            return Err(format!(
                "after {end:?}, {lost} of {certain} certain acts of {acts} are lost"
            ));
        }
        self.scene
            .note(format_args!("after {end:?}: act {moment} of {acts}, {certain} were certain"));
        let mut begun = life.refused;
        begun.extend(life.acts.get(moment).map(Act::stream));
        let problem = model.check_streams(&engine.streams(), &begun);
        match problem.or_else(|| model.differs(engine)) {
            Some(problem) => Err(format!("after {end:?}: {problem}")),
            None => Ok(model),
        }
    }
}
