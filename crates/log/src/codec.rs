//! Fixed-width numbers in little-endian byte order, varints, and sealed headers: the alphabet of
//! every format here.
//!
//! # Repair
//! A header whose checksum fails is read with each of its bits flipped in turn. Codewords of CRC-32C
//! of this length differ in at least six bits, always an even number. So at most one flip can fit.
//! Damage of two, three, four or any even number of bits is never taken for one bit. Other garbage
//! passes with a chance of 512 : 2³² for 64 bytes, before any look at the fields.

/// Largest index, epoch, batch or file number that is believed: the next ones can be counted, and no
/// log comes anywhere near.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 1;

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
#[inline]
pub(crate) fn seal_header<const N: usize>(header: &mut [u8; N], seed: &[u8]) {
    seal_bytes(header, seed);
}

/// As [`seal_header`], for what has another length each time.
#[inline]
pub(crate) fn seal_bytes(header: &mut [u8], seed: &[u8]) {
    let end = header.len() - 4;
    let crc = header_crc(&header[..end], seed);
    put(header, end, &crc.to_le_bytes());
}

/// Whether the last four bytes of `header` are what [`seal_header`] wrote.
pub(crate) fn header_is_sealed(header: &[u8], seed: &[u8]) -> bool {
    is_sealed(header, crc32c::crc32c(seed))
}

fn is_sealed(header: &[u8], seed_crc: u32) -> bool {
    let end = header.len() - 4;
    crc32c::crc32c_append(seed_crc, &header[..end]) == u32_at(header, end)
}

#[inline]
fn header_crc(covered: &[u8], seed: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(seed), covered)
}

/// What a sealed header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsealed<T> {
    pub(crate) value: T,
    /// One flipped bit was put right to read it.
    pub(crate) is_repaired: bool,
}

/// Decodes a header that [`seal_header`] has sealed, also if one of its bits has flipped since.
///
/// `decode` refuses fields that make no sense at this place: the last word on a repair.
pub(crate) fn unseal<T>(
    header: &[u8],
    seed: &[u8],
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<Unsealed<T>> {
    let seed_crc = crc32c::crc32c(seed);
    if is_sealed(header, seed_crc) {
        return decode(header).map(|value| Unsealed { value, is_repaired: false });
    }
    let repaired = repair(header, seed_crc)?;
    decode(&repaired).map(|value| Unsealed { value, is_repaired: true })
}

/// The header with the only bit flipped that makes its checksum right.
fn repair(header: &[u8], seed_crc: u32) -> Option<Vec<u8>> {
    let mut header = header.to_vec();
    let mut found = None;
    for bit in 0..header.len() * 8 {
        header[bit / 8] ^= 1 << (bit % 8);
        if is_sealed(&header, seed_crc) && found.replace(bit).is_some() {
            return None;
        }
        header[bit / 8] ^= 1 << (bit % 8);
    }
    let bit = found?;
    header[bit / 8] ^= 1 << (bit % 8);
    Some(header)
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

    fn sealed() -> [u8; 64] {
        let mut header = [0x5a; 64];
        seal_header(&mut header, b"seed");
        header
    }

    fn read(header: &[u8], seed: &[u8]) -> Option<Unsealed<Vec<u8>>> {
        unseal(header, seed, |bytes| Some(bytes.to_vec()))
    }

    #[test]
    fn any_one_flipped_bit_is_put_right() {
        let intact = read(&sealed(), b"seed").unwrap();
        assert_eq!((&intact.value[..], intact.is_repaired), (&sealed()[..], false));
        for bit in 0..512 {
            let mut header = sealed();
            header[bit / 8] ^= 1 << (bit % 8);
            let repaired = read(&header, b"seed").unwrap();
            assert_eq!((&repaired.value[..], repaired.is_repaired), (&sealed()[..], true));
        }
    }

    #[test]
    fn two_flipped_bits_are_never_taken_for_one() {
        for first in 0..511 {
            let mut header = sealed();
            let second = first + 1 + (first * 7) % (511 - first);
            header[first / 8] ^= 1 << (first % 8);
            header[second / 8] ^= 1 << (second % 8);
            assert_eq!(read(&header, b"seed"), None, "bits {first} and {second}");
        }
    }

    #[test]
    fn a_header_of_another_place_is_not_repaired() {
        // Seeds that differ in one bit, as consecutive numbers do.
        assert_eq!(read(&sealed(), b"seee"), None);
        assert_eq!(read(&sealed(), b"another"), None);
        assert_eq!(read(&[0; 64], b"seed"), None);
    }
}
