//! A shard's part in who belongs to the cluster: nodes that ask to join, and what the cluster's own group says.
//!
//! # How
//! Changes are requests to the shard that has the cluster's own group ([`Mail::Meta`]). A node that joins asks for
//! them, an operator does, or a shard that wants something to be so. What a shard applies of that group goes to the other shards and to [`crate::cluster::Peers`].
//! The first question of all makes this node the first one of several: each of its shards begins that before it hears anything else. The question
//! waits until each group here is a copy.

use super::asks::{Asker, Newcomer};
use super::mailbox::Mail;
use super::shard::Shard;
use crate::cluster::Peers;
use cluster::{JoinAnswer, JoinQuestion, MetaCommand, MetaOutcome};
use model::{GroupId, ShardId};
use node::{Event, PeerEvent, Reply, Request, Ticket};
use std::sync::Arc;

/// How long the first node that joins waits for the groups of this one, at most. It is to ask again then.
const BEGIN_MS_MAX: u64 = 5_000;

impl Shard {
    /// Passes on what nodes ask that want to join, and what the core wants of the cluster.
    pub(super) fn tend_cluster(&mut self) {
        let Some(links) = &mut self.links else { return };
        let peers = Arc::clone(links.peers());
        for (link, question) in links.take_questions() {
            self.let_join(&peers, link, question);
        }
        self.ask_for_newcomers();
        while let Some(command) = self.core.poll_wish() {
            self.ask_cluster(Box::new(command), Asker::Nobody);
        }
        let Some(meta) = self.core.poll_meta() else { return };
        peers.note_meta(&meta);
        for to in self.other_shards() {
            self.mail(to, Mail::Peer(Box::new(PeerEvent::Meta(Arc::clone(&meta)))));
        }
    }

    fn other_shards(&self) -> Vec<ShardId> {
        let shards = (0..).zip(&self.outgoing).map(|(number, _)| ShardId::new(number));
        shards.filter(|shard| *shard != self.id).collect()
    }

    fn let_join(&mut self, peers: &Peers, link: u64, question: JoinQuestion) {
        tracing::info!(address = question.member.peer_address, "a node asks to join");
        if let Some(membership) = peers.first_of_several() {
            for to in self.other_shards() {
                self.mail(to, Mail::Begin(Box::new(membership.clone())));
            }
            self.core.begin_membership(self.now, membership);
        }
        let since = self.now.monotonic;
        self.asks.newcomers.push(Newcomer { link, member: question.member, since });
    }

    fn ask_for_newcomers(&mut self) {
        if self.asks.newcomers.is_empty() {
            return;
        }
        let now = self.now.monotonic;
        let is_joinable = self.core.known_meta().is_some_and(|meta| meta.is_joinable());
        let is_due = |it: &mut Newcomer| is_joinable || now.ms_since(it.since) >= BEGIN_MS_MAX;
        let due: Vec<Newcomer> = self.asks.newcomers.extract_if(.., is_due).collect();
        for Newcomer { link, member, .. } in due {
            let command = Box::new(MetaCommand::Join(member));
            self.ask_cluster(command, Asker::Joiner((self.id, link)));
        }
    }

    /// Has a change of the cluster carried out where its own group is.
    pub(super) fn ask_cluster(&mut self, command: Box<MetaCommand>, asker: Asker) {
        let shard_count = u16::try_from(self.outgoing.len()).expect("shards are u16");
        let to = GroupId::new(self.core.group_count()).shard(shard_count);
        if to != self.id {
            return self.mail(to, Mail::Meta { command, asker });
        }
        let ticket = self.asks.add(asker);
        let request = Request::Meta(command);
        self.core.handle(self.now, Event::Request { ticket, request, data: &[] });
    }

    /// What came of a change.
    #[cold]
    pub(super) fn hear_outcome(&mut self, ticket: Ticket, reply: &Reply) {
        let outcome = match reply {
            Reply::Meta(outcome) => Some(*outcome),
            _ => None,
        };
        let answer = match (self.asks.take(ticket), outcome) {
            (None | Some(Asker::Nobody), _) => return,
            (Some(Asker::Caller(caller)), outcome) => {
                // The caller may have gone.
                let _ = caller.send(outcome);
                return;
            }
            (Some(Asker::Joiner(link)), Some(MetaOutcome::Joined(number))) => {
                let links = self.links.as_ref().expect("a node has links");
                return links.peers().note_joined(number, link);
            }
            (Some(Asker::Joiner(link)), Some(MetaOutcome::Refused(refusal))) => {
                (link, JoinAnswer::Refused(refusal))
            }
            (Some(Asker::Joiner(link)), _) => (link, JoinAnswer::NotNow),
        };
        let ((shard, link), answer) = answer;
        if shard == self.id {
            return self.answer_joiner(link, &answer);
        }
        self.mail(shard, Mail::JoinAnswer { link, answer: Box::new(answer) });
    }

    /// Answers a node that has asked this shard.
    pub(super) fn answer_joiner(&mut self, link: u64, answer: &JoinAnswer) {
        if let Some(links) = &mut self.links {
            links.answer(link, answer);
        }
    }
}
