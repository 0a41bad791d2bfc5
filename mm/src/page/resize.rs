//! Growing and shrinking zones by blocks of 4 MiB (Linux: memory hotplug, `online_pages` and
//! `offline_pages`).
//!
//! A zone spans as many frames as it may ever have. The frames that have no memory yet are holes in
//! its layout. Memory is added to a hole and removed from free blocks, always in whole blocks of
//! the largest order. So an allocation or a free needs no extra step in a zone that can grow or
//! shrink.
//!
//! Locks: the sizing lock (Linux: `pcp_batch_high_lock`) is held during each change, and inside it
//! the zone lock for one block at a time. Page lists are drained while the sizing lock is not held.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::buddy::Stays;
use super::links::{Metadata, PairLinks, pair_links};
use super::zone::Zone;
use super::{PageAllocator, tag};
use crate::machine::{Lock, Machine};
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn};
use crate::vmstat::counters::ZoneItem;

/// The number of pages by which a zone grows or shrinks at a time: one block of the largest order.
const BLOCK: Pages = Order::MAX.pages();

/// The reason why memory was not added or removed. The zone has the same memory as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The range is empty, or does not consist of whole blocks of 1024 frames.
    Unaligned {
        /// The first frame of the range.
        first: Pfn,
        /// The number of frames of the range.
        pages: Pages,
    },
    /// No zone spans the range.
    OutsideZones(Pfn),
    /// The block at this frame cannot be added, because at least a part of it has memory already.
    Present(Pfn),
    /// The block at this frame cannot be removed, because a part of it has no memory.
    Absent(Pfn),
    /// The block cannot be removed, because a page of it is not free.
    InUse {
        /// The first frame of the range that is not free.
        pfn: Pfn,
        /// The user of the frame `pfn`.
        holder: Holder,
    },
    /// The zone needs the free pages of the range: without them, the zone would be below its high
    /// watermark. This error does not occur if the range is all memory of the zone.
    Needed {
        /// The number of free pages of the zone, including those of the range.
        free: Pages,
        /// The number of free pages that the zone must keep.
        keeps: Pages,
    },
    /// There is not enough heap memory for the allocator's own records: the list links of the pages
    /// to be added, or a list of the blocks to be added or removed.
    NoMemory,
}

/// The user of a page that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The page begins a block of this order that was allocated, and is not known to be movable.
    Allocated(Order),
    /// The page begins a block of this order that was allocated for movable memory, so its user may
    /// move it (Linux: `alloc_contig_range` migrates such pages).
    Movable(Order),
    /// The page is on a CPU's page list, or on its way to or from such a list. The removal drains
    /// all lists before it returns this error, so a CPU has put the page there after the drain.
    Listed,
    /// The memory of the page is being returned to the system below the allocator at this moment.
    GivenBack,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocated(order) => write!(f, "allocated as a block of order {order}"),
            Self::Movable(order) => write!(f, "allocated as a movable block of order {order}"),
            Self::Listed => f.write_str("on a CPU's page list"),
            Self::GivenBack => f.write_str("being given back"),
        }
    }
}

impl Holder {
    fn advice(self) -> &'static str {
        match self {
            Self::Allocated(_) | Self::Movable(_) => "free it, then try again",
            Self::Listed => "try again, if need be while no CPU allocates or frees",
            Self::GivenBack => "try again, because that takes less than a millisecond",
        }
    }
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaligned { first, pages } => write!(
                f,
                "{pages} pages from page {:#x} are not whole blocks of {BLOCK} pages: round the \
                 range to multiples of {BLOCK}",
                first.0
            ),
            Self::OutsideZones(Pfn(pfn)) => write!(
                f,
                "no zone spans page {pfn:#x}: create the zone with all pages that it may ever \
                 have, and with holes for those without memory"
            ),
            Self::Present(Pfn(pfn)) => write!(f, "the block at page {pfn:#x} has memory already"),
            Self::Absent(Pfn(pfn)) => {
                write!(f, "the block at page {pfn:#x} is not wholly memory")
            }
            Self::InUse {
                pfn: Pfn(pfn),
                holder,
            } => write!(f, "page {pfn:#x} is {holder}: {}", holder.advice()),
            Self::Needed { free, keeps } => write!(
                f,
                "the zone has {free} free pages and must keep {keeps}: free more pages first"
            ),
            Self::NoMemory => f.write_str("there is no memory for the change itself"),
        }
    }
}

impl core::error::Error for ResizeError {}

impl<M: Machine> PageAllocator<M> {
    /// Adds the memory of a range to its zone; see [`Manager::memory_online`].
    ///
    /// [`Manager::memory_online`]: crate::Manager::memory_online
    pub(crate) fn memory_online(
        &self,
        machine: &M,
        first: Pfn,
        pages: Pages,
    ) -> Result<(), ResizeError> {
        let (zone, blocks) = self.whole_blocks(first, pages)?;
        let mut records = Vec::new();
        let count = blocks.len() / BLOCK.index();
        let room = records.try_reserve_exact(count);
        room.map_err(|_short| ResizeError::NoMemory)?;
        for _ in 0..count {
            let record = match self.metadata {
                // A zone that keeps free pages in bitmaps has link records for its huge blocks from
                // the start.
                Metadata::Eager if !zone.has_bitmaps => {
                    Some(pair_links().ok_or(ResizeError::NoMemory)?)
                }
                Metadata::Eager | Metadata::WhenSplit => None,
            };
            records.push(record);
        }
        self.tunables.with(machine, Site::Control, |tunables| {
            zone.add_blocks(machine, blocks, &mut records)?;
            self.recompute(machine, tunables);
            Ok(())
        })?;
        self.provide_lists(machine);
        Ok(())
    }

    /// Removes the memory of a range from its zone; see [`Manager::memory_offline`].
    ///
    /// [`Manager::memory_offline`]: crate::Manager::memory_offline
    pub(crate) fn memory_offline(
        &self,
        machine: &M,
        first: Pfn,
        pages: Pages,
    ) -> Result<(), ResizeError> {
        let (zone, blocks) = self.whole_blocks(first, pages)?;
        let mut records = Vec::new();
        let room = records.try_reserve_exact(blocks.len() / BLOCK.index());
        room.map_err(|_short| ResizeError::NoMemory)?;
        let mut remove = || {
            self.tunables.with(machine, Site::Control, |tunables| {
                zone.remove_blocks(machine, blocks.clone(), &mut records)?;
                self.recompute(machine, tunables);
                Ok(())
            })
        };
        let listed = |why: &ResizeError| {
            let holder = Holder::Listed;
            matches!(why, ResizeError::InUse { holder: on, .. } if *on == holder)
        };
        match remove() {
            Err(why) if listed(&why) => {
                self.drain_all_sync(machine);
                remove()?;
            }
            outcome => outcome?,
        }
        self.provide_lists(machine);
        Ok(())
    }

    /// Returns the zone that spans a range of frames, and the range in page numbers of this zone.
    fn whole_blocks(
        &self,
        first: Pfn,
        pages: Pages,
    ) -> Result<(&Zone<M>, Range<u32>), ResizeError> {
        let aligned = first.is_aligned(Order::MAX) && pages.0.is_multiple_of(BLOCK.0);
        if !aligned || pages == Pages::ZERO {
            return Err(ResizeError::Unaligned { first, pages });
        }
        let outside = ResizeError::OutsideZones(first);
        let (zone, page) = self.locate(first).ok_or(outside)?;
        match page.checked_add(pages.0) {
            Some(end) if end <= zone.spanned().0 => Ok((zone, page..end)),
            _ => Err(outside),
        }
    }
}

impl<M: Machine> Zone<M> {
    /// Adds all blocks of `range`, or none of them. `records` holds memory for the list links of
    /// each block. This function takes that memory over.
    fn add_blocks(
        &self,
        machine: &M,
        range: Range<u32>,
        records: &mut [Option<PairLinks>],
    ) -> Result<(), ResizeError> {
        let starts = || range.clone().step_by(BLOCK.index());
        // Blocks are added and removed only under the sizing lock (`LockClass::Sizing`), so a block
        // that is absent here is still absent when it is added below.
        for page in starts() {
            let is_absent = self.locked(machine, Site::Control, |buddy| buddy.is_absent(page));
            if !is_absent {
                return Err(ResizeError::Present(self.pfn(page)));
            }
        }
        for (page, record) in starts().zip(records) {
            self.locked(machine, Site::Control, |buddy| {
                machine.spend(Work::BuddyFree, 1);
                buddy.add_block(self.frames(), page, record);
            });
            self.note_resized(machine, i64::from(BLOCK.0));
        }
        Ok(())
    }

    /// Removes all blocks of `range`, or none of them. Moves the memory of the blocks' list links
    /// to `records`, which has room for it.
    fn remove_blocks(
        &self,
        machine: &M,
        range: Range<u32>,
        records: &mut Vec<Option<PairLinks>>,
    ) -> Result<(), ResizeError> {
        let keeps = if self.managed() == length(&range) {
            Pages::ZERO
        } else {
            self.watermarks(machine).high
        };
        if length(&range) > BLOCK {
            self.check_removable(machine, range.clone(), keeps)?;
        }
        for page in range.clone().step_by(BLOCK.index()) {
            let mut record = None;
            let removed = self.locked(machine, Site::Control, |buddy| {
                machine.spend(Work::BuddyAlloc, 1);
                buddy.remove_block(self.frames(), page, keeps, &mut record)
            });
            match removed {
                Ok(()) => {
                    records.push(record);
                    self.note_resized(machine, -i64::from(BLOCK.0));
                }
                Err(stays) => {
                    let removed = range.start..page;
                    self.restore_blocks(machine, removed.clone(), records);
                    return Err(self.why(stays, page, keeps, length(&removed)));
                }
            }
        }
        Ok(())
    }

    /// Checks that all blocks of `range` are free and that the zone keeps `keeps` free pages
    /// without them. So a removal that is bound to fail takes no memory from other CPUs.
    fn check_removable(
        &self,
        machine: &M,
        range: Range<u32>,
        keeps: Pages,
    ) -> Result<(), ResizeError> {
        let mut free = Pages::ZERO;
        for page in range.clone().step_by(BLOCK.index()) {
            let checked = self.locked(machine, Site::Control, |buddy| {
                free = buddy.free();
                buddy.obstacle(self.frames(), page)
            });
            checked.map_err(|stays| self.why(stays, page, keeps, Pages::ZERO))?;
        }
        if free.saturating_sub(length(&range)) < keeps {
            return Err(ResizeError::Needed { free, keeps });
        }
        Ok(())
    }

    /// Puts the blocks of `range`, which were removed a moment ago, back on the free lists.
    fn restore_blocks(&self, machine: &M, range: Range<u32>, records: &mut Vec<Option<PairLinks>>) {
        for (page, mut record) in range.step_by(BLOCK.index()).zip(records.drain(..)) {
            self.locked(machine, Site::Control, |buddy| {
                machine.spend(Work::BuddyFree, 1);
                buddy.restore_block(self.frames(), page, &mut record);
            });
            self.note_resized(machine, i64::from(BLOCK.0));
        }
    }

    /// Adds `pages` to the number of the zone's managed pages and to its counter of free pages.
    /// `pages` is negative if a block was removed.
    fn note_resized(&self, machine: &M, pages: i64) {
        let managed = i64::from(self.managed().0) + pages;
        self.set_managed(Pages(crate::units::count_in(managed)));
        let free = ZoneItem::FreePages as usize;
        self.counters.add(machine, free, pages);
    }

    /// The error for the block at page `block`, which cannot be removed because of `stays`. When
    /// the block was found, `removed` pages of the range had already been taken off the free lists.
    fn why(&self, stays: Stays, block: u32, keeps: Pages, removed: Pages) -> ResizeError {
        match stays {
            Stays::Absent => ResizeError::Absent(self.pfn(block)),
            Stays::Used { tag, .. } if tag == tag::HOLE => ResizeError::Absent(self.pfn(block)),
            Stays::Needed { free } => {
                let free = free + removed;
                ResizeError::Needed { free, keeps }
            }
            Stays::Used { page, tag } => {
                let holder = match (tag::movable_order(tag), tag::allocated_order(tag)) {
                    (Some(order), _) => Holder::Movable(order),
                    (None, Some(order)) => Holder::Allocated(order),
                    (None, None) if tag == tag::ISOLATED => Holder::GivenBack,
                    (None, None) => Holder::Listed,
                };
                let pfn = self.pfn(page);
                ResizeError::InUse { pfn, holder }
            }
        }
    }
}

/// The number of pages of a range of page numbers.
fn length(range: &Range<u32>) -> Pages {
    Pages(range.end - range.start)
}
