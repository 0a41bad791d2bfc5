//! Freeing of blocks. A freed block goes onto this CPU's list. When the lists reach `high`, the
//! coldest pages are returned to the zone. This file also splits an allocated block into single
//! pages that are then freed one by one.
//!
//! The return of pages from lists that have reached `high` is called a spill. A spill consists of
//! one or more holds of the zone lock. Between two holds, the spill drops the zone lock and the pcp
//! lock to let other CPUs in. The next hold then takes more pages from the same CPU's lists.
//!
//! Locks: `spill_hold` takes the zone lock inside the pcp lock; `free_direct` takes the zone lock
//! alone.

use super::hold::Part;
use super::holds::{Leftover, Limit};
use super::mobility::Mobility;
use super::pcp::{FREE_BATCH, Pcp, TuningInput, list_of};
use super::quick::Quick;
use super::zone::{PerCpu, Zone};
use super::{FreeError, PageAllocator, tag};
use crate::event::Event;
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, Pfn, count_in, count_of};

impl<M: Machine> PageAllocator<M> {
    /// Frees a block (Linux: `__free_pages`).
    ///
    /// # Errors
    /// If `pfn` is not the first frame of a block allocated with `order`; nothing changes in that
    /// case.
    #[inline(always)]
    pub fn free(&self, machine: &M, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        match self.free_quickly(machine, pfn, order) {
            Quick::Freed => Ok(()),
            Quick::Refused(why) => Err(why),
            quick => self.free_fully(machine, pfn, order, None, quick == Quick::Tagged),
        }
    }

    /// Frees a block as [`PageAllocator::free`] does, but puts it on this CPU's list of `mobility`,
    /// whatever the type of the page block around it. This is for replays of a recording of Linux,
    /// whose blocks had other addresses. Without grouping by mobility, `mobility` makes no
    /// difference.
    ///
    /// # Errors
    /// If `pfn` is not the first frame of a block allocated with `order`; nothing changes in that
    /// case.
    pub fn free_as(
        &self,
        machine: &M,
        pfn: Pfn,
        order: Order,
        mobility: Mobility,
    ) -> Result<(), FreeError> {
        self.free_fully(machine, pfn, order, Some(mobility), false)
    }

    /// Frees a block by the path that handles every case: it may return pages from a list to the
    /// zone, or free the block to the zone. If `forced` is given, the block goes onto the list of
    /// that type. `is_tagged` says that the tag of the block already says that it is on a page
    /// list.
    #[inline(never)]
    fn free_fully(
        &self,
        machine: &M,
        pfn: Pfn,
        order: Order,
        forced: Option<Mobility>,
        is_tagged: bool,
    ) -> Result<(), FreeError> {
        let (zone, page) = self.locate(pfn).ok_or(FreeError::OutsideZones(pfn))?;
        if !is_tagged {
            zone.reclaim_tag(page, order)?;
            machine.emit(Event::PageFree { pfn, order });
        }
        zone.free_block(machine, page, order, forced);
        Ok(())
    }

    /// Frees single pages, several under one hold of the pcp lock if they are in the same zone
    /// (Linux: `free_unref_folios`).
    ///
    /// # Errors
    /// Stops at the first page that was not allocated as a single page: the pages before it are
    /// freed, that page and those after it are not.
    pub fn free_pages(&self, machine: &M, pfns: &[Pfn]) -> Result<(), FreeError> {
        self.free_pages_counting(machine, pfns, &mut 0)
    }

    /// Frees single pages as [`PageAllocator::free_pages`] does. Adds the number of freed pages to
    /// `freed`, even if it returns an error. After an error, the number of freed pages is the index
    /// in `pfns` of the page that could not be freed. The frame number in the error does not say
    /// which index this is if `pfns` contains the page twice.
    ///
    /// # Errors
    /// Those of [`PageAllocator::free_pages`].
    pub fn free_pages_counting(
        &self,
        machine: &M,
        pfns: &[Pfn],
        freed: &mut usize,
    ) -> Result<(), FreeError> {
        let mut run = [0; FREE_BATCH];
        let mut rest = pfns;
        while let Some(&first) = rest.first() {
            let (zone, _) = self.locate(first).ok_or(FreeError::OutsideZones(first))?;
            let mut len = 0;
            let mut refused = None;
            for &pfn in rest.iter().take(FREE_BATCH) {
                let Some(page) = zone.page(pfn) else { break };
                if let Err(error) = zone.reclaim_tag(page, Order::ZERO) {
                    refused = Some(error);
                    break;
                }
                machine.emit(Event::PageFree {
                    pfn,
                    order: Order::ZERO,
                });
                run[len] = page;
                len += 1;
            }
            zone.free_listed(machine, &run[..len], Order::ZERO, None);
            *freed += len;
            if let Some(error) = refused {
                return Err(error);
            }
            rest = &rest[len..];
        }
        Ok(())
    }

    /// Splits a block allocated with `order` into single pages (Linux: `split_page`). The caller
    /// owns all these pages, and frees each of them separately, in any order.
    ///
    /// # Errors
    /// If `pfn` is not the first frame of a block allocated with `order`; nothing changes in that
    /// case.
    pub fn split(&self, machine: &M, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.split_to(machine, pfn, order, Order::ZERO)?;
        machine.emit(Event::PageSplit { pfn, order });
        Ok(())
    }

    /// Splits a block allocated with `order` into blocks of order `to`, each of which the caller
    /// frees separately. Emits no event. Nothing changes if `to` is not less than `order`.
    ///
    /// # Errors
    /// If `pfn` is not the first frame of a block allocated with `order`; nothing changes in that
    /// case.
    pub fn split_to(
        &self,
        _machine: &M,
        pfn: Pfn,
        order: Order,
        to: Order,
    ) -> Result<(), FreeError> {
        let (zone, page) = self.locate(pfn).ok_or(FreeError::OutsideZones(pfn))?;
        let to = to.min(order);
        let part = if zone.tags.get(page) == tag::movable(order) {
            tag::movable(to)
        } else {
            tag::allocated(to)
        };
        // The first page's tag is replaced atomically, so if two callers split or free the same
        // block, one of them gets the error.
        zone.retag(page, order, part)?;
        let parts = (page..page + order.pages().0).step_by(to.pages().0 as usize);
        parts.skip(1).for_each(|at| zone.tags.set(at, part));
        Ok(())
    }
}

/// The progress of an operation, such as a drain, that returns pages from page lists to the zone:
/// the number of pages still to be returned to the zone, the list to continue with, and the number
/// of pages returned so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excess {
    pub(super) pages: u32,
    pub(super) list: usize,
    pub(super) given: u32,
}

impl<M: Machine> Zone<M> {
    /// Changes the tag of the block at `page` from "allocated with `order`" to "on a page list".
    /// Returns an error if the tag does not say "allocated with `order`".
    #[inline]
    pub(super) fn reclaim_tag(&self, page: u32, order: Order) -> Result<(), FreeError> {
        // The tag is replaced atomically, so if two callers free the same block, one of them gets
        // the error.
        self.retag(page, order, tag::listed(order))
    }

    /// Sets the tag of a block's first page to `new`, provided the block was allocated with
    /// `order`.
    #[inline]
    fn retag(&self, page: u32, order: Order, new: u8) -> Result<(), FreeError> {
        match self.tags.replace(page, tag::allocated(order), new) {
            Ok(()) => Ok(()),
            Err(found) => self.retag_other(page, order, new, found),
        }
    }

    /// Continues [`Zone::retag`] if the page's tag is `found` and not the expected one. If `found`
    /// is the tag of a movable block of `order`, sets the tag to `new`; otherwise returns an error.
    #[cold]
    #[inline(never)]
    fn retag_other(&self, page: u32, order: Order, new: u8, found: u8) -> Result<(), FreeError> {
        let pfn = self.pfn(page);
        let replaced = if found == tag::movable(order) {
            self.tags.replace(page, found, new)
        } else {
            Err(found)
        };
        match replaced {
            Ok(()) => Ok(()),
            Err(found) => Err(match tag::allocated_order(found) {
                Some(allocated) => FreeError::WrongOrder {
                    pfn,
                    allocated,
                    freed: order,
                },
                None => FreeError::NotAllocated(pfn),
            }),
        }
    }

    /// Frees a block whose tag already says that it is on a page list. The block goes onto the list
    /// of the type `forced` if that is given, otherwise onto the list of the type of the page block
    /// around it. If there are no lists for blocks of `order`, the block goes to the zone.
    #[inline]
    fn free_block(&self, machine: &M, page: u32, order: Order, forced: Option<Mobility>) {
        match list_of(order, Mobility::Unmovable) {
            Some(_) => self.free_listed(machine, &[page], order, forced),
            None => self.free_direct(machine, page, order),
        }
    }

    /// The index of the list that a freed block goes to.
    #[inline]
    pub(super) fn list_for(&self, page: u32, order: Order, forced: Option<Mobility>) -> usize {
        let mobility = match forced {
            Some(mobility) => self.types.served_as(mobility),
            None => self.types.of(page),
        };
        list_of(order, mobility).unwrap_or(0)
    }

    /// Puts blocks of one order, given by their first `pages`, on this CPU's lists, and returns the
    /// excess to the zone.
    #[inline]
    pub(super) fn free_here(
        &self,
        machine: &M,
        pages: &[u32],
        order: Order,
        forced: Option<Mobility>,
    ) {
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            let cpu = machine.this_cpu();
            let slot = self.slot(cpu);
            let mut pushed = 0;
            let excess = slot.pcp.try_local(machine, Site::PcpFree, |pcp| {
                let version = (!M::PRICES_LOADS).then(|| self.version_before_load(machine));
                let input = self.tuning_input(machine);
                let excess = self.push_run(pcp, rest, order, forced, &input, &mut pushed);
                let left = excess.map(|(mut pages, list)| {
                    if self.has_bitmaps && order == Order::HUGE {
                        pages = pages.max(pcp.huge_spill());
                    }
                    let owed = count_in(slot.owed.take(machine));
                    let excess = Excess {
                        pages: pages + owed,
                        list,
                        given: 0,
                    };
                    self.spill_hold(machine, pcp, Part::first(Site::Spill, cpu), excess)
                });
                if let Some(version) = version {
                    pcp.note_quiet(&input, version);
                }
                slot.count.set(machine, i64::from(pcp.count()));
                left
            });
            machine.spend(Work::PcpFree, pushed);
            rest = &rest[pushed as usize..];
            match excess {
                Some(None) if !rest.is_empty() && pushed == 0 => {
                    // The list has no room, so the block goes to the zone.
                    self.free_direct(machine, first, order);
                    rest = &rest[1..];
                }
                Some(None) => {}
                Some(Some(left)) => self.spill_rest(machine, cpu, left),
                None => {
                    // Another CPU is draining these lists, and a free never waits for its own CPU's
                    // pcp lock.
                    self.free_direct(machine, first, order);
                    rest = &rest[1..];
                }
            }
        }
    }

    /// Continues to return pages from the lists to the zone (a spill) after the first hold of the
    /// zone lock. Each further hold takes the pcp lock and the zone lock again.
    fn spill_rest(&self, machine: &M, cpu: CpuId, mut left: Excess) {
        let slot = self.slot(cpu);
        while left.pages > 0 {
            let here = machine.this_cpu() == cpu;
            let held = here.then(|| {
                slot.pcp.try_local(machine, Site::Spill, |pcp| {
                    let part = Part::first(Site::Spill, cpu);
                    let left = self.spill_hold(machine, pcp, part, left);
                    slot.count.set(machine, i64::from(pcp.count()));
                    left
                })
            });
            match held.flatten() {
                Some(next) => left = next,
                None => {
                    self.leave(machine, slot, left);
                    break;
                }
            }
        }
        self.notice_plenty(machine);
    }

    /// Handles the `left` pages that have not returned to the zone, because another CPU is draining
    /// the lists or the caller has migrated.
    #[cold]
    fn leave(&self, machine: &M, slot: &PerCpu<M>, left: Excess) {
        match self.holds.leftover() {
            Leftover::Abandoned => {}
            Leftover::Owed => {
                slot.owed.add(machine, i64::from(left.pages));
            }
        }
    }

    /// Moves the coldest pages to the zone while the caller holds the pcp lock (Linux:
    /// `free_pcppages_bulk`). Returns the part of the excess that was not moved, which is 0 pages
    /// if the lists are now empty. Usually takes the zone lock once. Takes it several times if the
    /// design divides the move without releasing the pcp lock, or if a hold reaches its time limit
    /// (see `give_hold`).
    pub(super) fn spill_hold(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        excess: Excess,
    ) -> Excess {
        let mut left = self.spill_once(machine, pcp, part, excess);
        let batch = self.sizes(machine).batch;
        if let Some(most) = self.holds.pages_per_pcp_hold(part.site(), batch) {
            // The loop ends: each hold of the zone lock returns at least one block to the zone.
            while left.pages > 0 && left.given - excess.given < most.0 {
                left = self.spill_once(machine, pcp, part, left);
            }
        }
        left
    }

    /// Moves the coldest pages to the zone by one call of `give_hold`, which usually holds the zone
    /// lock once. Returns the part of the excess that was not moved, which is 0 pages if the lists
    /// are now empty.
    fn spill_once(&self, machine: &M, pcp: &mut Pcp, part: Part, excess: Excess) -> Excess {
        let Excess {
            pages: wanted,
            mut list,
            given,
        } = excess;
        if wanted == 0 || pcp.count() == 0 {
            return Excess { pages: 0, ..excess };
        }
        let part = part.after(given);
        let moved = if self.owners.is_on() {
            self.give_by_blocks(machine, pcp, part, wanted, &mut list)
        } else {
            self.give_hold(machine, pcp, part, wanted, &mut list).pages
        };
        let left = if pcp.count() == 0 {
            0
        } else {
            let counted = match self.holds.limit(part.site(), self.sizes(machine).batch) {
                Limit::About(most) if !self.holds.counts_excess() => moved.min(most.0),
                _ => moved,
            };
            wanted.saturating_sub(counted)
        };
        Excess {
            pages: left,
            list,
            given: given + moved,
        }
    }

    /// Frees a block to the zone, bypassing the lists (Linux: `free_one_page`). A zone with bitmaps
    /// drops a single page that is free already, because it was freed twice.
    #[cold]
    pub(super) fn free_direct(&self, machine: &M, page: u32, order: Order) {
        let mut gauge = self.gauge(machine, Site::FreeDirect);
        self.locked(machine, Site::FreeDirect, |buddy| {
            let given = if self.has_bitmaps && order == Order::ZERO {
                buddy.give_pages(&[page])
            } else {
                buddy.give(self.frames(), page, order);
                1
            };
            self.note_dropped(1 - given);
            gauge.moved_run(machine, order, given);
        });
        let part = Part::first(Site::FreeDirect, machine.this_cpu());
        self.note_hold(machine, part, gauge.moved);
    }

    /// Pushes the blocks of `order` whose first pages are `pages` onto the lists of `pcp`, until
    /// the lists hold too many pages. Returns the number of pages to return to the zone, and the
    /// index of the list onto which the last block was pushed. Returns `None` if no page has to
    /// return to the zone, or a list has no room. Adds the number of blocks pushed to `pushed`.
    #[inline]
    pub(super) fn push_run(
        &self,
        pcp: &mut Pcp,
        pages: &[u32],
        order: Order,
        forced: Option<Mobility>,
        input: &TuningInput,
        pushed: &mut u32,
    ) -> Option<(u32, usize)> {
        let mut pages = pages;
        if order == Order::ZERO && !self.types.on() {
            let quiet = pages.len().min(pcp.quiet_frees(input) as usize);
            if pcp.push_quietly(&pages[..quiet], input) {
                *pushed += count_of(quiet);
                pages = &pages[quiet..];
            }
        }
        for &page in pages {
            let list = self.list_for(page, order, forced);
            if !pcp.push(list, order, page) {
                return None;
            }
            *pushed += 1;
            let excess = pcp.note_free(order, input);
            if excess > 0 {
                return Some((excess, list));
            }
        }
        None
    }
}
