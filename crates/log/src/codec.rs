//! Fixed-width numbers in little-endian byte order, and varints: the alphabet of every format here.

/// The `N` bytes of `bytes` at `position`.
///
/// # Panics
/// If `bytes` is too short: callers decode fixed-size headers of checked length.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], position: usize) -> [u8; N] {
    bytes[position..position + N].try_into().expect("the range has N bytes")
}

pub(crate) fn u16_at(bytes: &[u8], position: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, position))
}

pub(crate) fn u32_at(bytes: &[u8], position: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, position))
}

pub(crate) fn u64_at(bytes: &[u8], position: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, position))
}

pub(crate) fn put(bytes: &mut [u8], position: usize, value: &[u8]) {
    bytes[position..position + value.len()].copy_from_slice(value);
}

/// Writes `crc` of the rest of a header, seeded with `seed`, into its last four bytes.
pub(crate) fn seal_header(header: &mut [u8], seed: &[u8]) {
    let end = header.len() - 4;
    let crc = header_crc(&header[..end], seed);
    put(header, end, &crc.to_le_bytes());
}

/// Whether the last four bytes of `header` are what [`seal_header`] wrote.
pub(crate) fn header_is_sealed(header: &[u8], seed: &[u8]) -> bool {
    let end = header.len() - 4;
    header_crc(&header[..end], seed) == u32_at(header, end)
}

fn header_crc(covered: &[u8], seed: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(seed), covered)
}

/// Appends `value` as LEB128: seven bits a byte, low bits first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint off the front of `bytes`; `None` if it does not end or is too long.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Folds a signed difference into a small unsigned number.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Undoes [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut rest = &out[..];
            assert_eq!(take_varint(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
        assert_eq!(take_varint(&mut &[0x80][..]), None);
        assert_eq!(take_varint(&mut &[0xff; 20][..]), None);
    }

    #[test]
    fn differences_come_back() {
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-1), 1);
    }
}
