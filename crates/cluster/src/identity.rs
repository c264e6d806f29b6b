//! Nodes and their replicas.

use std::fmt;

/// Number of a node: given by the meta group in the order of joining, from 1, and never given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNumber(u16);

impl NodeNumber {
    /// Wraps a plain number.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for NodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Bits of an incarnation.
const INCARNATION_BITS: u32 = 48;

/// One group's copy on one node: the node's number and which copy it is of that node's.
///
/// A copy that lost anything it had synced never comes back under its old id: what it promised to
/// others is gone with it. Its successor on the same node has the next incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(u64);

impl ReplicaId {
    /// The `incarnation`-th copy on `node`, counted from 1.
    ///
    /// # Panics
    /// If the node's number or the incarnation is 0, or the incarnation has more than 48 bits.
    #[must_use]
    pub const fn new(node: NodeNumber, incarnation: u64) -> Self {
        assert!(node.0 > 0 && incarnation > 0, "nodes and incarnations are counted from 1");
        assert!(incarnation < 1 << INCARNATION_BITS, "an incarnation has 48 bits");
        Self((node.0 as u64) << INCARNATION_BITS | incarnation)
    }

    /// The id that these bits are, if they are one.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let incarnation = bits & ((1 << INCARNATION_BITS) - 1);
        if bits >> INCARNATION_BITS == 0 || incarnation == 0 { None } else { Some(Self(bits)) }
    }

    /// The bits, node first.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The node that it is on.
    #[must_use]
    pub const fn node(self) -> NodeNumber {
        NodeNumber((self.0 >> INCARNATION_BITS) as u16)
    }

    /// Which copy of its node's.
    #[must_use]
    pub const fn incarnation(self) -> u64 {
        self.0 & ((1 << INCARNATION_BITS) - 1)
    }

    /// The copy that takes this one's place on the same node.
    #[must_use]
    pub const fn successor(self) -> Self {
        Self::new(self.node(), self.incarnation() + 1)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node(), self.incarnation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_id_says_its_node_and_incarnation() {
        let id = ReplicaId::new(NodeNumber::new(3), 7);
        assert_eq!((id.node().get(), id.incarnation()), (3, 7));
        assert_eq!(ReplicaId::from_bits(id.bits()), Some(id));
        assert_eq!(id.successor().to_string(), "3.8");
        assert!(id.successor() > id);
    }

    #[test]
    fn bits_without_a_node_or_an_incarnation_are_no_id() {
        assert_eq!(ReplicaId::from_bits(0), None);
        assert_eq!(ReplicaId::from_bits(7), None);
        assert_eq!(ReplicaId::from_bits(3 << 48), None);
    }
}
