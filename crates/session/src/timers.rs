//! Time: deadlines of long-polls, and sweeps over all connections for the coarser limits.

use crate::{
    carried::{Silence, Streams},
    connection::State,
    due_answers,
    options::Options,
    sessions::Step,
    slab::ConnId,
    transport::Transport,
};
use model::Monotonic;
use protocol::problem::{Code, Problem};

/// Limits of connections are looked at this often.
const SWEEP_MS: u64 = 500;

/// The same while the server stops.
const SWEEP_STOPPING_MS: u64 = 100;

/// How long a client may take to close after it got the end.
const LINGER_MS: u64 = 1_000;

/// The same while the server stops: what was sent is with the client's kernel by then.
const LINGER_STOPPING_MS: u64 = 100;

/// How long a server that stops waits for one more request of a client that was active a moment ago. Its answer says that the
/// connection ends. Closed at once, a request that is on its way would get no answer, and nobody would know what came of it.
const LAST_REQUEST_MS: u64 = 1_000;

/// Connections or deadlines that one turn looks at, at most: some 50 ns each.
const LOOKS_PER_TURN_MAX: usize = 4096;

/// What a sweep decides about one connection.
enum Verdict {
    Keep,
    Drop,
    Refuse,
    Heartbeat,
    EndSse,
    EndLasting,
    EndStreams,
    AskForLife,
}

impl<T: Transport> Step<'_, T> {
    /// Answers long-polls that have waited long enough, as many as one turn has room for; whether that was all.
    pub(crate) fn handle_deadlines(&mut self) -> bool {
        let began_ns = self.io.turn_ns();
        for _ in 0..LOOKS_PER_TURN_MAX {
            let is_long = self.io.turn_ns() - began_ns > due_answers::TURN_NS_MAX;
            if is_long || self.state.due.timeouts_left == 0 {
                return false;
            }
            let Some(id) = self.state.deadlines.pop(self.state.now.monotonic) else { return true };
            let Some(connection) = self.state.connections.get_mut(id) else { continue };
            let State::LongPoll(poll) = &connection.state else { continue };
            let (key, number) = (poll.key, poll.number);
            // One that a change has woken gets its answer without this.
            if poll.is_due(self.state.now.monotonic) && self.state.live.has_poll(key, number) {
                self.time_out_poll(id, number);
                self.state.due.timeouts_left -= 1;
            }
        }
        false
    }

    /// Looks at all connections now and then: at some of them in each turn, until all have had theirs.
    pub(crate) fn sweep(&mut self) {
        let now = self.state.now.monotonic;
        let slot = match self.state.deadlines.sweep_slot {
            Some(slot) => slot,
            None if now < self.state.deadlines.next_sweep => return,
            None => {
                let is_stopping = self.state.stopping.is_some();
                let pause_ms = if is_stopping { SWEEP_STOPPING_MS } else { SWEEP_MS };
                self.state.deadlines.next_sweep = now.plus_ms(pause_ms);
                self.state.windows.clear();
                0
            }
        };
        self.state.deadlines.sweep_slot = self.look_at_some(slot, Self::sweep_one);
    }

    /// Looks at as many connections from `slot` on as one turn has room for; where to continue, `None` after the last. `each` says
    /// whether it has done something.
    pub(crate) fn look_at_some(
        &mut self,
        mut slot: usize,
        each: impl Fn(&mut Self, ConnId) -> bool,
    ) -> Option<usize> {
        let began_ns = self.io.turn_ns();
        let end = slot + LOOKS_PER_TURN_MAX;
        while slot < end
            && self.state.due.deeds_left > 0
            && self.io.turn_ns() - began_ns <= due_answers::TURN_NS_MAX
        {
            if slot >= self.state.connections.slot_count() {
                return None;
            }
            let id = self.state.connections.id_of(slot);
            if id.is_some_and(|id| each(self, id)) {
                self.state.due.deeds_left -= 1;
            }
            slot += 1;
        }
        Some(slot)
    }

    /// Does what a connection is due; `false` if that is nothing.
    fn sweep_one(&mut self, id: ConnId) -> bool {
        match self.judge(id) {
            Verdict::Keep => return false,
            Verdict::Drop => self.drop_connection(id),
            Verdict::Refuse => {
                self.abandon_body(id);
                self.answer_problem(id, &Problem::new(Code::RequestTimeout));
            }
            Verdict::Heartbeat => self.send_heartbeat(id),
            Verdict::EndSse => self.end_sse_with_control(id),
            Verdict::EndLasting => return self.end_lasting(id),
            Verdict::EndStreams => self.shut_streams_down(id),
            Verdict::AskForLife => self.ask_for_life(id),
        }
        true
    }

    fn judge(&mut self, id: ConnId) -> Verdict {
        let (now, wall) = (self.state.now.monotonic, self.state.now.wall);
        let settings = &self.state.options;
        let is_stopping = self.state.stopping.is_some();
        let linger_ms = if is_stopping { LINGER_STOPPING_MS } else { LINGER_MS };
        let Some(connection) = self.state.connections.get_mut(id) else { return Verdict::Keep };
        let quiet_ms = now.ms_since(connection.progress);
        if !connection.is_drained() && quiet_ms >= settings.write_stall_timeout_ms {
            return Verdict::Drop;
        }
        match &connection.state {
            // The next request waits until the answers before it are taken.
            State::Head if !connection.is_drained() => Verdict::Keep,
            State::Head if connection.input.is_empty() => {
                let is_last = is_stopping && quiet_ms >= LAST_REQUEST_MS;
                if is_last || quiet_ms >= settings.idle_timeout_ms {
                    Verdict::Drop
                } else {
                    Verdict::Keep
                }
            }
            State::Head => {
                if quiet_ms >= settings.head_timeout_ms {
                    Verdict::Refuse
                } else {
                    Verdict::Keep
                }
            }
            State::Body(receiving) => {
                let took_ms = now.ms_since(receiving.since);
                let least = settings.body_bytes_per_second_min.saturating_mul(took_ms) / 1000;
                let slow = (receiving.body.len() as u64) < least;
                if slow && took_ms >= settings.body_grace_ms {
                    Verdict::Refuse
                } else {
                    Verdict::Keep
                }
            }
            State::Streams(streams) => judge_line(streams, (now, quiet_ms), linger_ms, settings),
            // It has no window of its own to wait for: its client lets it send nothing.
            State::Sending(_)
                if connection.is_stream()
                    && !connection.is_queued
                    && quiet_ms >= settings.write_stall_timeout_ms =>
            {
                Verdict::Drop
            }
            State::Discard { .. } if quiet_ms >= settings.head_timeout_ms => Verdict::Drop,
            State::Lingering if quiet_ms >= linger_ms => {
                let is_taking = !is_stopping && self.io.has_unsent(id);
                let is_over = !is_taking || quiet_ms >= settings.write_stall_timeout_ms;
                if is_over { Verdict::Drop } else { Verdict::Keep }
            }
            State::Sse(reader) if reader.is_over(now, settings.sse_max_duration_ms) => {
                Verdict::EndSse
            }
            State::Sse(reader) if reader.is_expired(wall) => Verdict::EndLasting,
            State::LongPoll(poll) if poll.is_expired(wall) => Verdict::EndLasting,
            State::Sse(reader) if reader.is_live() && quiet_ms >= settings.sse_heartbeat_ms => {
                Verdict::Heartbeat
            }
            _ => Verdict::Keep,
        }
    }

    /// Stops: nobody new, live readers are sent on, everybody else may finish what is under way.
    pub(crate) fn begin_stop(&mut self) {
        let timeout_ms = self.state.options.shutdown_timeout_ms;
        self.state.stopping = Some(self.state.now.monotonic.plus_ms(timeout_ms));
        self.state.deadlines.next_sweep = self.state.now.monotonic;
        self.state.deadlines.stop_slot = Some(0);
        self.stop_some();
    }

    /// Sends some clients on because the server stops, until all have had theirs.
    pub(crate) fn stop_some(&mut self) {
        if let Some(slot) = self.state.deadlines.stop_slot {
            self.state.deadlines.stop_slot = self.look_at_some(slot, Self::stop_one);
            self.state.deadlines.is_behind |= self.state.deadlines.stop_slot.is_some();
        }
    }

    /// Ends what waits without an end; whether there was something.
    fn stop_one(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.state.connections.get_mut(id) else { return false };
        connection.end_after_exchanges();
        match &connection.state {
            State::Lingering => self.drop_connection(id),
            State::Streams(_) => self.shut_streams_down(id),
            State::LongPoll(poll) => {
                let number = poll.number;
                self.time_out_poll(id, number);
            }
            State::Sse(reader) if reader.is_live() => self.end_sse_with_control(id),
            // Those that have been quiet go at once.
            _ => return self.sweep_one(id),
        }
        true
    }
}

/// What a connection is due that carries many exchanges; `quiet_ms` ago the last of them was over, if there is none.
fn judge_line(
    streams: &Streams,
    (now, quiet_ms): (Monotonic, u64),
    linger_ms: u64,
    settings: &Options,
) -> Verdict {
    if streams.is_idle() {
        return match streams.line.is_ending() {
            true if quiet_ms >= linger_ms => Verdict::Drop,
            false if quiet_ms >= settings.idle_timeout_ms => Verdict::EndStreams,
            _ => Verdict::Keep,
        };
    }
    match streams.silence(now, settings.write_stall_timeout_ms) {
        Silence::Bearable => Verdict::Keep,
        Silence::Ask => Verdict::AskForLife,
        Silence::Over => Verdict::Drop,
    }
}
