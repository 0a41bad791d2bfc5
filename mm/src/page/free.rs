//! Taking blocks back: onto this CPU's list, and past `high` from there to the zone. Or making
//! single pages of one, to be taken back one by one.
//!
//! A spill is one or more holds of the zone lock. Between two holds both locks are dropped, so
//! that others get in; what is left is then looked for again on the same CPU's lists.
//!
//! Locks: pcp lock, then zone lock, by `spill_hold`; zone lock alone by `free_direct`.

use super::hold::Part;
use super::holds::{Leftover, Limit};
use super::mobility::Mobility;
use super::pcp::{Mood, Pcp, list_of};
use super::zone::{Slot, Zone};
use super::{FreeError, PageAllocator, tag};
use crate::event::Event;
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, Pfn};

/// Pages handed to one pcp lock hold by [`PageAllocator::free_pages`] (Linux: folio batch).
pub(crate) const FREE_BATCH: usize = 31;

impl<M: Machine> PageAllocator<M> {
    /// Takes back a block (Linux: `__free_pages`).
    ///
    /// # Errors
    /// When `pfn` does not head a block handed out with `order`; nothing is changed then.
    #[inline]
    pub fn free(&self, machine: &M, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let (zone, page) = self.locate(pfn).ok_or(FreeError::OutsideZones(pfn))?;
        zone.reclaim_tag(page, order)?;
        machine.emit(Event::PageFree { pfn, order });
        zone.free_block(machine, page, order, None);
        Ok(())
    }

    /// Takes back a block as [`PageAllocator::free`] does, onto this CPU's list of `mobility`
    /// instead of that of the type its block has. For who replays what another allocator did, whose
    /// blocks lay elsewhere. Without grouping by mobility the type makes no difference.
    ///
    /// # Errors
    /// When `pfn` does not head a block handed out with `order`; nothing is changed then.
    pub fn free_as(
        &self,
        machine: &M,
        pfn: Pfn,
        order: Order,
        mobility: Mobility,
    ) -> Result<(), FreeError> {
        let (zone, page) = self.locate(pfn).ok_or(FreeError::OutsideZones(pfn))?;
        zone.reclaim_tag(page, order)?;
        machine.emit(Event::PageFree { pfn, order });
        zone.free_block(machine, page, order, Some(mobility));
        Ok(())
    }

    /// Takes back single pages, holding the page lists over runs of the same zone (Linux:
    /// `free_unref_folios`).
    ///
    /// # Errors
    /// At the first page that was not handed out as a single page: those before it are taken
    /// back, it and those after it are not.
    pub fn free_pages(&self, machine: &M, pfns: &[Pfn]) -> Result<(), FreeError> {
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
            zone.free_listed(machine, &run[..len], (Order::ZERO, None));
            if let Some(error) = refused {
                return Err(error);
            }
            rest = &rest[len..];
        }
        Ok(())
    }

    /// Makes single pages, each handed out by itself, of a block handed out with `order` (Linux:
    /// `split_page`). The caller has them all, and gives them back one by one, in any order.
    ///
    /// # Errors
    /// When `pfn` does not head a block handed out with `order`; nothing is changed then.
    pub fn split(&self, machine: &M, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.split_to(machine, pfn, order, Order::ZERO)?;
        machine.emit(Event::PageSplit { pfn, order });
        Ok(())
    }

    /// Makes blocks of order `to`, each handed out by itself, of a block handed out with `order`.
    /// No observer is told; nothing happens if `to` is not less than `order`.
    ///
    /// # Errors
    /// When `pfn` does not head a block handed out with `order`; nothing is changed then.
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
        // Its first page in one step: of two callers who split or free the block one is told.
        zone.retag(page, order, part)?;
        let parts = (page..page + order.pages().0).step_by(to.pages().0 as usize);
        parts.skip(1).for_each(|at| zone.tags.set(at, part));
        Ok(())
    }
}

/// What is to be given back: how many pages still, from which list on, and how many already were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excess {
    pub(super) pages: u32,
    pub(super) list: usize,
    pub(super) given: u32,
}

impl<M: Machine> Zone<M> {
    /// Takes the block from the caller, who must have had it with `order`.
    #[inline]
    pub(super) fn reclaim_tag(&self, page: u32, order: Order) -> Result<(), FreeError> {
        // Replaced in one step, so that of two callers who free the same block one is told.
        self.retag(page, order, tag::listed(order))
    }

    /// Tags the first page of a block that was handed out with `order`, if it was.
    #[inline]
    fn retag(&self, page: u32, order: Order, new: u8) -> Result<(), FreeError> {
        let pfn = self.pfn(page);
        let mut replaced = self.tags.replace(page, tag::allocated(order), new);
        if replaced == Err(tag::movable(order)) {
            replaced = self.tags.replace(page, tag::movable(order), new);
        }
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

    /// Takes back a block that is tagged as listed, onto the list of `forced` or else of the type
    /// its block has.
    #[inline]
    fn free_block(&self, machine: &M, page: u32, order: Order, forced: Option<Mobility>) {
        match list_of(order, Mobility::Unmovable) {
            Some(_) => self.free_listed(machine, &[page], (order, forced)),
            None => self.free_direct(machine, page, order),
        }
    }

    /// The list of a page that comes back.
    #[inline]
    fn list_for(&self, page: u32, (order, forced): (Order, Option<Mobility>)) -> usize {
        let mobility = match forced {
            Some(mobility) => self.types.served_as(mobility),
            None => self.types.of(page),
        };
        list_of(order, mobility).unwrap_or(0)
    }

    /// Puts `pages`, all blocks of one order, on this CPU's lists and spills what is too much.
    #[inline]
    fn free_listed(&self, machine: &M, pages: &[u32], (order, forced): (Order, Option<Mobility>)) {
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            let cpu = machine.this_cpu();
            let slot = self.slot(cpu);
            let mut pushed = 0;
            let excess = slot.pcp.try_local(machine, Site::PcpFree, |pcp| {
                let mood = self.mood(machine);
                let excess = self.push_run(pcp, rest, (order, forced), &mood, &mut pushed);
                let left = excess.map(|(pages, list)| {
                    let owed = u32::try_from(slot.owed.take(machine)).unwrap_or(0);
                    let excess = Excess {
                        pages: pages + owed,
                        list,
                        given: 0,
                    };
                    self.spill_hold(machine, pcp, Part::first(Site::Spill, cpu), excess)
                });
                slot.count.set(machine, i64::from(pcp.count()));
                left
            });
            machine.spend(Work::PcpFree, pushed);
            rest = &rest[pushed as usize..];
            match excess {
                Some(None) if !rest.is_empty() && pushed == 0 => {
                    // No memory for the list.
                    self.free_direct(machine, first, order);
                    rest = &rest[1..];
                }
                Some(None) => {}
                Some(Some(left)) => self.spill_rest(machine, cpu, left),
                None => {
                    // Somebody drains these lists right now; the owner never waits.
                    self.free_direct(machine, first, order);
                    rest = &rest[1..];
                }
            }
        }
    }

    /// Holds after the first of a spill: each takes both locks anew.
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

    /// The lists were lost between two holds.
    #[cold]
    fn leave(&self, machine: &M, slot: &Slot<M>, left: Excess) {
        match self.holds.leftover() {
            Leftover::Abandoned => {}
            Leftover::Owed => {
                slot.owed.add(machine, i64::from(left.pages));
            }
        }
    }

    /// One hold: the coldest pages go back to the zone. Returns what is left to do, nothing once
    /// the lists are empty (Linux: `free_pcppages_bulk`).
    pub(super) fn spill_hold(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        excess: Excess,
    ) -> Excess {
        let Excess {
            pages: wanted,
            mut list,
            given,
        } = excess;
        if wanted == 0 || pcp.count() == 0 {
            return Excess { pages: 0, ..excess };
        }
        let part = part.after(given);
        let moved = self.give_hold(machine, pcp, part, wanted, &mut list).pages;
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

    /// A block straight to the zone (Linux: `free_one_page`).
    #[cold]
    fn free_direct(&self, machine: &M, page: u32, order: Order) {
        let mut gauge = self.gauge(machine, Site::FreeDirect);
        self.locked(machine, Site::FreeDirect, |buddy| {
            buddy.give(self.frames(), page, order);
            gauge.moved(machine, order);
            gauge.stop(machine);
        });
        let part = Part::first(Site::FreeDirect, machine.this_cpu());
        self.note_hold(machine, part, gauge.moved);
    }

    /// Pushes pages until one makes the lists too long; returns by how many pages, and its list.
    #[inline]
    fn push_run(
        &self,
        pcp: &mut Pcp,
        pages: &[u32],
        (order, forced): (Order, Option<Mobility>),
        mood: &Mood,
        pushed: &mut u32,
    ) -> Option<(u32, usize)> {
        let mut pages = pages;
        if order == Order::ZERO && !self.types.on() {
            let quiet = pages.len().min(pcp.quiet_frees(mood) as usize);
            if pcp.push_quietly(&pages[..quiet], mood) {
                *pushed += u32::try_from(quiet).unwrap_or(0);
                pages = &pages[quiet..];
            }
        }
        for &page in pages {
            let list = self.list_for(page, (order, forced));
            if !pcp.push(list, order, page) {
                return None;
            }
            *pushed += 1;
            let excess = pcp.note_free(order, mood);
            if excess > 0 {
                return Some((excess, list));
            }
        }
        None
    }
}
