//! Numbers and texts as bytes, for what this crate writes into entries, notes and frames.
//!
//! # Format
//! Numbers are LEB128 varints in their shortest form; texts and lists are a varint length and their
//! content.

/// Bytes that make no sense: written by a newer version, or not by this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Position of the first byte that makes no sense.
    pub position: usize,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the byte at {} makes no sense", self.position)
    }
}

impl std::error::Error for DecodeError {}

/// Writes fields to the end of a buffer.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
    }
}

/// Reads fields from the start of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn error<T>(&self) -> Result<T, DecodeError> {
        Err(DecodeError { position: self.position })
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.position..];
        if count > rest.len() {
            return self.error();
        }
        self.position += count;
        Ok(&rest[..count])
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            let is_too_large = shift == 63 && part > 1;
            let is_too_long = byte == 0 && shift > 0;
            if is_too_large || is_too_long {
                return self.error();
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.error()
    }

    /// A number of at most `max`.
    pub(crate) fn number_below(&mut self, max: u64) -> Result<u64, DecodeError> {
        let value = self.number()?;
        if value <= max { Ok(value) } else { self.error() }
    }

    /// A number of 16 bits.
    pub(crate) fn short(&mut self) -> Result<u16, DecodeError> {
        Ok(self.number_below(u16::MAX.into())? as u16)
    }

    /// Bytes of at most `max`.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let count = self.number_below(max as u64)?;
        self.take(count as usize)
    }

    /// A text of at most `max` bytes.
    pub(crate) fn text(&mut self, max: usize) -> Result<String, DecodeError> {
        let bytes = self.bytes(max)?;
        std::str::from_utf8(bytes).map(str::to_owned).or_else(|_| self.error())
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.position == self.bytes.len() { Ok(()) } else { self.error() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_have_one_form() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            Writer(&mut out).number(value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.number(), Ok(value));
            assert_eq!(reader.end(), Ok(()));
        }
        assert!(Reader::new(&[0x80, 0x00]).number().is_err());
        assert!(Reader::new(&[0x80]).number().is_err());
        assert!(Reader::new(&[0xff; 10]).number().is_err());
    }

    #[test]
    fn a_length_beyond_the_bytes_is_refused() {
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(9), Err(DecodeError { position: 1 }));
        assert!(Reader::new(&[5, 1, 2, 3, 4, 5]).bytes(4).is_err());
    }
}
