//! Small texts of requests: offsets, cursors, entity tags, accepted codings.

use crate::input::Input;
use model::{ByteOffset, GroupId, StreamId, StreamKey, Timestamp};
use protocol::etag::ETag;
use protocol::{cursor, encoding, offset};

/// Input: numbers (12), then the text.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (now, random, number) = (input.int(), input.int(), input.int());
    let bytes = input.rest();
    check_offset(bytes, u64::from(now) * u64::from(number));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_cursor(text, u64::from(now) << 10, random.into());
    check_etag(text, number);
    check_encoding(text);
}

fn check_offset(text: &[u8], number: u64) {
    if let Ok(found) = offset::parse(text) {
        let rendered = offset::render(found);
        assert_eq!(offset::parse(&rendered), Ok(found));
        // A second part that is ignored sorts behind ours.
        assert!(rendered.as_slice() <= text, "offsets sort as texts do");
        assert_eq!(rendered[..17], text[..17], "the position is the first part");
    }
    let of_number = ByteOffset::new(number % (offset::RENDERED_MAX + 1));
    assert_eq!(offset::parse(&offset::render(of_number)), Ok(of_number));
}

fn check_cursor(text: &str, now_ms: u64, random: u64) {
    let now = Timestamp::new(now_ms + cursor::EPOCH_MS / 2);
    let sent = cursor::parse(text);
    let next = cursor::next(now, sent, random);
    assert!(next >= cursor::current(now), "a cursor is never older than the interval");
    if let Some(sent) = sent.filter(|sent| *sent <= cursor::CURSOR_MAX) {
        assert!(next > sent || next == cursor::current(now), "a cursor never goes backwards");
        assert!(next >= sent);
    }
    assert_eq!(cursor::parse(&next.to_string()), Some(next), "ours come back");
}

fn check_etag(list: &str, number: u32) {
    let tag = ETag {
        stream: StreamKey {
            group: GroupId::new(number as u16),
            stream: StreamId::new(u64::from(number) >> 3),
        },
        start: ByteOffset::new(u64::from(number) * 3),
        end: ByteOffset::new(u64::from(number) * 5),
        closed: number.is_multiple_of(2),
    };
    let render = |weak| {
        let text = tag.render(weak);
        String::from_utf8(text.as_bytes().to_vec()).expect("a tag is ASCII")
    };
    for own in [render(false), render(true)] {
        assert!(tag.matches(&own) && tag.matches(&format!(" \"x\" ,{own}")));
        if well_formed(list).is_some() {
            assert!(tag.matches(&format!("{list}, {own}")), "it stands at the end of {list:?}");
        }
    }
    let named = |tags: Vec<&str>| tags.contains(&render(false).as_str());
    if let Some(tags) = well_formed(list) {
        assert_eq!(tag.matches(list), named(tags), "{list:?}");
    }
}

/// The opaque tags of a list that RFC 9110 §8.8.3 and §5.6.1 allow, else `None`.
fn well_formed(list: &str) -> Option<Vec<&str>> {
    let mut tags = Vec::new();
    let mut rest = list.trim_matches([' ', '\t']);
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if !rest.starts_with(',') && !rest.is_empty() {
            let tag = rest.strip_prefix("W/").unwrap_or(rest);
            let length = tag.strip_prefix('"')?.find('"')? + 2;
            let (tag, after) = tag.split_at(length);
            let is_etagc = |byte: u8| byte == 0x21 || (0x23..=0x7e).contains(&byte) || byte >= 0x80;
            tag[1..length - 1].bytes().all(is_etagc).then_some(())?;
            tags.push(tag);
            rest = after.trim_start_matches([' ', '\t']);
        }
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return rest.is_empty().then_some(tags),
        }
    }
}

fn check_encoding(list: &str) {
    let accepts = encoding::accepts_gzip(list);
    assert_eq!(encoding::accepts_gzip(&list.to_ascii_uppercase()), accepts, "case says nothing");
    let spaced = list.replace(',', " ,\t");
    assert_eq!(encoding::accepts_gzip(&spaced), accepts, "blanks say nothing");
    assert!(!encoding::accepts_gzip(&format!("{list},gzip;q=0")), "a refusal counts");
    if accepts {
        let lower = list.to_ascii_lowercase();
        assert!(lower.contains("gzip") || lower.contains('*'), "somebody asked for it");
    }
}

/// Texts as clients send them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "0000000000000042_0000000000000000",
        "0000000000000001_0000000000000000",
        "1050",
        "12583000360",
        "*",
        "W/\"7-42:0:9\" , \"0-0:0:0:c\",,\"a,b\"",
        "br;q=1.0, gzip;q=0.8, *;q=0.1",
        "identity;q=0.5,x-gzip",
        "GZIP ; Q=0.001",
    ];
    texts
        .iter()
        .map(|text| [b"\x01\0\0\x40\x02\0\0\0\x03\0\0\0", text.as_bytes()].concat())
        .collect()
}
