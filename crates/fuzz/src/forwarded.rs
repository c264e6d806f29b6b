//! What proxies say of clients: a stranger's word counts for nothing, and a trusted one's up to the first stranger.

use crate::input::Input;
use protocol::http1::{HeadLimits, HeadReader, HeaderSlots};
use protocol::request::{self, Request, Scheme, Shown, Site, Way};
use protocol::{Method, RequestHead};
use std::net::{IpAddr, SocketAddr};

/// Networks whose proxies are believed.
const TRUSTED: [&str; 3] = ["10.0.0.0/8", "127.0.0.1/32", "fd00::/8"];

/// Addresses that a request comes from. The first three are trusted.
const PEERS: [&str; 6] =
    ["10.0.0.1", "::ffff:127.0.0.1", "fd00::7", "192.0.2.1", "::1", "11.0.0.1"];
const TRUSTED_PEERS: usize = 3;

const PUBLIC: &str = "https://s.example/base";

/// Input: choices (1), then the head of a request.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choices = usize::from(input.byte());
    let mut slots = HeaderSlots::new();
    let head = HeadReader::default().read(input.rest(), &mut slots, &HeadLimits::default());
    let Ok(Some(head)) = head else { return };
    let place = choices % PEERS.len();
    let has_url = choices & 0x40 != 0;
    let site = Site {
        public_url: has_url.then(|| PUBLIC.parse().expect("a URL")),
        proxies: TRUSTED.iter().map(|network| network.parse().expect("a network")).collect(),
    };
    let address: IpAddr = PEERS[place].parse().expect("an address");
    let scheme = if choices & 0x80 != 0 { Scheme::Https } else { Scheme::Http };
    let way = Way { scheme, address, site: &site };
    check_client(&head.request, &way, place < TRUSTED_PEERS);
    check_location(&head.request, &way, place < TRUSTED_PEERS);
}

fn check_client(head: &RequestHead<'_, '_>, way: &Way<'_>, is_trusted: bool) {
    let found = Shown::find(head, way).client;
    if !is_trusted {
        assert_eq!(found, None, "a stranger names an address");
        return;
    }
    let expected = named_by_proxies(head, way.address);
    let expected = Some(expected).filter(|address| *address != way.address);
    assert_eq!(found, expected);
}

/// The client, by all values as one list.
fn named_by_proxies(head: &RequestHead<'_, '_>, peer: IpAddr) -> IpAddr {
    let values = head.fields.iter().filter(|item| item.name.to_lowercase() == "x-forwarded-for");
    let list: Vec<&[u8]> = values.map(|item| item.value).collect();
    if list.is_empty() {
        return peer;
    }
    let list = list.join(&b","[..]);
    let mut client = peer;
    for part in list.split(|byte| *byte == b',').rev() {
        let text = std::str::from_utf8(part).map(str::trim).unwrap_or_default();
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let is_bare = bare == text || format!("[{bare}]") == text;
        let alone = bare.parse::<IpAddr>().ok().filter(|_| is_bare);
        let Some(found) = alone.or_else(|| text.parse::<SocketAddr>().ok().map(|both| both.ip()))
        else {
            return client;
        };
        client = found.to_canonical();
        let is_ours = match client {
            IpAddr::V4(address) => address.octets()[0] == 10 || address.octets() == [127, 0, 0, 1],
            IpAddr::V6(address) => address.octets()[0] == 0xfd,
        };
        if !is_ours {
            return client;
        }
    }
    client
}

/// A head without the fields of proxies says what a stranger's head says with them.
fn check_location(head: &RequestHead<'_, '_>, way: &Way<'_>, is_trusted: bool) {
    if head.method != Method::Put {
        return;
    }
    let kept = |without: fn(&str) -> bool| -> Vec<_> {
        head.fields.iter().copied().filter(|item| !without(&item.name.to_lowercase())).collect()
    };
    let Some(location) = location(head, way) else { return };
    let plain = kept(|name| name.starts_with("x-forwarded-") || name == "forwarded");
    let without_any = self::location(&RequestHead { fields: &plain, ..*head }, way);
    let unread = kept(|name| name == "forwarded" || name == "x-forwarded-for");
    let without_unread = self::location(&RequestHead { fields: &unread, ..*head }, way);
    assert_eq!(Some(&location), without_unread.as_ref(), "it shapes no URL");
    if !is_trusted || way.site.public_url.is_some() {
        assert_eq!(Some(&location), without_any.as_ref(), "nobody who counts has said so");
    }
    if way.site.public_url.is_some() {
        assert!(location.starts_with(PUBLIC), "{location}");
        return;
    }
    let rest = location.strip_prefix("http://").or_else(|| location.strip_prefix("https://"));
    if let Some(rest) = rest {
        let host = rest.split('/').next().unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/\\?#@\"<>".contains(&byte);
        assert!(!host.is_empty() && host.bytes().all(is_plain), "{location}");
    } else {
        assert!(location.starts_with('/'), "{location}");
    }
}

fn location(head: &RequestHead<'_, '_>, way: &Way<'_>) -> Option<String> {
    match request::parse(head, way) {
        Ok(Request::Create(create)) => {
            let text = String::from_utf8(create.location.into());
            Some(text.expect("a URL is in ASCII"))
        }
        _ => None,
    }
}

/// Heads as proxies write them, and as strangers do.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let put = |choices: u8, fields: &str| {
        let head = format!(
            "PUT /v1/stream/a HTTP/1.1\r\nHost: s.example:4437\r\nContent-Type: text/plain\r\n{fields}\r\n"
        );
        [&[choices][..], head.as_bytes()].concat()
    };
    let all = "X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
               X-Forwarded-Host: a.example\r\nForwarded: for=7.7.7.7;host=b.example;proto=https\r\n";
    vec![
        put(0, all),
        put(3, all),
        put(0x40, all),
        put(0x82, all),
        put(
            1,
            "X-Forwarded-For: 6.6.6.6, 10.0.0.3\r\nx-forwarded-for: [2001:db8::1]:443, fd00::9\r\n",
        ),
        put(
            0,
            "X-Forwarded-For: 192.0.2.7:99, unknown, 10.1.2.3\r\nX-Forwarded-Proto: gopher, https\r\n",
        ),
        put(
            2,
            "X-Forwarded-For: ::ffff:10.0.0.9\r\nX-Forwarded-Host: a b\r\nX-Forwarded-Host: c\r\n",
        ),
        put(0, "X-Forwarded-For:\r\nX-Forwarded-Host: u@h\r\nX-Forwarded-Proto: HTTPS\r\n"),
    ]
}
