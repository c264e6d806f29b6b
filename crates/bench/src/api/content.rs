//! What an answer's body says of a stream's contents.

use super::{ApiStyle, Holds};
use memchr::{memchr_iter, memmem};

/// The text before the contents of each record of S2.
const RECORD: &[u8] = b"\"body\":\"";

/// Finds a stream's bytes in bodies that come in pieces.
#[derive(Debug)]
pub(crate) enum Content {
    /// The body is the stream.
    Bytes,
    /// The body is a JSON array of messages; what it holds of the stream is the messages.
    Messages(Messages),
    /// The body is JSON with one text per record.
    Records(Records),
}

/// The place of the next byte in an array of messages.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Arrays and objects that are open: 1 within the array of messages, more within a message.
    depth: u32,
    in_text: bool,
    is_escaped: bool,
    /// Bytes of messages in what came last.
    found: Vec<u8>,
}

/// Records in JSON, of which texts hold no escapes but of quotes: ours do not, and what is changed is
/// found when it is compared.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The beginning of something that is not whole.
    pending: Vec<u8>,
    /// Records so far: the sequence number of the next one.
    count: u64,
}

impl Content {
    /// Of streams that hold bytes.
    pub(crate) fn new(style: ApiStyle) -> Self {
        Self::of(style, Holds::Bytes)
    }

    pub(crate) fn of(style: ApiStyle, holds: Holds) -> Self {
        match (style, holds) {
            (ApiStyle::S2, _) => Self::Records(Records::default()),
            (ApiStyle::Nats | ApiStyle::Kafka, _) | (_, Holds::Bytes) => Self::Bytes,
            // Its reads give one message per line, without an array around them.
            (ApiStyle::Ursula, _) => Self::Messages(Messages { depth: 1, ..Messages::default() }),
            (ApiStyle::Durable, _) => Self::Messages(Messages::default()),
        }
    }

    /// Takes the next bytes of a body, and gives what they hold of the stream to `sink`.
    pub(crate) fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        match self {
            Self::Bytes => sink(bytes),
            Self::Messages(messages) => messages.take(bytes, sink),
            Self::Records(records) => records.take(bytes, sink),
        }
    }

    /// The number of the next record, where records are numbered.
    pub(crate) fn next_record(&self) -> Option<u64> {
        match self {
            Self::Bytes | Self::Messages(_) => None,
            Self::Records(records) => Some(records.count),
        }
    }
}

impl Messages {
    fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        self.found.clear();
        for byte in bytes {
            let is_outer = self.depth == 0 || (self.depth == 1 && !self.in_text);
            let is_mark = is_outer && matches!(byte, b'[' | b']' | b',' | b' ' | b'\n' | b'\r');
            self.step(*byte);
            // An array within a message opens at depth 1 too; our messages are objects.
            if !is_mark {
                self.found.push(*byte);
            }
        }
        sink(&self.found);
    }

    fn step(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = self.in_text,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

impl Records {
    fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        self.pending.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(start) = memmem::find(&self.pending[used..], RECORD) {
            let start = used + start + RECORD.len();
            let Some(length) = text_length(&self.pending[start..]) else { break };
            let text = &self.pending[start..start + length];
            text.split(|byte| *byte == b'\\').for_each(&mut sink);
            self.count += 1;
            used = start + length + 1;
        }
        // Without a whole record, what is left may still begin one.
        let rest = &self.pending[used..];
        if memmem::find(rest, RECORD).is_none() {
            used += rest.len().saturating_sub(RECORD.len() - 1);
        }
        self.pending.drain(..used);
    }
}

/// How far it is to the quote that ends the text at the start of `bytes`.
fn text_length(bytes: &[u8]) -> Option<usize> {
    let is_end = |at: &usize| *at == 0 || bytes[at - 1] != b'\\';
    memchr_iter(b'"', bytes).find(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "{\"records\":[{\"seq_num\":0,\"timestamp\":1,\"body\":\"abc\"},\
        {\"seq_num\":1,\"timestamp\":2,\"body\":\"de\"}],\"tail\":{\"seq_num\":2,\"timestamp\":2}}";

    #[test]
    fn records_are_found_wherever_the_body_is_cut() {
        for cut in 0..PAGE.len() {
            let (first, second) = PAGE.split_at(cut);
            let mut content = Content::new(ApiStyle::S2);
            let mut found = Vec::new();
            content.take(first.as_bytes(), |bytes| found.push(bytes.to_vec()));
            content.take(second.as_bytes(), |bytes| found.push(bytes.to_vec()));
            assert_eq!(found, [b"abc".to_vec(), b"de".to_vec()], "{cut}");
            assert_eq!(content.next_record(), Some(2), "{cut}");
        }
    }

    #[test]
    fn bytes_are_the_stream() {
        let mut content = Content::new(ApiStyle::Ursula);
        let mut found = Vec::new();
        content.take(PAGE.as_bytes(), |bytes| found.extend_from_slice(bytes));
        assert_eq!((found.as_slice(), content.next_record()), (PAGE.as_bytes(), None));
    }

    #[test]
    fn messages_are_found_wherever_the_body_is_cut() {
        let pages = "[{\"a\":\"],\\\"}\", \"b\":[1,2]},\n {\"c\":{}}][{\"d\":1}]";
        let wanted = "{\"a\":\"],\\\"}\", \"b\":[1,2]}{\"c\":{}}{\"d\":1}";
        for cut in 0..pages.len() {
            let mut content = Content::of(ApiStyle::Durable, Holds::Messages);
            let mut found = Vec::new();
            content.take(&pages.as_bytes()[..cut], |bytes| found.extend_from_slice(bytes));
            content.take(&pages.as_bytes()[cut..], |bytes| found.extend_from_slice(bytes));
            assert_eq!(String::from_utf8(found).unwrap(), wanted, "{cut}");
        }
    }

    #[test]
    fn quotes_in_records_are_those_of_the_stream() {
        let page = "{\"records\":[{\"body\":\"{\\\"a\\\":1}\"}]}";
        let mut content = Content::of(ApiStyle::S2, Holds::Messages);
        let mut found = Vec::new();
        content.take(page.as_bytes(), |bytes| found.extend_from_slice(bytes));
        assert_eq!(String::from_utf8(found).unwrap(), "{\"a\":1}");
    }

    #[test]
    fn messages_may_have_lines_of_their_own() {
        let mut content = Content::of(ApiStyle::Ursula, Holds::Messages);
        let mut found = Vec::new();
        let lines = b"{\"a\":\"b,\"}\n{\"c\":1}\n";
        content.take(lines, |bytes| found.extend_from_slice(bytes));
        content.take(lines, |bytes| found.extend_from_slice(bytes));
        let wanted = "{\"a\":\"b,\"}{\"c\":1}";
        assert_eq!(String::from_utf8(found).unwrap(), wanted.repeat(2));
    }
}
