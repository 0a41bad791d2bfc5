//! One hold of a zone lock, which moves pages between the free lists and a CPU's page lists.
//!
//! The design limits how much one hold may move; a `Gauge` (`gauge.rs`) keeps the hold within that
//! limit and reports the work to the machine. The free-page counter is changed only after the lock
//! is released. Otherwise a change of the shared counter would lengthen the hold by the transfer of
//! a cache line.
//!
//! Locks: the zone lock is taken here. Callers of `take_hold` and `give_hold` hold the pcp lock.

use super::blocks::{self, Blocks};
use super::buddy::{Buddy, RmqueueMode, Wanted};
use super::holds::Unit;
use super::pcp::Pcp;
use super::tag;
use super::zone::Zone;
use crate::event::Event;
use crate::machine::{Front, Lock, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, Pages, count_of};
use crate::vmstat::counters::ZoneItem;

impl<M: Machine> Zone<M> {
    /// Runs `f` with the zone lock held, and then updates the word that counts the free pages in
    /// blocks kept for atomic requests.
    #[inline]
    pub(super) fn locked<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut Buddy) -> R) -> R {
        self.buddy.with(machine, site, |buddy| {
            let done = f(buddy);
            if self.types.on() {
                self.note_kept(machine, buddy.free_kept());
            }
            done
        })
    }

    /// Moves up to `wanted` blocks from the zone to a page list in one hold. `what` describes the
    /// blocks. The blocks go to the cold end of the list with the index `list`.
    pub(super) fn take_hold(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        part: Part,
        what: Wanted,
        wanted: u32,
    ) -> Moved {
        // A refill of single pages is allowed to take larger blocks. It splits these blocks after
        // it has released the zone lock. The refill gets the same pages as if it had taken the
        // pages one by one. A refill of a higher order takes only blocks of that order.
        let moved = if self.has_bitmaps && (what.order == Order::ZERO || what.order == Order::HUGE)
        {
            self.take_bits(machine, pcp, list, what.order, wanted)
        } else if self.holds.unit() == Unit::Blocks && what.order == Order::ZERO {
            self.take_blocks(machine, pcp, list, what, wanted)
        } else {
            self.take_pages(machine, pcp, list, what, wanted)
        };
        if moved.blocks > 0 {
            self.note_hold(machine, part, moved);
        }
        moved
    }

    fn take_pages(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        what: Wanted,
        wanted: u32,
    ) -> Moved {
        let order = what.order;
        let mut mode = RmqueueMode::default();
        let mut gauge = self.gauge(machine, Site::Refill);
        self.locked(machine, Site::Refill, |buddy| {
            gauge.start(machine);
            while gauge.moved.blocks < wanted && gauge.admits(machine, order) {
                let Some(page) = buddy.take_wanted(self.frames(), what, &mut mode) else {
                    break;
                };
                self.tags.set(page, tag::listed(order));
                pcp.push_cold(list, order, page);
                self.note_taken(machine, page, order);
                gauge.moved(machine, order);
            }
            gauge.stop(machine);
        });
        gauge.moved
    }

    /// Moves up to `wanted` single pages, or huge blocks, from the bitmaps of the zone to a page
    /// list.
    fn take_bits(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        order: Order,
        wanted: u32,
    ) -> Moved {
        let mut pages = [0; blocks::CAPACITY];
        let most = wanted.min(self.gauge(machine, Site::Refill).blocks_left());
        let most = (most as usize).min(pages.len());
        let moved = self.take_run(machine, order, &mut pages[..most]);
        let mut pages = &mut pages[..moved.blocks as usize];
        if M::Front::CAPACITY > 0 {
            // A page that was freed twice may be free, and in a front (a CPU's stack of free pages) or
            // allocated as well.
            let kept = self.keep(pages, |page| !tag::is_out(self.tags.get(page), order));
            pages = &mut pages[..kept];
        }
        // In a zone with bitmaps, blocks have no owners, so no block needs `note_taken`.
        debug_assert!(!self.owners.has_inboxes());
        for &page in &*pages {
            self.tags.set(page, tag::listed(order));
            let (pfn, listed) = (self.pfn(page), true);
            machine.emit(Event::ZoneLocked { pfn, order, listed });
        }
        pcp.extend_cold(list, order, pages);
        moved
    }

    fn take_blocks(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        what: Wanted,
        wanted: u32,
    ) -> Moved {
        let mut mode = RmqueueMode::default();
        let mut gauge = self.gauge(machine, Site::Refill);
        let mut blocks = Blocks::new();
        self.locked(machine, Site::Refill, |buddy| {
            gauge.start(machine);
            while !blocks.is_full() {
                let room = gauge.room(machine).min(wanted - gauge.moved.pages);
                let Some((page, order)) = (room > 0)
                    .then(|| buddy.take_wanted_up_to(self.frames(), what, &mut mode, room))
                    .flatten()
                else {
                    break;
                };
                self.tags.set(page, tag::listed(order));
                blocks.push(page, order);
                self.note_taken(machine, page, order);
                gauge.moved(machine, order);
            }
            gauge.stop(machine);
        });
        // Splitting off a page costs as much here as it does under the lock. But here this CPU does
        // not hold the lock, so no other CPU waits.
        machine.spend(Work::BuddyAlloc, gauge.moved.pages - gauge.moved.blocks);
        for (first, order) in blocks.iter() {
            for page in first..first + order.pages().0 {
                self.tags.set(page, tag::listed(Order::ZERO));
                pcp.push_cold(list, Order::ZERO, page);
            }
        }
        gauge.moved
    }

    /// Moves the coldest blocks to the zone until `wanted` pages have been moved or the design's
    /// limit for one hold is reached (Linux: `free_pcppages_bulk`). Starts at the list with the
    /// index `list`, and sets `list` to the index of the list to continue with.
    ///
    /// This is one hold of the zone lock, with one exception. If the design moves whole blocks, and
    /// the hold reaches its time limit, the blocks that are already off their lists go to the zone
    /// in further holds.
    pub(super) fn give_hold(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        wanted: u32,
        list: &mut usize,
    ) -> Moved {
        if self.has_bitmaps {
            self.give_bits(machine, pcp, part, wanted, list)
        } else if self.holds.unit() == Unit::Blocks {
            self.give_blocks(machine, pcp, part, wanted, list)
        } else {
            self.give_pages(machine, pcp, part, wanted, list)
        }
    }

    fn give_pages(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        wanted: u32,
        list: &mut usize,
    ) -> Moved {
        let mut gauge = self.gauge(machine, part.site);
        self.locked(machine, part.site, |buddy| {
            gauge.start(machine);
            while gauge.moved.pages < wanted {
                let Some(coldest) = pcp.coldest(list) else {
                    break;
                };
                let order = coldest.order;
                if !gauge.admits(machine, order) {
                    break;
                }
                let page = coldest.take();
                buddy.give(self.frames(), page, order);
                self.note_given(machine, page, order);
                gauge.moved(machine, order);
            }
            gauge.stop(machine);
        });
        self.note_hold(machine, part, gauge.moved);
        gauge.moved
    }

    /// Moves the coldest blocks of a CPU's lists, all of one order, to this zone, which keeps its
    /// free pages in bitmaps.
    fn give_bits(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        wanted: u32,
        list: &mut usize,
    ) -> Moved {
        let order = pcp.coldest(list).map(|coldest| coldest.order);
        match order {
            None => Moved::default(),
            Some(Order::ZERO) => {
                let mut pages = [0; blocks::CAPACITY];
                self.give_run(machine, pcp, part, (wanted, Order::ZERO, *list), &mut pages)
            }
            Some(order) => {
                let mut pages = [0; 16];
                self.give_run(machine, pcp, part, (wanted, order, *list), &mut pages)
            }
        }
    }

    /// Moves about `wanted` pages, in blocks of `order`, from the cold end of a list to a zone that
    /// keeps free pages in bitmaps. `room` is memory for the page number of each block's first
    /// page.
    fn give_run(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        (wanted, order, list): (u32, Order, usize),
        room: &mut [u32],
    ) -> Moved {
        let mut gauge = self.gauge(machine, part.site);
        let wanted = wanted.div_ceil(order.pages().0).min(gauge.blocks_left());
        let most = (wanted as usize).min(room.len());
        let got = pcp.take_cold(list, order, &mut room[..most]);
        let pages = &room[..got];
        self.locked(machine, part.site, |buddy| {
            let given = match order {
                Order::ZERO => buddy.give_pages(pages),
                Order::HUGE => buddy.give_huge(pages),
                _ => {
                    let give = |&page: &u32| buddy.give(self.frames(), page, order);
                    pages.iter().for_each(give);
                    count_of(got)
                }
            };
            self.note_dropped(count_of(got) - given);
            gauge.moved_run(machine, order, given);
        });
        for &page in pages {
            self.note_given(machine, page, order);
        }
        self.note_hold(machine, part, gauge.moved);
        gauge.moved
    }

    fn give_blocks(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        wanted: u32,
        list: &mut usize,
    ) -> Moved {
        let mut blocks = Blocks::new();
        let mut planned = self.gauge(machine, part.site);
        while planned.moved.pages < wanted && !blocks.is_full() {
            let Some(coldest) = pcp.coldest(list) else {
                break;
            };
            let order = coldest.order;
            if !planned.fits(order) {
                break;
            }
            blocks.push(coldest.take(), order);
            planned.plan(order);
        }
        self.give_planned(machine, part, &mut blocks);
        planned.moved
    }

    /// Moves `blocks`, which are on no list any more, to the zone.
    pub(super) fn give_planned(&self, machine: &M, mut part: Part, blocks: &mut Blocks) {
        if !self.has_bitmaps {
            let before = blocks.len();
            machine.spend(Work::Compare, blocks.join(&self.tags));
            // Joining two blocks costs as much here as merging them does under the lock. But here
            // this CPU does not hold the lock, so no other CPU waits.
            machine.spend(Work::BuddyFree, before - blocks.len());
        }
        let mut rest = blocks.iter().peekable();
        // The loop ends: each hold returns at least one block to the zone.
        while rest.peek().is_some() {
            let mut gauge = self.gauge(machine, part.site);
            self.locked(machine, part.site, |buddy| {
                gauge.start(machine);
                while let Some((page, order)) = rest.next_if(|_| gauge.has_time(machine)) {
                    buddy.give(self.frames(), page, order);
                    self.note_given(machine, page, order);
                    gauge.moved(machine, order);
                }
                gauge.stop(machine);
            });
            self.note_hold(machine, part, gauge.moved);
            part.further = true;
        }
    }

    /// Emits the event for a block that moves from the zone to a page list. Some designs return
    /// each freed page, through an inbox, to the CPU that owns the 512 pages around it. In such a
    /// design, also makes this CPU the owner of the 512 pages around the block, unless these pages
    /// have an owner already.
    #[inline]
    pub(super) fn note_taken(&self, machine: &M, page: u32, order: Order) {
        if self.owners.has_inboxes() {
            self.adopt(machine, page, order);
        }
        let (pfn, listed) = (self.pfn(page), true);
        machine.emit(Event::ZoneLocked { pfn, order, listed });
    }

    /// Emits the event for a block that moves from a page list to the zone.
    #[inline]
    fn note_given(&self, machine: &M, page: u32, order: Order) {
        let pfn = self.pfn(page);
        machine.emit(Event::PcpuDrain { pfn, order });
    }

    /// Adds the pages in `moved`, which one hold of the zone lock moved, to the counter of free
    /// pages. Subtracts the pages if the hold took them from the zone. Emits the event for the
    /// hold.
    pub(super) fn note_hold(&self, machine: &M, part: Part, moved: Moved) {
        let delta = match part.site {
            Site::Refill | Site::AllocDirect => -i64::from(moved.pages),
            _ => i64::from(moved.pages),
        };
        if self.has_bitmaps {
            self.count_free(machine, delta);
        } else {
            let item = ZoneItem::FreePages as usize;
            self.counters.add_blocks(machine, item, delta, moved.blocks);
        }
        self.emit_hold(machine, part, moved);
    }

    /// Adds `delta` to the counter of free pages of a zone with bitmaps.
    pub(super) fn count_free(&self, machine: &M, delta: i64) {
        let item = ZoneItem::FreePages as usize;
        self.counters.add_run(machine, item, delta);
    }

    /// Emits the event for a hold of the zone lock that has moved this amount.
    pub(super) fn emit_hold(&self, machine: &M, part: Part, moved: Moved) {
        let Moved { pages, blocks } = moved;
        let Part { site, cpu, further } = part;
        let (zone, pages, batch) = (self.index, Pages(pages), self.sizes(machine).batch);
        machine.emit(Event::ZoneHold {
            zone,
            site,
            cpu,
            further,
            pages,
            blocks,
            batch,
        });
    }
}

/// The operation that a hold of the zone lock belongs to, such as a refill or a drain, and whether
/// this operation already had an earlier hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    site: Site,
    /// The CPU whose page lists this hold of the zone lock fills or empties.
    cpu: CpuId,
    /// True if this operation has held the zone lock before.
    further: bool,
}

impl Part {
    /// Returns the [`Part`] for the first or only hold of the zone lock in an operation.
    pub(super) const fn first(site: Site, cpu: CpuId) -> Self {
        Self {
            site,
            cpu,
            further: false,
        }
    }

    /// The label of the code that takes the zone lock.
    pub(super) const fn site(self) -> Site {
        self.site
    }

    /// Returns the [`Part`] for the next hold of the zone lock in this operation, after a hold that
    /// has moved `moved` pages or blocks. If no hold has moved any, the next hold still counts as the
    /// first one.
    pub(super) const fn after(self, moved: u32) -> Self {
        Self {
            further: self.further || moved > 0,
            ..self
        }
    }
}

/// The amount that one hold of the zone lock moved: a number of pages, and the number of blocks
/// that they formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) pages: u32,
    pub(super) blocks: u32,
}

impl Moved {
    /// Returns the amount that a hold has moved if it has moved `blocks` blocks of `order`.
    pub(super) const fn of(order: Order, blocks: u32) -> Self {
        Self {
            pages: blocks << order.get(),
            blocks,
        }
    }
}
