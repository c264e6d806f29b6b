//! What an answer's body says of a stream's contents.

use super::ApiStyle;
use memchr::{memchr, memmem};

/// What stands before the contents of each record of S2.
const RECORD: &[u8] = b"\"body\":\"";

/// Finds a stream's bytes in bodies that come in pieces.
#[derive(Debug)]
pub(crate) enum Content {
    /// The body is the stream.
    Bytes,
    /// The body is JSON with one text per record.
    Records(Records),
}

/// Records in JSON, of which no text holds an escape: ours do not, and what is changed is found
/// when it is compared.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The beginning of something that is not whole.
    pending: Vec<u8>,
    /// Records so far: the sequence number of the next one.
    count: u64,
}

impl Content {
    pub(crate) fn new(style: ApiStyle) -> Self {
        match style {
            ApiStyle::Durable | ApiStyle::Ursula => Self::Bytes,
            ApiStyle::S2 => Self::Records(Records::default()),
        }
    }

    /// Takes the next bytes of a body, and gives what they hold of the stream to `sink`.
    pub(crate) fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        match self {
            Self::Bytes => sink(bytes),
            Self::Records(records) => records.take(bytes, sink),
        }
    }

    /// The number of the next record, where records are numbered.
    pub(crate) fn next_record(&self) -> Option<u64> {
        match self {
            Self::Bytes => None,
            Self::Records(records) => Some(records.count),
        }
    }
}

impl Records {
    fn take(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        self.pending.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(start) = memmem::find(&self.pending[used..], RECORD) {
            let start = used + start + RECORD.len();
            let Some(length) = memchr(b'"', &self.pending[start..]) else { break };
            sink(&self.pending[start..start + length]);
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
}
