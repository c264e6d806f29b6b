//! Problems: every code, every refusal of the node, every malformed head and body.

use crate::page::Page;
use model::ByteOffset;
use stream::{ConfigField, ContentType, Refusal, messages::JsonError};
use thalweg_protocol::{
    http1::{ChunkError, HeadError},
    problem::{Code, Problem},
};

pub(crate) fn page() -> String {
    let mut page = Page::default();
    for code in Code::ALL {
        add(&mut page, &format!("code {code:?}"), &Problem::new(*code));
    }
    for refusal in refusals() {
        add(&mut page, &format!("{refusal:?}"), &Problem::from(&refusal));
    }
    for error in head_errors() {
        add(&mut page, &format!("head {error:?}"), &Problem::from(error));
    }
    for error in chunk_errors() {
        add(&mut page, &format!("chunk {error:?}"), &Problem::from(error));
    }
    others(&mut page);
    page.text()
}

fn add(page: &mut Page, title: &str, problem: &Problem) {
    page.answer(title, |head| {
        problem.render(head);
        String::new()
    });
}

fn others(page: &mut Page) {
    let quoted = "a \"quoted\" \\ path\r\n\u{7f}, and ü";
    let cases = [
        ("overloaded", Problem::overloaded(3)),
        ("a full disk for longer", Problem::new(Code::DiskFull).retry_after(60)),
        ("an own detail", Problem::with_detail(Code::InvalidHeader, quoted)),
        ("damage", Problem::damaged("g/1.chunk\n", 4096, 8191)),
        ("trimmed", Problem::trimmed(ByteOffset::new(1234))),
        ("a body that grew", Problem::body_too_large(1 << 20)),
        ("no token", Problem::token_missing("read", "a")),
        ("a wrong token", Problem::token_invalid("It is wrong.")),
        ("an expired token", Problem::token_expired(model::Timestamp::new(1_800_000_000_000))),
        ("access denied", Problem::access_denied("ci", "append", "chat/\"42\"", false)),
        ("access denied to a producer", Problem::access_denied("ci", "append", "chat/42", true)),
        ("JSON too deep", Problem::from(&JsonError::TooDeep)),
        ("no JSON", Problem::from(&JsonError::Invalid { line: 3, column: 14 })),
    ];
    for (title, problem) in cases {
        add(page, title, &problem);
    }
}

fn refusals() -> Vec<Refusal> {
    let expected = ContentType::new("text/\"x");
    let offset = ByteOffset::new(1234);
    let mut refusals = vec![
        Refusal::NotFound,
        Refusal::Gone,
        Refusal::PathBlocked,
        Refusal::Closed { tail: offset },
        Refusal::ContentType { expected: expected.clone() },
        Refusal::StreamSeq { last: "a\u{e9}`".into() },
        Refusal::RecordMatch { next_record: 8, tail: offset },
        Refusal::Precondition { tail: offset },
        Refusal::StaleEpoch { current: 3 },
        Refusal::EpochStart { received: 4 },
        Refusal::SeqGap { expected: 3, received: 5 },
        Refusal::ForkSourceNotFound,
        Refusal::ForkSourceGone,
        Refusal::ForkContentType { expected },
        Refusal::ForkBeyondTail { tail: offset },
        Refusal::ForkSubOffset { available: 6 },
        Refusal::ForkTrimmed { head: offset },
        Refusal::ForkDepth,
        Refusal::Damaged,
    ];
    let fields =
        [ConfigField::ContentType, ConfigField::Lifetime, ConfigField::Closed, ConfigField::Fork];
    refusals.extend(fields.map(|differs| Refusal::Config { differs }));
    refusals
}

fn head_errors() -> Vec<HeadError> {
    vec![
        HeadError::NotHttp,
        HeadError::Http2Preface,
        HeadError::Version,
        HeadError::RequestLine,
        HeadError::FieldName,
        HeadError::FieldValue,
        HeadError::LineEnd,
        HeadError::HeadTooLong { limit_bytes: 32_768 },
        HeadError::TooManyFields,
        HeadError::TargetTooLong,
        HeadError::Target,
        HeadError::Connect,
        HeadError::HostMissing,
        HeadError::HostInvalid,
        HeadError::ContentLength,
        HeadError::LengthAndEncoding,
        HeadError::TransferEncoding,
        HeadError::BodyTooLong { length_bytes: u64::MAX, limit_bytes: 1 << 20 },
        HeadError::Expect,
    ]
}

fn chunk_errors() -> Vec<ChunkError> {
    vec![
        ChunkError::Size,
        ChunkError::LineTooLong,
        ChunkError::LineEnd,
        ChunkError::TrailersTooLong,
        ChunkError::BodyTooLong { limit_bytes: 1 << 20 },
    ]
}
