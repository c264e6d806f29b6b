//! A reader of server-sent events as the standard wants it. Source: WHATWG HTML §9.2.6.

use super::Client;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub kind: String,
    pub data: String,
}

/// An answer of events that is being read.
#[derive(Debug)]
pub(crate) struct Events {
    client: Client,
    is_base64: bool,
    /// Bytes of lines that are not complete.
    rest: Vec<u8>,
    kind: String,
    data: String,
    /// Comments so far.
    pub comments: usize,
    ready: std::collections::VecDeque<Event>,
    ended: bool,
}

impl Events {
    /// Follows a stream; `query` without `live=sse`.
    pub(crate) fn follow(mut client: Client, path: &str, query: &str) -> Self {
        client.ask("GET", &format!("{path}?{query}&live=sse"), &[], b"");
        let head = client.answer_to_head().is(200);
        assert_eq!(head.field("Content-Type"), Some("text/event-stream"));
        assert_eq!(head.field("Transfer-Encoding"), Some("chunked"));
        let is_base64 = head.field("Stream-SSE-Data-Encoding") == Some("base64");
        Self {
            client,
            is_base64,
            rest: Vec::new(),
            kind: String::new(),
            data: String::new(),
            comments: 0,
            ready: std::collections::VecDeque::new(),
            ended: false,
        }
    }

    /// The next event; `None` when the answer has ended as it should, by a last chunk.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.ended {
            self.pull();
        }
        self.ready.pop_front()
    }

    /// Reads one chunk.
    #[track_caller]
    pub(crate) fn pull(&mut self) {
        match self.client.chunk() {
            Some(chunk) => self.feed(&chunk),
            None => self.ended = true,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        // The server writes no CR, so lines end with LF alone; `line` checks that.
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(&String::from_utf8_lossy(&line[..end]));
        }
    }

    fn line(&mut self, line: &str) {
        assert!(!line.contains('\r'), "a parser would split {line:?}");
        if line.is_empty() {
            let (kind, mut data) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
            if data.pop().is_some() {
                self.ready.push_back(Event { kind, data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comments += 1,
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            _ => {}
        }
    }

    /// Bytes up to the first control event that says up to date, and that control event; JSON comes
    /// as the arrays of its events, one after the other.
    #[track_caller]
    pub(crate) fn up_to_date(&mut self) -> (Vec<u8>, Value) {
        let mut bytes = Vec::new();
        let mut data: Option<String> = None;
        loop {
            let event = self.next().expect("the answer continues");
            if event.kind == "data" {
                assert_eq!(data.replace(event.data), None, "each data event has its control event");
                continue;
            }
            assert_eq!(event.kind, "control");
            let control: Value = serde_json::from_str(&event.data).unwrap();
            let exact = control.get("streamDataBase64").map(|text| text.as_str().unwrap());
            match (data.take(), exact) {
                (_, Some(exact)) => bytes.extend(base64(exact)),
                (Some(data), None) if self.is_base64 => bytes.extend(base64(&data)),
                (Some(data), None) => bytes.extend(data.as_bytes()),
                (None, None) => {}
            }
            if control.get("upToDate") == Some(&Value::Bool(true)) {
                return (bytes, control);
            }
        }
    }
}

/// Decodes padded base64; line breaks are allowed.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text.replace(['\r', '\n'], "")).unwrap()
}
