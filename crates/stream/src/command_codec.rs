//! Commands as bytes: the command part of a log entry.
//!
//! # Format
//! The kind is in the entry header. `docs/format/commands.md` has the tables; golden bytes are in the tests below.

use crate::{
    Append, AppendType, Change, Command, CommandKind, Condition, ContentType, Create, DecodeError,
    Newer, Retention, Trim,
    codec::{Reader, Tag, Writer},
    register::{append_tag, row_tag},
};

/// Of the form of a creation: the stream is made closed.
const CREATE_CLOSED: u8 = 1;

/// Of the form of an append: which content type it names.
const APPEND_TYPE: u8 = 0b11;
const APPEND_OWN_TYPE: u8 = 1;
const APPEND_OTHER_TYPE: u8 = 2;
const APPEND_CLOSES: u8 = 1 << 2;
const APPEND_HAS_SEQ: u8 = 1 << 3;
const APPEND_HAS_PRODUCER: u8 = 1 << 4;
/// All bits that this version knows.
const APPEND_FORM: u8 = APPEND_TYPE | APPEND_CLOSES | APPEND_HAS_SEQ | APPEND_HAS_PRODUCER;

impl Command {
    /// Appends the command's bytes to `out`; the kind goes into the entry header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        match self {
            Self::Create(create) => encode_create(&mut writer, create),
            Self::Append(append) => encode_append(&mut writer, append),
            Self::Delete | Self::Expire => {}
            Self::Touch(at) => writer.number(at.get()),
            Self::Trim(trim) => {
                writer.number(trim.to.get());
                writer.number(trim.first_record);
            }
            Self::Change(change) => encode_change(&mut writer, change),
            Self::Pin(pin) => writer.pin(pin.token, pin.from, &pin.fork_path),
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
        let Some(known) = CommandKind::from_byte(kind) else {
            return reader.newer(Newer::Kind(kind));
        };
        let command = match known {
            CommandKind::Create => return decode_create(reader),
            CommandKind::Append => return decode_append(reader),
            CommandKind::Delete => Self::Delete,
            CommandKind::Expire => Self::Expire,
            CommandKind::Touch => Self::Touch(reader.time()?),
            CommandKind::Trim => {
                Self::Trim(Trim { to: reader.offset()?, first_record: reader.count()? })
            }
            CommandKind::Change => return decode_change(reader),
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
            K::Change,
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
    writer.content_type(&create.content_type);
    writer.layout(create.layout);
    writer.lifetime(create.lifetime);
    writer.byte(if create.close { CREATE_CLOSED } else { 0 });
    writer.number(create.record_count.into());
    writer.tag_if(row_tag::FORK, create.fork.as_ref(), |w, fork| w.fork(fork));
    let retention = (!create.retention.is_default()).then_some(create.retention);
    writer.tag_if(row_tag::RETENTION, retention, |w, kept| w.retention(kept.into()));
    writer.tag_if(row_tag::RECORD_TIMES, create.record_time, |w, time| w.record_time(time));
}

fn decode_create(mut reader: Reader<'_>) -> Result<Command, DecodeError> {
    let mut create = Create {
        path: reader.path()?,
        content_type: reader.content_type()?,
        layout: reader.layout()?,
        lifetime: reader.lifetime()?,
        close: reader.flags(CREATE_CLOSED)? != 0,
        record_count: reader.small()?,
        retention: Retention::DEFAULT,
        record_time: None,
        fork: None,
    };
    reader.tags(|number, field| {
        match number {
            row_tag::FORK => create.fork = Some(Box::new(field.fork()?)),
            row_tag::RETENTION => create.retention = field.retention()?,
            row_tag::RECORD_TIMES => create.record_time = Some(field.record_time()?),
            _ => return Ok(Tag::Unknown),
        }
        Ok(Tag::Read)
    })?;
    Ok(Command::Create(Box::new(create)))
}

fn encode_change(writer: &mut Writer<'_>, change: &Change) {
    let retention = (!change.retention.is_empty()).then_some(change.retention);
    writer.tag_if(row_tag::RETENTION, retention, |w, change| w.retention(change));
}

fn decode_change(reader: Reader<'_>) -> Result<Command, DecodeError> {
    let mut change = Change::default();
    reader.tags(|number, field| match number {
        row_tag::RETENTION => {
            change.retention = field.retention_change()?;
            Ok(Tag::Read)
        }
        _ => Ok(Tag::Unknown),
    })?;
    Ok(Command::Change(change))
}

fn encode_append(writer: &mut Writer<'_>, append: &Append) {
    let (named, content_type) = match &append.content_type {
        AppendType::Unnamed => (0, None),
        AppendType::StreamsOwn => (APPEND_OWN_TYPE, None),
        AppendType::Named(content_type) => (APPEND_OTHER_TYPE, Some(content_type)),
    };
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    writer.byte(
        named
            | flag(append.close, APPEND_CLOSES)
            | flag(append.stream_seq.is_some(), APPEND_HAS_SEQ)
            | flag(append.producer.is_some(), APPEND_HAS_PRODUCER),
    );
    writer.number(append.record_count.into());
    content_type.iter().for_each(|content_type| writer.text(content_type.as_str()));
    append.stream_seq.iter().for_each(|seq| writer.text(seq));
    append.producer.iter().for_each(|producer| writer.producer(producer));
    let condition = append.condition.as_deref();
    let next_record = condition.and_then(|condition| condition.next_record);
    writer.tag_if(append_tag::MATCH_RECORD, next_record, |w, number| w.number(number));
    writer.tag_if(append_tag::RECORD_TIME, append.record_time, |w, time| w.record_time(time));
    let states = condition.map(|condition| &condition.states[..]).filter(|list| !list.is_empty());
    writer.tag_if(append_tag::MATCH_STATES, states, |w, states| w.end_states(states));
}

fn decode_append(mut reader: Reader<'_>) -> Result<Command, DecodeError> {
    let form = reader.flags(APPEND_FORM)?;
    let record_count = reader.small()?;
    let content_type = match form & APPEND_TYPE {
        0 => AppendType::Unnamed,
        APPEND_OWN_TYPE => AppendType::StreamsOwn,
        APPEND_OTHER_TYPE => AppendType::Named(ContentType::new(reader.text()?)),
        _ => return reader.newer(Newer::Flags(form)),
    };
    let stream_seq = if form & APPEND_HAS_SEQ != 0 { Some(reader.text()?.into()) } else { None };
    let producer = if form & APPEND_HAS_PRODUCER != 0 { Some(reader.producer()?) } else { None };
    let close = form & APPEND_CLOSES != 0;
    let (mut condition, mut record_time) = (Condition::default(), None);
    reader.tags(|number, field| {
        match number {
            append_tag::MATCH_RECORD => condition.next_record = Some(field.count()?),
            append_tag::RECORD_TIME => record_time = Some(field.record_time()?),
            append_tag::MATCH_STATES => condition.states = field.end_states()?,
            _ => return Ok(Tag::Unknown),
        }
        Ok(Tag::Read)
    })?;
    let condition = (!condition.is_empty()).then(|| Box::new(condition));
    Ok(Command::Append(Append {
        content_type,
        stream_seq,
        producer,
        close,
        record_count,
        record_time,
        condition,
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        ForkPoint, ForkRequest, Layout, Lifetime, Lineage, Pin, PinToken, Producer,
        codec::POSITION_MAX,
    };
    use model::{ByteOffset, GroupId, StreamId, StreamKey, StreamPath, Term, Timestamp};
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
            token: PinToken {
                fork_group: GroupId::new(2),
                term: Term::new(9),
                nonce: 0x0102_0304_0506_0708,
            },
            at: ByteOffset::new(10),
            head: ByteOffset::ZERO,
            head_record: 0,
            records: 4,
            mark: Some(70),
            lifetime: Lifetime::Forever,
            lineage: Lineage::of_fork(&Lineage::default(), source, (ByteOffset::new(10), 4)),
        }
    }

    fn creations() -> [Command; 3] {
        let plain = Create {
            path: StreamPath::new("a/b").unwrap(),
            content_type: ContentType::new("text/plain"),
            layout: Layout::Bytes,
            lifetime: Lifetime::Forever,
            close: false,
            record_count: 1,
            retention: Retention::DEFAULT,
            record_time: None,
            fork: None,
        };
        let fork = Create {
            lifetime: Lifetime::Ttl { seconds: 300 },
            close: true,
            fork: Some(Box::new(fork_point())),
            ..plain.clone()
        };
        let kept = Create {
            retention: Retention { bytes: crate::Keep::AtLeast(300), ..Retention::DEFAULT },
            record_time: Some(crate::RecordTime::SinceArrival(0)),
            ..plain.clone()
        };
        let json = Create {
            content_type: ContentType::new("application/x"),
            layout: Layout::Json,
            record_count: 0,
            ..plain
        };
        [fork, kept, json].map(|create| Command::Create(Box::new(create)))
    }

    fn appends() -> [Command; 4] {
        let own =
            Append { content_type: AppendType::StreamsOwn, record_count: 1, ..Append::default() };
        let numbered = Append {
            content_type: AppendType::Named(ContentType::new("text/plain")),
            stream_seq: Some("s1".into()),
            producer: Some(Producer { id: "p".into(), epoch: 1, seq: 128 }),
            record_count: 2,
            ..Append::default()
        };
        let (stream, tail) = (fork_point().source, ByteOffset::new(5));
        let states = vec![crate::EndState { stream, tail, closed: true }];
        let conditional = Append {
            record_time: Some(crate::RecordTime::SinceArrival(-3)),
            condition: Some(Box::new(Condition { next_record: Some(300), states })),
            ..own.clone()
        };
        let close = Append { close: true, ..Append::default() };
        [numbered, conditional, own, close].map(Command::Append)
    }

    fn all_commands() -> Vec<Command> {
        let token = PinToken { fork_group: GroupId::new(1), term: Term::new(9), nonce: 7 };
        let retention = crate::RetentionChange {
            age_seconds: Some(crate::Keep::AtLeast(60)),
            records: Some(crate::Keep::All),
            ..crate::RetentionChange::default()
        };
        let others = [
            Command::Change(Change { retention }),
            Command::Delete,
            Command::Expire,
            Command::Touch(Timestamp::new(1000)),
            Command::Trim(crate::Trim { to: ByteOffset::new(5), first_record: 1 }),
            Command::Pin(Pin {
                token,
                from: ByteOffset::new(3),
                fork_path: StreamPath::new("f").unwrap(),
            }),
            Command::Unpin(token),
            Command::UnpinDone(token),
            Command::KeepProducers(300),
        ];
        creations().into_iter().chain(appends()).chain(others).collect()
    }

    /// The bytes of every kind of command as the first version wrote them. They never change.
    const GOLDEN: [&str; 16] = [
        "03612f62020001ac02010103210373726301090103ac02020908070605040302010a000004014600010a0403ac02",
        "03612f620200000001 060308ac02 070100",
        "03612f62ff0d6170706c69636174696f6e2f7801000000",
        "1a020a746578742f706c61696e0273310170018001",
        "0101 0102ac02 050105 0a050103ac020b",
        "0101",
        "0400",
        "0602 1e3c",
        "",
        "",
        "e807",
        "0501",
        "0109070000000000000003 0166",
        "01090700000000000000",
        "01090700000000000000",
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

    /// Beside the header of an entry, 64 bytes, and its data. Each was 14 to 28 bytes more when it named the type of its stream.
    #[test]
    fn an_append_takes_two_bytes_and_those_of_its_producer() {
        let bytes = |producer: Option<Producer>, content_type| {
            let append = Append { content_type, producer, record_count: 1, ..Append::default() };
            let mut bytes = vec![];
            Command::Append(append).encode(&mut bytes);
            bytes.len()
        };
        let numbered = Producer { id: "ten-letter".into(), epoch: 1, seq: 300 };
        let other = AppendType::Named(ContentType::new("text/plain"));
        assert_eq!(bytes(None, AppendType::StreamsOwn), 2);
        assert_eq!(bytes(Some(numbered), AppendType::StreamsOwn), 16);
        assert_eq!(bytes(None, other), 13);
    }

    #[test]
    fn cut_or_longer_bytes_are_refused() {
        for command in all_commands() {
            let mut bytes = vec![];
            command.encode(&mut bytes);
            let kind = command.kind() as u8;
            for length in 0..bytes.len() {
                // Without all of its tags it may be another command, but never half of one.
                let cut = Command::decode(kind, &bytes[..length]).map(|cut| {
                    let mut bytes = vec![];
                    cut.encode(&mut bytes);
                    bytes
                });
                assert!(
                    cut.is_err() || cut.as_deref() == Ok(&bytes[..length]),
                    "{command:?} {length}"
                );
            }
            bytes.push(0);
            assert!(Command::decode(kind, &bytes).is_err());
        }
    }

    #[test]
    fn what_a_newer_version_writes_is_refused_by_its_name() {
        let newer = |kind: u8, bytes: &[u8]| Command::decode(kind, bytes).unwrap_err().newer;
        assert_eq!(newer(70, b""), Some(Newer::Kind(70)));
        assert_eq!(newer(CommandKind::Append as u8, &[1, 1, 63, 1, 9]), Some(Newer::Tag(63)));
        assert_eq!(newer(CommandKind::Append as u8, &[0x21, 1]), Some(Newer::Flags(0x21)));
        assert_eq!(newer(CommandKind::Append as u8, &[3, 1]), Some(Newer::Flags(3)));
        let create = [1, b'a', 0, 2, 0, 0, 0];
        assert_eq!(newer(CommandKind::Create as u8, &create), Some(Newer::Layout(2)));
        let tagged = [1, b'a', 0, 1, 0, 0, 0, 16, 0];
        assert_eq!(newer(CommandKind::Create as u8, &tagged), Some(Newer::Tag(16)));
        // What comes before it is not the newer version's.
        assert_eq!(newer(CommandKind::Append as u8, &[1]), None);
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
