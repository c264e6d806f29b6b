//! Answers where the pages that may see them are listed.

use crate::builders::{accepted, answer, info, request};
use crate::page::Page;
use model::ReadFrom;
use thalweg_protocol::{
    HeadSink, Viewer, Viewers,
    problem::{Code, Problem},
    request::Live,
    response,
};

/// Writes one answer.
type Write = fn(&mut dyn HeadSink);

pub(crate) fn page() -> String {
    let mut page = Page::default();
    let answers: [(&str, Write); 5] = [
        ("a read", |head| {
            let (request, info) = (request(ReadFrom::Begin, Live::CatchUp), info("text/plain", 9));
            response::read(head, &answer(&request, &info, 0, 9));
        }),
        ("an append", |head| response::appended(head, &accepted(9))),
        ("a preflight", |head| response::preflight(head, Some("x-trace"))),
        ("an error", |head| Problem::new(Code::NotFound).render(head)),
        ("an error that no page may see", |head| Problem::new(Code::ForeignHost).render(head)),
    ];
    let named = |credentials| Viewer { origin: "https://a.example", credentials };
    for (viewer, to) in [
        (None, "another page, or none"),
        (Some(named(false)), "a page that is listed"),
        (Some(named(true)), "a page that is listed, with credentials"),
    ] {
        for (what, write) in answers {
            page.answer_to(&format!("{what}, for {to}"), Viewers::Listed(viewer), |head| {
                write(head);
                String::new()
            });
        }
    }
    let (what, append) = answers[1];
    page.answer_to(
        &format!("{what}, for a program where no pages are listed"),
        Viewers::Program,
        |head| {
            append(head);
            String::new()
        },
    );
    page.text()
}
