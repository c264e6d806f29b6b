//! The log's files: whatever they contain, opening and reading them gives an answer.
//!
//! # How
//! A small data directory with several segments, chunks and checkpoints is written once
//! ([`directory`]). Each input copies it, damages files of one kind ([`edits`]), opens it, reads every
//! stream, writes on, closes and opens again. Damage by itself nearly always meets a checksum
//! first. So an edit may also *forge*: it changes fields of a header and seals the header again, like
//! damage that the checksum misses. That is how the code behind the checksums gets its hostile numbers.
//!
//! # What must hold
//! - No panic, and no allocation far beyond the directory's size (the fuzzer's limit).
//! - One flipped bit ([`flip()`]): see `docs/format`; what it may cost is checked to the byte.

mod directory;
mod edits;
mod flip;
mod forge;
mod image;
mod owner;

pub use flip::{run as flip, seeds as flip_seeds};
pub use image::{run as image, seeds as image_seeds};

use directory::{Base, shards};
use edits::apply_edits;
use owner::Owner;

/// Length of `FORMAT`, and of that of version 1.
const FORMAT_BYTES: usize = 64;
const OLD_FORMAT_BYTES: usize = 32;

/// Input: base and shards (1), then edits of segments of the write-ahead log.
pub fn wal(data: &[u8]) {
    run_on("wal", data);
}

/// Input: base and shards (1), then edits of chunks.
pub fn chunk(data: &[u8]) {
    run_on("chunk", data);
}

/// Input: base and shards (1), then edits of checkpoints.
pub fn checkpoint(data: &[u8]) {
    run_on("ckpt", data);
}

/// Input: base and shards (1), flags (1), length of `FORMAT` (1), its bytes, those of `FORMAT.copy`.
///
/// Flags: seal `FORMAT` (1), seal the copy (2), leave `FORMAT` as it is (4), leave the copy (8).
pub fn format(data: &[u8]) {
    let [base, flags, length, rest @ ..] = data else { return };
    let (shard_count, base) = (shards(*base), Base::of(*base));
    let (format, copy) = rest.split_at(usize::from(*length).min(rest.len()));
    let of = |bytes: &[u8], seals: u8, keeps: u8| {
        let mut bytes = if flags & keeps != 0 { base.format() } else { bytes }.to_vec();
        if flags & seals != 0 && bytes.len() >= FORMAT_BYTES {
            forge::seal(&mut bytes[..FORMAT_BYTES], &[]);
        }
        bytes
    };
    let (format, copy) = (of(format, 1, 4), of(copy, 2, 8));
    let disk = base.disk(|path, original| match path.file_name().and_then(|name| name.to_str()) {
        Some("FORMAT") => format.clone(),
        Some("FORMAT.copy") => copy.clone(),
        _ => original.to_vec(),
    });
    let opened = Owner::open(&disk, shard_count);
    let files = [format, copy];
    let originals =
        files.iter().filter(|file| file.get(..FORMAT_BYTES) == Some(base.format())).count();
    let has_other = files.iter().any(|file| says_another(file, base.format()));
    assert!(opened.is_ok() || originals == 0 || has_other, "it opens: {:?}", opened.err());
    assert!(opened.is_err() || originals == 0 || !has_other, "two stories were believed");
    if let Ok(mut owner) = opened {
        owner.read_everything();
    }
}

/// Whether a copy of `FORMAT` is intact, by its checksum, and is not the original.
fn says_another(file: &[u8], original: &[u8]) -> bool {
    if !file.starts_with(b"THALWEG\n") {
        return false;
    }
    let is_sealed = |length: usize| {
        file.get(..length).is_some_and(|copy| {
            let mut sealed = copy.to_vec();
            forge::seal(&mut sealed, &[]);
            sealed == copy && copy != original
        })
    };
    // Version 1 has 32 bytes; later ones have 64.
    let may_be_old =
        file.get(8..10).is_some_and(|version| u16::from_le_bytes([version[0], version[1]]) < 2);
    is_sealed(FORMAT_BYTES) || may_be_old && is_sealed(OLD_FORMAT_BYTES)
}

fn run_on(extension: &str, data: &[u8]) {
    let Some((&flags, edits)) = data.split_first() else { return };
    let base = Base::of(flags);
    let disk = apply_edits(base, extension, edits);
    for shard_count in [shards(flags), 1] {
        let Ok(mut owner) = Owner::open(&disk, shard_count) else { return };
        owner.read_everything();
        owner.write_on();
        owner.work();
        owner.read_everything();
        owner.close();
    }
}

/// Edits of every kind, for any kind of file.
#[must_use]
pub fn edit_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1], vec![2], vec![0x41]];
    for op in 0..edits::OPS {
        seeds.push([&[1, op, 0, 40, 0, 0, 8], &[0xff; 8][..]].concat());
        seeds.push(vec![2, op, 1, 3, 16, 0, 1, 1, op, 0, 8, 1, 0, 2, 0, 0]);
    }
    // Forged: fields of the first headers are large, then small.
    for header in 0..2 {
        for field in (0..60).step_by(8) {
            let large = [0xff; 8];
            seeds.push([&[0, edits::FORGE, 0, header, 0, field, 8], &large[..]].concat());
            seeds.push([&[1, edits::FORGE, 0, header, 0, field, 4], &large[..4]].concat());
            seeds.push(vec![1, edits::FORGE, 0, header, 0, field, 4, 1, 0, 0, 0]);
        }
    }
    // Of the directory with a replicated group.
    seeds.extend([vec![3], vec![0x43]]);
    for op in 0..edits::OPS {
        seeds.push([&[3, op, 0, 60, 0, 0, 8], &[0xff; 8][..]].concat());
    }
    for (header, field) in (0..4).flat_map(|header| (0..60).step_by(8).map(move |at| (header, at)))
    {
        seeds.push(vec![3, edits::FORGE, 0, header * 2, 0, field, 4, 1, 0, 0, 0]);
    }
    seeds
}

/// `FORMAT` as it is, of another version and of another size; one copy hit, then the other, then both.
#[must_use]
pub fn format_seeds() -> Vec<Vec<u8>> {
    let format = Base::of(0).format().to_vec();
    let changed = |at: usize, value: u8| {
        let mut bytes = format.clone();
        bytes[at] = value;
        bytes
    };
    let long = [&format[..], b"more"].concat();
    let files = [format.clone(), changed(8, 3), changed(8, 1), changed(10, 9), changed(20, 1)];
    let files = files.into_iter().chain([changed(21, 1), format[..20].to_vec(), Vec::new(), long]);
    let pairs = files.flat_map(|one| [0, 3, 7, 11].map(|flags| (one.clone(), flags)));
    pairs.map(|(one, flags)| [&[0, flags, one.len() as u8][..], &one, &one].concat()).collect()
}
