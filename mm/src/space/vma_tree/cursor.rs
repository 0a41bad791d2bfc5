//! Walking through mappings in order, in either direction, while others change them; and finding
//! the same mapping again.

use core::fmt;

use super::node::{Node, SLOTS};
use super::{Busy, Place, Vma, VmaTree};
use crate::machine::{Field, Machine};
use crate::units::Vpn;

/// A position between mappings, which is an address. It does not matter which mappings other CPUs
/// unmap around it; a mapping that is added ahead of it will be met.
pub struct Cursor<'t, M: Machine> {
    tree: &'t VmaTree<M>,
    at: u64,
    /// The leaf of the next mapping, which is in `slot`, and of the previous one, in the slot
    /// before. Valid while the tree has `version`.
    leaf: &'t Node<M>,
    slot: usize,
    version: u64,
}

/// A version that no tree reaches: it would take centuries.
const NEVER: u64 = u64::MAX;

impl<'t, M: Machine> Cursor<'t, M> {
    /// Makes a cursor right before `page`. Going forward begins with the mapping that `page` is in,
    /// or the next one; going backward with the one that `page - 1` is in, or the one before.
    #[must_use]
    pub fn at(tree: &'t VmaTree<M>, page: Vpn) -> Self {
        Self {
            tree,
            at: page.0,
            leaf: tree.node(tree.top().0),
            slot: 0,
            version: NEVER,
        }
    }

    /// Makes a cursor behind all mappings.
    #[must_use]
    pub fn end(tree: &'t VmaTree<M>) -> Self {
        Self::at(tree, Vma::END_MAX)
    }

    /// Returns the next mapping that ends above the position, and moves the position behind it.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try; the position has not moved.
    #[inline]
    pub fn forward(&mut self) -> Result<Option<Vma>, Busy> {
        if let Some(vma) = self.leaf.vma_if_used(self.slot & SLOTS)
            && self.is_current()
        {
            self.slot += 1;
            self.at = vma.end.0;
            return Ok(Some(vma));
        }
        self.forward_on()
    }

    /// Returns the last mapping that begins below the position, and moves the position before it.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try; the position has not moved.
    #[inline]
    pub fn backward(&mut self) -> Result<Option<Vma>, Busy> {
        if let Some(slot) = self.slot.checked_sub(1) {
            let vma = self.leaf.vma(slot & SLOTS);
            if self.is_current() {
                self.slot = slot;
                self.at = vma.start.0;
                return Ok(Some(vma));
            }
        }
        self.backward_on()
    }

    /// Returns whether the tree is unchanged, so that everything read until now is true.
    #[inline]
    fn is_current(&self) -> bool {
        // This read is ordered after the earlier ones, as in `VmaTree::try_read`.
        self.tree.version.get() == self.version
    }

    /// Goes on with the first mapping of the next leaf.
    #[inline(never)]
    fn forward_on(&mut self) -> Result<Option<Vma>, Busy> {
        if let Some(leaf) = self.tree.nodes.get(self.leaf.links().1) {
            let vma = leaf.vma(0);
            if self.is_current() {
                (self.leaf, self.slot, self.at) = (leaf, 1, vma.end.0);
                return Ok(Some(vma));
            }
        }
        self.forward_slow()
    }

    /// Goes on with the last mapping of the leaf before.
    #[inline(never)]
    fn backward_on(&mut self) -> Result<Option<Vma>, Busy> {
        if let Some(leaf) = self.tree.nodes.get(self.leaf.links().0)
            && let Some(slot) = leaf.count().checked_sub(1)
        {
            let vma = leaf.vma(slot);
            if self.is_current() {
                (self.leaf, self.slot, self.at) = (leaf, slot, vma.start.0);
                return Ok(Some(vma));
            }
        }
        self.backward_slow()
    }

    #[cold]
    fn forward_slow(&mut self) -> Result<Option<Vma>, Busy> {
        let found = self.search(|tree, at| tree.look_up(Vpn(at)))?;
        if let Some(vma) = found {
            self.slot += 1;
            self.at = vma.end.0;
        }
        Ok(found)
    }

    #[cold]
    fn backward_slow(&mut self) -> Result<Option<Vma>, Busy> {
        let found = self.search(|tree, at| match at.checked_sub(1) {
            Some(below) => tree.look_down(Vpn(below)),
            None => Some(None),
        })?;
        if let Some(vma) = found {
            self.at = vma.start.0;
        }
        Ok(found)
    }

    /// Searches the tree from the cursor's address, and notes the place of the mapping that `look`
    /// finds.
    fn search(
        &mut self,
        look: impl Fn(&'t VmaTree<M>, u64) -> Option<Option<Place<'t, M>>>,
    ) -> Result<Option<Vma>, Busy> {
        let (tree, at) = (self.tree, self.at);
        let (version, place) = tree.read(|| {
            let version = tree.version.get();
            Some((version, look(tree, at)?))
        })?;
        Ok(place.map(|place| {
            (self.leaf, self.slot, self.version) = (place.leaf, place.slot, version);
            place.vma
        }))
    }
}

/// A lookup of mappings that finds the same mapping again without a search (Linux:
/// `vmacache_find`).
pub struct Finder<'t, M: Machine> {
    tree: &'t VmaTree<M>,
    last: Vma,
    /// The version of the tree in which `last` was found.
    version: u64,
}

impl<'t, M: Machine> Finder<'t, M> {
    /// Makes a finder that has found nothing yet.
    #[must_use]
    pub fn new(tree: &'t VmaTree<M>) -> Self {
        let last = Vma {
            start: Vpn(0),
            end: Vpn(0),
            id: 0,
        };
        Self {
            tree,
            last,
            version: NEVER,
        }
    }

    /// Returns the mapping that `page` is in.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try.
    #[inline]
    pub fn find(&mut self, page: Vpn) -> Result<Option<Vma>, Busy> {
        if self.last.contains(page) && self.tree.version.get() == self.version {
            return Ok(Some(self.last));
        }
        self.find_slow(page)
    }

    #[cold]
    fn find_slow(&mut self, page: Vpn) -> Result<Option<Vma>, Busy> {
        let tree = self.tree;
        let (version, found) = tree.read(|| {
            let version = tree.version.get();
            Some((version, tree.look_down(page)?.map(|place| place.vma)))
        })?;
        let found = found.filter(|vma| vma.contains(page));
        if let Some(vma) = found {
            (self.last, self.version) = (vma, version);
        }
        Ok(found)
    }
}

impl<M: Machine> fmt::Debug for Cursor<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> fmt::Debug for Finder<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
