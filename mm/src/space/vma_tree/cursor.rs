//! A cursor walks through mappings in order, in either direction, while other CPUs change them. A
//! finder remembers the mapping that it found last, so repeated look-ups of one mapping need only
//! one search.

use core::fmt;

use super::node::{Node, SLOTS};
use super::{Busy, Place, Vma, VmaTree};
use crate::machine::{Field, Machine};
use crate::units::Vpn;

/// A position between mappings, stored as a page number. Other CPUs may unmap any mapping before or
/// after this position. A walk with the cursor also visits mappings that are added ahead of the
/// cursor.
pub struct Cursor<'t, M: Machine> {
    tree: &'t VmaTree<M>,
    at: u64,
    /// The leaf that has the next mapping in its slot `slot`, and the previous mapping in the slot
    /// before. This is valid while the version of the tree is `version`.
    leaf: &'t Node<M>,
    slot: usize,
    version: u64,
}

/// A version that no tree reaches, because so many changes of a tree would take centuries.
const NEVER: u64 = u64::MAX;

impl<'t, M: Machine> Cursor<'t, M> {
    /// Makes a cursor directly before `page`. Going forward begins with the mapping that contains
    /// `page`, or else the next mapping. Going backward begins with the mapping that contains
    /// `page - 1`, or else the mapping before that page.
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

    /// Makes a cursor after all mappings.
    #[must_use]
    pub fn end(tree: &'t VmaTree<M>) -> Self {
        Self::at(tree, Vma::END_MAX)
    }

    /// Returns the next mapping that ends above the position, and moves the position to the end of
    /// that mapping.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try. In that case the position has not moved.
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

    /// Returns the last mapping that begins below the position, and moves the position to the start
    /// of that mapping.
    ///
    /// # Errors
    /// [`Busy`] if the tree changed during every try. In that case the position has not moved.
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

    /// Returns whether the tree is unchanged, so that everything read so far is still valid.
    #[inline]
    fn is_current(&self) -> bool {
        // Fields are read with Acquire ordering, so this read comes after all earlier reads; see
        // `VmaTree::try_read`.
        self.tree.version.get() == self.version
    }

    /// Moves the cursor on to the first mapping of the next leaf, and returns that mapping.
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

    /// Moves the cursor back to the last mapping of the previous leaf, and returns that mapping.
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

    /// Runs `look` with the cursor's page number, and records the leaf and slot of the mapping that
    /// `look` finds.
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

/// A lookup that remembers the last mapping it found, and returns it again without a search (Linux:
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

    /// Returns the mapping that contains `page`.
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
