//! The way to a leaf, for who changes the tree: nobody disturbs it.

use super::VmaTree;
use super::node::{GAP_MAX, NONE, Node};
use super::{Place, Vma};
use crate::machine::Machine;
use crate::units::Vpn;

/// Levels of inner nodes. A level more takes at least sixteen times as many changes, so nobody
/// lives to see so many.
const LEVELS_MAX: usize = 12;

/// The way from the root to a leaf: each inner node, and which child was taken.
pub(super) struct Path {
    steps: [(u32, usize); LEVELS_MAX],
    len: usize,
    pub(super) leaf: u32,
    /// What the tree says is the largest gap in the leaf; nothing where the leaf is the root.
    pub(super) gap: u64,
}

impl Path {
    #[inline]
    pub(super) fn steps(&self) -> &[(u32, usize)] {
        &self.steps[..self.len]
    }

    pub(super) fn set(&mut self, level: usize, step: (u32, usize)) {
        self.steps[level] = step;
    }
}

impl<M: Machine> VmaTree<M> {
    /// The way to the leaf responsible for `page`.
    #[inline]
    pub(super) fn path(&self, page: u64) -> Path {
        let (root, levels) = self.top();
        let mut path = Path {
            steps: [(NONE, 0); LEVELS_MAX],
            len: levels,
            leaf: root,
            gap: GAP_MAX,
        };
        for step in &mut path.steps[..levels] {
            let node = self.node(path.leaf);
            let slot = node.route(page);
            *step = (path.leaf, slot);
            (path.leaf, path.gap) = node.child(slot);
        }
        path
    }

    /// The mapping before `slot` of `leaf`, perhaps in the leaf before.
    #[inline]
    pub(super) fn before(&self, leaf: &Node<M>, slot: usize) -> Option<Vma> {
        match slot {
            0 => self.undisturbed(self.last_of(leaf.links().0)),
            slot => Some(leaf.vma(slot - 1)),
        }
    }

    /// Where [`VmaTree::before`] ends, or where addresses begin.
    #[inline]
    pub(super) fn end_before(&self, leaf: &Node<M>, slot: usize) -> u64 {
        self.before(leaf, slot).map_or(0, |vma| vma.end.0)
    }

    /// The mapping in `slot` of `leaf`, or if there is none the first of the leaf after.
    #[inline]
    pub(super) fn at_or_after(&self, leaf: &Node<M>, slot: usize) -> Option<Vma> {
        leaf.vma_if_used(slot)
            .or_else(|| self.undisturbed(self.first_of(leaf.links().1)))
    }

    /// As [`VmaTree::next`].
    pub(super) fn next_now(&self, page: Vpn) -> Option<Vma> {
        self.undisturbed(self.look_up(page))
    }

    fn undisturbed(&self, seen: Option<Option<Place<'_, M>>>) -> Option<Vma> {
        seen.expect("nobody else changes the tree")
            .map(|place| place.vma)
    }
}
