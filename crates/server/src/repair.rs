//! `thalweg repair`: shows what stored data has lost, and accepts it where an operator says so.
//!
//! # Why
//! A damaged chunk file is left as it is, and keeps its room: no program may decide that its bytes are worth
//! nothing. The operator can, having seen which streams lack which bytes.
//!
//! # How
//! The data directory is opened as a start opens it, so its lock keeps a running server out, and this command
//! out of a running server's data. Then all chunk files are read. Without `--accept-loss` nothing else changes.

use crate::plane::{self, StartError};
use crate::preflight::{self, Refusal};
use crate::settings::Settings;
use env::RealDisk;
use log::{ChunkLoss, DataDir, LostPart};
use node::{Losses, Opened, ShardCore, StreamLoss};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::io;
use std::path::PathBuf;

/// Ranges that are shown of one stream.
const RANGES_SHOWN: usize = 10;

/// Parts that are shown of one file.
const PARTS_SHOWN: usize = 20;

/// Why the data could not be looked at, or a loss not be accepted.
#[derive(Debug)]
pub enum RepairError {
    /// The directory cannot be used, or a server has it.
    Refused(Refusal),
    /// There is none.
    Missing(PathBuf),
    /// It cannot be opened.
    Start(StartError),
    /// The disk failed while files were looked at.
    Look(io::Error),
    /// A loss could not be accepted.
    Accept {
        /// The file, which is still there.
        file: PathBuf,
        /// What the disk said.
        error: io::Error,
    },
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Missing(dir) => write!(f, "there is no data directory {}", dir.display()),
            Self::Start(error) => write!(f, "{error}"),
            Self::Look(error) => write!(f, "cannot look at the chunk files: {error}"),
            Self::Accept { file, error } => {
                let file = file.display();
                write!(
                    f,
                    "{file} is left as it is, for what is intact of it cannot be copied: {error}"
                )
            }
        }
    }
}

impl std::error::Error for RepairError {}

/// What is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is damaged, or what was is accepted.
    Whole,
    /// Something is, and nothing was changed.
    Damaged,
}

/// Looks at all stored data, tells `say` what is lost in whole lines, and accepts it if `accepts_loss`.
///
/// # Errors
/// [`RepairError`]: each says what to do.
pub fn repair(
    settings: &Settings,
    shard_count: u16,
    accepts_loss: bool,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome, RepairError> {
    let dir = &settings.data_dir;
    preflight::check_segments(settings, shard_count).map_err(RepairError::Refused)?;
    let exists = DataDir::find(&RealDisk, dir).map_err(Refusal::DataDir);
    if !exists.map_err(RepairError::Refused)? {
        return Err(RepairError::Missing(dir.clone()));
    }
    let Opened { mut shards, damages, stream_count, .. } =
        plane::open(settings, (shard_count, None)).map_err(RepairError::Start)?;
    let chunks: u64 = shards.iter().map(|shard| shard.log().stats().chunks).sum();
    say(&format!("{}: {stream_count} streams, {chunks} chunk files\n", dir.display()));
    if !damages.is_empty() {
        say("found by the start, and reported once by each:\n");
        damages.iter().for_each(|damage| say(&format!("  {damage}\n")));
    }
    let mut outcome = Outcome::Whole;
    for shard in &mut shards {
        let losses = shard.examine().map_err(RepairError::Look)?;
        if losses.chunks.is_empty() {
            continue;
        }
        say(&shown(&losses));
        if accepts_loss {
            accept(shard, &losses, say)?;
        } else {
            outcome = Outcome::Damaged;
        }
    }
    say(last_word(outcome, accepts_loss));
    Ok(outcome)
}

fn last_word(outcome: Outcome, accepts_loss: bool) -> &'static str {
    match (outcome, accepts_loss) {
        (Outcome::Damaged, _) => {
            "nothing was changed; with --accept-loss, what is intact of these files is copied, and the files go. \
             What is lost stays lost: reads of it are answered `stream-damaged` until the stream is deleted. \
             Copy the files first if their bytes may be worth something.\n"
        }
        (Outcome::Whole, true) => "no chunk file is damaged now\n",
        (Outcome::Whole, false) => "no chunk file is damaged\n",
    }
}

fn accept(
    shard: &mut ShardCore,
    losses: &Losses,
    say: &mut dyn FnMut(&str),
) -> Result<(), RepairError> {
    let files: BTreeMap<_, _> =
        losses.chunks.iter().map(|loss| (loss.file.clone(), loss.group)).collect();
    for (file, group) in files {
        let accepted = shard.accept_loss(group, &file);
        accepted.map_err(|error| RepairError::Accept { file: file.clone(), error })?;
        say(&format!("accepted: {} is gone, what was intact of it is kept\n", file.display()));
    }
    Ok(())
}

/// What is damaged, file by file, and which streams lack what.
fn shown(losses: &Losses) -> String {
    let mut files: BTreeMap<&PathBuf, Vec<&ChunkLoss>> = BTreeMap::new();
    for loss in &losses.chunks {
        files.entry(&loss.file).or_default().push(loss);
    }
    let mut text = String::new();
    for (file, parts) in files {
        let _ = writeln!(text, "damaged: {} (group {})", file.display(), parts[0].group);
        for part in parts.iter().take(PARTS_SHOWN) {
            let _ = writeln!(text, "  {}", part_in_words(&part.lost));
        }
        write_more(&mut text, parts.len(), PARTS_SHOWN);
    }
    for stream in &losses.streams {
        write_stream(&mut text, stream);
    }
    if losses.streams.is_empty() {
        text.push_str(
            "no stream lacks a byte for it: what is lost was deleted, or is kept elsewhere\n",
        );
    }
    text
}

fn part_in_words(lost: &LostPart) -> String {
    match lost {
        LostPart::Headers => "both headers: nothing in the file can be read".to_owned(),
        LostPart::Rows(position) => {
            format!("at {position}: both copies of a list of streams and their bytes")
        }
        LostPart::Bytes { stream, from, to, position } => {
            format!("at {position}: bytes {from} to {to} of stream {stream}")
        }
        LostPart::AppendEnds { stream, from, to, position } => format!(
            "at {position}: where the appends of stream {stream} end in bytes {from} to {to}; the bytes are there"
        ),
    }
}

fn write_stream(text: &mut String, stream: &StreamLoss) {
    let bytes: u64 = stream.ranges.iter().map(|(from, to)| to.since(*from)).sum();
    let _ = writeln!(
        text,
        "lost: {bytes} bytes of the stream {}, whose tail is {}",
        stream.path.as_str(),
        stream.tail
    );
    for (from, to) in stream.ranges.iter().take(RANGES_SHOWN) {
        let _ = writeln!(text, "  bytes {from} to {to}");
    }
    write_more(text, stream.ranges.len(), RANGES_SHOWN);
}

fn write_more(text: &mut String, count: usize, shown: usize) {
    if count > shown {
        let _ = writeln!(text, "  and {} more", count - shown);
    }
}
