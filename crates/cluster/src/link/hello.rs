//! What a node says of itself, and the proof that it may.

use crate::identity::NodeNumber;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The oldest version of frames that this program speaks.
pub const VERSION_MIN: u16 = 1;

/// The newest one.
pub const VERSION_MAX: u16 = 1;

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 96;

/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32;

const MAGIC: &[u8; 4] = b"ThPe";

/// What a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Messages of replicas, forwarded requests, barriers.
    Raft,
    /// Snapshots and other large things.
    Bulk,
}

/// What a node says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The oldest and the newest version of frames that it speaks.
    pub versions: (u16, u16),
    /// Its cluster: the lineage that seeds the chunks of all its nodes.
    pub cluster: u64,
    /// Its data directory's random id.
    pub store: u64,
    /// Its number; `None` while it joins.
    pub number: Option<NodeNumber>,
    /// The shard that says it, and how many there are.
    pub shard: (u16, u16),
    /// Groups of the cluster.
    pub group_count: u16,
    /// How often its data directory was opened. Never falls, unless an old copy of the disk came back.
    pub epoch: u64,
    /// Reserved: no feature has a bit yet.
    pub features: u64,
    /// Random bytes of this link alone.
    pub nonce: [u8; 16],
    /// What the link carries.
    pub class: Class,
}

impl Hello {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        let mut put = |position: usize, value: &[u8]| {
            out[position..position + value.len()].copy_from_slice(value);
        };
        put(0, MAGIC);
        put(4, &self.versions.0.to_le_bytes());
        put(6, &self.versions.1.to_le_bytes());
        put(8, &self.cluster.to_le_bytes());
        put(16, &self.store.to_le_bytes());
        put(24, &self.number.map_or(0, NodeNumber::get).to_le_bytes());
        put(26, &self.shard.0.to_le_bytes());
        put(28, &self.shard.1.to_le_bytes());
        put(30, &self.group_count.to_le_bytes());
        put(32, &self.epoch.to_le_bytes());
        put(40, &self.features.to_le_bytes());
        put(48, &self.nonce);
        put(64, &[u8::from(self.class == Class::Bulk)]);
        out
    }

    /// The hello that these bytes are; `None` if this is no node of any version.
    ///
    /// Fields that a newer version may use, in bytes 65 to 96, are not looked at: the versions are compared first.
    #[must_use]
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let short = |position: usize| u16::from_le_bytes([bytes[position], bytes[position + 1]]);
        let long = |position: usize| {
            u64::from_le_bytes(bytes[position..position + 8].try_into().expect("eight bytes"))
        };
        let class = match bytes[64] {
            0 => Class::Raft,
            1 => Class::Bulk,
            _ => return None,
        };
        let number = short(24);
        let hello = Self {
            versions: (short(4), short(6)),
            cluster: long(8),
            store: long(16),
            number: (number > 0).then(|| NodeNumber::new(number)),
            shard: (short(26), short(28)),
            group_count: short(30),
            epoch: long(32),
            features: long(40),
            nonce: bytes[48..64].try_into().expect("sixteen bytes"),
            class,
        };
        let is_possible = hello.versions.0 <= hello.versions.1 && hello.shard.0 < hello.shard.1;
        (bytes[..4] == *MAGIC && is_possible).then_some(hello)
    }

    /// The newest version that both speak.
    #[must_use]
    pub fn common_version(&self, other: &Self) -> Option<u16> {
        let newest = self.versions.1.min(other.versions.1);
        (newest >= self.versions.0 && newest >= other.versions.0).then_some(newest)
    }
}

/// What all nodes of a cluster know and nobody else does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The side that proves something: the two proofs of a link differ.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Dialler,
    Acceptor,
    /// An acceptor that refuses a node which was removed.
    Remover,
}

impl Secret {
    /// Wraps the bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be written into a file that only the owner reads, or into a token.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn prove(&self, side: Side, dialler: &Hello, acceptor: &Hello) -> [u8; PROOF_BYTES] {
        self.mac(side, dialler, acceptor).finalize().into_bytes().into()
    }

    /// Compares in a time that does not depend on where the first difference is.
    pub(super) fn verify(
        &self,
        side: Side,
        (dialler, acceptor): (&Hello, &Hello),
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        self.mac(side, dialler, acceptor).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, dialler: &Hello, acceptor: &Hello) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(match side {
            Side::Dialler => b"thalweg dialler 1",
            Side::Acceptor => b"thalweg acceptor1",
            Side::Remover => b"thalweg remover 1",
        });
        mac.update(&dialler.encode());
        mac.update(&acceptor.encode());
        mac
    }
}
