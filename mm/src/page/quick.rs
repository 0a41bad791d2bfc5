//! The quick paths: a block moves between the caller and this CPU's page list or front (its stack
//! of free blocks), and nothing else happens.
//!
//! Each function does what the first steps of the complete path do (`alloc.rs`, `free.rs`), or
//! nothing at all. The simulator, on which each load of a word takes time, always takes the
//! complete path. Single pages and huge blocks go through a front (`front.rs`) if the machine has
//! fronts.
//!
//! Locks: the pcp lock of this CPU, which these functions try to take and never wait for.

use super::front::has_front;
use super::mobility::Mobility;
use super::pcp::list_of;
use super::zone::Zone;
use super::{FreeError, PageAllocator, Request, tag};
use crate::event::Event;
use crate::machine::{CpuLock, Freed, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{Order, Pfn};

impl<M: Machine> PageAllocator<M> {
    /// Takes a block from this CPU's front (its stack of free blocks) or page list, in the
    /// first zone that `request` tries. Returns `None`, without having done anything, if neither
    /// the front nor the list gives a block. The list gives no block if it does not exist or is
    /// empty, or if another CPU holds its lock.
    #[inline(always)]
    pub(super) fn alloc_quickly(&self, machine: &M, request: Request) -> Option<Pfn> {
        if M::PRICES_LOADS {
            return None;
        }
        let cpu = machine.this_cpu_at_once()?;
        let zone = self.first_zone_from(machine, cpu, request)?;
        let slot = zone.slot(cpu);
        if has_front(request.order) {
            let page = match zone.alloc_front(machine, slot, request) {
                None => zone.alloc_behind_front(machine, slot, request),
                page => page,
            };
            if let Some(page) = page {
                return Some(zone.pfn(page));
            }
        }
        let (order, mobility) = (request.order, zone.types.served_as(request.mobility));
        let list = list_of(order, mobility)?;
        let take = slot.pcp.try_quick(
            machine,
            Site::PcpAlloc,
            #[inline(always)]
            |pcp| {
                let page = pcp.pop_if_any(list, order)?;
                slot.count.set(machine, i64::from(pcp.count()));
                Some(page)
            },
        );
        let page = take.flatten()?;
        zone.tags.set(page, tag::handed_out(order, mobility));
        machine.spend(Work::PcpAlloc, 1);
        Some(zone.pfn(page))
    }

    /// Puts a block on this CPU's stack of free blocks (its front), or on this CPU's list. The
    /// block goes onto the list only if no page has to return from the lists to the zone then.
    #[inline(always)]
    pub(super) fn free_quickly(&self, machine: &M, pfn: Pfn, order: Order) -> Quick {
        if M::PRICES_LOADS || !has_front(order) {
            return Quick::Nothing;
        }
        // Most memory is in the highest zone, so only this zone is tried.
        let (Some(cpu), Some(zone)) = (machine.this_cpu_at_once(), self.zones.last()) else {
            return Quick::Nothing;
        };
        let Some(page) = zone.page(pfn) else {
            return Quick::Nothing;
        };
        let slot = zone.slot(cpu);
        let freed = match zone.free_front(machine, slot, page, order) {
            Freed::Pushed => return Quick::Freed,
            freed => zone.free_behind_front(machine, slot, page, order, freed),
        };
        match freed {
            Some(Ok(())) => return Quick::Freed,
            Some(Err(why)) => return Quick::Refused(why),
            None => {}
        }
        let Some(list) = zone.only_list_of(order) else {
            return Quick::Nothing;
        };
        let done = slot.pcp.try_quick(
            machine,
            Site::PcpFree,
            #[inline(always)]
            |pcp| {
                let (old, new) = (tag::allocated(order), tag::listed(order));
                if zone.tags.replace(page, old, new).is_err() {
                    return Quick::Nothing;
                }
                machine.emit(Event::PageFree { pfn, order });
                if !pcp.push_if_quiet(list, order, page, zone.version(machine)) {
                    return Quick::Tagged;
                }
                slot.count.set(machine, i64::from(pcp.count()));
                machine.spend(Work::PcpFree, 1);
                Quick::Freed
            },
        );
        done.unwrap_or(Quick::Nothing)
    }
}

/// The outcome of [`PageAllocator::free_quickly`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quick {
    /// The block is on the CPU's stack of free blocks (its front) or on the list, and nothing is
    /// left to do.
    Freed,
    /// The page is not the caller's: another free of the page raced with this one.
    Refused(FreeError),
    /// The tag of the block says that it is on a page list, but it is on no list yet, because this
    /// free might have to return pages to the zone. The complete path (`free.rs`) finishes the
    /// free.
    Tagged,
    /// Nothing has changed, and the complete path (`free.rs`) frees the block. For example, another
    /// CPU held the lock of the lists.
    Nothing,
}

impl<M: Machine> Zone<M> {
    /// Returns the index of a CPU's list for freed blocks of `order`. Returns `None` if there is no
    /// such list, or if the list also depends on a block's mobility or owner.
    #[inline(always)]
    fn only_list_of(&self, order: Order) -> Option<usize> {
        if self.types.on() || self.owners.is_on() {
            return None;
        }
        list_of(order, Mobility::Unmovable)
    }
}
