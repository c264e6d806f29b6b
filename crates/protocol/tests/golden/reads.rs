//! Answers to `GET`: catch-up, long-poll and server-sent events.

use crate::{
    builders::{answer, info, request},
    page::Page,
};
use model::{ByteOffset, ReadFrom};
use stream::{Lifetime, StreamInfo};
use thalweg_protocol::{
    events::Mode,
    request::{Live, ReadRequest},
    response::{self, ReadAnswer, TailAge},
};

pub(crate) fn page() -> String {
    let mut page = Page::default();
    ranges(&mut page);
    known(&mut page);
    live(&mut page);
    page.text()
}

fn add(page: &mut Page, title: &str, answer: &ReadAnswer<'_>) {
    page.answer(title, |head| {
        let plan = response::read(head, answer);
        format!("-> {plan:?}")
    });
}

/// Every range of a stream, by its type, its end, its lifetime and how it is asked for.
fn ranges(page: &mut Page) {
    let at = |offset| request(ReadFrom::At(ByteOffset::new(offset)), Live::CatchUp);
    let cases = [
        ("all", request(ReadFrom::Begin, Live::CatchUp), 0, 900),
        ("a part", at(100), 100, 400),
        ("nothing at the tail", at(900), 900, 900),
        ("nothing beyond the tail", at(901), 901, 901),
        ("now", request(ReadFrom::Now, Live::CatchUp), 900, 900),
    ];
    for (range, request, start, end) in &cases {
        for content_type in ["text/plain", "application/json"] {
            for closed in [false, true] {
                let info = StreamInfo { closed, ..info(content_type, 900) };
                let state = if closed { "closed" } else { "open" };
                let title = format!("{range} of {content_type}, {state}");
                add(page, &title, &answer(request, &info, *start, *end));
            }
        }
    }
    let begin = request(ReadFrom::Begin, Live::CatchUp);
    let forever = info("text/plain", 900);
    let ttl = StreamInfo { lifetime: Lifetime::Ttl { seconds: 60 }, ..forever.clone() };
    let stable = |info| ReadAnswer { is_stable: true, ..answer(&begin, info, 0, 400) };
    add(page, "a stable part", &stable(&forever));
    add(page, "a stable part of a stream with a lifetime", &stable(&ttl));
    add(page, "all of a stream with a lifetime", &answer(&begin, &ttl, 0, 900));
    let zipped = |end| ReadAnswer { gzip: true, ..answer(&begin, &forever, 0, end) };
    add(page, "all, compressed", &zipped(900));
    add(page, "a part, compressed", &zipped(400));
    let private = |answer| ReadAnswer { is_public: false, ..answer };
    add(page, "a stable part, not for everybody", &private(stable(&forever)));
    add(page, "all, not for everybody", &private(answer(&begin, &forever, 0, 900)));
    add(page, "a stable part with a lifetime, not for everybody", &private(stable(&ttl)));
    for seconds in [0, 1, 3600] {
        let tail_age = TailAge::of_seconds(seconds);
        let old = |answer| ReadAnswer { tail_age, ..answer };
        let title = format!("kept for {seconds} s");
        add(page, &format!("all, {title}"), &old(answer(&begin, &forever, 0, 900)));
        let of_one = private(old(answer(&begin, &forever, 0, 900)));
        add(page, &format!("all, not for everybody, {title}"), &of_one);
        add(page, &format!("a stable part, {title}"), &old(stable(&forever)));
    }
}

/// Reads with `If-None-Match`.
fn known(page: &mut Page) {
    let open = info("text/plain", 900);
    let closed = StreamInfo { closed: true, ..open.clone() };
    for (tags, title) in [
        ("\"7-42:0:900\"", "the tag of an open stream"),
        ("W/\"x\", W/\"7-42:0:900:c\"", "the tag of a closed stream"),
        ("*", "any tag"),
        ("\"7-42:0:901\"", "another tag"),
    ] {
        let begin = request(ReadFrom::Begin, Live::CatchUp);
        let request = ReadRequest { if_none_match: Some(tags.into()), ..begin };
        add(page, &format!("open, {title} is known"), &answer(&request, &open, 0, 900));
        add(page, &format!("closed, {title} is known"), &answer(&request, &closed, 0, 900));
        let zipped = ReadAnswer { gzip: true, ..answer(&request, &open, 0, 900) };
        add(page, &format!("compressed, {title} is known"), &zipped);
    }
}

fn live(page: &mut Page) {
    let poll = ReadRequest {
        cursor: Some(3),
        ..request(ReadFrom::At(ByteOffset::new(100)), Live::LongPoll)
    };
    for closed in [false, true] {
        let info = StreamInfo { closed, ..info("application/json", 900) };
        let state = if closed { "closed" } else { "open" };
        for (what, start, end) in [
            ("data", 100, 900),
            ("a part", 100, 400),
            ("no data", 900, 900),
            ("no data beyond the tail", 901, 901),
        ] {
            let answer = ReadAnswer { cursor: Some(77), ..answer(&poll, &info, start, end) };
            add(page, &format!("long-poll with {what}, {state}"), &answer);
        }
        page.answer(&format!("long-poll in vain, {state}"), |head| {
            response::long_poll_timeout(head, &info, 77, false);
            String::new()
        });
    }
    for mode in [Mode::Text, Mode::Json, Mode::Base64] {
        page.answer(&format!("events as {mode:?}"), |head| {
            format!("-> {:?}", response::sse(head, mode))
        });
    }
}
