//! Which web pages may use a server that asks nobody for a credential.
//!
//! # Why
//! A browser lets every page send requests to programs of its own machine. CORS only hides the answers: a stream that a
//! page deletes is gone. And a page can bind its own name to `127.0.0.1` (DNS rebinding), after which the browser takes
//! both for one origin. Other programs of the machine send no `Origin` and name the server as they like.
//!
//! # What is compared
//! `Host`, which a rebound page cannot choose, and `Origin`, which no page can leave out of a request that changes
//! something. Source: RFC 6454 and the Fetch Standard, "HTTP extensions".

use super::Request;
use crate::{
    face::durable::problem::{Code, Problem, detail::quote},
    head::{Authority, Viewer, Viewers},
};
use std::net::IpAddr;

/// What a head says of the page that sends it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Page<'b> {
    /// `Host`, or the authority of the target, with its port.
    pub host: Option<Authority<'b>>,
    /// `Origin`. No page can leave it out of a request that changes something.
    pub origin: Option<&'b [u8]>,
}

/// The names and origins that are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// Names in `Host`, without ports.
    pub hosts: Names,
    /// Origins of pages that may change something.
    pub origins: Names,
    /// Which pages may see answers.
    pub sharing: Sharing,
}

/// Which pages may see answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Those of every origin, but nothing that is answered to what a browser adds by itself.
    All,
    /// Those that may change something.
    Listed {
        /// Also what is answered to a certificate of the user, where the origin itself is listed.
        credentials: bool,
    },
}

/// The page that sends a request, as far as it shapes the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sender {
    /// None: a program.
    #[default]
    Program,
    /// One that sees nothing where origins are listed.
    Other,
    /// One of this machine or of this server.
    Machine,
    /// This one of the list.
    Listed(u16),
}

/// A set of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// All.
    Any,
    /// Those of this machine, and these.
    Local(Box<[Box<str>]>),
}

impl Default for Pages {
    /// Everybody.
    fn default() -> Self {
        Self { hosts: Names::Any, origins: Names::Any, sharing: Sharing::All }
    }
}

impl Pages {
    /// Whether everybody is let in, so that nobody has to look at a [`Page`].
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.hosts == Names::Any && self.origins == Names::Any
    }

    /// Decides whether a request is carried out that `page` sends.
    ///
    /// # Errors
    /// The [`Problem`] to answer.
    pub fn admit(&self, page: &Page<'_>, request: &Request) -> Result<(), Problem> {
        if let Some(host) = page.host
            && !self.hosts.has_host(host.text())
        {
            let detail = format!(
                "Host is {}; use an address or localhost, or name it in the setting allowed_hosts.",
                quote(host.bytes())
            );
            return Err(Problem::with_detail(Code::ForeignHost, detail));
        }
        match page.origin {
            Some(origin) if request.is_write() && !self.has_origin(page) => {
                let detail = format!(
                    "Pages of {} may not change streams; the setting cors_origins can allow them.",
                    quote(origin)
                );
                Err(Problem::with_detail(Code::ForeignOrigin, detail))
            }
            _ => Ok(()),
        }
    }

    fn has_origin(&self, page: &Page<'_>) -> bool {
        self.origins == Names::Any || self.sender(page) != Sender::Other
    }

    /// Which page sends a request.
    #[must_use]
    pub fn sender(&self, page: &Page<'_>) -> Sender {
        let Some(origin) = page.origin else { return Sender::Program };
        let Names::Local(listed) = &self.origins else { return Sender::Other };
        let Ok(origin) = std::str::from_utf8(origin) else { return Sender::Other };
        if let Some(place) = listed.iter().position(|known| known.eq_ignore_ascii_case(origin)) {
            return u16::try_from(place).map_or(Sender::Machine, Sender::Listed);
        }
        let Some((scheme, authority)) = origin.split_once("://") else { return Sender::Other };
        let is_web = scheme == "http" || scheme == "https";
        // The page came from here: a proxy may serve it beside the streams.
        let is_own =
            page.host.is_some_and(|host| host.bytes().eq_ignore_ascii_case(authority.as_bytes()));
        let is_let_in = is_web && (is_own || is_of_machine(without_port(authority)));
        if is_let_in { Sender::Machine } else { Sender::Other }
    }

    /// Which pages may see the answer to a request of `sender`.
    #[inline]
    #[must_use]
    pub fn viewers(&self, sender: Sender) -> Viewers<'_> {
        match self.sharing {
            Sharing::All if sender == Sender::Program => Viewers::Program,
            Sharing::All => Viewers::All,
            Sharing::Listed { credentials } => self.listed_viewers(sender, credentials),
        }
    }

    fn listed_viewers(&self, sender: Sender, credentials: bool) -> Viewers<'_> {
        match (sender, &self.origins) {
            (Sender::Listed(place), Names::Local(listed)) => {
                let viewer = |origin| Viewer { origin, credentials };
                Viewers::Listed(listed.get(usize::from(place)).map(|origin| viewer(origin)))
            }
            // Pages of this machine get no certificate of its user.
            (Sender::Machine, _) => {
                Viewers::Listed(Some(Viewer { origin: "*", credentials: false }))
            }
            _ => Viewers::Listed(None),
        }
    }
}

impl Sender {
    /// Whether it is a page, by the `Origin` of its request. [`Pages::sender`] says which one.
    #[inline]
    #[must_use]
    pub fn of(origin: Option<&[u8]>) -> Self {
        if origin.is_some() { Self::Other } else { Self::Program }
    }
}

impl Names {
    fn has_host(&self, host: &str) -> bool {
        let Self::Local(listed) = self else { return true };
        if is_number(host) {
            return true;
        }
        let name = without_port(host);
        // An address cannot be bound to anything else.
        is_name_of_machine(name)
            || address(name).is_some()
            || listed.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Whether a host is of digits and points, with a port or without: an address, or what a browser takes for one. No name
/// is, since no top-level domain is a number. Most clients in tests and scripts name such a host, so it is found first.
#[inline]
fn is_number(host: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() | (byte == b'.');
    let length = host.bytes().take_while(|byte| is_part(*byte)).count();
    length > 0 && host.as_bytes().get(length).is_none_or(|byte| *byte == b':')
}

/// A host without its port.
pub(super) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn address(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().ok().filter(IpAddr::is_ipv6),
        None => host.parse().ok().filter(IpAddr::is_ipv4),
    }
}

/// Browsers ask no resolver for these names.
fn is_name_of_machine(host: &str) -> bool {
    let localhost = "localhost";
    let Some(at) = host.len().checked_sub(localhost.len()) else { return false };
    let is_below = at == 0 || host.as_bytes()[at - 1] == b'.';
    is_below && host.is_char_boundary(at) && host[at..].eq_ignore_ascii_case(localhost)
}

fn is_of_machine(host: &str) -> bool {
    is_name_of_machine(host) || address(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::StreamPath;

    fn local(hosts: &[&str], origins: &[&str]) -> Pages {
        let names = |all: &[&str]| Names::Local(all.iter().map(|name| (*name).into()).collect());
        Pages { hosts: names(hosts), origins: names(origins), sharing: Sharing::All }
    }

    fn delete() -> Request {
        Request::Delete(StreamPath::new("a").unwrap())
    }

    fn status(pages: &Pages, host: &str, origin: Option<&str>, request: &Request) -> u16 {
        let page =
            Page { host: Authority::new(host.as_bytes()), origin: origin.map(str::as_bytes) };
        pages.admit(&page, request).map_or_else(|problem| problem.status(), |()| 200)
    }

    #[test]
    fn names_that_dns_cannot_bind_are_let_in() {
        let pages = local(&["streams.example"], &[]);
        let ours = [
            "localhost",
            "LOCALHOST:4437",
            "app.localhost:1",
            "127.0.0.1",
            "127.0.0.1:4437",
            "[::1]:4437",
            "192.0.2.7:80",
            "streams.example",
            "Streams.Example:443",
        ];
        for host in ours {
            assert_eq!(status(&pages, host, None, &delete()), 200, "{host}");
        }
        let foreign = [
            "evil.example",
            "evil.example:4437",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "localhost.evil.example",
            "::1",
            "[127.0.0.1]",
            "[::1",
            "x",
            "",
            "streams.example.",
        ];
        for host in foreign {
            assert_eq!(status(&pages, host, None, &delete()), 421, "{host}");
        }
        let head = Request::Head(StreamPath::new("a").unwrap());
        assert_eq!(status(&pages, "evil.example", None, &head), 421, "reads, too");
        assert_eq!(status(&Pages::default(), "evil.example", None, &delete()), 200);
    }

    #[test]
    fn pages_of_other_origins_change_nothing() {
        let pages = local(&["streams.example"], &["https://app.example"]);
        let ours = [
            "http://localhost:3000",
            "https://localhost",
            "http://127.0.0.1:1",
            "http://[::1]:5",
            "http://a.localhost",
            "https://app.example",
            "HTTPS://APP.EXAMPLE",
            "https://streams.example",
        ];
        for origin in ours {
            assert_eq!(status(&pages, "streams.example", Some(origin), &delete()), 200, "{origin}");
        }
        let foreign = [
            "null",
            "",
            "https://evil.example",
            "http://localhost.evil.example",
            "https://app.example:8443",
            "http://192.0.2.7",
            "file://localhost",
            "http://streams.example:80",
            "http://127.0.0.1.evil.example",
            "http://é.localhosT.x",
        ];
        for origin in foreign {
            assert_eq!(status(&pages, "streams.example", Some(origin), &delete()), 403, "{origin}");
        }
        let head = Request::Head(StreamPath::new("a").unwrap());
        assert_eq!(status(&pages, "localhost", Some("https://evil.example"), &head), 200, "a read");
        assert_eq!(
            status(
                &pages,
                "localhost",
                Some("https://evil.example"),
                &Request::Preflight { fields: None }
            ),
            200
        );
        let open = Pages { origins: Names::Any, ..pages };
        assert_eq!(status(&open, "localhost", Some("https://evil.example"), &delete()), 200);
    }

    fn viewer(pages: &Pages, origin: Option<&str>) -> Option<(String, bool)> {
        let page = Page { host: Authority::new(b"s.example"), origin: origin.map(str::as_bytes) };
        match pages.viewers(pages.sender(&page)) {
            Viewers::All | Viewers::Program => panic!("pages are listed"),
            Viewers::Listed(viewer) => {
                viewer.map(|viewer| (viewer.origin.to_owned(), viewer.credentials))
            }
        }
    }

    #[test]
    fn only_what_is_listed_sees_answers_and_only_what_is_named_gets_those_to_credentials() {
        let listed = local(&[], &["https://a.example", "https://b.example"]);
        for credentials in [false, true] {
            let pages = Pages { sharing: Sharing::Listed { credentials }, ..listed.clone() };
            let named = |origin: &str| Some((origin.to_owned(), credentials));
            assert_eq!(viewer(&pages, Some("https://a.example")), named("https://a.example"));
            assert_eq!(viewer(&pages, Some("https://b.example")), named("https://b.example"));
            for own in ["http://localhost:3000", "http://127.0.0.1:1", "https://s.example"] {
                assert_eq!(viewer(&pages, Some(own)), Some(("*".to_owned(), false)), "{own}");
            }
            for other in [None, Some("null"), Some("https://c.example"), Some("http://a.example")] {
                assert_eq!(viewer(&pages, other), None, "{other:?}");
            }
        }
        let page = Page { host: None, origin: Some(b"https://c.example") };
        assert_eq!(listed.viewers(listed.sender(&page)), Viewers::All, "nothing is listed");
    }

    #[test]
    fn a_client_that_names_no_host_is_no_browser() {
        let page = Page { host: None, origin: None };
        assert!(local(&[], &[]).admit(&page, &delete()).is_ok());
    }
}
