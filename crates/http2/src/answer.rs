//! The head of an answer, in fields.

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use protocol::{BodyFraming, CommonFields, Field, HeadSink, HttpDate, Length, Viewers};

/// Fields of most answers besides the common ones: the date, and the next offset. A map of so many is small enough for the
/// allocator's quick lists; that of a read grows once.
const OWN_FIELDS: usize = 2;

/// A head, and what of a small body was put behind it.
#[derive(Debug)]
pub struct Answer {
    status: u16,
    fields: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// Nothing follows behind `body`.
    pub is_whole: bool,
}

impl Answer {
    /// Its status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn into_head(self) -> Response<()> {
        let head = Response::builder().status(self.status).body(());
        let mut head = head.expect("a status of the table");
        *head.headers_mut() = self.fields;
        head
    }
}

/// Writes an [`Answer`].
#[derive(Debug)]
pub struct AnswerWriter<'a> {
    answer: Answer,
    date: &'a HttpDate,
    viewers: Viewers<'a>,
    is_head: bool,
    length: Option<u64>,
}

impl<'a> AnswerWriter<'a> {
    /// Writes the answer of `date` to a request, which is `HEAD` or not, for the pages that may see it.
    #[must_use]
    pub fn new(date: &'a HttpDate, is_head: bool, viewers: Viewers<'a>) -> Self {
        let answer =
            Answer { status: 0, fields: HeaderMap::new(), body: Vec::new(), is_whole: false };
        Self { answer, date, viewers, is_head, length: None }
    }

    /// What was written.
    #[must_use]
    pub fn finish(mut self) -> Answer {
        self.answer.is_whole = self.is_head || self.length == Some(self.answer.body.len() as u64);
        self.answer
    }

    fn put(&mut self, name: HeaderName, value: HeaderValue) {
        self.answer.fields.append(name, value);
    }

    /// A value that other answers hardly have. The table of the connection keeps none of them: each would push out what all answers have,
    /// and is compared with all others of its name.
    fn put_own(&mut self, name: Field, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.put(name.header_name(), value);
    }
}

impl HeadSink for AnswerWriter<'_> {
    fn viewers(&self) -> Viewers<'_> {
        self.viewers
    }

    fn start(&mut self, status: u16, common: &CommonFields) {
        self.answer.status = status;
        let fields = common.fields_for(self.viewers);
        self.answer.fields = HeaderMap::with_capacity(fields.len() + OWN_FIELDS);
        for (name, value) in fields {
            self.put(name.clone(), value.clone());
        }
        self.put(header::DATE, self.date.value());
        common.put_viewer(self.viewers, self);
    }

    fn field(&mut self, name: Field, value: &str) {
        let is_plain = |byte: u8| byte >= 0x20 && byte != 0x7f;
        let value = if value.bytes().all(is_plain) {
            HeaderValue::from_bytes(value.as_bytes())
        } else {
            let plain = |byte| if is_plain(byte) { byte } else { b' ' };
            HeaderValue::from_bytes(&value.bytes().map(plain).collect::<Vec<u8>>())
        };
        self.put(name.header_name(), value.expect("control characters are blanks"));
    }

    fn ascii(&mut self, name: Field, value: &[u8]) {
        self.put_own(name, HeaderValue::from_bytes(value).expect("printable characters"));
    }

    fn number(&mut self, name: Field, value: u64) {
        self.put_own(name, HeaderValue::from(value));
    }

    /// Other streams of the connection continue.
    fn close(&mut self) {}

    fn end(&mut self, length: Length) -> BodyFraming {
        self.length = match length {
            Length::None => Some(0),
            // The end of the stream says it, and RFC 9110 §8.6 wants no length on a 204.
            Length::Known(0) if !self.is_head => Some(0),
            Length::Known(bytes) => {
                self.put(header::CONTENT_LENGTH, HeaderValue::from(bytes));
                Some(bytes)
            }
            Length::Unknown => None,
        };
        BodyFraming::Plain
    }

    fn body(&mut self, bytes: &[u8]) {
        if !self.is_head {
            self.answer.body.extend_from_slice(bytes);
        }
    }
}
