//! Requests that this node has for the leaders of groups.

use crate::identity::NodeNumber;
use model::{GroupId, Monotonic};
use std::collections::BTreeMap;

/// How a request ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was not applied, for certain: no leader took it in time.
    NoLeader,
    /// Nobody can tell whether it was applied.
    Unknown,
}

/// A request to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// Its number.
    pub request: u64,
    /// Its group.
    pub group: GroupId,
    /// All requests with lower numbers are settled.
    pub settled_below: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody has it.
    Waiting,
    /// A node has it, or will when the link delivers it.
    Sent(Opening),
    /// The link was lost before an answer came. The same opening of the same node may be asked again.
    InDoubt(Opening),
}

/// One opening of one node: what it knows is gone with it.
type Opening = (NodeNumber, u64);

#[derive(Debug)]
struct Entry<T> {
    group: GroupId,
    state: State,
    deadline: Monotonic,
    request: T,
}

/// The requests of one shard that other nodes answer, each as a `T`.
///
/// # Driving it
/// [`Forwards::add`]; [`Forwards::send_to`] for those of a group whose leader is known, with the opening of its node;
/// then [`Forwards::answered`], [`Forwards::not_applied`], [`Forwards::link_lost`], [`Forwards::link_up`] as
/// things happen, and [`Forwards::expired`] with the time.
///
/// # Invariants
/// - A request is at one node at a time. It is sent to another only when it was certainly not applied.
/// - A number is used once.
#[derive(Debug)]
pub struct Forwards<T> {
    entries: BTreeMap<u64, Entry<T>>,
    last: u64,
}

impl<T> Default for Forwards<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: 0 }
    }
}

impl<T> Forwards<T> {
    /// Adds a request, to be given up at `deadline`. Returns its number.
    pub fn add(&mut self, group: GroupId, request: T, deadline: Monotonic) -> u64 {
        self.last += 1;
        let entry = Entry { group, state: State::Waiting, deadline, request };
        self.entries.insert(self.last, entry);
        self.last
    }

    /// Requests without an end.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The request of a number.
    #[must_use]
    pub fn get(&self, request: u64) -> Option<&T> {
        self.entries.get(&request).map(|entry| &entry.request)
    }

    /// Groups of requests that nobody has.
    pub fn waiting_groups(&self) -> impl Iterator<Item = GroupId> {
        let waiting = self.entries.values().filter(|entry| entry.state == State::Waiting);
        waiting.map(|entry| entry.group)
    }

    /// Sends all waiting requests of a group to a node; `epoch` is its opening.
    pub fn send_to(&mut self, group: GroupId, node: NodeNumber, epoch: u64) -> Vec<Sending> {
        let opening = (node, epoch);
        self.resend(opening, |entry| entry.group == group && entry.state == State::Waiting)
    }

    fn resend(&mut self, opening: Opening, wants: impl Fn(&Entry<T>) -> bool) -> Vec<Sending> {
        let settled_below = self.entries.keys().next().copied().unwrap_or(self.last + 1);
        let wanted = self.entries.iter_mut().filter(|(_, entry)| wants(entry));
        wanted
            .map(|(request, entry)| {
                entry.state = State::Sent(opening);
                Sending { request: *request, group: entry.group, settled_below }
            })
            .collect()
    }

    /// An answer has come. `None`: nobody waits for it any more.
    pub fn answered(&mut self, request: u64) -> Option<T> {
        self.entries.remove(&request).map(|entry| entry.request)
    }

    /// The node that had it says that it was not applied, and never will be: it may go elsewhere.
    pub fn not_applied(&mut self, request: u64) {
        if let Some(entry) = self.entries.get_mut(&request) {
            entry.state = State::Waiting;
        }
    }

    /// The link to a node was lost. What was on it may have arrived or not.
    pub fn link_lost(&mut self, node: NodeNumber) {
        for entry in self.entries.values_mut() {
            if let State::Sent((of, epoch)) = entry.state
                && of == node
            {
                entry.state = State::InDoubt((of, epoch));
            }
        }
    }

    /// A link to a node is up: requests in doubt are asked again if it is the same opening. Otherwise
    /// what became of them is gone with it.
    pub fn link_up(&mut self, node: NodeNumber, epoch: u64) -> (Vec<Sending>, Vec<T>) {
        let is_gone = |entry: &Entry<T>| matches!(entry.state, State::InDoubt((of, old)) if of == node && old != epoch);
        let gone = self.take(is_gone).into_iter().map(|entry| entry.request).collect();
        let opening = (node, epoch);
        (self.resend(opening, |entry| entry.state == State::InDoubt(opening)), gone)
    }

    /// Requests whose time is over at `now`, each with what is certain of it.
    pub fn expired(&mut self, now: Monotonic) -> Vec<(T, Verdict)> {
        let expired = self.take(|entry| entry.deadline <= now).into_iter();
        let judge = |entry: Entry<T>| match entry.state {
            State::Waiting => (entry.request, Verdict::NoLeader),
            State::Sent(_) | State::InDoubt(_) => (entry.request, Verdict::Unknown),
        };
        expired.map(judge).collect()
    }

    /// When [`Forwards::expired`] has something next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.entries.values().map(|entry| entry.deadline).min()
    }

    fn take(&mut self, wants: impl Fn(&Entry<T>) -> bool) -> Vec<Entry<T>> {
        self.entries.extract_if(.., |_, entry| wants(entry)).map(|(_, entry)| entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::new(7);

    fn node(number: u16) -> NodeNumber {
        NodeNumber::new(number)
    }

    fn late(seconds: u64) -> Monotonic {
        Monotonic::new(seconds * 1_000_000_000)
    }

    /// Two requests, both at node 2.
    fn two_sent() -> Forwards<char> {
        let mut forwards = Forwards::default();
        forwards.add(GROUP, 'a', late(5));
        forwards.add(GROUP, 'b', late(6));
        assert_eq!(forwards.send_to(GROUP, node(2), 9).len(), 2);
        forwards
    }

    #[test]
    fn requests_are_sent_once_and_answered_once() {
        let mut forwards = two_sent();
        assert_eq!(forwards.send_to(GROUP, node(3), 1), []);
        assert_eq!(forwards.answered(1), Some('a'));
        assert_eq!(forwards.answered(1), None);
        forwards.add(GROUP, 'c', late(7));
        let sending = Sending { request: 3, group: GROUP, settled_below: 2 };
        assert_eq!(forwards.send_to(GROUP, node(2), 9), [sending]);
    }

    #[test]
    fn what_was_not_applied_for_certain_goes_to_the_next_leader() {
        let mut forwards = two_sent();
        forwards.not_applied(2);
        assert_eq!(forwards.waiting_groups().collect::<Vec<_>>(), [GROUP]);
        let sent = forwards.send_to(GROUP, node(3), 1);
        assert_eq!(sent.iter().map(|sending| sending.request).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_lost_link_proves_nothing_and_the_same_opening_is_asked_again() {
        let mut forwards = two_sent();
        forwards.link_lost(node(2));
        assert_eq!(forwards.send_to(GROUP, node(3), 1), []);
        let (sent, gone) = forwards.link_up(node(2), 9);
        assert_eq!((sent.len(), gone.len()), (2, 0));
        assert_eq!(forwards.answered(1), Some('a'));
    }

    #[test]
    fn nobody_knows_what_a_node_had_that_was_started_anew() {
        let mut forwards = two_sent();
        forwards.link_lost(node(2));
        let (sent, gone) = forwards.link_up(node(2), 10);
        assert_eq!((sent, gone), (vec![], vec!['a', 'b']));
        assert!(forwards.is_empty());
    }

    #[test]
    fn time_tells_what_was_certainly_not_applied_from_what_nobody_knows() {
        let mut forwards = two_sent();
        forwards.not_applied(1);
        assert_eq!(forwards.next_deadline(), Some(late(5)));
        assert_eq!(forwards.expired(late(4)), []);
        let ended = forwards.expired(late(6));
        assert_eq!(ended, [('a', Verdict::NoLeader), ('b', Verdict::Unknown)]);
        assert_eq!(forwards.next_deadline(), None);
    }
}
