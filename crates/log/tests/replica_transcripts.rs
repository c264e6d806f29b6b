//! Replicated groups as transcripts: what is appended, superseded and noted, what happens to the disk, and what the next
//! opening finds.
//!
//! | command | does |
//! |---|---|
//! | `solo G LETTER COUNT` | appends COUNT times LETTER to stream 1 of a group with one voter |
//! | `replicate G TERM VOTE` | makes the group replicated |
//! | `entry G INDEX TERM LETTER COUNT` | appends an entry for stream 1 at an index and term |
//! | `note G TERM VOTE COMMIT` | notes that |
//! | `commit G INDEX` | commits and applies |
//! | `sync`, `seal`, `checkpoint G` | one durable batch; background work; a checkpoint of what is applied |
//! | `write` | writes the batch, and does not hear of it |
//! | `stop`, `kill` | ends in order, with a mark; ends at once |
//! | `tear FILE BLOCK` | turns the second half of a block to zeroes |
//! | `spoil FILE BLOCK BYTE` | flips two bits where no second copy is |
//! | `open [SHARDS]` | opens, and prints what is there |
//!
//! A command that the log refuses prints what it says.

use crate::support;
use crate::support::replicas::{GROUPS, Logged, World, group};
use crate::support::{APPEND, spoil, wal};
use env::{Disk, MemoryDisk};
use model::{EntryIndex, EntrySubject, Term, Timestamp};
use std::fmt::Write;
use thalweg_log::{NewEntry, Note, Purpose, ReplicaError};

#[test]
fn replicas() {
    let text = include_str!("testdata/replicas.txt");
    for part in text.split("\n# ").map(|part| part.trim_start_matches("# ")) {
        let (commands, expected) = part.split_once("----\n").expect("what is expected follows");
        let (name, commands) = commands.split_once('\n').expect("a part has a name");
        let mut story = Story::new();
        commands.lines().filter(|line| !line.is_empty()).for_each(|line| story.run(line));
        assert!(story.printed.trim() == expected.trim(), "{name}\n----\n{}", story.printed);
    }
}

struct Story {
    disk: MemoryDisk,
    world: Option<World>,
    printed: String,
}

impl Story {
    fn new() -> Self {
        let disk = MemoryDisk::new();
        let world = Some(World::new(&disk, 1));
        Self { disk, world, printed: String::new() }
    }

    fn world(&mut self) -> &mut World {
        self.world.as_mut().expect("an open log")
    }

    fn tell(&mut self, done: Result<(), ReplicaError>) {
        if let Err(error) = done {
            writeln!(self.printed, "refused: {error}").unwrap();
        }
    }

    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<u64> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
        let of = numbers.first().map_or(0, |number| *number as u16);
        match (words[0], &numbers[..]) {
            ("solo", [_, count]) => {
                let data = vec![words[2].as_bytes()[0]; *count as usize];
                let next = self.world().open[&of].last() + 1;
                let logged = Logged { term: 1, stream: 1, command: Vec::new(), data };
                self.world().append(of, next, logged).unwrap();
            }
            ("replicate", [_, term, vote]) => {
                let note = Note { term: Term::new(*term), vote: *vote, commit: EntryIndex::new(0) };
                self.world().replicate(of, note).unwrap();
            }
            ("entry", [_, index, term, count]) => {
                let data = vec![words[4].as_bytes()[0]; *count as usize];
                self.entry(of, (*index, *term), &data);
            }
            ("note", [_, term, vote, commit]) => {
                let commit = EntryIndex::new(*commit);
                let note = Note { term: Term::new(*term), vote: *vote, commit };
                let done = self.world().log(of).note(group(of), note);
                self.tell(done);
            }
            ("commit", [_, index]) => self.world().commit(of, *index).unwrap(),
            ("sync", []) => self.world().sync_all().unwrap(),
            ("write", []) => self.world().sync_unheard(0),
            ("seal", []) => self.world().work().unwrap(),
            ("checkpoint", [_]) => self.world().checkpoint(of),
            ("stop", []) => {
                let mut world = self.world.take().expect("an open log");
                world.shards.iter_mut().for_each(thalweg_log::ShardLog::mark_durable);
                world.sync_all().unwrap();
            }
            ("kill", []) => drop(self.world.take()),
            ("tear", [block]) => self.tear(words[1], *block),
            ("spoil", [block, byte]) => {
                let path = self.file(words[1]);
                spoil(&self.disk, &path, wal::batch(*block) + byte);
            }
            ("open", []) => self.open(1),
            ("open", [shards]) => self.open(*shards as u16),
            _ => panic!("{line:?} is no command"),
        }
    }

    fn entry(&mut self, of: u16, (index, term): (u64, u64), data: &[u8]) {
        let entry = NewEntry {
            group: group(of),
            term: Term::new(term),
            subject: EntrySubject::new(1),
            at: Timestamp::new(1),
            kind: APPEND,
            command: &[],
            data,
        };
        let at = EntryIndex::new(index);
        let done = self.world().log(of).append_entry(Purpose::Data, at, entry);
        self.tell(done);
    }

    fn file(&self, end: &str) -> std::path::PathBuf {
        let paths = self.disk.paths().into_iter();
        let mut found = paths.filter(|path| path.to_string_lossy().ends_with(end));
        found.next().unwrap_or_else(|| panic!("there is no {end}"))
    }

    fn tear(&mut self, end: &str, block: u64) {
        let file = self.disk.open(&self.file(end)).unwrap();
        let half = wal::BLOCK_BYTES / 2;
        file.write_at(&vec![0; half as usize], wal::batch(block) + half).unwrap();
        // What is read of its payload is in the first half: that goes, too.
        file.write_at(&[0; 8], wal::batch(block) + wal::payload(self.entries(end, block))).unwrap();
        file.sync_data().unwrap();
    }

    fn entries(&self, end: &str, block: u64) -> u64 {
        let mut count = [0; 4];
        let file = self.disk.open(&self.file(end)).unwrap();
        file.read_exact_at(&mut count, wal::batch(block) + wal::ENTRY_COUNT).unwrap();
        u64::from(u32::from_le_bytes(count))
    }

    fn open(&mut self, shard_count: u16) {
        let world =
            World::with(&self.disk, shard_count, support::replicas::options()).ok().unwrap();
        let out = &mut self.printed;
        writeln!(out, "open: {} replayed", world.report.entries_replayed).unwrap();
        for torn in &world.report.torn_tails {
            let name = torn.file.strip_prefix("/data").unwrap().display();
            writeln!(out, "  torn: {name} at {}", torn.position).unwrap();
        }
        for damage in &world.machine.damages {
            write!(out, "  {:?}", damage.kind).unwrap();
            if let (Some(group), Some((first, last))) = (damage.group, damage.entries) {
                write!(out, ": entries {first} to {last} of group {group}").unwrap();
            }
            out.push('\n');
        }
        for of in 0..GROUPS {
            describe(&world, of, out);
        }
        self.world = Some(world);
    }
}

/// What the log gives back of a group.
fn describe(world: &World, of: u16, out: &mut String) {
    let shard = &world.shards[usize::from(of) % world.shards.len()];
    let (of_group, last) = (group(of), shard.last_index(group(of)).get());
    if last == 0 && !shard.is_replicated(of_group) {
        return;
    }
    let committed = shard.committed_index(of_group);
    write!(out, "  group {of}: ends at {last}, {committed} committed").unwrap();
    match shard.last_note(of_group) {
        Some(Note { term, vote, .. }) => writeln!(out, ", term {term}, vote {vote}").unwrap(),
        None => writeln!(out).unwrap(),
    }
    let first = shard.first_index(of_group).map_or(last + 1, EntryIndex::get);
    for index in first..=last {
        let read = shard.entries(of_group, EntryIndex::new(index), 0).unwrap().run();
        match read {
            Ok(read) => {
                let entry = read[0].entry();
                let (term, letter) = (entry.term, char::from(entry.data[0]));
                writeln!(out, "    {index} of term {term}: {letter} {}", entry.data.len()).unwrap();
            }
            Err(_) => {
                let term = shard.term_of(of_group, EntryIndex::new(index)).unwrap();
                writeln!(out, "    {index} of term {term}: damaged").unwrap();
            }
        }
    }
    let key = support::key(of, 1);
    if let Some(tail) = shard.tail(key) {
        let slice = shard.read(key, model::ByteOffset::ZERO, 4000).unwrap().to_bytes().unwrap();
        let runs = slice.chunk_by(|a, b| a == b);
        let runs: Vec<_> =
            runs.map(|run| format!("{} {}", char::from(run[0]), run.len())).collect();
        writeln!(out, "    applied: {} ({tail} bytes)", runs.join(" ")).unwrap();
    }
}
