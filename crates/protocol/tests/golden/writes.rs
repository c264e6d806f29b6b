//! Answers to `PUT`, `POST`, `DELETE`, `HEAD` and `OPTIONS`.

use crate::{
    builders::{accepted, info},
    page::Page,
};
use model::{ByteOffset, GroupId, Timestamp};
use stream::{Accepted, Keep, Lifetime, Outcome, Retention, StreamInfo};
use thalweg_protocol::response;

pub(crate) fn page() -> String {
    let mut page = Page::default();
    appends(&mut page);
    creates(&mut page);
    metadata(&mut page);
    places(&mut page);
    page.answer("delete", |head| {
        response::deleted(head);
        String::new()
    });
    page.answer("preflight", |head| {
        response::preflight(head, None);
        String::new()
    });
    page.answer("preflight of a page with fields of its own", |head| {
        response::preflight(head, Some("traceparent, x-trace"));
        String::new()
    });
    page.text()
}

fn appends(page: &mut Page) {
    let plain = accepted(1234);
    let producer = Accepted { producer: Some((1, 5)), ..accepted(1234) };
    let largest = Accepted {
        producer: Some(((1 << 53) - 1, (1 << 53) - 1)),
        tail: ByteOffset::new(9_999_999_999_999_999),
        ..accepted(1234)
    };
    let cases = [
        ("append", plain.clone()),
        ("append that closes", Accepted { closed: true, ..plain.clone() }),
        ("append again", Accepted { duplicate: true, ..plain.clone() }),
        ("close", Accepted { closed: true, close_only: true, ..plain }),
        ("append by a producer", producer.clone()),
        ("append by a producer that closes", Accepted { closed: true, ..producer.clone() }),
        ("append by a producer again", Accepted { duplicate: true, ..producer.clone() }),
        ("close by a producer", Accepted { closed: true, close_only: true, ..producer }),
        ("append with the largest numbers", largest),
    ];
    for (title, accepted) in cases {
        page.answer(title, |head| {
            response::outcome(head, &Outcome::Appended(accepted.clone()), b"");
            String::new()
        });
    }
}

fn creates(page: &mut Page) {
    let open = info("text/plain", 1234);
    let closed = StreamInfo { closed: true, ..info("application/json; charset=utf-8", 0) };
    let cases = [
        ("create", Outcome::Created(open.clone().into())),
        ("create closed", Outcome::Created(closed.clone().into())),
        ("create again", Outcome::Existed(open.into())),
        ("create closed again", Outcome::Existed(closed.into())),
        ("delete by outcome", Outcome::Deleted),
        ("pin", Outcome::Pinned { head: ByteOffset::ZERO, first_record: 0 }),
        ("trim", Outcome::Trimmed { head: ByteOffset::new(700), first_record: 7 }),
        ("change", Outcome::Changed(kept().into())),
        ("done", Outcome::Done),
    ];
    for (title, outcome) in cases {
        page.answer(title, |head| {
            response::outcome(head, &outcome, b"http://example.com:4437/v1/stream/a%20b");
            String::new()
        });
    }
}

/// A stream whose beginning is gone.
fn kept() -> StreamInfo {
    let retention =
        Retention { age_seconds: Keep::AtLeast(604_800), bytes: Keep::All, records: Keep::Default };
    let head = ByteOffset::new(700);
    StreamInfo { head, first_record: 7, next_record: 13, retention, ..info("text/plain", 1234) }
}

fn places(page: &mut Page) {
    page.answer("metadata of a trimmed stream", |head| {
        response::metadata(head, GroupId::new(7), &kept());
        String::new()
    });
    for (title, at, time) in
        [("a place", (900, 9), Some(1_700_000_000_123)), ("the tail", (1234, 13), None)]
    {
        page.answer(title, |head| {
            response::resolved(head, &kept(), (ByteOffset::new(at.0), at.1), time);
            String::new()
        });
    }
}

fn metadata(page: &mut Page) {
    let lifetimes = [
        ("forever", Lifetime::Forever),
        ("a TTL", Lifetime::Ttl { seconds: u64::MAX }),
        ("an end", Lifetime::ExpiresAt(Timestamp::new(1_700_000_000_123))),
    ];
    for (name, lifetime) in lifetimes {
        for closed in [false, true] {
            let info = StreamInfo { lifetime, closed, ..info("application/octet-stream", 1234) };
            let title = format!("metadata with {name}{}", if closed { ", closed" } else { "" });
            page.answer(&title, |head| {
                response::metadata(head, GroupId::new(7), &info);
                String::new()
            });
        }
    }
}
