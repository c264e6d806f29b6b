//! Requests and their outcomes as bytes: what one node of a cluster tells another.
//!
//! # Format
//! `docs/format/cluster.md` has the tables. Nothing of this is stored: both ends run at the same time, and a number that one
//! of them does not know is refused.
//!
//! # Invariants
//! - What was encoded decodes to the same.
//! - No bytes make a decoder panic.

use crate::{
    Accepted, Append, Command, CommandKind, ConfigField, ContentType, CreateRequest, DecodeError,
    ForkRequest, Outcome, RecordTime, Refusal, StreamInfo,
    codec::{Reader, Writer},
    messages::JsonError,
};
use model::StreamId;

/// Of a creation and a stream: it is closed.
const CLOSED: u8 = 1;

/// Of an accepted append.
const DUPLICATE: u8 = 1 << 1;
const CLOSE_ONLY: u8 = 1 << 2;

impl CreateRequest {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        writer.text(self.path.as_str());
        writer.option(self.content_type.as_ref(), Writer::content_type);
        writer.lifetime(self.lifetime);
        writer.byte(if self.close { CLOSED } else { 0 });
        writer.retention(self.retention.into());
        writer.option(self.record_time, Writer::asked_time);
        writer.number(self.record_count.into());
        writer.option(self.fork.as_ref(), |writer, fork| {
            writer.text(fork.source.as_str());
            writer.option(fork.offset, |writer, offset| writer.number(offset.get()));
            writer.number(fork.sub_offset);
        });
    }

    /// Reads one back.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let create = Self {
            path: reader.path()?,
            content_type: reader.option(Reader::content_type)?,
            lifetime: reader.lifetime()?,
            close: reader.flags(CLOSED)? != 0,
            retention: reader.retention()?,
            record_time: reader.option(Reader::asked_time)?,
            record_count: reader.small()?,
            fork: reader.option(|reader| {
                Ok(ForkRequest {
                    source: reader.path()?,
                    offset: reader.option(Reader::offset)?,
                    sub_offset: reader.number()?,
                })
            })?,
        };
        reader.finish(create)
    }
}

impl Append {
    /// Appends the bytes of one that is not logged yet: its record time may be as its client gave it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Writer(out).option(self.record_time, Writer::asked_time);
        Command::Append(Self { record_time: None, ..self.clone() }).encode(out);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let record_time = reader.option(Reader::asked_time)?;
        match Command::decode(CommandKind::Append as u8, reader.rest())? {
            Command::Append(append) if append.record_time.is_none() => {
                Ok(Self { record_time, ..append })
            }
            _ => reader.error(),
        }
    }
}

impl StreamInfo {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        Writer(out).info(self);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let info = reader.info()?;
        reader.finish(info)
    }
}

impl Outcome {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer(out);
        match self {
            Self::Created(info) | Self::Existed(info) | Self::Changed(info) => {
                let kind = match self {
                    Self::Created(_) => 1,
                    Self::Existed(_) => 2,
                    _ => 3,
                };
                writer.byte(kind);
                writer.info(info);
            }
            Self::Appended(accepted) => {
                writer.byte(4);
                writer.accepted(accepted);
            }
            Self::Deleted => writer.byte(5),
            Self::Pinned { head, first_record } | Self::Trimmed { head, first_record } => {
                writer.byte(if matches!(self, Self::Pinned { .. }) { 6 } else { 7 });
                writer.number(head.get());
                writer.number(*first_record);
            }
            Self::Done => writer.byte(8),
            Self::Refused(refusal) => {
                writer.byte(9);
                writer.refusal(refusal);
            }
        }
    }

    /// Reads one back.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let outcome = match reader.byte()? {
            1 => Self::Created(Box::new(reader.info()?)),
            2 => Self::Existed(Box::new(reader.info()?)),
            3 => Self::Changed(Box::new(reader.info()?)),
            4 => Self::Appended(reader.accepted()?),
            5 => Self::Deleted,
            6 => Self::Pinned { head: reader.position()?, first_record: reader.count()? },
            7 => Self::Trimmed { head: reader.position()?, first_record: reader.count()? },
            8 => Self::Done,
            9 => Self::Refused(reader.refusal()?),
            _ => return reader.error(),
        };
        reader.finish(outcome)
    }
}

impl JsonError {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (line, column) = match self {
            Self::TooDeep => (0, 0),
            Self::Invalid { line, column } => (1 + *line as u64, *column as u64),
        };
        Writer(out).number(line);
        Writer(out).number(column);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not what [`Self::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (line, column) = (reader.number()?, reader.number()?);
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let error = match line.checked_sub(1) {
            None if column > 0 => return reader.error(),
            None => Self::TooDeep,
            Some(line) => Self::Invalid { line: place(line), column: place(column) },
        };
        reader.finish(error)
    }
}

impl Writer<'_> {
    /// A record time that its client may have given.
    fn asked_time(&mut self, time: RecordTime) {
        match time {
            RecordTime::Given(time) => {
                self.byte(0);
                self.number(time);
            }
            settled @ RecordTime::SinceArrival(_) => {
                self.byte(1);
                self.record_time(settled);
            }
        }
    }

    fn info(&mut self, info: &StreamInfo) {
        self.number(info.stream.get());
        self.content_type(&info.content_type);
        self.layout(info.layout);
        self.lifetime(info.lifetime);
        self.byte(if info.closed { CLOSED } else { 0 });
        for number in [info.head.get(), info.tail.get(), info.first_record, info.next_record] {
            self.number(number);
        }
        self.option(info.mark, Self::number);
        self.retention(info.retention.into());
        self.number(info.created_at.get());
        self.number(info.written_at.get());
        self.lineage(&info.lineage);
    }

    fn accepted(&mut self, accepted: &Accepted) {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        self.byte(
            flag(accepted.closed, CLOSED)
                | flag(accepted.duplicate, DUPLICATE)
                | flag(accepted.close_only, CLOSE_ONLY),
        );
        self.number(accepted.stream.get());
        self.number(accepted.tail.get());
        self.option(accepted.records, Self::two);
        self.option(accepted.producer, Self::two);
    }

    fn two(&mut self, (one, other): (u64, u64)) {
        self.number(one);
        self.number(other);
    }

    fn refusal(&mut self, refusal: &Refusal) {
        use Refusal as R;
        let mut with = |kind: u8, numbers: &[u64]| {
            self.byte(kind);
            numbers.iter().for_each(|number| self.number(*number));
        };
        match refusal {
            R::NotFound => with(1, &[]),
            R::Gone => with(2, &[]),
            R::PathBlocked => with(3, &[]),
            R::Closed { tail } => with(4, &[tail.get()]),
            R::ContentType { expected } => self.named_type(5, expected),
            R::StreamSeq { last } => {
                self.byte(6);
                self.text(last);
            }
            R::RecordMatch { next_record, tail } => with(7, &[*next_record, tail.get()]),
            R::Precondition { tail } => with(8, &[tail.get()]),
            R::StaleEpoch { current } => with(9, &[*current]),
            R::EpochStart { received } => with(10, &[*received]),
            R::SeqGap { expected, received } => with(11, &[*expected, *received]),
            R::Config { differs } => with(12, &[*differs as u64]),
            R::ForkSourceNotFound => with(13, &[]),
            R::ForkSourceGone => with(14, &[]),
            R::ForkContentType { expected } => self.named_type(15, expected),
            R::ForkBeyondTail { tail } => with(16, &[tail.get()]),
            R::ForkSubOffset { available } => with(17, &[*available]),
            R::ForkTrimmed { head } => with(18, &[head.get()]),
            R::ForkDepth => with(19, &[]),
            R::Damaged => with(20, &[]),
        }
    }

    fn named_type(&mut self, kind: u8, content_type: &ContentType) {
        self.byte(kind);
        self.content_type(content_type);
    }
}

impl<'a> Reader<'a> {
    /// All that is left.
    fn rest(&mut self) -> &'a [u8] {
        let rest = self.left();
        self.take(rest).expect("as much as is left")
    }

    fn asked_time(&mut self) -> Result<RecordTime, DecodeError> {
        match self.byte()? {
            0 => Ok(RecordTime::Given(self.number()?)),
            1 => self.record_time(),
            _ => self.error(),
        }
    }

    fn info(&mut self) -> Result<StreamInfo, DecodeError> {
        Ok(StreamInfo {
            stream: StreamId::new(self.number()?),
            content_type: self.content_type()?,
            layout: self.layout()?,
            lifetime: self.lifetime()?,
            closed: self.flags(CLOSED)? != 0,
            head: self.position()?,
            tail: self.position()?,
            first_record: self.count()?,
            next_record: self.count()?,
            mark: self.option(Self::number)?,
            retention: self.retention()?,
            created_at: self.time()?,
            written_at: self.time()?,
            lineage: self.lineage()?,
        })
    }

    fn accepted(&mut self) -> Result<Accepted, DecodeError> {
        let flags = self.flags(CLOSED | DUPLICATE | CLOSE_ONLY)?;
        Ok(Accepted {
            stream: StreamId::new(self.number()?),
            tail: self.position()?,
            records: self.option(Self::two)?,
            closed: flags & CLOSED != 0,
            producer: self.option(Self::two)?,
            duplicate: flags & DUPLICATE != 0,
            close_only: flags & CLOSE_ONLY != 0,
        })
    }

    fn two(&mut self) -> Result<(u64, u64), DecodeError> {
        Ok((self.number()?, self.number()?))
    }

    fn refusal(&mut self) -> Result<Refusal, DecodeError> {
        use Refusal as R;
        Ok(match self.byte()? {
            1 => R::NotFound,
            2 => R::Gone,
            3 => R::PathBlocked,
            4 => R::Closed { tail: self.position()? },
            5 => R::ContentType { expected: self.content_type()? },
            6 => R::StreamSeq { last: self.text()?.into() },
            7 => R::RecordMatch { next_record: self.number()?, tail: self.position()? },
            8 => R::Precondition { tail: self.position()? },
            9 => R::StaleEpoch { current: self.number()? },
            10 => R::EpochStart { received: self.number()? },
            11 => R::SeqGap { expected: self.number()?, received: self.number()? },
            12 => R::Config { differs: self.config_field()? },
            13 => R::ForkSourceNotFound,
            14 => R::ForkSourceGone,
            15 => R::ForkContentType { expected: self.content_type()? },
            16 => R::ForkBeyondTail { tail: self.position()? },
            17 => R::ForkSubOffset { available: self.number()? },
            18 => R::ForkTrimmed { head: self.position()? },
            19 => R::ForkDepth,
            20 => R::Damaged,
            _ => return self.error(),
        })
    }

    fn config_field(&mut self) -> Result<ConfigField, DecodeError> {
        use ConfigField as C;
        let number = self.number()?;
        let all = [C::ContentType, C::Lifetime, C::Closed, C::Fork];
        all.into_iter().find(|field| *field as u64 == number).ok_or_else(|| self.failure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AppendType, Condition, EndState, Keep, Layout, Lifetime, Lineage, Producer, Retention,
        command_codec::tests::fork_point,
    };
    use model::{ByteOffset, GroupId, StreamKey, StreamPath, Timestamp};
    use proptest::prelude::*;

    fn at(bytes: u64) -> ByteOffset {
        ByteOffset::new(bytes)
    }

    fn info() -> StreamInfo {
        StreamInfo {
            stream: StreamId::new(300),
            content_type: ContentType::new("application/x"),
            layout: Layout::Bytes,
            lifetime: Lifetime::Ttl { seconds: 9 },
            head: at(1),
            tail: at(400),
            first_record: 2,
            next_record: 8,
            mark: Some(70),
            retention: Retention { bytes: Keep::AtLeast(300), ..Retention::DEFAULT },
            closed: true,
            created_at: Timestamp::new(1000),
            written_at: Timestamp::new(2000),
            lineage: fork_point().lineage,
        }
    }

    fn creations() -> [CreateRequest; 2] {
        let plain = CreateRequest {
            path: StreamPath::new("a/b").unwrap(),
            content_type: None,
            lifetime: Lifetime::Forever,
            close: false,
            fork: None,
            retention: Retention::DEFAULT,
            record_time: None,
            record_count: 0,
        };
        let fork = CreateRequest {
            content_type: Some(ContentType::new("text/plain")),
            lifetime: Lifetime::ExpiresAt(Timestamp::new(5)),
            close: true,
            fork: Some(fork_point().request),
            retention: Retention { records: Keep::All, ..Retention::DEFAULT },
            record_time: Some(RecordTime::Given(77)),
            record_count: 3,
            ..plain.clone()
        };
        [plain, fork]
    }

    fn appends() -> [Append; 3] {
        let stream = StreamKey { group: GroupId::new(3), stream: StreamId::new(300) };
        let states = vec![EndState { stream, tail: at(5), closed: true }];
        let whole = Append {
            content_type: AppendType::Named(ContentType::new("text/plain")),
            stream_seq: Some("s".into()),
            producer: Some(Producer { id: "p".into(), epoch: 1, seq: 128 }),
            close: true,
            record_count: 2,
            record_time: Some(RecordTime::Given(u64::MAX)),
            condition: Some(Box::new(Condition { next_record: Some(3), states })),
        };
        let settled = Append { record_time: Some(RecordTime::SinceArrival(-3)), ..whole.clone() };
        [Append::default(), whole, settled]
    }

    fn refusals() -> Vec<Refusal> {
        use Refusal as R;
        let fields = [
            ConfigField::ContentType,
            ConfigField::Lifetime,
            ConfigField::Closed,
            ConfigField::Fork,
        ];
        let mut all = vec![
            R::NotFound,
            R::Gone,
            R::PathBlocked,
            R::Closed { tail: at(4) },
            R::ContentType { expected: ContentType::new("text/x") },
            R::StreamSeq { last: "seven".into() },
            R::RecordMatch { next_record: 7, tail: at(6) },
            R::Precondition { tail: at(8) },
            R::StaleEpoch { current: 9 },
            R::EpochStart { received: 10 },
            R::SeqGap { expected: 11, received: 300 },
            R::ForkSourceNotFound,
            R::ForkSourceGone,
            R::ForkContentType { expected: ContentType::new("application/json") },
            R::ForkBeyondTail { tail: at(16) },
            R::ForkSubOffset { available: 17 },
            R::ForkTrimmed { head: at(18) },
            R::ForkDepth,
            R::Damaged,
        ];
        all.extend(fields.map(|differs| R::Config { differs }));
        all
    }

    fn outcomes() -> Vec<Outcome> {
        let accepted = Accepted {
            stream: StreamId::new(3),
            tail: at(300),
            records: Some((1, 2)),
            closed: false,
            producer: Some((3, 4)),
            duplicate: true,
            close_only: false,
        };
        let closed = Accepted {
            records: None,
            producer: None,
            closed: true,
            duplicate: false,
            close_only: true,
            ..accepted.clone()
        };
        let mut all = vec![
            Outcome::Created(Box::new(info())),
            Outcome::Existed(Box::new(StreamInfo { mark: None, closed: false, ..info() })),
            Outcome::Changed(Box::new(StreamInfo { lineage: Lineage::default(), ..info() })),
            Outcome::Appended(accepted),
            Outcome::Appended(closed),
            Outcome::Deleted,
            Outcome::Pinned { head: at(5), first_record: 6 },
            Outcome::Trimmed { head: at(7), first_record: 8 },
            Outcome::Done,
        ];
        all.extend(refusals().into_iter().map(Outcome::Refused));
        all
    }

    /// How a value is written and read back.
    type Codec<T> = (fn(&T, &mut Vec<u8>), fn(&[u8]) -> Result<T, DecodeError>);

    /// The bytes of one value, and whether each part of them and more than them is refused, or is another value.
    fn assert_whole<T: PartialEq + std::fmt::Debug>(
        value: &T,
        (encode, decode): Codec<T>,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(value, &mut bytes);
        assert_eq!(decode(&bytes).as_ref(), Ok(value));
        for length in 0..bytes.len() {
            assert_ne!(decode(&bytes[..length]).as_ref(), Ok(value), "cut to {length}");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err(), "{value:?} and a byte more");
        bytes.pop();
        bytes
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn what_is_told_comes_back() {
        for create in creations() {
            assert_whole(&create, (CreateRequest::encode, CreateRequest::decode));
        }
        for append in appends() {
            assert_whole(&append, (Append::encode, Append::decode));
        }
        for outcome in outcomes() {
            assert_whole(&outcome, (Outcome::encode, Outcome::decode));
        }
        for error in [JsonError::TooDeep, JsonError::Invalid { line: 0, column: 300 }] {
            assert_whole(&error, (JsonError::encode, JsonError::decode));
        }
        let bytes = assert_whole(&info(), (StreamInfo::encode, StreamInfo::decode));
        let golden =
            "ac02ff0d6170706c69636174696f6e2f780001090101900302080146 08ac02 e807d00f010a0403ac02";
        assert_eq!(hex(&bytes), golden.replace(' ', ""));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut again = Vec::new();
            if let Ok(outcome) = Outcome::decode(&bytes) {
                outcome.encode(&mut again);
                prop_assert_eq!(Outcome::decode(&again), Ok(outcome));
            }
            let _ = (CreateRequest::decode(&bytes), StreamInfo::decode(&bytes));
            let _ = (Append::decode(&bytes), JsonError::decode(&bytes));
        }
    }
}
