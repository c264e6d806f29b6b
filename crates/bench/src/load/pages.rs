//! A stream read from its beginning, page by page.

use super::body::{Body, Head, text_of};
use super::driver::Driver;
use super::socket::Socket;
use crate::api::{Api, ApiStyle, Content, Live, Read, ReadFrom};
use crate::failure::{Failure, Outcome};
use crate::server::Server;
use crate::{kafka, nats};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long one stream may take to be read whole.
const COLLECT_LIMIT: Duration = Duration::from_secs(60);

/// One reader.
#[derive(Debug)]
pub(crate) struct PageReader {
    /// Bytes of the stream that were read.
    pub(crate) position: u64,
    /// Where the stream ends, if it is known: no page is asked for beyond it.
    end: Option<u64>,
    content: Content,
    from: ReadFrom,
    /// The page in progress; none while its head is awaited.
    page: Option<Body>,
    page_start: u64,
    is_last: bool,
}

impl PageReader {
    pub(crate) fn new(api: &Api, end: Option<u64>) -> Self {
        Self {
            position: 0,
            end,
            content: Content::of(api.style, api.holds),
            from: ReadFrom::Begin,
            page: None,
            page_start: 0,
            is_last: false,
        }
    }

    /// Writes the request for the next page.
    pub(crate) fn ask(&self, api: &Api, stream: &str, out: &mut Vec<u8>) {
        let from = &self.from;
        api.put_read(out, stream, Read { from, live: Live::No, cursor: None });
    }

    /// Takes the input of `socket`. `sink` gets the stream's bytes with their position and says
    /// whether they are right. `true` when a page has ended: then either [`Self::is_done`] or the
    /// next page is to be asked for.
    pub(crate) fn take(
        &mut self,
        socket: &mut Socket,
        mut sink: impl FnMut(u64, &[u8]) -> bool,
    ) -> Outcome<bool> {
        if self.page.is_none() && !self.take_head(socket)? {
            return Ok(false);
        }
        let Self { page: Some(page), content, position, .. } = self else { return Ok(false) };
        let mut is_right = true;
        let has_ended = page.take(socket, |bytes| {
            content.take(bytes, |bytes| {
                is_right &= sink(*position, bytes);
                *position += bytes.len() as u64;
            });
        })?;
        if !is_right {
            let before = self.position;
            return Err(Failure::new(format!("a reader got wrong bytes before byte {before}")));
        }
        if has_ended {
            self.end_page();
        }
        Ok(has_ended)
    }

    /// The stream was read to its end.
    pub(crate) fn is_done(&self) -> bool {
        let is_at_end = self.end.is_some_and(|end| self.position >= end);
        (self.is_last || is_at_end) && self.page.is_none()
    }

    fn end_page(&mut self) {
        self.page = None;
        self.is_last |= self.position == self.page_start;
        if let Some(record) = self.content.next_record() {
            self.from = ReadFrom::At(record.to_string().into());
        }
    }

    fn take_head(&mut self, socket: &mut Socket) -> Outcome<bool> {
        let Some(head) = Head::parse(socket.input())? else { return Ok(false) };
        // S2 answers 416 to a read at the tail, the others an empty page.
        let is_tail = head.status == 416 && self.content.next_record().is_some();
        if !matches!(head.status, 200 | 204) && !is_tail {
            let answer = text_of(socket.input());
            return Err(Failure::new(format!(
                "a read was answered {}: {answer:.300}",
                head.status
            )));
        }
        socket.consume(head.head_bytes);
        self.page = Some(head.body());
        self.page_start = self.position;
        self.is_last = head.up_to_date || is_tail;
        if let Some(next) = head.next {
            self.from = ReadFrom::At(next);
        }
        Ok(true)
    }
}

/// Reads whole streams, one after the other, on a connection of its own.
#[derive(Debug)]
pub(crate) struct Collector {
    driver: Driver,
    address: SocketAddr,
    api: Api,
}

impl Collector {
    pub(crate) fn new(server: &Server) -> Outcome<Self> {
        Self::at(server, server.address)
    }

    /// One at this node of a server.
    pub(crate) fn at(server: &Server, address: SocketAddr) -> Outcome<Self> {
        let api = server.api.clone();
        Ok(Self { driver: Driver::connect(address, 1)?, address, api })
    }

    /// All that `stream` holds now.
    pub(crate) fn read_all(&mut self, stream: &str) -> Outcome<Vec<u8>> {
        match self.api.style {
            ApiStyle::Nats => nats::read_subject(self.address, stream),
            ApiStyle::Kafka => kafka::read_partition(self.address, stream),
            ApiStyle::Durable | ApiStyle::Ursula | ApiStyle::S2 => self.read_pages(stream),
        }
    }

    fn read_pages(&mut self, stream: &str) -> Outcome<Vec<u8>> {
        let mut data = Vec::new();
        let mut reader = PageReader::new(&self.api, None);
        let start = Instant::now();
        self.ask(&reader, stream);
        while start.elapsed() < COLLECT_LIMIT {
            let ready = self.driver.wait(Duration::from_millis(20))?;
            self.driver.done(ready);
            self.driver.fill(0);
            while reader.take(&mut self.driver.sockets[0], |_, bytes| {
                data.extend_from_slice(bytes);
                true
            })? {
                if reader.is_done() {
                    return Ok(data);
                }
                self.ask(&reader, stream);
            }
            if self.driver.sockets[0].is_ended {
                return Err(Failure::new(format!("{stream}: the connection was cut off")));
            }
        }
        Err(Failure::new(format!("{stream} was not read in {COLLECT_LIMIT:?}")))
    }

    fn ask(&mut self, reader: &PageReader, stream: &str) {
        let socket = &mut self.driver.sockets[0];
        reader.ask(&self.api, stream, &mut socket.output);
        socket.flush();
    }
}
