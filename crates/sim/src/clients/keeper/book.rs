//! All appends of one stream, and how far its beginning may have gone.

use crate::{
    clients::{Ctx, unframed},
    clock::WallRange,
    dice::Dice,
    oracle::Shape,
    wire::Ask,
};

/// What is kept of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub(super) age_seconds: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) records: Option<u64>,
}

impl Bounds {
    /// Bounds that are reached soon, and often none.
    pub(super) fn draw(ctx: &mut Ctx<'_>) -> Self {
        let dice = &mut *ctx.dice;
        Self {
            age_seconds: dice.percent(30).then(|| dice.between(2, 40)),
            bytes: dice.percent(40).then(|| dice.between(0, 2_000)),
            records: dice.percent(40).then(|| dice.between(0, 30)),
        }
    }

    pub(super) fn fields(self, ask: Ask) -> Ask {
        let text = |bound: Option<u64>| bound.map_or("none".into(), |bound| bound.to_string());
        ask.field("Stream-Retention-Age", text(self.age_seconds))
            .field("Stream-Retention-Bytes", text(self.bytes))
            .field("Stream-Retention-Records", text(self.records))
    }
}

/// One append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) first_record: u64,
    /// The bytes as they are stored.
    pub(super) stored: Vec<u8>,
    /// Where each record ends, counted from the start of the append.
    pub(super) ends: Vec<u64>,
    /// The times between which it has arrived, in milliseconds, as a server may count them.
    pub(super) arrived: WallRange,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.start + self.stored.len() as u64
    }

    pub(super) fn next_record(&self) -> u64 {
        self.first_record + self.ends.len() as u64
    }

    /// As a client sends it.
    pub(super) fn body(&self, shape: Shape) -> Vec<u8> {
        match shape {
            Shape::Json => [b"[", &self.stored[..self.stored.len() - 1], b"]"].concat(),
            Shape::Text | Shape::Binary => self.stored.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pieces: Vec<Piece>,
    /// Under way: it may be there.
    pending: Option<Piece>,
    /// The stream begins here at least.
    head: u64,
    /// The furthest that a trim was sent for, and the furthest that was acknowledged.
    trim_sent: u64,
    trim_done: u64,
    /// Bounds that may have held at some time.
    kept: Vec<Bounds>,
    /// Those that hold.
    now: Bounds,
    /// The latest time that a server may have, in milliseconds.
    time_high: u64,
    /// Appends that were too old at this time, of a clock that has never jumped, have to go.
    old_at: Option<u64>,
}

impl Book {
    pub(super) fn tail(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end)
    }

    pub(super) fn next_record(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::next_record)
    }

    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// A new append, which names itself.
    pub(super) fn draw(&mut self, shape: Shape, dice: &mut Dice, now: WallRange) -> Piece {
        let count = if shape == Shape::Json { dice.between(1, 4) } else { 1 };
        let (start, first_record) = (self.tail(), self.next_record());
        let (mut stored, mut ends) = (Vec::new(), Vec::new());
        for record in first_record..first_record + count {
            let padding = "x".repeat(usize::try_from(dice.below(200)).expect("a length"));
            let text = match shape {
                Shape::Json => format!("{{\"record\":{record},\"p\":\"{padding}\"}},"),
                Shape::Text | Shape::Binary => format!("record {record} {padding}\n"),
            };
            stored.extend_from_slice(text.as_bytes());
            ends.push(stored.len() as u64);
        }
        let arrived = WallRange { low: now.low, high: u64::MAX };
        let piece = Piece { start, first_record, stored, ends, arrived };
        self.pending = Some(piece.clone());
        piece
    }

    /// The append under way is there.
    pub(super) fn accept(&mut self) {
        let arrived_high = self.time_high;
        self.pieces.extend(self.pending.take().map(|piece| {
            let arrived = WallRange { high: arrived_high, ..piece.arrived };
            Piece { arrived, ..piece }
        }));
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: WallRange) {
        self.time_high = self.time_high.max(now.high);
    }

    /// From now on what is too old has to go.
    pub(super) fn expect_old_to_go(&mut self) {
        self.old_at.get_or_insert(self.time_high);
    }

    /// The append under way is not there, and will not be.
    pub(super) fn refuse(&mut self) {
        self.pending = None;
    }

    pub(super) fn may_keep(&mut self, bounds: Bounds) {
        self.kept.push(bounds);
    }

    pub(super) fn keeps(&mut self, bounds: Bounds) {
        self.now = bounds;
    }

    pub(super) fn may_trim(&mut self, to: u64) {
        self.trim_sent = self.trim_sent.max(to);
    }

    pub(super) fn trimmed(&mut self, to: u64) {
        self.trim_done = self.trim_done.max(to);
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &Piece> {
        self.pieces.iter().chain(&self.pending)
    }

    /// The start of the append that holds this byte; the tail itself at the tail.
    pub(super) fn floor_of(&self, at: u64) -> u64 {
        let holds = |piece: &&Piece| piece.start <= at && at < piece.end();
        self.all().find(holds).map_or(at, |piece| piece.start)
    }

    /// The first byte of a record; the tail if it is the next one.
    pub(super) fn start_of(&self, number: u64) -> u64 {
        let holds = |piece: &&Piece| (piece.first_record..piece.next_record()).contains(&number);
        let Some(piece) = self.all().find(holds) else { return self.tail() };
        match usize::try_from(number - piece.first_record).expect("an index") {
            0 => piece.start,
            index => piece.start + piece.ends[index - 1],
        }
    }

    /// The number of the record that holds this byte; that of the next one at the tail.
    pub(super) fn record_at(&self, at: u64) -> Option<u64> {
        if at == self.tail() {
            return Some(self.next_record());
        }
        let piece = self.all().find(|piece| piece.start <= at && at < piece.end())?;
        let place = piece.ends.iter().position(|end| at < piece.start + end)?;
        Some(piece.first_record + place as u64)
    }

    /// What lies between two offsets.
    pub(super) fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let all = self.all().flat_map(|piece| &piece.stored).copied();
        let size = |number: u64| usize::try_from(number).expect("a length");
        all.skip(size(from)).take(size(to - from)).collect()
    }

    /// The start of the first append that is not too old.
    fn young_from(&self, tail: u64, is_old: impl Fn(&Piece) -> bool) -> u64 {
        self.all().find(|piece| !is_old(piece)).map_or(tail, |piece| piece.start)
    }

    /// What these bounds let go of, if the stream ends here, but for its age.
    fn let_go(&self, bounds: Bounds, tail: u64, next_record: u64) -> u64 {
        let by_bytes = bounds.bytes.map_or(0, |kept| self.floor_of(tail.saturating_sub(kept)));
        let by_records = bounds.records.map_or(0, |kept| {
            let number = next_record.saturating_sub(kept);
            if number == next_record { tail } else { self.floor_of(self.start_of(number)) }
        });
        by_bytes.max(by_records)
    }

    /// The stream begins here at most.
    pub(super) fn allowed(&self) -> u64 {
        let end = self.all().next_back();
        let (tail, next_record) = end.map_or((0, 0), |piece| (piece.end(), piece.next_record()));
        let by_bounds = self.kept.iter().map(|bounds| self.let_go(*bounds, tail, next_record));
        let by_age = self.kept.iter().filter_map(|bounds| {
            let age_ms = bounds.age_seconds? * 1000;
            Some(self.young_from(tail, |piece| piece.arrived.low + age_ms <= self.time_high))
        });
        by_bounds.chain(by_age).max().unwrap_or(0).max(self.trim_sent)
    }

    /// The stream has to begin here at least, soon.
    pub(super) fn owed(&self) -> u64 {
        let by_bounds = self.let_go(self.now, self.tail(), self.next_record());
        let by_age = self.now.age_seconds.zip(self.old_at).map(|(age, old_at)| {
            let is_old = |piece: &Piece| piece.arrived.high.saturating_add(age * 1000) < old_at;
            self.young_from(self.tail(), is_old)
        });
        by_bounds.max(by_age.unwrap_or(0)).max(self.trim_done)
    }

    /// An answer shows that the stream begins here, with this record if it says so.
    ///
    /// # Errors
    /// What is wrong with that.
    pub(super) fn see_head(&mut self, head: u64, record: Option<u64>) -> Result<(), String> {
        let (known, allowed) = (self.head, self.allowed());
        if head < known {
            return Err(format!("begins at {head} again, after {known}"));
        }
        if head > allowed {
            return Err(format!("begins at {head}, and what is kept at {allowed}"));
        }
        let begins = self.floor_of(head) == head;
        if !begins || record.is_some_and(|record| self.record_at(head) != Some(record)) {
            return Err(format!("begins at {head} with record {record:?}"));
        }
        self.head = head;
        Ok(())
    }
}

/// The stored bytes behind the body of an answer.
pub(super) fn stored(shape: Shape, body: &[u8]) -> Vec<u8> {
    if shape == Shape::Json { unframed(body) } else { body.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_knows_its_records_and_what_its_bounds_let_go() {
        let (mut book, mut dice) = (Book::default(), Dice::new(7));
        for number in 0..50 {
            let now = WallRange { low: 1_000 * number, high: 1_000 * number };
            book.pass(now);
            book.draw(Shape::Json, &mut dice, now);
            book.accept();
        }
        for number in 0..=book.next_record() {
            assert_eq!(book.record_at(book.start_of(number)), Some(number));
        }
        book.may_keep(Bounds { records: Some(3), ..Bounds::default() });
        assert!(book.see_head(0, Some(0)).is_ok());
        let kept = book.floor_of(book.start_of(book.next_record() - 3));
        assert_eq!(book.allowed(), kept);
        assert!(book.see_head(kept, book.record_at(kept)).is_ok());
        assert!(book.see_head(0, Some(0)).is_err(), "a head never falls");
        assert!(book.see_head(book.tail(), None).is_err(), "three are kept");
    }

    #[test]
    fn a_book_knows_what_is_too_old() {
        let (mut book, mut dice) = (Book::default(), Dice::new(7));
        let at = |seconds: u64| WallRange { low: seconds * 1_000, high: seconds * 1_000 };
        for second in 0..50 {
            book.pass(at(second));
            book.draw(Shape::Text, &mut dice, at(second));
            book.accept();
        }
        let bounds = Bounds { age_seconds: Some(10), ..Bounds::default() };
        book.may_keep(bounds);
        assert_eq!(book.allowed(), book.start_of(40), "that of second 39 may be gone at 49");
        book.keeps(bounds);
        assert_eq!(book.owed(), 0, "nobody waits yet");
        book.expect_old_to_go();
        assert_eq!(book.owed(), book.start_of(39));
        book.pass(at(70));
        assert_eq!((book.owed(), book.allowed()), (book.start_of(39), book.tail()));
    }
}
