//! From bytes of a client to a request of the node. See the server's `plane::receive`.

use super::{
    exchange::{Exchange, Pending, State},
    shard::Shard,
};
use protocol::{
    http1::{ChunkedDecoder, Framing, HeadLimits, HeadReader, HeaderSlots, Method, Version},
    problem::Problem,
    request::{self, AppendRequest, CreateRequest, Live, ReadRequest, Request, Scheme},
};

/// A request head whose body is at hand.
struct Received {
    parsed: Result<Request, Problem>,
    body: Vec<u8>,
    is_head: bool,
    version: Version,
}

impl Shard {
    /// Takes a whole request. The simulated clients send well-formed ones: anything else is a
    /// defect of the parser.
    pub(super) fn receive(&mut self, conn: u32, bytes: &[u8]) {
        let received = read_request(bytes, self.random());
        let Received { parsed, body, is_head, version } = received;
        let state = State::Waiting(Pending::Write);
        self.exchanges.insert(conn, Exchange { is_head, version, state });
        match parsed {
            Ok(Request::Create(create)) => self.begin_create(conn, *create, &body),
            Ok(Request::Append(append)) => self.begin_append(conn, append, &body),
            Ok(Request::Read(read)) => self.begin_read(conn, read),
            Ok(Request::Head(path)) => {
                self.wait_for(conn, Pending::Head);
                self.ask(conn, node::Request::Head { path });
            }
            Ok(Request::Delete(path)) => self.ask(conn, node::Request::Delete { path }),
            Ok(Request::Preflight) => self.answer(conn, protocol::response::preflight),
            Err(problem) => self.answer_problem(conn, &problem),
        }
    }

    pub(super) fn wait_for(&mut self, conn: u32, pending: Pending) {
        if let Some(exchange) = self.exchanges.get_mut(&conn) {
            exchange.state = State::Waiting(pending);
        }
    }

    fn begin_create(&mut self, conn: u32, create: CreateRequest, body: &[u8]) {
        let ready = match create.finish(body) {
            Ok(ready) => ready,
            Err(problem) => return self.answer_problem(conn, &problem),
        };
        self.wait_for(conn, Pending::Create { location: ready.location });
        self.ask_with(conn, node::Request::Create(ready.asked), &ready.data);
    }

    fn begin_append(&mut self, conn: u32, append: AppendRequest, body: &[u8]) {
        let ready = match append.finish(body) {
            Ok(ready) => ready,
            Err(problem) => return self.answer_problem(conn, &problem),
        };
        let request = node::Request::Append { path: ready.path, append: ready.append };
        self.ask_with(conn, request, &ready.data);
    }

    fn begin_read(&mut self, conn: u32, read: ReadRequest) {
        let request = node::Request::Read(node::ReadRequest {
            path: read.path.clone(),
            from: read.offset,
            boundary_bytes: match read.live {
                Live::Sse => self.options.sse_event_bytes,
                Live::CatchUp | Live::LongPoll => self.options.boundary_bytes,
            },
        });
        self.wait_for(conn, Pending::Read(Box::new(read)));
        self.ask(conn, request);
    }
}

fn read_request(bytes: &[u8], random: u64) -> Received {
    let mut reader = HeadReader::default();
    // In two pieces, as sockets deliver: the first must not be taken for the whole.
    let cut = usize::try_from(random % bytes.len() as u64).expect("an index");
    let limits = HeadLimits::default();
    let mut slots = HeaderSlots::new();
    let early = reader.read(&bytes[..cut], &mut slots, &limits).expect("a well-formed beginning");
    let early_bytes = early.map(|head| head.head_bytes);
    if early_bytes.is_some() {
        reader = HeadReader::default();
    }
    let mut slots = HeaderSlots::new();
    let head = reader.read(bytes, &mut slots, &limits).expect("a well-formed head");
    let head = head.expect("a whole head");
    assert!(early_bytes.is_none_or(|early| early == head.head_bytes), "the head ends elsewhere");
    let rest = &bytes[head.head_bytes..];
    let mut body = Vec::new();
    match head.framing {
        Framing::None => {}
        Framing::Length(length) => {
            assert_eq!(length, rest.len() as u64, "the body is what was sent");
            body.extend_from_slice(rest);
        }
        Framing::Chunked => {
            let mut decoder = ChunkedDecoder::new(limits.body_bytes_max);
            let step = decoder.decode(rest, &mut body).expect("well-formed chunks");
            assert!(step.done && step.consumed == rest.len(), "the chunks end where they end");
        }
    }
    let is_head = head.method == Method::Head;
    Received { parsed: request::parse(&head, Scheme::Http), body, is_head, version: head.version }
}
