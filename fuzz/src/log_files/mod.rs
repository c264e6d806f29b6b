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
mod owner;

pub use flip::{run as flip, seeds as flip_seeds};

use directory::{Base, shards};
use edits::apply_edits;
use owner::Owner;

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

/// Input: base and shards (1), whether to seal (1), the bytes of `FORMAT`.
pub fn format(data: &[u8]) {
    let Some((&flags, rest)) = data.split_first() else { return };
    let Some((&seals, bytes)) = rest.split_first() else { return };
    let base = Base::of(flags);
    let mut bytes = bytes.to_vec();
    if seals & 1 != 0 && bytes.len() >= 32 {
        forge::seal(&mut bytes[..32], &[]);
    }
    let is_same = base.format() == bytes.get(..32).unwrap_or_default();
    let disk = base.disk(|path, original| {
        let is_format = path.ends_with("FORMAT");
        if is_format { bytes.clone() } else { original.to_vec() }
    });
    let opened = Owner::open(&disk, shards(flags));
    assert!(opened.is_ok() || !is_same, "an intact FORMAT opens: {:?}", opened.err());
    if let Ok(mut owner) = opened {
        owner.read_everything();
    }
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
    seeds
}

/// `FORMAT` as it is, of another version and of another size.
#[must_use]
pub fn format_seeds() -> Vec<Vec<u8>> {
    let format = Base::of(0).format().to_vec();
    let mut newer = format.clone();
    newer[8] = 2;
    let mut groups = format.clone();
    groups[10] = 9;
    let files =
        [&format[..], &newer, &groups, &format[..20], b"", &[&format[..], b"more"].concat()];
    let seeds = files.iter().map(|bytes| [&[0, 1], *bytes].concat());
    seeds.chain([[&[1, 0], &format[..]].concat()]).collect()
}
