//! Searches for free space between mappings. The nodes record the gaps, so a search skips the parts
//! of the tree in which nothing can fit.
//!
//! A search begins in the leaf at one end of the allowed range. If nothing fits there, the search
//! goes up to a node with a child that has a large enough gap, and from there down to the gap. In
//! the first leaf, a part of the recorded gap may be outside the allowed range. In any later leaf,
//! the whole recorded gap can be used. It may still be too small if the search is for more pages
//! than a node can record ([`GAP_MAX`]).

use core::ops::Range;

use super::node::{GAP_MAX, NONE, Node};
use super::path::Path;
use super::{Editor, PAGE_MAX, Vma, VmaTree};
use crate::machine::Machine;
use crate::units::Vpn;

impl<M: Machine> VmaTree<M> {
    /// Returns the start of the lowest range of `pages` free pages within `allowed` (Linux:
    /// `mas_empty_area`, `vm_unmapped_area` bottom-up).
    pub fn lowest_gap(&self, _editor: &Editor, pages: u64, allowed: Range<Vpn>) -> Option<Vpn> {
        let (low, high) = (allowed.start.0, allowed.end.min(Vma::END_MAX).0);
        if pages == 0 || high.checked_sub(low)? < pages {
            return None;
        }
        let mut path = self.path(low.min(PAGE_MAX));
        let mut free_from = low;
        loop {
            // If a gap begins below `low`, only the part above `low` can be used. So wherever
            // `pages` pages fit, the gap that is recorded for the leaf is at least that large, and
            // a leaf with a smaller recorded gap can be skipped.
            if path.gap >= pages.min(GAP_MAX) {
                let leaf = self.node(path.leaf);
                free_from = free_from.max(self.end_before(leaf, 0));
                for vma in leaf.vmas() {
                    if vma.start.0.saturating_sub(free_from) >= pages {
                        return fit(free_from, pages, high);
                    }
                    free_from = free_from.max(vma.end.0);
                }
            }
            if high.checked_sub(free_from)? < pages {
                return None;
            }
            if !self.to_next_wide(&mut path, pages) {
                return fit(free_from.max(self.last_end()), pages, high);
            }
        }
    }

    /// Returns the start of the highest range of `pages` unmapped pages within `allowed` (Linux:
    /// `mas_empty_area_rev`, `vm_unmapped_area` top-down).
    pub fn highest_gap(&self, _editor: &Editor, pages: u64, allowed: Range<Vpn>) -> Option<Vpn> {
        let (low, high) = (allowed.start.0, allowed.end.min(Vma::END_MAX).0);
        if pages == 0 || high.checked_sub(low)? < pages {
            return None;
        }
        let fits = |from: u64, to: u64| {
            let begin = to.checked_sub(pages)?;
            (begin >= from.max(low)).then_some(Vpn(begin))
        };
        let mut path = self.path((high - 1).min(PAGE_MAX));
        let mut free_to = high;
        loop {
            let leaf = self.node(path.leaf);
            for slot in (0..leaf.count()).rev() {
                let vma = leaf.vma(slot);
                if vma.start.0 >= free_to {
                    continue;
                }
                if let Some(found) = fits(vma.end.0, free_to) {
                    return Some(found);
                }
                free_to = vma.start.0;
            }
            if let Some(found) = fits(self.end_before(leaf, 0), free_to) {
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

    /// Returns the end of the free space after the last entry of the leaf of `path`, but at most
    /// `free_to`.
    fn first_gap_end(&self, path: &Path, free_to: u64) -> u64 {
        match self.node(path.leaf).links().1 {
            NONE => free_to,
            after => free_to.min(self.node(after).key(0)),
        }
    }

    /// Moves `path` to the next leaf that has a gap of at least `pages`. Returns whether there is
    /// such a leaf.
    fn to_next_wide(&self, path: &mut Path, pages: u64) -> bool {
        let pages = pages.min(GAP_MAX);
        let wide = |node: &Node<M>, from: usize| node.first_wide(from, pages);
        for depth in (0..path.levels()).rev() {
            let (id, taken) = path.step(depth);
            if let Some(at) = wide(self.node(id), taken + 1) {
                self.descend(path, depth, at, |node| wide(node, 0));
                return true;
            }
        }
        false
    }

    /// Moves `path` back to the nearest earlier leaf that has a gap of at least `pages`. Returns
    /// whether there is one.
    fn to_prev_wide(&self, path: &mut Path, pages: u64) -> bool {
        let pages = pages.min(GAP_MAX);
        let wide = |node: &Node<M>, to: usize| node.last_wide(to, pages);
        for depth in (0..path.levels()).rev() {
            let (id, taken) = path.step(depth);
            if let Some(at) = wide(self.node(id), taken) {
                self.descend(path, depth, at, |node| wide(node, node.count()));
                return true;
            }
        }
        false
    }

    /// Moves `path` to child `at` at level `depth`, and on every level below to the child that
    /// `choose` returns.
    fn descend(
        &self,
        path: &mut Path,
        depth: usize,
        at: usize,
        choose: impl Fn(&Node<M>) -> Option<usize>,
    ) {
        let (mut id, mut at) = (path.step(depth).0, at);
        for level in depth..path.levels() {
            path.set(level, id, at);
            (id, path.gap) = self.node(id).child(at);
            if level + 1 < path.levels() {
                at = choose(self.node(id)).expect("a node is as wide as its widest child");
            }
        }
        path.leaf = id;
    }

    fn last_end(&self) -> u64 {
        let leaf = self.node(self.path(PAGE_MAX).leaf);
        leaf.last_vma().map_or(0, |vma| vma.end.0)
    }
}

/// Returns `from` if a range of `pages` pages that starts at `from` ends at or below `high`.
fn fit(from: u64, pages: u64, high: u64) -> Option<Vpn> {
    (from.checked_add(pages)? <= high).then_some(Vpn(from))
}
