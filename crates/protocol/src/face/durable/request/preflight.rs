//! What a browser asks before it sends a request of a page of another origin. Source: the Fetch Standard, "CORS protocol".

use crate::{face::durable::response::REQUEST_FIELDS, field, head::RequestHead};

/// Longest list of fields that is looked at.
const ASKED_BYTES_MAX: usize = 1024;

/// The fields that a page wants to send besides those that every page may, as `traceparent`. What is no list of names, or a
/// long one, is nothing.
pub(super) fn asked_fields(head: &RequestHead<'_, '_>) -> Option<Box<str>> {
    let is_asked = |item: &&httparse::Header<'_>| field::is(item.name, field::REQUESTED_FIELDS);
    let value = head.fields.iter().find(is_asked)?.value;
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= ASKED_BYTES_MAX)?;
    let names = || text.split(',').map(str::trim_ascii);
    if !names().all(is_name) {
        return None;
    }
    let is_new =
        |name: &&str| !REQUEST_FIELDS.split(", ").any(|ours| ours.eq_ignore_ascii_case(name));
    let more: Vec<&str> = names().filter(is_new).collect();
    (!more.is_empty()).then(|| more.join(", ").into())
}

/// RFC 9110 §5.1.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text != "*" && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Method;

    fn asked(value: &[u8]) -> Option<String> {
        let fields = [httparse::Header { name: "access-control-request-headers", value }];
        let head = RequestHead {
            method: Method::Options,
            method_text: "OPTIONS",
            path: "/v1/stream/a",
            query: None,
            authority: None,
            fields: &fields,
        };
        asked_fields(&head).map(Into::into)
    }

    #[test]
    fn what_a_page_asks_for_is_let_in_by_its_name() {
        assert_eq!(asked(b"traceparent").as_deref(), Some("traceparent"));
        assert_eq!(asked(b" x-trace ,content-type, x").as_deref(), Some("x-trace, x"));
        assert_eq!(asked(b"content-type,PRODUCER-ID"), None, "every page may send them");
    }

    #[test]
    fn what_is_no_list_of_names_is_not_shown() {
        let long = "x,".repeat(ASKED_BYTES_MAX);
        for wrong in ["", "*", "a b", "a,", "a:b", "a\r\nSet-Cookie: x", "\u{e9}", &long] {
            assert_eq!(asked(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(asked(b"\xff"), None);
    }
}
