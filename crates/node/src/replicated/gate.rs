//! Which requests may be carried out now: behind the word of a majority. Writes go where their group is led.
//!
//! # Why not all need that word
//! What goes through the log is judged when it is applied, behind all that was acknowledged before. What is
//! answered from the state (a read, a refusal) may be stale: another leader may have been elected meanwhile, and have
//! acknowledged more. So a request that would be answered at once waits until a majority has confirmed this leader,
//! and is judged then.
//!
//! # Order
//! Writes of one path take effect in the order in which they came at this node. So a write does not pass an earlier one that
//! may be at another node, or waits here for the word of a majority or for room in the log. Answers of the log keep the
//! order by themselves.
//!
//! A node that does not lead a group answers reads behind the word of its leader: see `elsewhere`. One without a part in it
//! passes them on. Windows are ranges below
//! a tail that was committed. Only a copy that has not applied so much waits before it answers one. A watcher hears
//! what is applied here.

use super::copy::CatchUp;
use super::elsewhere::end_of;
use super::held::{Held, HeldRequest};
use super::line::Waiter;
use super::{GroupCopy, Halt, WAIT_MS_MAX};
use crate::{
    Failure, Reply, Request, ShardAnswer, ShardCall, ShardCore, Stamp, Ticket, deferred::Deferred,
    proposed::ReplyTo,
};
use cluster::NotRead;
use model::{ByteOffset, EntryIndex, GroupId, StreamKey};
use std::collections::VecDeque;
use stream::CreateCheck;

/// What becomes of a call between shards.
pub(crate) enum Gate {
    /// It may be answered now.
    Open(ShardCall),
    /// Its answer comes later.
    Held,
    /// Not here, or not now.
    Closed(Failure),
}

impl ShardCore {
    /// Carries out a request of a member, now or later.
    #[cold]
    pub(crate) fn route(&mut self, now: Stamp, ticket: Ticket, (request, data): (Request, &[u8])) {
        if self.waits_in_queue(&request) {
            return self.defer(now, ticket, (request, data));
        }
        if let Some(request) = self.let_in(now, ticket, (request, data)) {
            self.admit(now, ticket, (request, data));
        }
    }

    /// Whether earlier writes to its path may wait for room in the log.
    fn waits_in_queue(&self, request: &Request) -> bool {
        let Some(path) = request.written_path().filter(|_| !self.write_queue.is_empty()) else {
            return false;
        };
        let copy = self.groups.of_path(path).role.copy();
        copy.is_some_and(|copy| copy.has_deferred) && !self.write_queue.lets_pass(request)
    }

    /// A request waits for room in the log.
    #[cold]
    pub(crate) fn note_deferred(&mut self, request: &Request) {
        let Some(path) = request.written_path() else { return };
        let id = path.group(self.groups.total_count());
        if let Some(copy) = self.groups.get_mut(id).role.copy_mut() {
            copy.has_deferred = true;
        }
    }

    /// Lets a request through that may be carried out now. Any other waits, or has its answer.
    pub(crate) fn let_in(
        &mut self,
        now: Stamp,
        ticket: Ticket,
        (request, data): (Request, &[u8]),
    ) -> Option<Request> {
        let id = match (&request, request.path()) {
            (_, Some(path)) => path.group(self.groups.total_count()),
            (Request::Window { key, to, .. }, _) if self.may_lack(now, *key, *to) => key.group,
            (Request::Meta(_), _) if self.meta_group().is_some() => {
                GroupId::new(self.groups.total_count())
            }
            _ => return Some(request),
        };
        let Some(copy) = self.groups.get(id).role.copy() else {
            return self.let_in_before(now, ticket, (request, data));
        };
        let path = request.written_path();
        let (is_parked, is_asking) = (copy.has_parked(path), copy.is_asking_for(path));
        let failure = if self.log.is_poisoned() {
            Failure::Poisoned { applied_unknown: false }
        } else if !is_parked && !is_asking && self.belongs_elsewhere(id, ticket, &request) {
            self.forward(id, now.monotonic, (ticket, request, data.to_vec()));
            return None;
        } else if copy.halt.is_some() && request.is_read() {
            Failure::NoLeader
        } else {
            let is_for_log = || !self.is_answered_at_once(now, &request, data.len());
            let is_behind = is_parked || (is_asking && is_for_log());
            if !is_behind && copy.takes_proposals() && is_for_log() {
                return Some(request);
            }
            if copy.has_room_for(data.len()) {
                let what = HeldRequest::Client { ticket, request, data: data.to_vec() };
                self.hold((id, is_behind), Held { since: now.monotonic, what });
                return None;
            }
            Failure::Overloaded
        };
        self.reply(ticket, Reply::Failed(failure));
        None
    }

    /// Whether bytes that were seen may not be here.
    fn may_lack(&mut self, now: Stamp, key: StreamKey, upto: ByteOffset) -> bool {
        self.is_elsewhere(key.group) || self.may_be_behind(now, key, upto)
    }

    /// Whether a request is for another node, or an earlier write to its path may be there.
    fn belongs_elsewhere(&self, id: GroupId, ticket: Ticket, request: &Request) -> bool {
        if request.is_read() {
            return ticket.peer().is_none() && self.is_elsewhere(id);
        }
        let is_led_here = self.groups.get(id).role.copy().is_some_and(GroupCopy::leads);
        let is_behind = || {
            let path = request.path().filter(|_| ticket.peer().is_none());
            path.is_some_and(|path| self.has_forwarded(id, path))
        };
        !is_led_here || is_behind()
    }

    /// Whether the state answers a request, and not the log.
    fn is_answered_at_once(&self, now: Stamp, request: &Request, data_bytes: usize) -> bool {
        match request {
            Request::Append { path, append } => {
                let group = self.groups.of_path(path);
                let mut append = append.clone();
                let Ok(stream) = group.state.resolve_for(&mut append, path, now.wall) else {
                    return true;
                };
                let outcome =
                    || group.state.check_append(stream, &append, data_bytes as u64).is_some();
                !group.is_in_flight(stream) && outcome()
            }
            Request::Create(asked) if asked.fork.is_none() => {
                let group = self.groups.of_path(&asked.path);
                let check = || group.state.check_create(asked, now.wall);
                !group.is_path_in_flight(&asked.path) && matches!(check(), CreateCheck::Answered(_))
            }
            Request::Meta(_) => false,
            _ => true,
        }
    }

    /// Keeps a request until its group's leader is confirmed; or, if it is behind an earlier one, until that is carried out.
    pub(super) fn hold(&mut self, (id, is_behind): (GroupId, bool), held: Held) {
        let copy = self.copy_mut(id);
        if is_behind {
            // What carries out the earlier one drives the group.
            return copy.park(held);
        }
        if copy.takes_proposals() || held.is_read() {
            copy.ask_before(held);
        } else {
            copy.park(held);
        }
        self.touch_group(id);
    }

    /// Lets a call of another shard, or of an operation, through.
    pub(crate) fn let_call_in(&mut self, now: Stamp, call: ShardCall, reply_to: ReplyTo) -> Gate {
        let end = end_of(&call);
        let id = match end {
            Some((key, end)) if !self.may_lack(now, key, end) => return Gate::Open(call),
            _ => call.group(self.groups.total_count()),
        };
        let Some(copy) = self.groups.get(id).role.copy() else { return Gate::Open(call) };
        if self.log.is_poisoned() {
            return Gate::Closed(Failure::NoLeader);
        }
        if (end.is_none() && !copy.leads()) || self.is_elsewhere(id) {
            return self.forward_call((id, now.monotonic), reply_to, call);
        }
        if matches!(call, ShardCall::Propose(..)) && copy.is_serving() {
            return Gate::Open(call);
        }
        if !copy.has_room_for(0) {
            return Gate::Closed(Failure::Overloaded);
        }
        let what = HeldRequest::Call { reply_to, call };
        self.hold((id, false), Held { since: now.monotonic, what });
        Gate::Held
    }

    /// Asks a majority, or who leads elsewhere: once for all requests of the turn.
    pub(super) fn ask_for_reads(&mut self, id: GroupId) {
        let copy = self.copy_mut(id);
        if !copy.is_serving() {
            return self.ask_leader(id);
        }
        if !copy.is_running() {
            return;
        }
        let Some(question) = copy.barriers.ask() else { return };
        match copy.replica.confirm_read() {
            Ok(read) => {
                copy.questions.insert(read, question);
            }
            Err(NotRead::NotLeader | NotRead::TooEarly) => copy.barriers.lost(question),
        }
        // The question is a message.
        self.touch_group(id);
    }

    /// A majority has answered: what is applied up to `index` is not stale.
    pub(super) fn confirm_read(&mut self, id: GroupId, read: u64, index: EntryIndex) {
        let question = self.copy_mut(id).questions.remove(&read);
        self.confirm(id, question.expect("each read was asked for"), index);
    }

    /// Carries out what has waited for the word of a majority.
    pub(super) fn release(&mut self, id: GroupId, held: Vec<Held>) {
        let mut rest = VecDeque::from(held);
        while let Some(held) = rest.pop_front() {
            if self.lacks_room(&held) {
                self.queue(id, held, &mut rest);
            } else {
                self.execute_held((id, held));
            }
        }
    }

    fn execute_held(&mut self, (id, held): (GroupId, Held)) {
        let now = self.members().now;
        match held.what {
            HeldRequest::Client { ticket, request, data } if self.needs_leader(now, &request) => {
                self.forward(id, held.since, (ticket, request, data));
            }
            HeldRequest::Barrier { node, number } => self.tell_confirmed(node, (id, number)),
            HeldRequest::CatchUp => self.copy_mut(id).catch_up = CatchUp::Done,
            HeldRequest::Client { ticket, request, data } => {
                self.execute(now, ticket, (request, &data));
            }
            HeldRequest::Call { reply_to, call } => self.handle_open_call(now, reply_to, call),
        }
    }

    /// Whether the log has no room for a write of a client now, and may have some soon.
    pub(super) fn lacks_room(&mut self, held: &Held) -> bool {
        let HeldRequest::Client { request, data, .. } = &held.what else { return false };
        let command_bytes = request.command_bytes().filter(|_| !request.is_read());
        command_bytes.is_some_and(|it| self.is_worth_waiting(request, it + data.len() as u64))
    }

    /// Has a write wait for room in the log, and behind it all later ones to its path that wait here or in `rest`. Those that
    /// wait for room already came later still.
    pub(super) fn queue(&mut self, id: GroupId, held: Held, rest: &mut VecDeque<Held>) {
        let Some(path) = held.written_path().cloned() else { return self.execute_held((id, held)) };
        let is_it = |held: &Held| held.written_path() == Some(&path);
        let mut all = vec![held];
        let (later, others): (Vec<_>, Vec<_>) = std::mem::take(rest).into_iter().partition(is_it);
        *rest = others.into();
        all.extend(later);
        all.extend(self.copy_mut(id).take_held(is_it));
        self.copy_mut(id).has_deferred = true;
        self.join_line(Waiter::Clients);
        let writes = all.into_iter().filter_map(|Held { since, what }| match what {
            HeldRequest::Client { ticket, request, data } => {
                Some(Deferred { ticket, request, data, since })
            }
            _ => None,
        });
        for refused in self.write_queue.put_before(&path, writes.collect()) {
            self.reply(refused.ticket, Reply::Failed(Failure::Overloaded));
        }
    }

    /// Gives requests that wait their answer.
    pub(super) fn turn_away(
        &mut self,
        now: Stamp,
        (id, held): (GroupId, Vec<Held>),
        failure: &Failure,
    ) {
        for Held { what, .. } in held {
            let failure = failure.clone();
            match what {
                HeldRequest::Barrier { node, number } => self.tell_refused(node, (id, number)),
                HeldRequest::CatchUp => self.copy_mut(id).catch_up = CatchUp::Wanted,
                HeldRequest::Client { ticket, .. } => self.reply(ticket, Reply::Failed(failure)),
                HeldRequest::Call { reply_to, .. } => {
                    self.give(now, reply_to, ShardAnswer::Failed(failure));
                }
            }
        }
    }

    /// Requests that have waited too long were not applied, for certain.
    pub(super) fn give_up_held(&mut self, now: Stamp, id: GroupId) {
        let is_late = |held: &Held| now.monotonic.ms_since(held.since) >= WAIT_MS_MAX;
        let late = self.copy_mut(id).take_held(is_late);
        self.turn_away(now, (id, late), &Failure::NoLeader);
    }

    /// The log has failed: nothing waits any more.
    pub(crate) fn fail_held(&mut self, now: Stamp) {
        for id in self.replicated_groups() {
            let held = self.copy_mut(id).take_held(|_| true);
            self.turn_away(now, (id, held), &Failure::Poisoned { applied_unknown: false });
        }
        if self.replication.is_some() {
            self.fail_forwards();
        }
    }

    /// The copy takes part in nothing any more. Requests that wait for it go to other nodes.
    pub(super) fn halt(&mut self, id: GroupId, why: Halt) {
        let copy = self.copy_mut(id);
        copy.halt = Some(why);
        for held in copy.take_held(|_| true) {
            self.pass_held_on(id, held);
        }
    }
}
