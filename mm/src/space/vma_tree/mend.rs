//! Updating the recorded gaps: a change in a leaf may change the largest gap of each node above it.
//!
//! An update goes up the tree until the largest gap of a node does not change. The update looks at
//! all children of a node only if the gap that shrank may have been the largest gap in the node.

use super::VmaTree;
use super::node::{GAP_MAX, NONE, Node};
use super::path::Path;
use crate::machine::Machine;

impl<M: Machine> VmaTree<M> {
    /// Raises the gaps recorded in the nodes of `path`, after a gap (free space between mappings)
    /// of `gap` pages has appeared in the leaf of `path`.
    #[inline]
    pub(super) fn gap_came(&self, path: &Path, gap: u64) {
        if gap.min(GAP_MAX) > path.gap {
            self.raise(path, gap);
        }
    }

    /// Raises the gap recorded for the leaf of `path`, and those recorded for the nodes above it,
    /// to at least `gap`.
    fn raise(&self, path: &Path, gap: u64) {
        let gap = gap.min(GAP_MAX);
        for level in (0..path.levels()).rev() {
            let (id, slot) = path.step(level);
            let node = self.node(id);
            let (child, was) = node.child(slot);
            if was >= gap {
                return;
            }
            node.set_child(slot, child, gap);
        }
    }

    /// Updates the gaps recorded in the nodes of `path`, after a gap (free space between mappings)
    /// in the leaf of `path` has shrunk. Before, the gap had `gap` pages.
    #[inline]
    pub(super) fn gap_went(&self, path: &Path, gap: u64) {
        if gap.min(GAP_MAX) == path.gap {
            self.mend(path);
        }
    }

    /// Updates the largest gaps recorded in the nodes of `path`, after any change in the leaf of
    /// `path`.
    pub(super) fn mend(&self, path: &Path) {
        if path.levels() > 0 {
            let gap = self.gap_of_leaf(self.node(path.leaf));
            self.mend_from(path, path.levels(), gap);
        }
    }

    /// Updates the largest gaps recorded in the nodes above, after any change to the children of
    /// the inner node at level `depth` of `path`.
    pub(super) fn mend_above(&self, path: &Path, depth: usize) {
        if depth > 0 {
            let gap = self.node(path.step(depth).0).widest_child();
            self.mend_from(path, depth, gap);
        }
    }

    /// Records `gap` as the largest gap of the node that `path` reaches at level `depth`, and
    /// updates the gaps recorded above that node.
    fn mend_from(&self, path: &Path, depth: usize, gap: u64) {
        let mut gap = gap.min(GAP_MAX);
        for level in (0..depth).rev() {
            let (id, slot) = path.step(level);
            let node = self.node(id);
            let (child, was) = node.child(slot);
            if was == gap {
                return;
            }
            node.set_child(slot, child, gap);
            if level > 0 {
                let (above, slot) = path.step(level - 1);
                let widest = self.node(above).child(slot).1;
                gap = if gap > widest {
                    gap
                } else if was == widest {
                    node.widest_child()
                } else {
                    return;
                };
            }
        }
    }

    /// Updates the recorded gap of the leaf after `leaf`, because the first gap of that next leaf
    /// begins in `leaf`.
    pub(super) fn mend_after(&self, leaf: &Node<M>) {
        let after = leaf.links().1;
        if after != NONE {
            self.mend(&self.path(self.node(after).key(0)));
        }
    }

    /// Returns the largest gap in the subtree of node `id`, which has `levels` levels below it.
    pub(super) fn gap_of(&self, id: u32, levels: usize) -> u64 {
        let node = self.node(id);
        if levels > 0 {
            node.widest_child()
        } else {
            self.gap_of_leaf(node)
        }
    }

    fn gap_of_leaf(&self, leaf: &Node<M>) -> u64 {
        leaf.widest_entry(self.end_before(leaf, 0))
    }
}
