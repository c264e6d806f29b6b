//! Where an answer starts and ends that is asked for by records or by time.
//!
//! # How
//! One question after the other: the start, then each bound. The smallest bound counts. The numbers of records at both
//! ends come with it. What is asked for by offset alone never comes here.

use crate::{
    Failure, FoundRecord, Search,
    finder::{Finder, Learned},
};
use log::{Aim, TimeAim};
use model::{Bounds, ByteOffset, ReadFrom, StreamKey};
use stream::StreamInfo;

/// A byte of a stream, and the number of the record that holds it.
pub(crate) type RecordPlace = (ByteOffset, u64);

/// The questions of one answer.
#[derive(Debug)]
pub(crate) struct RecordSteps {
    pub key: StreamKey,
    pub info: StreamInfo,
    bounds: Bounds,
    stage: Stage,
    finder: Finder,
    /// The start, once it is known, and what was found there.
    pub start: RecordPlace,
    pub found: Option<FoundRecord>,
    /// The end by the bounds so far; its record's number if it is known.
    pub cap: Option<(ByteOffset, Option<u64>)>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    RecordsMax,
    BytesMax,
    /// The end of the first message, which is longer than the bytes that are wanted.
    FirstRecord,
    Until,
    Done,
}

/// The place where a stream's records are looked for, or the place itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    Known(RecordPlace),
    Sought(Aim),
}

impl Start {
    /// Of a read of a stream.
    ///
    /// # Errors
    /// `Trimmed` or `Beyond`.
    pub(crate) fn of(info: &StreamInfo, from: ReadFrom, clamp: bool) -> Result<Self, Failure> {
        let (head, tail) = ((info.head, info.first_record), (info.tail, info.next_record));
        let beyond = Failure::Beyond { tail: info.tail, next_record: info.next_record };
        Ok(match from {
            ReadFrom::Begin => Self::Known(head),
            ReadFrom::Now => Self::Known(tail),
            ReadFrom::At(at) if at < info.head => {
                return Err(Failure::Trimmed { head: info.head });
            }
            ReadFrom::At(at) if at >= info.tail => Self::Known((at, info.next_record)),
            ReadFrom::At(at) => Self::Sought(Aim::Byte(at)),
            ReadFrom::Record(number) if number > info.next_record && clamp => Self::Known(tail),
            ReadFrom::Record(number) if number > info.next_record => return Err(beyond),
            ReadFrom::Record(number) if number < info.first_record => {
                return Err(Failure::Trimmed { head: info.head });
            }
            ReadFrom::Record(number) => Self::of_record(info, number),
            ReadFrom::TailRecords(count) => {
                let number = info.next_record.saturating_sub(count).max(info.first_record);
                Self::of_record(info, number)
            }
            ReadFrom::Time(_) if info.head == info.tail => Self::Known(tail),
            ReadFrom::Time(time) => Self::Sought(Aim::Time(TimeAim::Record(time))),
        })
    }

    /// Of a record that is there, or comes next.
    pub(crate) fn of_record(info: &StreamInfo, number: u64) -> Self {
        match number {
            _ if number >= info.next_record => Self::Known((info.tail, info.next_record)),
            // The head may lie inside the record.
            _ if number <= info.first_record => Self::Known((info.head, info.first_record)),
            _ => Self::Sought(Aim::Record(number)),
        }
    }
}

impl RecordSteps {
    pub(crate) fn new(key: StreamKey, info: StreamInfo, start: Start, bounds: Bounds) -> Self {
        let aim = if let Start::Sought(aim) = start { aim } else { Aim::Record(0) };
        let finder = Finder::new(&info, aim);
        let place = (info.tail, info.next_record);
        let (found, cap) = (None, None);
        let mut steps =
            Self { key, info, bounds, stage: Stage::Start, finder, start: place, found, cap };
        if let Start::Known(place) = start {
            steps.start = place;
            steps.stage = Stage::RecordsMax;
        }
        steps.advance();
        steps
    }

    /// What is being looked for.
    pub(crate) fn aim(&self) -> Aim {
        self.finder.aim()
    }

    /// What has to be asked, and of whom; `None` if all is known.
    pub(crate) fn question(&self) -> Option<(StreamKey, Search)> {
        (self.stage != Stage::Done).then(|| self.finder.question(self.key, &self.info))
    }

    /// Takes the answer.
    ///
    /// # Errors
    /// If a record is not there that was.
    pub(crate) fn learn(&mut self, found: Option<FoundRecord>) -> Result<(), Failure> {
        let Learned::Found(found) = self.finder.learn(self.key, &self.info, found)? else {
            return Ok(());
        };
        match (self.stage, found) {
            (Stage::Start, found) => self.set_start(found),
            (Stage::BytesMax, Some(found)) if found.at <= self.start.0 => {
                self.stage = Stage::FirstRecord;
                self.advance();
                return Ok(());
            }
            (Stage::Until, Some(found)) => {
                let is_behind = found.at > self.start.0;
                let place = if is_behind { (found.at, found.number) } else { self.start };
                self.limit(place.0, Some(place.1));
            }
            (_, Some(found)) => self.limit(found.at, Some(found.number)),
            (_, None) => {}
        }
        self.stage = match self.stage {
            Stage::Start => Stage::RecordsMax,
            Stage::RecordsMax => Stage::BytesMax,
            Stage::BytesMax | Stage::FirstRecord => Stage::Until,
            Stage::Until | Stage::Done => Stage::Done,
        };
        self.advance();
        Ok(())
    }

    fn set_start(&mut self, found: Option<FoundRecord>) {
        let Some(found) = found else { return };
        self.found = Some(found);
        self.start = match self.finder.aim() {
            // A reader of bytes begins where it says.
            Aim::Byte(at) if !self.info.layout.is_json() => (at, found.number),
            _ if found.at <= self.info.head => (self.info.head, self.info.first_record),
            _ => (found.at, found.number),
        };
    }

    fn limit(&mut self, end: ByteOffset, number: Option<u64>) {
        if self.cap.is_none_or(|(cap, _)| end < cap) {
            self.cap = Some((end, number));
        }
    }

    /// Goes to the next stage that has something to ask.
    fn advance(&mut self) {
        loop {
            let (aim, next) = match self.stage {
                Stage::Start => return,
                Stage::RecordsMax => (self.records_aim(), Stage::BytesMax),
                Stage::BytesMax => (self.bytes_aim(), Stage::Until),
                Stage::FirstRecord => (self.record_aim(self.start.1 + 1), Stage::Until),
                Stage::Until => {
                    let until = self.bounds.until.filter(|_| self.start.0 < self.info.tail);
                    (until.map(|time| Aim::Time(TimeAim::Record(time))), Stage::Done)
                }
                Stage::Done => (None, Stage::Done),
            };
            match aim {
                Some(aim) => {
                    self.finder = Finder::new(&self.info, aim);
                    return;
                }
                None if self.stage == Stage::Done => return,
                None => self.stage = next,
            }
        }
    }

    /// The record at which the answer ends, if it is there.
    fn record_aim(&self, number: u64) -> Option<Aim> {
        (number < self.info.next_record).then_some(Aim::Record(number))
    }

    fn records_aim(&self) -> Option<Aim> {
        let count = self.bounds.records_max?;
        self.record_aim(self.start.1.saturating_add(count))
    }

    fn bytes_aim(&mut self) -> Option<Aim> {
        let bytes = self.bounds.bytes_max?;
        let end = ByteOffset::new(self.start.0.get().saturating_add(bytes));
        if end >= self.info.tail {
            return None;
        }
        if self.info.layout.is_json() {
            return Some(Aim::Byte(end));
        }
        self.limit(end, None);
        None
    }
}
