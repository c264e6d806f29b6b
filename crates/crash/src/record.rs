//! Records that say of themselves what they are.
//!
//! An append carries one or more records. Each names its stream, its writer, the number of the writer's
//! append, and its part of that append. A checksum covers all of that and the payload. So the bytes of
//! a stream after a crash can be told apart: whole, torn, of another stream, or repeated. The bytes of
//! an append follow from the seed of the run and its numbers, so that a repeat after a crash sends the
//! same.
//!
//! # Format
//! `STREAM WRITER NUMBER PART PARTS CRC PAYLOAD`, in text followed by a line feed, in JSON inside
//! `{"r":"…"}` and followed by the comma that the server stores, in binary after 0xB1 and its length.

use crate::numbers::Numbers;
use xxhash_rust::xxh3::xxh3_64;

/// What a stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Json,
    Binary,
    /// Text, one short line an append.
    Small,
}

/// Which append of which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AppendId {
    pub(crate) stream: u32,
    pub(crate) writer: u32,
    pub(crate) number: u64,
}

/// The bytes of one append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Append {
    /// As they are sent.
    pub(crate) body: Vec<u8>,
    /// How many the stream gets by them.
    pub(crate) stored_bytes: u64,
    /// The hash of what the stream gets.
    pub(crate) hash: u64,
}

/// One append as it was found in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: AppendId,
    /// Position of the first byte.
    pub(crate) start: u64,
    /// Position after the last byte.
    pub(crate) end: u64,
    /// The hash of the bytes.
    pub(crate) hash: u64,
}

const BINARY_MARK: u8 = 0xB1;
const JSON_OPEN: &[u8] = b"{\"r\":\"";
const JSON_CLOSE: &[u8] = b"\"},";
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
/// Below this is a payload of [`Kind::Small`].
const SMALL_BYTES_MAX: usize = 200;
const FIELD_COUNT: usize = 6;

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Text, Self::Json, Self::Binary];

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Text | Self::Small => "text/plain",
            Self::Json => "application/json",
            Self::Binary => "application/octet-stream",
        }
    }

    /// The bytes that a stream holds for what an answer shows of them.
    ///
    /// # Errors
    /// If the answer of a JSON stream is no array.
    pub(crate) fn stored(self, shown: &[u8]) -> Result<Vec<u8>, String> {
        if self != Self::Json {
            return Ok(shown.to_vec());
        }
        let inside = shown.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
        match inside {
            Some(b"") => Ok(Vec::new()),
            Some(inside) => Ok([inside, b","].concat()),
            None => Err(format!("a JSON answer of {} bytes is no array", shown.len())),
        }
    }

    fn frame(self, out: &mut Vec<u8>, inner: &[u8]) {
        match self {
            Self::Text | Self::Small => out.extend_from_slice(&[inner, b"\n"].concat()),
            Self::Json => out.extend_from_slice(&[JSON_OPEN, inner, JSON_CLOSE].concat()),
            Self::Binary => {
                let length = u32::try_from(inner.len()).expect("records are small");
                out.push(BINARY_MARK);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(inner);
            }
        }
    }

    /// The inside of the first record and the length of all of it.
    fn unframe(self, bytes: &[u8]) -> Option<(&[u8], usize)> {
        match self {
            Self::Text | Self::Small => {
                let end = bytes.iter().position(|byte| *byte == b'\n')?;
                Some((&bytes[..end], end + 1))
            }
            Self::Json => {
                let inside = bytes.strip_prefix(JSON_OPEN)?;
                let end = inside.iter().position(|byte| *byte == b'"')?;
                inside[end..].starts_with(JSON_CLOSE).then_some(())?;
                Some((&inside[..end], JSON_OPEN.len() + end + JSON_CLOSE.len()))
            }
            Self::Binary => {
                let (mark, rest) = bytes.split_first()?;
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = u32::from_le_bytes(*length) as usize;
                let inner = rest.get(..length).filter(|_| *mark == BINARY_MARK)?;
                Some((inner, 5 + length))
            }
        }
    }
}

/// The bytes of an append under the seed of the run.
pub(crate) fn append(kind: Kind, id: AppendId, seed: u64) -> Append {
    let parts = [seed, u64::from(id.stream), u64::from(id.writer), id.number];
    let mut numbers = Numbers::of(parts[0], &parts[1..]);
    let is_small = kind == Kind::Small;
    let count = if is_small || numbers.chance(70) { 1 } else { numbers.within(2, 6) };
    let mut stored = Vec::new();
    for part in 0..count {
        let size = match is_small {
            true => numbers.below(SMALL_BYTES_MAX),
            false => payload_bytes(&mut numbers) / usize::try_from(count).expect("few"),
        };
        let mut payload = numbers.bytes(size);
        if kind != Kind::Binary {
            payload.iter_mut().for_each(|byte| *byte = LETTERS[usize::from(*byte & 63)]);
        }
        let AppendId { stream, writer, number } = id;
        let fields = format!("{stream} {writer} {number} {part} {count} ");
        let crc = crc32c::crc32c_append(crc32c::crc32c(fields.as_bytes()), &payload);
        let inner = [fields.as_bytes(), format!("{crc:08x} ").as_bytes(), &payload].concat();
        kind.frame(&mut stored, &inner);
    }
    let body = match kind {
        Kind::Json => [b"[", &stored[..stored.len() - 1], b"]"].concat(),
        Kind::Text | Kind::Binary | Kind::Small => stored.clone(),
    };
    Append { body, stored_bytes: stored.len() as u64, hash: xxh3_64(&stored) }
}

/// Mostly small, sometimes longer than a window, rarely longer than a small segment.
fn payload_bytes(numbers: &mut Numbers) -> usize {
    let (from, to) = match numbers.within(0, 1000) {
        0..700 => (0, 200),
        700..930 => (200, 8 << 10),
        930..995 => (8 << 10, 80 << 10),
        _ => (200 << 10, 1400 << 10),
    };
    usize::try_from(numbers.within(from, to)).expect("small")
}

/// Cuts the whole of a stream into appends.
///
/// # Errors
/// At the first byte that belongs to no whole append: its position and what is there.
pub(crate) fn parse(kind: Kind, content: &[u8]) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < content.len() {
        let start = at;
        let (id, count) = next_part(kind, content, &mut at, None, 0)?;
        for part in 1..count {
            next_part(kind, content, &mut at, Some(id), part)?;
        }
        let hash = xxh3_64(&content[start..at]);
        found.push(Found { id, start: start as u64, end: at as u64, hash });
    }
    Ok(found)
}

/// The record at `at`, which must be this part of an append, and how many parts there are.
fn next_part(
    kind: Kind,
    content: &[u8],
    at: &mut usize,
    of: Option<AppendId>,
    part: u64,
) -> Result<(AppendId, u64), String> {
    let rest = &content[*at..];
    let shown = || String::from_utf8_lossy(&rest[..rest.len().min(60)]).into_owned();
    let (inner, length) = kind
        .unframe(rest)
        .ok_or_else(|| format!("no record at byte {at} of {}: {:?}", content.len(), shown()))?;
    let (id, found_part, count) = fields(inner).ok_or_else(|| {
        format!("a broken record at byte {at} of {}: {:?}", content.len(), shown())
    })?;
    if found_part != part || of.is_some_and(|of| of != id) {
        return Err(format!(
            "at byte {at} part {part} of {of:?} is expected, and part {found_part} of {id:?} is there"
        ));
    }
    *at += length;
    Ok((id, count))
}

fn fields(inner: &[u8]) -> Option<(AppendId, u64, u64)> {
    let mut pieces = inner.splitn(FIELD_COUNT + 1, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(pieces.next()?).ok();
    let (stream, writer) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let (number, part, count) =
        (text()?.parse().ok()?, text()?.parse().ok()?, text()?.parse().ok()?);
    let checksum = u32::from_str_radix(text()?, 16).ok()?;
    let payload = pieces.next()?;
    let head = format!("{stream} {writer} {number} {part} {count} ");
    let computed = crc32c::crc32c_append(crc32c::crc32c(head.as_bytes()), payload);
    (computed == checksum).then_some((AppendId { stream, writer, number }, part, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> AppendId {
        AppendId { stream: 3, writer: 1, number }
    }

    fn stored(kind: Kind, number: u64) -> Vec<u8> {
        kind.stored(&append(kind, id(number), 9).body).unwrap()
    }

    #[test]
    fn appends_are_found_at_their_places() {
        for kind in Kind::ALL {
            let mut content = Vec::new();
            let mut wanted = Vec::new();
            for number in 0..50 {
                let append = append(kind, id(number), 9);
                let start = content.len() as u64;
                content.extend(stored(kind, number));
                let end = start + append.stored_bytes;
                wanted.push(Found { id: id(number), start, end, hash: append.hash });
            }
            assert_eq!(parse(kind, &content).unwrap(), wanted);
        }
    }

    #[test]
    fn any_flipped_byte_is_noticed() {
        for kind in Kind::ALL {
            let content = [stored(kind, 1), stored(kind, 2)].concat();
            let whole = parse(kind, &content).unwrap();
            for at in 0..content.len().min(400) {
                let mut broken = content.clone();
                broken[at] ^= 1;
                assert_ne!(parse(kind, &broken).ok(), Some(whole.clone()), "{kind:?} at {at}");
            }
        }
    }

    #[test]
    fn a_torn_append_is_noticed() {
        let of_several = (0..100).find(|number| {
            stored(Kind::Text, *number).iter().filter(|byte| **byte == b'\n').count() > 1
        });
        let content = stored(Kind::Text, of_several.unwrap());
        let first = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert!(parse(Kind::Text, &content[..first]).unwrap_err().contains("no record at byte"));
        assert!(parse(Kind::Text, &content[first..]).unwrap_err().contains("is expected"));
    }
}
