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

/// The reason why a block stays in its zone. Page numbers are relative to the zone's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Stays {
    /// The block has no memory that could be removed.
    Absent,
    /// The block has a page with this tag, which is not on a free list.
    Used { page: u32, tag: u8 },
    /// The zone has this many free pages, and needs them.
    Needed { free: Pages },
}

/// For each block of the largest order, whether it lies in holes entirely.
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

    /// Puts the block of the largest order at `page`, which is absent, on a free list. Takes the
    /// block's `records` if link records are allocated in advance.
    pub(in crate::page) fn add_block<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        records: &mut Option<PairLinks>,
    ) {
        let block = (page / Order::MAX.pages().0) as usize;
        self.absent[block] = false;
        self.links.exchange(block, records);
        for page in page..page + Order::MAX.pages().0 {
            // Only a block whose holes were not one whole block has tags to clear.
            if frames.tags.get(page) != tag::TAIL {
                frames.tags.set(page, tag::TAIL);
            }
        }
        frames.types.set(page, Order::MAX, Mobility::Movable);
        frames.tags.set(page, tag::free(Order::MAX));
        self.give_fresh(page, frames.types.of(page));
    }

    /// Takes the block of the largest order at `page` off the free lists for good, if all its pages
    /// are free and the zone keeps `leave` free pages. Moves the block's link records to `records`.
    pub(in crate::page) fn remove_block<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        leave: Pages,
        records: &mut Option<PairLinks>,
    ) -> Result<(), Stays> {
        if self.is_absent(page) {
            return Err(Stays::Absent);
        }
        let end = page + Order::MAX.pages().0;
        let mut at = page;
        // Free neighbours have been merged, so the first page in use comes after a few free blocks.
        while at < end {
            let tag = frames.tags.get(at);
            let order = tag::free_order(tag).ok_or(Stays::Used { page: at, tag })?;
            at += order.pages().0;
        }
        if self.free.saturating_sub(Order::MAX.pages()) < leave {
            return Err(Stays::Needed { free: self.free });
        }
        at = page;
        while let Some(order) = (at < end)
            .then(|| tag::free_order(frames.tags.get(at)))
            .flatten()
        {
            let mobility = frames.types.of(at);
            self.unlink(at, order, mobility);
            self.account_taken(order, mobility);
            frames.tags.set(at, tag::TAIL);
            at += order.pages().0;
        }
        let each = frames.types.block().pages();
        for start in (page..end).step_by(each.index()) {
            if frames.types.of(start) == Mobility::HighAtomic {
                self.kept = self.kept.saturating_sub(each);
            }
        }
        frames.types.set(page, Order::MAX, Mobility::Movable);
        frames.tags.set(page, tag::HOLE);
        let block = (page / Order::MAX.pages().0) as usize;
        self.links.exchange(block, records);
        self.absent[block] = true;
        self.ages.used(page, Order::MAX);
        Ok(())
    }
}
