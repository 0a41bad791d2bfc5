//! Fronts: for each CPU a stack of free single pages in front of its page lists.
//!
//! Most allocations and frees of single pages only pop from or push to the front, without a lock
//! ([`Front`]). Pages move between a front and the page lists in runs of at most [`RUN`]: an empty
//! front takes a run from the list, and a full front gives one back. A run may also go from the
//! full front of one CPU to the empty front of another ([`Front::give_run`]). So decisions about
//! the lists (their `high`, refills, spills) are made once for each run, and not for each page.
//!
//! A page in a front has the tag [`tag::FRONTED`]. An entry of a front is valid only if its page
//! has this tag. If two frees of the same page race, both may push the page; the entry that is
//! popped second is then dropped. The change of the tag when a page moves from a front to a list is
//! atomic, so a page is on the lists at most once.
//!
//! There are no fronts if pages are grouped by mobility or blocks have owners, because the list of
//! a freed page then depends on the page.
//!
//! Locks: to empty a front, a CPU keeps all CPUs from using the front, takes the pcp lock, and
//! inside it the zone lock. A CPU that uses a front holds no lock.

use core::sync::atomic::Ordering::Relaxed;

use super::Request;
use super::error::FreeError;
use super::mobility::Mobility;
use super::pcp::list_of;
use super::sizing::Sizes;
use super::tag;
use super::zone::{PerCpu, Zone, ZoneRequest};
use crate::cpus::Cpus;
use crate::machine::{CpuLock, Freed, Front, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, count_of};

/// The largest number of pages that move at once between a CPU's front (its stack of free pages)
/// and its page lists, or between two fronts.
pub(super) const RUN: usize = 64;

/// A CPU's stack of free pages (its front) holds at most the number of pages that the CPU's lists
/// may hold, divided by this number.
const PART_OF_HIGH_MAX: u32 = 8;

/// The smallest limit of a CPU's stack of free pages, in pages, however short the CPU's lists are.
const LIMIT_MIN: u32 = 2;

/// The index of the page list with which a CPU's stack of free pages (its front) exchanges pages.
const LIST: usize = match list_of(Order::ZERO, Mobility::Unmovable) {
    Some(list) => list,
    None => panic!("there is a list of single pages"),
};

impl<M: Machine> Zone<M> {
    /// Sets the limit of each front (a CPU's stack of free pages) for page lists of these sizes.
    /// The fronts of CPUs that are offline get no room.
    pub(super) fn set_front_limits(&self, machine: &M, sizes: Sizes, cpus: &Cpus<M>) {
        let capacity = M::Front::CAPACITY;
        if capacity == 0 {
            return;
        }
        let high_max = sizes.high_max.0;
        let limit = match high_max / PART_OF_HIGH_MAX {
            _ if self.types.on() || self.owners.is_on() || high_max == 0 => 0,
            part => part.clamp(LIMIT_MIN.min(capacity), capacity),
        };
        for (cpu, slot) in (0..).map(CpuId).zip(&self.slots) {
            let is_online = cpus.is_online(machine, cpu);
            slot.front.set_limit(if is_online { limit } else { 0 });
        }
    }

    /// Allocates a page from a CPU's stack of free pages (its front), or from the page list if the
    /// stack is empty.
    #[inline(always)]
    pub(super) fn alloc_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        request: Request,
    ) -> Option<u32> {
        match self.pop_front(machine, slot) {
            None if slot.front.limit() != 0 => self.alloc_behind_front(machine, slot, request),
            page => page,
        }
    }

    /// Pops a page from a CPU's stack of free pages and tags the page as allocated.
    #[inline(always)]
    fn pop_front(&self, machine: &M, slot: &PerCpu<M>) -> Option<u32> {
        let page = slot.front.pop(machine)?;
        if self.tags.get(page) != tag::FRONTED {
            return self.pop_next(machine, slot);
        }
        self.tags.set(page, tag::allocated(Order::ZERO));
        Some(page)
    }

    /// Continues [`Zone::pop_front`] after it has dropped an invalid entry: one whose page was
    /// freed twice.
    #[cold]
    #[inline(never)]
    fn pop_next(&self, machine: &M, slot: &PerCpu<M>) -> Option<u32> {
        self.note_dropped();
        loop {
            let page = slot.front.pop(machine)?;
            if self.tags.get(page) == tag::FRONTED {
                self.tags.set(page, tag::allocated(Order::ZERO));
                return Some(page);
            }
            self.note_dropped();
        }
    }

    /// Refills a CPU's empty stack of free pages (`slot.front`): takes a run of pages from the page
    /// list, or a run that another CPU has offered, and pushes all but one of the pages. Returns
    /// the page that is left, tagged as allocated. Returns `None` if the caller cannot use the
    /// stack, or there is no run, or the list is locked.
    #[cold]
    #[inline(never)]
    fn alloc_behind_front(&self, machine: &M, slot: &PerCpu<M>, request: Request) -> Option<u32> {
        if !slot.front.admits(machine) {
            return None;
        }
        // The call of `admits` may have let the caller take over the stack of free pages
        // (`slot.front`), and the stack may have pages.
        let page = self.pop_front(machine, slot);
        if page.is_some() {
            return page;
        }
        let mut run = [0; RUN];
        let room = &mut run[..RUN.min(half(slot.front.limit()))];
        let taken = slot.pcp.try_local(machine, Site::PcpAlloc, |pcp| {
            let taken = pcp.pop_run(LIST, room);
            slot.count.set(machine, i64::from(pcp.count()));
            taken
        });
        let taken = match taken? {
            // The list is empty. A run of pages from another CPU's stack saves a transfer from the
            // zone. The pages of the run have the tag `FRONTED`, except those that were freed
            // twice.
            0 if room.len() == RUN && slot.front.take_run(machine, room) => {
                self.keep(room, |page| self.tags.get(page) == tag::FRONTED)
            }
            0 => self.take_directly(machine, slot, ZoneRequest::first(request), room),
            taken => {
                let front = |&page: &u32| self.tags.set(page, tag::FRONTED);
                run[..taken].iter().for_each(front);
                taken
            }
        };
        let (first, rest) = run[..taken].split_first_mut()?;
        machine.spend(Work::PcpAlloc, count_of(1 + rest.len()));
        // `rest` begins with the page that was freed last, which must be pushed last.
        rest.reverse();
        let pushed = slot.front.push_run(machine, rest);
        let left = &mut rest[pushed..];
        left.reverse();
        self.list_fronted(machine, left);
        self.tags.set(*first, tag::allocated(Order::ZERO));
        Some(*first)
    }

    /// Frees a page to a CPU's stack of free pages (its front). Returns `None`, without having done
    /// anything, if the page is not allocated as a single page, or if the caller cannot use the
    /// stack.
    #[inline(always)]
    pub(super) fn free_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        page: u32,
    ) -> Option<Result<(), FreeError>> {
        let allocated = tag::allocated(Order::ZERO);
        match slot
            .front
            .free(machine, &self.tags, page, allocated, tag::FRONTED)
        {
            Freed::Pushed => Some(Ok(())),
            Freed::Tagged => Some(self.free_behind_front(machine, slot, page)),
            Freed::Unchanged if slot.front.limit() == 0 => None,
            Freed::Unchanged => self.free_again(machine, slot, page),
        }
    }

    /// Continues [`Zone::free_front`] if the caller may first have to take over the stack of free
    /// pages.
    #[cold]
    #[inline(never)]
    fn free_again(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        page: u32,
    ) -> Option<Result<(), FreeError>> {
        let allocated = tag::allocated(Order::ZERO);
        if self.tags.get(page) != allocated || !slot.front.admits(machine) {
            return None;
        }
        match slot
            .front
            .free(machine, &self.tags, page, allocated, tag::FRONTED)
        {
            Freed::Pushed => Some(Ok(())),
            Freed::Tagged => Some(self.free_behind_front(machine, slot, page)),
            Freed::Unchanged => None,
        }
    }

    /// Frees a page that has the tag `FRONTED` but could not be pushed onto the stack of free pages
    /// (`slot.front`). If the stack is full, passes a run of its pages on to other CPUs, or moves
    /// the run to the page list.
    ///
    /// # Errors
    /// If another free of the page has already put it on a list.
    #[cold]
    #[inline(never)]
    fn free_behind_front(&self, machine: &M, slot: &PerCpu<M>, page: u32) -> Result<(), FreeError> {
        if slot.front.admits(machine) {
            if slot.front.push(machine, page) {
                return Ok(());
            }
            let mut run = [0; RUN];
            let most = RUN.min(half(slot.front.limit()).max(1));
            let len = slot.front.pop_run(machine, &mut run[..most]);
            if len < RUN || !slot.front.give_run(machine, &run) {
                self.pass_on(machine, slot, &mut run[..len]);
            }
            if slot.front.push(machine, page) {
                return Ok(());
            }
        }
        match self.list_fronted(machine, &mut [page]) {
            0 => Err(FreeError::NotAllocated(self.pfn(page))),
            _ => Ok(()),
        }
    }

    /// Moves pages that were popped from the stack of free pages (`slot.front`) to the zone or to
    /// the page list. The page that was pushed last comes first in `pages`.
    fn pass_on(&self, machine: &M, slot: &PerCpu<M>, pages: &mut [u32]) {
        let given = self.give_directly(machine, slot, pages);
        let rest = &mut pages[given..];
        if given > 0 {
            // One hold of the zone lock may not move all pages.
            rest.reverse();
            let pushed = slot.front.push_run(machine, rest);
            let left = &mut rest[pushed..];
            left.reverse();
            self.list_fronted(machine, left);
        } else {
            self.list_fronted(machine, rest);
        }
    }

    /// Puts pages that have the tag `FRONTED`, and are on no CPU's stack of free pages, on this
    /// CPU's list. The page that was freed last comes first in `pages`. Drops pages that another
    /// CPU has retagged in the meantime. Returns the number of pages that were put on the list.
    fn list_fronted(&self, machine: &M, pages: &mut [u32]) -> usize {
        let kept = self.retag_fronted(pages);
        let kept = &mut pages[..kept];
        kept.reverse();
        if !kept.is_empty() {
            self.free_listed(machine, kept, Order::ZERO, None);
        }
        kept.len()
    }

    /// Changes the tags of `pages` from `FRONTED` to "on a page list". Moves the pages whose tags
    /// it has changed to the beginning of `pages`, and returns the number of these pages.
    fn retag_fronted(&self, pages: &mut [u32]) -> usize {
        let listed = tag::listed(Order::ZERO);
        self.keep(pages, |page| {
            self.tags.replace(page, tag::FRONTED, listed).is_ok()
        })
    }

    /// Moves the pages for which `is_valid` returns `true` to the beginning of `pages`, in their
    /// order. Drops the others. Returns the number of pages that were kept.
    pub(super) fn keep(&self, pages: &mut [u32], is_valid: impl Fn(u32) -> bool) -> usize {
        let mut kept = 0;
        for at in 0..pages.len() {
            let page = pages[at];
            if is_valid(page) {
                pages[kept] = page;
                kept += 1;
            } else {
                self.note_dropped();
            }
        }
        kept
    }

    /// Moves all pages of a CPU's front (its stack of free pages) to the CPU's list. Returns the
    /// number of pages that went to the zone instead, because the list had no room for them.
    pub(super) fn empty_front(&self, machine: &M, cpu: CpuId, site: Site) -> u32 {
        let slot = self.slot(cpu);
        let mut direct = 0;
        if slot.front.pages() == 0 {
            return direct;
        }
        slot.front.empty(machine, |pages| {
            // `pages` begins with the page that was pushed last. This page must be pushed onto the
            // list last.
            for part in pages.rchunks(RUN) {
                let mut run = [0; RUN];
                let run = &mut run[..part.len()];
                part.iter()
                    .rev()
                    .zip(&mut *run)
                    .for_each(|(&page, to)| *to = page);
                let kept = self.retag_fronted(run);
                let mut rest = &run[..kept];
                slot.pcp.with(machine, site, |pcp| {
                    while let Some((&page, others)) = rest.split_first()
                        && pcp.push(LIST, Order::ZERO, page)
                    {
                        rest = others;
                    }
                    slot.count.set(machine, i64::from(pcp.count()));
                });
                for &page in rest {
                    self.free_direct(machine, page, Order::ZERO);
                    direct += 1;
                }
            }
        });
        direct
    }

    /// Counts an entry of a CPU's stack of free pages that was dropped, because its page had been
    /// freed twice.
    #[cold]
    fn note_dropped(&self) {
        // Relaxed is enough: this is only a count, and orders no other access.
        self.dropped.fetch_add(1, Relaxed);
    }
}

/// Returns half of the `limit` of a CPU's stack of free pages.
fn half(limit: u32) -> usize {
    limit as usize / 2
}
