//! Changing the tree: whoever has the editor.
//!
//! A change marks the version odd, moves entries, brings the gaps up to date along the paths it
//! touched, and marks the version even. Nodes are made before the version turns odd, so a change that
//! has begun ends.

use alloc::vec::Vec;

use super::node::{FAN, LEAF_MAX, NO_KEY, NONE};
use super::{NoMemory, Vma, VmaError, VmaTree, vma};
use crate::machine::{Field, Machine};
use crate::units::Vpn;

/// Levels of inner nodes; a tree of 2²⁴ mappings has fewer.
const LEVELS_MAX: usize = 12;
/// A leaf or node this small joins a neighbour if there is room.
const SMALL: usize = 4;
/// What the first key of an inner node holds: its first child takes whatever is below the second.
const FIRST_KEY: u64 = 0;
/// Room for both and a few more.
const JOINED_MAX: usize = 12;

/// The right to change a tree, and what only its holder needs to know.
#[derive(Debug)]
pub struct Editor {
    /// Nodes that are not in use.
    spare: Vec<u32>,
    /// Nodes ever made.
    made: u32,
    mappings: u32,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self {
            spare: Vec::new(),
            made: 1,
            mappings: 0,
        }
    }

    /// How many mappings there are.
    #[must_use]
    pub fn mappings(&self) -> u32 {
        self.mappings
    }

    /// How many nodes are in use.
    pub(super) fn nodes(&self) -> u32 {
        self.made - u32::try_from(self.spare.len()).unwrap_or(0)
    }

    fn take(&mut self) -> u32 {
        self.spare
            .pop()
            .expect("nodes were made before the change began")
    }
}

/// The way from the root to a leaf: each inner node, and which child was taken.
pub(super) struct Path {
    steps: [(u32, usize); LEVELS_MAX],
    len: usize,
    pub(super) leaf: u32,
}

impl Path {
    pub(super) fn steps(&self) -> &[(u32, usize)] {
        &self.steps[..self.len]
    }

    pub(super) fn set(&mut self, level: usize, step: (u32, usize)) {
        self.steps[level] = step;
    }
}

impl<M: Machine> VmaTree<M> {
    /// Adds a mapping (Linux: `vma_iter_store` into a hole).
    ///
    /// # Errors
    /// If it is no mapping, something is in the way, or there is no memory.
    pub fn insert(&self, machine: &M, editor: &mut Editor, new: Vma) -> Result<(), VmaError> {
        check(new)?;
        if let Some(there) = self.in_the_way(new, None) {
            return Err(VmaError::Overlaps(there));
        }
        self.prepare(machine, editor)?;
        self.change(|| self.insert_at(editor, (new.start.0, new.end.0, new.id)));
        editor.mappings += 1;
        Ok(())
    }

    /// Removes the mapping that begins at `start`, and returns it (Linux: `vma_iter_clear`).
    ///
    /// # Errors
    /// [`VmaError::NotMapped`].
    pub fn erase(&self, editor: &mut Editor, start: Vpn) -> Result<Vma, VmaError> {
        let path = self.path(start.0);
        let leaf = self.node(path.leaf);
        let rank = leaf.rank(start.0);
        if rank == 0 || leaf.key(rank - 1) != start.0 {
            return Err(VmaError::NotMapped(start));
        }
        let old = vma(leaf.entry(rank - 1));
        self.change(|| self.erase_at(editor, &path, rank - 1));
        editor.mappings -= 1;
        Ok(old)
    }

    /// Moves the ends of the mapping that begins at `start`, and gives it an id (Linux:
    /// `vma_adjust`).
    ///
    /// # Errors
    /// If none begins there, `new` is no mapping, or something else is in the way.
    pub fn resize(
        &self,
        machine: &M,
        editor: &mut Editor,
        start: Vpn,
        new: Vma,
    ) -> Result<(), VmaError> {
        check(new)?;
        let path = self.path(start.0);
        let leaf = self.node(path.leaf);
        let rank = leaf.rank(start.0);
        if rank == 0 || leaf.key(rank - 1) != start.0 {
            return Err(VmaError::NotMapped(start));
        }
        if let Some(there) = self.in_the_way(new, Some(start)) {
            return Err(VmaError::Overlaps(there));
        }
        let entry = (new.start.0, new.end.0, new.id);
        let old = vma(leaf.entry(rank - 1));
        let meet = new.start < old.end && old.start < new.end;
        // In place if it keeps its place: between its neighbours, in the leaf responsible for it.
        if meet && (new.start == start || self.path(new.start.0).leaf == path.leaf) {
            self.change(|| {
                leaf.set_entry(rank - 1, entry);
                self.mend(&path);
                self.mend_after(leaf);
            });
            return Ok(());
        }
        self.prepare(machine, editor)?;
        self.change(|| {
            self.erase_at(editor, &path, rank - 1);
            self.insert_at(editor, entry);
        });
        Ok(())
    }

    /// Adds a mapping over whatever is there: what lies inside goes, what reaches in is cut, what
    /// reaches over is split (Linux: `mas_store`). Tells `gone` what was removed, piece by piece.
    ///
    /// # Errors
    /// If it is no mapping, or there is no memory; then nothing was removed.
    pub fn store(
        &self,
        machine: &M,
        editor: &mut Editor,
        new: Vma,
        gone: impl FnMut(Vma),
    ) -> Result<(), VmaError> {
        check(new)?;
        self.prepare(machine, editor)?;
        self.clear(machine, editor, new.start..new.end, gone)?;
        self.insert(machine, editor, new)
    }

    /// Removes what is mapped in `pages`; cuts and splits what reaches out. Tells `gone` what was
    /// removed, piece by piece, from low to high.
    ///
    /// # Errors
    /// [`VmaError::NoMemory`] if a mapping has to be split and there is none; then nothing was removed.
    pub fn clear(
        &self,
        machine: &M,
        editor: &mut Editor,
        pages: core::ops::Range<Vpn>,
        mut gone: impl FnMut(Vma),
    ) -> Result<(), VmaError> {
        self.prepare(machine, editor)?;
        // Ends: each round removes at least one page of `pages`.
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

    /// As [`VmaTree::next`] for the holder of the editor, whom nobody disturbs.
    pub(super) fn next_now(&self, page: Vpn) -> Option<Vma> {
        self.look_up(page).expect("nobody else changes the tree")
    }

    /// What overlaps `new`, other than the mapping that begins at `but`.
    fn in_the_way(&self, new: Vma, but: Option<Vpn>) -> Option<Vma> {
        let mut there = self.next_now(new.start)?;
        if Some(there.start) == but {
            there = self.next_now(there.end)?;
        }
        (there.start < new.end).then_some(there)
    }

    /// Makes as many nodes as two insertions may need, each one on every level and a new root: a
    /// `store` may split what it covers and then adds its own.
    fn prepare(&self, machine: &M, editor: &mut Editor) -> Result<(), NoMemory> {
        let needed = 2 * (self.top().1 + 3);
        while editor.spare.len() < needed {
            editor.spare.try_reserve(1).map_err(|_| NoMemory)?;
            self.nodes.make(machine, editor.made)?;
            editor.spare.push(editor.made);
            editor.made += 1;
        }
        Ok(())
    }

    /// Runs a change: readers that overlap it will read again.
    fn change<R>(&self, f: impl FnOnce() -> R) -> R {
        let version = self.version.get();
        self.version.set(version + 1);
        let result = f();
        self.version.set(version + 2);
        result
    }

    pub(super) fn path(&self, page: u64) -> Path {
        let (mut id, levels) = self.top();
        let mut path = Path {
            steps: [(NONE, 0); LEVELS_MAX],
            len: levels,
            leaf: NONE,
        };
        for step in &mut path.steps[..levels] {
            let node = self.node(id);
            let at = node.route(page);
            *step = (id, at);
            id = node.child(at);
        }
        path.leaf = id;
        path
    }

    fn insert_at(&self, editor: &mut Editor, entry: (u64, u64, u32)) {
        let path = self.path(entry.0);
        let leaf = self.node(path.leaf);
        let (at, count) = (leaf.rank(entry.0), leaf.count());
        if count < LEAF_MAX {
            leaf.open(at, count);
            leaf.set_entry(at, entry);
            self.mend(&path);
            if at == count {
                self.mend_after(leaf);
            }
            return;
        }
        let (before, after) = leaf.links();
        // Mappings often grow in one direction: then nodes stay full.
        let half = match at {
            0 if before == NONE => 0,
            LEAF_MAX if after == NONE => LEAF_MAX,
            _ => LEAF_MAX.div_ceil(2),
        };
        let id = editor.take();
        let right = self.node(id);
        leaf.give(half, LEAF_MAX, right, 0);
        right.set_links(path.leaf, after);
        leaf.set_links(before, id);
        if after != NONE {
            self.node(after).set_links(id, self.node(after).links().1);
        }
        let (to, at, count) = if at > half || half == LEAF_MAX {
            (right, at - half, LEAF_MAX - half)
        } else {
            (leaf, at, half)
        };
        to.open(at, count);
        to.set_entry(at, entry);
        let first = right.key(0);
        self.insert_child(editor, &path, first, id);
        self.mend_after(right);
    }

    /// Adds `child`, responsible from `key` on, behind the leaf of `path`.
    fn insert_child(&self, editor: &mut Editor, path: &Path, mut key: u64, mut child: u32) {
        let mut split = path.leaf;
        for (depth, &(id, taken)) in path.steps().iter().enumerate().rev() {
            let node = self.node(id);
            let below = path.steps().len() - 1 - depth;
            let gap = self.gap_of(child, below);
            node.set_child(taken, split, self.gap_of(split, below));
            let (at, count) = (taken + 1, node.count());
            if count < FAN {
                node.open(at, count);
                node.set_child(at, child, gap);
                node.keys[at].set(key);
                return self.mend_above(path, depth);
            }
            let half = if at == FAN { FAN } else { FAN / 2 };
            let new = editor.take();
            let right = self.node(new);
            node.give(half, FAN, right, 0);
            let (to, at, count) = if at > half || half == FAN {
                (right, at - half, FAN - half)
            } else {
                (node, at, half)
            };
            to.open(at, count);
            to.set_child(at, child, gap);
            to.keys[at].set(key);
            (key, child, split) = (right.key(0), new, id);
            right.keys[0].set(FIRST_KEY);
        }
        self.grow(editor, key, child);
    }

    /// A root above the root, for it and `child`.
    fn grow(&self, editor: &mut Editor, key: u64, child: u32) {
        let (old, levels) = self.top();
        let id = editor.take();
        let root = self.node(id);
        root.set_child(0, old, self.gap_of(old, levels));
        root.keys[0].set(FIRST_KEY);
        root.set_child(1, child, self.gap_of(child, levels));
        root.keys[1].set(key);
        self.root.set((levels as u64 + 1) << 32 | u64::from(id));
    }

    /// Takes entry `at` out of the leaf of `path`.
    fn erase_at(&self, editor: &mut Editor, path: &Path, at: usize) {
        let leaf = self.node(path.leaf);
        let count = leaf.count();
        leaf.close(at, count);
        if count == 1 && !path.steps().is_empty() {
            let (before, after) = leaf.links();
            self.link(before, after);
            self.erase_leaf(editor, path);
            if after != NONE {
                self.mend(&self.path(self.node(after).key(0)));
            }
            return;
        }
        self.mend(path);
        self.mend_after(leaf);
        if count - 1 <= SMALL {
            self.join_leaf(editor, path);
        }
    }

    /// Makes two leaves neighbours.
    fn link(&self, before: u32, after: u32) {
        if before != NONE {
            let node = self.node(before);
            node.set_links(node.links().0, after);
        }
        if after != NONE {
            let node = self.node(after);
            node.set_links(before, node.links().1);
        }
    }

    /// Takes the leaf of `path` out of its parent, and parents that become empty.
    fn erase_leaf(&self, editor: &mut Editor, path: &Path) {
        let mut gone = path.leaf;
        for (depth, &(id, at)) in path.steps().iter().enumerate().rev() {
            let node = self.node(id);
            let count = node.count();
            self.node(gone).clear();
            editor.spare.push(gone);
            node.close(at, count);
            if count > 1 {
                node.keys[0].set(FIRST_KEY);
                self.mend_above(path, depth);
                break;
            }
            gone = id;
        }
        self.shrink(editor);
    }

    /// A root with one child is not needed.
    fn shrink(&self, editor: &mut Editor) {
        let (mut id, mut levels) = self.top();
        // Ends at a leaf.
        while levels > 0 && self.node(id).count() == 1 {
            let child = self.node(id).child(0);
            self.node(id).clear();
            editor.spare.push(id);
            (id, levels) = (child, levels - 1);
        }
        self.root.set((levels as u64) << 32 | u64::from(id));
    }

    /// Joins a small leaf with a neighbour of the same parent, if both fit into one.
    fn join_leaf(&self, editor: &mut Editor, path: &Path) {
        let Some(&(parent, at)) = path.steps().last() else {
            return;
        };
        let node = self.node(parent);
        let pairs = [at.checked_sub(1).map(|left| (left, at)), Some((at, at + 1))];
        for (left, right) in pairs.into_iter().flatten() {
            if right >= node.count() {
                continue;
            }
            let (one, other) = (self.node(node.child(left)), node.child(right));
            let (has, more) = (one.count(), self.node(other).count());
            if has + more > JOINED_MAX {
                continue;
            }
            self.node(other).give(0, more, one, has);
            self.link(node.child(left), self.node(other).links().1);
            self.node(other).clear();
            editor.spare.push(other);
            node.close(right, node.count());
            self.mend(&self.path(one.key(0)));
            self.mend_after(one);
            return self.shrink(editor);
        }
    }
}

fn check(new: Vma) -> Result<(), VmaError> {
    let fits = new.start < new.end
        && new.end <= Vma::END_MAX
        && new.pages() <= Vma::LEN_MAX
        && new.id <= Vma::ID_MAX;
    if fits {
        Ok(())
    } else {
        Err(VmaError::Invalid(new))
    }
}

const _: () = assert!(
    Vma::END_MAX.0 < NO_KEY,
    "an unused key is above every address"
);
