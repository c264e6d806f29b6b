//! Commands as bytes: the command part of a log entry.
//!
//! # Format
//! Numbers are LEB128 varints; text and lists are a varint length and their content; an option is
//! one byte 0 or 1 and its content. Fields have the order of the structs. The kind is in the
//! entry header. `docs/format/commands.md` has the tables; golden bytes are in the tests below.
//! A field is added only at the end, under a new [`CommandKind`].

use crate::{
    Append, Command, CommandKind, ContentType, Create, ForkPoint, ForkRequest, Lifetime, Lineage,
    Pin, PinToken, Producer,
};
use model::{ByteOffset, GroupId, StreamId, StreamKey, StreamPath, Timestamp, limits};

/// Largest position of a byte, and number of records, that decodes. No disk holds as much. A million of
/// the largest appends behind it still have offsets that can be rendered.
const POSITION_MAX: u64 = 1 << 53;

/// Bytes that are not a command: written by a newer version, or damaged past the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Position of the first byte that makes no sense.
    pub position: usize,
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

    pub(crate) fn token(&mut self, token: PinToken) {
        self.number(token.fork_group.get().into());
        self.0.extend_from_slice(&token.nonce.to_le_bytes());
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

    pub(crate) fn pin(&mut self, pin: &Pin) {
        self.token(pin.token);
        self.text(pin.fork_path.as_str());
    }

    pub(crate) fn fork(&mut self, fork: &ForkPoint) {
        self.text(fork.request.source.as_str());
        self.option(fork.request.offset, |w, offset| w.number(offset.get()));
        self.number(fork.request.sub_offset);
        self.key(fork.source);
        self.token(fork.token);
        self.number(fork.at.get());
        self.number(fork.head.get());
        self.lifetime(fork.lifetime);
        self.number(fork.lineage.spans().len() as u64);
        for (end, owner) in fork.lineage.spans() {
            self.number(end.get());
            self.key(*owner);
        }
    }

    fn producer(&mut self, producer: &Producer) {
        self.text(&producer.id);
        self.number(producer.epoch);
        self.number(producer.seq);
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn error<T>(&self) -> Result<T, DecodeError> {
        Err(DecodeError { position: self.position })
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

    fn group(&mut self) -> Result<GroupId, DecodeError> {
        let number = self.number()?;
        u16::try_from(number).map(GroupId::new).or_else(|_| self.error())
    }

    pub(crate) fn key(&mut self) -> Result<StreamKey, DecodeError> {
        Ok(StreamKey { group: self.group()?, stream: StreamId::new(self.number()?) })
    }

    pub(crate) fn token(&mut self) -> Result<PinToken, DecodeError> {
        let fork_group = self.group()?;
        let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
        Ok(PinToken { fork_group, nonce: u64::from_le_bytes(bytes) })
    }

    pub(crate) fn lifetime(&mut self) -> Result<Lifetime, DecodeError> {
        match self.byte()? {
            0 => Ok(Lifetime::Forever),
            1 => Ok(Lifetime::Ttl { seconds: self.number()? }),
            2 => Ok(Lifetime::ExpiresAt(self.time()?)),
            _ => self.error(),
        }
    }

    pub(crate) fn pin(&mut self) -> Result<Pin, DecodeError> {
        Ok(Pin { token: self.token()?, fork_path: self.path()? })
    }

    pub(crate) fn fork(&mut self) -> Result<ForkPoint, DecodeError> {
        let request = ForkRequest {
            source: self.path()?,
            offset: self.option(Self::offset)?,
            sub_offset: self.number()?,
        };
        let fork = ForkPoint {
            request,
            source: self.key()?,
            token: self.token()?,
            at: self.position()?,
            head: self.position()?,
            lifetime: self.lifetime()?,
            lineage: self.lineage()?,
        };
        if fork.head <= fork.at { Ok(fork) } else { self.error() }
    }

    fn lineage(&mut self) -> Result<Lineage, DecodeError> {
        let count = self.number()?;
        let mut spans: Vec<(ByteOffset, StreamKey)> = Vec::new();
        for _ in 0..count {
            let span = (self.position()?, self.key()?);
            if spans.last().is_some_and(|last| last.0 >= span.0) {
                return self.error();
            }
            spans.push(span);
        }
        Ok(Lineage::from_spans(spans))
    }

    fn producer(&mut self) -> Result<Producer, DecodeError> {
        let id = self.text()?.into();
        Ok(Producer { id, epoch: self.producer_number()?, seq: self.producer_number()? })
    }

    /// A limit of producers per stream.
    pub(crate) fn producers_max(&mut self) -> Result<u32, DecodeError> {
        let count = u32::try_from(self.number()?).ok();
        let count = count.filter(|count| (1..=limits::PRODUCERS_PER_STREAM_MAX).contains(count));
        count.ok_or(DecodeError { position: self.position })
    }

    /// Checks that nothing is left.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, DecodeError> {
        if self.position == self.bytes.len() { Ok(value) } else { self.error() }
    }
}

impl Command {
    /// Appends the command's bytes to `out`; the kind goes into the entry header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        match self {
            Self::Create(create) => encode_create(&mut writer, create),
            Self::Append(append) => encode_append(&mut writer, append),
            Self::Delete | Self::Expire => {}
            Self::Touch(at) => writer.number(at.get()),
            Self::Trim(to) => writer.number(to.get()),
            Self::Pin(pin) => writer.pin(pin),
            Self::Unpin(token) | Self::UnpinDone(token) => writer.token(*token),
            Self::KeepProducers(count) => writer.number(u64::from(*count)),
        }
    }

    /// Reads a command back.
    ///
    /// # Errors
    /// [`DecodeError`] if `kind` is unknown or the bytes are not what [`Self::encode`] writes.
    pub fn decode(kind: u8, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let command = match CommandKind::from_byte(kind).ok_or(DecodeError { position: 0 })? {
            CommandKind::Create => Self::Create(Box::new(decode_create(&mut reader)?)),
            CommandKind::Append => Self::Append(decode_append(&mut reader)?),
            CommandKind::Delete => Self::Delete,
            CommandKind::Expire => Self::Expire,
            CommandKind::Touch => Self::Touch(reader.time()?),
            CommandKind::Trim => Self::Trim(reader.offset()?),
            CommandKind::Pin => Self::Pin(reader.pin()?),
            CommandKind::Unpin => Self::Unpin(reader.token()?),
            CommandKind::UnpinDone => Self::UnpinDone(reader.token()?),
            CommandKind::KeepProducers => Self::KeepProducers(reader.producers_max()?),
        };
        reader.finish(command)
    }
}

impl CommandKind {
    fn from_byte(byte: u8) -> Option<Self> {
        use CommandKind as K;
        let all = [
            K::Create,
            K::Append,
            K::Delete,
            K::Expire,
            K::Touch,
            K::Trim,
            K::Pin,
            K::Unpin,
            K::UnpinDone,
            K::KeepProducers,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

fn encode_create(writer: &mut Writer<'_>, create: &Create) {
    writer.text(create.path.as_str());
    writer.text(create.content_type.as_str());
    writer.lifetime(create.lifetime);
    writer.flag(create.close);
    writer.number(create.record_count.into());
    writer.option(create.fork.as_ref(), |w, fork| w.fork(fork));
}

fn decode_create(reader: &mut Reader<'_>) -> Result<Create, DecodeError> {
    Ok(Create {
        path: reader.path()?,
        content_type: ContentType::new(reader.text()?),
        lifetime: reader.lifetime()?,
        close: reader.flag()?,
        record_count: reader.small()?,
        fork: reader.option(Reader::fork)?.map(Box::new),
    })
}

fn encode_append(writer: &mut Writer<'_>, append: &Append) {
    writer.option(append.content_type.as_ref(), |w, content_type| w.text(content_type.as_str()));
    writer.option(append.stream_seq.as_deref(), |w, seq| w.text(seq));
    writer.option(append.producer.as_ref(), |w, producer| w.producer(producer));
    writer.flag(append.close);
    writer.number(append.record_count.into());
}

fn decode_append(reader: &mut Reader<'_>) -> Result<Append, DecodeError> {
    Ok(Append {
        content_type: reader.option(|r| r.text().map(ContentType::new))?,
        stream_seq: reader.option(|r| r.text().map(Into::into))?,
        producer: reader.option(Reader::producer)?,
        close: reader.flag()?,
        record_count: reader.small()?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn fork_point() -> ForkPoint {
        let source = StreamKey { group: GroupId::new(3), stream: StreamId::new(300) };
        ForkPoint {
            request: ForkRequest {
                source: StreamPath::new("src").unwrap(),
                offset: Some(ByteOffset::new(9)),
                sub_offset: 1,
            },
            source,
            token: PinToken { fork_group: GroupId::new(2), nonce: 0x0102_0304_0506_0708 },
            at: ByteOffset::new(10),
            head: ByteOffset::ZERO,
            lifetime: Lifetime::Forever,
            lineage: Lineage::of_fork(&Lineage::default(), source, ByteOffset::new(10)),
        }
    }

    fn all_commands() -> Vec<Command> {
        let token = PinToken { fork_group: GroupId::new(1), nonce: 7 };
        vec![
            Command::Create(Box::new(Create {
                path: StreamPath::new("a/b").unwrap(),
                content_type: ContentType::new("text/plain"),
                lifetime: Lifetime::Ttl { seconds: 300 },
                close: true,
                record_count: 1,
                fork: Some(Box::new(fork_point())),
            })),
            Command::Append(Append {
                content_type: Some(ContentType::new("text/plain")),
                stream_seq: Some("s1".into()),
                producer: Some(Producer { id: "p".into(), epoch: 1, seq: 128 }),
                close: false,
                record_count: 2,
            }),
            Command::Delete,
            Command::Expire,
            Command::Touch(Timestamp::new(1000)),
            Command::Trim(ByteOffset::new(5)),
            Command::Pin(Pin { token, fork_path: StreamPath::new("f").unwrap() }),
            Command::Unpin(token),
            Command::UnpinDone(token),
            Command::KeepProducers(300),
        ]
    }

    /// The bytes of every kind of command as the first version wrote them. They never change.
    const GOLDEN: [&str; 10] = [
        "03612f620a746578742f706c61696e01ac020101010373726301090103ac020208070605040302010a0000010a03ac02",
        "010a746578742f706c61696e01027331010170018001 0002",
        "",
        "",
        "e807",
        "05",
        "0107000000000000000166",
        "010700000000000000",
        "010700000000000000",
        "ac02",
    ];

    #[test]
    fn commands_keep_their_bytes_for_ever() {
        for (command, golden) in all_commands().iter().zip(GOLDEN) {
            let mut bytes = vec![];
            command.encode(&mut bytes);
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, golden.replace(' ', ""), "{command:?}");
            assert_eq!(Command::decode(command.kind() as u8, &bytes).as_ref(), Ok(command));
        }
    }

    #[test]
    fn cut_or_longer_bytes_are_refused() {
        for command in all_commands() {
            let mut bytes = vec![];
            command.encode(&mut bytes);
            let kind = command.kind() as u8;
            for length in 0..bytes.len() {
                assert!(Command::decode(kind, &bytes[..length]).is_err(), "{command:?} {length}");
            }
            bytes.push(0);
            assert!(Command::decode(kind, &bytes).is_err());
        }
    }

    #[test]
    fn numbers_that_no_stream_can_reach_are_refused() {
        let refused = |command: Command| {
            let mut bytes = vec![];
            command.encode(&mut bytes);
            Command::decode(command.kind() as u8, &bytes).is_err()
        };
        let create = |at, head| {
            let lineage = Lineage::default();
            let fork = ForkPoint { at, head, lineage, ..fork_point() };
            let Some(Command::Create(create)) = all_commands().into_iter().next() else { panic!() };
            Command::Create(Box::new(Create { fork: Some(Box::new(fork)), ..*create }))
        };
        let offset = ByteOffset::new;
        assert!(!refused(create(offset(POSITION_MAX), offset(POSITION_MAX))));
        assert!(refused(create(offset(u64::MAX), offset(0))), "no append fits behind it");
        assert!(refused(create(offset(9), offset(10))), "the head lies behind the tail");
        for (epoch, seq) in [(u64::MAX, 0), (0, u64::MAX)] {
            let producer = Some(Producer { id: "p".into(), epoch, seq });
            assert!(refused(Command::Append(Append { producer, ..Append::default() })));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_decode_panic(kind in 0..24_u8, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(command) = Command::decode(kind, &bytes) {
                prop_assert_eq!(command.kind() as u8, kind);
            }
        }
    }
}
