//! One batch of a WAL at the start: its entries are applied, and what is lost of it is reported.

use super::{Rebuild, RebuiltWal};
use crate::damage::DamageKind;
use crate::directory::EntryPlace;
use crate::newer::NewerVersion;
use crate::wal::layout::{
    BatchList, BatchPlace, ENTRY_HEADER_BYTES, EntryHeader, WritePlace, entry_header_position,
};
use crate::wal::scan::{
    LiveBatch, WalName, entry_header, place_damage, read_batch, read_headless, read_list,
};
use crate::wal::segment::SegmentFile;
use std::io;
use std::sync::Arc;

/// A batch as it was read.
struct ReadBatch {
    bytes: Vec<u8>,
    /// No block of it was unreadable.
    is_read: bool,
    is_torn: bool,
    /// Where the second copies of its headers begin.
    copy: Option<u64>,
    entry_count: u32,
    /// Where it begins in its segment.
    position: u64,
    place: BatchPlace,
}

impl ReadBatch {
    fn read(file: &SegmentFile, store: u64, batch: &LiveBatch) -> io::Result<Self> {
        match batch {
            LiveBatch::Whole(found) => {
                let (bytes, is_read) = read_batch(file, found)?;
                let (header, position, is_torn) = (&found.header, found.position, found.is_torn);
                let (copy, entry_count) = (header.copy_position(), header.entry_count);
                let place = BatchPlace { store, segment: file.seq, seq: header.seq };
                Ok(Self { bytes, is_read, is_torn, copy, entry_count, position, place })
            }
            &LiveBatch::Headless { position, seq, .. } => {
                let place = BatchPlace { store, segment: file.seq, seq };
                let (bytes, entry_count) = read_headless(file, position, place)?;
                let (is_read, is_torn, copy) = (true, false, None);
                Ok(Self { bytes, is_read, is_torn, copy, entry_count, position, place })
            }
        }
    }

    /// Position of an entry's header in the segment.
    fn header_position(&self, number: u32) -> u64 {
        self.position + entry_header_position(number) as u64
    }

    /// What a newer version wrote where the header of an entry is.
    fn newer(&self, number: u32) -> Option<NewerVersion> {
        let header = self.bytes.get(entry_header_position(number)..)?.get(..ENTRY_HEADER_BYTES)?;
        EntryHeader::newer_in(header, self.place, number)
    }
}

impl Rebuild<'_> {
    pub(super) fn replay_batch(
        &mut self,
        (wal, batch_number): (usize, usize),
        batch: &LiveBatch,
    ) -> io::Result<()> {
        let segment = batch.segment();
        let file = Arc::clone(&self.wals[wal].files[segment]);
        let known_count = self.report.damage_count;
        let batch = ReadBatch::read(&file, self.store.id, batch)?;
        self.report.wal_bytes_read += batch.bytes.len() as u64;
        let mut listed = None;
        for number in 0..batch.entry_count {
            let found = entry_header((&batch.bytes, batch.copy), batch.place, number);
            if let Some(header) = found {
                if header.is_repaired && !batch.is_torn {
                    let position = batch.header_position(number);
                    self.damaged(&place_damage(DamageKind::HeaderRepaired, &file, position));
                }
                self.replay_found((wal, segment), &batch, (number, &header.value))?;
                continue;
            }
            let position = batch.header_position(number);
            if let Some(newer) = batch.newer(number) {
                return Err(newer.at(&file.path, position).into());
            }
            let list = match listed {
                Some(list) => list,
                None => self.read_list_of(wal, batch_number)?,
            };
            match list.as_ref().and_then(|list| list.entry(number)) {
                Some(header) => self.lose_listed((wal, segment), batch.position, header),
                None => self.damaged(&place_damage(DamageKind::EntryHeader, &file, position)),
            }
            listed = Some(list);
        }
        // Chunks and checkpoints have what was in it; the operator hears of the disk all the same.
        if !batch.is_read && self.report.damage_count == known_count {
            self.damaged(&place_damage(DamageKind::UnreadableBlock, &file, batch.position));
        }
        Ok(())
    }

    /// Applies an entry with a whole header, if it counts.
    fn replay_found(
        &mut self,
        (wal, segment): (usize, usize),
        batch: &ReadBatch,
        (number, header): (u32, &EntryHeader),
    ) -> io::Result<()> {
        if header.group >= self.store.options.group_total() {
            return Ok(());
        }
        let position = batch.position;
        let file = Arc::clone(&self.wals[wal].files[segment]);
        let slot = self.wals[wal].first_slot + segment as u16;
        let written = EntryPlace::on_disk(WritePlace { slot, position }, number);
        if header.is_note() || self.is_left_out(&file, position, (header, written), &batch.bytes) {
            return Ok(());
        }
        self.note_last((wal, segment), header);
        match header.payload(&batch.bytes) {
            Some(payload) => self.replay_entry((slot, position), &file, header, payload),
            None => {
                self.lose_entry(&file, position, header);
                Ok(())
            }
        }
    }

    fn note_last(&mut self, (wal, segment): (usize, usize), header: &EntryHeader) {
        let last = &mut self.wals[wal].last[segment][usize::from(header.group)];
        *last = header.index.max(*last);
    }

    /// What the batch behind a live one has of it.
    fn read_list_of(&self, wal: usize, batch: usize) -> io::Result<Option<BatchList>> {
        let RebuiltWal { wal, scanned, files, .. } = &self.wals[wal];
        let name = WalName { store: self.store.id, wal: *wal };
        scanned.claimer(batch).map_or(Ok(None), |claimer| read_list(name, files, claimer))
    }

    /// Loses an entry of which only the list is left.
    fn lose_listed(&mut self, (wal, segment): (usize, usize), position: u64, header: &EntryHeader) {
        if header.group < self.store.options.group_total() {
            self.note_last((wal, segment), header);
            let file = Arc::clone(&self.wals[wal].files[segment]);
            self.lose_entry(&file, position, header);
        }
    }
}
