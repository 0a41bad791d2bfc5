//! Consistency checks of a tree of mappings, for tests and checkers.

use core::ops::Range;

use super::node::{GAP_MAX, NONE, Node, SLOTS};
use super::{Editor, VmaTree};
use crate::machine::Machine;

impl<M: Machine> VmaTree<M> {
    /// Checks every node: keys are in order and in the right node, gaps are recorded correctly,
    /// leaves are linked in order, and no mapping is lost.
    ///
    /// # Panics
    /// If the tree is inconsistent, which is a bug.
    pub fn assert_whole(&self, editor: &Editor) {
        let (root, levels) = self.top();
        let mut walk = Walk {
            leaf: NONE,
            end: 0,
            nodes: 0,
            mappings: 0,
        };
        self.assert_node(&mut walk, root, levels, 0..u64::MAX);
        assert_eq!(self.node(walk.leaf).links().1, NONE, "the last leaf");
        assert_eq!(walk.mappings, editor.mappings() as usize);
        assert_eq!(walk.nodes, editor.nodes());
    }

    /// Checks node `id`, which has `levels` levels below it and is responsible for `keys`.
    fn assert_node(&self, walk: &mut Walk, id: u32, levels: usize, keys: Range<u64>) {
        let node = self.node(id);
        let count = node.count();
        assert!((count..=SLOTS).all(|slot| !node.is_used(slot)));
        assert!((1..count).all(|slot| node.key(slot - 1) < node.key(slot)));
        walk.nodes += 1;
        if levels == 0 {
            return walk.leaf(id, node, keys);
        }
        assert!(count > 0, "an inner node has children");
        for slot in 0..count {
            let (child, gap) = node.child(slot);
            let widest = self.gap_of(child, levels - 1).min(GAP_MAX);
            assert_eq!(gap, widest, "level {levels}, child {slot}");
            let from = node.key(slot).max(keys.start);
            let to = node.key(slot + 1).min(keys.end);
            assert!(self.node(child).is_used(0), "no node below is empty");
            self.assert_node(walk, child, levels - 1, from..to);
        }
    }
}

/// The state of a check, which walks from the lowest leaf to the highest.
struct Walk {
    /// The leaf that the walk visited last.
    leaf: u32,
    /// The end of the mapping that the walk visited last, as a page number.
    end: u64,
    nodes: u32,
    mappings: usize,
}

impl Walk {
    fn leaf<M: Machine>(&mut self, id: u32, leaf: &Node<M>, keys: Range<u64>) {
        assert_eq!(leaf.links().0, self.leaf, "the leaf before");
        for vma in leaf.vmas() {
            assert!(keys.contains(&vma.start.0), "in the leaf responsible");
            assert!(self.end <= vma.start.0 && vma.start < vma.end);
            self.end = vma.end.0;
            self.mappings += 1;
        }
        self.leaf = id;
    }
}
