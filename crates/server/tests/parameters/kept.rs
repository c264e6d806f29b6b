//! The records of a stream as its writer knows them.

use super::harness::{Answer, Client, JSON};

/// Each record: its bytes on the wire, its offset, its time.
#[derive(Debug)]
struct Record {
    text: String,
    offset: String,
    time: u64,
}

/// A stream's records, of which the first may be gone.
#[derive(Debug)]
pub(crate) struct Kept {
    kind: &'static str,
    records: Vec<Record>,
    tail: String,
    first: u64,
    pub is_closed: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Trimmed,
    Beyond,
}

/// A part of a stream.
#[derive(Debug)]
pub(crate) struct Part {
    pub from: u64,
    pub to: u64,
    /// Offsets of both ends.
    pub start: String,
    pub end: String,
    /// As an answer of its own.
    pub body: String,
}

impl Kept {
    pub(crate) fn new(kind: &'static str) -> Self {
        let (records, tail) = (Vec::new(), super::harness::client::offset(0));
        Self { kind, records, tail, first: 0, is_closed: false }
    }

    /// Appends records one by one, each with a time of its own: hours ago, so that no arrival is earlier.
    pub(crate) fn fill(&mut self, client: &mut Client, path: &str, count: u64) {
        for _ in 0..count {
            let number = self.next();
            let time = 1_700_000_000_000 + number * 3_600_000;
            let text = format!("{}", 100 + number);
            let fields = [
                ("Content-Type", self.kind),
                ("Stream-Record-Time", &time.to_string()),
                ("Stream-Record-Match", &number.to_string()),
            ];
            let answer = client.call("POST", path, &fields, text.as_bytes()).is(204);
            assert_eq!(answer.field("Stream-Record-Start"), Some(number.to_string().as_str()));
            let offset = std::mem::replace(&mut self.tail, answer.next().to_owned());
            self.records.push(Record { text, offset, time });
        }
    }

    /// The answer to a trim.
    pub(crate) fn trim(&mut self, answer: &Answer) {
        self.first = answer.field("Stream-Record-First").unwrap().parse().unwrap();
        assert_eq!(answer.field("Stream-Head"), Some(self.offset_of(self.first).as_str()));
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn next(&self) -> u64 {
        self.records.len() as u64
    }

    pub(crate) fn time_of(&self, number: u64) -> u64 {
        self.records[number as usize].time
    }

    pub(crate) fn offset_of(&self, number: u64) -> String {
        self.records.get(number as usize).map_or(&self.tail, |record| &record.offset).clone()
    }

    /// Stored bytes of some records.
    pub(crate) fn bytes_of(&self, from: u64, count: u64) -> u64 {
        let position = |number| self.offset_of(number)[..16].parse::<u64>().unwrap();
        position(from + count) - position(from)
    }

    pub(crate) fn part(&self, from: u64, to: u64) -> Part {
        let texts: Vec<&str> =
            self.records[from as usize..to as usize].iter().map(|r| r.text.as_str()).collect();
        let body =
            if self.kind == JSON { format!("[{}]", texts.join(",")) } else { texts.concat() };
        Part { from, to, start: self.offset_of(from), end: self.offset_of(to), body }
    }
}
