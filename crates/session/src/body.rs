//! Answers whose body is stored bytes: fetched in windows, one at a time, as the client takes them.
//!
//! A connection holds one window at most, however long the answer and however slow its reader. It does
//! not hold a range of a chunk file, which is sent by `sendfile`.

use crate::{
    connection::{Connection, Piece, State},
    due_answers::SharedAnswer,
    sessions::Step,
    slab::ConnId,
    transport::Transport,
    wire::{self, Meta},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use log::Slice;
use model::{ByteOffset, StreamKey};
use node::{Failure, ReadReply, Reply, Request};
use protocol::{
    BodyFraming, HeadSink, HttpDate,
    request::{Live, Pages, ReadRequest},
    response::{self, BodyPlan, ReadAnswer},
};
use std::io::Write;

/// Shorter answers gain nothing from compression.
const GZIP_BYTES_MIN: u64 = 1024;

/// Compressors at work per shard; each holds about 260 KiB. Further answers go out as they are.
const GZIP_COUNT_MAX: usize = 64;

/// A body under way.
#[derive(Debug)]
pub(crate) struct Sending {
    reply: ReadReply,
    next: ByteOffset,
    end: ByteOffset,
    suffix: &'static [u8],
    framing: BodyFraming,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// A window was asked for and has not come.
    asked: bool,
}

impl Sending {
    pub(crate) fn is_gzip(&self) -> bool {
        self.gzip.is_some()
    }
}

impl<T: Transport> Step<'_, T> {
    /// Answers a catch-up read, or a long-poll that has something to tell.
    pub(crate) fn answer_read(&mut self, id: ConnId, request: &ReadRequest, reply: ReadReply) {
        let gzip = self.may_gzip(request, &reply);
        let cursor = (request.live == Live::LongPoll).then(|| self.next_cursor(request.cursor));
        let answer = ReadAnswer {
            request,
            group: reply.key.group,
            info: &reply.info,
            start: reply.start,
            end: reply.end,
            is_stable: reply.end < reply.info.tail,
            cursor,
            records: reply.records,
            gzip,
            is_public: self.is_public(request),
            tail_age: self.state.options.tail_age,
        };
        let mut whole = false;
        let write = |head: &mut dyn HeadSink| {
            let plan = response::read(head, &answer);
            whole = !gzip && put_whole(head, &plan, reply.first.as_ref());
            plan
        };
        let is_file = matches!(reply.first, Some(Slice::File { .. }));
        let plan = if is_file && !gzip && self.takes_files(id) {
            self.queue_head(id, write)
        } else {
            self.send_head(id, write)
        };
        let Some(plan) = plan else { return };
        let BodyPlan::Range { start, end, frame, framing } = plan else {
            self.send_queued(id);
            return self.end_exchange(id);
        };
        self.state.counts.read_bytes += end.since(start);
        if whole {
            return self.end_exchange(id);
        }
        let compressor = || GzEncoder::new(Vec::new(), Compression::fast());
        self.state.gzip_count += usize::from(gzip);
        let mut sending = Sending {
            reply,
            next: start,
            end,
            suffix: frame.suffix,
            framing,
            gzip: gzip.then(compressor),
            asked: false,
        };
        let first = sending.reply.first.take();
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.state = State::Sending(Box::new(sending));
        self.put_body(id, frame.prefix);
        if let Some(slice) = first {
            self.take_window(id, slice);
        }
        self.continue_body(id);
    }

    pub(crate) fn may_gzip(&self, request: &ReadRequest, reply: &ReadReply) -> bool {
        let kind = reply.info.content_type.media_type();
        let is_text = reply.info.content_type.is_text()
            || kind.ends_with("json")
            || kind.ends_with("xml")
            || kind.eq_ignore_ascii_case("application/javascript");
        self.state.options.gzip
            && request.accepts_gzip
            && is_text
            && reply.end.since(reply.start) >= GZIP_BYTES_MIN
            && self.state.gzip_count < GZIP_COUNT_MAX
    }

    /// A window has come.
    pub(crate) fn handle_window(&mut self, id: ConnId, reply: Reply) {
        match reply {
            Reply::Window(slice) => {
                if let Some(sending) = self.sending(id) {
                    sending.asked = false;
                    let (key, from) = (sending.reply.owner_of(sending.next).0, sending.next);
                    self.keep_window(key, from, &slice);
                }
                self.take_window(id, slice);
                self.continue_body(id);
            }
            Reply::Failed(failure) => {
                self.cut(id, failure);
            }
            other => unreachable!("a window was answered by {other:?}"),
        }
    }

    /// Whether file ranges may be sent.
    fn takes_files(&self, id: ConnId) -> bool {
        let is_stream = self.state.connections.get(id).is_some_and(Connection::is_stream);
        !is_stream && self.io.takes_files(id)
    }

    fn sending(&mut self, id: ConnId) -> Option<&mut Sending> {
        match &mut self.state.connections.get_mut(id)?.state {
            State::Sending(sending) => Some(sending),
            _ => None,
        }
    }

    fn take_window(&mut self, id: ConnId, slice: Slice) {
        let Some(sending) = self.sending(id) else { return };
        let length = slice.len().min(sending.end.since(sending.next));
        sending.next = sending.next.advance(length);
        let is_plain = sending.gzip.is_none() && wire::is_unframed(sending.framing);
        let plain = is_plain && self.takes_files(id);
        match slice {
            Slice::File { file, position, .. } if plain => {
                let now = self.state.now.monotonic;
                if let Some(connection) = self.state.connections.get_mut(id)
                    && length > 0
                {
                    connection.push(Piece::File { file, position, left_bytes: length }, now);
                }
                self.handle_writable(id);
            }
            slice => match slice.to_bytes() {
                Ok(bytes) => {
                    let length = usize::try_from(length).expect("a window fits memory");
                    self.put_body(id, &bytes[..length]);
                }
                Err(error) => {
                    self.cut(id, Failure::Io { error: error.to_string() });
                }
            },
        }
    }

    /// Asks for the next window, or ends the body, when the client has taken what there was.
    pub(crate) fn continue_body(&mut self, id: ConnId) {
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if !connection.is_drained() {
            return;
        }
        let State::Sending(sending) = &connection.state else { return };
        if sending.asked {
            return;
        }
        if sending.next < sending.end {
            if !connection.has_room() || !self.may_move(id) {
                return;
            }
            return self.ask_window(id);
        }
        self.end_body(id);
    }

    fn ask_window(&mut self, id: ConnId) {
        let Some(sending) = self.sending(id) else { return };
        let (key, limit) = sending.reply.owner_of(sending.next);
        let (from, to) = (sending.next, limit.min(sending.end));
        if let Some(bytes) = self.state.windows.get(key, from, to) {
            self.take_window(id, Slice::Bytes(bytes));
            return self.continue_body(id);
        }
        let Some(sending) = self.sending(id) else { return };
        sending.asked = true;
        self.note_window(id);
        self.ask_on_key(id, Request::Window { key, from, to });
    }

    /// Keeps a window for readers of the same bytes that come next.
    pub(crate) fn keep_window(&mut self, key: StreamKey, from: ByteOffset, slice: &Slice) {
        if let Slice::Bytes(bytes) = slice {
            self.state.windows.put(key, from, bytes);
        }
    }

    fn end_body(&mut self, id: ConnId) {
        let Some(sending) = self.sending(id) else { return };
        let suffix = sending.suffix;
        self.put_body(id, suffix);
        let Some(sending) = self.sending(id) else { return };
        let framing = sending.framing;
        let mut rest = Vec::new();
        if let Some(gzip) = sending.gzip.take() {
            let compressed = gzip.finish().expect("writing to memory does not fail");
            wire::put_body(framing, &compressed, &mut rest);
            self.state.gzip_count -= 1;
        }
        rest.extend_from_slice(wire::end_of_body(framing));
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        connection.meta.note_framing(framing);
        if !rest.is_empty() && connection.send(self.io, &rest, now).is_err() {
            return self.drop_connection(id);
        }
        self.end_exchange(id);
        self.resume_input(id);
    }

    /// Sends bytes of the body, compressed and framed as the answer has it.
    fn put_body(&mut self, id: ConnId, bytes: &[u8]) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let State::Sending(sending) = &mut connection.state else { return };
        let framing = sending.framing;
        let sent = if let Some(gzip) = &mut sending.gzip {
            gzip.write_all(bytes).expect("writing to memory does not fail");
            let compressed = std::mem::take(gzip.get_mut());
            let mut framed = Vec::new();
            wire::put_body(framing, &compressed, &mut framed);
            connection.send(self.io, &framed, now)
        } else if wire::is_unframed(framing) {
            connection.send(self.io, bytes, now)
        } else {
            let mut framed = Vec::new();
            wire::put_body(framing, bytes, &mut framed);
            connection.send(self.io, &framed, now)
        };
        if sent.is_err() {
            self.drop_connection(id);
        }
    }
}

/// An answer with stored bytes that are at hand, as it goes out to everybody who asks alike.
pub(crate) fn whole_answer(
    meta: &Meta,
    shown: (&HttpDate, &Pages),
    answer: &ReadAnswer<'_>,
    data: &Bytes,
) -> SharedAnswer {
    let mut out = Vec::with_capacity(512 + data.len());
    let first = Slice::Bytes(data.clone());
    let (plan, status) = meta.write_head(&mut out, shown, false, |head| {
        let plan = response::read(head, answer);
        let is_whole = !answer.gzip && put_whole(head, &plan, Some(&first));
        assert!(is_whole || answer.gzip, "data that is at hand fits behind its head");
        plan
    });
    let BodyPlan::Range { start, end, frame, framing } = plan else {
        return SharedAnswer { bytes: out.into(), status, read_bytes: 0 };
    };
    let read_bytes = end.since(start);
    if answer.gzip {
        let stored = &data[..usize::try_from(read_bytes).expect("a window fits memory")];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        for part in [frame.prefix, stored, frame.suffix] {
            gzip.write_all(part).expect("writing to memory does not fail");
        }
        let body = gzip.finish().expect("writing to memory does not fail");
        wire::put_body(framing, &body, &mut out);
        out.extend_from_slice(wire::end_of_body(framing));
    }
    SharedAnswer { bytes: out.into(), status, read_bytes }
}

/// Puts a body behind its head if it is at hand as a whole: most answers are one system call.
fn put_whole(head: &mut dyn HeadSink, plan: &BodyPlan, first: Option<&Slice>) -> bool {
    let BodyPlan::Range { start, end, frame, framing: BodyFraming::Plain } = plan else {
        return false;
    };
    let length = usize::try_from(end.since(*start)).unwrap_or(usize::MAX);
    let bytes: &[u8] = match first {
        Some(Slice::Bytes(bytes)) if bytes.len() >= length => &bytes[..length],
        None if length == 0 => &[],
        _ => return false,
    };
    head.body(frame.prefix);
    head.body(bytes);
    head.body(frame.suffix);
    true
}
