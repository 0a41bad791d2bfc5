//! Changes to the tree, made by the holder of its [`Editor`], which is the right to change the
//! tree.
//!
//! A change makes the version odd, moves entries, updates the gaps along the paths that it touched,
//! and makes the version even again. Nodes are allocated before the version turns odd, so a change
//! that has begun cannot fail.

use core::ops::Range;

use super::error::check;
use super::node::{Node, SLOTS, slot};
use super::path::Path;
use super::{PAGE_MAX, Vma, VmaError, VmaTree};
use crate::machine::{Field, Machine};
use crate::units::Vpn;

pub use super::split::Editor;

/// After a leaf has lost an entry, it is joined with a neighbour if it has at most this number of
/// entries left. The two leaves together must have at most `JOINED_MAX` entries.
const SMALL: usize = SLOTS / 4;

impl<M: Machine> VmaTree<M> {
    /// Adds a mapping where nothing is mapped (Linux: `vma_iter_store` into a gap).
    ///
    /// # Errors
    /// [`VmaError`] if `new` is not a valid mapping or overlaps another, or if memory is too short
    /// for a new node.
    pub fn insert(&self, machine: &M, editor: &mut Editor, new: Vma) -> Result<(), VmaError> {
        check(new)?;
        let mut path = Path::new();
        let leaf = self.go(&mut path, new.start.0);
        let at = leaf.rank(new.start.0);
        let before = self.before(leaf, at);
        if let Some(there) = before.filter(|there| there.end > new.start) {
            return Err(VmaError::Overlaps(there));
        }
        let after = self.at_or_after(leaf, at);
        if let Some(there) = after.filter(|there| there.start < new.end) {
            return Err(VmaError::Overlaps(there));
        }
        if leaf.is_full() {
            self.prepare(machine, editor, 1)?;
            self.change(|| self.insert_split(editor, &path, at, slot(new)));
        } else {
            let from = before.map_or(0, |vma| vma.end.0);
            self.change(|| {
                leaf.open(at, slot(new));
                if !leaf.is_used(at + 1) {
                    self.gap_came(&path, new.start.0 - from);
                    self.mend_after(leaf);
                } else if let Some(after) = after {
                    self.gap_went(&path, after.start.0 - from);
                }
            });
        }
        editor.mappings += 1;
        Ok(())
    }

    /// Removes the mapping that begins at `start`, and returns it (Linux: `vma_iter_clear`).
    ///
    /// # Errors
    /// [`VmaError::NotMapped`] if no mapping begins at `start`.
    pub fn erase(&self, editor: &mut Editor, start: Vpn) -> Result<Vma, VmaError> {
        let mut path = Path::new();
        let (leaf, at) = self.go_to(&mut path, start)?;
        let old = leaf.vma(at);
        self.change(|| self.erase_at(editor, &path, leaf, at));
        editor.mappings -= 1;
        Ok(old)
    }

    /// Changes the start, the end and the id of the mapping that begins at `start` to those of
    /// `new` (Linux: `vma_adjust`).
    ///
    /// # Errors
    /// [`VmaError`] if no mapping begins at `start`, if `new` is not a valid mapping or overlaps
    /// another, or if memory is too short for a new node.
    pub fn resize(
        &self,
        machine: &M,
        editor: &mut Editor,
        start: Vpn,
        new: Vma,
    ) -> Result<(), VmaError> {
        check(new)?;
        let mut path = Path::new();
        let (leaf, at) = self.go_to(&mut path, start)?;
        if let Some(there) = self.in_the_way(new, start) {
            return Err(VmaError::Overlaps(there));
        }
        if self.stays(leaf.vma(at), new, &path) {
            self.change(|| {
                leaf.set(at, slot(new));
                self.mend(&path);
                if !leaf.is_used(at + 1) {
                    self.mend_after(leaf);
                }
            });
            return Ok(());
        }
        self.prepare(machine, editor, 1)?;
        self.change(|| {
            self.erase_at(editor, &path, leaf, at);
            let path = self.path(new.start.0);
            let at = self.node(path.leaf).rank(new.start.0);
            self.insert_split(editor, &path, at, slot(new));
        });
        Ok(())
    }

    /// Adds a mapping in place of the mappings in its range (Linux: `mas_store`). A mapping inside
    /// the range is removed, one that overlaps an end of the range is cut, and one that extends
    /// beyond both ends is split. Calls `gone` with each piece that was removed.
    ///
    /// # Errors
    /// [`VmaError`] if `new` is not a valid mapping, or if memory is too short for a new node. In
    /// these cases, nothing was removed.
    pub fn store(
        &self,
        machine: &M,
        editor: &mut Editor,
        new: Vma,
        gone: impl FnMut(Vma),
    ) -> Result<(), VmaError> {
        check(new)?;
        // Up to two insertions are needed: one for `new`, and one for the second part of a mapping
        // that is split.
        self.prepare(machine, editor, 2)?;
        self.take_out(machine, editor, &(new.start..new.end), gone)?;
        self.insert(machine, editor, new)
    }

    /// Removes the mappings in `pages`. A mapping that extends beyond `pages` is cut or split.
    /// Calls `gone` with each piece that was removed, in ascending order. Does nothing if `pages`
    /// is empty.
    ///
    /// # Errors
    /// [`VmaError::NoMemory`] if a mapping has to be cut and memory is too short for a new node. In
    /// that case, nothing was removed.
    pub fn clear(
        &self,
        machine: &M,
        editor: &mut Editor,
        pages: Range<Vpn>,
        gone: impl FnMut(Vma),
    ) -> Result<(), VmaError> {
        // Removing whole mappings needs no node, so it never asks the global allocator.
        if self.reaches_out(&pages) {
            self.prepare(machine, editor, 2)?;
        }
        self.take_out(machine, editor, &pages, gone)
    }

    /// Removes every mapping. Needs no memory.
    pub(crate) fn clear_all(&self, machine: &M, editor: &mut Editor) {
        let all = Vpn(0)..Vpn(u64::MAX);
        let cleared = self.take_out(machine, editor, &all, |_| {});
        debug_assert_eq!(cleared, Ok(()), "nothing is cut, so no memory is needed");
    }

    /// Returns whether some mapping is partly in `pages` and partly outside.
    fn reaches_out(&self, pages: &Range<Vpn>) -> bool {
        let last = Vpn(pages.end.0.saturating_sub(1));
        let at = |page| self.next_now(page).filter(|vma| vma.start < pages.end);
        at(pages.start).is_some_and(|vma| vma.start < pages.start)
            || at(last).is_some_and(|vma| vma.end > pages.end)
    }

    /// Removes the mappings in `pages`. The caller has prepared nodes for the pieces that remain.
    fn take_out(
        &self,
        machine: &M,
        editor: &mut Editor,
        pages: &Range<Vpn>,
        mut gone: impl FnMut(Vma),
    ) -> Result<(), VmaError> {
        if pages.is_empty() {
            return Ok(());
        }
        // The loop ends: each round removes at least one page of `pages`.
        while let Some(there) = self
            .next_now(pages.start)
            .filter(|vma| vma.start < pages.end)
        {
            let cut = Vma {
                start: there.start.max(pages.start),
                end: there.end.min(pages.end),
                id: there.id,
            };
            let left = Vma {
                end: cut.start,
                ..there
            };
            let right = Vma {
                start: cut.end,
                ..there
            };
            match (left.pages() > 0, right.pages() > 0) {
                (false, false) => drop(self.erase(editor, there.start)?),
                (true, false) => self.resize(machine, editor, there.start, left)?,
                (false, true) => self.resize(machine, editor, there.start, right)?,
                (true, true) => {
                    self.resize(machine, editor, there.start, left)?;
                    self.insert(machine, editor, right)?;
                }
            }
            gone(cut);
        }
        Ok(())
    }

    /// Records the path to the mapping that begins at `start`. Returns the mapping's leaf and slot.
    #[inline]
    fn go_to(&self, path: &mut Path, start: Vpn) -> Result<(&Node<M>, usize), VmaError> {
        let page = start.0.min(PAGE_MAX);
        let leaf = self.go(path, page);
        match leaf.rank(page).checked_sub(1) {
            Some(at) if leaf.key(at) == start.0 => Ok((leaf, at)),
            _ => Err(VmaError::NotMapped(start)),
        }
    }

    /// Returns a mapping that overlaps `new`, if there is one, but ignores the mapping that begins
    /// at `but`.
    fn in_the_way(&self, new: Vma, but: Vpn) -> Option<Vma> {
        let mut there = self.next_now(new.start)?;
        if there.start == but {
            there = self.next_now(there.end)?;
        }
        (there.start < new.end).then_some(there)
    }

    /// Returns whether the slot of `old`, in the leaf of `path`, can hold `new` instead. The slot
    /// can hold `new` if the mapping keeps its neighbours, and the leaf is also responsible for the
    /// start of `new`.
    fn stays(&self, old: Vma, new: Vma, path: &Path) -> bool {
        let meet = new.start < old.end && old.start < new.end;
        meet && (new.start == old.start || self.path(new.start.0).leaf == path.leaf)
    }

    /// Runs `f` as one change of the tree. A reader that reads during the change reads again
    /// afterwards.
    #[inline]
    fn change<R>(&self, f: impl FnOnce() -> R) -> R {
        let version = self.version.get();
        self.version.set(version + 1);
        let result = f();
        self.version.set(version + 2);
        result
    }

    /// Removes the entry in slot `at` from the leaf of `path`.
    #[inline]
    fn erase_at(&self, editor: &mut Editor, path: &Path, leaf: &Node<M>, at: usize) {
        leaf.close(at);
        if !leaf.is_used(SMALL) && path.levels() > 0 {
            self.erase_join(editor, path);
        } else if leaf.is_used(at) {
            self.gap_came(path, leaf.key(at) - self.end_before(leaf, at));
        } else {
            self.mend(path);
            self.mend_after(leaf);
        }
    }
}
