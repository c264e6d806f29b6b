//! Commands come back from their bytes.

use crate::input::Input;
use model::{ByteOffset, GroupId, StreamId, StreamKey, StreamPath, Term, Timestamp};
use stream::{
    Append, AppendType, Change, Command, Condition, ContentType, Create, EndState, ForkPoint,
    ForkRequest, Keep, Layout, Lifetime, Lineage, Pin, PinToken, Producer, RecordTime, Retention,
    RetentionChange, Trim,
};

/// Input: kind (1), the command's bytes.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.byte();
    let bytes = input.rest();
    let Ok(command) = Command::decode(kind, bytes) else { return };
    assert_eq!(command.kind() as u8, kind);
    let mut encoded = Vec::new();
    command.encode(&mut encoded);
    assert!(encoded.len() <= bytes.len(), "no encoding is shorter than ours");
    let again = Command::decode(kind, &encoded).expect("what was encoded is a command");
    assert_eq!(again, command);
    // Content types compare by their media type alone; bytes compare all of them.
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(twice, encoded);
}

/// One command of each kind and shape.
#[must_use]
pub(super) fn examples() -> Vec<Command> {
    let path = |text: &str| StreamPath::new(text).expect("a path");
    let key = StreamKey { group: GroupId::new(3), stream: StreamId::new(1) };
    let token =
        PinToken { fork_group: GroupId::new(3), term: Term::new(1), nonce: 0x1122_3344_5566_7788 };
    let at = ByteOffset::new(300);
    let create = |name: &str| Create {
        path: path(name),
        content_type: ContentType::new("application/json"),
        layout: Layout::Json,
        lifetime: Lifetime::Ttl { seconds: 60 },
        close: false,
        record_count: 2,
        retention: Retention::DEFAULT,
        record_time: None,
        fork: None,
    };
    let fork = ForkPoint {
        request: ForkRequest { source: path("a"), offset: Some(at), sub_offset: 1 },
        source: key,
        token,
        at,
        head: ByteOffset::ZERO,
        head_record: 0,
        records: 4,
        mark: Some(70),
        lifetime: Lifetime::Forever,
        lineage: Lineage::of_fork(&Lineage::default(), key, (at, 4)),
    };
    let append = Append {
        content_type: AppendType::Named(ContentType::new("application/json")),
        record_count: 1,
        ..Append::default()
    };
    let producer = Producer { id: "p".into(), epoch: 1, seq: 0 };
    vec![
        Command::Create(Box::new(create("a"))),
        Command::Create(Box::new(Create { fork: Some(Box::new(fork)), ..create("b/c") })),
        Command::Append(append.clone()),
        Command::Append(Append { content_type: AppendType::StreamsOwn, ..append.clone() }),
        Command::Append(Append { close: true, ..Append::default() }),
        Command::Append(Append { stream_seq: Some("7".into()), ..append.clone() }),
        Command::Append(Append { producer: Some(producer), close: true, ..append.clone() }),
        Command::Touch(Timestamp::new(1_700_000_000_000)),
        Command::Trim(Trim { to: ByteOffset::new(5), first_record: 1 }),
        Command::Pin(Pin { token, from: at, fork_path: path("b/c") }),
        Command::Delete,
        Command::Unpin(token),
        Command::UnpinDone(token),
        Command::KeepProducers(300),
        Command::Expire,
        Command::Create(Box::new(Create {
            retention: Retention { bytes: Keep::AtLeast(300), ..Retention::DEFAULT },
            record_time: Some(RecordTime::SinceArrival(-5)),
            ..create("d")
        })),
        Command::Append(Append {
            record_time: Some(RecordTime::SinceArrival(-3)),
            condition: Some(Box::new(Condition {
                next_record: Some(300),
                states: vec![EndState { stream: key, tail: at, closed: true }],
            })),
            ..append
        }),
        Command::Change(Change {
            retention: RetentionChange {
                age_seconds: Some(Keep::All),
                ..RetentionChange::default()
            },
        }),
    ]
}

/// [`examples`] as bytes.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let encode = |command: Command| {
        let mut bytes = vec![command.kind() as u8];
        command.encode(&mut bytes);
        bytes
    };
    examples().into_iter().map(encode).collect()
}
