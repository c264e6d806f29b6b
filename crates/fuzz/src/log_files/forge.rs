//! The places of sealed headers in a file, and how to seal them again. Source: `docs/format`.

use super::owner::STORE;
use std::path::Path;

/// One sealed header or row of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) position: usize,
    pub(super) bytes: usize,
    /// What its checksum is seeded with.
    seed: Vec<u8>,
}

impl Sealed {
    fn new(position: usize, bytes: usize, seed: &[u64]) -> Self {
        let seed = seed.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self { position, bytes, seed }
    }

    /// Rows and entries are seeded with their number in four bytes besides.
    fn numbered(position: usize, bytes: usize, seed: &[u64], number: u32) -> Self {
        let mut sealed = Self::new(position, bytes, seed);
        sealed.seed.extend_from_slice(&number.to_le_bytes());
        sealed
    }

    /// Makes the checksum right.
    pub(super) fn seal(&self, file: &mut [u8]) {
        if let Some(header) = file.get_mut(self.position..self.position + self.bytes) {
            seal(header, &self.seed);
        }
    }
}

/// Writes the checksum of a header into its last four bytes.
pub(super) fn seal(header: &mut [u8], seed: &[u8]) {
    let end = header.len() - 4;
    let crc = crc32c::crc32c_append(crc32c::crc32c(seed), &header[..end]);
    header[end..].copy_from_slice(&crc.to_le_bytes());
}

fn u32_at(bytes: &[u8], position: usize) -> u32 {
    let found = bytes.get(position..position + 4).and_then(|found| found.try_into().ok());
    found.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], position: usize) -> u64 {
    u64::from(u32_at(bytes, position)) | u64::from(u32_at(bytes, position + 4)) << 32
}

/// All sealed headers of an intact file.
pub(super) fn sealed(path: &Path, file: &[u8]) -> Vec<Sealed> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("wal") => in_segment(file).into_iter().chain(lists(file)).collect(),
        Some("chunk") => in_chunk(file, STORE),
        Some("ckpt") => in_checkpoint(file),
        _ => Vec::new(),
    }
}

fn in_segment(file: &[u8]) -> Vec<Sealed> {
    let mut found = Vec::new();
    for position in (0..file.len()).step_by(4096) {
        if !file[position..].starts_with(b"ThBa") {
            continue;
        }
        found.push(Sealed::new(position, 64, &[STORE]));
        let place = [STORE, u64_at(file, position + 8), u64_at(file, position + 16)];
        for number in 0..u32_at(file, position + 44) {
            let at = position + 64 + 64 * number as usize;
            found.push(Sealed::numbered(at, 64, &place, number));
        }
    }
    found
}

/// The lists of the batches before.
fn lists(file: &[u8]) -> Vec<Sealed> {
    let batches = (0..file.len()).step_by(4096).filter(|at| file[*at..].starts_with(b"ThBa"));
    let list = |at: usize| {
        let headers = 64 * (1 + u32_at(file, at + 44) as usize);
        let bytes = u32_at(file, at + 48) as usize;
        let position = at + headers + u32_at(file, at + 40) as usize;
        let wal = u64::from(u32_at(file, at + 4) >> 16);
        (bytes > 0).then(|| Sealed::new(position, bytes, &[STORE, wal]))
    };
    batches.filter_map(list).collect()
}

/// Positions and lengths of the pages of a chunk, for each copy.
fn pages_of(chunk: &[u8]) -> [Vec<(usize, usize)>; 2] {
    let content_end = u64_at(chunk, 56) as usize;
    let row_page_bytes = (u32_at(chunk, 112) & 0xffff) as usize;
    let footer = chunk.len() - 128;
    let (starts, sizes) = if row_page_bytes < 4096 {
        let tail = content_end.next_multiple_of(64);
        ([128, tail], vec![row_page_bytes, footer - tail - row_page_bytes])
    } else {
        let tail = content_end.next_multiple_of(4096);
        let count = (footer - tail) / 4096 / 2;
        ([tail, tail + count * 4096], vec![4096; count])
    };
    starts.map(|start| {
        let mut at = start;
        let place = |&bytes: &usize| {
            at += bytes;
            (at - bytes, bytes)
        };
        sizes.iter().map(place).collect()
    })
}

fn in_chunk(file: &[u8], lineage: u64) -> Vec<Sealed> {
    let mut found = vec![Sealed::new(0, 128, &[lineage])];
    let origin = [8, 16, 24, 32].map(|at| u64_at(file, at));
    for copy in pages_of(file) {
        for (number, (position, bytes)) in (0..).zip(copy) {
            found.push(Sealed::numbered(position, bytes, &origin, number));
        }
    }
    found.push(Sealed::new(file.len() - 128, 128, &[lineage]));
    found
}

fn in_checkpoint(file: &[u8]) -> Vec<Sealed> {
    let mut found = vec![Sealed::new(0, 64, &[STORE])];
    let rows = 64 + u32_at(file, 32) as usize;
    for number in 0..u64_at(file, 16) as u32 {
        let at = rows + 40 * number as usize;
        found.push(Sealed::numbered(at, 40, &[STORE, u64_at(file, 8)], number));
    }
    found.push(Sealed::new(file.len() - 64, 64, &[STORE]));
    found
}

/// Makes the checksums of contents right: blocks of a chunk, payloads of a checkpoint, commands and
/// data of entries. `intact` is the file as it was.
pub(super) fn seal_contents(path: &Path, intact: &[u8], file: &mut [u8]) {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("wal") => seal_entries(intact, file),
        Some("chunk") => seal_blocks(intact, file),
        Some("ckpt") => seal_payloads(intact, file),
        _ => {}
    }
}

fn put_crc(file: &mut [u8], position: usize, covered: std::ops::Range<usize>) {
    let Some(crc) = file.get(covered).map(crc32c::crc32c) else { return };
    if let Some(place) = file.get_mut(position..position + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn seal_entries(intact: &[u8], file: &mut [u8]) {
    let mut batch = 0;
    for sealed in in_segment(intact) {
        if sealed.position.is_multiple_of(4096) {
            batch = sealed.position;
            continue;
        }
        let at = sealed.position;
        let command = batch.saturating_add(u32_at(file, at + 32) as usize);
        let data = command.saturating_add(u32_at(file, at + 36) as usize);
        let end = data.saturating_add(u32_at(file, at + 40) as usize);
        put_crc(file, at + 44, command..data);
        put_crc(file, at + 48, data..end);
        sealed.seal(file);
    }
    lists(intact).iter().for_each(|list| list.seal(file));
}

/// Makes the checksums of a chunk's headers and pages right.
pub(super) fn seal_pages(intact: &[u8], lineage: u64, file: &mut [u8]) {
    in_chunk(intact, lineage).iter().for_each(|sealed| sealed.seal(file));
}

fn seal_blocks(intact: &[u8], file: &mut [u8]) {
    let content_end = u64_at(intact, 56) as usize;
    let (rows, row_pages) = (u32_at(intact, 72) as usize, u32_at(intact, 76) as usize);
    let copies = pages_of(intact);
    let blocks = (16 * row_pages).next_multiple_of(32) + 32 * (rows * 10).div_ceil(256);
    for (number, start) in (4096..content_end).step_by(64 << 10).enumerate() {
        let at = blocks + 4 * number;
        for copy in &copies {
            let (page, _) = copy[row_pages + at / 4064];
            put_crc(file, page + 28 + at % 4064, start..content_end.min(start + (64 << 10)));
        }
    }
    in_chunk(intact, STORE).iter().for_each(|sealed| sealed.seal(file));
}

fn seal_payloads(intact: &[u8], file: &mut [u8]) {
    let all = in_checkpoint(intact);
    let rows: Vec<&Sealed> = all.iter().filter(|sealed| sealed.bytes == 40).collect();
    let payloads = rows.last().map_or(0, |row| row.position + row.bytes);
    for row in rows {
        let at = row.position;
        let start = payloads.saturating_add(u64_at(file, at + 16) as usize);
        put_crc(file, at + 28, start..start.saturating_add(u32_at(file, at + 24) as usize));
        row.seal(file);
    }
}
