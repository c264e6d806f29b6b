//! A client on a plain socket: it sends what it is given and reads answers by the letter of
//! RFC 9112.

use super::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Where streams live.
pub(crate) const ROOT: &str = "/v1/stream";

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    socket: TcpStream,
    /// Received and not used yet.
    input: Vec<u8>,
}

/// One answer, its body decoded from its framing.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a field, if it is there once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice in {}", self.head);
        value
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Asserts the status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(400)]);
        assert_eq!(self.status, status, "{}\n{body}", self.head);
        self
    }

    /// Asserts status and `code` of a problem.
    #[track_caller]
    pub(crate) fn fails(self, status: u16, code: &str) -> Self {
        let answer = self.is(status);
        assert_eq!(answer.field("Content-Type"), Some("application/problem+json"));
        assert_eq!(answer.json()["code"], code);
        answer
    }

    /// `Stream-Next-Offset`.
    #[track_caller]
    pub(crate) fn next(&self) -> &str {
        self.field("Stream-Next-Offset").expect("an offset")
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server accepts"))
    }

    pub(crate) fn over(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, input: Vec::new() }
    }

    /// As [`Client::connect_narrow`], over segments as short as the Internet has them. The server's kernel
    /// then takes some 50 KiB for it, and not the megabytes that it takes on the loopback.
    pub(crate) fn connect_far(address: SocketAddr) -> Self {
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.set_tcp_mss(1400).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    /// Connects with a receive buffer so small that the server soon cannot send on.
    pub(crate) fn connect_narrow(address: SocketAddr) -> Self {
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    /// Sends as much as is taken; a server that has refused may have closed.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Sends a request for a stream without waiting for its answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) {
        self.send(&request(method, path, fields, body));
    }

    /// Sends a request for a stream and reads the answer.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.ask(method, path, fields, body);
        if method == "HEAD" { self.answer_to_head() } else { self.answer() }
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, &[], b"")
    }

    pub(crate) fn put(&mut self, path: &str, kind: &str) -> Answer {
        self.call("PUT", path, &[("Content-Type", kind)], b"")
    }

    pub(crate) fn post(&mut self, path: &str, kind: &str, body: &[u8]) -> Answer {
        self.call("POST", path, &[("Content-Type", kind)], body)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Answer {
        self.call("DELETE", path, &[], b"")
    }

    /// All bytes of a stream of text or binary, by catch-up reads.
    pub(crate) fn read_all(&mut self, path: &str) -> Vec<u8> {
        let mut all = Vec::new();
        let mut answer = self.get(path).is(200);
        loop {
            all.extend_from_slice(&answer.body);
            if answer.field("Stream-Up-To-Date").is_some() {
                return all;
            }
            answer = self.get(&format!("{path}?offset={}", answer.next())).is(200);
        }
    }

    /// The next answer to anything but HEAD.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.answer_to_head();
        let status = answer.status;
        if status < 200 || status == 204 || status == 304 {
            return answer;
        }
        answer.body = if answer.field("Transfer-Encoding") == Some("chunked") {
            self.chunks()
        } else if let Some(length) = answer.field("Content-Length") {
            self.take(length.parse().expect("digits"))
        } else {
            self.rest()
        };
        answer
    }

    /// The next answer, if one comes before the connection ends.
    pub(crate) fn try_answer(&mut self) -> Option<Answer> {
        if self.input.is_empty() && self.fill() == 0 { None } else { Some(self.answer()) }
    }

    /// The next head of an answer.
    #[track_caller]
    pub(crate) fn answer_to_head(&mut self) -> Answer {
        let head = self.until(b"\r\n\r\n");
        let head = String::from_utf8(head).expect("a head is text");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer { status: status.expect("a status"), head, body: Vec::new() }
    }

    /// All chunks of a body.
    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk() {
            body.extend_from_slice(&chunk);
        }
        body
    }

    /// The next chunk of a body; `None` for the last.
    #[track_caller]
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.until(b"\r\n");
        let digits = std::str::from_utf8(&line[..line.len() - 2]).expect("a chunk line is text");
        let length = usize::from_str_radix(digits, 16).expect("a chunk begins with its size");
        let chunk = self.take(length);
        assert_eq!(self.take(2), b"\r\n");
        (length > 0).then_some(chunk)
    }

    #[track_caller]
    fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            let found = self.input.windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                return self.input.drain(..at + mark.len()).collect();
            }
            assert!(
                self.fill() > 0,
                "the connection ended inside {:?}",
                String::from_utf8_lossy(&self.input)
            );
        }
    }

    #[track_caller]
    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.input.len() < count {
            assert!(self.fill() > 0, "{} of {count} bytes came", self.input.len());
        }
        self.input.drain(..count).collect()
    }

    /// Everything until the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.input)
    }

    /// What has come and was not used.
    pub(crate) fn received(&self) -> &[u8] {
        &self.input
    }

    /// Waits for the next bytes, or the end.
    pub(crate) fn wait_for_bytes(&mut self) {
        self.fill();
    }

    #[track_caller]
    fn fill(&mut self) -> usize {
        let mut buffer = [0; 64 << 10];
        match self.socket.read(&mut buffer) {
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                count
            }
            // A read with a timeout says so when the process was stopped for a moment.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.fill(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing comes: {error}"),
        }
    }

    /// Whether the server has ended the connection and sent nothing more.
    #[track_caller]
    pub(crate) fn is_over(&mut self) -> bool {
        self.input.is_empty() && self.fill() == 0
    }

    /// Sends no more, and reads on.
    pub(crate) fn end_sending(&mut self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// From now on [`Client::churn`] may be called, and nothing else.
    pub(crate) fn begin_churning(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
    }

    /// Sends as much of `bytes` as is taken at once and throws away what has come; how many bytes
    /// were sent, or nothing if the connection is over.
    pub(crate) fn churn(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut buffer = [0; 64 << 10];
        match self.socket.read(&mut buffer) {
            Ok(0) => return None,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return None,
            _ => {}
        }
        match self.socket.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            sent => sent.ok(),
        }
    }

    /// How long reading waits.
    pub(crate) fn set_patience(&mut self, time: Duration) {
        self.socket.set_read_timeout(Some(time)).unwrap();
    }

    /// How long sending waits.
    pub(crate) fn set_sending_patience(&mut self, time: Duration) {
        self.socket.set_write_timeout(Some(time)).unwrap();
    }

    /// Whether anything has come already; the end of the connection counts.
    pub(crate) fn has_answer(&mut self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let is_answered = self.is_answered();
        self.socket.set_nonblocking(false).unwrap();
        is_answered
    }

    /// Whether anything comes while the patience lasts; the end of the connection counts.
    pub(crate) fn is_answered(&mut self) -> bool {
        let mut one = [0];
        !self.input.is_empty() || self.socket.peek(&mut one).is_ok()
    }
}

/// A position as offsets show it.
pub(crate) fn offset(position: u64) -> String {
    format!("{position:016}_{:016}", 0)
}

/// The bytes of a request for a stream.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {ROOT}{path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let is_read = method == "GET" || method == "HEAD";
    if !is_read || !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
