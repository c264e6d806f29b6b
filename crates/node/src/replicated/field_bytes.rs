//! Parts of what nodes say to each other, as bytes.

use bytes::{Buf, BufMut, Bytes};
use model::{ByteOffset, GroupId, StreamId, StreamKey};

/// Numbers that may be missing are preceded by 1, and 0 stands for one that is.
pub(super) fn put_option(number: Option<u64>, out: &mut Vec<u8>) {
    out.put_u8(u8::from(number.is_some()));
    number.into_iter().for_each(|number| out.put_u64_le(number));
}

pub(super) fn take_option(bytes: &mut Bytes) -> Option<Option<u64>> {
    Some(match take_flag(bytes)? {
        false => None,
        true => Some(bytes.try_get_u64_le().ok()?),
    })
}

pub(super) fn put_bytes(part: &[u8], out: &mut Vec<u8>) {
    out.put_u32_le(u32::try_from(part.len()).expect("paths and fields are short"));
    out.extend_from_slice(part);
}

pub(super) fn take_bytes(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

pub(super) fn put_key(key: StreamKey, out: &mut Vec<u8>) {
    out.put_u16_le(key.group.get());
    out.put_u64_le(key.stream.get());
}

pub(super) fn take_key(bytes: &mut Bytes) -> Option<StreamKey> {
    let group = GroupId::new(bytes.try_get_u16_le().ok()?);
    Some(StreamKey { group, stream: StreamId::new(bytes.try_get_u64_le().ok()?) })
}

pub(super) fn take_offset(bytes: &mut Bytes) -> Option<ByteOffset> {
    bytes.try_get_u64_le().ok().map(ByteOffset::new)
}

pub(super) fn take_flag(bytes: &mut Bytes) -> Option<bool> {
    match bytes.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
