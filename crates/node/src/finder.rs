//! Which owner of a stream's bytes has a record.
//!
//! A fork's inherited records are stored by other streams. Times do not say which one: the owners are asked one after
//! the other, in the order of the bytes.

use crate::{Failure, FoundRecord, Search};
use log::Aim;
use model::StreamKey;
use stream::StreamInfo;

/// Looks for one record of a stream, wherever it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finder {
    aim: Aim,
    /// The inherited span that is asked; behind the last one the stream itself.
    span: usize,
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
        let spans = info.lineage.spans();
        let span = match aim {
            Aim::Byte(at) => spans.partition_point(|span| span.end <= at),
            Aim::Record(number) => spans.partition_point(|span| span.next_record <= number),
            Aim::Time(_) => spans.partition_point(|span| span.end <= info.head),
        };
        Self { aim, span }
    }

    pub(crate) fn aim(&self) -> Aim {
        self.aim
    }

    /// The owner to ask, and what.
    pub(crate) fn question(&self, key: StreamKey, info: &StreamInfo) -> (StreamKey, Search) {
        let owner = info.lineage.spans().get(self.span).map_or(key, |span| span.owner);
        (owner, Search { aim: self.aim, json: info.layout.is_json() })
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
        let is_time = matches!(self.aim, Aim::Time(_));
        match (found, span) {
            (Some(found), _) => Ok(Learned::Found(Some(found))),
            (None, Some(_)) if is_time => {
                self.span += 1;
                Ok(Learned::AskNext)
            }
            (None, None) if is_time => Ok(Learned::Found(None)),
            (None, span) => {
                let owner = span.map_or(key, |span| span.owner);
                let at = if let Aim::Byte(at) = self.aim { at } else { info.head };
                Err(Failure::lost(owner, at))
            }
        }
    }
}
