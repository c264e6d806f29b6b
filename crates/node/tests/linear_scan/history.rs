//! What a walk over all appends of a stream says: every record that was ever in it, in one list.

use model::{ReadFrom, ReadRecords};

/// A record; its number is its place in the list.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// After its last byte.
    end: u64,
    /// First byte of the append that brought it.
    append: u64,
    /// Its time: the largest so far.
    time: u64,
    /// The stream had times of its own by then.
    is_timed: bool,
}

/// A stream with all that it ever held.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub is_json: bool,
    pub bytes: Vec<u8>,
    records: Vec<Record>,
    pub head: u64,
    head_record: u64,
    /// What the next time counts as at least.
    time: u64,
    has_times: bool,
}

/// A part of a stream: bytes and numbers of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub start: u64,
    pub end: u64,
    /// Of the record at the start and of the one at the end.
    pub numbers: (u64, u64),
}

/// Why there is no such part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    Trimmed,
    Beyond,
}

/// A byte and the number of its record.
type Place = (u64, u64);

impl History {
    pub(crate) fn new(is_json: bool) -> Self {
        let (bytes, records) = (Vec::new(), Vec::new());
        Self { is_json, bytes, records, head: 0, head_record: 0, time: 0, has_times: false }
    }

    pub(crate) fn tail(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn next_record(&self) -> u64 {
        self.records.len() as u64
    }

    /// An append that arrives at `at`; `lengths` are those of its records.
    pub(crate) fn push(&mut self, data: &[u8], lengths: &[u64], (at, given): (u64, Option<u64>)) {
        let append = self.tail();
        self.time = self.time.max(given.map_or(at, |given| given.min(at)));
        self.has_times |= given.is_some();
        let mut end = append;
        for length in lengths {
            end += length;
            let is_timed = self.has_times;
            self.records.push(Record { end, append, time: self.time, is_timed });
        }
        self.bytes.extend_from_slice(data);
        assert_eq!(end, self.tail(), "records are all of an append");
    }

    /// A fork that shares the bytes before `at`, made at `now`.
    pub(crate) fn fork(&self, at: u64, now: u64) -> Self {
        let shared = self.records_before(at);
        let mut fork = self.clone();
        fork.bytes.truncate(at as usize);
        fork.records.truncate(shared as usize);
        // What was trimmed does not count.
        let shares_nothing = shared == 0 || at == self.head && at < self.tail();
        if let Some(last) = fork.records.last_mut() {
            last.end = at;
            fork.has_times = if shares_nothing { self.has_times } else { last.is_timed };
        }
        fork.time = match fork.records.last() {
            None => 0,
            // Without times of records, its creation counts as one.
            Some(_) if !fork.has_times => now,
            Some(_) if shares_nothing => 0,
            Some(last) => last.time,
        };
        if self.head >= at {
            (fork.head, fork.head_record) = (at, shared);
        }
        fork
    }

    /// How to ask for a fork at a record: an offset, how much behind it (bytes or messages), and the byte that this means.
    /// Text may be shared in part.
    pub(crate) fn fork_point(&self, number: u64, in_part: bool) -> (u64, u64, u64) {
        let (at, number) = self.place_of(number.max(self.head_record));
        let (append, first) = self.append_of(number);
        let half = self.record_length(number).unwrap_or(0) / 2;
        match self.is_json {
            false if in_part => (at, half, at + half),
            true if append >= self.head => (append, number - first, at),
            _ => (at, 0, at),
        }
    }

    /// How many records begin before a byte.
    fn records_before(&self, at: u64) -> u64 {
        (0..self.next_record()).take_while(|number| self.start_of(*number) < at).count() as u64
    }

    pub(crate) fn trim(&mut self, to: Place) {
        if to.0 > self.head {
            (self.head, self.head_record) = to;
        }
    }

    /// Where a trim before a byte ends: at the append that holds it.
    pub(crate) fn append_at(&self, byte: u64) -> Place {
        match self.record_at(byte) {
            number if number < self.next_record() => self.append_of(number),
            number => (self.tail(), number),
        }
    }

    /// The append of a record: its start, and the number of its first record.
    pub(crate) fn append_of(&self, number: u64) -> Place {
        let Some(record) = self.records.get(number as usize) else {
            return (self.tail(), self.next_record());
        };
        let is_of_it = |other: &Record| other.append == record.append;
        let first = self.records.iter().position(is_of_it).expect("a record is in the list");
        (record.append, first as u64)
    }

    /// Where a read begins.
    pub(crate) fn start(&self, from: ReadFrom, clamp: bool) -> Result<Place, Nothing> {
        let (head, tail) = ((self.head, self.head_record), (self.tail(), self.next_record()));
        match from {
            ReadFrom::Begin => Ok(head),
            ReadFrom::Now => Ok(tail),
            ReadFrom::At(at) if at.get() < self.head => Err(Nothing::Trimmed),
            ReadFrom::At(at) => {
                let number = self.record_at(at.get());
                Ok((if self.is_json { self.start_of(number) } else { at.get() }, number))
            }
            ReadFrom::Record(number) if number > tail.1 && !clamp => Err(Nothing::Beyond),
            ReadFrom::Record(number) if number < self.head_record => Err(Nothing::Trimmed),
            ReadFrom::Record(number) => Ok(self.place_of(number.min(tail.1))),
            ReadFrom::TailRecords(count) => {
                let before = tail.1.saturating_sub(count).max(self.head_record);
                Ok(self.place_of(before))
            }
            ReadFrom::Time(time) => Ok(self.place_of(self.first_at(time).max(self.head_record))),
        }
    }

    /// The part that a read gets.
    pub(crate) fn part(
        &self,
        from: ReadFrom,
        boundary: u64,
        wanted: ReadRecords,
    ) -> Result<Part, Nothing> {
        let (start, first) = self.start(from, wanted.clamp)?;
        let stable = (start / boundary + 1) * boundary;
        let mut end = match self.records.iter().find(|record| record.end >= stable) {
            None => self.tail(),
            Some(_) if !self.is_json => stable,
            // An answer ends with the append that holds the boundary.
            Some(record) => {
                let is_of_it = |other: &&Record| other.append == record.append;
                let last = self.records.iter().rev().find(is_of_it);
                last.expect("a record is in the list").end
            }
        };
        if let Some(count) = wanted.bounds.records_max {
            end = end.min(self.place_of((first + count).min(self.next_record())).0);
        }
        if let Some(bytes) = wanted.bounds.bytes_max {
            end = end.min(self.end_of_bytes(start, first, bytes));
        }
        if let Some(time) = wanted.bounds.until {
            end = end.min(self.start_of(self.first_at(time)).max(start));
        }
        let next = if start == end { first } else { self.record_at(end) };
        Ok(Part { start, end, numbers: (first, next) })
    }

    /// The time of the record that holds a byte, if there is one.
    pub(crate) fn time_at(&self, byte: u64) -> Option<u64> {
        self.records.get(self.record_at(byte) as usize).map(|record| record.time)
    }

    /// Times that are worth asking for: those of some record, and those beside it.
    pub(crate) fn time_of(&self, number: u64) -> u64 {
        self.records.get(number as usize).map_or(self.time + 1, |record| record.time)
    }

    /// Bytes of a record, if it is there and kept.
    pub(crate) fn record_length(&self, number: u64) -> Option<u64> {
        let record = self.records.get(number as usize)?;
        let start = self.start_of(number);
        (start >= self.head).then_some(record.end - start)
    }

    fn end_of_bytes(&self, start: u64, first: u64, bytes: u64) -> u64 {
        let end = start.saturating_add(bytes).min(self.tail());
        match self.start_of_record_at(end) {
            _ if !self.is_json => end,
            message if message > start => message,
            // At least one message.
            _ => self.place_of((first + 1).min(self.next_record())).0,
        }
    }

    /// Number of the first record of this time or later.
    fn first_at(&self, time: u64) -> u64 {
        let first = self.records.iter().position(|record| record.time >= time);
        first.map_or(self.next_record(), |first| first as u64)
    }

    fn start_of(&self, number: u64) -> u64 {
        match number {
            0 => 0,
            number => self.records[number as usize - 1].end,
        }
    }

    fn start_of_record_at(&self, byte: u64) -> u64 {
        self.start_of(self.record_at(byte))
    }

    /// Number of the record that holds a byte.
    fn record_at(&self, byte: u64) -> u64 {
        let holder = self.records.iter().position(|record| record.end > byte);
        holder.map_or(self.next_record(), |holder| holder as u64)
    }

    /// Where a record begins that is kept.
    fn place_of(&self, number: u64) -> Place {
        (self.start_of(number).max(self.head), number)
    }
}
