//! Requests out, answers in, on plain blocking sockets.
//!
//! The client crate offers calls. Here each request is made by hand, and several are sent before the
//! first answer. It matters which of them had an answer when the connection broke.

use client::EventReader;
use model::ByteOffset;
use protocol::client::{AnswerBody, AnswerHead, parse_answer};
use protocol::http1::ChunkedDecoder;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any answer may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const ROOT: &str = "/v1/stream";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    is_over: bool,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// `Stream-Next-Offset`, as a count of bytes.
    pub(crate) next: Option<u64>,
    pub(crate) closed: bool,
    pub(crate) up_to_date: bool,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn new(head: &AnswerHead, body: Vec<u8>) -> Self {
        Self {
            status: head.status,
            next: head.next.map(|next| next.since(ByteOffset::ZERO)),
            closed: head.closed,
            up_to_date: head.up_to_date,
            body,
        }
    }

    pub(crate) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }

    /// The code of a problem, or nothing.
    pub(crate) fn code(&self) -> String {
        let problem: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let code = problem.as_ref().and_then(|problem| problem["code"].as_str());
        code.unwrap_or_default().to_owned()
    }

    /// Status and body, for a person.
    pub(crate) fn shown(&self) -> String {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]);
        format!("{} {body}", self.status)
    }
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, input: Vec::new(), is_over: false })
    }

    /// The server has said with an answer that it takes no other request here.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Sends one request and reads its answer.
    pub(crate) fn call(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.send(request)?;
        if request.starts_with(b"HEAD ") {
            let head = self.head(true)?;
            return Ok(Answer::new(&head, Vec::new()));
        }
        self.answer()
    }

    /// The next answer to anything but HEAD.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let head = self.head(false)?;
        let body = self.body(head.body)?;
        Ok(Answer::new(&head, body))
    }

    fn head(&mut self, is_head: bool) -> io::Result<AnswerHead> {
        loop {
            let head = parse_answer(&self.input, is_head).map_err(io::Error::other)?;
            let Some(head) = head else {
                self.fill()?;
                continue;
            };
            self.input.drain(..head.head_bytes);
            if head.status >= 200 {
                self.is_over |= !head.keep_alive;
                return Ok(head);
            }
        }
    }

    fn body(&mut self, framing: AnswerBody) -> io::Result<Vec<u8>> {
        match framing {
            AnswerBody::Length(length) => {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                while self.input.len() < length {
                    self.fill()?;
                }
                let rest = self.input.split_off(length);
                Ok(std::mem::replace(&mut self.input, rest))
            }
            AnswerBody::Chunked => {
                let mut decoder = ChunkedDecoder::new(u64::MAX);
                let mut body = Vec::new();
                while !self.chunks(&mut decoder, &mut body)? {}
                Ok(body)
            }
            AnswerBody::UntilClose => {
                while self.receive()? > 0 {}
                Ok(std::mem::take(&mut self.input))
            }
        }
    }

    /// Takes what is there of a chunked body, or waits for more; whether it is complete.
    fn chunks(&mut self, decoder: &mut ChunkedDecoder, body: &mut Vec<u8>) -> io::Result<bool> {
        if self.input.is_empty() {
            self.fill()?;
        }
        let step = decoder.decode(&self.input, body);
        let step = step.map_err(|error| io::Error::other(format!("broken chunks: {error:?}")))?;
        self.input.drain(..step.consumed);
        Ok(step.done)
    }

    /// Asks for events and gives each to `take` until the answer ends or `take` says no.
    pub(crate) fn events(
        &mut self,
        request: &[u8],
        mut take: impl FnMut(client::Event) -> bool,
    ) -> io::Result<u16> {
        self.send(request)?;
        let head = self.head(false)?;
        if head.status != 200 {
            self.body(head.body)?;
            return Ok(head.status);
        }
        let (mut decoder, mut reader) = (ChunkedDecoder::new(u64::MAX), EventReader::default());
        let (mut wants_more, mut is_done) = (true, false);
        while wants_more && !is_done {
            let mut bytes = Vec::new();
            is_done = self.chunks(&mut decoder, &mut bytes)?;
            reader.push(&bytes, |event| wants_more = wants_more && take(event))?;
        }
        Ok(head.status)
    }

    fn fill(&mut self) -> io::Result<()> {
        match self.receive()? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 << 10];
        let count = loop {
            match self.socket.read(&mut buffer) {
                // A read with a timeout says so when the process was stopped for a moment.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                count => break count?,
            }
        };
        self.input.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// The bytes of a request for a stream.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {ROOT}{path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !matches!(method, "GET" | "HEAD") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// A position as the wire has it.
pub(crate) fn offset(position: u64) -> String {
    format!("{position:016}_{:016}", 0)
}

/// The reference of a stream in a fork's header.
pub(crate) fn reference(path: &str) -> String {
    format!("{ROOT}{path}")
}

/// What the admin server answers to a GET: status and body.
pub(crate) fn admin(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut connection = Connection::open(address)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = connection.call(request.as_bytes())?;
    Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
}
