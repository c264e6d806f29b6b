//! Decimal numbers as text.

/// The digits of a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    #[inline]
    pub(crate) fn new(mut value: u64) -> Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return Self { digits, start };
            }
        }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Appends `value`.
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Decimal::new(value).as_bytes());
}
