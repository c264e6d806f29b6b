//! Opens the chunks of a group when a process begins.
//!
//! # How
//! Headers and indexes are read here. Rows are read once, later, when it is known which streams live. Only where a
//! chunk has older ones beside it that it replaces, its rows are read here, too: these go only if it is whole.
//!
//! # Invariants
//! - Nothing is removed but what a crash has left: half-written chunks, and chunks that a whole one replaces.

use crate::chunk::file::{ChunkFile, OpenedChunk, PageDamage};
use crate::chunk::set::ChunkSet;
use crate::chunk::writer::{parse_chunk_name, remove_half_written};
use crate::damage::{Damage, DamageKind};
use crate::open_error::{OpenError, at};
use crate::paths::{chunk_dir, has_removed_unneeded};
use crate::snapshot::Parts;
use crate::store::Store;
use model::GroupId;
use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The chunks of a group, and what is damaged of them apart from rows.
#[derive(Debug)]
pub(crate) struct FoundChunks {
    pub(crate) set: ChunkSet,
    pub(crate) damages: Vec<Damage>,
    /// Files that a newer chunk replaces, and that could not be removed.
    pub(crate) left: Vec<PathBuf>,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Looked {
    kept: Vec<Kept>,
    damages: Vec<Damage>,
    left: Vec<PathBuf>,
}

/// A chunk that stays.
#[derive(Debug)]
struct Kept {
    chunk: ChunkFile,
    /// Whether all its rows can be read, once somebody has asked.
    is_whole: OnceCell<bool>,
}

impl Kept {
    /// Whether it replaces an older chunk.
    fn replaces(&self, older: &ChunkFile) -> io::Result<bool> {
        let (newer, older) = (&self.chunk.header, &older.header);
        // Data re-sealed from the WAL for a damaged chunk covers no new entry.
        let covers = newer.from <= older.from && older.to <= newer.to && older.from < older.to;
        Ok(covers && self.is_whole()?)
    }

    fn is_whole(&self) -> io::Result<bool> {
        if let Some(is_whole) = self.is_whole.get() {
            return Ok(*is_whole);
        }
        let damages = self.chunk.check_rows(|_| ())?;
        let is_whole = damages.iter().all(|(kind, _)| *kind != DamageKind::ChunkRow);
        Ok(*self.is_whole.get_or_init(|| is_whole))
    }
}

/// Opens a group's chunks, newest first, and removes those that a newer one replaces.
///
/// # Errors
/// [`OpenError::Io`]; damage is no error.
pub(crate) fn open_chunks(
    store: &Store,
    group: GroupId,
    parts: Parts,
) -> Result<FoundChunks, OpenError> {
    let dir = chunk_dir(&store.root, group.get());
    let disk = &*store.disk;
    let mut names = disk.list(&dir).map_err(at(&dir))?;
    if store.has_synced_names {
        remove_half_written(disk, &dir, &names).map_err(at(&dir))?;
        if parts.settle(disk, &dir, &names).map_err(at(&dir))? {
            names = disk.list(&dir).map_err(at(&dir))?;
        }
    }
    let is_chunk = |name: &String| parse_chunk_name(name).or_else(|| parts.number_in(name));
    let mut seqs: Vec<(u64, &String)> =
        names.iter().filter_map(|name| Some((is_chunk(name)?, name))).collect();
    seqs.sort_unstable();
    let mut found = Looked::default();
    for &(seq, name) in seqs.iter().rev() {
        let path = dir.join(name);
        open_next((store, group), (&path, seq), &mut found).map_err(at(&path))?;
    }
    let Looked { kept, damages, left } = found;
    let taken = names.iter().filter_map(|name| Parts::number_taken_by(name));
    let last = taken.chain(seqs.last().map(|(seq, _)| *seq)).max();
    let mut set = ChunkSet::new(last.map_or(1, |last| last + 1));
    // A chunk that cannot be read stays in its file, and no merge goes across it.
    let unreadable = damages.iter().filter(|damage| damage.kind == DamageKind::ChunkHeader);
    set.held.unreadable = unreadable.map(|damage| damage.file.clone()).collect();
    kept.into_iter().for_each(|kept| set.add(Arc::new(kept.chunk), 0));
    Ok(FoundChunks { set, damages, left })
}

fn open_next(
    (store, group): (&Store, GroupId),
    (path, seq): (&Path, u64),
    looked: &mut Looked,
) -> io::Result<()> {
    let opened = ChunkFile::open(&store.chunk_cache, (path, seq), store.lineage)?;
    let (chunk, repaired) = match opened {
        OpenedChunk::Chunk { chunk, repaired } => (chunk, repaired),
        OpenedChunk::Newer(place) => return Err(place.into()),
        OpenedChunk::Unreadable => {
            looked.damages.push(chunk_damage(group, path, (DamageKind::ChunkHeader, 0)));
            return Ok(());
        }
    };
    for newer in &looked.kept {
        if newer.replaces(&chunk)? {
            // The name of the newer one may be gone after a power loss.
            if !store.has_synced_names || !has_removed_unneeded(&*store.disk, path)? {
                looked.left.push(path.to_owned());
            }
            return Ok(());
        }
    }
    let mut found = chunk.check_index()?;
    found.extend(repaired.map(|at| (DamageKind::HeaderRepaired, at)));
    looked.damages.extend(found.into_iter().map(|damage| chunk_damage(group, path, damage)));
    looked.kept.push(Kept { chunk: *chunk, is_whole: OnceCell::new() });
    Ok(())
}

/// A damage of a part of a chunk.
pub(crate) fn chunk_damage(group: GroupId, path: &Path, (kind, position): PageDamage) -> Damage {
    Damage { group: Some(group), ..Damage::at(kind, path, position) }
}
