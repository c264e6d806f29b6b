//! Where the last readers of a stream stopped, so that the next read of each needs no search.

/// Readers of one stream that continue without a search.
const HINTS_MAX: usize = 8;

/// The place of an entry's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(crate) id: u64,
    pub(crate) offset: u64,
    /// Entries of the same frame from here on; 0 at the start of a frame.
    pub(crate) left: u32,
}

/// Where the last readers of a stream stopped.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    places: [Option<EntryPlace>; HINTS_MAX],
    next: usize,
}

impl Hints {
    pub(crate) fn find(&self, id: u64) -> Option<EntryPlace> {
        self.places.iter().flatten().find(|place| place.id == id).copied()
    }

    /// Remembers the new place of a reader that came from `before`.
    pub(crate) fn put(&mut self, before: u64, place: EntryPlace) {
        let mut places = self.places.iter_mut();
        let same = places.find(|old| old.is_some_and(|old| old.id == before));
        match same {
            Some(old) => *old = Some(place),
            None => {
                self.places[self.next] = Some(place);
                self.next = (self.next + 1) % HINTS_MAX;
            }
        }
    }
}
