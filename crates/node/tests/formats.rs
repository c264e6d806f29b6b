//! A data directory of an earlier run, with every kind of file, opened by this one.
//!
//! `testdata/directory.txt` holds its files as rows of hexadecimal digits; rows of zeroes are left
//! out. It never changes: a later format gets a directory of its own beside it, made in the same
//! manner, by [`dump`] of [`written`].

use env::{Disk, MemoryDisk, SeededRandom};
use log::{LogOptions, OpenError};
use model::{ByteOffset, Monotonic, ReadFrom, ShardId, StreamPath, Timestamp};
use std::fmt::Write;
use std::{path::Path, sync::Arc};
use stream::{
    Append, ContentType, CreateRequest, ForkRequest, Lifetime, Outcome, Producer, Refusal,
    StreamInfo,
};
use thalweg_node::{Event, Opened, Output, ReadRequest, Reply, Request, ShardCore, Stamp, Ticket};

const NOW: Stamp = Stamp { wall: Timestamp::new(1_000), monotonic: Monotonic::new(1) };

const ROW_BYTES: usize = 32;

/// One shard that does at once what it is asked.
struct Machine {
    node: ShardCore,
    reply: Option<Reply>,
}

fn path(text: &str) -> StreamPath {
    StreamPath::new(text).unwrap()
}

fn by_producer(seq: u64) -> Append {
    let producer = Some(Producer { id: "p".into(), epoch: 4, seq });
    let content_type = Some(ContentType::new("text/plain"));
    Append { content_type, producer, record_count: 1, ..Append::default() }
}

impl Machine {
    fn open(disk: &MemoryDisk, small: u64) -> Self {
        let opened = Self::try_open(disk, small).unwrap();
        assert_eq!(opened.damages, [], "nothing is damaged");
        let node = opened.nodes.into_iter().next().unwrap();
        Self { node, reply: None }
    }

    fn try_open(disk: &MemoryDisk, small: u64) -> Result<Opened, OpenError> {
        let options = LogOptions {
            group_count: 1,
            segment_bytes: 256 << 10,
            wal_bytes_max: 1 << 20,
            seal_bytes: small,
            checkpoint_bytes: small,
            ..LogOptions::default()
        };
        let (disk, random) = (Arc::new(disk.clone()), &mut SeededRandom::new(1));
        thalweg_node::open(disk, random, Path::new("/data"), options, 1)
    }

    fn ask(&mut self, request: Request) -> Reply {
        self.ask_with(request, b"")
    }

    fn ask_with(&mut self, request: Request, data: &[u8]) -> Reply {
        let ticket = Ticket { shard: ShardId::new(0), exchange: [0; 3] };
        self.node.handle(NOW, Event::Request { ticket, request, data });
        self.settle();
        self.reply.take().expect("everything is answered at once")
    }

    fn settle(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Reply { reply, .. } => self.reply = Some(reply),
                Output::Sync(job) => self.node.handle(NOW, Event::Synced(job.run())),
                Output::Read(job) => self.node.handle(NOW, Event::ReadDone(job.run())),
                Output::Work(job) => self.node.handle(NOW, Event::Worked(job.run())),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    fn outcome(&mut self, request: Request, data: &[u8]) -> Outcome {
        match self.ask_with(request, data) {
            Reply::Outcome(outcome) => outcome,
            other => panic!("a change was answered by {other:?}"),
        }
    }

    fn create(&mut self, name: &str, lifetime: Lifetime, fork: Option<ForkRequest>) -> Outcome {
        let (path, content_type) = (path(name), Some(ContentType::new("text/plain")));
        let (close, record_count) = (false, 0);
        let create = CreateRequest { path, content_type, lifetime, close, fork, record_count };
        self.outcome(Request::Create(create), b"")
    }

    fn append(&mut self, name: &str, append: Append, data: &[u8]) -> Outcome {
        self.outcome(Request::Append { path: path(name), append }, data)
    }

    fn info(&mut self, name: &str) -> StreamInfo {
        match self.ask(Request::Head { path: path(name) }) {
            Reply::Head(_, info) => info,
            other => panic!("{name} is described by {other:?}"),
        }
    }

    fn bytes(&mut self, name: &str) -> String {
        let from = ReadFrom::Begin;
        let read = Request::Read(ReadRequest { path: path(name), from, boundary_bytes: 1 << 20 });
        let Reply::Read(read) = self.ask(read) else { panic!("{name} cannot be read") };
        let (mut at, mut bytes) = (read.start, vec![]);
        while at < read.end {
            let owner = read.info.lineage.span_at(at);
            let (to, key) = owner.unwrap_or((read.end, read.key));
            let window = Request::Window { key, from: at, to: to.min(read.end) };
            let Reply::Window(slice) = self.ask(window) else { panic!("{name} has no byte {at}") };
            at = at.advance(slice.len());
            bytes.extend(slice.to_bytes().unwrap());
        }
        String::from_utf8(bytes).unwrap()
    }
}

/// What a run of this version leaves behind: a part that is sealed and covered by a checkpoint, and a part that
/// is only in the log.
fn written() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut machine = Machine::open(&disk, 1);
    machine.create("text", Lifetime::Forever, None);
    machine.append("text", by_producer(0), b"sealed,");
    machine.create("sliding", Lifetime::Ttl { seconds: 600 }, None);
    let request = ForkRequest { source: path("text"), offset: None, sub_offset: 0 };
    machine.create("fork", Lifetime::Forever, Some(request));
    machine.node.handle(NOW, Event::Tick);
    machine.settle();
    drop(machine);
    disk.kill_process();

    let mut machine = Machine::open(&disk, 8 << 20);
    machine.append("text", by_producer(1), b"logged");
    machine.append("fork", by_producer(0), b"forked");
    let close = Append { stream_seq: Some("s".into()), close: true, ..by_producer(1) };
    machine.append("fork", close, b"!");
    machine.outcome(Request::Delete { path: path("text") }, b"");
    machine.create("new", Lifetime::ExpiresAt(Timestamp::new(9_000)), None);
    drop(machine);
    disk.kill_process();
    disk
}

fn dump(disk: &MemoryDisk) -> String {
    let mut text = String::new();
    for path in disk.paths() {
        let file = disk.open(&path).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        writeln!(text, "{} {}", path.display(), bytes.len()).unwrap();
        for (number, row) in bytes.chunks(ROW_BYTES).enumerate() {
            if row.iter().any(|byte| *byte != 0) {
                let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "{:x} {hex}", number * ROW_BYTES).unwrap();
            }
        }
    }
    text
}

fn restored(dump: &str) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut file = None;
    for line in dump.lines() {
        let (name, value) = line.split_once(' ').unwrap();
        if name.starts_with('/') {
            let path = Path::new(name);
            disk.create_dir_all(path.parent().unwrap()).unwrap();
            let created = disk.create(path).unwrap();
            created.write_zeroes(0, value.parse().unwrap()).unwrap();
            file = Some(created);
        } else {
            let digits = |at| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
            let row: Vec<u8> = (0..value.len()).step_by(2).map(digits).collect();
            let position = u64::from_str_radix(name, 16).unwrap();
            file.as_ref().unwrap().write_at(&row, position).unwrap();
        }
    }
    disk
}

/// Opens the directory and looks at everything in it.
fn check(disk: &MemoryDisk) {
    let mut machine = Machine::open(disk, 8 << 20);
    assert_eq!(machine.bytes("fork"), "sealed,forked!");
    assert!(machine.info("fork").closed);
    let repeat = machine.append("fork", by_producer(0), b"forked");
    assert!(matches!(repeat, Outcome::Appended(accepted) if accepted.duplicate));
    let source = machine.outcome(Request::Delete { path: path("text") }, b"");
    assert_eq!(source, Outcome::Refused(Refusal::Gone), "the fork needs it");
    assert_eq!(machine.info("sliding").lifetime, Lifetime::Ttl { seconds: 600 });
    assert_eq!(machine.info("new").lifetime, Lifetime::ExpiresAt(Timestamp::new(9_000)));
    machine.append("sliding", by_producer(0), b"on and on");
    assert_eq!(machine.bytes("sliding"), "on and on");
    assert_eq!(machine.info("sliding").tail, ByteOffset::new(9));
}

#[test]
fn a_directory_of_before_the_first_release_is_refused_whole() {
    let disk = restored(include_str!("../testdata/directory-1.txt"));
    let before = dump(&disk);
    let refused = Machine::try_open(&disk, 1).unwrap_err();
    assert!(matches!(refused, OpenError::Version { found: 1, known: 2, .. }), "{refused}");
    let after: String = dump(&disk);
    assert_eq!(after.replace("/data/LOCK 0\n", ""), before, "nothing was written");
}

#[test]
fn a_data_directory_of_an_earlier_run_opens() {
    let dump = include_str!("../testdata/directory.txt");
    for extension in [".wal", ".chunk", ".ckpt", "FORMAT"] {
        assert!(dump.contains(extension), "the directory has no {extension} file");
    }
    check(&restored(dump));
}

#[test]
fn what_is_written_now_dumps_and_opens_alike() {
    let written = written();
    check(&restored(&dump(&written)));
    check(&written);
}
