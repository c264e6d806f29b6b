//! Answers that many clients are due at the same moment, given in slices: some in each turn.
//!
//! # Why
//! One append may wake thousands of long-polls, and one deletion may end as many answers of server-sent events. Each costs
//! a system call or two. All of them in one turn would hold up everybody else for a tenth of a second.
//!
//! # How
//! A change takes the long-polls that it wakes out of their stream and puts them here. They are answered with what
//! the change brought, in the order in which they came. Polls that ask alike share the bytes of one answer.
//! Readers that have got the last event of their answer wait here for its end.
//!
//! # Invariants
//! - A long-poll waits at its stream or here, and nowhere else.
//! - What waits here waits for a turn of this loop alone.

use crate::slab::ConnId;
use bytes::Bytes;
use model::ByteOffset;
use node::Change;
use protocol::request::Sender;
use std::collections::VecDeque;

/// Time that one turn spends on answers of one kind. To a distant client one may cost ten times as much as on the
/// loopback.
pub(crate) const TURN_NS_MAX: u64 = 400_000;

/// Answers that wait for a turn.
#[derive(Debug, Default)]
pub(crate) struct DueAnswers {
    pub news: VecDeque<News>,
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
pub(crate) struct News {
    pub change: Change,
    pub polls: VecDeque<(u64, ConnId)>,
    /// What the last one got.
    pub last: Option<(Shape, SharedAnswer)>,
}

/// What makes two answers to the news of one change the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub offset: ByteOffset,
    pub is_now: bool,
    pub cursor: u64,
    pub gzip: bool,
    /// The second of the answer's date.
    pub second: u64,
    pub is_public: bool,
    /// The web page that it is for.
    pub sender: Sender,
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

    pub(crate) fn take_end(&mut self) -> Option<ConnId> {
        self.ends_left = self.ends_left.checked_sub(1)?;
        self.ends.pop_front()
    }

    /// Takes the next poll out of `news`, if the turn has room for its answer.
    pub(crate) fn take_poll(&mut self, news: &mut News) -> Option<(u64, ConnId)> {
        self.news_left = self.news_left.checked_sub(1)?;
        news.polls.pop_front()
    }
}
