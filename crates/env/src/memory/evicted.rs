//! Pages that the kernel takes for clean although a failed sync has not written them.
//!
//! They are read as they were written until they are evicted, and then as they are on the device. Source: Rebello et
//! al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.

use crate::random::Random;
use std::collections::BTreeSet;
use std::ops::Range;

/// Sectors of a file that were not written by the sync that should have, and not again since.
#[derive(Debug, Default)]
pub(super) struct LostWrites(BTreeSet<usize>);

impl LostWrites {
    pub(super) fn add(&mut self, sectors: BTreeSet<usize>) {
        self.0.extend(sectors);
    }

    pub(super) fn written(&mut self, sectors: Range<usize>) {
        self.0.retain(|sector| !sectors.contains(sector));
    }

    /// Half of them are old again in what is read of the file.
    pub(super) fn evict(
        &mut self,
        (current, durable): (&mut [u8], &[u8]),
        sector_bytes: usize,
        random: &mut dyn Random,
    ) {
        for sector in std::mem::take(&mut self.0) {
            if random.next_u64() & 1 == 0 {
                self.0.insert(sector);
                continue;
            }
            let start = (sector * sector_bytes).min(current.len());
            let end = (start + sector_bytes).min(current.len());
            for (at, byte) in (start..end).zip(&mut current[start..end]) {
                *byte = durable.get(at).copied().unwrap_or(0);
            }
        }
    }
}
