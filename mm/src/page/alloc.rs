//! Allocates a block. The steps, in order: take a block from this CPU's page list, refill the list
//! from the zone, try the next zones, drain all CPUs' lists, ask the reclaimers, call the last
//! resort (the OOM killer).
//!
//! Plimsoll allocates a page from this CPU's list without testing watermarks, because the page left
//! the zone when the list was refilled. Plimsoll tests watermarks only when a block has to come
//! from the zone itself. Linux tests watermarks on every allocation.
//!
//! Locks: `refill` takes the zone lock inside the pcp lock; `alloc_direct` takes the zone lock
//! alone.

use super::buddy::{Buddy, RmqueueMode};
use super::hold::Part;
use super::kept::Kept;
use super::mobility::Mobility;
use super::pcp::{Pcp, list_of};
use super::watermark::Urgency;
use super::zone::{Mark, Zone, ZoneRequest};
use super::{AllocError, NoKill, PageAllocator, Relief, Request, Tried, tag};
use crate::event::{Event, Phase};
use crate::machine::{CpuLock, LocalWord, Lock, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn, count_of};

/// The maximum number of rounds in which an allocation asks all reclaimers before it calls the last
/// resort, the OOM killer (Linux: `MAX_RECLAIM_RETRIES`).
pub(super) const RECLAIM_ROUNDS_MAX: u32 = 16;

impl<M: Machine> PageAllocator<M> {
    /// Allocates a block of `1 << order` pages (Linux: `alloc_pages`).
    ///
    /// Tries the zones of the request's node first, then those of other nodes. On each node, starts
    /// with the zone of the highest kind that the request may use, and goes on to lower kinds. On
    /// the fast path, this call never waits for a pcp lock.
    ///
    /// # Errors
    /// - [`AllocError::OutOfMemory`] if no zone may give a block even after every CPU's lists were
    ///   drained, every reclaimer was asked, and the [`LastResort`](super::LastResort) gave up. The
    ///   error says which of these were tried. A request that must not wait (see
    ///   [`Urgency::waits`]) tries none of them. A failure with [`Urgency::NoWait`] emits no event.
    /// - [`AllocError::NoSuchZone`] if the machine has no zone that the request may use.
    #[inline(always)]
    pub fn alloc(&self, machine: &M, request: Request) -> Result<Pfn, AllocError> {
        let pfn = match self.alloc_quickly(machine, request) {
            Some(pfn) => pfn,
            None => self.alloc_fully(machine, request)?,
        };
        machine.emit(Event::PageAlloc {
            pfn,
            order: request.order,
        });
        Ok(pfn)
    }

    #[inline(never)]
    fn alloc_fully(&self, machine: &M, request: Request) -> Result<Pfn, AllocError> {
        match self.try_zones(machine, request, Mark::Low) {
            Some(pfn) => Ok(pfn),
            None => self.alloc_slow(machine, request),
        }
    }

    // Inlined so that for a constant request the compiler resolves the branches at compile time and
    // keeps them off the fast path.
    #[inline(always)]
    pub(super) fn try_zones(&self, machine: &M, request: Request, mark: Mark) -> Option<Pfn> {
        let Request {
            order,
            class,
            urgency,
            mobility,
            ..
        } = request;
        let ask = ZoneRequest {
            order,
            class,
            urgency,
            mark,
            mobility,
            unmixed: false,
        };
        let first = self.first_zone(machine, request)?;
        let ask = ZoneRequest {
            unmixed: mark == Mark::Low && first.stays_unmixed,
            ..ask
        };
        match first.alloc(machine, ask) {
            None => self.try_further_zones(machine, request, ask),
            found => found,
        }
    }

    #[cold]
    #[inline(never)]
    fn try_further_zones(&self, machine: &M, request: Request, ask: ZoneRequest) -> Option<Pfn> {
        let mut further = self.zonelist(machine, request).skip(1);
        if !ask.unmixed {
            return further.find_map(|zone| zone.alloc(machine, ask));
        }
        // Try the first node's other zones, still without mixing types in a page block. Then try
        // all zones again in order, and now allow mixing: a page block of another type is better
        // than another node's memory.
        let first = self.first_zone(machine, request)?;
        let on_node = further.take_while(|zone| zone.node == first.node);
        let mixed = ZoneRequest {
            unmixed: false,
            ..ask
        };
        on_node
            .map(|zone| (zone, ask))
            .chain(self.zonelist(machine, request).map(|zone| (zone, mixed)))
            .find_map(|(zone, ask)| zone.alloc(machine, ask))
    }

    /// Continues an allocation that every zone has refused at its low watermark. Tries the zones
    /// again at the min watermark, then drains all CPUs' lists, then reclaims.
    #[cold]
    fn alloc_slow(&self, machine: &M, request: Request) -> Result<Pfn, AllocError> {
        let zones = count_of(self.zonelist(machine, request).count());
        if zones == 0 {
            return Err(AllocError::NoSuchZone);
        }
        self.note_shortage(machine, request);
        if let Some(pfn) = self.try_zones(machine, request, Mark::Min) {
            return Ok(pfn);
        }
        let tried = Tried {
            zones,
            ..Tried::default()
        };
        if request.urgency == Urgency::NoWait {
            // `NoWait` callers have a fallback, so this failure emits no event.
            return Err(AllocError::OutOfMemory(tried));
        }
        if !request.urgency.waits() {
            // The request must not wait, neither for another CPU's lists to be drained nor for
            // memory to be reclaimed.
            return self.give_up(machine, request, tried);
        }
        machine.emit(Event::Begin(Phase::Stall));
        let outcome = self.alloc_waiting(machine, request, tried);
        machine.emit(Event::End(Phase::Stall));
        outcome
    }

    /// Drains all CPUs' lists, reclaims and calls the last resort (the OOM killer), until the
    /// allocation gets a block or the last resort gives up.
    fn alloc_waiting(
        &self,
        machine: &M,
        mut request: Request,
        tried: Tried,
    ) -> Result<Pfn, AllocError> {
        loop {
            let mut tried = tried;
            if let Some(pfn) = self.alloc_reclaiming(machine, request, &mut tried) {
                return Ok(pfn);
            }
            match self.last_resort(machine, request) {
                Relief::Allocated(pfn) => return Ok(pfn),
                Relief::Retry => {}
                Relief::Reserves => request = request.urgent(Urgency::Victim),
                Relief::GiveUp(no_kill) => {
                    tried.no_kill = no_kill;
                    return self.alloc_at_last(machine, request, tried);
                }
            }
        }
    }

    /// Ends an allocation for which the last resort (the OOM killer) gave up. If there was no
    /// process left to kill, first drains all lists and tries the zones once more: the last process
    /// that could be killed may have exited and freed its memory in the meantime.
    fn alloc_at_last(
        &self,
        machine: &M,
        request: Request,
        mut tried: Tried,
    ) -> Result<Pfn, AllocError> {
        if tried.no_kill == NoKill::NobodyLeft {
            tried.drained += self.drain_again(machine);
            if let Some(pfn) = self.try_zones(machine, request, Mark::Min) {
                return Ok(pfn);
            }
        }
        self.give_up(machine, request, tried)
    }

    /// Drains all lists, then asks the reclaimers ([`Reclaimer`](super::Reclaimer)) in up to
    /// [`RECLAIM_ROUNDS_MAX`] rounds. Stops after a round in which the reclaimers free nothing,
    /// unless a block kept for atomic requests could be unreserved instead.
    ///
    /// If the allocator has a [`Pressure`](super::Pressure),
    /// [`PageAllocator::alloc_under_pressure`] does the work instead, except for a request with
    /// [`Urgency::Reserve`].
    fn alloc_reclaiming(&self, machine: &M, request: Request, tried: &mut Tried) -> Option<Pfn> {
        if let Some(pressure) = &self.pressure
            && request.urgency != Urgency::Reserve
        {
            return self.alloc_under_pressure(machine, pressure.as_ref(), request, tried);
        }
        let attempt = || self.try_zones(machine, request, Mark::Min);
        tried.drained += self.drain_all(machine);
        if let Some(pfn) = attempt() {
            return Some(pfn);
        }
        for _round in 0..RECLAIM_ROUNDS_MAX {
            let got = self.reclaim(machine, request.order, tried);
            if got > Pages::ZERO {
                self.give_kept(machine, request, Kept::Few);
            }
            tried.drained += self.drain_again(machine);
            if let Some(pfn) = attempt() {
                return Some(pfn);
            }
            if got == Pages::ZERO && !self.give_kept(machine, request, Kept::All) {
                break;
            }
        }
        None
    }

    fn give_up(&self, machine: &M, request: Request, mut tried: Tried) -> Result<Pfn, AllocError> {
        let has_block = |zone: &&Zone<M>| {
            zone.buddy
                .with(machine, Site::Control, |buddy| buddy.has(request.order))
        };
        let kept_back = self.zonelist(machine, request).filter(has_block).count();
        tried.kept_back = count_of(kept_back);
        machine.emit(Event::OutOfMemory {
            order: request.order,
        });
        Err(AllocError::OutOfMemory(tried))
    }

    /// Asks every [`Reclaimer`](super::Reclaimer) once and returns the total number of pages that
    /// they freed.
    pub(super) fn reclaim(&self, machine: &M, order: Order, tried: &mut Tried) -> Pages {
        let wanted = Pages(order.pages().0.max(32)); // Linux: SWAP_CLUSTER_MAX.
        let mut got = Pages::ZERO;
        tried.reclaimers = 0;
        for reclaimer in &self.reclaimers {
            tried.reclaimers += 1;
            got += reclaimer.reclaim(machine, self, wanted);
        }
        tried.reclaimed += got;
        got
    }
}

impl<M: Machine> Zone<M> {
    /// Allocates a block from this CPU's list or from the zone.
    #[inline(always)]
    pub(super) fn alloc(&self, machine: &M, ask: ZoneRequest) -> Option<Pfn> {
        let ask = ZoneRequest {
            mobility: self.types.served_as(ask.mobility),
            ..ask
        };
        let page = match list_of(ask.order, ask.mobility) {
            Some(list) => self.alloc_listed(machine, list, ask)?,
            None => self.alloc_direct(machine, ask)?,
        };
        if ask.keeps_block() && self.types.on() {
            self.keep_block(machine, page, ask.order);
        }
        Some(self.pfn(page))
    }

    #[inline(always)]
    fn alloc_listed(&self, machine: &M, list: usize, ask: ZoneRequest) -> Option<u32> {
        machine.spend(Work::PcpAlloc, 1);
        let slot = self.slot(machine.this_cpu());
        let taken = slot.pcp.try_local(
            machine,
            Site::PcpAlloc,
            #[inline(always)]
            |pcp| {
                pcp.note_alloc();
                let page = match pcp.pop(list, ask.order) {
                    None => self.refill_and_pop(machine, pcp, list, ask),
                    page => page,
                };
                slot.count.set(machine, i64::from(pcp.count()));
                page
            },
        );
        match taken {
            Some(Some(page)) => {
                self.tags
                    .set(page, tag::handed_out(ask.order, ask.mobility));
                Some(page)
            }
            Some(None)
                if self.owners.has_inboxes()
                    && let Some(page) = self.rob(machine, list, ask) =>
            {
                self.tags
                    .set(page, tag::handed_out(ask.order, ask.mobility));
                Some(page)
            }
            // The list is still empty: the zone has no block for the list, or would fall below the
            // zone's watermark. Only blocks kept for atomic requests could serve this request now,
            // and the request may not use them.
            Some(None) if !self.types.on() || !ask.may_use_kept() => None,
            Some(None) => self.alloc_direct(machine, ask),
            // Another CPU is draining these lists, and an allocation never waits for its own CPU's
            // pcp lock.
            None => self.alloc_direct(machine, ask),
        }
    }

    #[cold]
    #[inline(never)]
    fn refill_and_pop(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        ask: ZoneRequest,
    ) -> Option<u32> {
        let at_home = self.owners.has_inboxes() && self.refill_at_home(machine, pcp, list, ask);
        if !at_home && self.allows(machine, ask) {
            self.refill(machine, pcp, list, ask);
        }
        pcp.pop(list, ask.order)
    }

    /// Moves blocks from the zone to an empty list. The design limits how many pages move under one
    /// hold of the zone lock, so this may take the lock several times (Linux: `rmqueue_bulk`).
    #[cold]
    pub(super) fn refill(&self, machine: &M, pcp: &mut Pcp, list: usize, ask: ZoneRequest) {
        let mut wanted = pcp.refill_blocks(ask.order, &self.tuning_input(machine));
        if self.has_bitmaps && ask.order == Order::HUGE {
            wanted = wanted.max(pcp.huge_refill());
        }
        let mut wanted = pcp.room(list, wanted);
        if self.owners.is_on() {
            wanted = self.refill_by_blocks(machine, pcp, list, ask, wanted);
        }
        let mut part = Part::first(Site::Refill, machine.this_cpu());
        while wanted > 0 {
            let moved = self.take_hold(machine, pcp, list, part, ask.wanted(), wanted);
            part = part.after(moved.pages);
            if moved.blocks == 0 {
                break; // The zone is empty.
            }
            // Under one hold of the zone lock, `take_hold` may take a block larger than `ask.order`
            // and count it as one. So the loop subtracts pages, in units of `ask.order`, not
            // blocks.
            wanted -= moved.pages >> ask.order.get();
        }
    }

    /// Allocates a block from the zone, bypassing the lists (Linux: `rmqueue_buddy`). A zone with
    /// bitmaps drops a page that was freed twice, and takes another one instead.
    #[cold]
    fn alloc_direct(&self, machine: &M, ask: ZoneRequest) -> Option<u32> {
        if !self.allows(machine, ask) {
            return None;
        }
        let mut gauge = self.gauge(machine, Site::AllocDirect);
        let page = self.locked(machine, Site::AllocDirect, |buddy| {
            let mut page = self.take_direct(buddy, ask)?;
            while self.is_out(page, ask.order) {
                self.note_dropped(1);
                gauge.moved(machine, ask.order);
                page = self.take_direct(buddy, ask)?;
            }
            // The tag is set under the lock: otherwise a CPU that frees this block's buddy could
            // see a free tag and merge with a block that is already allocated.
            self.tags
                .set(page, tag::handed_out(ask.order, ask.mobility));
            machine.emit(Event::ZoneLocked {
                pfn: self.pfn(page),
                order: ask.order,
                listed: false,
            });
            gauge.moved(machine, ask.order);
            gauge.stop(machine);
            Some(page)
        });
        if gauge.moved.blocks > 0 {
            let part = Part::first(Site::AllocDirect, machine.this_cpu());
            self.note_hold(machine, part, gauge.moved);
        }
        page
    }

    /// Takes a block for `ask` under the zone lock. An atomic request of several pages first tries
    /// the blocks kept for such requests. Every request then tries the other blocks. Last, a
    /// request that may use kept blocks tries those.
    fn take_direct(&self, buddy: &mut Buddy, ask: ZoneRequest) -> Option<u32> {
        let kept = |buddy: &mut Buddy| buddy.take(self.frames(), ask.order, Mobility::HighAtomic);
        if ask.keeps_block()
            && let Some(page) = kept(buddy)
        {
            return Some(page);
        }
        buddy
            .take_wanted(self.frames(), ask.wanted(), &mut RmqueueMode::default())
            .or_else(|| {
                if ask.may_use_kept() {
                    kept(buddy)
                } else {
                    None
                }
            })
    }
}
