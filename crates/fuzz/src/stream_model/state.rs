//! Any commands that decode can be applied, and a state comes back from its checkpoint.

use super::command::examples;
use crate::input::Input;
use model::{EntryIndex, GroupId, StreamId, Timestamp};
use stream::{Applied, Command, GroupState, LoggedCommand};

const GROUP: GroupId = GroupId::new(3);
const COMMANDS_MAX: usize = 64;

/// Input, for each command: kind (1), stream (1), time (1), bytes of data (2), the command (a
/// length byte and as many bytes). Kind 0 takes a checkpoint: from then on a state that was
/// restored from it must do the same as the first one.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut states = vec![GroupState::new(GROUP)];
    for _ in 0..COMMANDS_MAX {
        if input.is_empty() {
            break;
        }
        let kind = input.byte();
        if kind == 0 {
            states.truncate(1);
            states.push(restored(&states[0]));
            continue;
        }
        let stream = StreamId::new(input.byte().into());
        let at = Timestamp::new(u64::from(input.byte()) * 1000);
        let data_bytes = u64::from(input.short());
        let Ok(command) = Command::decode(kind, input.piece()) else { continue };
        let subject = command.subject(Some(stream));
        let entry = LoggedCommand { subject, command, data_bytes };
        apply_to_all(&mut states, at, (stream, &entry));
    }
    let last = restored(&states[0]);
    assert_eq!(last.encode_header(), states[0].encode_header());
}

fn apply_to_all(
    states: &mut [GroupState],
    at: Timestamp,
    (stream, entry): (StreamId, &LoggedCommand),
) {
    let mut first: Option<Applied> = None;
    for state in states {
        let applied = apply(state, at, (stream, entry.clone()));
        if let Some(first) = &first {
            assert_eq!(applied, *first, "a restored state does the same");
        }
        first = Some(applied);
    }
}

fn apply(
    state: &mut GroupState,
    at: Timestamp,
    (stream, entry): (StreamId, LoggedCommand),
) -> Applied {
    let before = state.info(stream);
    let foretold = match &entry.command {
        Command::Append(append) => state.check_append(stream, append, entry.data_bytes),
        _ => None,
    };
    let is_data = entry.data_bytes > 0;
    let applied = state.apply(state.applied().next(), at, entry);
    if let Some(foretold) = foretold {
        assert_eq!(applied.outcome, foretold, "check says beforehand what apply answers");
        assert!(applied.placement.is_none() && applied.visible.is_none());
    }
    assert!(applied.placement.is_none() || is_data, "only data is placed");
    if let (Some(before), Some(after)) = (before, state.info(stream)) {
        assert!(before.tail <= after.tail && before.head <= after.head);
        assert!(after.head <= after.tail, "head <= tail");
        assert!(!before.closed || (after.closed && before.tail == after.tail));
    }
    applied
}

/// The state that a checkpoint of `state` brings back; it writes the same checkpoint.
fn restored(state: &GroupState) -> GroupState {
    let mut back = GroupState::new(GROUP);
    let header = state.encode_header();
    back.restore_header(state.applied(), &header).expect("a header of ours");
    for row in state.encode_rows() {
        back.restore_row(row.stream, &row.bytes).expect("a row of ours");
    }
    assert_eq!(back.encode_rows(), state.encode_rows());
    assert_eq!(back.applied(), state.applied());
    back
}

/// One life of a group with everything in it, and each command alone after a creation.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let put = |out: &mut Vec<u8>, command: &Command, stream: u8| {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let length = u8::try_from(bytes.len()).expect("examples are short");
        out.extend_from_slice(&[command.kind() as u8, stream, 7, 10, 0, length]);
        out.extend_from_slice(&bytes);
    };
    let mut life = Vec::new();
    for (number, command) in (0..).zip(examples()) {
        put(&mut life, &command, 1 + u8::from(number % 5 == 4));
        if number == 5 {
            life.push(0);
        }
    }
    let mut seeds = vec![life];
    let first = &examples()[0];
    for command in examples().iter().skip(1) {
        let mut seed = Vec::new();
        put(&mut seed, first, 0);
        put(&mut seed, command, 1);
        seed.push(0);
        put(&mut seed, command, 1);
        seeds.push(seed);
    }
    debug_assert_eq!(GroupState::new(GROUP).applied(), EntryIndex::new(0));
    seeds
}
