//! Free space between mappings: kept in the nodes, found in one descent.
//!
//! Looking begins in the leaf at one end of what is allowed. If nothing fits there, the way up is
//! searched for a subtree with a wide enough gap, and that one down. Beyond the first leaf a gap that the
//! nodes promise is there, unless it is wider than they can say ([`GAP_MAX`](super::node::GAP_MAX)).

use core::ops::Range;

use super::VmaTree;
use super::edit::{Editor, Path};
use super::node::{GAP_MAX, NO_KEY, NONE, Node};
use crate::machine::{Field, Machine};
use crate::units::Vpn;

impl<M: Machine> VmaTree<M> {
    /// The lowest `pages` free pages within `allowed`; where they begin (Linux:
    /// `mas_empty_area`, `vm_unmapped_area` bottom-up).
    pub fn lowest_gap(&self, _editor: &Editor, pages: u64, allowed: Range<Vpn>) -> Option<Vpn> {
        let (low, high) = (allowed.start.0, allowed.end.0);
        if pages == 0 || high.checked_sub(low)? < pages {
            return None;
        }
        let mut path = self.path(low);
        let mut free_from = low;
        loop {
            let leaf = self.node(path.leaf);
            free_from = free_from.max(self.end_before(leaf));
            for at in 0..leaf.count() {
                let (start, end, _) = leaf.entry(at);
                if start.saturating_sub(free_from) >= pages {
                    return fit(free_from, pages, high);
                }
                free_from = free_from.max(end);
            }
            if high.checked_sub(free_from)? < pages {
                return None;
            }
            if !self.to_next_wide(&mut path, pages) {
                return fit(free_from.max(self.last_end()), pages, high);
            }
        }
    }

    /// The highest `pages` free pages within `allowed`; where they begin (Linux:
    /// `mas_empty_area_rev`, `vm_unmapped_area` top-down).
    pub fn highest_gap(&self, _editor: &Editor, pages: u64, allowed: Range<Vpn>) -> Option<Vpn> {
        let (low, high) = (allowed.start.0, allowed.end.0);
        if pages == 0 || high.checked_sub(low)? < pages {
            return None;
        }
        let fits = |from: u64, to: u64| {
            let begin = to.checked_sub(pages)?;
            (begin >= from.max(low)).then_some(Vpn(begin))
        };
        let mut path = self.path(high - 1);
        let mut free_to = high;
        loop {
            let leaf = self.node(path.leaf);
            for at in (0..leaf.count()).rev() {
                let (start, end, _) = leaf.entry(at);
                if start >= free_to {
                    continue;
                }
                if let Some(found) = fits(end, free_to) {
                    return Some(found);
                }
                free_to = start;
            }
            if let Some(found) = fits(self.end_before(leaf), free_to) {
                return Some(found);
            }
            if free_to.checked_sub(low)? < pages {
                return None;
            }
            if !self.to_prev_wide(&mut path, pages) {
                return None;
            }
            free_to = self.first_gap_end(&path, free_to);
        }
    }

    /// Where the free space behind the last entry of the leaf of `path` ends.
    fn first_gap_end(&self, path: &Path, free_to: u64) -> u64 {
        match self.node(path.leaf).links().1 {
            NONE => free_to,
            after => free_to.min(self.node(after).key(0)),
        }
    }

    /// Moves `path` to the next leaf with a gap of at least `pages`.
    fn to_next_wide(&self, path: &mut Path, pages: u64) -> bool {
        let wide = |node: &Node<M>, from: usize| {
            (from..node.count()).find(|&at| node.gap(at) >= pages.min(GAP_MAX))
        };
        for depth in (0..path.steps().len()).rev() {
            let (id, taken) = path.steps()[depth];
            if let Some(at) = wide(self.node(id), taken + 1) {
                self.descend(path, depth, at, |node| wide(node, 0));
                return true;
            }
        }
        false
    }

    /// Moves `path` to the last leaf before it with a gap of at least `pages`.
    fn to_prev_wide(&self, path: &mut Path, pages: u64) -> bool {
        let wide = |node: &Node<M>, to: usize| {
            (0..to).rev().find(|&at| node.gap(at) >= pages.min(GAP_MAX))
        };
        for depth in (0..path.steps().len()).rev() {
            let (id, taken) = path.steps()[depth];
            if let Some(at) = wide(self.node(id), taken) {
                self.descend(path, depth, at, |node| wide(node, node.count()));
                return true;
            }
        }
        false
    }

    /// Takes child `at` at `depth`, and from there on what `choose` says.
    fn descend(
        &self,
        path: &mut Path,
        depth: usize,
        at: usize,
        choose: impl Fn(&Node<M>) -> Option<usize>,
    ) {
        let (mut id, mut at) = (path.steps()[depth].0, at);
        for level in depth..path.steps().len() {
            path.set(level, (id, at));
            id = self.node(id).child(at);
            if level + 1 < path.steps().len() {
                at = choose(self.node(id)).expect("a node is as wide as its widest child");
            }
        }
        path.leaf = id;
    }

    /// Where the last mapping before `leaf` ends.
    fn end_before(&self, leaf: &Node<M>) -> u64 {
        match leaf.links().0 {
            NONE => 0,
            before => {
                let before = self.node(before);
                before.entry(before.count() - 1).1
            }
        }
    }

    fn last_end(&self) -> u64 {
        let leaf = self.node(self.path(NO_KEY - 1).leaf);
        leaf.count()
            .checked_sub(1)
            .map_or(0, |last| leaf.entry(last).1)
    }

    /// The largest gap in the subtree of node `id` with `levels` levels below.
    pub(super) fn gap_of(&self, id: u32, levels: usize) -> u64 {
        let node = self.node(id);
        if levels > 0 {
            node.widest()
        } else {
            self.gap_of_leaf(node)
        }
    }

    fn gap_of_leaf(&self, leaf: &Node<M>) -> u64 {
        let mut end_before = self.end_before(leaf);
        let mut widest = 0;
        for at in 0..leaf.count() {
            let (start, end, _) = leaf.entry(at);
            widest = widest.max(start - end_before);
            end_before = end;
        }
        widest
    }

    /// Brings the gaps along `path` up to date after its leaf has changed.
    pub(super) fn mend(&self, path: &Path) {
        let mut gap = self.gap_of_leaf(self.node(path.leaf)).min(GAP_MAX);
        for &(id, at) in path.steps().iter().rev() {
            let node = self.node(id);
            if node.gap(at) == gap {
                return;
            }
            node.set_child(at, node.child(at), gap);
            gap = node.widest();
        }
    }

    /// The same for the leaf behind `leaf`, whose first gap reaches back into it.
    pub(super) fn mend_after(&self, leaf: &Node<M>) {
        let after = leaf.links().1;
        if after != NONE {
            self.mend(&self.path(self.node(after).key(0)));
        }
    }

    /// The same above the inner node at `depth` of `path`.
    pub(super) fn mend_above(&self, path: &Path, depth: usize) {
        for level in (0..depth).rev() {
            let ((id, at), (child, _)) = (path.steps()[level], path.steps()[level + 1]);
            self.node(id)
                .set_child(at, child, self.node(child).widest());
        }
    }
}

/// `pages` pages from `from` on, if they end at `high` at the latest.
fn fit(from: u64, pages: u64, high: u64) -> Option<Vpn> {
    (from.checked_add(pages)? <= high).then_some(Vpn(from))
}

impl<M: Machine> VmaTree<M> {
    /// Looks at every node: keys in order, gaps what they should be. For tests and checkers.
    ///
    /// # Panics
    /// If the tree is not whole: a bug.
    pub fn assert_whole(&self, _editor: &Editor) {
        let (root, levels) = self.top();
        self.assert_node(root, levels);
    }

    fn assert_node(&self, id: u32, levels: usize) {
        let node = self.node(id);
        let count = node.count();
        assert!(node.keys[count..].iter().all(|key| key.get() == NO_KEY));
        assert!((1..count).all(|at| node.key(at - 1) < node.key(at)));
        if levels == 0 {
            return;
        }
        assert!(count > 0, "an inner node has children");
        for at in 0..count {
            let gap = self.gap_of(node.child(at), levels - 1).min(GAP_MAX);
            assert_eq!(node.gap(at), gap, "level {levels}, child {at}");
            self.assert_node(node.child(at), levels - 1);
        }
    }
}
