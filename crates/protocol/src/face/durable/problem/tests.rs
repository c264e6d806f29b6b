use super::*;
use crate::Viewers;
use crate::http1::{Exchange, HeadWriter, Version};
use std::collections::BTreeSet;

/// The table as people read it.
fn page() -> String {
    let mut page = String::from(
        "# Errors\n\nEvery error is an `application/problem+json` answer (RFC 9457). `code` never changes its \
         meaning. `applied` says whether the write of the request took place: `false`, or `\"unknown\"` when only \
         a retry with producer fields, or a read, can tell. Written from the table in `src/face/durable/problem/table.rs`.\n\n\
         | code | status | applied | Retry-After | connection | meaning | what to do |\n|---|---|---|---|---|---|---|\n",
    );
    for code in Code::ALL {
        let meaning = code.meaning();
        let applied = if meaning.applied == Applied::No { "false" } else { "unknown" };
        let retry =
            meaning.retry_after_seconds.map_or_else(String::new, |seconds| format!("{seconds} s"));
        let connection = if meaning.closes { "closed" } else { "" };
        let Meaning { name, status, title, advice, .. } = meaning;
        page += &format!(
            "| `{name}` | {status} | {applied} | {retry} | {connection} | {title} | {advice} |\n"
        );
    }
    page
}

#[test]
fn the_page_shows_the_table() {
    assert_eq!(page(), include_str!("../../../../errors.md"));
}

#[test]
fn names_are_unique_and_kebab() {
    let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.meaning().name).collect();
    assert_eq!(names.len(), Code::ALL.len());
    assert!(
        names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'))
    );
}

#[test]
fn every_code_writes_valid_json_and_a_known_status() {
    let date = crate::HttpDate::new(model::Timestamp::new(0));
    for code in Code::ALL {
        let exchange = Exchange {
            version: Version::Http11,
            keep_alive: true,
            is_head: false,
            date: &date,
            viewers: Viewers::All,
        };
        let mut out = vec![];
        Problem::new(*code).render(&mut HeadWriter::new(&mut out, &exchange));
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], code.meaning().name);
        assert_eq!(head.contains("Connection: close"), code.meaning().closes, "{code:?}");
    }
}

// Clients retry these forever, so nothing that a retry cannot cure may be among them.
#[test]
fn overload_says_when_to_come_back() {
    for code in Code::ALL.iter().filter(|code| matches!(code.meaning().status, 429 | 503 | 507)) {
        assert!(code.meaning().retry_after_seconds.is_some(), "{code:?}");
    }
}
