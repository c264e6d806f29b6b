//! What decisions need of a shard, and what comes of one.

use access::{Access, Authorized, Denied, Verified};
use protocol::{Authority, problem::Problem, request::Page};
use std::sync::Arc;

/// The rules, and what one shard remembers of credentials that it has verified.
#[derive(Debug)]
pub(crate) struct Gate {
    pub access: Arc<Access>,
    pub verified: Verified,
    pub known_host: KnownHost,
    /// A reader could not be judged in its turn.
    pub is_judging_late: bool,
}

/// What became of a request.
pub(crate) enum Judged<R> {
    Authorized(Authorized<R>),
    Denied(Denied),
    /// A web page sent it that may not.
    Foreign(Box<Problem>),
    /// In a later turn.
    Later,
}

impl Gate {
    pub(crate) fn new(access: Arc<Access>) -> Self {
        Self {
            access,
            verified: Verified::default(),
            known_host: KnownHost::default(),
            is_judging_late: false,
        }
    }
}

/// The `Host` of the last request that was let in. Clients of one server name it alike, so that it is rarely looked at
/// twice. Rules for pages are those of the start, and so it stays true.
#[derive(Debug, Default)]
pub(crate) struct KnownHost(Option<Box<[u8]>>);

impl KnownHost {
    /// Whether the request is let in without another look: it names this host, and no web page sends it.
    #[inline]
    pub(crate) fn is(&self, page: &Page<'_>) -> bool {
        page.origin.is_none() && page.host.is_some() && name(page) == self.0.as_deref()
    }

    pub(crate) fn note(&mut self, page: &Page<'_>) {
        if name(page) != self.0.as_deref() {
            self.0 = name(page).map(Into::into);
        }
    }
}

fn name<'b>(page: &Page<'b>) -> Option<&'b [u8]> {
    page.host.map(Authority::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_that_was_let_in_last_is_known_and_no_web_page_is() {
        let host = |name: &'static str| Authority::new(name.as_bytes());
        let of = |name: Option<&'static str>| Page { host: name.and_then(host), origin: None };
        let mut known = KnownHost::default();
        assert!(!known.is(&of(None)) && !known.is(&of(Some(""))), "nobody was let in yet");
        known.note(&of(Some("localhost:4437")));
        assert!(known.is(&of(Some("localhost:4437"))));
        assert!(!known.is(&of(Some("evil.example"))) && !known.is(&of(None)));
        let page = Page { host: host("localhost:4437"), origin: Some(b"https://evil.example") };
        assert!(!known.is(&page));
        known.note(&of(None));
        assert!(!known.is(&of(None)) && !known.is(&of(Some("localhost:4437"))));
    }
}
