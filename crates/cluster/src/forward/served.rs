//! Requests of another node that this one serves, so that a repeated one is served once.

use std::collections::BTreeMap;

/// What a request is to this node when it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival<A> {
    /// It is new: serve it.
    New,
    /// It is being served: its answer will come.
    Known,
    /// It was served, and this was the answer.
    Answered(A),
    /// Its sender has said before that it is settled: a late copy.
    Settled,
}

/// The requests of one opening of one node, with the answers that may not have arrived.
///
/// Bounded by the sender: it has a bounded number of requests unsettled, and says up to where all are.
#[derive(Debug)]
pub struct Served<A> {
    requests: BTreeMap<u64, Option<A>>,
    settled_below: u64,
}

impl<A> Default for Served<A> {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), settled_below: 0 }
    }
}

impl<A: Clone> Served<A> {
    /// A request has arrived; all of its sender's below `settled_below` are settled.
    pub fn arrive(&mut self, request: u64, settled_below: u64) -> Arrival<A> {
        if settled_below > self.settled_below {
            self.settled_below = settled_below;
            self.requests = self.requests.split_off(&settled_below);
        }
        if request < self.settled_below {
            return Arrival::Settled;
        }
        match self.requests.get(&request) {
            Some(Some(answer)) => Arrival::Answered(answer.clone()),
            Some(None) => Arrival::Known,
            None => {
                self.requests.insert(request, None);
                Arrival::New
            }
        }
    }

    /// A request was served.
    pub fn answer(&mut self, request: u64, answer: A) {
        if let Some(served) = self.requests.get_mut(&request) {
            *served = Some(answer);
        }
    }

    /// Answers that may not have arrived, with their requests.
    pub fn answers(&self) -> impl Iterator<Item = (u64, &A)> {
        let answers = self.requests.iter();
        answers.filter_map(|(request, answer)| Some((*request, answer.as_ref()?)))
    }

    /// Requests that are not settled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether all are settled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_request_is_served_once() {
        let mut served = Served::default();
        assert_eq!(served.arrive(1, 0), Arrival::New);
        assert_eq!(served.arrive(1, 0), Arrival::Known);
        served.answer(1, 'x');
        assert_eq!(served.arrive(1, 0), Arrival::Answered('x'));
        assert_eq!(served.arrive(2, 0), Arrival::New);
        assert_eq!(served.answers().collect::<Vec<_>>(), [(1, &'x')]);
    }

    #[test]
    fn settled_requests_are_forgotten_and_never_new_again() {
        let mut served = Served::default();
        for request in 1..=3 {
            assert_eq!(served.arrive(request, 0), Arrival::New);
        }
        served.answer(2, 'x');
        assert_eq!(served.arrive(4, 3), Arrival::New);
        assert_eq!(served.len(), 2);
        assert_eq!(served.arrive(2, 1), Arrival::Settled);
        served.answer(2, 'y');
        assert_eq!(served.len(), 2);
    }
}
