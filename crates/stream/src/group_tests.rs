//! The state machine's rules, one behaviour each.

use crate::{
    Accepted, Append, AppendType, Applied, Command, ConfigField, ContentType, Create, CreateCheck,
    CreateRequest, Effect, ForkPoint, GroupState, Layout, Lifetime, LoggedCommand, Outcome, Pin,
    PinToken, Producer, Refusal,
};
use model::{ByteOffset, EntryIndex, GroupId, PathHash, StreamId, StreamPath, Term, Timestamp};

/// No entry makes a stream with this id.
const NO_STREAM: StreamId = StreamId::new(0);

struct Machine {
    state: GroupState,
    now: Timestamp,
}

fn path(text: &str) -> StreamPath {
    StreamPath::new(text).unwrap()
}

fn text() -> ContentType {
    ContentType::new("text/plain")
}

fn append() -> Append {
    Append { content_type: AppendType::Named(text()), record_count: 1, ..Append::default() }
}

fn by_producer(epoch: u64, seq: u64) -> Append {
    Append { producer: Some(Producer { id: "p".into(), epoch, seq }), ..append() }
}

fn create(name: &str) -> Create {
    Create {
        path: path(name),
        content_type: text(),
        layout: Layout::Bytes,
        lifetime: Lifetime::Forever,
        close: false,
        record_count: 0,
        retention: crate::Retention::default(),
        record_time: None,
        fork: None,
    }
}

/// What a client asks for who is to get `create`.
fn asked(create: &Create) -> CreateRequest {
    CreateRequest {
        path: create.path.clone(),
        content_type: Some(create.content_type.clone()),
        lifetime: create.fork.as_ref().map_or(create.lifetime, |fork| fork.lifetime),
        close: create.close,
        fork: create.fork.as_ref().map(|fork| fork.request.clone()),
        retention: create.retention,
        record_time: create.record_time,
        record_count: create.record_count,
    }
}

impl Machine {
    fn new() -> Self {
        Self { state: GroupState::new(GroupId::new(0)), now: Timestamp::new(1_000_000) }
    }

    fn apply(&mut self, stream: StreamId, command: Command, data_bytes: u64) -> Applied {
        let index = self.state.applied().next();
        let subject = command.subject(Some(stream));
        self.state.apply(index, self.now, LoggedCommand { subject, command, data_bytes })
    }

    fn create(&mut self, create: Create) -> StreamId {
        match self.apply(NO_STREAM, Command::Create(Box::new(create)), 0).outcome {
            Outcome::Created(info) => info.stream,
            other => panic!("not created: {other:?}"),
        }
    }

    fn append(&mut self, stream: StreamId, append: Append, data_bytes: u64) -> Outcome {
        self.apply(stream, Command::Append(append), data_bytes).outcome
    }

    fn close(&mut self, stream: StreamId) -> Outcome {
        self.append(stream, Append { close: true, ..Append::default() }, 0)
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    /// Streams whose lifetime has run out, after so many looks.
    fn expired(&mut self, mut looks_left: usize) -> Vec<StreamId> {
        let next = || self.state.poll_expired(self.now, &mut looks_left);
        std::iter::from_fn(next).collect()
    }

    fn resolve(&self, name: &str) -> Result<StreamId, Refusal> {
        self.state.resolve_id(&path(name), self.now)
    }

    fn fork(&mut self, name: &str, source: StreamId, nonce: u64) -> StreamId {
        let token = PinToken { fork_group: GroupId::new(0), term: Term::new(1), nonce };
        let pin = Pin { token, from: ByteOffset::ZERO, fork_path: path(name) };
        let pinned = self.apply(source, Command::Pin(pin), 0).outcome;
        assert!(matches!(pinned, Outcome::Pinned { .. }), "{pinned:?}");
        let fork = ForkPoint { token, ..crate::command_codec::tests::fork_point() };
        let fork = ForkPoint { source: self.key(source), ..fork };
        self.create(Create { fork: Some(Box::new(fork)), ..create(name) })
    }

    fn key(&self, stream: StreamId) -> model::StreamKey {
        model::StreamKey { group: self.state.group(), stream }
    }
}

fn accepted(outcome: Outcome) -> Accepted {
    match outcome {
        Outcome::Appended(accepted) => accepted,
        other => panic!("not accepted: {other:?}"),
    }
}

#[test]
fn appends_follow_one_another() {
    let mut machine = Machine::new();
    let stream = machine.create(create("a"));
    assert_eq!(accepted(machine.append(stream, append(), 5)).tail, ByteOffset::new(5));
    let second = machine.apply(stream, Command::Append(append()), 3);
    assert_eq!(second.placement.unwrap().start, ByteOffset::new(5));
    assert_eq!(second.visible.unwrap().tail, ByteOffset::new(8));
}

#[test]
fn creating_again_is_idempotent_only_with_the_same_configuration() {
    let mut machine = Machine::new();
    machine.create(create("a"));
    let mut again =
        |create: Create| machine.apply(NO_STREAM, Command::Create(Box::new(create)), 0).outcome;
    assert!(matches!(again(create("a")), Outcome::Existed(_)));
    let config = |differs| Outcome::Refused(Refusal::Config { differs });
    let json = Create { content_type: ContentType::new("application/json"), ..create("a") };
    assert_eq!(again(json), config(ConfigField::ContentType));
    let closed = Create { close: true, ..create("a") };
    assert_eq!(again(closed), config(ConfigField::Closed));
    let short = Create { lifetime: Lifetime::Ttl { seconds: 1 }, ..create("a") };
    assert_eq!(again(short), config(ConfigField::Lifetime));
}

#[test]
fn a_closed_stream_takes_no_data_but_repeats_and_closes_are_answered() {
    let mut machine = Machine::new();
    let stream = machine.create(create("a"));
    let closing = Append { close: true, ..by_producer(0, 0) };
    assert!(accepted(machine.append(stream, closing.clone(), 4)).closed);
    let repeat = accepted(machine.append(stream, closing, 9));
    assert!(repeat.duplicate && repeat.closed && repeat.tail == ByteOffset::new(4));
    assert!(accepted(machine.close(stream)).duplicate);
    let refused = Outcome::Refused(Refusal::Closed { tail: ByteOffset::new(4) });
    assert_eq!(machine.append(stream, append(), 1), refused);
    assert_eq!(machine.append(stream, by_producer(0, 1), 1), refused);
}

#[test]
fn a_fenced_producer_learns_of_it_even_on_a_closed_stream() {
    let mut machine = Machine::new();
    let stream = machine.create(create("a"));
    machine.append(stream, by_producer(1, 0), 1);
    machine.close(stream);
    let refused = Outcome::Refused(Refusal::StaleEpoch { current: 1 });
    assert_eq!(machine.append(stream, by_producer(0, 1), 1), refused);
}

#[test]
fn closed_comes_before_content_type_before_stream_seq() {
    let mut machine = Machine::new();
    let stream = machine.create(create("a"));
    let seq = |seq: &str| Append { stream_seq: Some(seq.into()), ..append() };
    machine.append(stream, seq("b"), 1);
    let wrong = Append { content_type: AppendType::Named(ContentType::new("a/b")), ..seq("a") };
    let expected = Outcome::Refused(Refusal::ContentType { expected: text() });
    assert_eq!(machine.append(stream, wrong.clone(), 1), expected);
    assert!(matches!(
        machine.append(stream, seq("a"), 1),
        Outcome::Refused(Refusal::StreamSeq { .. })
    ));
    machine.close(stream);
    assert!(matches!(machine.append(stream, wrong, 1), Outcome::Refused(Refusal::Closed { .. })));
}

#[test]
fn a_refused_command_changes_nothing() {
    let mut machine = Machine::new();
    let stream = machine.create(create("a"));
    machine.append(stream, by_producer(0, 0), 1);
    let before = machine.state.encode_rows();
    machine.append(stream, by_producer(0, 5), 1);
    machine.append(stream, Append { content_type: AppendType::Unnamed, ..append() }, 1);
    assert_eq!(machine.state.encode_rows(), before);
}

#[test]
fn a_sliding_lifetime_starts_again_with_every_use() {
    let mut machine = Machine::new();
    let lifetime = Lifetime::Ttl { seconds: 2 };
    let stream = machine.create(Create { lifetime, ..create("a") });
    machine.wait_ms(1500);
    machine.state.touch(stream, machine.now);
    machine.wait_ms(1500);
    assert_eq!(machine.resolve("a"), Ok(stream));
    machine.wait_ms(500);
    assert_eq!(machine.resolve("a"), Err(Refusal::NotFound));
    assert_eq!(machine.expired(10), vec![stream]);
    assert_eq!(machine.expired(10), vec![], "asked once a second");
    assert_eq!(machine.state.expired_holder(&path("a"), machine.now), Some(stream));
}

#[test]
fn a_look_that_finds_a_stream_in_use_counts() {
    let mut machine = Machine::new();
    let lifetime = Lifetime::Ttl { seconds: 2 };
    let streams = ["a", "b", "c"].map(|name| machine.create(Create { lifetime, ..create(name) }));
    machine.wait_ms(1500);
    machine.state.touch(streams[0], machine.now);
    machine.wait_ms(500);
    assert_eq!(machine.expired(1), [], "the first was used");
    assert_eq!(machine.expired(1), [streams[1]]);
    assert_eq!(machine.expired(9), [streams[2]]);
    machine.wait_ms(1500);
    let [first, second, third] = streams;
    assert_eq!(machine.expired(9), [second, third, first], "nobody expired them");
}

#[test]
fn a_deleted_stream_is_kept_for_no_deadline() {
    let mut machine = Machine::new();
    let lifetime = Lifetime::Ttl { seconds: 1 << 30 };
    for _ in 0..1000 {
        let stream = machine.create(Create { lifetime, ..create("a") });
        machine.apply(stream, Command::Delete, 0);
    }
    assert_eq!(machine.state.expiries.len(), 0);
    machine.state.check();
}

fn restored(state: &GroupState) -> GroupState {
    let mut restored = GroupState::new(GroupId::new(0));
    restored.restore_header(EntryIndex::new(1), &state.encode_header()).unwrap();
    for row in state.encode_rows() {
        restored.restore_row(row.stream, &row.bytes).unwrap();
    }
    restored
}

#[test]
fn a_use_after_a_restart_is_logged_again() {
    let mut machine = Machine::new();
    let lifetime = Lifetime::Ttl { seconds: 80 };
    let stream = machine.create(Create { lifetime, ..create("a") });
    let mut restored = restored(&machine.state);
    restored.forgive_lost_touches();
    assert!(restored.touch(stream, machine.now.plus_ms(30_000)));
    assert!(restored.touch(stream, machine.now.plus_ms(60_000)), "until the log has it");
}

#[test]
fn uses_are_logged_rarely_and_made_up_for_after_a_crash() {
    let mut machine = Machine::new();
    let lifetime = Lifetime::Ttl { seconds: 80 };
    let stream = machine.create(Create { lifetime, ..create("a") });
    machine.wait_ms(9_000);
    assert!(!machine.state.touch(stream, machine.now), "not worth an entry yet");
    machine.wait_ms(1_000);
    assert!(machine.state.touch(stream, machine.now));
    machine.apply(stream, Command::Touch(machine.now), 0);
    machine.wait_ms(9_999);
    assert!(!machine.state.touch(stream, machine.now));

    let mut restored = restored(&machine.state);
    restored.forgive_lost_touches();
    let promised = machine.now.plus_ms(80_000 - 1);
    assert_eq!(restored.resolve_id(&path("a"), promised), Ok(stream));
}

#[test]
fn a_source_stays_behind_for_its_forks_and_goes_with_the_last() {
    let mut machine = Machine::new();
    let source = machine.create(create("source"));
    let fork = machine.fork("fork", source, 1);
    assert_eq!(machine.apply(source, Command::Delete, 0).effect, None);
    assert_eq!(machine.resolve("source"), Err(Refusal::Gone));
    let blocked = machine.state.check_create(&asked(&create("source")), machine.now);
    assert_eq!(blocked, CreateCheck::Answered(Outcome::Refused(Refusal::PathBlocked)));

    let deleted = machine.apply(fork, Command::Delete, 0);
    let token = PinToken { fork_group: GroupId::new(0), term: Term::new(1), nonce: 1 };
    let unpin = Effect::ForgetFork { stream: fork, source: machine.key(source), token };
    assert_eq!(deleted.effect, Some(unpin));
    assert_eq!(machine.state.pending_unpins().count(), 1);

    let unpinned = machine.apply(source, Command::Unpin(token), 0);
    assert_eq!(unpinned.effect, Some(Effect::Forget(source)));
    assert_eq!(machine.resolve("source"), Err(Refusal::NotFound));
    machine.apply(fork, Command::UnpinDone(token), 0);
    assert_eq!(machine.state.pending_unpins().count(), 0);
}

#[test]
fn a_row_tells_which_bytes_are_kept_for_readers_and_for_forks() {
    let mut machine = Machine::new();
    let source = machine.create(create("source"));
    machine.append(source, append(), 50);
    let fork = machine.fork("fork", source, 1);
    let at = machine.state.info(fork).unwrap().tail.get();
    assert!(at > 0, "it shares bytes of its source");
    machine.append(fork, append(), 7);
    let kept = |machine: &Machine, stream| {
        let rows = machine.state.encode_rows();
        let row = rows.iter().find(|row| row.stream == stream).unwrap();
        let kept = crate::kept_bytes(stream, &row.bytes).unwrap();
        (kept.start.get(), kept.end.get())
    };
    assert_eq!(kept(&machine, fork), (at, at + 7), "what it shares is its source's");
    assert_eq!(kept(&machine, source), (0, 50));
    let upto = crate::Trim { to: ByteOffset::new(20), first_record: 0 };
    machine.apply(source, Command::Trim(upto), 0);
    assert_eq!(kept(&machine, source), (0, 50), "its fork needs them");
    machine.apply(source, Command::Delete, 0);
    assert_eq!(kept(&machine, source), (0, 50));
    assert_eq!(crate::kept_bytes(source, b"no row"), None);
}

#[test]
fn a_deleted_source_gives_no_more_references() {
    let mut machine = Machine::new();
    let source = machine.create(create("source"));
    machine.fork("fork", source, 1);
    machine.apply(source, Command::Delete, 0);
    let token = PinToken { fork_group: GroupId::new(0), term: Term::new(1), nonce: 2 };
    let pin = Command::Pin(Pin { token, from: ByteOffset::ZERO, fork_path: path("other") });
    let refused = Outcome::Refused(Refusal::ForkSourceGone);
    assert_eq!(machine.apply(source, pin, 0).outcome, refused);
}

#[test]
fn a_path_can_be_used_again_by_a_new_stream_after_deletion() {
    let mut machine = Machine::new();
    let old = machine.create(create("a"));
    assert_eq!(machine.apply(old, Command::Delete, 0).effect, Some(Effect::Forget(old)));
    let new = machine.create(create("a"));
    assert_ne!(old, new);
    assert_eq!(machine.append(old, append(), 1), Outcome::Refused(Refusal::NotFound));
}

#[test]
fn a_checkpoint_restores_the_same_state() {
    let mut machine = Machine::new();
    let source = machine.create(create("source"));
    machine.fork("fork", source, 1);
    let gone = machine.fork("gone", source, 2);
    machine.append(source, by_producer(3, 0), 5);
    let seq = Append { stream_seq: Some("x".into()), ..append() };
    machine.append(source, seq, 5);
    machine.apply(gone, Command::Delete, 0);
    machine.state.mark_damaged(StreamId::new(99), PathHash::new(7));

    let mut restored = GroupState::new(GroupId::new(0));
    let header = machine.state.encode_header();
    restored.restore_header(machine.state.applied(), &header).unwrap();
    for row in machine.state.encode_rows() {
        restored.restore_row(row.stream, &row.bytes).unwrap();
    }
    assert_eq!(restored.encode_header(), header);
    assert_eq!(restored.encode_rows(), machine.state.encode_rows());
    assert_eq!(restored.pending_unpins().count(), 1);
}

#[test]
fn a_stream_that_lost_an_entry_answers_damaged_until_it_is_deleted() {
    let mut machine = Machine::new();
    let hit = machine.create(create("hit"));
    let other = machine.create(create("other"));
    machine.state.lose(hit);
    assert_eq!(machine.resolve("hit"), Err(Refusal::Damaged));
    assert_eq!(machine.resolve("other"), Ok(other));
    assert_eq!(machine.state.damaged_stream(&path("hit")), Some(hit));
    machine.apply(hit, Command::Delete, 0);
    assert_eq!(machine.resolve("hit"), Err(Refusal::NotFound));
}

#[test]
fn the_bytes_of_a_damaged_stream_outlive_it_because_forks_may_need_them() {
    let mut machine = Machine::new();
    let hit = machine.create(create("hit"));
    machine.state.lose(hit);
    assert_eq!(machine.apply(hit, Command::Delete, 0).effect, None);
    assert_eq!(machine.state.floor_or_lost(hit), Some(ByteOffset::ZERO));

    let without_record = StreamId::new(99);
    machine.state.mark_damaged(without_record, path("gone").hash());
    assert_eq!(machine.apply(without_record, Command::Delete, 0).effect, None);
    assert_eq!(machine.resolve("gone"), Err(Refusal::NotFound));
    assert_eq!(machine.state.floor_or_lost(without_record), Some(ByteOffset::ZERO));
}

#[test]
fn where_an_unknown_stream_was_lost_nothing_unknown_is_taken_for_missing() {
    let mut machine = Machine::new();
    let known = machine.create(create("known"));
    machine.state.lose_one();
    assert_eq!(machine.resolve("known"), Ok(known));
    assert_eq!(machine.resolve("never"), Err(Refusal::Damaged));
    assert_eq!(machine.state.floor_or_lost(StreamId::new(7)), Some(ByteOffset::ZERO));
    let new = machine.create(create("new"));
    assert_eq!(machine.resolve("new"), Ok(new));
}

#[test]
fn nothing_is_placed_behind_a_lost_append() {
    let mut machine = Machine::new();
    let (hit, other) = (machine.create(create("hit")), machine.create(create("other")));
    machine.state.lose(hit);
    let applied = machine.apply(hit, Command::Append(append()), 5);
    assert_eq!((applied.outcome, applied.placement), (Outcome::Refused(Refusal::Damaged), None));
    assert!(machine.apply(other, Command::Append(append()), 5).placement.is_some());

    machine.state.lose_up_to(machine.state.applied());
    assert!(machine.apply(other, Command::Append(append()), 5).placement.is_none());
    let new = machine.create(create("new"));
    assert!(machine.apply(new, Command::Append(append()), 5).placement.is_some());
}

#[test]
fn a_deleted_stream_that_lost_an_entry_makes_way_for_the_one_made_at_its_path() {
    let mut machine = Machine::new();
    let old = machine.create(create("path"));
    machine.fork("fork", old, 1);
    machine.apply(old, Command::Delete, 0);
    let blocked = machine.apply(NO_STREAM, Command::Create(Box::new(create("path"))), 0).outcome;
    assert_eq!(blocked, Outcome::Refused(Refusal::PathBlocked));
    // The entry that gave the reference back.
    machine.state.lose(old);
    let new = machine.create(create("path"));
    assert_eq!(machine.resolve("path"), Ok(new));
    assert_eq!(machine.state.floor_or_lost(old), Some(ByteOffset::ZERO), "its bytes stay");
}

#[test]
fn where_entries_that_nobody_can_name_were_lost_a_later_stream_gets_its_path() {
    let mut machine = Machine::new();
    let old = machine.create(create("path"));
    // The deletion of the old one among them.
    machine.state.lose_up_to(machine.state.applied());
    let new = machine.create(create("path"));
    assert_eq!(machine.resolve("path"), Ok(new));
    assert_eq!(machine.state.floor_or_lost(old), Some(ByteOffset::ZERO));
    assert_eq!(machine.state.floor_or_lost(StreamId::new(9)), None, "later ones are known");
}

#[test]
fn a_lost_creation_at_the_path_of_another_stream_was_refused() {
    let mut machine = Machine::new();
    let holder = machine.create(create("path"));
    let hash = path("path").hash();
    assert!(!machine.state.lose_creation(StreamId::new(7), hash));
    assert_eq!(machine.resolve("path"), Ok(holder));
    assert!(machine.state.lose_creation(StreamId::new(8), path("other").hash()));
    assert!(!machine.state.lose_creation(StreamId::new(9), path("other").hash()));
    assert_eq!(machine.state.damaged_stream(&path("other")), Some(StreamId::new(8)));
    assert_eq!(machine.state.floor_or_lost(StreamId::new(9)), Some(ByteOffset::ZERO));
}

#[test]
fn a_stream_that_lost_an_entry_does_not_expire() {
    let mut machine = Machine::new();
    let lifetime = Lifetime::Ttl { seconds: 1 };
    let hit = machine.create(Create { lifetime, ..create("hit") });
    machine.state.lose(hit);
    machine.wait_ms(60_000);
    assert_eq!(machine.expired(10), []);
    assert_eq!(machine.state.expired_holder(&path("hit"), machine.now), None);
    assert_eq!(machine.resolve("hit"), Err(Refusal::Damaged));
}

#[test]
fn a_creation_at_the_path_of_a_stream_that_lost_an_entry_gets_the_damage() {
    let mut machine = Machine::new();
    let hit = machine.create(create("hit"));
    machine.state.lose(hit);
    let again = create("hit");
    let damaged = Outcome::Refused(Refusal::Damaged);
    let answer = machine.state.check_create(&asked(&again), machine.now);
    assert_eq!(answer, CreateCheck::Answered(damaged.clone()));
    assert_eq!(machine.apply(NO_STREAM, Command::Create(Box::new(again)), 0).outcome, damaged);
    machine.apply(hit, Command::Delete, 0);
    machine.create(create("hit"));
}

#[test]
fn streams_that_were_lost_at_one_path_are_all_remembered() {
    let (first, second, hash) = (StreamId::new(3), StreamId::new(5), path("hit").hash());
    let is_kept = |state: &GroupState| {
        [first, second].map(|stream| state.floor_or_lost(stream)) == [Some(ByteOffset::ZERO); 2]
    };
    let mut state = GroupState::new(GroupId::new(0));
    state.mark_damaged(first, hash);
    let header = state.encode_header();
    state.mark_damaged(second, hash);
    assert!(is_kept(&state));

    let mut restored = GroupState::new(GroupId::new(0));
    restored.mark_damaged(second, hash);
    restored.restore_header(EntryIndex::new(9), &header).unwrap();
    assert!(is_kept(&restored));
    assert_eq!(restored.damaged_at(hash), Some(second), "the later one holds the path");
}

#[test]
fn a_refused_creation_may_have_been_carried_out_where_something_was_lost() {
    let mut state = GroupState::new(GroupId::new(0));
    state.note_refused_creation(EntryIndex::new(4));
    assert_eq!(state.floor_or_lost(StreamId::new(4)), None);
    state.mark_damaged(StreamId::new(1), PathHash::new(1));
    state.note_refused_creation(EntryIndex::new(4));
    assert_eq!(state.floor_or_lost(StreamId::new(4)), Some(ByteOffset::ZERO));
}

#[test]
fn a_reference_is_held_if_damage_may_have_taken_its_holder() {
    let token = PinToken { fork_group: GroupId::new(0), term: Term::new(1), nonce: 1 };
    let holds = |damage: fn(&mut GroupState)| {
        let mut state = GroupState::new(GroupId::new(0));
        damage(&mut state);
        state.holds_token(&path("fork"), token)
    };
    assert!(!holds(|_| {}));
    assert!(holds(|state| state.mark_damaged(StreamId::new(1), path("fork").hash())));
    assert!(!holds(|state| state.mark_damaged(StreamId::new(1), path("other").hash())));
    assert!(holds(|state| state.lose_unnamed(EntryIndex::new(1))), "a creation is lost");
    assert!(holds(|state| state.lose(StreamId::new(7))), "its record was deleted");
}

#[test]
fn after_a_loss_that_nobody_can_name_only_new_streams_are_trusted() {
    let mut machine = Machine::new();
    machine.create(create("old"));
    machine.state.lose_up_to(machine.state.applied());
    let new = machine.create(create("new"));
    assert_eq!(machine.resolve("old"), Err(Refusal::Damaged));
    assert_eq!(machine.resolve("never"), Err(Refusal::Damaged), "it may have been created");
    assert_eq!(machine.resolve("new"), Ok(new));
}

#[test]
#[should_panic(expected = "applies out of order")]
fn entries_apply_in_index_order() {
    let mut machine = Machine::new();
    let command = Command::Delete;
    let subject = command.subject(Some(StreamId::new(1)));
    let entry = LoggedCommand { subject, command, data_bytes: 0 };
    machine.state.apply(EntryIndex::new(2), machine.now, entry);
}

#[test]
fn streams_share_their_content_types_up_to_a_bound() {
    let mut state = GroupState::new(GroupId::new(0));
    let mut is_shared = |value: &str| {
        let first = state.share(ContentType::new(value));
        let second = state.share(ContentType::new(value));
        std::ptr::eq(first.as_str(), second.as_str())
    };
    let shared: Vec<bool> = (0..66).map(|number| is_shared(&format!("a/{number}"))).collect();
    assert_eq!(shared.iter().filter(|is_shared| **is_shared).count(), 64);
    assert!(is_shared("a/0") && !is_shared("a/64"));
}
