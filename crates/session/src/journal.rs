//! One line for each exchange: for the access log all of them, for the audit log those that were denied or took something
//! away.
//!
//! # Why here
//! Only a session knows when an exchange begins, whose it is, and when its last byte was given. It writes lines into memory, and
//! the driver takes them when it likes.
//!
//! # Invariants
//! - Lines that wait are bounded. One that finds no room is lost and counted; no request is delayed or fails.
//! - Each exchange has at most one line in each log.
//! - Of one address at most one denial in a second has an audit line. How many more there were follows.

use crate::options::Logs;
use model::{Monotonic, ShardId, Timestamp};
use node::Stamp;
use protocol::{
    TraceId,
    log_line::{LINE_BYTES_MAX, LogLine, SecondText, more_denials},
    request::Asked,
};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Bytes of lines of one log that wait to be taken.
const LINES_BYTES_MAX: usize = 256 << 10;

/// Addresses whose denials are counted apart in one second.
const ADDRESSES_MAX: usize = 1024;

const _: () = assert!(LINES_BYTES_MAX > 4 * LINE_BYTES_MAX);

/// Lines for both logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// For the access log.
    pub access: String,
    /// For the audit log.
    pub audit: String,
}

impl Lines {
    /// How many bytes they are.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.access.len() + self.audit.len()
    }
}

/// What is known of an exchange that is under way.
#[derive(Debug)]
pub(crate) struct Entry {
    asked: Box<Asked>,
    address: IpAddr,
    pub who: Option<Arc<str>>,
    trace: Option<TraceId>,
    since: Monotonic,
    head_at: Monotonic,
    status: u16,
    pub code: Option<&'static str>,
    pub body_bytes: u64,
    pub answer_bytes: u64,
}

/// How an exchange came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came {
    pub wire: &'static str,
    pub is_tls: bool,
    pub is_cut: bool,
}

impl Entry {
    pub(crate) fn new(
        asked: Box<Asked>,
        address: IpAddr,
        trace: Option<TraceId>,
        now: Monotonic,
    ) -> Self {
        Self {
            asked,
            address,
            who: None,
            trace,
            since: now,
            head_at: now,
            status: 0,
            code: None,
            body_bytes: 0,
            answer_bytes: 0,
        }
    }

    /// The head of the answer is written.
    pub(crate) fn note_head(&mut self, status: u16, now: Monotonic) {
        (self.status, self.head_at) = (status, now);
    }

    /// What an audit log calls it, if it is one of its matters.
    fn event(&self) -> Option<&'static str> {
        match self.status {
            401 | 403 | 421 => Some("denied"),
            429 => Some("limited"),
            _ if self.asked.takes_away => Some("removal"),
            _ => None,
        }
    }
}

/// The lines of one session.
#[derive(Debug)]
pub(crate) struct Journal {
    logs: Logs,
    shard: ShardId,
    lines: Lines,
    second: SecondText,
    denials: Denials,
    /// Lines that found no room.
    pub lost: u64,
}

/// Denials of the present second.
#[derive(Debug, Default)]
struct Denials {
    /// How many came behind the one that has a line.
    more: HashMap<IpAddr, u64>,
    /// Those of addresses that found no place.
    others: u64,
}

impl Journal {
    pub(crate) fn new(logs: Logs, shard: ShardId, now: Timestamp) -> Self {
        let second = SecondText::new(now);
        let (lines, denials) = Default::default();
        Self { logs, shard, lines, second, denials, lost: 0 }
    }

    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.logs.is_any()
    }

    /// Writes the lines of an exchange that is over.
    pub(crate) fn end(&mut self, entry: &Entry, came: Came, now: Stamp) {
        self.begin_second(now.wall);
        let us = |at: Monotonic| at.get().saturating_sub(entry.since.get()) / 1000;
        let mut line = LogLine {
            event: None,
            at: now.wall,
            address: entry.address,
            who: entry.who.as_deref(),
            wire: came.wire,
            is_tls: came.is_tls,
            asked: &entry.asked,
            trace: entry.trace.as_ref(),
            status: entry.status,
            code: entry.code,
            bytes: (entry.body_bytes, entry.answer_bytes),
            took_us: (us(entry.head_at), us(now.monotonic)),
            is_cut: came.is_cut,
            shard: self.shard.get(),
        };
        if self.logs.access {
            self.lost +=
                u64::from(!put(&mut self.lines.access, |out| line.render(&self.second, out)));
        }
        line.event = entry.event();
        if !self.logs.audit || line.event.is_none() {
            return;
        }
        if line.event == Some("removal") || self.denials.has_line(entry.address) {
            self.lost +=
                u64::from(!put(&mut self.lines.audit, |out| line.render(&self.second, out)));
        }
    }

    /// Lines from now on are of another second, perhaps.
    fn begin_second(&mut self, now: Timestamp) {
        if self.second.is_of(now) {
            return;
        }
        let Denials { more, others } = std::mem::take(&mut self.denials);
        let others = (others > 0).then_some((None, others));
        let mut more: Vec<(IpAddr, u64)> = more.into_iter().filter(|(_, more)| *more > 0).collect();
        more.sort_unstable();
        for counted in more.into_iter().map(|(address, more)| (Some(address), more)).chain(others) {
            let is_put =
                put(&mut self.lines.audit, |out| more_denials(&self.second, now, counted, out));
            self.lost += u64::from(!is_put);
        }
        self.second = SecondText::new(now);
    }

    pub(crate) fn take(&mut self, now: Timestamp) -> Lines {
        self.begin_second(now);
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes()
    }

    /// Puts lines back that nobody has taken.
    pub(crate) fn put_back(&mut self, lines: Lines) {
        debug_assert_eq!(self.lines.bytes(), 0, "they were all taken");
        self.lines = lines;
    }
}

impl Denials {
    /// Counts a denial; whether it has a line of its own.
    fn has_line(&mut self, address: IpAddr) -> bool {
        if let Some(more) = self.more.get_mut(&address) {
            *more += 1;
            return false;
        }
        if self.more.len() == ADDRESSES_MAX {
            self.others += 1;
            return false;
        }
        self.more.insert(address, 0);
        true
    }
}

/// Appends a line if there is room for the longest.
fn put(lines: &mut String, write: impl FnOnce(&mut String)) -> bool {
    let has_room = lines.len() + LINE_BYTES_MAX <= LINES_BYTES_MAX;
    if has_room {
        write(lines);
    }
    has_room
}
