//! Time: deadlines of long-polls, and sweeps over all connections for the coarser limits.

use super::{connection::State, shard::Shard, slots::SlotId};
use model::Monotonic;
use protocol::problem::{Code, Problem};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Limits of connections are looked at this often.
const SWEEP_MS: u64 = 500;

/// How long a client may take to close after it was told of the end.
const LINGER_MS: u64 = 1_000;

/// The same while the server stops: what was sent is with the client's kernel by then.
const LINGER_STOPPING_MS: u64 = 100;

/// Moments at which a connection must be looked at; it may be gone or busy with something else by
/// then.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    due: BinaryHeap<Reverse<(Monotonic, SlotId)>>,
    next_sweep: Monotonic,
}

impl Deadlines {
    pub(super) fn add(&mut self, due: Monotonic, id: SlotId) {
        self.due.push(Reverse((due, id)));
    }

    pub(super) fn next(&self) -> Option<Monotonic> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    fn pop(&mut self, now: Monotonic) -> Option<SlotId> {
        let Reverse((due, id)) = *self.due.peek()?;
        (due <= now).then(|| {
            self.due.pop();
            id
        })
    }
}

/// What a sweep decides about one connection.
enum Verdict {
    Keep,
    Drop,
    Refuse,
    Heartbeat,
    EndSse,
}

impl Shard {
    pub(super) fn handle_deadlines(&mut self) {
        while let Some(id) = self.deadlines.pop(self.now.monotonic) {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            let State::LongPoll(poll) = &connection.state else { continue };
            if poll.is_due(self.now.monotonic) {
                self.time_out_poll(id);
            }
        }
    }

    pub(super) fn sweep(&mut self) {
        if self.now.monotonic < self.deadlines.next_sweep && self.stopping.is_none() {
            return;
        }
        self.deadlines.next_sweep = self.now.monotonic.plus_ms(SWEEP_MS);
        self.windows.clear();
        for id in self.connections.ids() {
            match self.judge(id) {
                Verdict::Keep => {}
                Verdict::Drop => self.drop_connection(id),
                Verdict::Refuse => {
                    self.abandon_body(id);
                    self.answer_problem(id, &Problem::new(Code::RequestTimeout));
                }
                Verdict::Heartbeat => self.send_heartbeat(id),
                Verdict::EndSse => self.end_sse_with_control(id),
            }
        }
    }

    fn judge(&mut self, id: SlotId) -> Verdict {
        let now = self.now.monotonic;
        let settings = &self.shared.settings;
        let linger_ms = if self.stopping.is_some() { LINGER_STOPPING_MS } else { LINGER_MS };
        let Some(connection) = self.connections.get_mut(id) else { return Verdict::Keep };
        let quiet_ms = now.ms_since(connection.progress);
        if !connection.is_drained() && quiet_ms >= settings.write_stall_timeout_ms {
            return Verdict::Drop;
        }
        match &connection.state {
            State::Head if connection.input.is_empty() => {
                if quiet_ms >= settings.idle_timeout_ms {
                    Verdict::Drop
                } else {
                    Verdict::Keep
                }
            }
            // The next request waits until the answers before it are taken.
            State::Head if !connection.is_drained() => Verdict::Keep,
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
            State::Discard { .. } if quiet_ms >= settings.head_timeout_ms => Verdict::Drop,
            State::Lingering if quiet_ms >= linger_ms => Verdict::Drop,
            State::Sse(reader) if reader.is_over(now, settings.sse_max_duration_ms) => {
                Verdict::EndSse
            }
            State::Sse(reader) if reader.is_live() && quiet_ms >= settings.sse_heartbeat_ms => {
                Verdict::Heartbeat
            }
            _ => Verdict::Keep,
        }
    }

    /// Stops: nobody new, live readers are sent on, everybody else may finish what is under way.
    pub(super) fn begin_stop(&mut self) {
        let timeout_ms = self.shared.settings.shutdown_timeout_ms;
        self.stopping = Some(self.now.monotonic.plus_ms(timeout_ms));
        if let Some(mut listener) = self.listener.take() {
            let _ = self.poll.registry().deregister(&mut listener);
        }
        for id in self.connections.ids() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.meta.keep_alive = false;
            match &connection.state {
                State::Head if connection.input.is_empty() => self.drop_connection(id),
                State::Lingering => self.drop_connection(id),
                State::LongPoll(_) => self.time_out_poll(id),
                State::Sse(reader) if reader.is_live() => self.end_sse_with_control(id),
                _ => {}
            }
        }
    }

    /// Shows how the shard stands to the metrics and the log.
    pub(super) fn report(&mut self) {
        self.metrics.note_alive(self.now.monotonic);
        let stats = self.node.stats();
        self.metrics.streams.set(stats.stream_count);
        let log = self.node.log().stats();
        self.metrics.wal_bytes.set(log.wal_bytes);
        self.metrics.batch_bytes.add(log.batch_bytes - self.metrics.batch_bytes.get());
        self.metrics.batch_entries.add(log.entries - self.metrics.batch_entries.get());
        if self.id.get() == 0 {
            // One number for all shards: a sum over them must not count it twice.
            let in_flight = self.shared.body_bytes.load(std::sync::atomic::Ordering::Relaxed);
            self.metrics.body_bytes_in_flight.set(in_flight as u64);
        }
        for damage in self.node.take_damages() {
            self.metrics.damaged.add(1);
            tracing::error!(shard = self.id.get(), %damage, "stored data is damaged");
        }
        for damage in self.node.take_read_damages() {
            self.metrics.damaged.add(1);
            let node::ReadDamage { key, file, position } = damage;
            tracing::error!(
                shard = self.id.get(),
                group = key.group.get(),
                stream = key.stream.get(),
                file,
                position,
                "stored data is damaged: reads of it fail, the rest is served"
            );
        }
        if let Some(error) = self.node.take_merge_refusal() {
            tracing::warn!(
                shard = self.id.get(),
                %error,
                "no room to merge chunks: dead data keeps its space until there is"
            );
        }
        let blocked = self.node.work_error().map(str::to_owned);
        if blocked.is_some() != self.metrics.is_disk_full() {
            self.metrics.set_disk_full(blocked.is_some());
            match blocked {
                Some(error) => tracing::error!(shard = self.id.get(), error, "the disk refuses"),
                None => tracing::info!(shard = self.id.get(), "the disk takes data again"),
            }
        }
        if let Some(error) = self.node.poison()
            && !self.metrics.is_poisoned()
        {
            self.metrics.set_poisoned(error);
            tracing::error!(
                shard = self.id.get(),
                error,
                "a write or sync failed: this shard takes no writes until the server is restarted"
            );
        }
    }
}
