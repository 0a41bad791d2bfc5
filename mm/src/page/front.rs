//! Fronts: for each CPU two stacks of free blocks in front of its page lists, one for single pages
//! and one for huge blocks.
//!
//! Most allocations and frees of such blocks only pop from or push to a front, without a lock
//! ([`Front`]). Blocks move between a front and the page lists in runs: an empty front takes a run
//! from the list, and a full front gives one back. A run of single pages has at most [`RUN`] pages,
//! and may also go from the full front of one CPU to the empty front of another
//! ([`Front::give_run`]). In a zone with bitmaps, several runs leave a full front at once if the
//! front is long. So decisions about the lists (their `high`, refills, spills) are made once for each
//! run, or for several runs, and not for each block.
//!
//! A block in a front has the tag [`tag::fronted`]. An entry of a front is valid only if its block
//! has this tag. If two frees of the same block race, both may push the block; the entry that is
//! popped second is then dropped. The change of the tag when a block moves from a front to a list
//! is atomic, so a block is on the lists at most once.
//!
//! There are no fronts if pages are grouped by mobility or blocks have owners, because the list of
//! a freed page then depends on the page. Only zones with bitmaps have fronts for huge blocks,
//! because with those the front exchanges blocks with the zone (`front_direct.rs`).
//!
//! Locks: to empty a front, a CPU keeps all CPUs from using the front, takes the pcp lock, and
//! inside it the zone lock. A CPU that uses a front holds no lock.

use core::hint::cold_path;
use core::sync::atomic::Ordering::Relaxed;

use super::Request;
use super::error::FreeError;
use super::front_run::{RUN, first_of_neighbours};
use super::mobility::Mobility;
use super::pcp::list_of;
use super::sizing::Sizes;
use super::tag;
use super::zone::{PerCpu, Zone, ZoneRequest};
use crate::cpus::Cpus;
use crate::machine::{CpuLock, Freed, Front, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, count_of};

/// The orders of the blocks that fronts (CPUs' stacks of free blocks) hold.
pub(super) const FRONTED: [Order; 2] = [Order::ZERO, Order::HUGE];

/// A CPU's front for single pages (its stack of free pages) holds at most the number of pages that
/// the CPU's lists may hold, divided by this number.
const PART_OF_HIGH_MAX: u32 = 8;

/// The smallest limit of a front for single pages (a CPU's stack of free pages), in pages, however
/// short the CPU's lists are.
const LIMIT_MIN: u32 = 2;

/// A CPU's front for huge blocks (its stack of free huge blocks) holds at most this number of
/// blocks, and at most as many pages as the CPU's lists may hold, because the front takes the place
/// of the list of huge blocks.
const HUGE_MAX: u32 = 16;

/// If a CPU's front for single pages (its stack of free pages) is full and the zone has bitmaps, the
/// CPU moves at most the limit of the front, divided by this number, and at most [`AT_ONCE_MAX`]
/// pages at once. But it always moves a run.
const PART_AT_ONCE: usize = 4;

/// The largest number of pages that a CPU moves at once from its full front (its stack of free pages)
/// to its page lists or the zone, if the zone has bitmaps.
const AT_ONCE_MAX: usize = 4 * RUN;

/// Returns whether CPUs have fronts (stacks of free blocks) for blocks of `order`.
#[inline(always)]
pub(super) const fn has_front(order: Order) -> bool {
    matches!(order, Order::ZERO | Order::HUGE)
}

/// The index of the page list with which a CPU's front (its stack of free blocks) for blocks of
/// `order` exchanges blocks.
fn list(order: Order) -> usize {
    list_of(order, Mobility::Unmovable).unwrap_or_default()
}

impl<M: Machine> Zone<M> {
    /// Sets the limit of each front (a CPU's stack of free blocks) for page lists of these sizes.
    /// The fronts of CPUs that are offline get no room.
    pub(super) fn set_front_limits(&self, machine: &M, sizes: Sizes, cpus: &Cpus<M>) {
        let capacity = M::Front::CAPACITY;
        if capacity == 0 {
            return;
        }
        let high_max = sizes.high_max.0;
        let has_fronts = !self.types.on() && !self.owners.is_on();
        let pages = match high_max / PART_OF_HIGH_MAX {
            _ if !has_fronts || high_max == 0 => 0,
            part => part.clamp(LIMIT_MIN.min(capacity), capacity),
        };
        let huge = match high_max >> Order::HUGE.get() {
            _ if !has_fronts || !self.has_bitmaps => 0,
            // With room for a single block, every second free would move it to the zone.
            0 | 1 => 0,
            blocks => blocks.min(HUGE_MAX).min(capacity),
        };
        for (cpu, slot) in (0..).map(CpuId).zip(&self.slots) {
            let is_online = cpus.is_online(machine, cpu);
            let limit = |blocks| if is_online { blocks } else { 0 };
            slot.pages.set_limit(limit(pages));
            slot.huge.set_limit(limit(huge));
        }
    }

    /// Pops a block from a CPU's stack of free blocks (its front) and tags it as allocated.
    /// `request` is for a single page or a huge block. If this returns `None`, the caller continues
    /// with [`Zone::alloc_behind_front`].
    ///
    /// Callers inline this function, so it has only the steps that nearly every allocation takes.
    /// It calls no other function, so the caller need not save registers.
    #[inline(always)]
    pub(super) fn alloc_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        request: Request,
    ) -> Option<u32> {
        let page = slot.front(request.order).pop(machine)?;
        self.tag_popped(page, request.order)
    }

    /// Tags a block as allocated that was popped from a stack of free blocks. Returns `None` if the
    /// entry was invalid, because its block had been freed twice.
    #[inline(always)]
    fn tag_popped(&self, page: u32, order: Order) -> Option<u32> {
        if self.tags.get(page) == tag::fronted(order) {
            self.tags.set(page, tag::allocated(order));
            return Some(page);
        }
        self.note_dropped(1);
        None
    }

    /// Pops a block from a CPU's stack of free blocks and tags it as allocated. Drops invalid
    /// entries.
    fn pop_front(&self, machine: &M, slot: &PerCpu<M>, order: Order) -> Option<u32> {
        loop {
            let page = slot.front(order).pop(machine)?;
            let page = self.tag_popped(page, order);
            if page.is_some() {
                return page;
            }
        }
    }

    /// Continues [`Zone::alloc_front`], which has returned `None`. Pops a block, or refills the
    /// CPU's empty stack of free blocks (`slot.front`): takes a run of blocks from the page list, a
    /// run that another CPU has offered, or a run from the zone, and pushes the blocks. Returns the
    /// block that is to be allocated first, tagged as allocated. Returns `None` if the caller cannot
    /// use the stack, or there is no run, or the list is locked.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_behind_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        request: Request,
    ) -> Option<u32> {
        let order = request.order;
        let front = slot.front(order);
        if front.limit() == 0 || !front.admits(machine) {
            return None;
        }
        // The call of `admits` may have let the caller take over the stack of free blocks, and the
        // stack may have blocks. Or the entry that `alloc_front` popped was invalid.
        let page = self.pop_front(machine, slot, order);
        if page.is_some() {
            return page;
        }
        let mut run = [0; RUN];
        let room = &mut run[..refill_len(order, front.limit())];
        let taken = slot.pcp.try_local(machine, Site::PcpAlloc, |pcp| {
            let taken = pcp.pop_run(list(order), order, room);
            slot.count.set(machine, i64::from(pcp.count()));
            taken
        });
        let taken = match taken? {
            // The list is empty. A run of pages from another CPU's stack saves a transfer from the
            // zone. The pages of the run have the tag of pages in fronts, except those that were
            // freed twice. These are dropped when they are popped.
            0 if room.len() == RUN && front.take_run(machine, room) => {
                machine.spend(Work::PcpAlloc, count_of(RUN));
                room.reverse();
                self.push_back(machine, slot, order, room);
                return self.pop_front(machine, slot, order);
            }
            0 => self.take_directly(machine, slot, ZoneRequest::first(request), room),
            taken => {
                let tag = |&page: &u32| self.tags.set(page, tag::fronted(order));
                run[..taken].iter().for_each(tag);
                taken
            }
        };
        let (first, rest) = run[..taken].split_first_mut()?;
        machine.spend(Work::PcpAlloc, count_of(1 + rest.len()));
        // `rest` begins with the block that is to be allocated next, which must be pushed last.
        rest.reverse();
        self.push_back(machine, slot, order, rest);
        self.tags.set(*first, tag::allocated(order));
        Some(*first)
    }

    /// Pushes blocks onto the stack of free blocks from which they were popped, or for which they
    /// were taken. The last one of `pages` is pushed last. Puts the blocks that cannot be pushed on
    /// the page list.
    fn push_back(&self, machine: &M, slot: &PerCpu<M>, order: Order, pages: &mut [u32]) {
        if pages.is_empty() {
            return;
        }
        let pushed = slot.front(order).push_run(machine, pages);
        if pushed < pages.len() {
            let left = &mut pages[pushed..];
            left.reverse();
            self.list_fronted(machine, order, left);
        }
    }

    /// Frees a block to a CPU's stack of free blocks (its front). If the block does not get there,
    /// [`Zone::free_behind_front`] continues with the outcome. `order` must be one for which
    /// [`has_front`] is true.
    ///
    /// Callers inline this function, so it has only the steps that nearly every free takes.
    #[inline(always)]
    pub(super) fn free_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        page: u32,
        order: Order,
    ) -> Freed {
        let (allocated, fronted) = (tag::allocated(order), tag::fronted(order));
        slot.front(order)
            .free(machine, &self.tags, page, allocated, fronted)
    }

    /// Continues [`Zone::free_front`], which has returned `freed`. Returns `None`, without having
    /// done anything, if the block is not allocated as a block of `order`, or if the caller cannot
    /// use the stack of free blocks.
    #[cold]
    #[inline(never)]
    pub(super) fn free_behind_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        page: u32,
        order: Order,
        freed: Freed,
    ) -> Option<Result<(), FreeError>> {
        let front = slot.front(order);
        let freed = match freed {
            Freed::Unchanged if front.limit() == 0 => return None,
            Freed::Unchanged if self.tags.get(page) != tag::allocated(order) => return None,
            // The caller may first have to take over the stack of free blocks.
            Freed::Unchanged if !front.admits(machine) => return None,
            Freed::Unchanged => self.free_front(machine, slot, page, order),
            freed => freed,
        };
        match freed {
            Freed::Pushed => Some(Ok(())),
            Freed::Tagged => Some(self.spill_front(machine, slot, page, order)),
            Freed::Unchanged => None,
        }
    }

    /// Frees a block that has the tag of blocks in fronts, but could not be pushed onto the stack
    /// of free blocks (`slot.front`). If the stack is full, passes a run of its blocks on to other
    /// CPUs, to the zone, or to the page list.
    ///
    /// # Errors
    /// If another free of the block has already put it on a list.
    fn spill_front(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        page: u32,
        order: Order,
    ) -> Result<(), FreeError> {
        let front = slot.front(order);
        let mut run = [0; RUN];
        let run = &mut run[..spill_len(order, front.limit()).max(1)];
        // In most cases the caller can use the stack, and the stack is full.
        let mut len = front.pop_run(machine, run);
        if len == 0 && front.admits(machine) {
            if front.push(machine, page) {
                return Ok(());
            }
            len = front.pop_run(machine, run);
        }
        if len > 0 {
            let run = &mut run[..len];
            if len < RUN {
                self.pass_on(machine, slot, order, run);
            } else if !front.give_run(machine, run) {
                self.pass_on_with_more(machine, slot, run);
            }
            if front.push(machine, page) {
                return Ok(());
            }
        }
        match self.list_fronted(machine, order, &mut [page]) {
            0 => Err(FreeError::NotAllocated(self.pfn(page))),
            _ => Ok(()),
        }
    }

    /// Does the same as [`Zone::pass_on`] with `run`, a run of pages that was popped from the CPU's
    /// stack of free pages. In a zone with bitmaps, pops more runs if the stack is long, and moves
    /// them as well: one decision for more pages takes less time per page.
    fn pass_on_with_more(&self, machine: &M, slot: &PerCpu<M>, run: &mut [u32]) {
        let front = slot.front(Order::ZERO);
        let most = if self.has_bitmaps {
            (front.limit() as usize / PART_AT_ONCE).min(AT_ONCE_MAX)
        } else {
            0
        };
        if most < 2 * RUN {
            return self.pass_on(machine, slot, Order::ZERO, run);
        }
        let mut pages = [0; AT_ONCE_MAX];
        pages[..run.len()].copy_from_slice(run);
        // Whole runs only, because a run may be a word, which moves as one block.
        let more = &mut pages[run.len()..most - most % RUN];
        let len = run.len() + front.pop_run(machine, more);
        self.pass_on(machine, slot, Order::ZERO, &mut pages[..len]);
    }

    /// Moves blocks that were popped from the stack of free blocks (`slot.front`) to the zone or to
    /// the page list. The block that was pushed last comes first in `pages`.
    fn pass_on(&self, machine: &M, slot: &PerCpu<M>, order: Order, pages: &mut [u32]) {
        let given = self.give_directly(machine, slot, order, pages);
        let rest = &mut pages[given..];
        if given > 0 {
            self.notice_plenty(machine);
            // One hold of the zone lock may not move all blocks.
            rest.reverse();
            self.push_back(machine, slot, order, rest);
        } else {
            self.list_fronted(machine, order, rest);
        }
    }

    /// Puts blocks that have the tag of blocks in fronts, and are on no CPU's stack of free blocks,
    /// on this CPU's list. The block that was freed last comes first in `pages`. Drops blocks that
    /// another CPU has retagged in the meantime. Returns the number of blocks that were put on the
    /// list.
    fn list_fronted(&self, machine: &M, order: Order, pages: &mut [u32]) -> usize {
        let kept = self.retag_fronted(order, pages);
        let kept = &mut pages[..kept];
        kept.reverse();
        if !kept.is_empty() {
            self.free_listed(machine, kept, order, None);
        }
        kept.len()
    }

    /// Changes the tags of blocks from "in a front" to "on a page list". Moves the blocks whose
    /// tags it has changed to the beginning of `pages`, and returns the number of these blocks.
    fn retag_fronted(&self, order: Order, pages: &mut [u32]) -> usize {
        let (fronted, listed) = (tag::fronted(order), tag::listed(order));
        let mut done = 0..0;
        if order == Order::ZERO
            && let Some(first) = first_of_neighbours(pages)
        {
            let len = count_of(pages.len());
            done = first..first + self.tags.replace_while(first, len, fronted, listed);
        }
        if done.len() == pages.len() {
            return pages.len();
        }
        self.keep(pages, |page| {
            done.contains(&page) || self.tags.replace(page, fronted, listed).is_ok()
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
                self.note_dropped(1);
            }
        }
        kept
    }

    /// Returns whether a block of `order` that the zone has just given is also in a CPU's front
    /// (its stack of free blocks), or allocated. This is possible if the block was freed twice.
    /// Only a zone with bitmaps knows it.
    #[inline]
    pub(super) fn is_out(&self, page: u32, order: Order) -> bool {
        M::Front::CAPACITY > 0
            && self.has_bitmaps
            && has_front(order)
            && tag::is_out(self.tags.get(page), order)
    }

    /// Moves all blocks of a CPU's fronts (its stacks of free blocks) to the CPU's lists. Returns
    /// the number of pages that went to the zone instead, because a list had no room for them.
    pub(super) fn empty_fronts(&self, machine: &M, cpu: CpuId, site: Site) -> u32 {
        let pages = FRONTED.map(|order| self.empty_front(machine, cpu, order, site));
        pages.into_iter().sum()
    }

    /// Moves all blocks of `order` of a CPU's front (its stack of free blocks) to the CPU's list.
    /// Returns the number of pages that went to the zone instead, because the list had no room for
    /// them.
    pub(super) fn empty_front(&self, machine: &M, cpu: CpuId, order: Order, site: Site) -> u32 {
        let slot = self.slot(cpu);
        let front = slot.front(order);
        let mut direct = 0;
        if front.blocks() == 0 {
            return direct;
        }
        front.empty(machine, |pages| {
            // `pages` begins with the block that was pushed last. This block must be pushed onto
            // the list last.
            for part in pages.rchunks(RUN) {
                let mut run = [0; RUN];
                let run = &mut run[..part.len()];
                part.iter()
                    .rev()
                    .zip(&mut *run)
                    .for_each(|(&page, to)| *to = page);
                let kept = self.retag_fronted(order, run);
                let mut rest = &run[..kept];
                slot.pcp.with(machine, site, |pcp| {
                    while let Some((&page, others)) = rest.split_first()
                        && pcp.push(list(order), order, page)
                    {
                        rest = others;
                    }
                    slot.count.set(machine, i64::from(pcp.count()));
                });
                for &page in rest {
                    self.free_direct(machine, page, order);
                    direct += order.pages().0;
                }
            }
        });
        direct
    }

    /// Counts blocks that were dropped, because they had been freed twice.
    #[inline]
    pub(super) fn note_dropped(&self, blocks: u32) {
        if blocks > 0 {
            cold_path();
            // Relaxed is enough: this is only a count, and orders no other access.
            self.dropped.fetch_add(u64::from(blocks), Relaxed);
        }
    }
}

/// The number of blocks of `order` that a CPU's empty stack of free blocks with this limit takes at
/// once from its page list or the zone.
fn refill_len(order: Order, limit: u32) -> usize {
    let limit = limit as usize;
    if order == Order::HUGE {
        // The stack is so short that a smaller part of it would be few blocks. If a quarter of its
        // places stay empty, a CPU that allocates and frees in turns moves few runs.
        limit - limit / 4
    } else {
        RUN.min(limit / 2)
    }
}

/// The number of blocks of `order` that a CPU's full stack of free blocks with this limit gives at
/// once to its page list or the zone.
fn spill_len(order: Order, limit: u32) -> usize {
    if order == Order::HUGE {
        // Blocks of this size are not in a CPU's cache, so no block is worth keeping.
        limit as usize
    } else {
        RUN.min(limit as usize / 2)
    }
}
