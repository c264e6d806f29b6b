//! The owner's header of a group's checkpoint: one part for each crate that keeps state in it.
//!
//! # Format
//! Parts with rising numbers: one byte, the number; four bytes, the length, little-endian; and the content. Each
//! content begins with a version of its own. `docs/format/commands.md` has the register.

use log::NewerVersion;

/// The number of the part of the streams.
const STREAMS: u8 = 1;

/// What a group's owners keep in the header of its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerHeader<'a> {
    /// As [`stream::GroupState::encode_header`] writes it.
    pub streams: &'a [u8],
}

impl<'a> OwnerHeader<'a> {
    /// All parts.
    ///
    /// # Panics
    /// If a part is not below 4 GiB.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.streams.len() + 5);
        bytes.push(STREAMS);
        let length = u32::try_from(self.streams.len()).expect("a header is below 4 GiB");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(self.streams);
        bytes
    }

    /// Reads them back. A checksum has vouched for the bytes.
    ///
    /// # Errors
    /// [`NewerVersion`] if there is a part that this version does not know.
    ///
    /// # Panics
    /// If the bytes are no parts: a defect of ours.
    pub(crate) fn decode(mut bytes: &'a [u8]) -> Result<Self, NewerVersion> {
        let mut streams = None;
        while let Some((&number, rest)) = bytes.split_first() {
            let (length, rest) = rest.split_first_chunk().expect("a part has a length");
            let length = u32::from_le_bytes(*length) as usize;
            let (content, rest) = rest.split_at_checked(length).expect("a part is whole");
            match number {
                STREAMS => streams = Some(content),
                _ => {
                    let what = format_args!("part {number} of a checkpoint's header");
                    return Err(NewerVersion::new(what));
                }
            }
            bytes = rest;
        }
        Ok(Self { streams: streams.expect("a checkpoint has the part of the streams") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_bytes_for_ever() {
        let header = OwnerHeader { streams: b"\x01\x02" };
        let bytes = header.encode();
        assert_eq!(bytes, b"\x01\x02\0\0\0\x01\x02");
        assert_eq!(OwnerHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn a_part_of_a_newer_version_is_refused_by_its_number() {
        let newer = OwnerHeader::decode(b"\x01\0\0\0\0\x05\x01\0\0\0\x01").unwrap_err();
        assert_eq!(newer.what, "part 5 of a checkpoint's header");
    }
}
