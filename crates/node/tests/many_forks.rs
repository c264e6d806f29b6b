//! A source with very many forks: one more, or one less, costs as much as with few.

use env::{Clock, RealClock};
use model::{ByteOffset, GroupId, StreamId, StreamPath, Term, Timestamp};
use stream::{
    Command, ContentType, Create, GroupState, Lifetime, LoggedCommand, Outcome, Pin, PinToken,
};

const SOURCE: StreamId = StreamId::new(1);

/// Forks that the source has when it has many.
const MANY: u64 = 200_000;

/// How much longer a fork may take then. With a list of forks it takes some 400 times as long.
const FACTOR_MAX: u64 = 25;

fn apply(state: &mut GroupState, command: Command) -> Outcome {
    let subject = command.subject(Some(SOURCE));
    let logged = LoggedCommand { subject, command, data_bytes: 0 };
    state.apply(state.applied().next(), Timestamp::new(1000), logged).outcome
}

fn token(number: u64) -> PinToken {
    // Nonces are random, so their order is none.
    PinToken {
        fork_group: GroupId::new(3),
        term: Term::new(1),
        nonce: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

fn pin(state: &mut GroupState, number: u64) {
    let pin = Pin {
        token: token(number),
        from: ByteOffset::ZERO,
        fork_path: StreamPath::new("fork").unwrap(),
    };
    let pinned = apply(state, Command::Pin(pin));
    assert!(matches!(pinned, Outcome::Pinned { .. }), "{pinned:?}");
}

fn source() -> GroupState {
    let mut state = GroupState::new(GroupId::new(0));
    let create = Create {
        path: StreamPath::new("source").unwrap(),
        content_type: ContentType::new("text/plain"),
        layout: stream::Layout::Bytes,
        lifetime: Lifetime::Forever,
        close: false,
        record_count: 0,
        retention: stream::Retention::default(),
        record_time: None,
        fork: None,
    };
    apply(&mut state, Command::Create(Box::new(create)));
    state
}

/// The shortest time, of several, in which some references are taken and given back.
fn duration_ns(state: &mut GroupState) -> u64 {
    let clock = RealClock::new();
    let round = |round: u64, state: &mut GroupState| {
        let numbers = MANY + round * 1000..MANY + (round + 1) * 1000;
        let began = clock.now_monotonic();
        numbers.clone().for_each(|number| pin(state, number));
        numbers.for_each(|number| _ = apply(state, Command::Unpin(token(number))));
        clock.now_monotonic().get() - began.get()
    };
    (0..5).map(|number| round(number, state)).min().unwrap()
}

#[test]
fn a_fork_costs_as_much_beside_many_as_beside_few() {
    let mut state = source();
    let beside_few = duration_ns(&mut state);
    (0..MANY).for_each(|number| pin(&mut state, number));
    let beside_many = duration_ns(&mut state);
    assert!(beside_many <= beside_few * FACTOR_MAX, "{beside_few} and {beside_many} ns");
    assert_eq!(state.pins().len() as u64, MANY);
}
