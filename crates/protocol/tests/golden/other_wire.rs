//! A wire that keeps a head as a status and pairs, as HTTP/2 does.

use thalweg_protocol::{BodyFraming, CommonFields, Field, HeadSink, Length, Viewers};

/// A head under construction.
pub(crate) struct OtherWire {
    viewers: Viewers<'static>,
    is_head: bool,
    status: u16,
    /// Names in lower case, and values.
    fields: Vec<(String, String)>,
    closes: bool,
    is_ended: bool,
    body: Vec<u8>,
}

impl OtherWire {
    pub(crate) fn new(is_head: bool, viewers: Viewers<'static>) -> Self {
        Self {
            viewers,
            is_head,
            status: 0,
            fields: Vec::new(),
            closes: false,
            is_ended: false,
            body: Vec::new(),
        }
    }

    /// Asserts that an answer in HTTP/1.1 says the same, but for what belongs to its connection.
    pub(crate) fn assert_says(&self, text: &[u8]) {
        let end = text.windows(4).position(|four| four == b"\r\n\r\n").expect("a head ends") + 4;
        let head = std::str::from_utf8(&text[..end]).expect("this page is of ASCII heads");
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        assert_eq!(status, self.status.to_string());
        let fields: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").expect("a field"))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .filter(|(name, _)| {
                !["date", "connection", "transfer-encoding"].contains(&name.as_str())
            })
            .collect();
        assert_eq!(fields, self.fields);
        assert!(self.is_ended, "every head is ended");
        assert!(!self.closes || head.contains("\r\nConnection: close\r\n"), "{head}");
        assert_eq!(text[end..], self.body);
    }

    fn push(&mut self, name: &str, value: &str) {
        assert!(self.status > 0 && !self.is_ended, "fields stand in a head");
        self.fields.push((name.to_owned(), value.to_owned()));
    }
}

impl HeadSink for OtherWire {
    fn viewers(&self) -> Viewers<'_> {
        self.viewers
    }

    fn start(&mut self, status: u16, common: &CommonFields) {
        assert_eq!(self.status, 0, "a head begins once");
        self.status = status;
        let fields = common.fields_for(self.viewers);
        for (name, value) in fields {
            self.push(name.as_str(), value.to_str().expect("ASCII"));
        }
        common.put_viewer(self.viewers, self);
    }

    fn field(&mut self, name: Field, value: &str) {
        let shown: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.push(name.header_name().as_str(), &shown);
    }

    fn ascii(&mut self, name: Field, value: &[u8]) {
        assert!(value.is_ascii());
        self.push(name.header_name().as_str(), std::str::from_utf8(value).expect("ASCII"));
    }

    fn number(&mut self, name: Field, value: u64) {
        self.push(name.header_name().as_str(), &value.to_string());
    }

    fn close(&mut self) {
        assert!(!self.is_ended, "told before the head ends");
        self.closes = true;
    }

    fn end(&mut self, length: Length) -> BodyFraming {
        if let Length::Known(bytes) = length {
            self.push("content-length", &bytes.to_string());
        }
        self.is_ended = true;
        BodyFraming::Plain
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(self.is_ended, "a body follows its head");
        if !self.is_head {
            self.body.extend_from_slice(bytes);
        }
    }
}
