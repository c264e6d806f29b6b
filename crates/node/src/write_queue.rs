//! Writes that wait for the log to have room.
//!
//! The log takes no entry while its open batch is full or its next segment is still being filled.
//! Both pass within milliseconds, so a write is not refused at once: it waits here, in order, within
//! bounds of bytes and time. Only a write beyond them gets the answer that the server is overloaded.
//!
//! A read whose use must be logged first is a write, too. If it waits in vain it is answered without:
//! to refuse it would be worse than a lifetime that a crash may cut short.
//!
//! A delete passes waiting writes to other streams: it is what makes room for them. On a disk that has no room even for
//! a delete it waits, too: jobs may be about to make some.

use crate::{
    Failure, Reply, Request, ShardCore, Stamp, Ticket, api::UPKEEP_COMMAND_BYTES_MAX,
    deferred::Deferred, replicated::Waiter,
};
use log::{AppendError, Purpose};

/// How long a write may wait: clients begin to give up soon after.
const DEFERRED_MS_MAX: u64 = 5_000;

/// The same while the disk is full: nothing but a delete frees the log then.
const DEFERRED_DISK_FULL_MS_MAX: u64 = 1_000;

/// The longest that a write waits. A delete on a full disk waits as long as any: jobs may take seconds to make room
/// for it.
fn wait_ms_max(request: &Request, is_disk_full: bool) -> u64 {
    let is_delete = matches!(request, Request::Delete { .. });
    if is_disk_full && !is_delete { DEFERRED_DISK_FULL_MS_MAX } else { DEFERRED_MS_MAX }
}

impl ShardCore {
    /// Whether a write must wait: others do, or the log has no room for it.
    #[inline]
    pub(crate) fn must_defer(&mut self, request: &Request, payload_bytes: u64) -> bool {
        let is_first = self.write_queue.is_empty() || self.write_queue.lets_pass(request);
        !is_first || self.is_worth_waiting(request, payload_bytes)
    }

    /// Whether the log may have room for a write soon. A full disk has none for data; a delete waits for what jobs may
    /// make.
    #[inline]
    pub(crate) fn is_worth_waiting(&mut self, request: &Request, payload_bytes: u64) -> bool {
        match self.log.check_room(request.purpose(), payload_bytes) {
            Err(AppendError::Backpressure) => true,
            Err(AppendError::DiskFull) => matches!(request, Request::Delete { .. }),
            Ok(()) => request.purpose() == Purpose::Data && !self.is_turn_of(Waiter::Clients),
            Err(AppendError::Poisoned) => false,
        }
    }

    /// Whether a use that must be logged has to wait for room.
    pub(crate) fn must_defer_use(&mut self) -> bool {
        let room = self.log.check_room(Purpose::Upkeep, UPKEEP_COMMAND_BYTES_MAX);
        room == Err(AppendError::Backpressure)
    }

    pub(crate) fn defer(&mut self, now: Stamp, ticket: Ticket, (request, data): (Request, &[u8])) {
        if self.write_queue.is_full(data.len()) {
            return self.give_up(now, ticket, request, Failure::Overloaded);
        }
        if self.replication.is_some() {
            self.note_deferred(&request);
        }
        self.join_line(Waiter::Clients);
        let (since, data) = (now.monotonic, data.to_vec());
        self.write_queue.push(Deferred { ticket, request, data, since });
    }

    /// Carries out what the log has room for by now.
    pub(crate) fn execute_deferred(&mut self, now: Stamp) {
        while let Some(deferred) = self.write_queue.pop() {
            let Deferred { request, data, .. } = &deferred;
            let request_bytes = request.command_bytes().unwrap_or(UPKEEP_COMMAND_BYTES_MAX);
            if self.waits_for_copy(request)
                || self.is_worth_waiting(request, request_bytes + data.len() as u64)
            {
                self.write_queue.put_back(deferred);
                return self.join_line(Waiter::Clients);
            }
            let Deferred { ticket, request, data, since } = deferred;
            let is_data = request.purpose() == Purpose::Data;
            if self.replication.is_none() {
                self.execute(now, ticket, (request, &data));
                continue;
            }
            let came = Stamp { monotonic: since, ..now };
            if let Some(request) = self.let_in(came, ticket, (request, &data)) {
                self.execute(now, ticket, (request, &data));
            }
            if is_data {
                self.leave_line(Waiter::Clients);
            }
        }
    }

    pub(crate) fn give_up_deferred(&mut self, now: Stamp) {
        let is_disk_full = self.background.is_disk_full();
        let failure = if is_disk_full { Failure::DiskFull } else { Failure::Overloaded };
        let is_due = |write: &Deferred| {
            now.monotonic.ms_since(write.since) >= wait_ms_max(&write.request, is_disk_full)
        };
        while let Some(deferred) = self.write_queue.take_first(is_due) {
            self.give_up(now, deferred.ticket, deferred.request, failure.clone());
        }
    }

    fn give_up(&mut self, now: Stamp, ticket: Ticket, request: Request, failure: Failure) {
        match request {
            // A member's reads wait for the word of a majority. It was given too long ago by now.
            Request::Read(read) if self.replication.is_none() => {
                self.begin_read(now, ticket, &read);
            }
            _ => self.reply(ticket, Reply::Failed(failure)),
        }
    }
}
