//! One life of the program: from its start to its end by a fault.

use crate::{
    clock::JUMP_MS_MAX,
    dice::Dice,
    mutant::Mutant,
    plane::{Job, Mail, PlaneOptions, Shard},
    sick_disk::SickDisk,
};
use env::{Disk, MemoryDisk};
use log::{LogOptions, OpenError};
use node::{ShardCore, Stamp};
use session::Admission;
use std::{collections::BTreeMap, path::Path, sync::Arc};

const DIR: &str = "/data";

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) life: u64,
    /// None once a shard is closed.
    pub(crate) shards: Vec<Option<Shard>>,
    /// It ends in order, and takes no new connections.
    pub(crate) is_stopping: bool,
    pub(crate) inboxes: Vec<Vec<Mail>>,
    pub(crate) turn_is_due: Vec<bool>,
    /// Until when each shard's last turn lasts.
    pub(crate) busy_until_us: Vec<u64>,
    pub(crate) admission: Arc<Admission>,
    /// When the last message of each pair of shards arrives: the next does not overtake it.
    pub(crate) arrivals: BTreeMap<(u16, u16), u64>,
    /// Jobs that threads have taken and not finished.
    pub(crate) jobs: BTreeMap<u64, (usize, Job)>,
    pub(crate) report: log::RecoveryReport,
    pub(crate) damages: Vec<log::Damage>,
}

/// A shard that does not believe every clock.
fn believing(mut core: ShardCore, plane: &PlaneOptions) -> ShardCore {
    if plane.mutant != Some(Mutant::Gullible) {
        core.set_clock_jump_ms_max(JUMP_MS_MAX);
    }
    core
}

impl Process {
    /// Recovers the data directory.
    pub(crate) fn start(
        disk: &MemoryDisk,
        dice: &mut Dice,
        options: LogOptions,
        (now, plane, life): (Stamp, PlaneOptions, u64),
    ) -> Result<Self, OpenError> {
        let below = disk.clone();
        let disk: Arc<dyn Disk> = match plane.mutant.filter(|mutant| mutant.is_of_disk()) {
            Some(mutant) => Arc::new(SickDisk::new(below, mutant)),
            None => Arc::new(below),
        };
        let options = match plane.mutant {
            Some(Mutant::EndlessMemory) => LogOptions { recent_bytes_max: 8 << 20, ..options },
            _ => options,
        };
        let opened = node::open(disk, dice, Path::new(DIR), options, plane.shard_count)?;
        let admission = Arc::new(Admission::default());
        let start = |core| {
            let own = (Arc::clone(&admission), dice.split());
            Some(Shard::new(believing(core, &plane), now, plane.clone(), own))
        };
        let shards: Vec<Option<Shard>> = opened.shards.into_iter().map(start).collect();
        Ok(Self {
            life,
            inboxes: shards.iter().map(|_| Vec::new()).collect(),
            turn_is_due: vec![false; shards.len()],
            busy_until_us: vec![0; shards.len()],
            admission,
            shards,
            is_stopping: false,
            arrivals: BTreeMap::new(),
            jobs: BTreeMap::new(),
            report: opened.report,
            damages: opened.damages,
        })
    }

    pub(crate) fn open_shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().flatten()
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.open_shards().any(|shard| shard.core.poison().is_some())
    }
}
