//! Whose bytes move next: stored ones, and frames for live readers.
//!
//! A reader that catches up reads for as long as its socket takes bytes. A thousand of them together could
//! fill a turn of the loop with seconds of work. So a turn moves a bounded number of windows. It asks
//! other loops for no more windows than they answer in a short turn of their own. Readers beyond that are
//! queued, new ones with their whole answer. Short answers never queue.
//!
//! In the same way a commit may be news for thousands of live readers. They share one frame, but each
//! costs a system call, or a copy into the frames of the connection that carries its stream. A turn makes a bounded number of
//! these. Further readers keep the frame in their queues until a later turn.
//!
//! # Invariants
//! - Queued readers are served before new ones. A reader moves a bounded number of windows in a row, and
//!   then goes behind all others: most histories are over by then. Clients that are done one after the other wait
//!   less, on average, than clients that are all done at the end.
//! - A live reader is in the queue of unsent frames while no write of its frames was tried yet. For all
//!   others with queued bytes, the system reports when they may continue.
//! - Every window that was asked for is answered, so the count of asked windows always falls again.

use crate::{
    connection::State,
    sessions::{Sessions, Step},
    slab::{ConnId, Slab},
    transport::Transport,
    wire::ExchangeId,
};
use std::collections::{HashSet, VecDeque};

/// Windows that one turn asks for. At 64 KiB each they take a fraction of a millisecond. A request may wait
/// for four turns: until it is read, executed by its owner, durable, and answered.
const WINDOWS_PER_TURN_MAX: usize = 4;

/// Windows that are asked for and have not come. More would only wait in another loop's mail, in
/// front of the requests that come after them.
const WINDOWS_ASKED_MAX: usize = 8;

/// Windows that a reader moves in a row, turn after turn, before it goes to the end of the line.
const WINDOWS_IN_A_ROW: u8 = 4;

/// What one turn spends on live readers, as if each byte went out by a connection of its own.
const FRAME_BYTES_PER_TURN_MAX: usize = 256 << 10;

/// Time that one turn spends on frames of earlier turns. To a distant client, whose segments are short, a frame
/// may cost ten times as much as on the loopback.
const FRAMES_NS_MAX: u64 = 400_000;

/// What a short frame counts in that: most of it is the system call.
const FRAME_BYTES_MIN: usize = 4 << 10;

/// The same on a stream, where a frame counts a quarter of its bytes: it is copied in memory. The system call of its connection is
/// counted with the first frame that goes out by it.
const STREAM_FRAME_BYTES_MIN: usize = 192;

/// The lines of readers and what they may still move.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    waiting: VecDeque<ConnId>,
    /// Exchanges that have asked for a window.
    asked: HashSet<ExchangeId>,
    /// Windows that this turn may still ask for.
    left_count: usize,
    /// Long answers of this turn that may still bring their first window at once.
    ahead_count: usize,
    /// The reader whose turn in the line has come.
    called: Option<ConnId>,
    /// Live readers with frames that wait for a turn.
    unsent: VecDeque<ConnId>,
    /// What this turn may still send to live readers.
    left_frame_bytes: usize,
}

impl FairQueue {
    pub(crate) fn begin_turn(&mut self) {
        self.left_count = WINDOWS_PER_TURN_MAX;
        self.ahead_count = WINDOWS_PER_TURN_MAX;
        self.left_frame_bytes = FRAME_BYTES_PER_TURN_MAX;
    }

    /// Whether there is something to do without any event.
    pub(crate) fn is_ready(&self) -> bool {
        let may_ask = !self.waiting.is_empty() && self.asked.len() < WINDOWS_ASKED_MAX;
        may_ask || !self.unsent.is_empty()
    }

    fn may_send_frame(&self) -> bool {
        self.unsent.is_empty() && self.left_frame_bytes > 0
    }

    /// Asserts that a reader waits once, and that a turn moves no more than it may.
    pub(crate) fn check(&self) {
        let once: HashSet<&ConnId> = self.waiting.iter().collect();
        assert_eq!(once.len(), self.waiting.len(), "a reader waits twice for its turn");
        assert!(self.left_count <= WINDOWS_PER_TURN_MAX, "a turn moves too many windows");
        assert_eq!(self.called, None, "a reader is called outside of a turn");
    }

    /// Whether `id` waits to move stored bytes.
    pub(crate) fn has_queued(&self, id: ConnId) -> bool {
        self.waiting.contains(&id)
    }

    fn count_frame(&mut self, cost: usize) {
        self.left_frame_bytes = self.left_frame_bytes.saturating_sub(cost);
    }

    /// `id` has queued its first frame and nothing was tried yet.
    pub(crate) fn note_unsent(&mut self, id: ConnId) {
        self.unsent.push_back(id);
    }

    fn call_unsent(&mut self) -> Option<ConnId> {
        if self.left_frame_bytes == 0 { None } else { self.unsent.pop_front() }
    }

    fn has_room(&self) -> bool {
        self.left_count > 0 && self.asked.len() < WINDOWS_ASKED_MAX
    }

    /// Takes the reader at the front of the line, if there is room for one.
    fn call(&mut self) -> Option<ConnId> {
        if !self.has_room() {
            return None;
        }
        self.called = self.waiting.pop_front();
        self.called
    }

    /// Whether `id` may continue now. Otherwise it must queue.
    fn admit(&mut self, id: ConnId) -> bool {
        let is_next = self.waiting.is_empty() || self.called == Some(id);
        if !is_next || !self.has_room() {
            return false;
        }
        self.left_count -= 1;
        true
    }

    /// Puts `id` into the line: to its front while a reader may move more of the windows in a row. It has moved `in_a_row`.
    fn join(&mut self, id: ConnId, in_a_row: &mut u8) {
        if (1..WINDOWS_IN_A_ROW).contains(in_a_row) {
            self.waiting.push_front(id);
        } else {
            *in_a_row = 0;
            self.waiting.push_back(id);
        }
    }

    /// Whether a reader that asks now may be served at once if its answer is long. Otherwise what is read for it would be
    /// dropped and read again in its turn.
    pub(crate) fn may_read_ahead(&mut self) -> bool {
        let has_turn = self.waiting.is_empty() && self.has_room() && self.ahead_count > 0;
        self.ahead_count -= usize::from(has_turn);
        has_turn
    }

    /// `id` has asked for a window. A read is none: on a stream with a lifetime it may wait for a sync.
    pub(crate) fn note_asked(&mut self, exchange: ExchangeId) {
        self.asked.insert(exchange);
    }

    /// An answer for `id` has come.
    #[inline]
    pub(crate) fn note_answered(&mut self, exchange: ExchangeId) {
        if !self.asked.is_empty() {
            self.asked.remove(&exchange);
        }
    }
}

impl Sessions {
    /// Whether a frame may be sent now; `false` if its reader must queue it and join the line. `parent` carries the reader's stream.
    pub(crate) fn admit_frame(&mut self, parent: Option<ConnId>, bytes: usize) -> bool {
        let may_send = self.fair.may_send_frame();
        if may_send {
            self.count_frame(parent, bytes);
        }
        may_send
    }

    fn count_frame(&mut self, parent: Option<ConnId>, bytes: usize) {
        let line = parent.and_then(|parent| self.connections.get_mut(parent));
        let cost = match line.map(|line| &mut line.state) {
            Some(State::Streams(streams)) => {
                let line_cost = if streams.note_frame() { FRAME_BYTES_MIN } else { 0 };
                line_cost + STREAM_FRAME_BYTES_MIN.max(bytes / 4)
            }
            _ => FRAME_BYTES_MIN.max(bytes),
        };
        self.fair.count_frame(cost);
    }
}

impl<T: Transport> Step<'_, T> {
    /// Whether a reader may move its next bytes now; if not, it is called when it may.
    pub(crate) fn may_move(&mut self, id: ConnId) -> bool {
        let may_move = self.state.fair.admit(id);
        let Some(connection) = self.state.connections.get_mut(id) else { return may_move };
        if may_move {
            connection.windows_in_a_row = connection.windows_in_a_row.saturating_add(1);
        } else if !connection.is_queued {
            connection.is_queued = true;
            self.state.fair.join(id, &mut connection.windows_in_a_row);
        }
        may_move
    }

    /// The present exchange of `id` asks for a window.
    pub(crate) fn note_window(&mut self, id: ConnId) {
        let exchange = self.exchange_of(id);
        self.state.fair.note_asked(exchange);
    }

    /// Calls queued readers, as many as this turn has room for.
    pub(crate) fn call_queued(&mut self) {
        for _ in 0..self.state.fair.waiting.len() {
            let Some(id) = self.state.fair.call() else { break };
            leave_queue(&mut self.state.connections, id);
            self.handle_drained(id);
        }
        self.state.fair.called = None;
    }

    /// Sends the frames that earlier turns left, as many as this turn has room for.
    pub(crate) fn send_unsent(&mut self) {
        if self.state.fair.unsent.is_empty() {
            return;
        }
        let began_ns = self.io.turn_ns();
        while let Some(id) = self.state.fair.call_unsent() {
            let Some(connection) = self.state.connections.get_mut(id) else { continue };
            let (bytes, parent) = (connection.queued_bytes, connection.parent);
            self.state.count_frame(parent, bytes);
            self.handle_writable(id);
            if self.io.turn_ns() - began_ns > FRAMES_NS_MAX {
                break;
            }
        }
    }
}

fn leave_queue(connections: &mut Slab<crate::connection::Connection>, id: ConnId) {
    if let Some(connection) = connections.get_mut(id) {
        connection.is_queued = false;
    }
}

/// What tests of the check break.
#[cfg(test)]
impl FairQueue {
    pub(crate) fn queue(&mut self, id: ConnId) {
        self.waiting.push_back(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32) -> ConnId {
        ConnId { slot, generation: 1 }
    }

    fn exchange(slot: u32) -> ExchangeId {
        ExchangeId { conn: id(slot), stream: 0 }
    }

    #[test]
    fn a_turn_admits_so_many_and_who_waits_goes_first() {
        let mut fair = FairQueue::default();
        fair.begin_turn();
        assert!((0..WINDOWS_PER_TURN_MAX).all(|_| fair.admit(id(1))));
        assert!(!fair.admit(id(1)) && !fair.is_ready());
        fair.waiting.push_back(id(1));
        assert!(fair.is_ready() && fair.call().is_none(), "not before the next turn");
        fair.begin_turn();
        assert!(!fair.admit(id(2)), "another one waits");
        assert_eq!(fair.call(), Some(id(1)));
        assert!(fair.admit(id(1)));
    }

    #[test]
    fn a_reader_moves_so_many_windows_in_a_row_and_then_goes_behind_all_others() {
        let mut fair = FairQueue::default();
        (2..9).for_each(|slot| fair.waiting.push_back(id(slot)));
        let mut in_a_row = 0;
        fair.join(id(1), &mut in_a_row);
        assert_eq!(fair.waiting.pop_back(), Some(id(1)), "one that moved none waits");
        for moved in 1..WINDOWS_IN_A_ROW {
            in_a_row = moved;
            fair.join(id(1), &mut in_a_row);
            fair.begin_turn();
            assert_eq!((fair.call(), in_a_row), (Some(id(1)), moved));
        }
        in_a_row = WINDOWS_IN_A_ROW;
        fair.join(id(1), &mut in_a_row);
        assert_eq!((fair.waiting.back(), in_a_row), (Some(&id(1)), 0));
    }

    #[test]
    fn a_turn_sends_so_many_frames_and_who_is_left_over_goes_first() {
        let mut fair = FairQueue::default();
        fair.begin_turn();
        let short = FRAME_BYTES_PER_TURN_MAX / FRAME_BYTES_MIN;
        for _ in 0..short {
            assert!(fair.may_send_frame());
            fair.count_frame(FRAME_BYTES_MIN);
        }
        assert!(!fair.may_send_frame(), "the turn has sent enough");
        fair.note_unsent(id(1));
        assert!(fair.is_ready() && fair.call_unsent().is_none(), "not before the next turn");
        fair.begin_turn();
        assert!(!fair.may_send_frame(), "another one waits");
        assert_eq!(fair.call_unsent(), Some(id(1)));
        assert!(fair.may_send_frame());
        fair.count_frame(FRAME_BYTES_PER_TURN_MAX);
        assert!(!fair.may_send_frame());
    }

    #[test]
    fn so_many_are_asked_for_until_answers_come() {
        let mut fair = FairQueue::default();
        fair.begin_turn();
        (0..WINDOWS_ASKED_MAX as u32).for_each(|slot| fair.note_asked(exchange(slot)));
        fair.waiting.push_back(id(99));
        assert!(!fair.admit(id(99)) && !fair.is_ready(), "the loop sleeps until an answer comes");
        fair.note_answered(exchange(0));
        fair.note_answered(exchange(0));
        assert!(fair.is_ready());
        assert_eq!(fair.call(), Some(id(99)));
    }
}
