//! Bytes that name their own place, so that reading them back proves something.
//!
//! A payload is its number in 16 digits, then bytes from a pool of random letters at a place that
//! follows from the number. No two are alike, all are text, and making one is two copies.

use env::{Random, SeededRandom};

/// Digits of a payload's number.
pub(crate) const NUMBER_BYTES: usize = 16;

const POOL_BYTES: usize = 1 << 16;

/// Makes and checks payloads of one length.
#[derive(Debug, Clone)]
pub(crate) struct Payloads {
    pool: Vec<u8>,
    bytes: usize,
}

impl Payloads {
    /// Payloads of `bytes` bytes, at least [`NUMBER_BYTES`].
    pub(crate) fn new(bytes: usize) -> Self {
        let mut random = SeededRandom::new(0x5eed);
        let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        let letter = || letters[(random.next_u64() >> 58) as usize];
        let pool = std::iter::repeat_with(letter).take(POOL_BYTES + bytes).collect();
        Self { pool, bytes: bytes.max(NUMBER_BYTES) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn put(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&digits(number));
        out.extend_from_slice(self.filler(number));
    }

    /// The number of `payload`; `None` if it is not one of ours, whole and unchanged.
    pub(crate) fn number_of(&self, payload: &[u8]) -> Option<u64> {
        let number = number_in(payload)?;
        (payload[NUMBER_BYTES..] == *self.filler(number)).then_some(number)
    }

    /// Whether `bytes` are those at `position` of a stream that holds the payloads `first`,
    /// `first + 1`, and so on.
    pub(crate) fn are_at(&self, first: u64, position: u64, bytes: &[u8]) -> bool {
        let (mut position, mut rest) = (first * self.bytes as u64 + position, bytes);
        while !rest.is_empty() {
            let length = self.bytes as u64;
            let (number, within) = (position / length, (position % length) as usize);
            let count = rest.len().min(self.bytes - within);
            if !self.is_part(number, within, &rest[..count]) {
                return false;
            }
            position += count as u64;
            rest = &rest[count..];
        }
        true
    }

    fn is_part(&self, number: u64, within: usize, bytes: &[u8]) -> bool {
        let in_digits = NUMBER_BYTES.saturating_sub(within).min(bytes.len());
        let (head, tail) = bytes.split_at(in_digits);
        let from = (within + in_digits).saturating_sub(NUMBER_BYTES);
        let digits = digits(number);
        (in_digits == 0 || *head == digits[within..within + in_digits])
            && *tail == self.filler(number)[from..from + tail.len()]
    }

    fn filler(&self, number: u64) -> &[u8] {
        let start = (mixed(number) >> 48) as usize;
        &self.pool[start..start + self.bytes - NUMBER_BYTES]
    }
}

/// The number that 16 digits at the start of `payload` say.
pub(crate) fn number_in(payload: &[u8]) -> Option<u64> {
    let digits = payload.get(..NUMBER_BYTES)?;
    digits.iter().try_fold(0_u64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

fn digits(mut number: u64) -> [u8; NUMBER_BYTES] {
    let mut text = [b'0'; NUMBER_BYTES];
    for place in text.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}

/// A number that looks like any other, and follows from `number`.
pub(crate) fn mixed(number: u64) -> u64 {
    SeededRandom::new(number).next_u64()
}

/// A set of small numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    /// Adds `number`; whether it was missing before.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1_u64 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1 + word / 2, 0);
        }
        let missing = self.0[word] & bit == 0;
        self.0[word] |= bit;
        missing
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_tells_its_number_and_any_change() {
        let payloads = Payloads::new(256);
        let mut payload = Vec::new();
        payloads.put(123_456, &mut payload);
        assert_eq!((payload.len(), payloads.number_of(&payload)), (256, Some(123_456)));
        for at in 0..payload.len() {
            payload[at] ^= 1;
            assert_ne!(payloads.number_of(&payload), Some(123_456), "{at}");
            payload[at] ^= 1;
        }
        assert_eq!(payloads.number_of(b""), None);
    }

    #[test]
    fn payloads_differ() {
        let payloads = Payloads::new(64);
        let of = |number| {
            let mut payload = Vec::new();
            payloads.put(number, &mut payload);
            payload[NUMBER_BYTES..].to_vec()
        };
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_piece_of_a_stream_is_known_by_its_position() {
        let payloads = Payloads::new(40);
        let mut stream = Vec::new();
        (0..5).for_each(|number| payloads.put(number, &mut stream));
        for from in 0..stream.len() {
            for to in from..stream.len() {
                assert!(payloads.are_at(0, from as u64, &stream[from..to]), "{from} {to}");
            }
        }
        assert!(payloads.are_at(2, 5, &stream[85..]));
        assert!(!payloads.are_at(0, 1, &stream));
    }

    #[test]
    fn a_set_of_numbers_knows_what_came_twice() {
        let mut numbers = Numbers::default();
        assert!(numbers.insert(1000) && numbers.insert(0));
        assert!(!numbers.insert(1000));
        assert!(numbers.contains(0) && !numbers.contains(999) && !numbers.contains(1 << 40));
    }
}
