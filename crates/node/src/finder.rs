//! Which owner of a stream's bytes has a record.
//!
//! A fork's inherited records are stored by other streams. Times do not say which one: the owners are asked one after
//! the other, in the order of the bytes.
//!
//! A search by time passes over what cannot be read. So the append before the one that it finds is looked up, too. If
//! that one is lost or is not before the time, the search has failed. Without this, a reader would miss records, and a
//! trim would drop some that are to be kept.

use crate::{Failure, FoundRecord, Search};
use log::Aim;
use model::{ByteOffset, StreamKey};
use stream::StreamInfo;

/// Looks for one record of a stream, wherever it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finder {
    aim: Aim,
    /// The inherited span that is asked; behind the last one the stream itself.
    span: usize,
    /// What was found by time, until the append before it is known.
    unproven: Option<Unproven>,
}

/// A record found by time, `None` at the tail, and the last byte before its append.
#[derive(Debug, Clone, Copy)]
struct Unproven {
    found: Option<FoundRecord>,
    before: ByteOffset,
}

/// What an answer comes to.
#[derive(Debug)]
pub(crate) enum Learned {
    /// The record; `None` if nothing is at or after the time.
    Found(Option<FoundRecord>),
    /// The next owner has to be asked.
    AskNext,
}

impl Finder {
    pub(crate) fn new(info: &StreamInfo, aim: Aim) -> Self {
        Self { aim, span: span_of(info, aim), unproven: None }
    }

    /// What is being looked for.
    pub(crate) fn aim(&self) -> Aim {
        self.unproven.map_or(self.aim, |unproven| Aim::Byte(unproven.before))
    }

    /// The owner to ask, and what.
    pub(crate) fn question(&self, key: StreamKey, info: &StreamInfo) -> (StreamKey, Search) {
        let owner = info.lineage.spans().get(self.span).map_or(key, |span| span.owner);
        // What proves a time is the append, and no message in it.
        let json = info.layout.is_json() && self.unproven.is_none();
        (owner, Search { aim: self.aim(), json })
    }

    /// Takes the owner's answer.
    ///
    /// # Errors
    /// If a record is not there that was.
    pub(crate) fn learn(
        &mut self,
        key: StreamKey,
        info: &StreamInfo,
        found: Option<FoundRecord>,
    ) -> Result<Learned, Failure> {
        let span = info.lineage.spans().get(self.span).copied();
        // What lies behind the span is the owner's own.
        let found = found.filter(|found| span.is_none_or(|span| found.at < span.end));
        let owner = span.map_or(key, |span| span.owner);
        match (self.aim, self.unproven) {
            (Aim::Time(time), Some(Unproven { found: proven, before })) => {
                if !found.is_some_and(|found| found.append.is_before(time)) {
                    return Err(Failure::lost(owner, before));
                }
                self.unproven = None;
                Ok(Learned::Found(proven))
            }
            (Aim::Time(_), None) if found.is_none() && span.is_some() => {
                self.span += 1;
                Ok(Learned::AskNext)
            }
            (Aim::Time(_), None) => Ok(self.prove(info, found)),
            _ if found.is_some() => Ok(Learned::Found(found)),
            (aim, _) => {
                let at = if let Aim::Byte(at) = aim { at } else { info.head };
                Err(Failure::lost(owner, at))
            }
        }
    }

    /// Looks at the append before what was found by time, if there is one.
    fn prove(&mut self, info: &StreamInfo, found: Option<FoundRecord>) -> Learned {
        let start = found.map_or(info.tail, |found| found.append.bounds.start);
        if start <= info.head {
            return Learned::Found(found);
        }
        let before = ByteOffset::new(start.get() - 1);
        self.span = span_of(info, Aim::Byte(before));
        self.unproven = Some(Unproven { found, before });
        Learned::AskNext
    }
}

/// The first inherited span that may have what is looked for.
fn span_of(info: &StreamInfo, aim: Aim) -> usize {
    let spans = info.lineage.spans();
    match aim {
        Aim::Byte(at) => spans.partition_point(|span| span.end <= at),
        Aim::Record(number) => spans.partition_point(|span| span.next_record <= number),
        Aim::Time(_) => spans.partition_point(|span| span.end <= info.head),
    }
}
