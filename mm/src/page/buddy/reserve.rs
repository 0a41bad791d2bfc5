//! Page blocks kept for atomic requests of several pages (Linux: `MIGRATE_HIGHATOMIC`).
//!
//! A page block that has served such a request stays reserved for later ones, up to about one
//! percent of the zone's pages.

use super::{Buddy, order_at};
use crate::machine::Tags;
use crate::page::mobility::{Frames, Mobility};
use crate::units::{Order, Pages};

impl Buddy {
    /// The number of free pages in blocks kept for atomic requests.
    pub(in crate::page) fn free_kept(&self) -> Pages {
        self.free_kept
    }

    /// The number of pages of all blocks that are kept for atomic requests, free or not.
    #[cfg(test)]
    pub(in crate::page) fn kept(&self) -> Pages {
        self.kept
    }

    /// Keeps a page block for later atomic requests, unless `most` pages are kept already (Linux:
    /// `reserve_highatomic_pageblock`). It is the page block around `page`, which was just taken as
    /// a block of `order`.
    pub(in crate::page) fn keep<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        order: Order,
        most: Pages,
    ) {
        let block = frames.types.block();
        let theirs = frames.types.of(page);
        if self.kept >= most || !theirs.merges() {
            return;
        }
        if order < block {
            let start = page & !(block.pages().0 - 1);
            if start + block.pages().0 > self.spanned.0 {
                return;
            }
            self.move_block(frames, start, theirs, Mobility::HighAtomic);
            self.kept += block.pages();
        } else {
            frames.types.set(page, order, Mobility::HighAtomic);
            self.kept += order.pages();
        }
    }

    /// Gives the type `to` to one page block that is kept for atomic requests and has a free page.
    /// Returns whether there was such a page block (Linux: `unreserve_highatomic_pageblock`, for
    /// one zone). Unless `all` is true, the last kept page block stays kept.
    pub(in crate::page) fn unkeep<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        to: Mobility,
        all: bool,
    ) -> bool {
        let block = frames.types.block();
        if self.kept <= block.pages() && !all {
            return false;
        }
        let kept = Mobility::HighAtomic;
        let lists = &self.lists[kept.index()];
        let Some(order) = (0..Order::COUNT).find(|&at| lists[at].len > 0) else {
            return false;
        };
        let (page, order) = (lists[order].head, order_at(order));
        let pages = block.pages().0.max(order.pages().0).min(self.kept.0);
        self.kept -= Pages(pages);
        if order > block {
            self.unlink(page, order, kept);
            frames.types.set(page, order, to);
            self.link(page, order, to, super::list::End::Tail);
            self.free_kept -= order.pages();
        } else {
            let start = page & !(block.pages().0 - 1);
            self.move_block(frames, start, kept, to);
        }
        true
    }
}
