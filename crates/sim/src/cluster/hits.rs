//! Which nodes were damaged.

/// The nodes that were damaged or have lost their disk, and when.
#[derive(Debug, Default)]
pub(super) struct Damages(Vec<(usize, u64)>);

impl Damages {
    pub(super) fn note(&mut self, node: usize, at_us: u64) {
        self.0.push((node, at_us));
    }

    /// Whether a node was ever hit.
    pub(super) fn has_hit(&self, node: usize) -> bool {
        self.0.iter().any(|(hit, _)| *hit == node)
    }

    /// Whether a node may have had what was begun then, and has lost it.
    pub(super) fn may_have_cost(&self, node: usize, begun_us: u64) -> bool {
        self.0.iter().any(|(hit, at_us)| *hit == node && begun_us <= *at_us)
    }

    /// The node that was hit last.
    pub(super) fn last(&self) -> Option<usize> {
        self.0.last().map(|(node, _)| *node)
    }
}
