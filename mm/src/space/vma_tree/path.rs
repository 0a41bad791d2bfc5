//! The path to a leaf of the tree of mappings. Only the CPU that may change the tree uses a path,
//! so no other CPU changes the tree while a path is in use.

use super::VmaTree;
use super::node::{self, GAP_MAX, NONE, Node};
use super::{Place, Vma};
use crate::machine::Machine;
use crate::units::Vpn;

/// The largest number of levels of inner nodes. Each level needs at least sixteen times as many
/// changes of the tree as the level before. So no tree ever needs more levels than this.
const LEVELS_MAX: usize = 12;

/// The path from the root to a leaf: each inner node on it, and the slot of the child that the path
/// goes on to.
///
/// A path is filled in place, because it is too large to be moved.
pub(super) struct Path {
    steps: [Branch; LEVELS_MAX],
    len: usize,
    pub(super) leaf: u32,
    /// The largest gap in the leaf, as its parent records it. If the leaf is the root, no node
    /// records its gap, and this field is [`GAP_MAX`].
    pub(super) gap: u64,
}

/// An inner node, and the slot of the child that the path follows.
#[derive(Clone, Copy)]
struct Branch {
    id: u32,
    slot: u32,
}

impl Path {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            steps: [Branch { id: NONE, slot: 0 }; LEVELS_MAX],
            len: 0,
            leaf: NONE,
            gap: GAP_MAX,
        }
    }

    /// Returns the number of inner nodes on the path.
    #[inline]
    pub(super) fn levels(&self) -> usize {
        self.len
    }

    /// Returns the inner node at `level`, counted from the root, and the slot of the child that the
    /// path goes on to.
    #[inline]
    pub(super) fn step(&self, level: usize) -> (u32, usize) {
        let Branch { id, slot } = self.steps[level];
        (id, slot as usize)
    }

    pub(super) fn set(&mut self, level: usize, id: u32, slot: usize) {
        let slot = u32::try_from(slot).expect("a node has few slots");
        self.steps[level] = Branch { id, slot };
    }
}

impl<M: Machine> VmaTree<M> {
    /// Returns the path to the leaf responsible for `page`.
    pub(super) fn path(&self, page: u64) -> Path {
        let mut path = Path::new();
        self.go(&mut path, page);
        path
    }

    /// Finds the leaf whose range includes `page`, and records the path to this leaf in `path`,
    /// which must be new. Returns the leaf.
    #[inline]
    pub(super) fn go(&self, path: &mut Path, page: u64) -> &Node<M> {
        let (root, levels) = self.top();
        (path.leaf, path.len) = (root, levels);
        let mut node = self.node(root);
        for step in &mut path.steps[..levels] {
            let slot = node.route(page);
            let child = node.child(slot);
            *step = Branch {
                id: path.leaf,
                slot: node::low(slot as u64),
            };
            (path.leaf, path.gap) = child;
            node = self.node(child.0);
        }
        node
    }

    /// Returns the mapping before `slot` of `leaf`, which may be in the previous leaf.
    #[inline]
    pub(super) fn before(&self, leaf: &Node<M>, slot: usize) -> Option<Vma> {
        match slot {
            0 => self.undisturbed(self.last_of(leaf.links().0)),
            slot => Some(leaf.vma(slot - 1)),
        }
    }

    /// Returns the end of the mapping that [`VmaTree::before`] returns, or 0 if there is none.
    #[inline]
    pub(super) fn end_before(&self, leaf: &Node<M>, slot: usize) -> u64 {
        if slot > 0 {
            return leaf.vma(slot - 1).end.0;
        }
        match leaf.links().0 {
            NONE => 0,
            before => {
                let before = self.node(before);
                before.vma(before.count() - 1).end.0
            }
        }
    }

    /// Returns the mapping in `slot` of `leaf` or, if the slot is unused, the first mapping of the
    /// next leaf.
    #[inline]
    pub(super) fn at_or_after(&self, leaf: &Node<M>, slot: usize) -> Option<Vma> {
        leaf.vma_if_used(slot)
            .or_else(|| self.undisturbed(self.first_of(leaf.links().1)))
    }

    /// Returns the first mapping that ends above `page`. Unlike [`VmaTree::next`], this function
    /// needs no retry, because only this CPU may change the tree.
    pub(super) fn next_now(&self, page: Vpn) -> Option<Vma> {
        self.undisturbed(self.look_up(page))
    }

    fn undisturbed(&self, seen: Option<Option<Place<'_, M>>>) -> Option<Vma> {
        seen.expect("no other CPU changes the tree")
            .map(|place| place.vma)
    }
}
