//! Requests that are refused for what they say: one of each kind, and its whole answer.

use crate::page::Page;
use thalweg_protocol::{
    http1::{HeadLimits, HeadReader, HeaderSlots},
    problem::Problem,
    request::{self, Request, Way},
};

/// Request line, fields and body.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("GET /elsewhere", &[], ""),
    ("GET /v1/stream/__ds/x", &[], ""),
    ("GET /v1/stream/%zz", &[], ""),
    ("GET /v1/stream/a%00b", &[], ""),
    ("GET /v1/stream/a/%2E%2E/b", &[], ""),
    ("TRACE /v1/stream/a", &[], ""),
    ("PATCH /v1/stream/a", &[], ""),
    ("GET /v1/stream/a?live=poll", &[], ""),
    ("GET /v1/stream/a?live=sse", &[], ""),
    ("GET /v1/stream/a?live=%zz", &[], ""),
    ("GET /v1/stream/a?offset=", &[], ""),
    ("GET /v1/stream/a?offset=-2", &[], ""),
    ("GET /v1/stream/a?offset=-1&offset=-1", &[], ""),
    ("GET /v1/stream/a?offset=0000000000000000_1000000000000000", &[], ""),
    ("PUT /v1/stream/a", &["If-Match: *"], ""),
    ("POST /v1/stream/a", &["If-Match: \"7-42:0:9\""], "data"),
    ("DELETE /v1/stream/a", &["If-Match: \"7-42:0:9\"", "If-Match: \"x\""], ""),
    ("PUT /v1/stream/a", &["Content-Type: nonsense"], ""),
    ("PUT /v1/stream/a", &["Content-Encoding: br"], ""),
    ("PUT /v1/stream/a", &["Stream-TTL: 01"], ""),
    ("PUT /v1/stream/a", &["Stream-TTL: 1", "Stream-Expires-At: 2026-01-01T00:00:00Z"], ""),
    ("PUT /v1/stream/a", &["Stream-Expires-At: tomorrow"], ""),
    ("PUT /v1/stream/a", &["Stream-Fork-Offset: now"], ""),
    ("PUT /v1/stream/a", &["Stream-Forked-From: /x"], ""),
    ("PUT /v1/stream/a", &["Stream-Forked-From: /v1/stream/%zz"], ""),
    ("PUT /v1/stream/a", &["Stream-Forked-From: /v1/stream/b", "Stream-Fork-Offset: now"], ""),
    (
        "PUT /v1/stream/a",
        &[
            "Stream-Forked-From: /v1/stream/b",
            "Stream-Fork-Offset: 0000000000000000_9999999999999999",
        ],
        "",
    ),
    ("PUT /v1/stream/a", &["Stream-Forked-From: /v1/stream/b", "Stream-Fork-Sub-Offset: -1"], ""),
    ("PUT /v1/stream/a", &["Content-Type: application/json"], "{"),
    ("POST /v1/stream/a", &[], ""),
    ("POST /v1/stream/a", &[], "data"),
    ("POST /v1/stream/a", &["Content-Type: application/json"], "[]"),
    ("POST /v1/stream/a", &["Producer-Id: p"], ""),
    ("POST /v1/stream/a", &["Producer-Id: p", "Producer-Epoch: x", "Producer-Seq: 0"], ""),
    ("POST /v1/stream/a", &["Producer-Id: ", "Producer-Epoch: 0", "Producer-Seq: 0"], ""),
    ("POST /v1/stream/a", &["Stream-Seq: "], ""),
    ("POST /v1/stream/a", &["Stream-Seq: 1", "Stream-Seq: 2"], ""),
    ("POST /v1/stream/a", &["Content-Type: \u{e9}\u{7e}", "Stream-Closed: true"], "data"),
];

pub(crate) fn page() -> String {
    let mut page = Page::default();
    for (line, fields, body) in REFUSED {
        let problem = refused(line, fields, body);
        page.answer(&format!("{line} {fields:?} {body:?}"), |head| {
            problem.render(head);
            String::new()
        });
    }
    page.text()
}

fn refused(line: &str, fields: &[&str], body: &str) -> Problem {
    let mut text = format!("{line} HTTP/1.1\r\nHost: example.com\r\n");
    for field in fields {
        text += &format!("{field}\r\n");
    }
    text += "\r\n";
    let mut slots = HeaderSlots::new();
    let head = HeadReader::default()
        .read(text.as_bytes(), &mut slots, &HeadLimits::default())
        .expect("the head is well-formed")
        .expect("the head is complete");
    let outcome = match request::parse(&head.request, &Way::LOCAL) {
        Ok(Request::Create(create)) => create.finish(body.as_bytes()).map(|_| ()),
        Ok(Request::Append(append)) => append.finish(body.as_bytes()).map(|_| ()),
        Ok(_) => Ok(()),
        Err(problem) => Err(problem),
    };
    outcome.expect_err("this page is of refused requests")
}
