//! Damage: what an input does to files.

use super::directory::{Base, disk_of};
use super::forge::{seal_contents, sealed};
use crate::input::Input;
use env::MemoryDisk;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Number of kinds of edits.
pub(super) const OPS: u8 = 10;
/// The kind that changes a header and seals it again.
pub(super) const FORGE: u8 = 0;

const EDITS_MAX: usize = 12;
/// No edit makes a file longer than this.
const FILE_BYTES_MAX: usize = 128 << 10;

/// The base's files after the edits of an input.
///
/// An edit: kind (1), file (1), place (2), finer place (1), bytes (a length byte and as many bytes).
pub(super) fn apply_edits(base: &Base, extension: &str, edits: &[u8]) -> MemoryDisk {
    let mut files = base.files.clone();
    let mut input = Input::new(edits);
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        let edit = Edit {
            op: input.byte() % OPS,
            file: input.byte(),
            place: input.short(),
            fine: input.byte(),
            bytes: input.piece(),
        };
        edit.apply(base, extension, &mut files);
    }
    disk_of(files.into_iter())
}

#[derive(Debug)]
struct Edit<'a> {
    op: u8,
    file: u8,
    place: u16,
    fine: u8,
    bytes: &'a [u8],
}

impl Edit<'_> {
    fn apply(&self, base: &Base, extension: &str, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
        let is_kind = |path: &&PathBuf| path.extension().is_some_and(|found| found == extension);
        let paths: Vec<PathBuf> = files.keys().filter(is_kind).cloned().collect();
        let Some(path) = paths.get(usize::from(self.file) % paths.len().max(1)) else { return };
        let intact = base.files.get(path).map_or(&[][..], Vec::as_slice);
        let file = files.get_mut(path).expect("it is listed");
        match self.op {
            FORGE => self.forge(path, intact, file),
            1 => self.overwrite(self.position(file), file),
            2 => self.overwrite(self.position_from_end(file), file),
            3 => self.resize(file),
            4 => self.move_block(file),
            5 => self.clear(file),
            6 if !intact.is_empty() => seal_contents(path, intact, file),
            6 => {}
            7 => {
                files.remove(path);
            }
            8 => {
                // The same bytes under another number.
                let mut number = [0; 8];
                let count = self.bytes.len().min(8);
                number[..count].copy_from_slice(&self.bytes[..count]);
                let name = format!("{:016x}.{extension}", u64::from_le_bytes(number));
                let bytes = file.clone();
                files.insert(path.with_file_name(name), bytes);
            }
            _ => {
                // The bytes of one file under the name of another.
                let other = &paths[usize::from(self.fine) % paths.len()];
                let bytes = file.clone();
                files.insert(other.clone(), bytes);
            }
        }
    }

    fn position(&self, file: &[u8]) -> usize {
        (usize::from(self.place) << 4 | usize::from(self.fine & 15)) % file.len().max(1)
    }

    fn position_from_end(&self, file: &[u8]) -> usize {
        file.len().saturating_sub(1 + usize::from(self.place) % file.len().max(1))
    }

    fn overwrite(&self, position: usize, file: &mut [u8]) {
        let room = &mut file[position..];
        let count = self.bytes.len().min(room.len());
        room[..count].copy_from_slice(&self.bytes[..count]);
    }

    /// Changes fields of a header and makes its checksum right again.
    fn forge(&self, path: &Path, intact: &[u8], file: &mut [u8]) {
        if intact.len() != file.len() || intact.is_empty() {
            return;
        }
        let all = sealed(path, intact);
        let Some(header) = all.get(usize::from(self.place) % all.len().max(1)) else { return };
        let field = usize::from(self.fine) % (header.bytes - 4);
        let count = self.bytes.len().min(header.bytes - 4 - field);
        let at = header.position + field;
        file[at..at + count].copy_from_slice(&self.bytes[..count]);
        header.seal(file);
    }

    fn resize(&self, file: &mut Vec<u8>) {
        let length = usize::from(self.place) << (self.fine % 3);
        file.resize(length.min(FILE_BYTES_MAX), self.fine);
    }

    fn move_block(&self, file: &mut [u8]) {
        let blocks = file.len() / 4096;
        if blocks > 1 {
            let from = usize::from(self.place) % blocks * 4096;
            let to = usize::from(self.fine) % blocks * 4096;
            file.copy_within(from..from + 4096, to);
        }
    }

    fn clear(&self, file: &mut [u8]) {
        let start = self.position(file);
        let end = file.len().min(start + (usize::from(self.fine) + 1) * 64);
        file[start..end].fill(0);
    }
}
