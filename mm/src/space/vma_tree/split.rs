//! Adding and removing nodes: splitting full nodes, joining small ones, and changing the height of
//! the tree of mappings.
//!
//! All of this happens inside a change, with nodes that were allocated before the change began. An
//! unused node links to the next unused node. To readers, an unused node looks like an empty node.

use super::node::{Entry, FIRST_KEY, NONE, SLOTS, child_value};
use super::path::Path;
use super::{NoMemory, VmaTree};
use crate::machine::{Field, Machine};

/// Two leaves are joined only if they have at most this number of entries together. So the joined
/// leaf has room for a few more entries.
const JOINED_MAX: usize = SLOTS * 3 / 4;

/// The right to change a tree, and the book-keeping that only the holder of that right needs.
///
/// An editor is made together with one tree and is valid for that tree only. With another tree,
/// changes panic or lose mappings.
#[derive(Debug)]
pub struct Editor {
    /// The first unused node. Each unused node links to the next unused node.
    spare: u32,
    spares: u32,
    /// The number of nodes ever allocated.
    made: u32,
    pub(super) mappings: u32,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self {
            spare: NONE,
            spares: 0,
            made: 1,
            mappings: 0,
        }
    }

    /// Returns the number of mappings.
    #[must_use]
    pub fn mappings(&self) -> u32 {
        self.mappings
    }

    /// Returns the number of nodes in use.
    pub(super) fn nodes(&self) -> u32 {
        self.made - self.spares
    }
}

impl<M: Machine> VmaTree<M> {
    /// Allocates the nodes that `insertions` insertions may need: for each insertion, one node on
    /// every level and a new root.
    pub(super) fn prepare(
        &self,
        machine: &M,
        editor: &mut Editor,
        insertions: usize,
    ) -> Result<(), NoMemory> {
        let levels = self.top().1 + insertions;
        let needed = insertions * (levels + 1);
        while (editor.spares as usize) < needed {
            let id = self.nodes.make(machine, editor.made)?;
            editor.made += 1;
            self.put_back(editor, id);
        }
        Ok(())
    }

    fn take_spare(&self, editor: &mut Editor) -> u32 {
        let id = editor.spare;
        assert!(id != NONE, "nodes were made before the change began");
        editor.spare = self.node(id).links().1;
        editor.spares -= 1;
        id
    }

    fn put_back(&self, editor: &mut Editor, id: u32) {
        let node = self.node(id);
        debug_assert_eq!(node.count(), 0, "a node that is not in use is empty");
        node.set_links(NONE, editor.spare);
        editor.spare = id;
        editor.spares += 1;
    }

    /// Puts `new` into slot `at` of the leaf of `path`, and splits the leaf if it is full.
    #[cold]
    pub(super) fn insert_split(&self, editor: &mut Editor, path: &Path, at: usize, new: Entry) {
        let leaf = self.node(path.leaf);
        if !leaf.is_full() {
            leaf.open(at, new);
            self.mend(path);
            return self.mend_after(leaf);
        }
        let (before, after) = leaf.links();
        // Mappings are often added in one direction. If the split is uneven in this case, the nodes
        // that stay behind are full, not half full.
        let half = match at {
            0 if before == NONE => 0,
            SLOTS if after == NONE => SLOTS,
            _ => SLOTS.div_ceil(2),
        };
        let id = self.take_spare(editor);
        let right = self.node(id);
        leaf.give(half, right);
        right.set_links(path.leaf, after);
        leaf.set_links(before, id);
        if after != NONE {
            let after = self.node(after);
            after.set_links(id, after.links().1);
        }
        if at > half || half == SLOTS {
            right.open(at - half, new);
        } else {
            leaf.open(at, new);
        }
        self.insert_child(editor, path, right.key(0), id);
        self.mend_after(right);
    }

    /// Adds `child`, which is responsible for keys at and above `key`, after the leaf of `path`.
    fn insert_child(&self, editor: &mut Editor, path: &Path, mut key: u64, mut child: u32) {
        let mut split = path.leaf;
        for depth in (0..path.levels()).rev() {
            let (id, taken) = path.step(depth);
            let node = self.node(id);
            let below = path.levels() - 1 - depth;
            node.set_child(taken, split, self.gap_of(split, below));
            let (at, new) = (
                taken + 1,
                (key, child_value(child, self.gap_of(child, below))),
            );
            if !node.is_full() {
                node.open(at, new);
                return self.mend_above(path, depth);
            }
            let half = if at == SLOTS { SLOTS } else { SLOTS / 2 };
            let other = self.take_spare(editor);
            let right = self.node(other);
            node.give(half, right);
            if at > half || half == SLOTS {
                right.open(at - half, new);
            } else {
                node.open(at, new);
            }
            (key, child, split) = (right.key(0), other, id);
            right.set_key(0, FIRST_KEY);
        }
        self.grow(editor, key, child);
    }

    /// Adds a root above the current root, with that root and `child` as its children.
    fn grow(&self, editor: &mut Editor, key: u64, child: u32) {
        let (old, levels) = self.top();
        let id = self.take_spare(editor);
        let root = self.node(id);
        root.set(0, (FIRST_KEY, child_value(old, self.gap_of(old, levels))));
        root.set(1, (key, child_value(child, self.gap_of(child, levels))));
        self.root.set((levels as u64 + 1) << 32 | u64::from(id));
    }

    /// Removes the leaf of `path` if the leaf has become empty. Otherwise, joins the leaf with a
    /// neighbour if both together have few enough entries. The caller has removed an entry of this
    /// leaf.
    #[cold]
    pub(super) fn erase_join(&self, editor: &mut Editor, path: &Path) {
        let leaf = self.node(path.leaf);
        if leaf.is_used(0) {
            self.mend(path);
            self.mend_after(leaf);
            return self.join_leaf(editor, path);
        }
        let (before, after) = leaf.links();
        self.link(before, after);
        self.erase_leaf(editor, path);
        if after != NONE {
            self.mend(&self.path(self.node(after).key(0)));
        }
    }

    /// Links two leaves to each other as neighbours. [`NONE`] stands for a leaf that does not
    /// exist.
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

    /// Removes the leaf of `path`, which is empty, from its parent, and removes parents that become
    /// empty.
    fn erase_leaf(&self, editor: &mut Editor, path: &Path) {
        let mut gone = path.leaf;
        for depth in (0..path.levels()).rev() {
            let (id, at) = path.step(depth);
            let node = self.node(id);
            self.put_back(editor, gone);
            node.close(at);
            if node.is_used(0) {
                node.set_key(0, FIRST_KEY);
                self.mend_above(path, depth);
                break;
            }
            gone = id;
        }
        self.shrink(editor);
    }

    /// Removes the root while it has only one child, which becomes the new root.
    fn shrink(&self, editor: &mut Editor) {
        let (mut id, mut levels) = self.top();
        // The loop ends at a leaf.
        while levels > 0 && !self.node(id).is_used(1) {
            let (child, _) = self.node(id).child(0);
            self.node(id).close(0);
            self.put_back(editor, id);
            (id, levels) = (child, levels - 1);
        }
        self.root.set((levels as u64) << 32 | u64::from(id));
    }

    /// Joins a small leaf with a neighbour under the same parent, if the entries of both fit into
    /// one leaf.
    fn join_leaf(&self, editor: &mut Editor, path: &Path) {
        let above = path.levels() - 1;
        let (parent, at) = path.step(above);
        let node = self.node(parent);
        let pairs = [at.checked_sub(1).map(|left| (left, at)), Some((at, at + 1))];
        for (left, right) in pairs.into_iter().flatten() {
            if !node.is_used(right) {
                continue;
            }
            let (one, other) = (node.child(left).0, node.child(right).0);
            let (one_node, other_node) = (self.node(one), self.node(other));
            if one_node.count() + other_node.count() > JOINED_MAX {
                continue;
            }
            other_node.give(0, one_node);
            self.link(one, other_node.links().1);
            self.put_back(editor, other);
            node.close(right);
            self.mend(&self.path(one_node.key(0)));
            self.mend_above(path, above);
            self.mend_after(one_node);
            return self.shrink(editor);
        }
    }
}
