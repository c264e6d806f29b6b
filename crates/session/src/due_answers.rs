//! Answers that many clients are due at the same moment, given in slices: some in each turn.
//!
//! # Why
//! One append may wake thousands of long-polls, and one deletion may end as many answers of server-sent events. Each costs
//! a system call or two. All of them in one turn would hold up everybody else for a tenth of a second.
//!
//! # How
//! A change takes the long-polls that it wakes out of their stream and puts them here. They are answered with what
//! the change told, in the order in which they came. Polls that ask alike share the bytes of one answer.
//! Readers that have got the last event of their answer wait here for its end.
//!
//! # Invariants
//! - A long-poll waits at its stream or here, and nowhere else.
//! - What waits here waits for a turn of this loop alone.

use crate::{
    body::whole_answer, connection::Poll, sessions::Step, slab::ConnId, transport::Transport,
};
use bytes::Bytes;
use log::Slice;
use model::ByteOffset;
use node::{Change, ReadReply};
use protocol::response::ReadAnswer;
use std::collections::VecDeque;

/// Time that one turn spends on answers of one kind. To a distant client one may cost ten times as much as on the
/// loopback.
pub(crate) const TURN_NS_MAX: u64 = 400_000;

/// Answers that wait for a turn.
#[derive(Debug, Default)]
pub(crate) struct DueAnswers {
    news: VecDeque<News>,
    /// Readers of server-sent events that have got all of theirs.
    ends: VecDeque<ConnId>,
    /// What this turn may still do.
    news_left: usize,
    ends_left: usize,
    pub timeouts_left: usize,
    /// Of a sweep.
    pub deeds_left: usize,
}

/// A change, and the long-polls that it woke.
#[derive(Debug)]
struct News {
    change: Change,
    polls: VecDeque<(u64, ConnId)>,
    /// What the last one got.
    last: Option<(Shape, SharedAnswer)>,
}

/// What makes two answers to the news of one change the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    offset: ByteOffset,
    is_now: bool,
    cursor: u64,
    gzip: bool,
    /// The second of the answer's date.
    second: u64,
}

/// A whole answer as it goes out.
#[derive(Debug, Clone)]
pub(crate) struct SharedAnswer {
    pub bytes: Bytes,
    pub status: u16,
    /// Stored bytes in it.
    pub read_bytes: u64,
}

impl DueAnswers {
    /// A turn begins, with room for so many answers of each kind. One takes some 5 to 10 µs.
    pub(crate) fn begin_turn(&mut self, count_max: usize) {
        (self.news_left, self.ends_left) = (count_max, count_max);
        (self.timeouts_left, self.deeds_left) = (count_max, count_max);
    }

    /// Whether something waits for the next turn.
    pub(crate) fn is_any(&self) -> bool {
        !self.news.is_empty() || !self.ends.is_empty()
    }

    pub(crate) fn add_news(&mut self, change: &Change, polls: Vec<(u64, ConnId)>) {
        if !polls.is_empty() {
            let (change, polls) = (change.clone(), polls.into());
            self.news.push_back(News { change, polls, last: None });
        }
    }

    pub(crate) fn add_end(&mut self, id: ConnId) {
        self.ends.push_back(id);
    }

    /// The long-polls that wait here, by their numbers.
    pub(crate) fn polls(&self) -> impl Iterator<Item = (u64, ConnId)> {
        self.news.iter().flat_map(|news| news.polls.iter().copied())
    }

    /// The readers whose answers end.
    pub(crate) fn ends(&self) -> impl Iterator<Item = ConnId> {
        self.ends.iter().copied()
    }

    fn take_end(&mut self) -> Option<ConnId> {
        self.ends_left = self.ends_left.checked_sub(1)?;
        self.ends.pop_front()
    }

    /// Takes the next poll out of `news`, if the turn has room for its answer.
    fn take_poll(&mut self, news: &mut News) -> Option<(u64, ConnId)> {
        self.news_left = self.news_left.checked_sub(1)?;
        news.polls.pop_front()
    }
}

impl<T: Transport> Step<'_, T> {
    /// Gives answers that are due, as many as this turn has room for.
    pub(crate) fn give_due(&mut self) {
        if !self.state.due.is_any() {
            return;
        }
        let began_ns = self.io.turn_ns();
        while self.io.turn_ns() - began_ns <= TURN_NS_MAX
            && let Some(id) = self.state.due.take_end()
        {
            self.end_sse_now(id);
        }
        while let Some(mut news) = self.state.due.news.pop_front() {
            self.give_news(&mut news);
            if !news.polls.is_empty() {
                return self.state.due.news.push_front(news);
            }
        }
    }

    fn give_news(&mut self, news: &mut News) {
        let began_ns = self.io.turn_ns();
        while self.io.turn_ns() - began_ns <= TURN_NS_MAX
            && let Some((number, id)) = self.state.due.take_poll(news)
        {
            if let Some(poll) = self.take_poll(id, number) {
                self.tell(id, *poll, news);
            }
        }
    }

    /// Answers a long-poll with what a change has told.
    fn tell(&mut self, id: ConnId, poll: Poll, news: &mut News) {
        let change = &news.change;
        let data = change.data.as_ref().filter(|_| change.data_start() == Some(poll.offset));
        let Some(data) = data.filter(|_| !change.gone) else {
            // Too large to be shared, deleted, or closed without data: ask for the present state.
            return self.reread(id, poll.request, poll.offset);
        };
        let mut info = poll.info;
        (info.tail, info.closed) = (change.tail, change.closed);
        let first = Some(Slice::Bytes(data.clone()));
        let reply = ReadReply { key: poll.key, info, start: poll.offset, end: change.tail, first };
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        let meta = connection.meta;
        if !meta.may_be_followed() || !connection.ahead.is_empty() {
            self.answer_read(id, &poll.request, reply);
            return self.resume_input(id);
        }
        let shape = Shape {
            offset: poll.offset,
            is_now: poll.request.offset == model::ReadFrom::Now,
            cursor: self.next_cursor(poll.request.cursor),
            gzip: self.may_gzip(&poll.request, &reply),
            second: self.state.now.wall.get() / 1000,
        };
        let known = news.last.take().filter(|(last, _)| *last == shape);
        let (_, shared) = news.last.insert(known.unwrap_or_else(|| {
            let answer = ReadAnswer {
                request: &poll.request,
                group: reply.key.group,
                info: &reply.info,
                start: reply.start,
                end: reply.end,
                is_stable: false,
                cursor: Some(shape.cursor),
                gzip: shape.gzip,
            };
            (shape, whole_answer(&meta, &self.state.date, &answer, data))
        }));
        let shared = shared.clone();
        self.send_whole(id, &shared);
    }

    /// Sends a whole answer, and ends the exchange.
    fn send_whole(&mut self, id: ConnId, answer: &SharedAnswer) {
        let now = self.state.now.monotonic;
        let Some(connection) = self.state.connections.get_mut(id) else { return };
        if connection.send_shared(self.io, &answer.bytes, now).is_err() {
            return self.drop_connection(id);
        }
        self.state.counts.count_answer(answer.status);
        self.state.counts.read_bytes += answer.read_bytes;
        self.end_exchange(id);
        self.resume_input(id);
    }
}
