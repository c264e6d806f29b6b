//! The clients' side of a world: what they ask, and what they hear.

use super::clients::{Asker, Next};
use super::member::Mail;
use super::oracle::Disks;
use super::plan::ClusterMutant;
use super::streams::STREAMS;
use super::world::{Act, World};
use model::{GroupId, ShardId};
use node::{CopyState, Failure, Reply, Request, Ticket};

/// A client waits this long for an answer at least, and at most.
const PATIENCE_US: (u64, u64) = (300_000, 8_000_000);

/// One of so many acknowledgements is looked for on the disks.
const IMAGES_PERCENT: u64 = 8;

impl World {
    pub(super) fn add_client(&mut self, client: Box<dyn Asker>) {
        let number = self.clients.len();
        self.clients.push(client);
        self.active.insert(number);
        self.at(0, Act::Wake(number));
    }

    pub(super) fn wake(&mut self, number: usize) {
        let group = self.clients[number].group(&self.options);
        let must_create = !self.created.contains(&(number % STREAMS)) && number < STREAMS;
        let is_being_made = self.active.contains(&(number % STREAMS)) || !self.is_ending;
        if number >= STREAMS && !self.created.contains(&(number % STREAMS)) && is_being_made {
            return self.at(200_000, Act::Wake(number));
        }
        let node = match self.clients[number].asks_anywhere() {
            true => self.any_node(),
            false => {
                let node = *self.clients[number].node();
                self.leader_known_to(node, group)
            }
        };
        *self.clients[number].node() = node;
        let (request, data) = self.clients[number].ask(&mut self.oracle, must_create);
        self.send((number, node), request, data);
    }

    /// Where a node knows of a leader, that one; else itself.
    fn leader_known_to(&self, node: usize, group: GroupId) -> usize {
        let known = self.members[node].copy_of(group).and_then(|copy| copy.leader);
        let is_member = |node: &usize| self.is_member(*node);
        let node = Some(node).filter(is_member).unwrap_or(0);
        known.map_or(node, |leader| usize::from(leader.get()) - 1)
    }

    /// Whether a node answers for a group without leading it.
    fn is_elsewhere(&self, node: usize, group: GroupId) -> bool {
        self.members[node].copy_of(group).is_some_and(|copy| copy.state == CopyState::Follows)
    }

    /// Any node that may run.
    pub(super) fn any_node(&mut self) -> usize {
        let count = self.members.len();
        let node = self.dice.below(count as u64) as usize;
        let mut nodes = (node..node + count).map(|node| node % count);
        nodes.find(|node| self.is_member(*node)).expect("some node is a member")
    }

    pub(super) fn next_call(&mut self) -> u32 {
        self.call_next += 1;
        self.call_next
    }

    fn send(&mut self, (client, node): (usize, usize), request: Request, data: Vec<u8>) {
        let (call, life) = (self.next_call(), self.members[node].life);
        self.calls.insert(call, (client, node));
        let delay_us = self.dice.delay_us(300);
        if self.mutant() == Some(ClusterMutant::RepeatedRequests)
            && let Request::Append { path, append } = &request
        {
            let (path, append, data) = (path.clone(), append.clone(), data.clone());
            let request = Request::Append { path, append };
            self.at(delay_us + 1, Act::Arrive { call, node, life, request, data });
        }
        self.at(delay_us, Act::Arrive { call, node, life, request, data });
        let patience_us = self.dice.between(PATIENCE_US.0, PATIENCE_US.1);
        self.at(patience_us, Act::GiveUp { call });
    }

    /// A request whose answer nobody hears.
    pub(super) fn send_unheard(&mut self, node: usize, request: Request, data: Vec<u8>) {
        self.call_next += 1;
        let (call, life) = (self.call_next, self.members[node].life);
        let delay_us = self.dice.delay_us(300);
        self.at(delay_us, Act::Arrive { call, node, life, request, data });
    }

    pub(super) fn give_request(
        &mut self,
        (call, node): (u32, usize),
        request: Request,
        data: Vec<u8>,
    ) {
        let group = match (&request, request.path()) {
            (_, Some(path)) => path.group(self.options.group_count),
            (Request::Window { key, .. }, _) => key.group,
            _ => unreachable!("clients ask by path or for windows"),
        };
        let ticket = Ticket { shard: ShardId::new(0), exchange: [call, 0, 0] };
        self.ask_shard(node, group, ticket, (request, data));
    }

    /// Gives a request to the shard of a group.
    pub(super) fn ask_shard(
        &mut self,
        node: usize,
        group: GroupId,
        ticket: Ticket,
        (request, data): (Request, Vec<u8>),
    ) {
        let shard = usize::from(group.shard(self.members[node].shard_count).get());
        self.post(node, shard, Mail::Request { ticket, request, data });
    }

    /// What is acknowledged now is on a majority's disks now.
    pub(super) fn check_acknowledged(&mut self, (node, call): (usize, u32), reply: &Reply) {
        let Reply::Outcome(stream::Outcome::Appended(_)) = reply else { return };
        let Some((client, _)) = self.calls.get(&call) else { return };
        let Some(op) = self.clients[*client].op() else { return };
        self.spring_ambush(node, self.oracle.group_of(op, &self.options));
        if self.dice.percent(IMAGES_PERCENT) {
            let opened: Vec<node::Membership> =
                (0..self.members.len()).map(|it| self.membership(it)).collect();
            let disks = Disks {
                members: &self.members,
                opened: &opened,
                damages: &self.damages,
                options: &self.options,
            };
            self.oracle.check_images(&disks, (node, op));
        }
    }

    pub(super) fn hear(&mut self, call: u32, reply: Reply) {
        if self.hear_cluster(call, &reply) {
            return;
        }
        let Some((client, node)) = self.calls.remove(&call) else { return };
        let group = self.clients[client].group(&self.options);
        let is_read = matches!(reply, Reply::Head(..) | Reply::Read(_));
        let is_write = matches!(reply, Reply::Outcome(stream::Outcome::Appended(_)));
        let is_elsewhere = self.is_elsewhere(node, group);
        self.elsewhere_count += u64::from(is_read && is_elsewhere);
        self.forwarded_count += u64::from(is_write && is_elsewhere);
        let is_made = matches!(
            reply,
            Reply::Outcome(stream::Outcome::Created(_) | stream::Outcome::Existed(_))
        );
        if is_made {
            self.created.insert(client % STREAMS);
        }
        let reply = match (reply, self.mutant()) {
            (
                Reply::Failed(Failure::Unknown | Failure::Poisoned { applied_unknown: true }),
                Some(ClusterMutant::DeniedDoubts),
            ) => Reply::Failed(Failure::NoLeader),
            (reply, _) => reply,
        };
        if let (Reply::Read(read), Some(stream)) = (&reply, self.clients[client].reads_stream()) {
            self.watch(node, stream, read.key);
        }
        let is_failed = matches!(reply, Reply::Failed(_));
        let said = super::clients::in_short(&reply);
        self.trace.note(self.now_us, format_args!("client {client} hears of {node}: {said}"));
        let next = self.clients[client].hear(&mut self.oracle, reply, &mut self.contents);
        self.go_on(client, next, (node, is_failed));
    }

    /// A call has no answer any more.
    pub(super) fn give_up(&mut self, call: u32) {
        let Some((client, node)) = self.calls.remove(&call) else { return };
        self.trace.note(self.now_us, format_args!("client {client} gives up on {node}"));
        let next = self.clients[client].give_up(&mut self.oracle);
        self.go_on(client, next, (node, true));
    }

    fn go_on(&mut self, client: usize, next: Next, (node, is_failed): (usize, bool)) {
        match next {
            Next::Ask(request) => return self.send((client, node), request, Vec::new()),
            Next::End => {
                self.active.remove(&client);
                return;
            }
            Next::Again => {}
        }
        if is_failed {
            *self.clients[client].node() = self.any_node();
        }
        let delay_us = 1000 + self.clients[client].delay_us();
        self.at(delay_us, Act::Wake(client));
    }

    /// Clients of a node that is gone learn that no answer comes.
    pub(super) fn lose_calls(&mut self, node: usize) {
        let lost = self.calls.iter().filter(|(_, (_, of))| *of == node).map(|(call, _)| *call);
        let lost: Vec<u32> = lost.collect();
        for call in lost {
            let delay_us = self.dice.delay_us(2000);
            self.at(delay_us, Act::GiveUp { call });
        }
    }
}
