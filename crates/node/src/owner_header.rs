//! The owner's header of a group's checkpoint: one part for each crate that keeps state in it.
//!
//! # Format
//! Parts with rising numbers: one byte, the number; four bytes, the length, little-endian; and the content. Each
//! content begins with a version of its own. `docs/format/commands.md` has the register.

use cluster::{Configuration, Meta};
use log::NewerVersion;

/// The number of the part of the streams.
const STREAMS: u8 = 1;

/// The number of the part of the cluster: only a replicated group has it.
const CLUSTER: u8 = 2;

/// The number of the part with the cluster's own state: only the group of that has it.
const META: u8 = 3;

/// Version of the part of the cluster.
const CLUSTER_VERSION: u8 = 1;

/// What a group's owners keep in the header of its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerHeader<'a> {
    /// As [`stream::GroupState::encode_header`] writes it.
    pub streams: &'a [u8],
    /// As [`configuration_part`] writes it.
    pub cluster: Option<&'a [u8]>,
    /// As [`cluster::Meta::encode`] writes it.
    pub meta: Option<&'a [u8]>,
}

/// The part of the cluster: the voters and learners at the checkpoint's index.
pub(crate) fn configuration_part(configuration: &Configuration) -> Vec<u8> {
    let mut bytes = vec![CLUSTER_VERSION];
    configuration.encode(&mut bytes);
    bytes
}

/// The part with the cluster's own state.
pub(crate) fn meta_part(meta: &Meta) -> Vec<u8> {
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    bytes
}

/// Reads it back.
///
/// # Errors
/// [`NewerVersion`] if a newer version wrote it.
pub(crate) fn decode_meta(part: &[u8]) -> Result<Meta, NewerVersion> {
    Meta::decode(part).map_err(|_| NewerVersion::new(format_args!("the cluster's own state")))
}

/// Reads it back.
///
/// # Errors
/// [`NewerVersion`] if a newer version wrote it.
pub(crate) fn decode_configuration(part: &[u8]) -> Result<Configuration, NewerVersion> {
    let version = part.first().copied().unwrap_or(0);
    let newer = || NewerVersion::new(format_args!("version {version} of a checkpoint's voters"));
    let content = part.get(1..).filter(|_| version == CLUSTER_VERSION).ok_or_else(newer)?;
    Configuration::decode(content).map_err(|_| newer())
}

impl<'a> OwnerHeader<'a> {
    /// All parts.
    ///
    /// # Panics
    /// If a part is not below 4 GiB.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.streams.len() + 5);
        let parts = [(STREAMS, Some(self.streams)), (CLUSTER, self.cluster), (META, self.meta)];
        for (number, content) in parts {
            let Some(content) = content else { continue };
            bytes.push(number);
            let length = u32::try_from(content.len()).expect("a header is below 4 GiB");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(content);
        }
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
        let (mut streams, mut cluster, mut meta) = (None, None, None);
        while let Some((&number, rest)) = bytes.split_first() {
            let (length, rest) = rest.split_first_chunk().expect("a part has a length");
            let length = u32::from_le_bytes(*length) as usize;
            let (content, rest) = rest.split_at_checked(length).expect("a part is whole");
            match number {
                STREAMS => streams = Some(content),
                CLUSTER => cluster = Some(content),
                META => meta = Some(content),
                _ => {
                    let what = format_args!("part {number} of a checkpoint's header");
                    return Err(NewerVersion::new(what));
                }
            }
            bytes = rest;
        }
        let streams = streams.expect("a checkpoint has the part of the streams");
        Ok(Self { streams, cluster, meta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{NodeNumber, ReplicaId};

    #[test]
    fn parts_keep_their_bytes_for_ever() {
        let header = OwnerHeader { streams: b"\x01\x02", cluster: None, meta: None };
        let bytes = header.encode();
        assert_eq!(bytes, b"\x01\x02\0\0\0\x01\x02");
        assert_eq!(OwnerHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn the_voters_of_a_group_keep_their_bytes_for_ever() {
        let voters = [1, 2].map(|node| ReplicaId::new(NodeNumber::new(node), 1));
        let configuration = Configuration::of(&voters);
        let part = configuration_part(&configuration);
        let header = OwnerHeader { streams: b"\x01", cluster: Some(&part), meta: None };
        let bytes = header.encode();
        let golden = [
            1, 1, 0, 0, 0, 1, 2, 21, 0, 0, 0, 1, 2, 129, 128, 128, 128, 128, 128, 64, 129, 128,
            128, 128, 128, 128, 128, 1, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, golden);
        let decoded = OwnerHeader::decode(&bytes).unwrap();
        assert_eq!(decode_configuration(decoded.cluster.unwrap()), Ok(configuration));
        assert!(decode_configuration(&[2]).is_err());
    }

    #[test]
    fn a_part_of_a_newer_version_is_refused_by_its_number() {
        let newer = OwnerHeader::decode(b"\x01\0\0\0\0\x05\x01\0\0\0\x01").unwrap_err();
        assert_eq!(newer.what, "part 5 of a checkpoint's header");
    }
}
