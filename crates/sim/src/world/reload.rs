//! The access file changes while the server runs.

use super::{Act, World};
use crate::{mutant::Mutant, plane::Mail, rules::rules};

impl World {
    /// Has the file change from now on.
    pub(crate) fn begin_reloads(&mut self) {
        let wait = self.passing.dice.between(500_000, 10_000_000);
        self.after(wait, Act::Reload);
    }

    /// The file has changed: each shard hears of it, and so does the next process.
    pub(super) fn reload(&mut self) {
        let before = self.plane.access.clone().filter(|_| !self.is_ending);
        let Some(before) = before else { return };
        let has_passing = self.passing.change(self.clock.now_us);
        let access = rules(self.plan.mutant, has_passing, Some(&before));
        self.plane.access = Some(access.clone());
        let is_heard = self.plan.mutant != Some(Mutant::DeafToReloads);
        if let Some(process) = self.process.as_ref().filter(|_| is_heard) {
            let (life, count) = (process.life, process.shards.len());
            for shard in 0..count {
                let wait = self.passing.dice.delay_us(500);
                let mail = Box::new(Mail::Access(access.clone()));
                self.after(wait, Act::Deliver { life, shard, mail });
            }
        }
        self.begin_reloads();
    }
}
