//! The file `CLUSTER`: what a node knows of its cluster before it has talked to any other node.
//!
//! # What
//! A directory with this file belongs to a member of a cluster, and one without it is a cluster of one. The
//! members are those that were known when it was written: they are where a node begins to ask, and no proof of who is one.
//!
//! # Invariants
//! - The node itself is among the members, with the directory's store id.
//! - `revision` rises with each replacement, and `epoch` never falls.
//! - Every byte is covered by one of the two checksums.
//!
//! # Format
//! `docs/format/cluster.md`.

use super::codec::{read_members, write_members};
use super::{Member, check_hello};
use crate::codec::{Reader, Writer};
use crate::identity::NodeNumber;
use crate::link::{Hello, Refusal};
use std::collections::BTreeMap;
use std::fmt;

/// Largest file: all members that there can be, with the longest addresses.
pub const MEMBERSHIP_BYTES_MAX: usize = 1 << 20;

const HEADER_BYTES: usize = 80;
const MAGIC: &[u8; 8] = b"THALWEGC";
const VERSION: u16 = 1;
/// Bytes that are zero.
const SPARE: std::ops::Range<usize> = 68..76;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The cluster: the lineage of the data directories of all its members.
    pub cluster: u64,
    /// Store id of the directory that the file is in.
    pub store: u64,
    /// Groups of the cluster, the meta group not counted.
    pub group_count: u16,
    /// Number of the node.
    pub number: NodeNumber,
    /// The lowest incarnation of a replica here that may vote. Lower ones have lost what they had synced.
    pub incarnation: u64,
    /// The highest epoch that peers may have seen.
    pub epoch: u64,
    /// How often the file was written.
    pub revision: u64,
    /// All members that are known, removed ones too.
    pub members: BTreeMap<NodeNumber, Member>,
}

/// Why bytes are no `CLUSTER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipError {
    /// They are damaged.
    Damaged,
    /// They are intact, and a newer version wrote them.
    Newer {
        /// Position of what is not known.
        position: usize,
    },
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("it is damaged"),
            Self::Newer { position } => {
                write!(f, "a newer version wrote what is at byte {position}; use the newer program")
            }
        }
    }
}

impl std::error::Error for MembershipError {}

impl Membership {
    /// The file of the first node of a cluster, which has no other member yet.
    #[must_use]
    pub fn first(cluster: u64, group_count: u16, member: Member) -> Self {
        let number = NodeNumber::new(1);
        Self {
            cluster,
            store: member.store,
            group_count,
            number,
            incarnation: 1,
            epoch: member.epoch,
            revision: 0,
            members: BTreeMap::from([(number, member)]),
        }
    }

    /// The bytes.
    ///
    /// # Panics
    /// If the node is no member, or there are too many members.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_consistent(), "a node is among its members, and is counted from 1");
        let mut out = vec![0; HEADER_BYTES];
        let mut writer = Writer(&mut out);
        write_members(&mut writer, &self.members);
        assert!(out.len() <= MEMBERSHIP_BYTES_MAX, "{} bytes of members", out.len());
        let (header, members) = out.split_at_mut(HEADER_BYTES);
        let mut put = |position: usize, value: &[u8]| {
            header[position..position + value.len()].copy_from_slice(value);
        };
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &self.group_count.to_le_bytes());
        put(12, &self.number.get().to_le_bytes());
        put(16, &self.cluster.to_le_bytes());
        put(24, &self.store.to_le_bytes());
        put(32, &self.incarnation.to_le_bytes());
        put(40, &self.epoch.to_le_bytes());
        put(48, &self.revision.to_le_bytes());
        put(56, &(members.len() as u64).to_le_bytes());
        put(64, &crc32c::crc32c(members).to_le_bytes());
        let crc = crc32c::crc32c(&header[..76]);
        header[76..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// [`MembershipError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MembershipError> {
        let damaged = MembershipError::Damaged;
        let (header, members) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(damaged)?;
        let short = |position: usize| u16::from_le_bytes([header[position], header[position + 1]]);
        let word = |position: usize| {
            u32::from_le_bytes(header[position..position + 4].try_into().expect("four bytes"))
        };
        let long = |position: usize| {
            u64::from_le_bytes(header[position..position + 8].try_into().expect("eight bytes"))
        };
        if header[..8] != *MAGIC || word(76) != crc32c::crc32c(&header[..76]) {
            return Err(damaged);
        }
        if short(8) != VERSION {
            return Err(MembershipError::Newer { position: 8 });
        }
        let mut spare = [14, 15].into_iter().chain(SPARE);
        if let Some(position) = spare.find(|position| header[*position] != 0) {
            return Err(MembershipError::Newer { position });
        }
        if long(56) != members.len() as u64 || word(64) != crc32c::crc32c(members) {
            return Err(damaged);
        }
        let membership = Self {
            group_count: short(10),
            number: NodeNumber::new(short(12)),
            cluster: long(16),
            store: long(24),
            incarnation: long(32),
            epoch: long(40),
            revision: long(48),
            members: members_of(members)?,
        };
        if membership.is_consistent() { Ok(membership) } else { Err(damaged) }
    }

    /// The node itself.
    ///
    /// # Panics
    /// Never: it is among the members.
    #[must_use]
    pub fn own(&self) -> &Member {
        self.members.get(&self.number).expect("a node is among its members")
    }

    /// Whether a node that has proved that it knows the secret may talk to this one.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check_hello(&self, hello: &Hello) -> Result<(), Refusal> {
        check_hello(&self.members, hello)
    }

    /// A member has said hello. Returns whether its epoch is higher than any before: from now on a lower one is an old copy
    /// of its disk.
    pub fn note_hello(&mut self, hello: &Hello) -> bool {
        let Some(member) = hello.number.and_then(|number| self.members.get_mut(&number)) else {
            return false;
        };
        let is_higher = member.store == hello.store && hello.epoch > member.epoch;
        if is_higher {
            member.epoch = hello.epoch;
        }
        is_higher
    }

    fn is_consistent(&self) -> bool {
        let own = self.members.get(&self.number);
        let is_counted = (1..1 << 48).contains(&self.incarnation) && self.group_count > 0;
        is_counted && own.is_some_and(|own| own.store == self.store)
    }
}

/// The members behind an intact header: what does not decode under its checksum was written by a newer version.
fn members_of(bytes: &[u8]) -> Result<BTreeMap<NodeNumber, Member>, MembershipError> {
    let mut reader = Reader::new(bytes);
    let members = read_members(&mut reader).and_then(|members| reader.end().map(|()| members));
    members.map_err(|error| MembershipError::Newer { position: HEADER_BYTES + error.position })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{MEMBERS_MAX, MemberState};

    fn member(store: u64, address: &str) -> Member {
        Member {
            store,
            peer_address: address.to_owned(),
            client_address: String::new(),
            state: MemberState::Active,
            version: 1,
            epoch: 3,
        }
    }

    fn membership() -> Membership {
        let first = Membership::first(0xc1, 64, member(0xc1, "10.0.0.1:4439"));
        let members = [(1, 0xc1, "10.0.0.1:4439"), (2, 7, "n2:4439"), (3, 9, "[::1]:4439")];
        let members = members
            .map(|(number, store, address)| (NodeNumber::new(number), member(store, address)));
        Membership {
            store: 7,
            number: NodeNumber::new(2),
            incarnation: 2,
            epoch: 5,
            revision: 6,
            members: members.into(),
            ..first
        }
    }

    #[test]
    fn the_bytes_of_a_membership_never_change() {
        let bytes = membership().encode();
        assert_eq!(bytes, *include_bytes!("../../testdata/membership.golden"));
        assert_eq!(Membership::decode(&bytes), Ok(membership()));
        assert_eq!(membership().own().peer_address, "n2:4439");
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_damage() {
        let bytes = membership().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Membership::decode(&damaged), Err(MembershipError::Damaged), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let cut = Membership::decode(&bytes[..length]);
            assert_eq!(cut, Err(MembershipError::Damaged), "{length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Membership::decode(&longer), Err(MembershipError::Damaged));
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let members = crc32c::crc32c(&bytes[HEADER_BYTES..]);
        bytes[64..68].copy_from_slice(&members.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..76]);
        bytes[76..80].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn what_a_newer_version_wrote_is_no_damage() {
        for position in [8, 14, 15, 68, 75, HEADER_BYTES + 1] {
            let mut bytes = membership().encode();
            bytes[position] = 0x7f;
            let read = Membership::decode(&sealed(bytes));
            assert!(matches!(read, Err(MembershipError::Newer { .. })), "{position}: {read:?}");
        }
    }

    #[test]
    fn a_node_that_is_not_among_its_members_is_damage() {
        for (position, value) in [(12, 4), (10, 0), (24, 8), (32, 0)] {
            let mut bytes = membership().encode();
            bytes[position] = value;
            let read = Membership::decode(&sealed(bytes));
            assert_eq!(read, Err(MembershipError::Damaged), "{position}");
        }
    }

    #[test]
    fn a_member_whose_epoch_falls_is_an_old_copy_of_its_disk() {
        let mut membership = membership();
        let number = NodeNumber::new(3);
        let hello = |epoch| Hello {
            versions: (1, 1),
            cluster: 0xc1,
            store: 9,
            number: Some(number),
            shard: (0, 1),
            group_count: 64,
            epoch,
            features: 0,
            nonce: [0; 16],
            class: crate::link::Class::Raft,
        };
        assert_eq!(membership.check_hello(&hello(4)), Ok(()));
        assert!(membership.note_hello(&hello(4)) && !membership.note_hello(&hello(4)));
        let refused = Err(Refusal::OldDisk { theirs: 3, known: 4 });
        assert_eq!(membership.check_hello(&hello(3)), refused);
        let other = Hello { store: 8, ..hello(9) };
        assert_eq!(membership.check_hello(&other), Err(Refusal::OtherStore { number }));
        assert!(!membership.note_hello(&other));
    }

    #[test]
    fn all_members_that_there_can_be_fit() {
        let longest = "x".repeat(super::super::ADDRESS_BYTES_MAX);
        let mut membership = membership();
        for number in 1..=MEMBERS_MAX {
            let member = Member { client_address: longest.clone(), ..member(7, &longest) };
            membership.members.insert(NodeNumber::new(number), member);
        }
        let bytes = membership.encode();
        assert_eq!(Membership::decode(&bytes), Ok(membership));
    }
}
