//! Requests that only the leader of their group can answer, at a node that does not lead it.
//!
//! # How
//! A request goes to the leader over the link, and its answer comes back. As long as nobody leads, or the link is down,
//! it waits. A leader that says that it was not applied, and never will be, is not the last one that is asked. After
//! five seconds the client gets `no-leader` if nothing was applied for certain, and `write-unknown` if nobody can tell.
//!
//! # What is certain
//! A request that no node has, or that its node has refused, is not applied. If its link is lost, the node is asked for
//! the answer again. If the node was started again meanwhile, nobody can tell. Writes of producers and reads are
//! repeated at the next leader: the log knows what it has of a producer.
//!
//! # Invariants
//! - See [`cluster::Forwards`].
//! - A request of another node is not forwarded again.

use super::call_bytes::{decode_answer, encode_call};
use super::request_bytes::{decode_reply, encode_request};
use super::{Gate, WAIT_MS_MAX};
use crate::{
    Failure, Reply, Request, ShardAnswer, ShardCall, ShardCore, Stamp, Ticket, peers::SHARD_BITS,
    proposed::ReplyTo, step::Moved,
};
use bytes::{Buf, BufMut, Bytes};
use cluster::{
    Forwards, MetaOutcome, NodeNumber, OUTBOX_BYTES_MAX, ReplicaId, Section, Sending, Verdict,
};
use model::{GroupId, Monotonic, StreamPath};
use std::collections::BTreeMap;

/// Requests of one shard that may wait for other nodes.
const FORWARDS_COUNT_MAX: usize = 4 << 10;

/// Bytes of their data, unless one request alone has more. All may be sent at once when a link is up again, and a link ends
/// when too much waits for it.
const FORWARDS_BYTES_MAX: usize = OUTBOX_BYTES_MAX / 2;

/// A node that is asked from outside a group, and says nothing for so long, is not the only one that is asked.
const SILENT_MS_MAX: u64 = 1_000;

/// What another node is asked for.
#[derive(Debug)]
pub(super) enum Forward {
    /// A request of a client.
    Client { ticket: Ticket, request: Request, data: Vec<u8> },
    /// A call of an operation of this node.
    Call { reply_to: ReplyTo, call: ShardCall },
}

/// What another node has answered.
enum Heard {
    Client(Reply),
    Call(ShardAnswer),
}

impl cluster::Forwarded for Forward {
    fn subject(&self) -> Option<u64> {
        match self {
            Self::Client { request: Request::Meta(_), .. } => Some(0),
            Self::Client { request, .. } => request.written_path().map(subject_of),
            Self::Call { call: ShardCall::Propose(key, _), .. } => Some(key.stream.get()),
            // They change nothing.
            Self::Call { .. } => None,
        }
    }

    fn may_repeat(&self) -> bool {
        let is_known = |request: &Request| matches!(request, Request::Append { append, .. } if append.producer.is_some());
        match self {
            // A change of the cluster that was made already is made.
            Self::Client { request: Request::Meta(_), .. } => true,
            Self::Client { request, .. } => request.is_read() || is_known(request),
            // References have names: to take or give one back twice is to do so once.
            Self::Call { .. } => true,
        }
    }
}

/// What requests for a path have in common.
fn subject_of(path: &StreamPath) -> u64 {
    path.hash().get()
}

impl Forward {
    fn data_bytes(&self) -> usize {
        match self {
            Self::Client { data, .. } => data.len(),
            Self::Call { .. } => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Client { request, data, .. } => encode_request(request, data, out),
            Self::Call { call, .. } => encode_call(call, out),
        }
    }

    /// Its answer. One that this version does not know may say anything.
    fn decode_answer(&self, payload: Bytes) -> Heard {
        match self {
            Self::Client { .. } => {
                Heard::Client(decode_reply(payload).unwrap_or(Reply::Failed(Failure::Unknown)))
            }
            Self::Call { call, .. } => {
                let answer = decode_answer(call, payload);
                Heard::Call(answer.unwrap_or(ShardAnswer::Failed(Failure::Unknown)))
            }
        }
    }

    /// What it gets if nobody answers it.
    fn failed(&self, failure: Failure) -> Heard {
        match self {
            Self::Client { .. } => Heard::Client(Reply::Failed(failure)),
            Self::Call { .. } => Heard::Call(ShardAnswer::Failed(failure)),
        }
    }
}

impl Heard {
    /// Whether it was not applied, and never will be.
    fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Client(Reply::Failed(Failure::NoLeader))
                | Self::Call(ShardAnswer::Failed(Failure::NoLeader))
        )
    }
}

/// What a shard has of other nodes' leaders.
#[derive(Debug)]
pub(super) struct Forwarding {
    requests: Forwards<Forward>,
    bytes: usize,
    /// Nodes to which frames can be sent, with their openings.
    up: BTreeMap<NodeNumber, u64>,
    /// Nodes that are about to end, with the opening that ends, and whether it wants no more requests.
    ending: BTreeMap<NodeNumber, (u64, bool)>,
    /// This node, and its opening.
    pub(super) node: NodeNumber,
    pub(super) opening: u64,
}

impl Forwarding {
    pub(super) fn new((node, opening): (NodeNumber, u64)) -> Self {
        let (up, ending) = (BTreeMap::new(), BTreeMap::new());
        Self { requests: Forwards::default(), bytes: 0, up, ending, node, opening }
    }

    fn has_room_for(&self, data_bytes: usize) -> bool {
        let count = self.requests.len();
        let is_within = self.bytes + data_bytes <= FORWARDS_BYTES_MAX;
        count < FORWARDS_COUNT_MAX && (count == 0 || is_within)
    }

    /// Nodes to which frames can be sent.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeNumber> {
        self.up.keys().copied()
    }

    /// The opening of a node to which requests can be sent.
    fn opening_of(&self, node: NodeNumber) -> Option<u64> {
        let opening = *self.up.get(&node)?;
        (self.ending.get(&node) != Some(&(opening, true))).then_some(opening)
    }

    /// Whether frames can be sent to a node, and its process is not about to end.
    pub(super) fn stays(&self, node: NodeNumber) -> bool {
        let opening = self.up.get(&node);
        opening.is_some_and(|up| self.ending.get(&node).is_none_or(|(ends, _)| ends != up))
    }

    /// An opening of a node is about to end. Once one of its shards wants no more requests it gets none; `true` if it has none
    /// without an answer then.
    pub(super) fn note_leave(&mut self, node: NodeNumber, opening: u64, is_done: bool) -> bool {
        let ends = self.ending.entry(node).or_default();
        let was_done = *ends == (opening, true);
        *ends = (opening, is_done || was_done);
        ends.1 && !self.requests.are_at((node, opening))
    }

    fn note_ended(&mut self, forward: &Forward) {
        self.bytes -= forward.data_bytes();
    }

    /// Asserts that the bytes are those of the requests.
    ///
    /// # Panics
    /// If they are not.
    pub(super) fn check(&self) {
        let bytes: usize = self.requests.requests().map(Forward::data_bytes).sum();
        assert_eq!(self.bytes, bytes, "forwarded bytes are miscounted");
    }
}

impl ShardCore {
    /// Has a request answered where its group is led.
    pub(super) fn forward(&mut self, id: GroupId, since: Monotonic, what: ForwardedRequest) {
        let (ticket, request, data) = what;
        let failure = if ticket.peer().is_some() {
            Failure::NoLeader
        } else {
            match self.add_forward((id, since), Forward::Client { ticket, request, data }) {
                Ok(()) => return,
                Err(failure) => failure,
            }
        };
        self.reply(ticket, Reply::Failed(failure));
    }

    /// Has a write carried out by who leads its group by now, which was not this node when it was to be logged.
    #[cold]
    pub(crate) fn carry_out_elsewhere(&mut self, moved: Moved) {
        let Moved { ticket, since, request, data } = moved;
        let path = request.written_path().expect("only what is logged needs a leader");
        let id = path.group(self.groups.total_count());
        self.forward(id, since, (ticket, request, data));
    }

    /// Whether a write to a path may be at another node, or waits to be sent. What is served here by now has its place.
    pub(super) fn has_forwarded(&self, id: GroupId, path: &StreamPath) -> bool {
        let forwarding = self.replication.as_ref().map(|replication| &replication.forwarding);
        forwarding.is_some_and(|it| {
            it.requests.has_elsewhere((id, subject_of(path)), (it.node, it.opening))
        })
    }

    /// Has a call of an operation answered where its group is led.
    pub(super) fn forward_call(
        &mut self,
        at: (GroupId, Monotonic),
        reply_to: ReplyTo,
        call: ShardCall,
    ) -> Gate {
        if matches!(reply_to, ReplyTo::Client(_)) {
            return Gate::Closed(Failure::NoLeader);
        }
        match self.add_forward(at, Forward::Call { reply_to, call }) {
            Ok(()) => Gate::Held,
            Err(failure) => Gate::Closed(failure),
        }
    }

    fn add_forward(
        &mut self,
        (id, since): (GroupId, Monotonic),
        forward: Forward,
    ) -> Result<(), Failure> {
        let forwarding = &mut self.members().forwarding;
        if !forwarding.has_room_for(forward.data_bytes()) {
            return Err(Failure::Overloaded);
        }
        forwarding.bytes += forward.data_bytes();
        forwarding.requests.add(id, forward, since.plus_ms(WAIT_MS_MAX));
        self.copy_mut(id).has_forwards = true;
        self.touch_group(id);
        Ok(())
    }

    /// Sends what waits for the leader of a group in which this node takes no part. It does not hear who leads, so it asks one
    /// node after the other.
    pub(super) fn send_forwards_from_outside(&mut self, id: GroupId) {
        if !self.copy_mut(id).has_forwards {
            return;
        }
        let up: Vec<NodeNumber> = self.members().forwarding.nodes().collect();
        let placed = self.members().meta().map_or(Vec::new(), |meta| meta.placed(id).to_vec());
        // As long as no leader has said where it is, it may be anywhere.
        let may_be_there = |node: &&NodeNumber| placed.is_empty() || placed.contains(node);
        let there: Vec<NodeNumber> = up.iter().filter(may_be_there).copied().collect();
        let copy = self.copy_mut(id);
        let node = there.get(copy.refusals_count % there.len().max(1));
        copy.asked = node.map(|node| ReplicaId::new(*node, 1));
        self.send_forwards(id);
    }

    /// Another node leads the group since now: one that led before may be silent.
    pub(super) fn doubt_former_leaders(&mut self, id: GroupId) {
        let Some(leader) = self.copy_mut(id).asked else { return };
        let now = self.members().now.monotonic;
        let is_former = |node, _| node != leader.node();
        if self.members().forwarding.requests.doubt_in(id, now, is_former) {
            self.copy_mut(id).has_forwards = true;
        }
    }

    /// The node that was asked from outside a group may be silent: the next one is asked.
    pub(super) fn doubt_silent_nodes(&mut self, id: GroupId) {
        let now = self.members().now.monotonic;
        let is_silent = |_, since| now.ms_since(since) >= SILENT_MS_MAX;
        if self.members().forwarding.requests.doubt_in(id, now, is_silent) {
            let copy = self.copy_mut(id);
            copy.refusals_count = copy.refusals_count.wrapping_add(1);
            copy.has_forwards = true;
        }
    }

    /// Sends what waits for the leader of a group. That may be this node by now.
    pub(super) fn send_forwards(&mut self, id: GroupId) {
        let copy = self.copy_mut(id);
        let Some(leader) = copy.asked.filter(|_| copy.has_forwards && !copy.is_refused) else {
            return;
        };
        let (node, is_serving) = (leader.node(), copy.is_serving());
        let now = self.members().now.monotonic;
        let forwarding = &mut self.members().forwarding;
        let opening = match node == forwarding.node {
            true => is_serving.then_some(forwarding.opening),
            false => forwarding.opening_of(node),
        };
        let Some(opening) = opening else { return };
        let sent = forwarding.requests.send_to(id, (node, opening), now);
        let waits = forwarding.requests.waiting_groups().contains(&id);
        self.copy_mut(id).has_forwards = waits;
        self.send_attempts((node, opening), sent);
    }

    fn send_attempts(&mut self, (node, opening): (NodeNumber, u64), sent: Vec<Sending>) {
        let shard = u64::from(self.groups.shard().get());
        let own = self.members().forwarding.opening;
        for Sending { request, group, settled_below } in sent {
            let forwarding = &self.members().forwarding;
            let Some(forward) = forwarding.requests.get(request) else { continue };
            let mut payload = Vec::with_capacity(forward.data_bytes() + 256);
            payload.put_u64_le(opening);
            payload.put_u64_le(own);
            forward.encode(&mut payload);
            let request = request << SHARD_BITS | shard;
            let settled_below = settled_below << SHARD_BITS;
            let payload = payload.into();
            if self.members().forwarding.node == node {
                self.hear_forward((node, group), (request, settled_below), payload);
            } else {
                self.tell(node, Section::Forward { group, request, settled_below, payload });
            }
        }
    }

    /// The leader has answered.
    pub(super) fn hear_answer(&mut self, request: u64, mut payload: Bytes) {
        let own = self.members().forwarding.opening;
        if payload.try_get_u64_le() != Ok(own) {
            // It is for an earlier opening of this node.
            return;
        }
        let attempt = request >> SHARD_BITS;
        let requests = &mut self.members().forwarding.requests;
        let (Some(id), Some(forward)) = (requests.group(attempt), requests.get(attempt)) else {
            return;
        };
        let heard = forward.decode_answer(payload);
        if !heard.is_refused() {
            let answered = requests.answered(attempt).expect("its group is known");
            self.end_forward((answered.request, answered.verdict), heard);
            return self.end_forwards(answered.overtaken, &Failure::NoLeader);
        }
        requests.not_applied(attempt);
        let copy = self.copy_mut(id);
        // One node refuses all that it was sent at once.
        let is_first = !std::mem::replace(&mut copy.is_refused, true);
        copy.refusals_count = copy.refusals_count.wrapping_add(is_first.into());
        copy.has_forwards = true;
        self.touch_group(id);
    }

    /// Answers a client or an operation. If an attempt of a client's request is in doubt, another one that was refused for now
    /// proves nothing. A read has changed nothing in any case.
    fn end_forward(&mut self, (forward, certain): (Forward, Verdict), heard: Heard) {
        self.members().forwarding.note_ended(&forward);
        match (forward, heard) {
            (Forward::Client { ticket, request, .. }, Heard::Client(reply)) => {
                if let (Request::Meta(command), Reply::Meta(MetaOutcome::Renewed(id))) =
                    (&request, &reply)
                {
                    self.note_renewal(command, *id);
                }
                let is_read = request.is_read();
                let reply = match reply {
                    Reply::Failed(Failure::Unknown) if is_read => Reply::Failed(Failure::NoLeader),
                    Reply::Failed(_) if certain == Verdict::Unknown && !is_read => {
                        Reply::Failed(Failure::Unknown)
                    }
                    reply => reply,
                };
                self.reply(ticket, reply);
            }
            (Forward::Call { reply_to, .. }, Heard::Call(answer)) => {
                let now = self.members().now;
                self.give(now, reply_to, answer);
            }
            (forward, _) => unreachable!("an answer is of its request's kind: {forward:?}"),
        }
    }

    fn end_forwards(&mut self, ended: Vec<(Forward, Verdict)>, refusal: &Failure) {
        for (forward, verdict) in ended {
            let failure = match verdict {
                Verdict::NoLeader => refusal.clone(),
                Verdict::Unknown => Failure::Unknown,
            };
            let heard = forward.failed(failure);
            self.end_forward((forward, verdict), heard);
        }
    }

    /// Requests that have waited too long get the answer that is certain.
    pub(super) fn give_up_forwards(&mut self, now: Stamp) {
        let groups = &self.groups;
        // A copy that is out hears nothing: who led when it did may lead no more.
        let leader = |id: GroupId| {
            let copy = groups.get(id).role.copy().filter(|copy| copy.halt.is_none())?;
            copy.replica.leader().map(ReplicaId::node)
        };
        let members = self.replication.as_mut().expect("what is forwarded is a member's");
        let ended = members.forwarding.requests.expired(now.monotonic, leader);
        self.end_forwards(ended, &Failure::NoLeader);
    }

    /// The log has failed: this node hears no answer any more.
    pub(super) fn fail_forwards(&mut self) {
        let ended = self.members().forwarding.requests.end_all();
        self.end_forwards(ended, &Failure::Poisoned { applied_unknown: false });
    }

    /// Frames can be sent to a node: what may have been lost with the link before is asked for again.
    pub(super) fn note_link_up(&mut self, node: NodeNumber, opening: u64) {
        self.forget_link(node);
        self.members().leave.forget(node);
        let now = self.members().now.monotonic;
        self.members().forwarding.up.insert(node, opening);
        let (sent, gone) = self.members().forwarding.requests.link_up((node, opening), now);
        self.send_attempts((node, opening), sent);
        let gone = gone.into_iter().map(|forward| (forward, Verdict::Unknown)).collect();
        self.end_forwards(gone, &Failure::NoLeader);
        self.touch_forwards();
        self.answer_again(node);
    }

    /// Frames to a node may be lost.
    pub(super) fn forget_link(&mut self, node: NodeNumber) {
        let now = self.members().now.monotonic;
        let forwarding = &mut self.members().forwarding;
        forwarding.up.remove(&node);
        forwarding.requests.link_lost(node, now);
        self.touch_forwards();
    }

    /// What waits may go somewhere now.
    fn touch_forwards(&mut self) {
        for id in self.members().forwarding.requests.waiting_groups() {
            self.copy_mut(id).has_forwards = true;
            self.touch_group(id);
        }
    }
}

/// A request of a client, and its data.
pub(super) type ForwardedRequest = (Ticket, Request, Vec<u8>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_that_has_taken_leave_gets_nothing_whatever_another_shard_of_it_says() {
        let two = NodeNumber::new(2);
        let mut forwarding = Forwarding::new((NodeNumber::new(1), 1));
        forwarding.up.insert(two, 7);
        assert!(!forwarding.note_leave(two, 7, false));
        assert_eq!((forwarding.opening_of(two), forwarding.stays(two)), (Some(7), false));
        assert!(forwarding.note_leave(two, 7, true) && forwarding.note_leave(two, 7, false));
        assert_eq!(forwarding.opening_of(two), None);
        forwarding.up.insert(two, 8);
        assert_eq!((forwarding.opening_of(two), forwarding.stays(two)), (Some(8), true));
    }
}
