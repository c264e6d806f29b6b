//! Requests that this node has for the leaders of groups.

use crate::identity::NodeNumber;
use model::{GroupId, Monotonic};
use std::collections::{BTreeMap, BTreeSet};

/// How a request ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was not applied, for certain: no leader took it in time.
    NoLeader,
    /// Nobody can tell whether it was applied.
    Unknown,
}

/// What has to be known of a request.
pub trait Forwarded {
    /// Requests with the same subject take effect in the order in which they came; `None` if the order does not matter.
    fn subject(&self) -> Option<u64>;

    /// Whether it may be carried out twice: it changes nothing, or is known again.
    fn may_repeat(&self) -> bool;
}

/// A request to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// The number of this attempt.
    pub request: u64,
    /// Its group.
    pub group: GroupId,
    /// All attempts with lower numbers are settled.
    pub settled_below: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody has it.
    Waiting,
    /// A node has it since this time, or will when the link delivers it.
    Sent(Attempt, Monotonic),
    /// The link was lost, at this time, before an answer came, or another node leads since. The same opening of the same node may be
    /// asked again, and may still answer.
    InDoubt(Attempt, Monotonic),
}

/// So long after its link was lost, the answer of a node that leads no more is waited for. A link that was cut is often back by then.
const DOUBT_MS_MAX: u64 = 500;

/// One opening of one node: what it knows is gone with it.
type Opening = (NodeNumber, u64);

/// What requests have in common that keep their order.
type Subject = (GroupId, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    number: u64,
    at: Opening,
}

#[derive(Debug)]
struct Entry<T> {
    group: GroupId,
    state: State,
    deadline: Monotonic,
    request: T,
    /// An attempt was given up of which nobody can tell.
    is_doubtful: bool,
}

impl<T> Entry<T> {
    fn verdict(&self) -> Verdict {
        match self.state {
            State::Waiting if !self.is_doubtful => Verdict::NoLeader,
            _ => Verdict::Unknown,
        }
    }

    fn end(self) -> (T, Verdict) {
        let verdict = self.verdict();
        (self.request, verdict)
    }

    fn attempt(&self) -> Option<Attempt> {
        match self.state {
            State::Waiting => None,
            State::Sent(attempt, _) | State::InDoubt(attempt, _) => Some(attempt),
        }
    }
}

/// A request that has its answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered<T> {
    /// The request.
    pub request: T,
    /// What is certain if the answer says that this attempt has changed nothing.
    pub verdict: Verdict,
    /// Earlier ones of its subject, which were refused before. They do not come behind it, so they end.
    pub overtaken: Vec<(T, Verdict)>,
}

/// The requests of one shard that other nodes answer, each as a `T`.
///
/// # Driving it
/// [`Forwards::add`]; [`Forwards::send_to`] for those of a group whose leader is known, with the opening of its node. That may be
/// this node by now. Then [`Forwards::answered`], [`Forwards::not_applied`], [`Forwards::link_lost`], [`Forwards::link_up`] as
/// things happen, and [`Forwards::expired`] with the time.
///
/// # Invariants
/// - A request is at one node at a time, unless it may be repeated. It is sent to another only when it was certainly not
///   applied.
/// - The number of an attempt is used once. A node that has refused one refuses each copy of it, however late.
/// - A request waits while an earlier one of its subject may be at another node, or a later one anywhere.
#[derive(Debug)]
pub struct Forwards<T> {
    /// In the order in which they came.
    entries: BTreeMap<u64, Entry<T>>,
    /// The request of each attempt that is not settled.
    attempts: BTreeMap<u64, u64>,
    /// How many requests each subject of a group has.
    subjects: BTreeMap<Subject, usize>,
    last: u64,
    last_attempt: u64,
}

impl<T> Default for Forwards<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            attempts: BTreeMap::new(),
            subjects: BTreeMap::new(),
            last: 0,
            last_attempt: 0,
        }
    }
}

impl<T> Forwards<T> {
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

    /// All requests without an end, in the order in which they came.
    pub fn requests(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.request)
    }

    /// The request of an attempt.
    #[must_use]
    pub fn get(&self, attempt: u64) -> Option<&T> {
        let entry = self.entries.get(self.attempts.get(&attempt)?)?;
        Some(&entry.request)
    }

    /// The group of the request of an attempt.
    #[must_use]
    pub fn group(&self, attempt: u64) -> Option<GroupId> {
        let entry = self.entries.get(self.attempts.get(&attempt)?)?;
        Some(entry.group)
    }
}

impl<T: Forwarded> Entry<T> {
    /// What other requests take effect before it or behind it.
    fn key(&self) -> Option<Subject> {
        Some((self.group, self.request.subject()?))
    }

    /// Whether it may be sent: nobody has it, or another opening than `at` may have it, and it may be repeated.
    fn may_go(&self, at: Option<Opening>) -> bool {
        match self.state {
            State::Waiting => true,
            State::Sent(..) => false,
            State::InDoubt(attempt, _) => self.request.may_repeat() && Some(attempt.at) != at,
        }
    }
}

impl<T: Forwarded> Forwards<T> {
    /// Adds a request, to be given up at `deadline`.
    pub fn add(&mut self, group: GroupId, request: T, deadline: Monotonic) {
        self.last += 1;
        let entry = Entry { group, state: State::Waiting, deadline, request, is_doubtful: false };
        if let Some(subject) = entry.key() {
            *self.subjects.entry(subject).or_insert(0) += 1;
        }
        self.entries.insert(self.last, entry);
    }

    /// An answer has come. `None`: nobody waits for it any more.
    pub fn answered(&mut self, attempt: u64) -> Option<Answered<T>> {
        let order = self.attempts.remove(&attempt)?;
        let mut entry = self.remove(order)?;
        entry.state = State::Waiting;
        let verdict = entry.verdict();
        let overtaken = entry.key().map_or(Vec::new(), |of| self.take_overtaken(order, of));
        Some(Answered { request: entry.request, verdict, overtaken })
    }

    /// Requests of a subject that wait, and came before the one that had this place.
    fn take_overtaken(&mut self, order: u64, of: Subject) -> Vec<(T, Verdict)> {
        if !self.subjects.contains_key(&of) {
            // Most requests are alone with their subject.
            return Vec::new();
        }
        let waits = |entry: &Entry<T>| entry.state == State::Waiting && entry.key() == Some(of);
        let earlier = self.entries.range(..order).filter(|(_, entry)| waits(entry));
        let earlier: Vec<u64> = earlier.map(|(order, _)| *order).collect();
        earlier.into_iter().filter_map(|order| self.remove(order)).map(Entry::end).collect()
    }

    /// Requests whose time is over at `now`, each with what is certain of it. `leader` says who leads a group now. A request that
    /// must not be repeated does not wait much longer for a node that leads no more: others wait for it.
    pub fn expired(
        &mut self,
        now: Monotonic,
        leader: impl Fn(GroupId) -> Option<NodeNumber>,
    ) -> Vec<(T, Verdict)> {
        self.end(|entry| {
            let is_given_up = match entry.state {
                State::InDoubt(attempt, since) if !entry.request.may_repeat() => {
                    let is_late = now.ms_since(since) >= DOUBT_MS_MAX;
                    is_late && leader(entry.group).is_some_and(|node| node != attempt.at.0)
                }
                _ => false,
            };
            is_given_up || entry.deadline <= now
        })
    }

    /// All requests: this node forwards nothing any more.
    pub fn end_all(&mut self) -> Vec<(T, Verdict)> {
        self.end(|_| true)
    }

    fn end(&mut self, is_over: impl Fn(&Entry<T>) -> bool) -> Vec<(T, Verdict)> {
        self.take(is_over).into_iter().map(Entry::end).collect()
    }

    fn take(&mut self, wants: impl Fn(&Entry<T>) -> bool) -> Vec<Entry<T>> {
        let taken = self.entries.extract_if(.., |_, entry| wants(entry));
        let taken: Vec<Entry<T>> = taken.map(|(_, entry)| entry).collect();
        for entry in &taken {
            self.note_removed(entry);
        }
        taken
    }

    fn remove(&mut self, order: u64) -> Option<Entry<T>> {
        let entry = self.entries.remove(&order)?;
        self.note_removed(&entry);
        Some(entry)
    }

    fn note_removed(&mut self, entry: &Entry<T>) {
        if let Some(attempt) = entry.attempt() {
            self.attempts.remove(&attempt.number);
        }
        let Some(subject) = entry.key() else { return };
        let count = self.subjects.get_mut(&subject).expect("each request is counted");
        *count -= 1;
        if *count == 0 {
            self.subjects.remove(&subject);
        }
    }

    /// Whether an opening of a node may have requests without an answer.
    #[must_use]
    pub fn are_at(&self, (node, epoch): (NodeNumber, u64)) -> bool {
        self.entries.values().filter_map(Entry::attempt).any(|attempt| attempt.at == (node, epoch))
    }

    /// Whether a request with a subject of a group waits, or may be anywhere but at this opening of a node.
    #[must_use]
    pub fn has_elsewhere(&self, subject: Subject, here: Opening) -> bool {
        let is_here =
            |entry: &Entry<T>| matches!(entry.state, State::Sent(attempt, _) if attempt.at == here);
        let is_it = |entry: &Entry<T>| entry.key() == Some(subject);
        self.subjects.contains_key(&subject)
            && self.entries.values().any(|entry| is_it(entry) && !is_here(entry))
    }

    /// Groups of requests that may be sent to a leader.
    #[must_use]
    pub fn waiting_groups(&self) -> BTreeSet<GroupId> {
        let waiting = self.entries.values().filter(|entry| entry.may_go(None));
        waiting.map(|entry| entry.group).collect()
    }

    /// Sends the requests of a group that may be sent to this opening of a node.
    pub fn send_to(&mut self, group: GroupId, at: Opening, now: Monotonic) -> Vec<Sending> {
        let mut held = self.subjects_elsewhere(group, at);
        let last_sent = self.last_sent(group, at);
        let mut sent = Vec::new();
        for (order, entry) in &mut self.entries {
            if entry.group != group || !entry.may_go(Some(at)) {
                continue;
            }
            if let Some(subject) = entry.request.subject()
                && (held.contains(&subject) || last_sent.get(&subject).is_some_and(|it| it > order))
            {
                held.insert(subject);
                continue;
            }
            if let Some(given_up) = entry.attempt() {
                self.attempts.remove(&given_up.number);
                entry.is_doubtful = true;
            }
            self.last_attempt += 1;
            let number = self.last_attempt;
            self.attempts.insert(number, *order);
            entry.state = State::Sent(Attempt { number, at }, now);
            let settled_below = self.attempts.keys().next().copied().unwrap_or(number);
            sent.push(Sending { request: number, group, settled_below });
        }
        sent
    }

    /// Subjects of a group of which something may be at another opening of a node, and must not be repeated.
    fn subjects_elsewhere(&self, group: GroupId, at: Opening) -> BTreeSet<u64> {
        let of_group = self.entries.values().filter(|entry| entry.group == group);
        let is_elsewhere = |entry: &&Entry<T>| {
            let is_other = entry.attempt().is_some_and(|attempt| attempt.at != at);
            is_other && !entry.may_go(Some(at))
        };
        of_group.filter(is_elsewhere).filter_map(|entry| entry.request.subject()).collect()
    }

    /// The last request of each subject of a group that a node may have, and that is not to be repeated there.
    fn last_sent(&self, group: GroupId, at: Opening) -> BTreeMap<u64, u64> {
        let of_group = self.entries.iter().filter(|(_, entry)| entry.group == group);
        let sent = of_group.filter(|(_, entry)| !entry.may_go(Some(at)));
        sent.filter_map(|(order, entry)| Some((entry.request.subject()?, *order))).collect()
    }

    /// The node that had it says that this attempt was not applied, and never will be. It may go elsewhere, once no later one of its
    /// subject is anywhere: those may be refused as well.
    pub fn not_applied(&mut self, attempt: u64) {
        let Some(order) = self.attempts.remove(&attempt) else { return };
        let entry = self.entries.get_mut(&order).expect("an attempt is one of a request");
        entry.state = State::Waiting;
    }

    /// The link to a node was lost, at `now`. What was on it may have arrived or not.
    pub fn link_lost(&mut self, node: NodeNumber, now: Monotonic) {
        self.doubt(now, |_, at, _| at == node);
    }

    /// Waits no more for nodes alone that have requests of a group: others may have what may be repeated. `is_it` says for which nodes, and
    /// the time at which they were asked, that is so. Returns whether there was such a request.
    pub fn doubt_in(
        &mut self,
        group: GroupId,
        now: Monotonic,
        is_it: impl Fn(NodeNumber, Monotonic) -> bool,
    ) -> bool {
        self.doubt(now, |of, node, since| of == group && is_it(node, since))
    }

    fn doubt(
        &mut self,
        now: Monotonic,
        is_it: impl Fn(GroupId, NodeNumber, Monotonic) -> bool,
    ) -> bool {
        let mut is_any = false;
        for entry in self.entries.values_mut() {
            if let State::Sent(attempt, since) = entry.state
                && is_it(entry.group, attempt.at.0, since)
            {
                entry.state = State::InDoubt(attempt, now);
                is_any = true;
            }
        }
        is_any
    }

    /// A link to a node is up: requests in doubt are asked again if it is the same opening. Otherwise
    /// what became of them is gone with it; what may not be repeated is returned.
    pub fn link_up(&mut self, (node, epoch): Opening, now: Monotonic) -> (Vec<Sending>, Vec<T>) {
        let is_gone = |entry: &Entry<T>| {
            let is_other = |at: Opening| at.0 == node && at.1 != epoch;
            let is_in_doubt =
                matches!(entry.state, State::InDoubt(attempt, _) if is_other(attempt.at));
            is_in_doubt && !entry.request.may_repeat()
        };
        let gone = self.take(is_gone).into_iter().map(|entry| entry.request).collect();
        let settled_below = self.attempts.keys().next().copied().unwrap_or(self.last_attempt + 1);
        let mut sent = Vec::new();
        for entry in self.entries.values_mut() {
            if let State::InDoubt(attempt, _) = entry.state
                && attempt.at == (node, epoch)
            {
                entry.state = State::Sent(attempt, now);
                let (request, group) = (attempt.number, entry.group);
                sent.push(Sending { request, group, settled_below });
            }
        }
        (sent, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::new(7);

    /// Letters are requests of one subject each; capitals may be repeated. Digits are of none.
    impl Forwarded for char {
        fn subject(&self) -> Option<u64> {
            (!self.is_ascii_digit()).then(|| u64::from(self.to_ascii_lowercase()))
        }

        fn may_repeat(&self) -> bool {
            self.is_ascii_uppercase()
        }
    }

    fn node(number: u16) -> NodeNumber {
        NodeNumber::new(number)
    }

    fn late(seconds: u64) -> Monotonic {
        Monotonic::new(seconds * 1_000_000_000)
    }

    /// Requests that are all at node 2.
    fn sent(requests: &str) -> Forwards<char> {
        let mut forwards = Forwards::default();
        for (seconds, request) in (5..).zip(requests.chars()) {
            forwards.add(GROUP, request, late(seconds));
        }
        assert_eq!(forwards.send_to(GROUP, (node(2), 9), late(0)).len(), requests.len());
        forwards
    }

    fn answered(forwards: &mut Forwards<char>, attempt: u64) -> Option<(char, Verdict)> {
        let Answered { request, verdict, overtaken } = forwards.answered(attempt)?;
        assert_eq!(overtaken, []);
        Some((request, verdict))
    }

    fn numbers(sent: &[Sending]) -> Vec<u64> {
        sent.iter().map(|sending| sending.request).collect()
    }

    #[test]
    fn requests_are_sent_once_and_answered_once() {
        let mut forwards = sent("ab");
        assert_eq!(forwards.send_to(GROUP, (node(3), 1), late(0)), []);
        assert_eq!((forwards.get(1), forwards.group(1)), (Some(&'a'), Some(GROUP)));
        assert_eq!(answered(&mut forwards, 1), Some(('a', Verdict::NoLeader)));
        assert_eq!((answered(&mut forwards, 1), forwards.get(1)), (None, None));
        forwards.add(GROUP, 'c', late(7));
        let sending = Sending { request: 3, group: GROUP, settled_below: 2 };
        assert_eq!(forwards.send_to(GROUP, (node(2), 9), late(0)), [sending]);
    }

    #[test]
    fn what_was_not_applied_for_certain_goes_to_the_next_leader_under_another_number() {
        let mut forwards = sent("ab");
        forwards.not_applied(2);
        assert_eq!(forwards.waiting_groups(), BTreeSet::from([GROUP]));
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(3), 1), late(0))), [3]);
        forwards.not_applied(2);
        assert!(forwards.waiting_groups().is_empty(), "it was a late copy of the refusal");
        assert_eq!(answered(&mut forwards, 3), Some(('b', Verdict::NoLeader)));
    }

    #[test]
    fn a_request_does_not_come_behind_a_later_one_of_its_subject() {
        let mut forwards = sent("abaa");
        forwards.not_applied(1);
        forwards.add(GROUP, 'a', late(9));
        assert_eq!(forwards.send_to(GROUP, (node(3), 1), late(0)), [], "the third may be applied");
        forwards.not_applied(3);
        forwards.not_applied(4);
        assert_eq!(
            numbers(&forwards.send_to(GROUP, (node(3), 1), late(0))),
            [5, 6, 7, 8],
            "in their order"
        );
        forwards.not_applied(5);
        let overtaken = forwards.answered(7).map(|it| it.overtaken);
        assert_eq!(overtaken, Some(vec![('a', Verdict::NoLeader)]), "the third was applied");
        assert_eq!((forwards.len(), forwards.attempts.len()), (3, 3), "b and two behind it");
        let mut forwards = sent("aa");
        forwards.not_applied(2);
        forwards.add(GROUP, 'b', late(9));
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(3), 1), late(0))), [3], "b alone");
        assert!(forwards.answered(1).is_some());
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(3), 1), late(0))), [4]);
        assert_eq!(forwards.get(4), Some(&'a'));
    }

    #[test]
    fn a_lost_link_proves_nothing_and_the_same_opening_is_asked_again() {
        let mut forwards = sent("ab");
        forwards.link_lost(node(2), late(0));
        assert_eq!(forwards.send_to(GROUP, (node(3), 1), late(0)), []);
        let (sent, gone) = forwards.link_up((node(2), 9), late(0));
        assert_eq!((numbers(&sent), gone.len()), (vec![1, 2], 0));
        assert!(forwards.answered(1).is_some());
    }

    #[test]
    fn what_may_be_repeated_goes_to_the_next_leader_and_its_doubts_stay() {
        let mut forwards = sent("AbC");
        forwards.link_lost(node(2), late(0));
        assert_eq!(
            forwards.send_to(GROUP, (node(2), 9), late(0)),
            [],
            "the same opening is asked again"
        );
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(3), 1), late(0))), [4, 5]);
        assert_eq!(answered(&mut forwards, 1), None, "that attempt is given up");
        assert_eq!(answered(&mut forwards, 4), Some(('A', Verdict::Unknown)));
        forwards.not_applied(5);
        let ended = forwards.expired(late(9), |_| Some(node(2)));
        assert_eq!(ended, [('b', Verdict::Unknown), ('C', Verdict::Unknown)]);
    }

    #[test]
    fn what_may_be_repeated_outlives_the_opening_that_had_it() {
        let mut forwards = sent("Ab");
        forwards.link_lost(node(2), late(0));
        assert_eq!(forwards.link_up((node(2), 10), late(0)), (vec![], vec!['b']));
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(2), 10), late(0))), [3]);
        assert_eq!(answered(&mut forwards, 3), Some(('A', Verdict::Unknown)));
    }

    #[test]
    fn a_request_in_doubt_ends_soon_after_another_node_leads() {
        let mut forwards = sent("abC");
        let half_a_second = Monotonic::new(500_000_000);
        assert!(forwards.answered(1).is_some());
        forwards.link_lost(node(2), late(0));
        for leader in [None, Some(node(2))] {
            assert_eq!(forwards.expired(half_a_second, |_| leader), [], "it may be back");
        }
        assert_eq!(forwards.expired(Monotonic::new(499_999_999), |_| Some(node(3))), []);
        let ended = forwards.expired(half_a_second, |_| Some(node(3)));
        assert_eq!(ended, [('b', Verdict::Unknown)], "what may be repeated is");
    }

    #[test]
    fn what_may_be_repeated_does_not_wait_for_a_node_that_is_silent() {
        let mut forwards = sent("AbC");
        assert!(
            !forwards.doubt_in(GROUP, late(1), |_, since| since > late(0)),
            "all were sent before"
        );
        assert!(forwards.doubt_in(GROUP, late(1), |at, _| at == node(2)));
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(3), 1), late(1))), [4, 5]);
        assert_eq!(answered(&mut forwards, 2), Some(('b', Verdict::NoLeader)), "it was only slow");
    }

    #[test]
    fn what_has_no_subject_waits_for_nothing_and_is_not_overtaken() {
        let mut forwards = sent("123");
        forwards.not_applied(1);
        forwards.add(GROUP, '4', late(9));
        assert_eq!(numbers(&forwards.send_to(GROUP, (node(3), 1), late(0))), [4, 5]);
        forwards.not_applied(4);
        assert!(answered(&mut forwards, 2).is_some());
        assert_eq!((forwards.len(), &forwards.subjects), (3, &BTreeMap::new()));
    }

    #[test]
    fn nobody_knows_what_a_node_had_that_was_started_anew() {
        let mut forwards = sent("ab");
        forwards.link_lost(node(2), late(0));
        let (sent, gone) = forwards.link_up((node(2), 10), late(0));
        assert_eq!((sent, gone), (vec![], vec!['a', 'b']));
        assert!(forwards.is_empty());
    }

    #[test]
    fn time_tells_what_was_certainly_not_applied_from_what_nobody_knows() {
        let mut forwards = sent("abc");
        forwards.not_applied(1);
        assert_eq!(forwards.expired(late(4), |_| Some(node(2))), []);
        let ended = forwards.expired(late(6), |_| Some(node(2)));
        assert_eq!(ended, [('a', Verdict::NoLeader), ('b', Verdict::Unknown)]);
        assert_eq!(forwards.end_all(), [('c', Verdict::Unknown)]);
        assert_eq!(forwards.attempts, BTreeMap::new());
        assert_eq!(forwards.subjects, BTreeMap::new());
    }

    #[test]
    fn what_is_not_here_is_known_by_its_subject_until_it_is_settled() {
        let (here, subject) = ((node(1), 4), |letter: char| (GROUP, u64::from(letter)));
        let mut forwards = sent("aa");
        assert!(forwards.has_elsewhere(subject('a'), here));
        assert!(!forwards.has_elsewhere(subject('b'), here));
        assert!(!forwards.has_elsewhere((GroupId::new(8), subject('a').1), here));
        forwards.not_applied(2);
        assert!(forwards.answered(1).is_some());
        assert!(forwards.has_elsewhere(subject('a'), here), "one waits");
        assert_eq!(forwards.send_to(GROUP, here, late(0)).len(), 1);
        assert!(!forwards.has_elsewhere(subject('a'), here), "it is served here");
        assert!(forwards.has_elsewhere(subject('a'), (here.0, 5)));
    }
}
