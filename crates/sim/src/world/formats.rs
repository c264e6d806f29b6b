//! What the copies of `FORMAT` have suffered, and what a start must say about it.

use super::World;
use crate::oracle::Rule;
use log::{Damage, DamageKind};
use std::{collections::BTreeSet, path::PathBuf};

/// Bits of `FORMAT` and `FORMAT.copy` that were flipped, and not put right since.
#[derive(Debug, Default)]
pub(crate) struct FlippedFormats {
    bits: Vec<(PathBuf, u64)>,
}

impl FlippedFormats {
    pub(crate) fn add(&mut self, path: PathBuf, bit: u64) {
        self.bits.push((path, bit));
    }

    /// The copies that are not intact. A bit that was flipped twice is as it was.
    fn hit(&self) -> BTreeSet<&PathBuf> {
        let is_odd =
            |one: &&(PathBuf, u64)| self.bits.iter().filter(|bit| bit == one).count() % 2 == 1;
        self.bits.iter().filter(is_odd).map(|(path, _)| path).collect()
    }
}

impl World {
    /// Takes the reports on `FORMAT` out of `damages`: each copy that was hit is named, and no other.
    pub(super) fn check_formats(&mut self, damages: &mut Vec<Damage>) {
        let is_copy = |damage: &mut Damage| damage.kind == DamageKind::FormatCopy;
        let told: Vec<Damage> = damages.extract_if(.., is_copy).collect();
        let told: BTreeSet<&PathBuf> = told.iter().map(|damage| &damage.file).collect();
        let hit = self.flipped_formats.hit();
        if told != hit || hit.len() > 1 {
            let detail = format!("copies of FORMAT are hit: {hit:?}; reported: {told:?}");
            self.oracle.broken(Rule::Damage, detail);
        }
    }

    /// The operator restores `FORMAT` if both copies are hit; whether they are.
    pub(super) fn restore_formats(&mut self) -> bool {
        if self.flipped_formats.hit().len() < 2 {
            return false;
        }
        for (path, bit) in std::mem::take(&mut self.flipped_formats).bits {
            self.disk.flip_bit(&path, bit);
        }
        true
    }
}
