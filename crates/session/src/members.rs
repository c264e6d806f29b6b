//! The readers of a stream, each under the number of its membership.
//!
//! # Why
//! Thousands of readers may follow one stream and end at the same time. So each is found and taken out without a look at
//! the others.
//!
//! # Invariants
//! - Numbers rise, and none is given twice. So an old number names nobody, even if its connection is used again.

/// Members in the order in which they came.
#[derive(Debug)]
pub(crate) struct Members<T> {
    /// By rising number; `None` for those that have left.
    list: Vec<(u64, Option<T>)>,
    left_count: usize,
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self { list: Vec::new(), left_count: 0 }
    }
}

impl<T: Copy> Members<T> {
    /// # Panics
    /// If `number` is not above all others.
    pub(crate) fn push(&mut self, number: u64, member: T) {
        assert!(self.list.last().is_none_or(|last| last.0 < number), "numbers rise");
        self.list.push((number, Some(member)));
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        let place = self.list.binary_search_by_key(&number, |member| member.0).ok()?;
        self.list[place].1.is_some().then_some(place)
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.place_of(number).is_some()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place_of(number)?;
        self.list[place].1.as_mut()
    }

    /// Takes a member out, if it is there.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(place) = self.place_of(number) else { return };
        self.list[place].1 = None;
        self.left_count += 1;
        // Each place is moved once, on average, for one that has left.
        if self.left_count * 2 > self.list.len() {
            self.list.retain(|member| member.1.is_some());
            self.left_count = 0;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len() - self.left_count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().filter_map(|member| member.1.as_ref())
    }

    /// Keeps those for which `stays` is true.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(T) -> bool) {
        self.list.retain(|member| member.1.is_some_and(&mut stays));
        self.left_count = 0;
    }

    /// Takes those out of which `is_wanted` is true, with their numbers.
    pub(crate) fn take_if(&mut self, is_wanted: impl Fn(T) -> bool) -> Vec<(u64, T)> {
        let mut taken = Vec::new();
        self.list.retain(|&(number, member)| {
            let Some(member) = member else { return false };
            let is_taken = is_wanted(member);
            if is_taken {
                taken.push((number, member));
            }
            !is_taken
        });
        self.left_count = 0;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_leave_in_any_order_and_the_others_keep_theirs() {
        let mut members = Members::default();
        (1..=100).for_each(|number| members.push(number, number * 10));
        for number in (2..=100).step_by(2).chain([2, 200]) {
            members.remove(number);
        }
        assert!((1..=100).all(|number| members.has(number) == (number % 2 == 1)));
        assert!(members.iter().copied().eq((1..=100).step_by(2).map(|number| number * 10)));
        assert_eq!(members.len(), 50);
        let low = members.take_if(|member| member < 500);
        assert_eq!((low.len(), low[0], members.len()), (25, (1, 10), 25));
        assert!(members.has(51) && !members.has(49));
        members.retain(|member| member > 990);
        assert_eq!(members.iter().next(), None);
        assert!(members.is_empty());
    }

    #[test]
    fn places_of_members_that_have_left_are_given_back() {
        let mut members = Members::default();
        for number in 1..=10_000 {
            members.push(number, ());
            members.remove(number - 1);
        }
        assert!(members.list.len() <= 2, "{} places for one member", members.list.len());
    }
}
