//! Requests that other nodes forward to the leader of a group, which is here.
//!
//! # How
//! A request of a peer is one like any other, but its ticket names the peer. Its answer is kept until the peer says that it
//! has it: a link that was lost may have lost the answer, or the peer asks again.
//!
//! # Invariants
//! - An attempt is served once. Its answer is the same whenever it is asked for again, a refusal too.
//! - An answer goes to the opening that has asked. A request for an earlier opening of this node is not served.

use super::call_bytes::{decode_call, encode_answer};
use super::request_bytes::{decode_request, encode_reply};
use crate::{Failure, Reply, Request, ShardAnswer, ShardCore, Stamp, Ticket, proposed::ReplyTo};
use bytes::{Buf, BufMut, Bytes};
use cluster::{Arrival, NodeNumber, Section, Served};
use model::GroupId;
use std::collections::BTreeMap;

/// One shard of one opening of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asker {
    node: NodeNumber,
    shard: u16,
    opening: u64,
}

/// What peers have asked of this shard.
#[derive(Debug, Default)]
pub(super) struct Serving {
    /// By node and shard: the latest opening, and its requests.
    askers: BTreeMap<(NodeNumber, u16), (u64, Served<Bytes>)>,
    /// Requests under way, by the number in their ticket.
    under_way: BTreeMap<u64, (Asker, u64)>,
    last: u64,
}

impl Serving {
    /// What a request is that has arrived; `None` if an opening that is over has sent it.
    fn arrive(&mut self, asker: Asker, request: u64, settled_below: u64) -> Option<Arrival<Bytes>> {
        let place = self.askers.entry((asker.node, asker.shard)).or_default();
        if place.0 > asker.opening {
            return None;
        }
        if place.0 < asker.opening {
            *place = (asker.opening, Served::default());
        }
        Some(place.1.arrive(request, settled_below))
    }

    /// Whether a request has no answer yet.
    pub(super) fn is_serving(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The node and the shard that have asked.
    pub(super) fn asker(&self, ticket: Ticket) -> Option<(NodeNumber, u16)> {
        let (asker, _) = self.under_way.get(&ticket.peer()?)?;
        Some((asker.node, asker.shard))
    }

    fn begin(&mut self, asker: Asker, request: u64) -> Ticket {
        self.last += 1;
        self.under_way.insert(self.last, (asker, request));
        Ticket::of_peer(self.last)
    }

    /// Takes a request that has its answer, and keeps that; `None` if its asker is no more.
    fn end(
        &mut self,
        ticket: Ticket,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Option<(NodeNumber, u64, Bytes)> {
        let (asker, request) = self.under_way.remove(&ticket.peer()?)?;
        let (opening, served) = self.askers.get_mut(&(asker.node, asker.shard))?;
        if *opening != asker.opening {
            return None;
        }
        let mut payload = Vec::with_capacity(64);
        payload.put_u64_le(asker.opening);
        encode(&mut payload);
        let payload = Bytes::from(payload);
        served.answer(request, payload.clone());
        Some((asker.node, request, payload))
    }
}

impl ShardCore {
    /// Serves a request of a peer.
    pub(super) fn hear_forward(
        &mut self,
        (node, id): (NodeNumber, GroupId),
        (request, settled_below): (u64, u64),
        mut payload: Bytes,
    ) {
        let now = self.members().now;
        let (Ok(to), Ok(opening)) = (payload.try_get_u64_le(), payload.try_get_u64_le()) else {
            return;
        };
        if to != self.members().forwarding.opening || !self.has_copy(id) {
            return;
        }
        let asker = Asker { node, shard: request as u16, opening };
        match self.members().serving.arrive(asker, request, settled_below) {
            Some(Arrival::New) => {}
            Some(Arrival::Answered(payload)) => {
                return self.tell(node, Section::Answer { request, payload });
            }
            Some(Arrival::Known | Arrival::Settled) | None => return,
        }
        let ticket = self.members().serving.begin(asker, request);
        if self.log.is_poisoned() {
            return self.reply(ticket, Reply::Failed(Failure::NoLeader));
        }
        if !self.copy_mut(id).leads() {
            return self.serve_window(now, (ticket, id), payload);
        }
        let group_count = self.groups.total_count();
        if let Some(call) = decode_call(payload.clone()).filter(|it| it.group(group_count) == id) {
            return self.handle_call(now, ReplyTo::Client(ticket), call);
        }
        match decode_request(payload).filter(|(request, _)| self.is_of_group(request, id)) {
            Some((request, data)) => self.route(now, ticket, (request, &data)),
            // What this version does not know it does not apply.
            None => self.reply(ticket, Reply::Failed(Failure::NoLeader)),
        }
    }

    /// Stored bytes below a tail that was seen are the same wherever they are: it takes no leader to give them out.
    fn serve_window(&mut self, now: Stamp, (ticket, id): (Ticket, GroupId), payload: Bytes) {
        if self.copy_mut(id).halt.is_none()
            && let Some((Request::Window { key, from, to }, _)) = decode_request(payload)
            && key.group == id
            && !self.may_be_behind(now, key, to)
        {
            let request = Request::Window { key, from, to };
            return self.execute(now, ticket, (request, &[]));
        }
        self.reply(ticket, Reply::Failed(Failure::NoLeader));
    }

    fn is_of_group(&self, request: &Request, id: GroupId) -> bool {
        let total = self.groups.total_count();
        match (request.path(), request) {
            (Some(path), _) => path.group(total) == id,
            (None, Request::Meta(_)) => GroupId::new(total) == id,
            (None, Request::Window { key, .. }) => key.group == id,
            (None, _) => false,
        }
    }

    /// Answers a peer.
    #[cold]
    pub(crate) fn answer_peer(&mut self, ticket: Ticket, reply: &Reply) {
        let ended = self.members().serving.end(ticket, |out| encode_reply(reply, out));
        self.send_answer(ended);
    }

    /// Answers a call of a peer.
    #[cold]
    pub(crate) fn answer_peer_call(&mut self, ticket: Ticket, answer: ShardAnswer) {
        let ended = self.members().serving.end(ticket, |out| encode_answer(&answer, out));
        self.send_answer(ended);
    }

    fn send_answer(&mut self, ended: Option<(NodeNumber, u64, Bytes)>) {
        let Some((node, request, payload)) = ended else { return };
        if node == self.members().forwarding.node {
            self.hear_answer(request, payload);
        } else {
            self.tell(node, Section::Answer { request, payload });
        }
    }

    /// Answers that may have been lost with the link before.
    pub(super) fn answer_again(&mut self, node: NodeNumber) {
        let askers = self.members().serving.askers.iter();
        let of_node = askers.filter(|((of, _), _)| *of == node);
        let answers = of_node.flat_map(|(_, (_, served))| served.answers());
        let answers: Vec<(u64, Bytes)> =
            answers.map(|(request, answer)| (request, answer.clone())).collect();
        for (request, payload) in answers {
            self.tell(node, Section::Answer { request, payload });
        }
    }
}
