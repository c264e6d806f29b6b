//! What a loop does that has links to other nodes.

use super::Shard;
use crate::plane::mailbox::Mail;
use cluster::Section;
use node::{Event, PeerEvent, to_shards};

impl Shard {
    /// Takes in what other nodes have said, and gives it to the shards of its groups.
    pub(super) fn hear_peers(&mut self) {
        let Some(links) = &mut self.links else { return };
        links.run(self.now);
        let shard_count = u16::try_from(self.outgoing.len()).expect("shards are u16");
        for event in links.take_heard() {
            let PeerEvent::Section { from, section } = event else {
                self.core.handle(self.now, Event::Peer(event.into()));
                continue;
            };
            if let Section::Report { payload } = &section {
                self.hear_report(from, payload);
            }
            to_shards((from, section), shard_count, |to, event| match to == self.id {
                true => self.core.handle(self.now, Event::Peer(event.into())),
                false => self.mail(to, Mail::Peer(event.into())),
            });
        }
    }

    /// Whether the commit waits for another turn. All that need not wait for it is on its way then.
    pub(super) fn holds_commit(&mut self, has_events: bool) -> bool {
        let may_wait = self.sync_place.is_loop() && self.yields.are_on() && !self.is_behind();
        if may_wait {
            while let Some(output) = self.core.poll_before_commit() {
                self.execute_output(output);
            }
        }
        if !may_wait || !self.core.has_uncommitted() {
            self.commit_hold.end();
            return false;
        }
        let is_held = self.commit_hold.waits(self.shared.clock.now_monotonic(), has_events);
        if is_held {
            self.send_answers();
            self.flush_links();
        }
        is_held
    }
}
