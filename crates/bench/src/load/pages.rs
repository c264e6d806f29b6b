//! A stream read from its beginning, page by page, and compared with what it must hold.

use super::socket::Socket;
use crate::failure::{Failure, Outcome};
use crate::payload::Payloads;
use model::ByteOffset;
use protocol::client::{AnswerBody, Target, parse_answer, put_read};
use protocol::request::{Live, ReadOffset};

/// One reader.
#[derive(Debug, Default)]
pub(crate) struct PageReader {
    /// Bytes of the stream that were read and were right.
    pub(crate) position: u64,
    /// Bytes of the answer in progress that are missing; none while its head is awaited.
    body_left: Option<u64>,
    last_page: bool,
    next: Option<ByteOffset>,
}

impl PageReader {
    /// Writes the request for the next page.
    pub(crate) fn ask(&self, target: Target<'_>, out: &mut Vec<u8>) {
        let from = self.next.map_or(ReadOffset::Begin, ReadOffset::At);
        put_read(out, target, from, Live::CatchUp, None);
    }

    /// Takes the input of `socket`. `true` when a page has ended: then either [`Self::is_done`] or
    /// the next page is to be asked for.
    pub(crate) fn take(&mut self, socket: &mut Socket, payloads: &Payloads) -> Outcome<bool> {
        if self.body_left.is_none() && !self.take_head(socket)? {
            return Ok(false);
        }
        let left = self.body_left.unwrap_or_default();
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(socket.input().len());
        if !payloads.are_at(self.position, &socket.input()[..count]) {
            let at = self.position;
            return Err(Failure::new(format!("a reader got wrong bytes after byte {at}")));
        }
        socket.consume(count);
        self.position += count as u64;
        let left = left - count as u64;
        self.body_left = (left > 0).then_some(left);
        Ok(left == 0)
    }

    /// The stream was read to its tail.
    pub(crate) fn is_done(&self) -> bool {
        self.last_page && self.body_left.is_none()
    }

    fn take_head(&mut self, socket: &mut Socket) -> Outcome<bool> {
        let head = parse_answer(socket.input(), false);
        let head = head.map_err(|error| Failure::new(error.to_string()))?;
        let Some(head) = head else { return Ok(false) };
        let AnswerBody::Length(length) = head.body else {
            return Err(Failure::new("a page came without its length"));
        };
        if head.status != 200 {
            return Err(Failure::new(format!("a read was answered {}", head.status)));
        }
        socket.consume(head.head_bytes);
        self.body_left = Some(length);
        self.last_page = head.up_to_date || head.closed;
        self.next = head.next;
        Ok(true)
    }
}
