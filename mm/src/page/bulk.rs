//! Allocating many single pages at once, under one hold of the pcp lock.
//!
//! Linux uses bulk allocation for kernel stacks, `vmalloc` and receive buffers. `alloc_bulk` may
//! return fewer pages than the caller wants, as Linux's `alloc_pages_bulk` does. `alloc_pages`
//! calls `alloc_bulk` until all pages are allocated, as the callers of Linux's function do.
//!
//! Locks: the pcp lock during the whole request, and the zone lock inside it for each refill.

use super::mobility::Mobility;
use super::pcp::list_of;
use super::watermark::Urgency;
use super::zone::{Mark, Zone, ZoneRequest};
use super::{AllocError, BulkError, PageAllocator, Request, tag};
use crate::event::Event;
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn, count_of};

/// The number of pages that [`PageAllocator::alloc_pages`] asks for at a time (Linux: the 100 pages
/// of `vm_area_alloc_pages`).
pub const BULK_PAGES_MAX: usize = 100;

impl<M: Machine> PageAllocator<M> {
    /// Allocates up to `pfns.len()` single pages, writes them to the first entries of `pfns`, and
    /// returns their number (Linux: `alloc_pages_bulk`). The order of the request is ignored.
    ///
    /// The pages come from one zone of the first node in the zonelist. Whatever the urgency of the
    /// request, this zone must still be above its low watermark after all wanted pages are taken.
    ///
    /// If no zone qualifies, if only one page is wanted, or if another CPU is draining this CPU's
    /// lists, a call of [`PageAllocator::alloc`] allocates a single page instead. The result is
    /// zero if this call fails too. Each call of `alloc` halves the number of pages that the CPU
    /// has freed in a row, a number by which page lists are tuned. A bulk allocation does not
    /// change that number.
    pub fn alloc_bulk(&self, machine: &M, request: Request, pfns: &mut [Pfn]) -> usize {
        self.some_pages(machine, request, pfns).unwrap_or(0)
    }

    /// Allocates single pages for all entries of `pfns` (Linux: `vm_area_alloc_pages`). Asks for
    /// [`BULK_PAGES_MAX`] pages at a time, so that the lists of this CPU are not locked for long,
    /// and allocates single pages if [`PageAllocator::alloc_bulk`] gives no page. The order of the
    /// request is ignored. Free the pages with [`PageAllocator::free_pages`].
    ///
    /// # Errors
    /// [`BulkError`] if memory runs out before all entries have a page. The caller owns the first
    /// [`BulkError::got`] pages; the other entries have not changed. A caller that needs all pages
    /// or none frees them with `free_pages(machine, &pfns[..error.got])`.
    pub fn alloc_pages(
        &self,
        machine: &M,
        request: Request,
        pfns: &mut [Pfn],
    ) -> Result<(), BulkError> {
        let (mut got, wanted) = (0, pfns.len());
        for some in pfns.chunks_mut(BULK_PAGES_MAX) {
            let mut rest = some;
            while !rest.is_empty() {
                let more = self
                    .some_pages(machine, request, rest)
                    .map_err(|why| BulkError { got, wanted, why })?;
                got += more;
                rest = &mut rest[more..];
            }
        }
        Ok(())
    }

    /// Allocates at least one page, unless `pfns` is empty, and at most `pfns.len()` pages. Returns
    /// the number of allocated pages.
    fn some_pages(
        &self,
        machine: &M,
        request: Request,
        pfns: &mut [Pfn],
    ) -> Result<usize, AllocError> {
        let order = Order::ZERO;
        let request = Request { order, ..request };
        let got = if pfns.len() > 1 {
            self.bulk_from_a_zone(machine, request, pfns)
        } else {
            0
        };
        if got > 0 {
            for &pfn in &pfns[..got] {
                machine.emit(Event::PageAlloc { pfn, order });
            }
            return Ok(got);
        }
        let Some(first) = pfns.first_mut() else {
            return Ok(0);
        };
        *first = self.alloc(machine, request)?;
        Ok(1)
    }

    fn bulk_from_a_zone(&self, machine: &M, request: Request, pfns: &mut [Pfn]) -> usize {
        let Some(first) = self.zonelist(machine, request).next() else {
            return 0;
        };
        // If the number of entries does not fit in 32 bits, `at_most` returns `u32::MAX`. No zone
        // has that many pages, so no zone qualifies.
        let count = Pages::at_most(pfns.len() as u64);
        let ask = ZoneRequest {
            order: Order::ZERO,
            class: first.kind,
            urgency: Urgency::Normal,
            mark: Mark::Low,
            mobility: request.mobility,
            unmixed: false,
        };
        let zone = self
            .zonelist(machine, request)
            .take_while(|zone| zone.node == first.node)
            .find(|zone| zone.spares(machine, ask, count));
        zone.map_or(0, |zone| zone.alloc_bulk(machine, ask, pfns))
    }
}

impl<M: Machine> Zone<M> {
    fn alloc_bulk(&self, machine: &M, ask: ZoneRequest, pfns: &mut [Pfn]) -> usize {
        let mobility = self.types.served_as(ask.mobility);
        let ask = ZoneRequest { mobility, ..ask };
        let Some(list) = list_of(Order::ZERO, mobility) else {
            return 0;
        };
        let slot = self.slot(machine.this_cpu());
        let taken = slot.pcp.try_local(machine, Site::PcpAlloc, |pcp| {
            let mut got = 0;
            for pfn in &mut *pfns {
                let mut page = pcp.pop(list, Order::ZERO);
                if page.is_none() {
                    self.refill(machine, pcp, list, ask);
                    page = pcp.pop(list, Order::ZERO);
                }
                let Some(page) = page else { break };
                *pfn = self.pfn(page);
                self.hand_out(page, mobility);
                got += 1;
            }
            slot.count.set(machine, i64::from(pcp.count()));
            got
        });
        let got = taken.unwrap_or(0);
        machine.spend(Work::PcpAlloc, count_of(got));
        got
    }

    fn hand_out(&self, page: u32, mobility: Mobility) {
        self.tags.set(page, tag::handed_out(Order::ZERO, mobility));
    }
}
