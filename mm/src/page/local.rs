//! The page allocator as one CPU uses it.

use core::fmt;

use super::front::has_front;
use super::zone::{PerCpu, Zone};
use super::{AllocError, FreeError, LOCAL, PageAllocator, Request, ZoneKind};
use crate::machine::{Freed, Front, Machine};
use crate::units::{CpuId, Order, Pfn};

/// A [`PageAllocator`] for calls on one CPU. It has looked up the CPU's zone and the CPU's stacks
/// of free blocks ([`Front`]), so a call for a single page or a huge block takes less time. If the
/// CPU had no such stacks when the value was made, for instance because the CPU was offline, the
/// calls take as long as those on the allocator.
///
/// Every call has the same result as the call of the same name on the allocator. A call on another
/// CPU is also correct, but slower: it uses the lists of the CPU for which the value was made. If
/// it cannot use these lists, it uses those of the CPU on which it runs.
pub struct Local<'p, M: Machine> {
    pages: &'p PageAllocator<M>,
    /// The zone that a request for a local page tries first, and the CPU's part of the zone. `None`
    /// if there is no such zone, or the CPU has no stack of free pages ([`Front`]) there.
    near: Option<(&'p Zone<M>, &'p PerCpu<M>)>,
}

impl<M: Machine> Clone for Local<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Local<'_, M> {}

impl<M: Machine> PageAllocator<M> {
    /// The allocator for calls on `cpu`.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn local(&self, machine: &M, cpu: CpuId) -> Local<'_, M> {
        let first = self.first_zone_from(machine, cpu, Request::new(Order::ZERO));
        let near = first.map(|zone| (zone, zone.slot(cpu)));
        Local {
            pages: self,
            near: near.filter(|(_, slot)| slot.pages.limit() != 0),
        }
    }
}

impl<'p, M: Machine> Local<'p, M> {
    /// The allocator.
    #[must_use]
    pub fn pages(&self) -> &'p PageAllocator<M> {
        self.pages
    }

    /// Allocates a block as [`PageAllocator::alloc`] does.
    ///
    /// # Errors
    /// Those of [`PageAllocator::alloc`].
    #[inline(always)]
    pub fn alloc(&self, machine: &M, request: Request) -> Result<Pfn, AllocError> {
        if is_plain(request)
            && let Some((zone, slot)) = self.near
            && let Some(page) = zone.alloc_front(machine, slot, request)
        {
            return Ok(zone.pfn(page));
        }
        self.alloc_slowly(machine, request)
    }

    /// Frees a block as [`PageAllocator::free`] does.
    ///
    /// # Errors
    /// Those of [`PageAllocator::free`]; nothing has changed then.
    #[inline(always)]
    pub fn free(&self, machine: &M, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let mut freed = Freed::Unchanged;
        if has_front(order)
            && let Some((zone, slot)) = self.near
            && let Some(page) = zone.page(pfn)
        {
            freed = zone.free_front(machine, slot, page, order);
        }
        match freed {
            Freed::Pushed => Ok(()),
            freed => self.free_slowly(machine, pfn, order, freed),
        }
    }

    /// Allocates a block if the CPU's stack of free blocks gives none at once. This is the only
    /// function that [`Local::alloc`] calls. With more calls, [`Local::alloc`] would have to save
    /// registers.
    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, machine: &M, request: Request) -> Result<Pfn, AllocError> {
        if is_plain(request)
            && let Some((zone, slot)) = self.near
            && let Some(page) = zone.alloc_behind_front(machine, slot, request)
        {
            return Ok(zone.pfn(page));
        }
        self.pages.alloc(machine, request)
    }

    /// Continues a free of a block that has not gone to the CPU's stack of free blocks; `freed` says
    /// what was done. This is the only function that [`Local::free`] calls, for the same reason.
    #[cold]
    #[inline(never)]
    fn free_slowly(
        &self,
        machine: &M,
        pfn: Pfn,
        order: Order,
        freed: Freed,
    ) -> Result<(), FreeError> {
        if has_front(order)
            && let Some((zone, slot)) = self.near
            && let Some(page) = zone.page(pfn)
            && let Some(done) = zone.free_behind_front(machine, slot, page, order, freed)
        {
            return done;
        }
        self.pages.free(machine, pfn, order)
    }
}

/// Returns whether a request is for a single page or a huge block that the first zone of the local
/// CPU may serve.
#[inline(always)]
fn is_plain(request: Request) -> bool {
    has_front(request.order) && request.node == LOCAL && matches!(request.class, ZoneKind::Normal)
}

impl<M: Machine> fmt::Debug for Local<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("pages", self.pages)
            .finish_non_exhaustive()
    }
}
