//! How much of a stream is kept by itself: by age, by bytes, by records.
//!
//! # How
//! The settings are the stream's state and travel in its row. What they come to is decided by the owner of the group,
//! which knows the clock, the defaults and where appends begin, and arrives as [`crate::Command::Trim`]. So replicas do
//! the same whatever their clocks and defaults are.

use crate::{
    DecodeError,
    codec::{Reader, Writer},
};

/// One bound of what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// As the server says, now or later.
    #[default]
    Default,
    /// All.
    All,
    /// So much at least, and little more.
    AtLeast(u64),
}

/// What of a stream is kept. What any one of the three does not keep is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Seconds since the arrival of an append.
    pub age_seconds: Keep,
    /// Bytes before the tail.
    pub bytes: Keep,
    /// Records before the tail.
    pub records: Keep,
}

/// A change of a stream's settings; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionChange {
    /// See [`Retention::age_seconds`].
    pub age_seconds: Option<Keep>,
    /// See [`Retention::bytes`].
    pub bytes: Option<Keep>,
    /// See [`Retention::records`].
    pub records: Option<Keep>,
}

impl Keep {
    /// This bound, or another one's if it is left to the server.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        if self == Self::Default { default } else { self }
    }

    /// The bound, if there is one.
    #[must_use]
    pub fn at_least(self) -> Option<u64> {
        match self {
            Self::AtLeast(amount) => Some(amount),
            Self::Default | Self::All => None,
        }
    }
}

impl Retention {
    /// What a stream without settings has.
    pub const DEFAULT: Self =
        Self { age_seconds: Keep::Default, bytes: Keep::Default, records: Keep::Default };

    /// These settings, with those of the server where they leave it to it.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            age_seconds: self.age_seconds.or(defaults.age_seconds),
            bytes: self.bytes.or(defaults.bytes),
            records: self.records.or(defaults.records),
        }
    }

    /// Whether anything is trimmed by itself.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.bounds().iter().any(|keep| matches!(keep, Keep::AtLeast(_)))
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }

    pub(crate) fn change(&mut self, change: RetentionChange) {
        self.age_seconds = change.age_seconds.unwrap_or(self.age_seconds);
        self.bytes = change.bytes.unwrap_or(self.bytes);
        self.records = change.records.unwrap_or(self.records);
    }

    fn bounds(&self) -> [Keep; 3] {
        [self.age_seconds, self.bytes, self.records]
    }
}

impl RetentionChange {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn bounds(&self) -> [Option<Keep>; 3] {
        [self.age_seconds, self.bytes, self.records]
    }
}

impl From<Retention> for RetentionChange {
    fn from(retention: Retention) -> Self {
        let [age_seconds, bytes, records] = retention.bounds().map(Some);
        Self { age_seconds, bytes, records }
    }
}

/// The two bits of a bound in the form byte.
const DEFAULT: u8 = 0;
const ALL: u8 = 1;
const AT_LEAST: u8 = 2;
/// Only in a change.
const UNCHANGED: u8 = 3;

impl Writer<'_> {
    /// A form byte with two bits for each bound, and the numbers.
    pub(crate) fn retention(&mut self, change: RetentionChange) {
        let bits = |keep: Option<Keep>| match keep {
            Some(Keep::Default) => DEFAULT,
            Some(Keep::All) => ALL,
            Some(Keep::AtLeast(_)) => AT_LEAST,
            None => UNCHANGED,
        };
        let [age, bytes, records] = change.bounds().map(bits);
        self.byte(age | bytes << 2 | records << 4);
        for keep in change.bounds().into_iter().flatten() {
            keep.at_least().into_iter().for_each(|amount| self.number(amount));
        }
    }
}

impl Reader<'_> {
    pub(crate) fn retention_change(&mut self) -> Result<RetentionChange, DecodeError> {
        let form = self.flags(0b11_1111)?;
        let mut bound = |shift: u8| {
            Ok(match form >> shift & 0b11 {
                DEFAULT => Some(Keep::Default),
                ALL => Some(Keep::All),
                AT_LEAST => Some(Keep::AtLeast(self.number()?)),
                _ => None,
            })
        };
        Ok(RetentionChange { age_seconds: bound(0)?, bytes: bound(2)?, records: bound(4)? })
    }

    pub(crate) fn retention(&mut self) -> Result<Retention, DecodeError> {
        let change = self.retention_change()?;
        match (change.age_seconds, change.bytes, change.records) {
            (Some(age_seconds), Some(bytes), Some(records)) => {
                Ok(Retention { age_seconds, bytes, records })
            }
            _ => self.error(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_and_a_row_leaves_none_open() {
        let kinds = [None, Some(Keep::Default), Some(Keep::All), Some(Keep::AtLeast(300))];
        for number in 0..64 {
            let [age_seconds, bytes, records] =
                [number % 4, number / 4 % 4, number / 16].map(|kind| kinds[kind]);
            let change = RetentionChange { age_seconds, bytes, records };
            let mut encoded = Vec::new();
            Writer(&mut encoded).retention(change);
            let read = || Reader::new(&encoded);
            assert_eq!(read().retention_change(), Ok(change));
            let is_whole = change.bounds().iter().all(Option::is_some);
            assert_eq!(
                read().retention().map(RetentionChange::from).ok(),
                is_whole.then_some(change)
            );
        }
        assert!(Reader::new(&[0x40]).retention_change().is_err(), "a newer version's");
    }

    #[test]
    fn a_stream_has_the_defaults_of_its_server_where_it_has_none() {
        let own = Retention { bytes: Keep::All, records: Keep::AtLeast(5), ..Retention::default() };
        let kept = |amount| Keep::AtLeast(amount);
        let defaults = Retention { age_seconds: kept(1), bytes: kept(2), records: kept(3) };
        let all = own.or(defaults);
        assert_eq!((all.age_seconds, all.bytes, all.records), (kept(1), Keep::All, kept(5)));
        assert!(all.is_bounded() && !Retention::default().is_bounded());
    }
}
