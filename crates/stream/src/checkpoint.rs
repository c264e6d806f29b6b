//! A group's state as bytes: the header and the rows of its checkpoint.
//!
//! # Format
//! The header holds what belongs to the group as a whole; each stream is one row, so that a damaged
//! row costs one stream. Encoded as in [`crate::Command`]: varints, lengths first. The first byte
//! of header and row is their version. `docs/format/commands.md` has the tables.
//!
//! A checkpoint holds only what the log determines, so two replicas at the same index write the same
//! bytes. It holds the last use of a sliding stream as the log last recorded it.

use crate::{
    ContentType, DecodeError, GroupState,
    codec::{Reader, Writer},
    expiries::Noted,
    producer::ProducerState,
    record::{Extra, StreamRecord},
};
use model::{ByteOffset, EntryIndex, PathHash, StreamId, limits};

const VERSION: u8 = 1;

/// The version of a header that ends with the number of producers remembered per stream, because it is not the
/// default.
const VERSION_WITH_PRODUCERS: u8 = 2;

/// One stream of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// Its id.
    pub stream: StreamId,
    /// The hash of its path, which names the stream even if the row is damaged.
    pub path_hash: PathHash,
    /// Its state.
    pub bytes: Vec<u8>,
}

/// Bytes that are not a checkpoint of this or an earlier version.
pub type CheckpointError = DecodeError;

impl GroupState {
    /// The group's header.
    #[must_use]
    pub fn encode_header(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        let keeps_default = self.producers_max == limits::PRODUCERS_PER_STREAM_DEFAULT;
        writer.byte(if keeps_default { VERSION } else { VERSION_WITH_PRODUCERS });
        writer.number(self.pending_unpins.len() as u64);
        for (token, source) in &self.pending_unpins {
            writer.token(*token);
            writer.key(*source);
        }
        self.losses.encode(&mut writer);
        if !keeps_default {
            writer.number(u64::from(self.producers_max));
        }
        bytes
    }

    /// All streams, by rising id.
    #[must_use]
    pub fn encode_rows(&self) -> Vec<StreamRow> {
        self.streams.sorted().into_iter().map(encode_row).collect()
    }

    /// Sets an empty state to what [`Self::encode_header`] wrote at `applied`.
    ///
    /// # Errors
    /// [`CheckpointError`] if the bytes are not a header.
    ///
    /// # Panics
    /// If the state is not empty.
    pub fn restore_header(
        &mut self,
        applied: EntryIndex,
        bytes: &[u8],
    ) -> Result<(), CheckpointError> {
        assert!(self.applied.get() == 0 && self.stream_count() == 0, "restored over a state");
        self.applied = applied;
        let mut reader = Reader::new(bytes);
        let version = reader.byte()?;
        if !(VERSION..=VERSION_WITH_PRODUCERS).contains(&version) {
            return reader.error();
        }
        for _ in 0..reader.number()? {
            let token = reader.token()?;
            self.pending_unpins.insert(token, reader.key()?);
        }
        self.losses.restore(&mut reader)?;
        if version == VERSION_WITH_PRODUCERS {
            self.producers_max = reader.producers_max()?;
        }
        reader.finish(())
    }

    /// Adds the stream that [`Self::encode_rows`] wrote.
    ///
    /// # Errors
    /// [`CheckpointError`] if the bytes are not a row, its stream or path is there already, or its
    /// stream would be made only later: ids are entry indexes.
    pub fn restore_row(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), CheckpointError> {
        let mut record = decode_row(stream, bytes)?;
        let taken = self.streams.get(stream).is_some() || self.streams.find(&record.path).is_some();
        if taken || stream.get() > self.applied.get() {
            return Err(DecodeError { position: 0 });
        }
        record.content_type = self.share(record.content_type);
        self.add_record(record);
        Ok(())
    }
}

fn check_version(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    if reader.byte()? == VERSION { Ok(()) } else { reader.error() }
}

pub(crate) fn encode_row(record: &StreamRecord) -> StreamRow {
    let mut bytes = Vec::new();
    let mut writer = Writer(&mut bytes);
    writer.byte(VERSION);
    writer.text(record.path.as_str());
    writer.text(record.content_type.as_str());
    writer.lifetime(record.lifetime.get());
    writer.number(record.head.get());
    writer.number(record.tail.get());
    writer.number(record.record_count);
    writer.number(record.logged_used_at.get());
    writer.flag(record.closed);
    writer.flag(record.deleted);
    writer.option(record.extra.as_deref(), encode_extra);
    StreamRow { stream: record.id, path_hash: record.path.hash(), bytes }
}

fn encode_extra(writer: &mut Writer<'_>, extra: &Extra) {
    writer.option(extra.stream_seq.as_deref(), |w, seq| w.text(seq));
    writer.number(extra.producers.iter().len() as u64);
    for (id, state) in extra.producers.iter() {
        writer.text(id);
        writer.number(state.epoch);
        writer.number(state.last_seq);
        writer.number(state.used.get());
    }
    writer.option(extra.fork.as_ref(), |w, fork| w.fork(fork));
    writer.number(extra.pins.len() as u64);
    for (token, fork_path) in &extra.pins {
        writer.token(*token);
        writer.text(fork_path.as_str());
    }
}

fn decode_row(id: StreamId, bytes: &[u8]) -> Result<StreamRecord, DecodeError> {
    let mut reader = Reader::new(bytes);
    check_version(&mut reader)?;
    let path = reader.path()?;
    let content_type = ContentType::new(reader.text()?);
    let lifetime = reader.lifetime()?.into();
    let head: ByteOffset = reader.position()?;
    let tail = reader.position()?;
    if head > tail {
        return reader.error();
    }
    let record_count = reader.position()?.get();
    let used_at = reader.time()?;
    let record = StreamRecord {
        id,
        path,
        content_type,
        lifetime,
        head,
        tail,
        record_count,
        used_at,
        logged_used_at: used_at,
        closed: reader.flag()?,
        deleted: reader.flag()?,
        noted: Noted::NEVER,
        copied_in: 0,
        extra: reader.option(decode_extra)?.map(Box::new),
    };
    reader.finish(record)
}

fn decode_extra(reader: &mut Reader<'_>) -> Result<Extra, DecodeError> {
    let mut extra =
        Extra { stream_seq: reader.option(|r| r.text().map(Into::into))?, ..Extra::default() };
    for _ in 0..reader.number()? {
        let id = reader.text()?.into();
        let epoch = reader.producer_number()?;
        let last_seq = reader.producer_number()?;
        let used = EntryIndex::new(reader.number()?);
        extra.producers.restore(id, ProducerState { epoch, last_seq, used });
    }
    extra.fork = reader.option(Reader::fork)?.map(Box::new);
    for _ in 0..reader.number()? {
        let pin = reader.pin()?;
        extra.pins.insert(pin.token, pin.fork_path);
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Append, Command, Create, Lifetime, LoggedCommand, Pin, PinToken, Producer,
        codec::tests::fork_point,
    };
    use model::{GroupId, StreamKey, StreamPath, Timestamp};

    const AT: Timestamp = Timestamp::new(1000);

    fn apply(state: &mut GroupState, stream: u64, command: Command, data_bytes: u64) {
        let subject = command.subject(Some(StreamId::new(stream)));
        state.apply(state.applied().next(), AT, LoggedCommand { subject, command, data_bytes });
    }

    fn create(path: &str) -> Create {
        Create {
            path: StreamPath::new(path).unwrap(),
            content_type: ContentType::new("text/plain"),
            lifetime: Lifetime::Ttl { seconds: 300 },
            close: false,
            record_count: 0,
            fork: None,
        }
    }

    /// One of everything that a checkpoint can hold.
    fn state() -> GroupState {
        let mut state = GroupState::new(GroupId::new(3));
        let fork = |path| {
            Command::Create(Box::new(Create { fork: Some(Box::new(fork_point())), ..create(path) }))
        };
        apply(&mut state, 0, fork("a"), 0);
        apply(&mut state, 0, fork("gone"), 0);
        apply(&mut state, 0, Command::Create(Box::new(create("plain"))), 0);
        apply(&mut state, 2, Command::Delete, 0);
        let producer = Some(Producer { id: "p".into(), epoch: 1, seq: 0 });
        let append = Append { stream_seq: Some("s".into()), producer, ..Append::default() };
        let content_type = Some(ContentType::new("text/plain"));
        let append = Append { content_type, close: true, record_count: 2, ..append };
        apply(&mut state, 1, Command::Append(append), 300);
        apply(&mut state, 1, Command::Trim(ByteOffset::new(5)), 0);
        let token = PinToken { fork_group: GroupId::new(1), nonce: 7 };
        let pin = Pin { token, fork_path: StreamPath::new("f").unwrap() };
        apply(&mut state, 1, Command::Pin(pin), 0);
        apply(&mut state, 1, Command::Delete, 0);
        state.mark_damaged(StreamId::new(9), PathHash::new(0x1234));
        state.lose(StreamId::new(8));
        state.lose_up_to(state.applied());
        state
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    /// The header and the rows of [`state`] as the first version wrote them. They never change.
    const GOLDEN_HEADER: &str = "010102080706050403020103ac0201b42409010808";
    const GOLDEN_ROWS: [(u64, &str); 2] = [
        (
            1,
            "0101610a746578742f706c61696e01ac0205b60202e807010101010173010170010005010373726301090103\
             ac020208070605040302010a0000010a03ac02010107000000000000000166",
        ),
        (3, "0105706c61696e0a746578742f706c61696e01ac02000000e807000000"),
    ];

    #[test]
    fn checkpoints_keep_their_bytes_for_ever() {
        assert_eq!(hex(&state().encode_header()), GOLDEN_HEADER);
        let rows: Vec<(u64, String)> =
            state().encode_rows().iter().map(|row| (row.stream.get(), hex(&row.bytes))).collect();
        assert_eq!(rows, GOLDEN_ROWS.map(|(stream, row)| (stream, row.to_string())));
    }

    #[test]
    fn a_limit_of_producers_is_kept_by_a_checkpoint() {
        let mut limited = state();
        limited.apply(
            limited.applied().next(),
            AT,
            LoggedCommand {
                subject: crate::Subject::Group,
                command: Command::KeepProducers(300),
                data_bytes: 0,
            },
        );
        let header = limited.encode_header();
        assert_eq!(hex(&header), format!("02{}ac02", &GOLDEN_HEADER[2..]));
        let mut restored = GroupState::new(GroupId::new(3));
        restored.restore_header(limited.applied(), &header).unwrap();
        assert_eq!(restored.producers_max(), 300);
    }

    #[test]
    fn a_checkpoint_of_the_first_version_gives_back_its_state() {
        let mut restored = GroupState::new(GroupId::new(3));
        restored.restore_header(EntryIndex::new(8), &bytes(GOLDEN_HEADER)).unwrap();
        for (stream, row) in GOLDEN_ROWS {
            restored.restore_row(StreamId::new(stream), &bytes(row)).unwrap();
        }
        assert_eq!(restored.encode_rows(), state().encode_rows());
        let source = StreamKey { group: GroupId::new(3), stream: StreamId::new(300) };
        assert_eq!(restored.pending_unpins().collect::<Vec<_>>(), [(fork_point().token, source)]);
        assert_eq!(restored.pins(), state().pins());
        assert_eq!(restored.head(StreamId::new(1)), Some(ByteOffset::new(5)));
        assert_eq!(restored.head_or_lost(StreamId::new(9)), Some(ByteOffset::ZERO));
    }

    #[test]
    fn rows_of_streams_that_are_there_or_are_made_later_are_refused() {
        let mut restored = GroupState::new(GroupId::new(3));
        restored.restore_header(EntryIndex::new(8), &bytes(GOLDEN_HEADER)).unwrap();
        let (a, plain) = (bytes(GOLDEN_ROWS[0].1), bytes(GOLDEN_ROWS[1].1));
        restored.restore_row(StreamId::new(1), &a).unwrap();
        assert!(restored.restore_row(StreamId::new(1), &plain).is_err(), "its id is taken");
        assert!(restored.restore_row(StreamId::new(2), &a).is_err(), "its path is taken");
        assert!(restored.restore_row(StreamId::new(9), &plain).is_err(), "it is made later");
        restored.restore_row(StreamId::new(8), &plain).unwrap();
    }
}
