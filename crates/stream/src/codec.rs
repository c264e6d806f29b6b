//! Fields as bytes: what commands, stream rows and the header of a group's state are made of.
//!
//! # Format
//! Numbers are LEB128 varints; text and lists are a varint length and their content; an option is
//! one byte 0 or 1 and its content. What may grow ends with *tags*: the number of a field, the number of its
//! bytes, and these. Tags rise. `docs/format/commands.md` has the tables and the register of numbers.
//!
//! # Invariants
//! - What is of a newer version is refused, never passed over: replicas must not differ.

use crate::{Layout, Lifetime};
use model::{ByteOffset, GroupId, StreamId, StreamKey, StreamPath, Timestamp, limits};
use std::fmt;

/// Largest position of a byte, and number of records, that decodes.
pub(crate) use model::limits::POSITION_MAX;

/// Bytes that are not what they should be: damaged past the checksum, or written by a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Position of the first byte that makes no sense.
    pub position: usize,
    /// What a newer version wrote there, if it is that.
    pub newer: Option<Newer>,
}

/// A number that this version does not know: a newer one wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newer {
    /// The version of a row or a header.
    Version(u8),
    /// The kind of a command.
    Kind(u8),
    /// A tag.
    Tag(u64),
    /// Flags, of which some are unknown.
    Flags(u8),
    /// The layout of a stream.
    Layout(u8),
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(number) => write!(f, "version {number}"),
            Self::Kind(number) => write!(f, "command kind {number}"),
            Self::Tag(number) => write!(f, "tag {number}"),
            Self::Flags(bits) => write!(f, "flags {bits:#04x}"),
            Self::Layout(number) => write!(f, "stream layout {number}"),
        }
    }
}

/// Whether a reader of tags knows the one that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Read,
    Unknown,
}

/// Writes fields to the end of a buffer.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

/// Reads fields from the start of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Writer<'_> {
    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn key(&mut self, key: StreamKey) {
        self.number(key.group.get().into());
        self.number(key.stream.get());
    }

    pub(crate) fn layout(&mut self, layout: Layout) {
        self.byte(layout as u8);
    }

    /// A field that has a number of its own. Numbers rise.
    pub(crate) fn tag(&mut self, number: u64, write: impl FnOnce(&mut Writer<'_>)) {
        self.number(number);
        let start = self.0.len();
        write(&mut Writer(self.0));
        let mut length = Vec::with_capacity(1);
        Writer(&mut length).number((self.0.len() - start) as u64);
        self.0.splice(start..start, length);
    }

    /// As [`Self::tag`], if there is a value.
    pub(crate) fn tag_if<T>(
        &mut self,
        number: u64,
        value: Option<T>,
        write: impl FnOnce(&mut Writer<'_>, T),
    ) {
        if let Some(value) = value {
            self.tag(number, |writer| write(writer, value));
        }
    }

    pub(crate) fn lifetime(&mut self, lifetime: Lifetime) {
        match lifetime {
            Lifetime::Forever => self.byte(0),
            Lifetime::Ttl { seconds } => {
                self.byte(1);
                self.number(seconds);
            }
            Lifetime::ExpiresAt(at) => {
                self.byte(2);
                self.number(at.get());
            }
        }
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn failure(&self) -> DecodeError {
        DecodeError { position: self.position, newer: None }
    }

    pub(crate) fn error<T>(&self) -> Result<T, DecodeError> {
        Err(self.failure())
    }

    /// What was read last is of a newer version.
    pub(crate) fn newer<T>(&self, newer: Newer) -> Result<T, DecodeError> {
        Err(DecodeError { position: self.position, newer: Some(newer) })
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// The version that bytes begin with.
    pub(crate) fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        match self.byte()? {
            0 => self.error(),
            version if version == known => Ok(()),
            version => self.newer(Newer::Version(version)),
        }
    }

    /// Flags, of which only `known` may be set.
    pub(crate) fn flags(&mut self, known: u8) -> Result<u8, DecodeError> {
        let flags = self.byte()?;
        if flags & !known == 0 { Ok(flags) } else { self.newer(Newer::Flags(flags)) }
    }

    /// Reads all tags to the end. `read` gets the number and the bytes of each; if it takes none of them, the tag is
    /// of a newer version.
    pub(crate) fn tags(
        mut self,
        mut read: impl FnMut(u64, &mut Reader<'a>) -> Result<Tag, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut last = 0;
        while !self.is_empty() {
            let number = self.number()?;
            if number <= last {
                return self.error();
            }
            last = number;
            let length = self.number()?;
            let start = self.position;
            let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            let mut inner = Reader::new(bytes);
            let at = |error: DecodeError| DecodeError { position: start + error.position, ..error };
            match read(number, &mut inner).map_err(at)? {
                Tag::Read => inner.finish(()).map_err(at)?,
                Tag::Unknown => return self.newer(Newer::Tag(number)),
            }
        }
        Ok(())
    }

    pub(crate) fn layout(&mut self) -> Result<Layout, DecodeError> {
        let number = self.byte()?;
        match Layout::from_number(number) {
            Some(layout) => Ok(layout),
            None => self.newer(Newer::Layout(number)),
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.position..];
        if count > rest.len() {
            return self.error();
        }
        self.position += count;
        Ok(&rest[..count])
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.error(),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.error()
    }

    pub(crate) fn small(&mut self) -> Result<u32, DecodeError> {
        let number = self.number()?;
        u32::try_from(number).or_else(|_| self.error())
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.number()?;
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        std::str::from_utf8(bytes).or_else(|_| self.error())
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn path(&mut self) -> Result<StreamPath, DecodeError> {
        let text = self.text()?;
        StreamPath::new(text).or_else(|_| self.error())
    }

    pub(crate) fn offset(&mut self) -> Result<ByteOffset, DecodeError> {
        self.number().map(ByteOffset::new)
    }

    /// The position of a byte that is or was in a stream; also a count of records.
    pub(crate) fn position(&mut self) -> Result<ByteOffset, DecodeError> {
        self.bounded(POSITION_MAX).map(ByteOffset::new)
    }

    /// A count of records, or the number of one.
    pub(crate) fn count(&mut self) -> Result<u64, DecodeError> {
        self.bounded(POSITION_MAX)
    }

    /// A producer's epoch or sequence.
    pub(crate) fn producer_number(&mut self) -> Result<u64, DecodeError> {
        self.bounded(limits::PRODUCER_NUMBER_MAX)
    }

    fn bounded(&mut self, max: u64) -> Result<u64, DecodeError> {
        let number = self.number()?;
        if number <= max { Ok(number) } else { self.error() }
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, DecodeError> {
        self.number().map(Timestamp::new)
    }

    pub(crate) fn group(&mut self) -> Result<GroupId, DecodeError> {
        let number = self.number()?;
        u16::try_from(number).map(GroupId::new).or_else(|_| self.error())
    }

    pub(crate) fn key(&mut self) -> Result<StreamKey, DecodeError> {
        Ok(StreamKey { group: self.group()?, stream: StreamId::new(self.number()?) })
    }

    pub(crate) fn lifetime(&mut self) -> Result<Lifetime, DecodeError> {
        match self.byte()? {
            0 => Ok(Lifetime::Forever),
            1 => Ok(Lifetime::Ttl { seconds: self.number()? }),
            2 => Ok(Lifetime::ExpiresAt(self.time()?)),
            _ => self.error(),
        }
    }

    /// A limit of producers per stream.
    pub(crate) fn producers_max(&mut self) -> Result<u32, DecodeError> {
        let count = u32::try_from(self.number()?).ok();
        let count = count.filter(|count| (1..=limits::PRODUCERS_PER_STREAM_MAX).contains(count));
        count.ok_or_else(|| self.failure())
    }

    /// Checks that nothing is left.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, DecodeError> {
        if self.position == self.bytes.len() { Ok(value) } else { self.error() }
    }
}
