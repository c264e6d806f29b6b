//! What can happen to a group, as random values that shrink.
//!
//! A step names paths by number and producers' numbers by what they mean ("the next one"), so that
//! it stays sensible when the steps before it are taken away.

use proptest::prelude::*;
use thalweg_stream::{Keep, Retention, RetentionChange};

/// Few paths, so that they are taken, deleted and taken again.
pub(crate) const PATHS: [&str; 4] = ["a", "b", "a/b", "ü"];

/// Written in two ways, and one that differs.
pub(crate) const CONTENT_TYPES: [&str; 3] =
    ["text/plain", "Text/Plain ; charset=utf-8", "application/json"];

/// Compared bytewise, so that a longer one follows and capitals come first.
pub(crate) const SEQS: [&str; 5] = ["B", "a", "aa", "b", "ä"];

/// A producer's numbers, as they relate to what was accepted from it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbers {
    Next,
    Again { back: u64 },
    Gap { left_out: u64 },
    NewEpoch { seq: u64 },
    Raw { epoch: u64, seq: u64 },
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum LifetimeStep {
    Forever,
    Ttl(u64),
    /// Milliseconds from now.
    ExpiresIn(u64),
}

/// Which stream a step is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// The newest stream that had this path, even if it is deleted.
    Path(usize),
    /// Any that ever was, or none.
    Any(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct CreateStep {
    pub path: usize,
    pub content_type: usize,
    pub lifetime: LifetimeStep,
    pub close: bool,
    pub records: Vec<Vec<u8>>,
    pub retention: Retention,
    pub record_time: Option<i64>,
}

/// What an append wants of its stream, as it relates to how that is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    Record { back: u64 },
    State { back: u64, closed: bool, other: bool },
}

#[derive(Debug, Clone)]
pub(crate) struct AppendStep {
    pub target: Target,
    pub content_type: Option<usize>,
    pub seq: Option<usize>,
    pub producer: Option<(usize, Numbers)>,
    pub close: bool,
    pub records: Vec<Vec<u8>>,
    /// Milliseconds after its arrival.
    pub record_time: Option<i64>,
    pub wanted: Option<Wanted>,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create(CreateStep),
    /// The three entries of a fork: pin, create, and unpin if the creation was refused.
    Fork {
        source: usize,
        at: usize,
        create: CreateStep,
    },
    Append(AppendStep),
    /// The last append once more, as a client does that got no answer.
    Retry,
    Delete(Target),
    Expire(Target),
    Touch(Target),
    Trim(Target, u64),
    Change(Target, RetentionChange),
    /// A pin whose fork is never created.
    Pin(Target),
    /// Gives such a pin back, or one that nobody holds.
    Unpin(usize),
    /// Gives a deleted fork's pin back and forgets the pending unpin.
    Release(usize),
    /// Milliseconds forward, or back.
    Clock(i64),
    Poll {
        count_max: usize,
        expires: bool,
    },
    /// Encodes a checkpoint and continues from the decoded state.
    Restart {
        forgives: bool,
    },
}

fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let record = prop::collection::vec(any::<u8>(), 1..6);
    prop_oneof![
        1 => Just(vec![]),
        4 => prop::collection::vec(record, 1..3),
    ]
}

fn lifetime() -> impl Strategy<Value = LifetimeStep> {
    prop_oneof![
        3 => Just(LifetimeStep::Forever),
        2 => (0..4_u64).prop_map(LifetimeStep::Ttl),
        1 => Just(LifetimeStep::Ttl(600)),
        1 => (0..8000_u64).prop_map(LifetimeStep::ExpiresIn),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        8 => (0..PATHS.len()).prop_map(Target::Path),
        1 => any::<usize>().prop_map(Target::Any),
    ]
}

fn numbers() -> impl Strategy<Value = Numbers> {
    prop_oneof![
        5 => Just(Numbers::Next),
        2 => (0..3_u64).prop_map(|back| Numbers::Again { back }),
        1 => (1..3_u64).prop_map(|left_out| Numbers::Gap { left_out }),
        1 => (0..2_u64).prop_map(|seq| Numbers::NewEpoch { seq }),
        1 => (0..3_u64, 0..4_u64).prop_map(|(epoch, seq)| Numbers::Raw { epoch, seq }),
    ]
}

fn create() -> impl Strategy<Value = CreateStep> {
    let close = prop::bool::weighted(0.1);
    let kept = prop::option::weighted(0.2, change());
    let fields = (0..PATHS.len(), 0..CONTENT_TYPES.len(), lifetime(), close, records());
    let fields = (fields, kept, record_time());
    fields.prop_map(|((path, content_type, lifetime, close, records), kept, record_time)| {
        let kept = kept.unwrap_or_default();
        let retention = Retention {
            age_seconds: kept.age_seconds.unwrap_or_default(),
            bytes: kept.bytes.unwrap_or_default(),
            records: kept.records.unwrap_or_default(),
        };
        CreateStep { path, content_type, lifetime, close, records, retention, record_time }
    })
}

fn change() -> impl Strategy<Value = RetentionChange> {
    let keep = || {
        prop_oneof![
            Just(None),
            Just(Some(Keep::Default)),
            Just(Some(Keep::All)),
            (0..300_u64).prop_map(|amount| Some(Keep::AtLeast(amount))),
        ]
    };
    let fields = (keep(), keep(), keep());
    fields.prop_map(|(age_seconds, bytes, records)| RetentionChange { age_seconds, bytes, records })
}

fn record_time() -> impl Strategy<Value = Option<i64>> {
    prop::option::weighted(0.2, -3000..1000_i64)
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        (0..3_u64).prop_map(|back| Wanted::Record { back }),
        (0..3_u64, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(back, closed, other)| Wanted::State { back, closed, other }),
    ]
}

fn append() -> impl Strategy<Value = AppendStep> {
    let content_type = prop::option::weighted(0.9, 0..CONTENT_TYPES.len());
    let seq = prop::option::weighted(0.3, 0..SEQS.len());
    let producer = prop::option::weighted(0.5, (0..2_usize, numbers()));
    let close = prop::bool::weighted(0.1);
    let wanted = prop::option::weighted(0.2, wanted());
    let fields = (target(), content_type, seq, producer, close, records());
    let fields = (fields, record_time(), wanted);
    fields.prop_map(|(fields, record_time, wanted)| {
        let (target, content_type, seq, producer, close, records) = fields;
        // Without data there is nothing else to do than to close.
        let close = close || records.is_empty();
        AppendStep { target, content_type, seq, producer, close, records, record_time, wanted }
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let fork = (0..PATHS.len(), any::<usize>(), create());
    let poll = (1..4_usize, any::<bool>());
    prop_oneof![
        6 => create().prop_map(Step::Create),
        4 => fork.prop_map(|(source, at, create)| Step::Fork { source, at, create }),
        16 => append().prop_map(Step::Append),
        2 => Just(Step::Retry),
        3 => target().prop_map(Step::Delete),
        1 => target().prop_map(Step::Expire),
        3 => target().prop_map(Step::Touch),
        2 => (target(), 0..20_u64).prop_map(|(target, to)| Step::Trim(target, to)),
        1 => (target(), change()).prop_map(|(target, change)| Step::Change(target, change)),
        1 => target().prop_map(Step::Pin),
        1 => any::<usize>().prop_map(Step::Unpin),
        2 => any::<usize>().prop_map(Step::Release),
        5 => (-1000..3000_i64).prop_map(Step::Clock),
        3 => poll.prop_map(|(count_max, expires)| Step::Poll { count_max, expires }),
        2 => any::<bool>().prop_map(|forgives| Step::Restart { forgives }),
    ]
}
