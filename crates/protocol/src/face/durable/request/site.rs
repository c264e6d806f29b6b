//! Under which URLs clients reach this server. Behind a proxy that is not what the connection says.
//!
//! # Whom to believe
//! Anybody can send `X-Forwarded-For`. It counts only from the addresses of [`Site::proxies`]. It is read from the right to the first
//! address that is not one of them; a stranger has written the rest. RFC 7239's `Forwarded` is not read: proxies that do not write it
//! pass on what a client has sent.

use super::Scheme;
use crate::{
    field,
    head::{Authority, RequestHead},
};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_HOST: &str = "x-forwarded-host";

/// What the operator says of the way to this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The URL under which clients know the server, if the operator names it.
    pub public_url: Option<PublicUrl>,
    /// The networks of proxies whose word counts.
    pub proxies: Vec<IpNet>,
}

/// A URL that others put before the paths of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl {
    /// All of it, without a slash at its end.
    url: Box<str>,
    /// Where its path begins.
    path_start: usize,
}

/// How a request has come.
#[derive(Debug, Clone, Copy)]
pub struct Way<'s> {
    /// By which scheme it reached this server.
    pub scheme: Scheme,
    /// The sender: a client, or the nearest proxy.
    pub address: IpAddr,
    /// What is known of ways.
    pub site: &'s Site,
}

impl Site {
    /// Nothing: clients come straight.
    pub const UNKNOWN: Self = Self { public_url: None, proxies: Vec::new() };

    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|network| network.contains(&address))
    }

    /// A path below the public URL's path; `None` if it is elsewhere.
    pub(super) fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.public_url.as_ref()?.path())?;
        rest.starts_with('/').then_some(rest)
    }
}

impl PublicUrl {
    /// Its host, without a port.
    #[must_use]
    pub fn host(&self) -> &str {
        super::page::without_port(&self.url[self.host_start()..self.path_start])
    }

    fn path(&self) -> &str {
        &self.url[self.path_start..]
    }

    fn host_start(&self) -> usize {
        self.url.find("://").map_or(0, |at| at + 3)
    }
}

impl std::fmt::Display for PublicUrl {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.url)
    }
}

impl FromStr for PublicUrl {
    type Err = ();

    /// `http` or `https`, a host, and a path or none; no query.
    fn from_str(text: &str) -> Result<Self, ()> {
        let url = text.strip_suffix('/').unwrap_or(text);
        let (scheme, rest) = url.split_once("://").ok_or(())?;
        let host_bytes = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(host_bytes);
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte);
        let is_right = matches!(scheme, "http" | "https")
            && !host.is_empty()
            && !host.contains('@')
            && Authority::new(host.as_bytes()).is_some()
            && !path.contains("//")
            && path.bytes().all(is_path);
        if !is_right {
            return Err(());
        }
        Ok(Self { path_start: url.len() - path.len(), url: url.into() })
    }
}

impl Way<'_> {
    /// Straight from this machine, in plain.
    pub const LOCAL: Way<'static> = Way {
        scheme: Scheme::Http,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        site: &Site::UNKNOWN,
    };

    /// The client's address: that of the connection, or what trusted proxies say.
    pub(super) fn client(&self, head: &RequestHead<'_, '_>) -> IpAddr {
        if self.site.proxies.is_empty() || !self.site.trusts(self.address) {
            return self.address;
        }
        let mut client = self.address;
        let values = head.fields.iter().rev();
        for item in values.filter(|item| field::is(item.name, FORWARDED_FOR)) {
            for part in item.value.rsplit(|byte| *byte == b',') {
                // What cannot be read was not written by a proxy of ours.
                let Some(address) = address_of(part) else { return client };
                client = address;
                if !self.site.trusts(address) {
                    return client;
                }
            }
        }
        client
    }

    /// The URL under which the client reached a stream, whose path here is `path`; a path alone if it named no host.
    // PROTOCOL §5.1: "a `Location` header equal to `{stream-url}`"
    pub(super) fn location(&self, head: &RequestHead<'_, '_>, path: &str) -> Box<[u8]> {
        if let Some(public) = &self.site.public_url {
            return [public.url.as_bytes(), path.as_bytes()].concat().into();
        }
        let first = |name| forwarded(head, name);
        let said = if self.site.trusts(self.address) {
            (first(FORWARDED_PROTO), first(FORWARDED_HOST))
        } else {
            (None, None)
        };
        let scheme = match (said.0, self.scheme) {
            (Some("https"), _) => "https://",
            (Some("http"), _) | (_, Scheme::Http) => "http://",
            (_, Scheme::Https) => "https://",
        };
        let said_host = said.1.and_then(|host| Authority::new(host.as_bytes()));
        match said_host.filter(|host| !host.is_empty()).or(head.authority) {
            Some(host) => [scheme.as_bytes(), host.bytes(), path.as_bytes()].concat().into(),
            None => path.as_bytes().into(),
        }
    }
}

/// The first value of a field: what the proxy said that the client reached.
fn forwarded<'b>(head: &RequestHead<'_, 'b>, name: &'static str) -> Option<&'b str> {
    let item = head.fields.iter().find(|item| field::is(item.name, name))?;
    std::str::from_utf8(item.value).ok()?.split(',').next().map(str::trim)
}

/// An address, with a port or without.
fn address_of(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Method;

    fn site(url: Option<&str>, proxies: &[&str]) -> Site {
        let proxies = proxies.iter().map(|network| network.parse().unwrap()).collect();
        Site { public_url: url.map(|url| url.parse().unwrap()), proxies }
    }

    fn with_head<R>(fields: &[(&str, &str)], take: impl FnOnce(&RequestHead<'_, '_>) -> R) -> R {
        let fields: Vec<httparse::Header<'_>> = fields
            .iter()
            .map(|(name, value)| httparse::Header { name, value: value.as_bytes() })
            .collect();
        take(&RequestHead {
            method: Method::Put,
            method_text: "PUT",
            path: "/v1/stream/a",
            query: None,
            authority: Authority::new(b"10.0.0.9:4437"),
            fields: &fields,
        })
    }

    fn from<'s>(address: &str, site: &'s Site) -> Way<'s> {
        Way { scheme: Scheme::Http, address: address.parse().unwrap(), site }
    }

    #[test]
    fn only_the_word_of_trusted_proxies_counts_up_to_the_first_stranger() {
        let site = site(None, &["10.0.0.0/8", "::1/128"]);
        let client = |from_address: &str, values: &[&str]| {
            let fields: Vec<_> = values.iter().map(|value| ("X-Forwarded-For", *value)).collect();
            with_head(&fields, |head| from(from_address, &site).client(head)).to_string()
        };
        assert_eq!(client("10.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        assert_eq!(client("::ffff:10.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        assert_eq!(client("::1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(client("10.0.0.1", &["6.6.6.6, 192.0.2.7, 10.0.0.2"]), "192.0.2.7");
        assert_eq!(client("10.0.0.1", &["6.6.6.6", "192.0.2.7:99"]), "192.0.2.7", "two fields");
        assert_eq!(client("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3", "nobody else");
        assert_eq!(client("10.0.0.1", &["192.0.2.7, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("192.0.2.1", &["6.6.6.6"]), "192.0.2.1", "a stranger says what he likes");
    }

    #[test]
    fn a_location_is_the_public_url_or_what_a_trusted_proxy_says_or_what_the_client_named() {
        let fields = [("x-forwarded-proto", "https, http"), ("X-Forwarded-Host", "a.example")];
        let location = |site: &Site, fields: &[(&str, &str)]| {
            with_head(fields, |head| from("10.0.0.1", site).location(head, "/v1/stream/a"))
        };
        let (nobody, proxied) = (site(None, &[]), site(None, &["10.0.0.1/32"]));
        assert_eq!(&*location(&nobody, &fields), b"http://10.0.0.9:4437/v1/stream/a");
        assert_eq!(&*location(&proxied, &fields), b"https://a.example/v1/stream/a");
        assert_eq!(&*location(&proxied, &fields[..1]), b"https://10.0.0.9:4437/v1/stream/a");
        let wrong = [("x-forwarded-proto", "gopher"), ("x-forwarded-host", "a b\u{e9}")];
        assert_eq!(&*location(&proxied, &wrong), b"http://10.0.0.9:4437/v1/stream/a");
        let public = site(Some("https://s.example/base/"), &["10.0.0.1/32"]);
        assert_eq!(&*location(&public, &fields), b"https://s.example/base/v1/stream/a");
    }

    #[test]
    fn a_public_url_has_a_host_and_may_have_a_path_that_is_taken_off() {
        let below = |url: &str, path| site(Some(url), &[]).below(path).map(str::to_owned);
        assert_eq!(
            below("https://s.example/a/b", "/a/b/v1/stream/x").as_deref(),
            Some("/v1/stream/x")
        );
        assert_eq!(below("https://s.example/a", "/ab/v1/stream/x"), None);
        assert_eq!(below("https://s.example/a", "/a"), None);
        assert_eq!(below("https://s.example", "/other").as_deref(), Some("/other"));
        assert_eq!(Site::UNKNOWN.below("/a"), None);
        let host = |url: &str| url.parse::<PublicUrl>().map(|url| url.host().to_owned());
        assert_eq!(host("https://s.example:8443/base").as_deref(), Ok("s.example"));
        assert_eq!(host("http://[::1]:80").as_deref(), Ok("[::1]"));
        for wrong in [
            "s.example",
            "ftp://s.example",
            "https://",
            "https:///a",
            "https://u@h",
            "https://h/a?b",
            "https://h//a",
            "https://h/ä",
        ] {
            assert_eq!(host(wrong), Err(()), "{wrong}");
        }
    }
}
