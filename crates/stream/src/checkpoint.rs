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
    DecodeError, GroupState, Pin,
    codec::{POSITION_MAX, Reader, Tag, Writer},
    expiries::Noted,
    pins::Pinned,
    producer::{ProducerState, Receipt},
    record::{Extra, StreamRecord},
    register::{group_tag, row_tag},
};
use model::{ByteOffset, EntryIndex, PathHash, StreamId, limits};
use std::ops::Range;

/// Of a group's header.
const HEADER_VERSION: u8 = 1;
/// Of a stream's row.
const ROW_VERSION: u8 = 1;

/// Receipts kept of a producer.
const RECEIPTS: u64 = 1;

/// Flags of a row.
const ROW_CLOSED: u8 = 1;
const ROW_DELETED: u8 = 2;

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
        writer.byte(HEADER_VERSION);
        let history = (self.history > 0).then_some(self.history);
        writer.tag_if(group_tag::HISTORY, history, |w, history| w.number(history));
        let keeps_default = self.producers_max == limits::PRODUCERS_PER_STREAM_DEFAULT;
        let producers_max = (!keeps_default).then_some(self.producers_max);
        writer.tag_if(group_tag::PRODUCERS_MAX, producers_max, |w, max| w.number(max.into()));
        if !self.pending_unpins.is_empty() {
            writer.tag(group_tag::PENDING_UNPINS, |writer| {
                writer.number(self.pending_unpins.len() as u64);
                for (token, source) in &self.pending_unpins {
                    writer.token(*token);
                    writer.key(*source);
                }
            });
        }
        if self.losses.is_any() {
            writer.tag(group_tag::LOSSES, |writer| self.losses.encode(writer));
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
        reader.version(HEADER_VERSION)?;
        reader.tags(|number, field| {
            match number {
                group_tag::HISTORY => self.history = field.number()?,
                group_tag::PRODUCERS_MAX => self.producers_max = field.producers_max()?,
                group_tag::PENDING_UNPINS => {
                    for _ in 0..field.number()? {
                        let token = field.token()?;
                        self.pending_unpins.insert(token, field.key()?);
                    }
                }
                group_tag::LOSSES => self.losses.restore(field)?,
                _ => return Ok(Tag::Unknown),
            }
            Ok(Tag::Read)
        })
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
            return Err(DecodeError { position: 0, newer: None });
        }
        let content_type = self.share(record.content_type());
        (record.known_type, record.other_type) = content_type.into_parts();
        self.add_record(record);
        Ok(())
    }
}

pub(crate) fn encode_row(record: &StreamRecord) -> StreamRow {
    let mut bytes = Vec::new();
    let mut writer = Writer(&mut bytes);
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    writer.byte(ROW_VERSION);
    writer.byte(flag(record.closed, ROW_CLOSED) | flag(record.deleted, ROW_DELETED));
    writer.layout(record.layout);
    writer.text(record.path.as_str());
    writer.content_type(&record.content_type());
    writer.lifetime(record.lifetime.get());
    writer.number(record.head.get());
    writer.number(record.tail.since(record.head));
    writer.number(record.next_record);
    let (created_at, written_at) = (record.created_at.get(), record.written_at.get());
    writer.number(created_at.get());
    writer.number(written_at.get() - created_at.get());
    if let Some(extra) = &record.extra {
        encode_extra(&mut writer, extra);
    }
    let logged_use = (record.logged_used_at() > written_at).then(|| record.logged_used_at());
    writer.tag_if(row_tag::LOGGED_USE, logged_use, |w, at| w.number(at.get()));
    if let Some(extra) = &record.extra {
        encode_later_extra(&mut writer, extra);
    }
    StreamRow { stream: record.id, path_hash: record.path.hash(), bytes }
}

/// The tags of what few streams have that come behind their last use.
fn encode_later_extra(writer: &mut Writer<'_>, extra: &Extra) {
    let retention = (!extra.retention.is_default()).then_some(extra.retention);
    writer.tag_if(row_tag::RETENTION, retention, |w, kept| w.retention(kept.into()));
    writer.tag_if(row_tag::RECORD_TIMES, extra.mark, |w, mark| w.number(mark));
    let head_record = (extra.head_record > 0).then_some(extra.head_record);
    writer.tag_if(row_tag::HEAD_RECORD, head_record, |w, number| w.number(number));
}

/// The tags of what few streams have, up to their last use.
fn encode_extra(writer: &mut Writer<'_>, extra: &Extra) {
    writer.tag_if(row_tag::STREAM_SEQ, extra.stream_seq.as_deref(), |w, seq| w.text(seq));
    if extra.producers.iter().len() > 0 {
        writer.tag(row_tag::PRODUCERS, |writer| {
            writer.number(extra.producers.iter().len() as u64);
            for (id, state) in extra.producers.iter() {
                encode_producer(writer, id, state);
            }
        });
    }
    writer.tag_if(row_tag::FORK, extra.fork.as_ref(), |w, fork| w.fork(fork));
    if !extra.pins.is_empty() {
        writer.tag(row_tag::PINS, |writer| {
            writer.number(extra.pins.len() as u64);
            for (token, Pinned { from, fork_path }) in extra.pins.iter() {
                writer.pin(*token, *from, fork_path);
            }
        });
    }
}

fn encode_producer(writer: &mut Writer<'_>, id: &str, state: &ProducerState) {
    let ProducerState { epoch, last_seq, used, receipt } = state;
    writer.text(id);
    writer.number(*epoch);
    writer.number(*last_seq);
    writer.number(used.get());
    writer.number(RECEIPTS);
    writer.number(receipt.start.get());
    writer.number(receipt.bytes.into());
    writer.number(receipt.first_record);
    writer.number(receipt.records.into());
}

fn decode_producer(reader: &mut Reader<'_>) -> Result<(Box<str>, ProducerState), DecodeError> {
    let id = reader.text()?.into();
    let (epoch, last_seq) = (reader.producer_number()?, reader.producer_number()?);
    let used = EntryIndex::new(reader.number()?);
    if reader.number()? != RECEIPTS {
        return reader.error();
    }
    let (start, bytes) = (reader.position()?, reader.small()?);
    let (first_record, records) = (reader.position()?.get(), reader.small()?);
    let receipt = Receipt { start, first_record, bytes, records };
    Ok((id, ProducerState { epoch, last_seq, used, receipt }))
}

/// Offsets of the bytes that a group keeps of a stream, by its row in a checkpoint: for its readers and its forks, without
/// those that another stream stores. `None` if the bytes are no row.
#[must_use]
pub fn kept_bytes(stream: StreamId, row: &[u8]) -> Option<Range<ByteOffset>> {
    let record = decode_row(stream, row).ok()?;
    let fork = record.extra.as_deref().and_then(|extra| extra.fork.as_deref());
    let first_own = fork.map_or(ByteOffset::ZERO, |fork| fork.at);
    Some(record.floor().max(first_own).min(record.tail)..record.tail)
}

fn decode_row(id: StreamId, bytes: &[u8]) -> Result<StreamRecord, DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.version(ROW_VERSION)?;
    let flags = reader.flags(ROW_CLOSED | ROW_DELETED)?;
    let layout = reader.layout()?;
    let path = reader.path()?;
    let content_type = reader.content_type()?;
    let lifetime = reader.lifetime()?.into();
    let head = reader.position()?;
    let length = reader.position()?.get();
    if length > POSITION_MAX - head.get() {
        return reader.error();
    }
    let next_record = reader.count()?;
    let created_at = reader.time()?;
    let written_at = created_at.plus_ms(reader.number()?);
    let (known_type, other_type) = content_type.into_parts();
    let mut record = StreamRecord {
        id,
        path,
        known_type,
        other_type,
        layout,
        lifetime,
        head,
        tail: head.advance(length),
        next_record,
        created_at: created_at.into(),
        written_at: written_at.into(),
        closed: flags & ROW_CLOSED != 0,
        deleted: flags & ROW_DELETED != 0,
        noted: Noted::NEVER,
        copied_in: 0,
        extra: None,
    };
    reader.tags(|number, field| decode_tag(&mut record, number, field))?;
    let is_possible = record.first_record() <= record.next_record;
    if is_possible { Ok(record) } else { Err(DecodeError { position: bytes.len(), newer: None }) }
}

fn decode_tag(
    record: &mut StreamRecord,
    number: u64,
    field: &mut Reader<'_>,
) -> Result<Tag, DecodeError> {
    match number {
        row_tag::STREAM_SEQ => record.extra_mut().stream_seq = Some(field.text()?.into()),
        row_tag::PRODUCERS => {
            for _ in 0..field.number()? {
                let (id, state) = decode_producer(field)?;
                record.extra_mut().producers.restore(id, state);
            }
        }
        row_tag::FORK => record.extra_mut().fork = Some(Box::new(field.fork()?)),
        row_tag::PINS => {
            for _ in 0..field.number()? {
                let Pin { token, from, fork_path } = field.pin()?;
                record.extra_mut().pins.add(token, Pinned { from, fork_path });
            }
        }
        row_tag::LOGGED_USE => record.note_logged_use(field.time()?),
        row_tag::RETENTION => record.extra_mut().retention = field.retention()?,
        row_tag::RECORD_TIMES => record.extra_mut().mark = Some(field.number()?),
        row_tag::HEAD_RECORD => record.extra_mut().head_record = field.count()?,
        _ => return Ok(Tag::Unknown),
    }
    Ok(Tag::Read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Append, AppendType, Command, ContentType, Create, Layout, Lifetime, LoggedCommand,
        PinToken, Producer, command_codec::tests::fork_point,
    };
    use model::{GroupId, StreamKey, StreamPath, Term, Timestamp};

    const AT: Timestamp = Timestamp::new(1000);

    fn apply(state: &mut GroupState, stream: u64, command: Command, data_bytes: u64) {
        let subject = command.subject(Some(StreamId::new(stream)));
        state.apply(state.applied().next(), AT, LoggedCommand { subject, command, data_bytes });
    }

    fn create(path: &str) -> Create {
        Create {
            path: StreamPath::new(path).unwrap(),
            content_type: ContentType::new("text/plain"),
            layout: Layout::Bytes,
            lifetime: Lifetime::Ttl { seconds: 300 },
            close: false,
            record_count: 0,
            retention: crate::Retention::default(),
            record_time: None,
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
        let content_type = AppendType::StreamsOwn;
        let append = Append { content_type, close: true, record_count: 2, ..append };
        apply(&mut state, 1, Command::Append(append), 300);
        apply(
            &mut state,
            1,
            Command::Trim(crate::Trim { to: ByteOffset::new(5), first_record: 1 }),
            0,
        );
        let token = PinToken { fork_group: GroupId::new(1), term: Term::new(9), nonce: 7 };
        let pin = Pin { token, from: ByteOffset::new(5), fork_path: StreamPath::new("f").unwrap() };
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
    const GOLDEN_HEADER: &str = "01030e010209080706050403020103ac02040701b42409010808";
    const GOLDEN_ROWS: [(u64, &str); 2] = [
        (
            1,
            "01030001610201ac0205b10206e8070001020173020c010170010005010aac0204020321037372630109\
             0103ac02020908070605040302010a000004014600010a0403ac02040e01010907000000000000000501\
             660702e807080101",
        ),
        (3, "01000005706c61696e0201ac02000000e80700"),
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
        assert_eq!(hex(&header), format!("010202ac02{}", &GOLDEN_HEADER[2..]));
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
        assert_eq!(
            restored.streams.get(StreamId::new(1)).map(|record| record.head),
            Some(ByteOffset::new(5))
        );
        assert_eq!(restored.floor_or_lost(StreamId::new(9)), Some(ByteOffset::ZERO));
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
