//! Adding a block of the largest order to the free lists, and removing one, when a zone grows or
//! shrinks.

use alloc::vec;
use alloc::vec::Vec;

use super::Buddy;
use crate::machine::Tags;
use crate::page::layout::ZoneLayout;
use crate::page::links::PairLinks;
use crate::page::mobility::{Frames, Mobility};
use crate::page::tag;
use crate::units::{Order, Pages};

/// The reason why a block cannot be removed from its zone. Page numbers are relative to the zone's
/// first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Stays {
    /// The block has no memory that could be removed.
    Absent,
    /// The page `page` of the block is not on a free list, and its tag is `tag`.
    Used { page: u32, tag: u8 },
    /// The zone has `free` free pages, and would have too few without those of the block.
    Needed { free: Pages },
}

/// Returns, for each block of the largest order, whether all its pages are in holes.
pub(in crate::page) fn absent_blocks(layout: &ZoneLayout) -> Vec<bool> {
    let each = Order::MAX.pages().0;
    let mut missing = vec![0; layout.spanned.0.div_ceil(each) as usize];
    for hole in &layout.holes {
        let (mut at, end) = (hole.start - layout.start.0, hole.end - layout.start.0);
        while at < end {
            let next = (at - at % each).saturating_add(each).min(end);
            missing[(at / each) as usize] += next - at;
            at = next;
        }
    }
    missing.iter().map(|&pages| pages == each).collect()
}

impl Buddy {
    /// Returns whether the block of the largest order at `page` has no memory at all.
    pub(in crate::page) fn is_absent(&self, page: u32) -> bool {
        let block = (page / Order::MAX.pages().0) as usize;
        self.absent.get(block).copied().unwrap_or_default()
    }

    /// Puts the block of the largest order at `page` on a free list, as movable memory. The block
    /// had no memory before. If memory for the block's list links was allocated in advance, the
    /// function takes it out of `records`.
    pub(in crate::page) fn add_block<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        records: &mut Option<PairLinks>,
    ) {
        frames.types.set(page, Order::MAX, Mobility::Movable);
        self.ages.used(page, Order::MAX);
        self.make_present(page, records);
        frames.tags.set(page, tag::free(Order::MAX));
        self.give_fresh(page, frames.types.of(page));
    }

    /// Puts a block that `remove_block` has removed back on the free lists. The types of the
    /// block's page blocks are the same as before, and so is the block's age.
    pub(in crate::page) fn restore_block<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        records: &mut Option<PairLinks>,
    ) {
        self.make_present(page, records);
        frames.tags.set(page, tag::TAIL);
        self.kept += kept_in(frames, page);
        self.give(frames, page, Order::MAX);
    }

    fn make_present(&mut self, page: u32, records: &mut Option<PairLinks>) {
        let block = (page / Order::MAX.pages().0) as usize;
        self.absent[block] = false;
        self.links.exchange(block, records);
    }

    /// Checks whether the block of the largest order at `page` can be removed. The error is the
    /// first reason against the removal. Does not check whether the zone needs the block's free
    /// pages.
    pub(in crate::page) fn obstacle<T: Tags>(
        &self,
        frames: Frames<'_, T>,
        page: u32,
    ) -> Result<(), Stays> {
        if self.is_absent(page) {
            return Err(Stays::Absent);
        }
        let end = page + Order::MAX.pages().0;
        let mut at = page;
        // The loop takes few turns: free buddies have been merged, so only a few free blocks can
        // precede the first page that is not free.
        while at < end {
            let tag = frames.tags.get(at);
            let free = self.free_at(frames.tags, at);
            let order = free.ok_or(Stays::Used { page: at, tag })?;
            at += order.pages().0;
        }
        Ok(())
    }

    /// Removes the memory of the block at `page`, which is a block of the largest order. Does so
    /// only if all its pages are free and the zone still has `leave` free pages without it. Moves
    /// the memory of the block's list links to `records`.
    pub(in crate::page) fn remove_block<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        leave: Pages,
        records: &mut Option<PairLinks>,
    ) -> Result<(), Stays> {
        self.obstacle(frames, page)?;
        if self.free.saturating_sub(Order::MAX.pages()) < leave {
            return Err(Stays::Needed { free: self.free });
        }
        let end = page + Order::MAX.pages().0;
        let mut at = page;
        while let Some(order) = (at < end).then(|| self.free_at(frames.tags, at)).flatten() {
            let mobility = frames.types.of(at);
            self.unlink(at, order, mobility);
            self.account_taken(order, mobility);
            frames.tags.set(at, tag::TAIL);
            at += order.pages().0;
        }
        self.kept = self.kept.saturating_sub(kept_in(frames, page));
        frames.tags.set(page, tag::HOLE);
        let block = (page / Order::MAX.pages().0) as usize;
        self.links.exchange(block, records);
        self.absent[block] = true;
        Ok(())
    }
}

/// Looks at the block of the largest order that begins at `page`. Returns how many of its pages are
/// in page blocks that are kept for atomic requests.
fn kept_in<T: Tags>(frames: Frames<'_, T>, page: u32) -> Pages {
    let each = frames.types.block().pages();
    let starts = (page..page + Order::MAX.pages().0).step_by(each.index());
    let kept = starts.filter(|&start| frames.types.of(start) == Mobility::HighAtomic);
    kept.fold(Pages::ZERO, |sum, _| sum + each)
}
