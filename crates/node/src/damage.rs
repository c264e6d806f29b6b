//! The damage that a shard has met: what is reported, and what reads must know.

use crate::{Failure, ReadDamage, group::Groups};
use model::{GroupId, StreamKey};
use std::collections::{BTreeSet, HashSet};

/// Damaged places and streams that are remembered, each.
const KNOWN_PLACES_MAX: usize = 4096;

/// Damage of one shard.
#[derive(Debug, Default)]
pub(crate) struct DamageBook {
    /// Damage that background work met and nobody has asked for yet.
    pub(crate) damages: Vec<log::Damage>,
    /// The same of reads, and every place that they have met so far.
    read_damages: Vec<ReadDamage>,
    known_places: HashSet<(String, u64)>,
    damaged_streams: HashSet<StreamKey>,
    /// Groups that damage was met in since the last look: copies of them take part in nothing any more.
    hurt_groups: BTreeSet<GroupId>,
}

impl DamageBook {
    /// Remembers damage that a read met.
    pub(crate) fn note_failure(&mut self, key: StreamKey, failure: &Failure) {
        let Failure::Damaged { file, position } = failure else { return };
        self.hurt_groups.insert(key.group);
        self.note_damaged(key);
        if self.note_place(file, *position) {
            let damage = ReadDamage { key, file: file.clone(), position: *position };
            self.read_damages.push(damage);
        }
    }

    /// Remembers damage that background work met, of a group or of who knows which.
    pub(crate) fn note_met(&mut self, damages: Vec<log::Damage>, groups: &Groups) {
        for damage in &damages {
            let all = groups.iter().map(|group| group.state.group());
            self.hurt_groups.extend(all.filter(|id| damage.group.is_none_or(|of| of == *id)));
        }
        self.damages.extend(damages);
    }

    /// Groups that damage was met in since the last call.
    pub(crate) fn take_hurt_groups(&mut self) -> BTreeSet<GroupId> {
        std::mem::take(&mut self.hurt_groups)
    }

    /// Remembers what recovery found damaged and has reported.
    pub(crate) fn note_reported(&mut self, damages: &[log::Damage]) {
        for damage in damages {
            self.note_place(&damage.file.display().to_string(), damage.position);
            if let (Some(group), Some(stream)) = (damage.group, damage.stream) {
                self.note_damaged(StreamKey { group, stream });
            }
        }
    }

    /// Remembers a damaged place; `true` if it is new.
    fn note_place(&mut self, file: &str, position: u64) -> bool {
        let known = &mut self.known_places;
        known.len() < KNOWN_PLACES_MAX && known.insert((file.to_owned(), position))
    }

    /// Remembers that bytes of a stream are damaged.
    fn note_damaged(&mut self, key: StreamKey) {
        if self.damaged_streams.len() < KNOWN_PLACES_MAX {
            self.damaged_streams.insert(key);
        }
    }

    /// Whether bytes of a stream are known to be damaged.
    pub(crate) fn has_damage(&self, key: StreamKey) -> bool {
        self.damaged_streams.contains(&key)
    }

    /// Damage that reads have met since the last call; each place comes once.
    pub(crate) fn take_read_damages(&mut self) -> Vec<ReadDamage> {
        std::mem::take(&mut self.read_damages)
    }

    /// Asserts the bounds, and that each damage to be reported is at a known place.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self) {
        assert!(self.known_places.len() <= KNOWN_PLACES_MAX, "too many places are remembered");
        assert!(self.damaged_streams.len() <= KNOWN_PLACES_MAX, "too many streams are remembered");
        for ReadDamage { key, file, position } in &self.read_damages {
            let is_known = self.known_places.contains(&(file.clone(), *position));
            assert!(is_known, "damage of {key:?} would be reported again");
        }
    }
}
