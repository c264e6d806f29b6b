//! Heads of requests and answers, whatever wire they travel on.
//!
//! # Why
//! A [face](crate::face) decides what a request asks and what an answer says. A wire decides how a
//! head looks in bytes. [`RequestHead`] and [`HeadSink`] are what a face sees of a wire, so
//! another wire needs no change in a face, and another face none in a wire.
//!
//! # Driving a sink
//! [`HeadSink::start`], then the fields in any order, then [`HeadSink::end`]. A small body follows
//! by [`HeadSink::body`]; a large one is written by the caller as [`BodyFraming`] says.
//!
//! # Invariants
//! - Each head is started once and ended once.
//! - No value can end its line or begin another field, see [`HeadSink::field`].

use crate::{field::Field, scan};
use http::{HeaderName, HeaderValue};

/// A request method; those that no route knows are one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `PUT`
    Put,
    /// `POST`
    Post,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// Any other; its text is [`RequestHead::method_text`].
    Other,
}

/// Host and port as a client names them, of bytes that a URL may have there (RFC 3986 §3.2), so that it can be written
/// back into one. User names are refused: no `Host` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'b>(&'b [u8]);

impl<'b> Authority<'b> {
    /// `None` if it has any other byte.
    #[inline(always)]
    #[must_use]
    pub fn new(name: &'b [u8]) -> Option<Self> {
        let is_outside = |byte| !IN_AUTHORITY[usize::from(byte)];
        (!scan::any(name, is_outside)).then_some(Self(name))
    }

    /// Whether nothing is named.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// As bytes, which cost no look at each.
    #[must_use]
    pub fn bytes(self) -> &'b [u8] {
        self.0
    }

    /// As text.
    #[must_use]
    pub fn text(self) -> &'b str {
        std::str::from_utf8(self.0).expect("each byte that is let in is ASCII")
    }
}

/// By byte, whether it is allowed there.
const IN_AUTHORITY: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~%!$&'()*+,;=:[]";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// What a face reads of a request's head.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'h, 'b> {
    /// The method.
    pub method: Method,
    /// The method as it was written.
    pub method_text: &'b str,
    /// The path of the target, still percent-encoded; begins with `/`, or is `*` for `OPTIONS`.
    pub path: &'b str,
    /// What follows the first `?`.
    pub query: Option<&'b str>,
    /// Host and port as the client named them.
    pub authority: Option<Authority<'b>>,
    /// All fields in order.
    pub fields: &'h [httparse::Header<'b>],
}

/// How the body of an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The status or method allows no body, and no length is shown.
    None,
    /// After this many bytes.
    Known(u64),
    /// Nobody knows yet.
    Unknown,
}

/// How to write the body that follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// As it is.
    Plain,
    /// With [`crate::http1::put_chunk`] and [`crate::http1::LAST_CHUNK`].
    Chunked,
    /// As it is, then close the connection.
    UntilClose,
}

/// Fields with which many answers of a face begin, prepared once.
///
/// Made by `common_fields!`, so that both forms say the same.
#[derive(Debug)]
pub struct CommonFields {
    /// All of them as lines of HTTP/1.1, and the name of the date, which follows.
    pub(crate) lines: &'static str,
    /// All of them as HTTP/2 has them.
    pub(crate) fields: &'static [(HeaderName, HeaderValue)],
    /// As `lines`, where pages are listed.
    pub(crate) listed_lines: &'static str,
    /// As `fields`, where pages are listed.
    pub(crate) listed_fields: &'static [(HeaderName, HeaderValue)],
    /// Whether pages may see the answer at all.
    pub(crate) is_shown: bool,
}

/// Makes [`CommonFields`] of names, names in lower case, and values: those where all pages may see answers, those where
/// pages are listed, and those of both.
macro_rules! common_fields {
    (
        shown: $is_shown:literal,
        all: { $($name:literal / $lower:literal : $value:literal),* $(,)? },
        listed: { $($listed:literal / $listed_lower:literal : $listed_value:literal),* $(,)? },
        both: { $($both:literal / $both_lower:literal : $both_value:literal),* $(,)? } $(,)?
    ) => {{
        static FIELDS: [$crate::head::Plain; $crate::head::count(&[$($lower,)* $($both_lower,)*])] = [
            $($crate::head::plain($lower, $value),)* $($crate::head::plain($both_lower, $both_value),)*
        ];
        static LISTED: [$crate::head::Plain; $crate::head::count(&[$($listed_lower,)* $($both_lower,)*])] = [
            $($crate::head::plain($listed_lower, $listed_value),)*
            $($crate::head::plain($both_lower, $both_value),)*
        ];
        $crate::head::CommonFields {
            lines: concat!(
                $($name, ": ", $value, "\r\n",)* $($both, ": ", $both_value, "\r\n",)* "Date: "
            ),
            fields: &FIELDS,
            listed_lines: concat!(
                $($listed, ": ", $listed_value, "\r\n",)* $($both, ": ", $both_value, "\r\n",)*
                "Date: "
            ),
            listed_fields: &LISTED,
            is_shown: $is_shown,
        }
    }};
}
pub(crate) use common_fields;

/// A name and its value.
pub(crate) type Plain = (HeaderName, HeaderValue);

pub(crate) const fn plain(name: &'static str, value: &'static str) -> Plain {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}

pub(crate) const fn count(names: &[&str]) -> usize {
    names.len()
}

/// Which web pages may see an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewers<'a> {
    /// Those of every origin, if the answer is for them. What a browser adds by itself does not count for them.
    All,
    /// As [`Self::All`], but a program has sent the request. Pages see the answer only where a cache may keep it.
    Program,
    /// That of one origin, or none. The answer to another page would be another one.
    Listed(Option<Viewer<'a>>),
}

/// The page that may see an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewer<'a> {
    /// Its origin.
    pub origin: &'a str,
    /// Also if the browser has added what it knows of its user, such as a certificate.
    pub credentials: bool,
}

impl Viewers<'_> {
    /// Whether only pages of a list may see an answer.
    #[must_use]
    pub(crate) fn are_listed(&self) -> bool {
        matches!(self, Self::Listed(_))
    }

    /// Whether a page may see an answer that no cache keeps.
    #[must_use]
    pub fn is_page(&self) -> bool {
        matches!(self, Self::All | Self::Listed(Some(_)))
    }
}

impl CommonFields {
    /// All of them as HTTP/2 has them, but which page may see the answer: [`Self::put_viewer`] writes that.
    #[must_use]
    pub fn fields_for(&self, viewers: Viewers<'_>) -> &'static [(HeaderName, HeaderValue)] {
        if viewers.are_listed() { self.listed_fields } else { self.fields }
    }

    /// Writes which page may see this answer, where pages are listed.
    pub fn put_viewer(&self, viewers: Viewers<'_>, head: &mut impl HeadSink) {
        let Viewers::Listed(Some(viewer)) = viewers else { return };
        if self.is_shown {
            head.field(Field::AccessControlAllowOrigin, viewer.origin);
            if viewer.credentials {
                head.field(Field::AccessControlAllowCredentials, "true");
            }
        }
    }
}

/// Where the head of an answer is written.
pub trait HeadSink {
    /// The pages that may see the answer.
    fn viewers(&self) -> Viewers<'_>;

    /// Begins the head: its status, the common fields of its face, and the date.
    fn start(&mut self, status: u16, common: &CommonFields);

    /// Writes one field. Control characters in `value` become blanks, so that nothing that a client
    /// or a disk holds can end the line.
    fn field(&mut self, name: Field, value: &str);

    /// Writes a field of printable ASCII characters, which the caller has made itself.
    fn ascii(&mut self, name: Field, value: &[u8]);

    /// Writes a field with a number.
    fn number(&mut self, name: Field, value: u64);

    /// The connection takes no request after this one. To be called before [`Self::end`].
    fn close(&mut self);

    /// Ends the head.
    fn end(&mut self, length: Length) -> BodyFraming;

    /// Writes the next bytes of a small body of [`Length::Known`] behind the head; nothing if the
    /// request was `HEAD`.
    fn body(&mut self, bytes: &[u8]);
}
