//! Clients of a cluster: writers and readers, each with one stream. Most ask any node.

use super::oracle::{Op, Oracle};
use super::streams::{STREAMS, group_of, name_of, path_of};
use crate::dice::Dice;
use crate::history::{Append, Deed, Moment, Producer, Told};
use log::{LogOptions, Slice};
use model::{ByteOffset, GroupId, ReadFrom, StreamPath};
use node::{Failure, ReadReply, ReadRequest, Reply, Request};
use std::rc::Rc;
use stream::{ContentType, CreateRequest, ForkRequest, Lifetime, Outcome, Refusal, Retention};

/// Most bytes of an append, now and then.
const LARGE_BYTES: u64 = 30_000;

/// One thing after the other, each until it is answered or given up.
#[derive(Debug)]
pub(super) struct Client {
    stream: usize,
    /// The id and the next sequence of a producer.
    producer: Option<(String, u64)>,
    is_reader: bool,
    /// Any node will do: others look for the leader.
    asks_anywhere: bool,
    /// Where its next read begins: what it has read stays there.
    from: u64,
    left: u64,
    /// Where it asks next.
    node: usize,
    doing: Doing,
    dice: Dice,
}

#[derive(Debug)]
enum Doing {
    Nothing,
    Create,
    Append { op: usize, append: Rc<Append>, called: Moment },
    Head { called: Moment },
    Read { called: Moment },
    Window { called: Moment, reply: Box<ReadReply>, bytes: Vec<u8> },
}

/// What a client does with an answer.
pub(super) enum Next {
    /// Asks again, soon.
    Again,
    /// Asks this of the same node.
    Ask(Request),
    /// It is done for good.
    End,
}

/// Something that asks nodes.
pub(super) trait Asker {
    /// Where it asks next.
    fn node(&mut self) -> &mut usize;
    /// Any node will do: others look for the leader.
    fn asks_anywhere(&self) -> bool;
    /// How long it does nothing.
    fn delay_us(&mut self) -> u64;
    /// The group of its stream.
    fn group(&self, options: &LogOptions) -> GroupId;
    /// The next request, with its data.
    fn ask(&mut self, oracle: &mut Oracle, must_create: bool) -> (Request, Vec<u8>);
    /// The stream of the run that it reads, if it does not read a fork.
    fn reads_stream(&self) -> Option<usize> {
        None
    }
    /// The append that it waits for.
    fn op(&self) -> Option<usize>;
    /// No answer comes any more.
    fn give_up(&mut self, oracle: &mut Oracle) -> Next;
    /// An answer has come.
    fn hear(&mut self, oracle: &mut Oracle, reply: Reply, contents: &mut [Vec<u8>]) -> Next;
}

impl Client {
    pub(super) fn new(number: usize, (node_count, left): (usize, u64), mut dice: Dice) -> Self {
        // Each stream has a writer, a reader, and perhaps another writer.
        let is_reader = (number / STREAMS) % 2 == 1;
        let is_producer = !is_reader && dice.percent(50);
        let asks_anywhere = is_reader || dice.percent(70);
        Self {
            stream: number % STREAMS,
            producer: is_producer.then(|| (format!("p{number}"), 0)),
            is_reader,
            asks_anywhere,
            from: 0,
            left,
            node: dice.below(node_count as u64) as usize,
            doing: Doing::Nothing,
            dice,
        }
    }

    /// A reader of the whole stream at the end.
    pub(super) fn auditor(stream: usize, dice: Dice) -> Self {
        Self {
            stream,
            producer: None,
            is_reader: true,
            asks_anywhere: true,
            from: 0,
            left: 1,
            node: 0,
            doing: Doing::Nothing,
            dice,
        }
    }

    fn new_op(&mut self, oracle: &mut Oracle) -> usize {
        let op = oracle.ops.len();
        let large = if self.dice.percent(3) { LARGE_BYTES } else { 200 };
        let filler = "x".repeat(self.dice.below(large) as usize);
        let bytes = format!("#{op:08}{filler};").into_bytes();
        let (stream, is_acked, is_refused) = (self.stream, false, false);
        oracle.ops.push(Op { stream, bytes, begun_us: oracle.now_us, is_acked, is_refused });
        op
    }

    fn note_lost(
        &mut self,
        oracle: &mut Oracle,
        (op, append, called): (usize, Rc<Append>, Moment),
    ) -> Next {
        oracle.history.lost(&name_of(self.stream), called, Rc::clone(&append));
        if self.producer.is_some() {
            self.doing = Doing::Append { op, append, called };
            return Next::Again;
        }
        self.done()
    }

    fn done(&mut self) -> Next {
        self.left -= 1;
        if self.left == 0 { Next::End } else { Next::Again }
    }

    fn refused(
        &mut self,
        oracle: &mut Oracle,
        (op, append, called): (usize, Rc<Append>, Moment),
        failure: &Failure,
    ) -> Next {
        let is_unknown =
            matches!(failure, Failure::Unknown | Failure::Poisoned { applied_unknown: true });
        if is_unknown {
            return self.note_lost(oracle, (op, append, called));
        }
        if self.producer.is_some() {
            // An earlier try may still take effect.
            self.doing = Doing::Append { op, append, called };
        } else {
            oracle.ops[op].is_refused = true;
        }
        Next::Again
    }

    /// Continues a read until its end.
    fn read_on(
        &mut self,
        oracle: &mut Oracle,
        (called, reply, bytes): (Moment, Box<ReadReply>, Vec<u8>),
        contents: &mut [Vec<u8>],
    ) -> Next {
        if let Some(window) = window_behind(&reply, bytes.len()) {
            self.doing = Doing::Window { called, reply, bytes };
            return Next::Ask(window);
        }
        let (start, closed) = (reply.start.get(), reply.info.closed);
        let up_to_date = reply.end == reply.info.tail;
        if start == 0 {
            contents[self.stream].clone_from(&bytes);
        }
        self.from = if self.dice.percent(5) { 0 } else { reply.end.get() };
        let deed = Deed::Read { start, bytes: bytes[..].into(), up_to_date, closed };
        oracle.history.event(&name_of(self.stream), called, deed);
        self.done()
    }
}

impl Asker for Client {
    fn node(&mut self) -> &mut usize {
        &mut self.node
    }

    fn asks_anywhere(&self) -> bool {
        self.asks_anywhere
    }

    fn delay_us(&mut self) -> u64 {
        self.dice.delay_us(60_000)
    }

    fn group(&self, options: &LogOptions) -> GroupId {
        group_of(self.stream, options)
    }

    fn ask(&mut self, oracle: &mut Oracle, must_create: bool) -> (Request, Vec<u8>) {
        let path = path_of(self.stream);
        if must_create {
            self.doing = Doing::Create;
            return (creation(path), Vec::new());
        }
        if self.is_reader && (self.left == 1 || self.dice.percent(60)) {
            self.doing = Doing::Read { called: oracle.history.moment() };
            return (read_of(path, self.from), Vec::new());
        }
        if self.is_reader {
            self.doing = Doing::Head { called: oracle.history.moment() };
            return (Request::Head { path }, Vec::new());
        }
        let op = match &self.doing {
            // A producer repeats what nobody could tell it.
            Doing::Append { op, .. } if self.producer.is_some() => *op,
            _ => self.new_op(oracle),
        };
        let bytes = oracle.ops[op].bytes.clone();
        oracle.ops[op].is_refused = false;
        let producer = self.producer.as_ref();
        let append = Rc::new(Append {
            number: Some(op),
            stored: bytes[..].into(),
            close: false,
            sequence: None,
            producer: producer.map(|(id, seq)| Producer { id: id.clone(), epoch: 0, seq: *seq }),
        });
        let request = Request::Append {
            path,
            append: stream::Append {
                content_type: stream::AppendType::Named(ContentType::new("text/plain")),
                record_count: 1,
                producer: producer.map(|(id, seq)| stream::Producer {
                    id: id.as_str().into(),
                    epoch: 0,
                    seq: *seq,
                }),
                ..stream::Append::default()
            },
        };
        self.doing = Doing::Append { op, append, called: oracle.history.moment() };
        (request, bytes)
    }

    fn reads_stream(&self) -> Option<usize> {
        Some(self.stream)
    }

    fn op(&self) -> Option<usize> {
        match &self.doing {
            Doing::Append { op, .. } => Some(*op),
            _ => None,
        }
    }

    fn give_up(&mut self, oracle: &mut Oracle) -> Next {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Append { op, append, called } => self.note_lost(oracle, (op, append, called)),
            _ => Next::Again,
        }
    }

    fn hear(&mut self, oracle: &mut Oracle, reply: Reply, contents: &mut [Vec<u8>]) -> Next {
        let doing = std::mem::replace(&mut self.doing, Doing::Nothing);
        match (doing, reply) {
            (Doing::Create, Reply::Outcome(Outcome::Created(_) | Outcome::Existed(_))) => {
                Next::Again
            }
            (Doing::Append { op, append, called }, Reply::Outcome(Outcome::Appended(accepted))) => {
                let (tail, closed) = (accepted.tail.get(), accepted.closed);
                let told = match accepted.duplicate {
                    true => Told::Repeated { tail, closed },
                    false => Told::Added { tail, closed },
                };
                if accepted.duplicate {
                    // The node that it asked may have repeated it.
                    oracle.history.lost(&name_of(self.stream), called, Rc::clone(&append));
                }
                oracle.history.event(&name_of(self.stream), called, Deed::Append(append, told));
                (oracle.ops[op].is_acked, oracle.acked_count) = (true, oracle.acked_count + 1);
                if let Some((_, seq)) = &mut self.producer {
                    *seq += 1;
                }
                self.done()
            }
            (Doing::Append { op, append, called }, Reply::Failed(failure)) => {
                self.refused(oracle, (op, append, called), &failure)
            }
            (Doing::Head { called }, Reply::Head(_, info)) => {
                let (tail, closed) = (info.tail.get(), info.closed);
                oracle.history.event(&name_of(self.stream), called, Deed::Head { tail, closed });
                self.done()
            }
            (Doing::Read { called }, Reply::Read(reply)) => {
                let bytes = first_bytes(&reply);
                self.read_on(oracle, (called, reply, bytes), contents)
            }
            (Doing::Window { called, reply, mut bytes }, Reply::Window(slice)) => {
                bytes.extend(slice.to_bytes().expect("a window can be read"));
                self.read_on(oracle, (called, reply, bytes), contents)
            }
            (Doing::Nothing, _) => Next::Again,
            (
                _,
                Reply::Failed(
                    failure @ (Failure::Damaged { .. }
                    | Failure::Beyond { .. }
                    | Failure::Trimmed { .. }
                    | Failure::NotFound),
                ),
            ) => {
                let what = format!("what was seen of stream {} is not there", self.stream);
                oracle.broken(format!("{what} at {}: {failure:?}", self.from));
                Next::Again
            }
            (_, Reply::Failed(_)) => Next::Again,
            (doing, Reply::Outcome(Outcome::Refused(Refusal::NotFound))) => {
                oracle.broken(format!("stream {} is gone: {doing:?}", self.stream));
                Next::Again
            }
            (doing, reply) => {
                oracle.broken(format!("{doing:?} was answered by {reply:?}"));
                Next::Again
            }
        }
    }
}

/// The question for what a read has behind so many bytes; `None` at its end.
pub(super) fn window_behind(reply: &ReadReply, read_bytes: usize) -> Option<Request> {
    let from = reply.start.advance(read_bytes as u64);
    (from < reply.end).then(|| {
        let (key, to) = reply.owner_of(from);
        Request::Window { key, from, to }
    })
}

pub(super) fn first_bytes(reply: &ReadReply) -> Vec<u8> {
    let first = reply.first.as_ref();
    first.map_or(Vec::new(), |slice| slice.to_bytes().expect("a window can be read").to_vec())
}

pub(super) fn read_of(path: StreamPath, from: u64) -> Request {
    Request::Read(ReadRequest {
        path,
        from: ReadFrom::At(ByteOffset::new(from)),
        boundary_bytes: 1 << 40,
        first_bytes_max: u64::MAX,
        records: None,
    })
}

pub(super) fn creation(path: StreamPath) -> Request {
    create(path, Some(ContentType::new("text/plain")), None)
}

/// A stream that lasts. A fork has the content type of its source.
pub(super) fn create(
    path: StreamPath,
    content_type: Option<ContentType>,
    fork: Option<ForkRequest>,
) -> Request {
    Request::Create(Box::new(CreateRequest {
        path,
        content_type,
        lifetime: Lifetime::Forever,
        close: false,
        fork,
        retention: Retention::default(),
        record_time: None,
        record_count: 0,
    }))
}

/// A reply in the trace. Bytes of streams are many, and a file that has them would be printed as a whole.
pub(super) fn in_short(reply: &Reply) -> String {
    let of = |slice: &Slice| {
        let bytes = slice.to_bytes().unwrap_or_default();
        format!("{} bytes, {:08x}", bytes.len(), crc32c::crc32c(&bytes))
    };
    match reply {
        Reply::Window(slice) => of(slice),
        Reply::Read(read) => {
            let ReadReply { key, info, start, end, first, .. } = &**read;
            let first = first.as_ref().map(of);
            format!("{key:?}, {info:?}, from {start} to {end}: {first:?}")
        }
        reply => format!("{reply:?}"),
    }
}

/// A reply on its way: its bytes have left the files that they are in, which may be lost before it arrives.
pub(super) fn sent(reply: Reply) -> Reply {
    let sent = |slice: Slice| slice.to_bytes().map_or(slice, Slice::Bytes);
    match reply {
        Reply::Window(slice) => Reply::Window(sent(slice)),
        Reply::Read(mut read) => {
            read.first = read.first.map(sent);
            Reply::Read(read)
        }
        reply => reply,
    }
}
