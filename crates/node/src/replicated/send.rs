//! What goes to peers: messages, with the bytes of their entries.
//!
//! # How
//! The library says which entries a message has, the log has their bytes. Those of the last moments are in memory. Older
//! ones are read by a job, and the message waits for it. So messages of a group may overtake each other, as on any link.

use super::copy::Fetch;
use crate::{FetchDone, FetchJob, Output, ShardCore, ToPeer};
use bytes::{BufMut, Bytes, BytesMut};
use cluster::{
    Body, EntryBytes, EntryHead, GroupMessage, KIND_CHANGE, LogPosition, Section, SentEntry,
};
use log::{EntryError, StoredEntry};
use model::{EntryIndex, GroupId};

/// Bytes of entries that are fetched for one message: somewhat more than the library puts into one.
const FETCH_BYTES_MAX: u64 = 512 << 10;

impl ShardCore {
    /// Sends a message, at once or when its entries were read.
    pub(super) fn say(&mut self, id: GroupId, message: GroupMessage) {
        let Body::Append { entries, .. } = &message.body else { return self.put_out(id, message) };
        let Some(first) = entries.first().map(|entry| entry.at.index) else {
            return self.put_out(id, message);
        };
        // What is not in the log any more only a snapshot has.
        let Ok(read) = self.log.entries(id, first, FETCH_BYTES_MAX) else { return };
        if !read.is_in_memory() {
            return self.fetch(id, Fetch::Send(message), read);
        }
        let found = read.run().expect("what is in memory is not damaged");
        self.fill_and_put_out(id, message, &found);
    }

    fn put_out(&mut self, group: GroupId, message: GroupMessage) {
        let to = message.to.node();
        let section = Section::Message { group, message };
        self.outputs.push_back(Output::Peer(Box::new(ToPeer { to, section })));
    }

    /// Entries that do not fit, or were superseded meanwhile, are left out: as if their end had been lost on the way.
    fn fill_and_put_out(&mut self, id: GroupId, mut message: GroupMessage, found: &[StoredEntry]) {
        let Body::Append { entries, .. } = &mut message.body else { return };
        let mut found = found.iter();
        entries.retain_mut(|sent| found.next().is_some_and(|stored| fill(sent, stored)));
        let is_row = entries.windows(2).all(|two| two[0].at.index.next() == two[1].at.index);
        if !entries.is_empty() && is_row {
            self.put_out(id, message);
        }
    }

    fn fetch(&mut self, id: GroupId, why: Fetch, read: log::EntryRead) {
        let number = self.members().next_fetch();
        self.copy_mut(id).fetches.insert(number, why);
        self.outputs.push_back(Output::Fetch(Box::new(FetchJob { group: id, number, read })));
    }

    /// Reads the entry that is to be applied next, and some behind it.
    pub(super) fn fetch_to_apply(&mut self, id: GroupId, from: EntryIndex) {
        let copy = self.copy_mut(id);
        if copy.fetches.values().any(|fetch| matches!(fetch, Fetch::Apply)) {
            return;
        }
        let read = self.log.entries(id, from, FETCH_BYTES_MAX);
        let read = read.expect("what is committed here and not applied is in the log");
        self.fetch(id, Fetch::Apply, read);
    }

    pub(crate) fn handle_fetched(&mut self, done: FetchDone) {
        let FetchDone { group: id, number, found } = done;
        let fetch = self.copy_mut(id).fetches.remove(&number);
        match (fetch.expect("a job that was given out"), found) {
            (Fetch::Send(message), Ok(found)) => {
                if message.term == self.copy_mut(id).replica.term() {
                    self.fill_and_put_out(id, message, &found);
                }
            }
            (Fetch::Apply, Ok(found)) => {
                let durable = found.into_iter().filter_map(|stored| stored.durable().cloned());
                let group = self.groups.get_mut(id);
                let applied = group.state.applied();
                let copy = group.role.copy_mut().expect("it is replicated");
                for entry in durable {
                    let is_it = entry.index > applied
                        && self.log.term_of(id, entry.index) == Some(entry.term);
                    if is_it {
                        copy.durable.entry(entry.index).or_insert(entry);
                    }
                }
            }
            (Fetch::Nobody, _) => {}
            (_, Err(EntryError::Damaged { .. })) => self.halt(id, super::Halt::Damage),
            // The peer asks again; what is to be applied is read again.
            (_, Err(_)) => {}
        }
        self.touch_group(id);
    }
}

/// Gives an entry of a message its bytes; `false` if the log has another one there.
fn fill(sent: &mut SentEntry, stored: &StoredEntry) -> bool {
    let entry = stored.entry();
    let at = LogPosition { index: entry.index, term: entry.term };
    if at != sent.at {
        return false;
    }
    let head = EntryHead {
        at,
        subject: entry.subject,
        time: entry.at,
        kind: entry.kind,
        command_bytes: u32::try_from(entry.command.len()).expect("commands are below 64 MiB"),
        data_bytes: u32::try_from(entry.data.len()).expect("data is below 4 GiB"),
        command_crc: stored.command_crc,
        data_crc: stored.data_crc,
    };
    let length = usize::try_from(head.bytes()).expect("entries are below 4 GiB");
    let mut bytes = BytesMut::with_capacity(length);
    bytes.put_slice(&head.encode());
    bytes.put_slice(&entry.command);
    bytes.put_slice(&entry.data);
    sent.is_change = entry.kind == KIND_CHANGE;
    sent.bytes = EntryBytes::Sent(Bytes::from(bytes));
    true
}
