//! Checkpoints from any bytes: taken or refused, and what is taken can be used.

use super::command::examples;
use crate::input::Input;
use model::{ByteOffset, EntryIndex, GroupId, StreamId, Timestamp};
use stream::{Append, AppendType, Command, ContentType, GroupState, LoggedCommand, Producer, Trim};

const GROUP: GroupId = GroupId::new(3);
const APPLIED: EntryIndex = EntryIndex::new(200);

/// Input: the group's header (a length byte and as many bytes), then rows: stream (1), bytes of
/// the row (a length byte and as many bytes).
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut state = GroupState::new(GROUP);
    if state.restore_header(APPLIED, input.piece()).is_err() {
        // Rows are restored without a header that is lost.
        state = GroupState::new(GROUP);
        state.restore_header(APPLIED, &GroupState::new(GROUP).encode_header()).expect("ours");
    }
    let mut streams = Vec::new();
    while !input.is_empty() {
        let stream = StreamId::new(input.byte().into());
        let taken = state.restore_row(stream, input.piece()).is_ok();
        streams.extend(taken.then_some(stream));
    }
    assert_eq!(state.stream_count(), streams.len());
    check_copy(&state);
    for stream in streams {
        use_stream(&mut state, stream);
    }
    check_copy(&state);
}

fn check_copy(state: &GroupState) {
    let mut copy = GroupState::new(GROUP);
    copy.restore_header(state.applied(), &state.encode_header()).expect("ours");
    for row in state.encode_rows() {
        copy.restore_row(row.stream, &row.bytes).expect("ours");
    }
    assert_eq!(copy.encode_rows(), state.encode_rows());
    assert_eq!(copy.encode_header(), state.encode_header());
}

/// Everything that may be asked of a stream and done to it.
fn use_stream(state: &mut GroupState, stream: StreamId) {
    let now = Timestamp::new(1_700_000_000_000);
    let info = state.info(stream);
    let content_type = info.map(|info| {
        assert!(info.head <= info.tail);
        let _ = protocol::offset::render(info.tail);
        info.content_type
    });
    let content_type = content_type.unwrap_or_else(|| ContentType::new("a/b"));
    let _ = (state.floor(stream), state.is_due(stream, now));
    state.touch(stream, now);
    let content_type = AppendType::Named(content_type);
    let append = Append { content_type, record_count: 1, ..Append::default() };
    let producer = Producer { id: "p".into(), epoch: 1, seq: 1 };
    let with_producer = Append { producer: Some(producer), ..append.clone() };
    let commands = [
        Command::Append(append),
        Command::Append(with_producer),
        Command::Touch(now),
        Command::Trim(Trim { to: ByteOffset::new(u64::MAX), first_record: u64::MAX }),
        Command::Create(Box::new(create())),
        Command::Delete,
    ];
    for command in commands {
        let data_bytes = if matches!(command, Command::Append(_)) { 1 << 30 } else { 0 };
        let subject = command.subject(Some(stream));
        let entry = LoggedCommand { subject, command, data_bytes };
        state.apply(state.applied().next(), now, entry);
    }
}

fn create() -> stream::Create {
    match examples().swap_remove(0) {
        Command::Create(create) => *create,
        other => panic!("the first example is a creation: {other:?}"),
    }
}

/// Checkpoints of a small group at several moments.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut state = GroupState::new(GROUP);
    let mut seeds = Vec::new();
    for (number, command) in (0..).zip(examples()) {
        let stream = StreamId::new(1 + u64::from(number == 4));
        let subject = command.subject(Some(stream));
        let entry = LoggedCommand { subject, command, data_bytes: 10 };
        state.apply(state.applied().next(), Timestamp::new(7000), entry);
        if number == 9 {
            state.mark_damaged(StreamId::new(9), model::PathHash::new(99));
            state.lose(StreamId::new(8));
        }
        let piece = |bytes: &[u8]| {
            let length = u8::try_from(bytes.len()).expect("examples are short");
            [&[length], bytes].concat()
        };
        let mut seed = piece(&state.encode_header());
        for row in state.encode_rows() {
            seed.push(u8::try_from(row.stream.get()).expect("few streams"));
            seed.extend_from_slice(&piece(&row.bytes));
        }
        seeds.push(seed);
    }
    seeds
}
