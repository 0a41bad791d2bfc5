//! The parts that all address spaces of a machine share.

use alloc::boxed::Box;
use core::fmt;

use super::batches::Batches;
use super::contents::{Contents, Source};
use super::error::NoMemory;
use super::lru::Lru;
use super::reaping::Reaping;
use super::rmap::Rmap;
use super::rss::Rss;
use super::swap::{SwapArea, SwapSlot};
use crate::counter::{Batch, Counting, InitError, Plan};
use crate::design::Design;
use crate::machine::Machine;
use crate::manager::Manager;
use crate::page::{AllocError, Request};
use crate::units::{Order, Pfn};
use crate::vmstat::counters::NodeItem;

/// The parts that all address spaces of a machine share, apart from the machine's memory:
///
/// * the swap area;
/// * the lists by which pages are aged;
/// * the memory for the records of pages that are about to be freed;
/// * the plan by which resident pages are counted;
/// * the way in which a dying address space is emptied.
pub struct Spaces<M: Machine> {
    pub(super) lru: Lru<M>,
    pub(super) swap: SwapArea<M>,
    pub(super) batches: Batches<M>,
    plan: Plan<M>,
    reaping: Reaping,
    discard: Option<Box<dyn Discard<M>>>,
    pub(super) contents: Option<Box<dyn Contents<M>>>,
    pub(super) rmap: Option<Rmap<M>>,
}

/// A listener that is notified of every page that no address space uses any more, directly before
/// the page is freed to its zone. Examples are a balloon, free page reporting, or code that
/// overwrites memory (Linux: `arch_free_page`).
pub trait Discard<M: Machine>: Send + Sync {
    /// Notifies the listener that the `1 << order` pages of each of `pfns` are unused and do not
    /// yet belong to another owner. Several CPUs may call this method at the same time. The caller
    /// may hold the lock of an address space's mappings, but holds no other lock.
    fn discard(&self, machine: &M, pfns: &[Pfn], order: Order);
}

/// A machine, its memory, and the parts that its address spaces share. Every operation on an
/// address space takes a `Memory`. A `Memory` consists of three references, so it is cheap to copy.
pub struct Memory<'m, M: Machine> {
    /// The machine.
    pub machine: &'m M,
    /// The manager of the machine's memory.
    pub manager: &'m Manager<M>,
    /// The parts that the machine's address spaces share.
    pub spaces: &'m Spaces<M>,
}

impl<M: Machine> Spaces<M> {
    /// Makes the parts that address spaces share. `design` chooses the variants of these parts, and
    /// `swap` is the number of slots of swap space. Sets aside 76 KiB for each CPU, and 76 KiB
    /// more, to record unmapped pages until they are freed. [`Spaces::with_batches`] sets aside
    /// another amount.
    ///
    /// # Errors
    /// [`InitError`] if this machine does not support the design's way of counting resident pages,
    /// or if the global allocator has no memory.
    pub fn new(machine: &M, design: &Design, swap: u32) -> Result<Self, InitError> {
        let no_memory = |NoMemory| InitError::OutOfMemory;
        let batches = Batches::<M>::for_cpus(machine.topology().cpus());
        let plan = Self::plan_for(machine, design.counting)?;
        Ok(Self {
            lru: Lru::new(machine),
            swap: SwapArea::new(machine, swap).map_err(no_memory)?,
            batches: Batches::new(machine, batches).map_err(no_memory)?,
            plan,
            reaping: design.reaping,
            discard: None,
            contents: None,
            rmap: None,
        })
    }

    fn plan_for(machine: &M, counting: Counting) -> Result<Plan<M>, InitError> {
        Plan::new(machine, counting, Rss::<M>::WIDTH, Batch::RSS)
    }

    /// Returns the shared parts with `batches` batches set aside, instead of 19 for each CPU and 19
    /// more. A batch takes 4 KiB and holds the records of 510 unmapped pages. A CPU that unmaps
    /// pages uses up to 19 batches at once. A CPU that unmaps pages of a living process leaves at
    /// least 19 batches to the CPUs that empty dying address spaces. A CPU that gets no further
    /// batch flushes translations after fewer pages, at worst after every 8 pages.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if the global allocator has no memory.
    pub fn with_batches(self, machine: &M, batches: u32) -> Result<Self, InitError> {
        let batches = Batches::new(machine, batches).map_err(|NoMemory| InitError::OutOfMemory)?;
        Ok(Self { batches, ..self })
    }

    /// Adds lists that record the age of each page. With these lists, the pages of up to
    /// `spaces_max` address spaces and files at a time can be reclaimed. Without the lists, no page
    /// is reclaimed. The lists take 17 bytes for each page of memory. Further memory is needed when
    /// a page is first used for a file that was passed to [`Memory::enlist_file`]. It is allocated
    /// for the whole chunk of 1024 pages that contains this page, and takes 256 bytes for each page
    /// on real threads. Call this method before any page is mapped.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if the global allocator has no memory.
    pub fn aging(
        self,
        machine: &M,
        manager: &Manager<M>,
        spaces_max: u32,
    ) -> Result<Self, InitError> {
        let no_memory = |NoMemory| InitError::OutOfMemory;
        let lru = Lru::aging(machine, manager.pages()).map_err(no_memory)?;
        let rmap = Some(Rmap::new(machine, spaces_max).map_err(no_memory)?);
        Ok(Self { lru, rmap, ..self })
    }

    /// Returns the number of batches that are set aside and not in use, as
    /// [`Spaces::with_batches`] describes them.
    pub fn spare_batches(&self, machine: &M) -> usize {
        self.batches.spare(machine)
    }

    /// Makes `discard` the listener for freed pages, for all address spaces that share this value.
    #[must_use]
    pub fn discarding(self, discard: impl Discard<M> + 'static) -> Self {
        Self {
            discard: Some(Box::new(discard)),
            ..self
        }
    }

    /// Makes `contents` the code that clears, copies and stores the contents of pages, for all
    /// address spaces that share this value. Without such code, the contents of a page that moves
    /// to swap are lost.
    #[must_use]
    pub fn with_contents(self, contents: impl Contents<M> + 'static) -> Self {
        Self {
            contents: Some(Box::new(contents)),
            ..self
        }
    }

    /// Returns the way in which a dying address space is emptied.
    #[must_use]
    pub fn reaping(&self) -> Reaping {
        self.reaping
    }

    /// Returns the plan by which resident pages are counted.
    pub fn plan(&self) -> &Plan<M> {
        &self.plan
    }

    /// Returns the swap area, which all address spaces use.
    pub fn swap(&self) -> &SwapArea<M> {
        &self.swap
    }

    /// Returns the records by which reclaim finds the address space that maps a page, or `None` if
    /// pages are not reclaimed.
    pub(crate) fn rmap(&self) -> Option<&Rmap<M>> {
        self.rmap.as_ref()
    }

    /// Returns the lists by which used pages are aged.
    pub fn lru(&self) -> &Lru<M> {
        &self.lru
    }
}

/// Functions that call the embedder's [`Contents`], if there is one.
impl<M: Machine> Spaces<M> {
    /// Lets the embedder fill the frame `pfn` with its contents, before the frame is mapped.
    #[inline]
    pub(super) fn fill_frame(&self, machine: &M, pfn: Pfn, source: Source) {
        let Some(contents) = &self.contents else {
            return;
        };
        match source {
            Source::Zeros => contents.clear(machine, pfn, Order::ZERO),
            Source::Page(from) => contents.copy(machine, from, pfn),
            Source::Slot(slot) => contents.read_in(machine, slot, pfn),
        }
    }

    /// Clears the frames of a huge page, before it is mapped.
    pub(super) fn clear_huge(&self, machine: &M, pfn: Pfn) {
        if let Some(contents) = &self.contents {
            contents.clear(machine, pfn, Order::HUGE);
        }
    }

    /// Stores the contents of a page that is about to move to swap. Returns `false` if the embedder
    /// has no room for the contents, so that the page must not move.
    pub(super) fn store_frame(&self, machine: &M, pfn: Pfn, slot: SwapSlot) -> bool {
        let stored = |contents: &dyn Contents<M>| contents.write_out(machine, pfn, slot).is_ok();
        self.contents.as_deref().is_none_or(stored)
    }

    /// Frees slots whose contents were stored and are no longer needed.
    ///
    /// # Panics
    /// If a slot is not taken.
    pub(super) fn free_stored(&self, machine: &M, slots: &[SwapSlot]) {
        if let Some(contents) = &self.contents {
            for &slot in slots {
                contents.forget(machine, slot);
            }
        }
        let given = self.swap.give_back(machine, slots);
        given.expect("a slot is in one page table, once");
    }
}

impl<'m, M: Machine> Memory<'m, M> {
    /// Bundles a machine, its manager and the shared parts.
    #[must_use]
    pub fn new(machine: &'m M, manager: &'m Manager<M>, spaces: &'m Spaces<M>) -> Self {
        Self {
            machine,
            manager,
            spaces,
        }
    }

    /// Allocates a page for a page table.
    pub(super) fn table_page(&self, request: Request) -> Result<Pfn, AllocError> {
        let pfn = self.manager.pages().alloc(self.machine, request)?;
        self.count_tables(&[pfn], 1);
        Ok(pfn)
    }

    /// Frees pages of page tables.
    pub(super) fn give_back_tables(&self, pfns: &[Pfn]) {
        self.count_tables(pfns, -1);
        self.give_back(pfns);
    }

    fn count_tables(&self, pfns: &[Pfn], each: i64) {
        let item = NodeItem::PageTables;
        self.manager
            .count_each_on_nodes(self.machine, pfns, item, each);
    }

    /// Frees single pages to their zones.
    pub(super) fn give_back(&self, pfns: &[Pfn]) {
        self.discard(pfns, Order::ZERO);
        let freed = self.manager.pages().free_pages(self.machine, pfns);
        freed.expect("pages go back once, as they came");
    }

    /// Frees a block to its zone.
    pub(super) fn give_back_block(&self, pfn: Pfn, order: Order) {
        self.discard(&[pfn], order);
        let freed = self.manager.pages().free(self.machine, pfn, order);
        freed.expect("blocks go back once, as they came");
    }

    fn discard(&self, pfns: &[Pfn], order: Order) {
        if let Some(discard) = &self.spaces.discard {
            discard.discard(self.machine, pfns, order);
        }
    }
}

impl<M: Machine> fmt::Debug for Spaces<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spaces")
            .field("reaping", &self.reaping)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> fmt::Debug for Memory<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("spaces", &self.spaces)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Clone for Memory<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Memory<'_, M> {}
