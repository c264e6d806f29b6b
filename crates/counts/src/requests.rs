//! Requests as bytes, written before anything is counted.

use model::ReadFrom;
use protocol::client::{Target, put_append, put_create, put_create_for, put_read};
use protocol::request::Live;

/// Bytes of an append: the size that docs/measuring.md measures with.
pub const PAYLOAD_BYTES: usize = 256;

const HOST: &str = "127.0.0.1:4437";

/// The digits of a stream's number in its path.
const DIGITS: usize = 8;

/// One request whose stream can be changed in place, so that asking for another costs next to nothing.
#[derive(Debug)]
pub struct Template {
    bytes: Vec<u8>,
    digits_at: usize,
}

impl Template {
    fn new(write: impl FnOnce(&mut Vec<u8>, Target<'_>)) -> Self {
        let path = format!("counts/{}", "0".repeat(DIGITS));
        let mut bytes = Vec::new();
        write(&mut bytes, Target { host: HOST, path: &path });
        let place = bytes.windows(path.len()).position(|window| window == path.as_bytes());
        let digits_at = place.expect("a request names its stream") + path.len() - DIGITS;
        Self { bytes, digits_at }
    }

    /// A stream.
    #[must_use]
    pub fn create(media_type: &str) -> Self {
        Self::new(|out, target| put_create(out, target, media_type, b""))
    }

    /// A stream that goes away when nobody has used it for so long.
    #[must_use]
    pub fn create_for(seconds: u64) -> Self {
        Self::new(|out, target| put_create_for(out, target, "text/plain", seconds))
    }

    /// An append of a few bytes.
    #[must_use]
    pub fn short_append(media_type: &str) -> Self {
        let payload = b"thirty bytes are enough of it\n";
        Self::new(|out, target| put_append(out, target, media_type, None, payload))
    }

    /// An append of [`PAYLOAD_BYTES`].
    #[must_use]
    pub fn append(media_type: &str) -> Self {
        let line =
            b"what is appended again and again, in lines of text with some 50 letters each\n";
        let payload: Vec<u8> = line.iter().copied().cycle().take(PAYLOAD_BYTES).collect();
        Self::new(|out, target| put_append(out, target, media_type, None, &payload))
    }

    /// The same request with a token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head ends");
        let field = format!("\r\nAuthorization: Bearer {token}");
        self.bytes.splice(end..end, field.into_bytes());
        self
    }

    /// Everything that a stream holds.
    #[must_use]
    pub fn read() -> Self {
        Self::new(|out, target| put_read(out, target, ReadFrom::Begin, Live::CatchUp, None))
    }

    /// Waits at the tail of a stream for what comes.
    #[must_use]
    pub fn poll() -> Self {
        Self::new(|out, target| put_read(out, target, ReadFrom::Now, Live::LongPoll, None))
    }

    /// Follows a stream from its tail.
    #[must_use]
    pub fn follow() -> Self {
        Self::new(|out, target| put_read(out, target, ReadFrom::Now, Live::Sse, None))
    }

    /// The request, for the stream of this number.
    ///
    /// # Panics
    /// If the number has more digits than a path has room for.
    #[inline]
    pub fn of(&mut self, stream: u64) -> &[u8] {
        let mut rest = stream;
        for digit in self.bytes[self.digits_at..][..DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        assert_eq!(rest, 0, "more streams than the path has digits for");
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_request_is_changed_in_place() {
        let mut template = Template::append("text/plain");
        let first = String::from_utf8(template.of(7).to_vec()).unwrap();
        let second = String::from_utf8(template.of(12_345_678).to_vec()).unwrap();
        assert!(first.starts_with("POST /v1/stream/counts/00000007 HTTP/1.1\r\n"), "{first}");
        assert_eq!(first.replace("00000007", "12345678"), second);
    }
}
