//! Bodies in chunks, decoded as they come. Source: RFC 9112 §7.1.
//!
//! Extensions and trailer fields are skipped; both are bounded. Every line must end with CR LF. A size
//! is 1 to 16 hexadecimal digits, directly followed by `;` or the line end. Parsers that tolerate more
//! let requests be smuggled.

use crate::limits::{CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};

/// Decodes one body.
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// Bytes of the size line, or of all trailers, so far.
    line_bytes: usize,
    /// The size read so far, then what is left of the chunk.
    left_bytes: u64,
    body_bytes: u64,
    body_bytes_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// What one call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that belong to this body.
    pub consumed: usize,
    /// The body is complete; what follows in the input is the next request.
    pub done: bool,
}

/// Why a body was refused. The connection cannot be used afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkError {
    /// A chunk size that is not 1 to 16 hexadecimal digits.
    Size,
    /// A size line longer than [`CHUNK_LINE_BYTES_MAX`].
    LineTooLong,
    /// A line or chunk that does not end with CR LF, or a control character in a line.
    LineEnd,
    /// Trailers longer than [`TRAILER_BYTES_MAX`].
    TrailersTooLong,
    /// The body is longer than the limit.
    BodyTooLong {
        /// The limit.
        limit_bytes: u64,
    },
}

impl ChunkedDecoder {
    /// Begins a body of at most `body_bytes_max` bytes.
    #[must_use]
    pub const fn new(body_bytes_max: u64) -> Self {
        Self { state: State::Size, line_bytes: 0, left_bytes: 0, body_bytes: 0, body_bytes_max }
    }

    /// Takes bytes from `input` and appends the body bytes among them to `body`.
    ///
    /// # Errors
    /// [`ChunkError`]: answer it and close the connection.
    pub fn decode(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<Step, ChunkError> {
        let mut consumed = 0;
        while consumed < input.len() && self.state != State::Done {
            if self.state == State::Data {
                consumed += self.take_data(&input[consumed..], body);
            } else {
                self.take_byte(input[consumed])?;
                consumed += 1;
            }
        }
        Ok(Step { consumed, done: self.state == State::Done })
    }

    fn take_data(&mut self, input: &[u8], body: &mut Vec<u8>) -> usize {
        let left = usize::try_from(self.left_bytes).unwrap_or(usize::MAX);
        let taken = left.min(input.len());
        body.extend_from_slice(&input[..taken]);
        self.left_bytes -= taken as u64;
        if self.left_bytes == 0 {
            self.state = State::DataCr;
        }
        taken
    }

    fn take_byte(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.state = match (self.state, byte) {
            (State::Size, _) => return self.take_size(byte),
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, _) => {
                self.in_line(byte, CHUNK_LINE_BYTES_MAX, ChunkError::LineTooLong)?
            }
            (State::SizeLf, b'\n') => self.begin_chunk()?,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => self.begin_size(),
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::TrailerStart | State::Trailer, _) => {
                self.state = State::Trailer;
                self.in_line(byte, TRAILER_BYTES_MAX, ChunkError::TrailersTooLong)?
            }
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::Done,
            _ => return Err(ChunkError::LineEnd),
        };
        Ok(())
    }

    fn take_size(&mut self, byte: u8) -> Result<(), ChunkError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' | b';' if self.line_bytes > 0 => {
                self.state = if byte == b';' { State::Extension } else { State::SizeLf };
                return Ok(());
            }
            _ => return Err(ChunkError::Size),
        };
        if self.line_bytes == 16 {
            return Err(ChunkError::Size);
        }
        self.line_bytes += 1;
        self.left_bytes = self.left_bytes << 4 | u64::from(digit);
        Ok(())
    }

    fn in_line(
        &mut self,
        byte: u8,
        limit_bytes: usize,
        too_long: ChunkError,
    ) -> Result<State, ChunkError> {
        self.line_bytes += 1;
        if self.line_bytes > limit_bytes {
            return Err(too_long);
        }
        if (byte < 0x20 && byte != b'\t') || byte == 0x7f {
            return Err(ChunkError::LineEnd);
        }
        Ok(self.state)
    }

    fn begin_chunk(&mut self) -> Result<State, ChunkError> {
        self.line_bytes = 0;
        if self.left_bytes == 0 {
            return Ok(State::TrailerStart);
        }
        self.body_bytes = self.body_bytes.saturating_add(self.left_bytes);
        if self.body_bytes > self.body_bytes_max {
            return Err(ChunkError::BodyTooLong { limit_bytes: self.body_bytes_max });
        }
        Ok(State::Data)
    }

    fn begin_size(&mut self) -> State {
        self.line_bytes = 0;
        State::Size
    }
}

/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes one chunk; nothing if `data` is empty, since an empty chunk would end the body.
pub fn put_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    put_chunk_head(out, data.len() as u64);
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Writes the line before a chunk of `data_bytes`, which `data_bytes` bytes and CR LF must follow.
///
/// # Panics
/// If `data_bytes` is 0: that would end the body.
pub fn put_chunk_head(out: &mut Vec<u8>, data_bytes: u64) {
    assert!(data_bytes > 0, "an empty chunk ends the body");
    let digits = (16 - data_bytes.leading_zeros() / 4).max(1);
    for place in (0..digits).rev() {
        let nibble = (data_bytes >> (place * 4)) & 0xf;
        out.push(b"0123456789abcdef"[nibble as usize]);
    }
    out.extend_from_slice(b"\r\n");
}
