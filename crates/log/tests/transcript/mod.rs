//! Runs a transcript: what is done to a log and its files, and what each opening then finds.
//!
//! A transcript has parts that begin with a line `# name`. In each, commands are followed by `----` and by
//! what the openings among them have printed.
//!
//! | command | does |
//! |---|---|
//! | `append G/S LETTER COUNT` | appends COUNT times LETTER to stream S of group G |
//! | `command G/S LETTER COUNT` | the same, with a command of seven bytes beside the data |
//! | `delete G/S` | deletes the stream |
//! | `sync` | makes one durable batch of what was appended |
//! | `seal` | runs background work until there is none |
//! | `stop` | ends in order, with a mark |
//! | `kill` | ends at once |
//! | `flip FILE PLACE` | inverts one bit |
//! | `spoil FILE PLACE` | inverts two bits, which cannot be put right, where no second copy is |
//! | `open [SHARDS]` | opens, and prints what is torn, what is damaged and what is there |
//!
//! FILE is the end of a path. PLACE is `block N`, then `header`, `entry N` or `payload`, then a byte
//! inside that.

use crate::support::{APPEND, DELETE, Node, spoil};
use env::{Disk, MemoryDisk};
use model::{ByteOffset, GroupId, StreamId, StreamKey};
use std::fmt::Write;
use std::path::PathBuf;
use thalweg_log::{ReadError, ShardLog};

const BLOCK_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 64;

/// Runs every part of a transcript and compares.
pub(crate) fn check(text: &str) {
    for part in text.split("\n# ").map(|part| part.trim_start_matches("# ")) {
        let (commands, expected) =
            part.split_once("----\n").expect("what is expected follows ----");
        let (name, commands) = commands.split_once('\n').expect("a part has a name");
        let mut log = Log { disk: MemoryDisk::new(), node: None, printed: String::new() };
        log.run("open");
        log.printed.clear();
        commands.lines().filter(|line| !line.is_empty()).for_each(|line| log.run(line));
        assert!(log.printed.trim() == expected.trim(), "{name}\n----\n{}", log.printed);
    }
}

struct Log {
    disk: MemoryDisk,
    node: Option<Node>,
    printed: String,
}

fn key(word: &str) -> StreamKey {
    let (group, stream) = word.split_once('/').expect("a stream is G/S");
    let (group, stream) = (group.parse().unwrap(), stream.parse().unwrap());
    StreamKey { group: GroupId::new(group), stream: StreamId::new(stream) }
}

impl Log {
    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["append", stream, letter, count] => self.append(stream, b"", (letter, count)),
            ["command", stream, letter, count] => self.append(stream, b"command", (letter, count)),
            ["delete", stream] => self.node().write(key(stream), DELETE, &[], &[]).unwrap(),
            ["sync"] => self.node().commit().unwrap(),
            ["seal"] => self.node().work().unwrap(),
            ["stop"] => drop(self.node.take().expect("an open log").stop()),
            ["kill"] => drop(self.node.take()),
            ["flip", file, ref place @ ..] => {
                let (path, byte) = self.place(file, place);
                self.disk.flip_bit(&path, byte * 8 + 3);
            }
            ["spoil", file, ref place @ ..] => {
                let (path, byte) = self.place(file, place);
                spoil(&self.disk, &path, byte);
            }
            ["open"] => self.open(1),
            ["open", shards] => self.open(shards.parse().unwrap()),
            _ => panic!("{line:?} is no command"),
        }
    }

    fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("an open log")
    }

    fn append(&mut self, stream: &str, command: &[u8], (letter, count): (&str, &str)) {
        let data = letter.repeat(count.parse().unwrap());
        self.node().write(key(stream), APPEND, command, data.as_bytes()).unwrap();
    }

    /// The first file whose path ends so, and a byte in it.
    fn place(&self, file: &str, words: &[&str]) -> (PathBuf, u64) {
        let mut paths = self.disk.paths().into_iter();
        let path = paths.find(|path| path.to_string_lossy().ends_with(file)).expect(file);
        let number = |word: &str| word.parse::<u64>().unwrap();
        let ["block", block, ref inside @ ..] = *words else { panic!("{words:?} is no place") };
        let start = number(block) * BLOCK_BYTES;
        let byte = match *inside {
            ["header", byte] => number(byte),
            ["entry", entry, byte] => HEADER_BYTES * (1 + number(entry)) + number(byte),
            ["payload", byte] => HEADER_BYTES * (1 + self.entries_at(&path, start)) + number(byte),
            _ => panic!("{inside:?} is no part of a batch"),
        };
        (path, start + byte)
    }

    /// The number of entries that the header of a batch tells.
    fn entries_at(&self, path: &std::path::Path, start: u64) -> u64 {
        let mut count = [0; 4];
        self.disk.open(path).unwrap().read_exact_at(&mut count, start + 44).unwrap();
        u64::from(u32::from_le_bytes(count))
    }

    fn open(&mut self, shard_count: u16) {
        let mut node = Node::open(&self.disk, shard_count).unwrap();
        let mut out = format!("open: {} replayed\n", node.report.entries_replayed);
        let name = |path: &PathBuf| {
            path.strip_prefix("/data").unwrap_or(path).to_string_lossy().into_owned()
        };
        for torn in &node.report.torn_tails {
            writeln!(out, "  torn: {} at {}", name(&torn.file), torn.position).unwrap();
        }
        for damage in &node.machine.damages {
            let place = format!("{} at {}", name(&damage.file), damage.position);
            write!(out, "  {:?}: {place}", damage.kind).unwrap();
            if let (Some(group), Some((first, last))) = (damage.group, damage.entries) {
                write!(out, ", entries {first} to {last} of group {group}").unwrap();
            }
            if let Some(stream) = damage.stream {
                write!(out, ", {} bytes of stream {stream}", damage.lost_bytes).unwrap();
            }
            out.push('\n');
        }
        let streams: Vec<_> =
            node.machine.streams.iter().map(|(key, ends)| (*key, *ends)).collect();
        for (key, ends) in streams {
            let shard = node.shard(key.group);
            let held = if ends.is_deleted {
                let read = shard.read(key, ByteOffset::ZERO, 10).map(|slice| slice.len());
                format!("deleted, {}", read.expect_err("nothing is left of it"))
            } else {
                contents(shard, key, (ends.head, ends.tail))
            };
            writeln!(out, "  {}/{}: {held}", key.group, key.stream).unwrap();
        }
        for group in (0..3).map(GroupId::new) {
            let (next, applied) = {
                let shard = node.shard(group);
                (shard.next_index(group).get(), shard.applied_index(group).get())
            };
            assert_eq!(next, applied + 1, "all of group {group} is applied");
            if applied > 0 {
                writeln!(out, "  group {group}: next {next}").unwrap();
            }
        }
        self.printed.push_str(&out);
        self.node = Some(node);
    }
}

/// What can be read of a stream: letters with their counts, and what is damaged or lost.
fn contents(shard: &ShardLog, key: StreamKey, (head, tail): (u64, u64)) -> String {
    let (mut at, mut out) = (head, Vec::new());
    while at < tail {
        match shard.read(key, ByteOffset::new(at), 1 << 20) {
            Ok(slice) if slice.is_empty() => return format!("{}, the rest lost", out.join(" ")),
            Ok(slice) => {
                let bytes = slice.to_bytes().unwrap();
                for run in bytes.chunk_by(|a, b| a == b) {
                    out.push(format!("{} {}", char::from(run[0]), run.len()));
                }
                at += bytes.len() as u64;
            }
            Err(ReadError::Damaged { position, .. }) => {
                let end = damage_end(shard, key, at, tail);
                out.push(format!("damaged({at}..{end} at {position})"));
                at = end;
            }
            Err(error) => return format!("{}, then {error}", out.join(" ")),
        }
    }
    out.join(" ")
}

/// Where the bytes that cannot be read end: with their append, or where reads succeed again.
fn damage_end(shard: &ShardLog, key: StreamKey, at: u64, tail: u64) -> u64 {
    if let Ok(Some(bounds)) = shard.append_at(key, ByteOffset::new(at)) {
        return bounds.end.get();
    }
    let is_damaged = |at: &u64| {
        matches!(shard.read(key, ByteOffset::new(*at), 1), Err(ReadError::Damaged { .. }))
    };
    (at..tail).find(|at| !is_damaged(at)).unwrap_or(tail)
}
