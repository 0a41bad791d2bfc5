//! The trees of mappings that are measured: the manager's tree, and trees that a Rust program would
//! use instead.

use std::collections::BTreeMap;

use blart::TreeMap;
use plimsoll_host::Host;
use plimsoll_mm::space::vma_tree::{Cursor, Editor, Finder, Vma, VmaTree};
use plimsoll_mm::units::Vpn;
use rangemap::RangeMap;

/// A tree of mappings, with the operations that are measured. The results of lookups and walks only
/// serve to check that all trees give the same answers.
pub(super) trait Tree {
    /// An empty tree.
    fn empty() -> Self;
    fn insert(&mut self, vma: Vma);
    /// Removes the whole mapping `vma`, which must be in the tree.
    fn remove(&mut self, vma: Vma);
    /// The id of the mapping that contains `page`, or 0 if no mapping contains it.
    fn find(&self, page: u64) -> u32;
    /// Looks up `page` `times` times, in the fastest way in which the tree can repeat a lookup.
    /// Returns the sum of the ids that the lookups find.
    fn find_again(&self, page: u64, times: u32) -> u32;
    /// The sum of the ids of all mappings, by a walk from low to high addresses.
    fn up(&self) -> u32;
    /// The sum of the ids of all mappings, by a walk from high to low addresses.
    fn down(&self) -> u32;
    /// The first page of the lowest gap that has `pages` free pages at or above page `from`.
    fn lowest_gap(&self, pages: u64, from: u64) -> u64;
    /// The number of bytes that the tree uses. `None` if the tree cannot report it.
    fn bytes(&self) -> Option<usize>;
}

/// The tree of mappings of Plimsoll's memory manager.
pub(super) struct Ours {
    host: Host,
    tree: VmaTree<Host>,
    editor: Editor,
}

const SURE: &str = "no other thread changes the tree";

impl Tree for Ours {
    fn empty() -> Self {
        let host = Host::new();
        let (tree, editor) = VmaTree::new(&host).expect("memory for a node");
        Self { host, tree, editor }
    }

    #[inline]
    fn insert(&mut self, vma: Vma) {
        self.tree
            .insert(&self.host, &mut self.editor, vma)
            .expect("nothing is in the way");
    }

    #[inline]
    fn remove(&mut self, vma: Vma) {
        self.tree
            .erase(&mut self.editor, vma.start)
            .expect("it is there");
    }

    #[inline]
    fn find(&self, page: u64) -> u32 {
        self.tree
            .find(Vpn(page))
            .expect(SURE)
            .map_or(0, |mapping| mapping.id)
    }

    fn find_again(&self, page: u64, times: u32) -> u32 {
        let mut finder = Finder::new(&self.tree);
        again(page, times, |page| {
            finder
                .find(Vpn(page))
                .expect(SURE)
                .map_or(0, |mapping| mapping.id)
        })
    }

    fn up(&self) -> u32 {
        let mut cursor = Cursor::at(&self.tree, Vpn(0));
        let mut sum = 0_u32;
        // The loop ends at the last mapping.
        while let Some(vma) = cursor.forward().expect(SURE) {
            sum = sum.wrapping_add(vma.id);
        }
        sum
    }

    fn down(&self) -> u32 {
        let mut cursor = Cursor::end(&self.tree);
        let mut sum = 0_u32;
        // The loop ends at the first mapping.
        while let Some(vma) = cursor.backward().expect(SURE) {
            sum = sum.wrapping_add(vma.id);
        }
        sum
    }

    fn lowest_gap(&self, pages: u64, from: u64) -> u64 {
        let allowed = Vpn(from)..Vma::END_MAX;
        let found = self.tree.lowest_gap(&self.editor, pages, allowed);
        found.map_or(0, |page| page.0)
    }

    fn bytes(&self) -> Option<usize> {
        Some(self.tree.bytes(&self.editor))
    }
}

/// The standard library's tree, keyed by the start of a mapping.
pub(super) struct Sorted(BTreeMap<u64, (u64, u32)>);

impl Tree for Sorted {
    fn empty() -> Self {
        Self(BTreeMap::new())
    }

    #[inline]
    fn insert(&mut self, vma: Vma) {
        self.0.insert(vma.start.0, (vma.end.0, vma.id));
    }

    #[inline]
    fn remove(&mut self, vma: Vma) {
        self.0.remove(&vma.start.0);
    }

    #[inline]
    fn find(&self, page: u64) -> u32 {
        let below = self.0.range(..=page).next_back();
        below.map_or(0, |(_, &(end, id))| if page < end { id } else { 0 })
    }

    fn find_again(&self, page: u64, times: u32) -> u32 {
        again(page, times, |page| self.find(page))
    }

    fn up(&self) -> u32 {
        sum(self.0.values().map(|&(_, id)| id))
    }

    fn down(&self) -> u32 {
        sum(self.0.values().rev().map(|&(_, id)| id))
    }

    fn lowest_gap(&self, pages: u64, from: u64) -> u64 {
        first_gap(
            self.0.iter().map(|(&start, &(end, _))| (start, end)),
            pages,
            from,
        )
    }

    fn bytes(&self) -> Option<usize> {
        None
    }
}

/// The tree of the crate `rangemap`, keyed by the start of a range. The crate handles gaps and
/// overlaps itself.
pub(super) struct Ranges(RangeMap<u64, u32>);

impl Tree for Ranges {
    fn empty() -> Self {
        Self(RangeMap::new())
    }

    #[inline]
    fn insert(&mut self, vma: Vma) {
        self.0.insert(vma.start.0..vma.end.0, vma.id);
    }

    #[inline]
    fn remove(&mut self, vma: Vma) {
        self.0.remove(vma.start.0..vma.end.0);
    }

    #[inline]
    fn find(&self, page: u64) -> u32 {
        self.0.get(&page).map_or(0, |&id| id)
    }

    fn find_again(&self, page: u64, times: u32) -> u32 {
        again(page, times, |page| self.find(page))
    }

    fn up(&self) -> u32 {
        sum(self.0.iter().map(|(_, &id)| id))
    }

    fn down(&self) -> u32 {
        sum(self.0.iter().rev().map(|(_, &id)| id))
    }

    fn lowest_gap(&self, pages: u64, from: u64) -> u64 {
        let outer = from..Vma::END_MAX.0;
        let found = self.0.gaps(&outer).find(|gap| gap.end - gap.start >= pages);
        found.map_or(0, |gap| gap.start)
    }

    fn bytes(&self) -> Option<usize> {
        None
    }
}

/// The adaptive radix tree of the crate `blart`. Its key is the start address of a mapping, as
/// eight bytes with the most significant byte first.
pub(super) struct Radix(TreeMap<[u8; 8], (u64, u32)>);

impl Tree for Radix {
    fn empty() -> Self {
        Self(TreeMap::new())
    }

    #[inline]
    fn insert(&mut self, vma: Vma) {
        self.0
            .insert(vma.start.0.to_be_bytes(), (vma.end.0, vma.id));
    }

    #[inline]
    fn remove(&mut self, vma: Vma) {
        self.0.remove(&vma.start.0.to_be_bytes());
    }

    #[inline]
    fn find(&self, page: u64) -> u32 {
        let below = self.0.range(..=page.to_be_bytes()).next_back();
        below.map_or(0, |(_, &(end, id))| if page < end { id } else { 0 })
    }

    fn find_again(&self, page: u64, times: u32) -> u32 {
        again(page, times, |page| self.find(page))
    }

    fn up(&self) -> u32 {
        sum(self.0.values().map(|&(_, id)| id))
    }

    fn down(&self) -> u32 {
        sum(self.0.values().rev().map(|&(_, id)| id))
    }

    fn lowest_gap(&self, pages: u64, from: u64) -> u64 {
        let all = self.0.iter();
        let ranges = all.map(|(&start, &(end, _))| (u64::from_be_bytes(start), end));
        first_gap(ranges, pages, from)
    }

    fn bytes(&self) -> Option<usize> {
        None
    }
}

fn again(page: u64, times: u32, mut find: impl FnMut(u64) -> u32) -> u32 {
    sum((0..times).map(|_| find(std::hint::black_box(page))))
}

fn sum(ids: impl Iterator<Item = u32>) -> u32 {
    ids.fold(0, u32::wrapping_add)
}

/// The first page of the lowest gap that has `pages` free pages at or above page `from`. `ranges`
/// are the mappings from low to high addresses, each with its start and its end.
fn first_gap(mut ranges: impl Iterator<Item = (u64, u64)>, pages: u64, from: u64) -> u64 {
    let mut free_from = from;
    let before = ranges.find(|&(start, end)| {
        let fits = start.saturating_sub(free_from) >= pages;
        if !fits {
            free_from = free_from.max(end);
        }
        fits
    });
    // If no gap between two mappings is large enough, the result is the first page after the last
    // mapping, or `from` if `from` is higher.
    before.map_or(free_from, |_| free_from)
}
