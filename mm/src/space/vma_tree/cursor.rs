//! Going through mappings in order, in either direction, whatever changes meanwhile.

use super::node::{LEAF_MAX, NO_KEY, NONE};
use super::{Busy, Vma, VmaTree, vma};
use crate::machine::{Field, Machine};
use crate::units::Vpn;

/// A position between mappings: an address. What is unmapped behind or before it, by whomever, does
/// not matter; what is mapped ahead of it will be met.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: u64,
    /// Where the last mapping was found, good while the tree has this version.
    hint: Hint,
}

#[derive(Clone, Copy, Debug)]
struct Hint {
    version: u64,
    leaf: u32,
    entry: u32,
}

/// No version: versions of a tree at rest are even.
const NO_HINT: Hint = Hint {
    version: 1,
    leaf: NONE,
    entry: 0,
};

impl Cursor {
    /// Before `page`: going forward begins with the mapping that `page` is in or the next one.
    #[must_use]
    pub const fn at(page: Vpn) -> Self {
        Self {
            at: page.0,
            hint: NO_HINT,
        }
    }

    /// Behind all mappings.
    #[must_use]
    pub const fn end() -> Self {
        Self::at(Vma::END_MAX)
    }

    /// The next mapping that ends above the position, which moves behind it.
    ///
    /// # Errors
    /// [`Busy`]; the position has not moved.
    #[inline]
    pub fn forward<M: Machine>(&mut self, tree: &VmaTree<M>) -> Result<Option<Vma>, Busy> {
        if let Some(vma) = self.step(tree, Step::Up) {
            self.at = vma.end.0;
            return Ok(Some(vma));
        }
        let found = self.look(tree, |tree, at| tree.place_up(at))?;
        if let Some(vma) = found {
            self.at = vma.end.0;
        }
        Ok(found)
    }

    /// The last mapping that begins below the position, which moves before it.
    ///
    /// # Errors
    /// [`Busy`]; the position has not moved.
    #[inline]
    pub fn backward<M: Machine>(&mut self, tree: &VmaTree<M>) -> Result<Option<Vma>, Busy> {
        if let Some(vma) = self.step(tree, Step::Down) {
            self.at = vma.start.0;
            return Ok(Some(vma));
        }
        let found = self.look(tree, |tree, at| match at.checked_sub(1) {
            Some(below) => tree.place_down(below),
            None => Some(None),
        })?;
        if let Some(vma) = found {
            self.at = vma.start.0;
        }
        Ok(found)
    }

    /// To the neighbour in the same leaf, if the tree is as it was.
    #[inline]
    fn step<M: Machine>(&mut self, tree: &VmaTree<M>, step: Step) -> Option<Vma> {
        if tree.version.get() != self.hint.version {
            return None;
        }
        let leaf = tree.nodes.get(self.hint.leaf)?;
        let entry = match step {
            Step::Up => (self.hint.entry + 1) as usize,
            Step::Down => self.hint.entry.checked_sub(1)? as usize,
        };
        if entry >= LEAF_MAX || leaf.key(entry) == NO_KEY {
            return None;
        }
        let found = vma(leaf.entry(entry));
        let is_next = match step {
            Step::Up => found.start.0 >= self.at,
            Step::Down => found.end.0 <= self.at,
        };
        if !is_next || tree.version.get() != self.hint.version {
            return None;
        }
        self.hint.entry = u32::try_from(entry).ok()?;
        Some(found)
    }

    fn look<M: Machine>(
        &mut self,
        tree: &VmaTree<M>,
        find: impl Fn(&VmaTree<M>, u64) -> Option<Option<(Vma, u32, usize)>>,
    ) -> Result<Option<Vma>, Busy> {
        let (found, version) = tree.read(|| {
            let version = tree.version.get();
            Some((find(tree, self.at)?, version))
        })?;
        Ok(found.map(|(vma, leaf, entry)| {
            self.hint = Hint {
                version,
                leaf,
                entry: u32::try_from(entry).unwrap_or(0),
            };
            vma
        }))
    }
}

#[derive(Clone, Copy)]
enum Step {
    Up,
    Down,
}

impl<M: Machine> VmaTree<M> {
    /// The first mapping that ends above `page`, and its place.
    fn place_up(&self, page: u64) -> Option<Option<(Vma, u32, usize)>> {
        let (id, rank) = self.place(page)?;
        let leaf = self.nodes.get(id)?;
        let below = if rank == 0 {
            self.last_place(leaf.links().0)?
        } else {
            Some((vma(leaf.entry(rank - 1)), id, rank - 1))
        };
        if let Some(below) = below.filter(|(below, ..)| below.end.0 > page) {
            return Some(Some(below));
        }
        if rank < LEAF_MAX && leaf.key(rank) != NO_KEY {
            return Some(Some((vma(leaf.entry(rank)), id, rank)));
        }
        match leaf.links().1 {
            NONE => Some(None),
            after => Some(Some((vma(self.nodes.get(after)?.entry(0)), after, 0))),
        }
    }

    /// The last mapping that begins at or below `page`, and its place.
    fn place_down(&self, page: u64) -> Option<Option<(Vma, u32, usize)>> {
        let (id, rank) = self.place(page)?;
        let leaf = self.nodes.get(id)?;
        if rank == 0 {
            return self.last_place(leaf.links().0);
        }
        Some(Some((vma(leaf.entry(rank - 1)), id, rank - 1)))
    }

    fn place(&self, page: u64) -> Option<(u32, usize)> {
        let (mut id, levels) = self.top();
        for _ in 0..levels {
            let node = self.nodes.get(id)?;
            id = node.child(node.route(page));
        }
        let rank = self.nodes.get(id)?.rank(page.min(NO_KEY - 1));
        Some((id, rank))
    }

    fn last_place(&self, id: u32) -> Option<Option<(Vma, u32, usize)>> {
        if id == NONE {
            return Some(None);
        }
        let leaf = self.nodes.get(id)?;
        let last = leaf.count().checked_sub(1)?;
        Some(Some((vma(leaf.entry(last)), id, last)))
    }
}
