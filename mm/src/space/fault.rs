//! Mapping a page where it was touched (Linux: `handle_mm_fault`).
//!
//! Private memory is faulted in without the lock of the mappings: the mapping is looked up, a page is
//! taken, and under the lock of the page table the tree is looked at again. Its version tells
//! whether it has changed; if so, all starts over. So whoever unmaps, or raises
//! [`Flag::Unstable`], and then empties the table under the same lock, leaves nothing behind.
//! What comes from elsewhere (files, shared memory, devices) is faulted in as a reader of the mappings.
//!
//! Locks: `PageTable`, or `UpperTable` and then `PageTable`, with no other lock inside; pages are
//! taken before. For what comes from elsewhere also `Mmap` around it and `Object` before.

use core::ops::Range;

use super::error::{FaultError, NoMemory};
use super::gather::signed;
use super::mapping::{Mappings, allows_huge};
use super::memory::Memory;
use super::page_table::{ENTRIES, Entry, Page, PageKind, Spot, TABLES, first_page, table_of};
use super::rss::RssKind;
use super::swap::SwapSlot;
use super::vma_tree::Vma;
use super::{AddressSpace, END, Flag, MappingKind};
use crate::machine::{Lock, Machine, RwLock};
use crate::page::Request;
use crate::page::watermark::Urgency;
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn, Vpn};
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// What a page is touched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look.
    Read,
    /// To change it.
    Write,
}

/// What a fault did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faulted {
    /// Nothing: the page was there.
    Already,
    /// A page was mapped; it was in swap if so said.
    Mapped {
        /// Whether it was brought back from swap.
        swapped: bool,
    },
    /// A huge page was mapped.
    Huge,
}

/// Pages that are taken, and mapped under one hold of a lock, at most.
const TOGETHER: usize = 32;

/// What became of one attempt.
enum Attempt {
    Done(Faulted),
    /// The mappings have changed meanwhile.
    Again,
}

/// Pages on their way into a table, and what went in.
struct Batch {
    pfns: [Pfn; TOGETHER],
    len: usize,
    used: usize,
    swapped: [SwapSlot; TOGETHER],
    swapped_len: usize,
}

impl<M: Machine> AddressSpace<M> {
    /// Maps `page`, if it is not there for `access` already. Taken by a victim of the OOM killer it
    /// may go below watermarks.
    ///
    /// # Errors
    /// [`FaultError`]; nothing has changed.
    pub fn fault(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        access: Access,
    ) -> Result<Faulted, FaultError> {
        loop {
            let version = self.tree.version();
            let vma = self.mapped(memory.machine, page)?;
            let attempt = match MappingKind::of(&vma) {
                MappingKind::Anonymous => self.fault_huge_or_small(memory, (vma, version), page)?,
                MappingKind::Reserved => self.fault_reserved(memory, (vma, version), page)?,
                _ => self.fault_sourced(memory, page, access)?,
            };
            if let Attempt::Done(faulted) = attempt {
                return Ok(faulted);
            }
        }
    }

    /// Maps every page of `pages`, for writing, as if each was touched (Linux: `MAP_POPULATE`).
    ///
    /// # Errors
    /// [`FaultError`] at the first page that cannot be mapped; those before it are.
    pub fn populate(&self, memory: Memory<'_, M>, pages: Range<Vpn>) -> Result<(), FaultError> {
        let mut page = pages.start;
        while page < pages.end {
            let version = self.tree.version();
            let vma = self.mapped(memory.machine, page)?;
            if MappingKind::of(&vma) != MappingKind::Anonymous || allows_huge(&vma) {
                let faulted = self.fault(memory, page, Access::Write)?;
                let is_huge = faulted == Faulted::Huge;
                page = if is_huge { first_page(table_of(page) + 1) } else { Vpn(page.0 + 1) };
                continue;
            }
            let table_end = first_page(table_of(page) + 1).0;
            let end = (page.0 + TOGETHER as u64).min(table_end);
            let end = Vpn(end.min(vma.end.0).min(pages.end.0));
            if let Attempt::Done(_) = self.fill(memory, (vma, version), page..end)? {
                page = end;
            }
        }
        Ok(())
    }

    /// The mapping of `page`, if it may be touched.
    fn mapped(&self, machine: &M, page: Vpn) -> Result<Vma, FaultError> {
        if self.has(machine, Flag::Exiting) {
            return Err(FaultError::Ended);
        }
        let vma = (page < END).then(|| self.vma_at(machine, page, Site::Fault));
        vma.flatten().ok_or(FaultError::NotMapped(page))
    }

    /// A huge page where one fits and may be used and is to be had; a small one otherwise.
    fn fault_huge_or_small(
        &self,
        memory: Memory<'_, M>,
        (vma, version): (Vma, u64),
        page: Vpn,
    ) -> Result<Attempt, FaultError> {
        let (first, end) = (first_page(table_of(page)), first_page(table_of(page) + 1));
        let fits = allows_huge(&vma) && vma.start <= first && end <= vma.end;
        if fits && !self.has_table(page) {
            match self.fault_whole(memory, (page, version), PageKind::Anon) {
                Ok(Some(attempt)) => return Ok(attempt),
                // There is a table already, or no huge page is to be had.
                Ok(None) | Err(FaultError::OutOfMemory(_) | FaultError::OverBudget(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.fill(memory, (vma, version), page..Vpn(page.0 + 1))
    }

    fn has_table(&self, page: Vpn) -> bool {
        self.table.find(page).is_some_and(|spot| spot.leaf.is_live())
    }

    fn fault_reserved(
        &self,
        memory: Memory<'_, M>,
        (_, version): (Vma, u64),
        page: Vpn,
    ) -> Result<Attempt, FaultError> {
        let attempt = self.fault_whole(memory, (page, version), PageKind::Reserved)?;
        Ok(attempt.unwrap_or(Attempt::Again))
    }

    /// Fills `pages`, of one table, with fresh pages, or with what is in swap.
    fn fill(
        &self,
        memory: Memory<'_, M>,
        seen: (Vma, u64),
        pages: Range<Vpn>,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let spot = self.table.spot(machine, pages.start)?;
        let range = spot.clip(&pages);
        if spot.is_huge() {
            return Ok(Attempt::Done(Faulted::Already));
        }
        if !spot.leaf.is_live() && !self.add_table(memory, spot)? {
            return Ok(Attempt::Done(Faulted::Already));
        }
        let missing = self.missing(machine, spot, range.clone());
        if missing == 0 {
            return Ok(Attempt::Done(Faulted::Already));
        }
        let mut batch = self.take_pages(memory, missing)?;
        // Entry, clearing and mapping: only the last of these is under a lock.
        machine.spend(Work::Fault, missing as u32);
        let outcome = self.install(memory, seen, spot, range, &mut batch);
        self.settle_batch(memory, &batch);
        outcome.map_err(|Unstable| FaultError::Unstable(pages.start))
    }

    /// Entries of `range` without a page in memory.
    fn missing(&self, machine: &M, spot: Spot<'_, M>, range: Range<u64>) -> usize {
        spot.leaf.entries.with(machine, Site::Fault, |entries| {
            let is_missing = |&index: &u64| !matches!(entries.get(index), Some(Entry::Page(_)));
            range.filter(is_missing).count()
        })
    }

    /// Charges for pages and takes them.
    fn take_pages(&self, memory: Memory<'_, M>, pages: usize) -> Result<Batch, FaultError> {
        let mut batch = Batch::new();
        let wanted = pages.min(TOGETHER);
        if let Some(budget) = &self.budget {
            budget.charge(memory.machine, wanted as u64)?;
        }
        let request = self.request(memory.machine, Order::ZERO);
        while batch.len < wanted {
            match memory.manager.pages().alloc(memory.machine, request) {
                Ok(pfn) => batch.push(pfn),
                Err(error) => {
                    memory.give_back(&batch.pfns[..batch.len]);
                    self.uncharge(memory.machine, wanted as u64);
                    return Err(FaultError::OutOfMemory(error));
                }
            }
        }
        Ok(batch)
    }

    /// Writes what `batch` has into the empty or swapped entries of `range`.
    fn install(
        &self,
        memory: Memory<'_, M>,
        (_, version): (Vma, u64),
        spot: Spot<'_, M>,
        range: Range<u64>,
        batch: &mut Batch,
    ) -> Result<Attempt, Unstable> {
        let machine = memory.machine;
        spot.leaf.entries.with(machine, Site::Fault, |entries| {
            if self.has(machine, Flag::Unstable) {
                return Err(Unstable);
            }
            if !entries.is_live() || self.tree.version() != version {
                return Ok(Attempt::Again);
            }
            for index in range {
                match entries.get(index) {
                    Some(Entry::Page(_)) => continue,
                    Some(Entry::Swap(slot)) if batch.used < batch.len => batch.note_swapped(slot),
                    Some(Entry::Swap(_)) => break,
                    None => {}
                }
                // Meanwhile some may have gone to swap: they wait for their own fault.
                let Some(pfn) = batch.next() else { break };
                let kind = PageKind::Anon;
                entries.set(index, Entry::Page(Page { pfn, kind }));
            }
            Ok(Attempt::Done(batch.outcome()))
        })
    }

    /// Counts what was mapped, and gives back what was not.
    fn settle_batch(&self, memory: Memory<'_, M>, batch: &Batch) {
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        let (mapped, left) = batch.pfns[..batch.len].split_at(batch.used);
        if let Some(&first) = mapped.first() {
            let pages = signed(mapped.len() as u64);
            self.rss.add(machine, RssKind::Anon, pages);
            manager.pages().count(machine, first, ZoneItem::Anon, pages);
            manager.count_node(machine, NodeItem::AnonMapped, pages);
            for &pfn in mapped {
                spaces.lru.add(machine, manager.pages(), pfn);
            }
        }
        let swapped = &batch.swapped[..batch.swapped_len];
        if !swapped.is_empty() {
            machine.spend(Work::SwapIn, swapped.len() as u32);
            self.rss
                .add(machine, RssKind::Swap, -signed(swapped.len() as u64));
            let given = spaces.swap.give_back(machine, swapped);
            given.expect("a slot is in one page table, once");
        }
        if !left.is_empty() {
            memory.give_back(left);
            self.uncharge(machine, left.len() as u64);
        }
    }

    /// Maps a huge page around `page`. `None` if there is a table already.
    fn fault_whole(
        &self,
        memory: Memory<'_, M>,
        (page, version): (Vpn, u64),
        kind: PageKind,
    ) -> Result<Option<Attempt>, FaultError> {
        let machine = memory.machine;
        let spot = self.table.spot(machine, page)?;
        if spot.is_huge() {
            return Ok(Some(Attempt::Done(Faulted::Already)));
        }
        let Pages(pages) = Order::HUGE.pages();
        let charged = if kind == PageKind::Anon { u64::from(pages) } else { 0 };
        if let Some(budget) = &self.budget {
            budget.charge(machine, charged)?;
        }
        let outcome = self.install_whole(memory, spot, (page, version), kind);
        if !matches!(outcome, Ok(Some(Attempt::Done(Faulted::Huge)))) {
            self.uncharge(machine, charged);
        }
        outcome
    }

    fn install_whole(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
        (page, version): (Vpn, u64),
        kind: PageKind,
    ) -> Result<Option<Attempt>, FaultError> {
        let machine = memory.machine;
        // Kept for the parts, should it be split.
        let mut spare = Some(self.table_page(memory)?);
        let request = self.request(machine, Order::HUGE).urgent(Urgency::NoWait);
        let block = memory.manager.pages().alloc(machine, request);
        let outcome = block.map_err(FaultError::OutOfMemory).and_then(|pfn| {
            // Clearing 2 MiB is most of the price of as many faults.
            machine.spend(Work::Fault, ENTRIES as u32);
            let whole = Page { pfn, kind };
            let outcome = self.put_whole(machine, spot, (whole, version), &mut spare);
            if !matches!(outcome, Ok(Some(Attempt::Done(Faulted::Huge)))) {
                memory.give_back_block(pfn, Order::HUGE);
            }
            outcome.map_err(|error| error.at(page))
        });
        if let Some(spare) = spare {
            memory.give_back_tables(&[spare]);
        }
        if let Ok(Some(Attempt::Done(Faulted::Huge))) = &outcome {
            self.count_whole(memory, spot, kind);
        }
        outcome
    }

    fn put_whole(
        &self,
        machine: &M,
        spot: Spot<'_, M>,
        (whole, version): (Page, u64),
        spare: &mut Option<Pfn>,
    ) -> Result<Option<Attempt>, Refusal> {
        let private = whole.kind == PageKind::Anon;
        spot.upper.slots.with(machine, Site::Fault, |slots| {
            if spot.is_huge() {
                return Ok(Some(Attempt::Done(Faulted::Already)));
            }
            spot.leaf.entries.with(machine, Site::Fault, |entries| {
                if private && self.has(machine, Flag::Unstable) {
                    return Err(Refusal::Unstable);
                }
                if self.tree.version() != version {
                    return Ok(Some(Attempt::Again));
                }
                if entries.has_frame() {
                    return Ok(None);
                }
                spot.set_huge(slots, whole)?;
                if let Some(frame) = *spare {
                    entries.provide(frame).inspect_err(|NoMemory| {
                        spot.take_huge(slots);
                    })?;
                    *spare = None;
                    self.forget_frames(machine, -1);
                }
                Ok(Some(Attempt::Done(Faulted::Huge)))
            })
        })
    }

    fn count_whole(&self, memory: Memory<'_, M>, spot: Spot<'_, M>, kind: PageKind) {
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        if kind != PageKind::Anon {
            return;
        }
        let Pages(pages) = Order::HUGE.pages();
        let pages = i64::from(pages);
        self.rss.add(machine, RssKind::Anon, pages);
        manager.count_node(machine, NodeItem::AnonMapped, pages);
        let found = spot.upper.slots.with(machine, Site::Fault, |slots| spot.huge(slots));
        if let Some(page) = found {
            manager
                .pages()
                .count(machine, page.pfn, ZoneItem::Anon, pages);
            spaces.lru.add(machine, manager.pages(), page.pfn);
        }
    }

    /// Maps a page that comes from elsewhere.
    fn fault_sourced(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        access: Access,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let killed = || self.has(machine, Flag::Killed);
        self.mappings
            .read_killable(machine, Site::Fault, killed, |mappings| {
                self.fault_as_reader(memory, mappings, page, access)
            })
            .unwrap_or(Err(FaultError::Killed))
    }

    fn fault_as_reader(
        &self,
        memory: Memory<'_, M>,
        mappings: &Mappings<M>,
        page: Vpn,
        access: Access,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let version = self.tree.version();
        let vma = self.tree.find(page).ok().flatten();
        let vma = vma.ok_or(FaultError::NotMapped(page))?;
        let Some(source) = mappings.source(&vma) else {
            return Ok(Attempt::Again);
        };
        let kind = MappingKind::of(&vma);
        if kind == MappingKind::PrivateFile && access == Access::Write {
            self.drop_copied(memory, page)?;
            return self.fill(memory, (vma, version), page..Vpn(page.0 + 1));
        }
        let pfn = match &source.object {
            Some(object) => object
                .page(
                    machine,
                    memory.manager.pages(),
                    source.index(page),
                    self.request(machine, Order::ZERO),
                )
                .map_err(FaultError::OutOfMemory)?,
            None => Pfn(u32::try_from(source.index(page)).unwrap_or(u32::MAX)),
        };
        let kind = match kind {
            MappingKind::PrivateFile => PageKind::File,
            MappingKind::Shared => PageKind::Shared,
            _ => PageKind::Raw,
        };
        self.install_sourced(memory, page, Page { pfn, kind })
    }

    /// Before a private copy replaces it, a file's page is unmapped.
    fn drop_copied(&self, memory: Memory<'_, M>, page: Vpn) -> Result<(), FaultError> {
        let machine = memory.machine;
        let spot = self.table.spot(machine, page)?;
        let range = spot.clip(&(page..Vpn(page.0 + 1)));
        let dropped = spot.leaf.entries.with(machine, Site::Fault, |entries| {
            if self.has(machine, Flag::Unstable) {
                return Err(FaultError::Unstable(page));
            }
            let found = entries.get(range.start);
            let is_file =
                matches!(found, Some(Entry::Page(page)) if page.kind == PageKind::File);
            if is_file {
                entries.clear(range, |_| true);
                machine.spend(Work::Zap, 1);
                machine.spend(Work::Rmap, 1);
                machine.spend(Work::TlbFlush, 1);
            }
            Ok(is_file)
        })?;
        if dropped {
            self.rss.add(machine, RssKind::File, -1);
        }
        Ok(())
    }

    fn install_sourced(
        &self,
        memory: Memory<'_, M>,
        at: Vpn,
        page: Page,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let spot = self.table.spot(machine, at)?;
        if !spot.leaf.is_live() && !self.add_table(memory, spot)? {
            return Ok(Attempt::Done(Faulted::Already));
        }
        let index = spot.clip(&(at..Vpn(at.0 + 1))).start;
        let private = page.kind == PageKind::File;
        let attempt = spot.leaf.entries.with(machine, Site::Fault, |entries| {
            if private && self.has(machine, Flag::Unstable) {
                return Err(FaultError::Unstable(at));
            }
            if !entries.is_live() {
                return Ok(Attempt::Again);
            }
            if entries.get(index).is_some() {
                return Ok(Attempt::Done(Faulted::Already));
            }
            entries.set(index, Entry::Page(page));
            machine.spend(Work::MinorFault, 1);
            Ok(Attempt::Done(Faulted::Mapped { swapped: false }))
        })?;
        let mapped = matches!(attempt, Attempt::Done(Faulted::Mapped { .. }));
        if let Some(kind) = page.kind.counted()
            && mapped
        {
            self.rss.add(machine, kind, 1);
        }
        Ok(attempt)
    }

    /// Makes a table live. `false` if a huge page is there.
    fn add_table(&self, memory: Memory<'_, M>, spot: Spot<'_, M>) -> Result<bool, FaultError> {
        debug_assert!(spot.index < TABLES, "pages of an address space are below its end");
        let machine = memory.machine;
        let mut spare = Some(self.table_page(memory)?);
        let mut upper = None;
        if !spot.upper.has_frame() {
            upper = self.table_page(memory).inspect_err(|_| {
                spare.take().inspect(|&spare| memory.give_back_tables(&[spare]));
            })?
            .into();
        }
        let outcome = spot.upper.slots.with(machine, Site::Fault, |slots| {
            if let Some(frame) = upper.take() {
                upper = spot.provide_upper(slots, frame);
                self.forget_frames(machine, -i64::from(upper.is_none()));
            }
            if spot.huge(slots).is_some() {
                return Ok(false);
            }
            spot.leaf.entries.with(machine, Site::Fault, |entries| {
                if !entries.is_live() {
                    if let Some(frame) = spare {
                        entries.provide(frame)?;
                        spare = None;
                        self.forget_frames(machine, -1);
                    }
                    spot.leaf.go_live(entries);
                }
                Ok(true)
            })
        });
        for frame in spare.into_iter().chain(upper) {
            memory.give_back_tables(&[frame]);
        }
        outcome.map_err(|NoMemory| FaultError::NoMemory)
    }

    fn table_page(&self, memory: Memory<'_, M>) -> Result<Pfn, FaultError> {
        let request = self.request(memory.machine, Order::ZERO);
        memory.table_page(request).map_err(FaultError::OutOfMemory)
    }

    /// A request for whoever uses this address space: a victim may dip into reserves.
    fn request(&self, machine: &M, order: Order) -> Request {
        let request = Request::new(order);
        if self.has(machine, Flag::Victim) {
            request.urgent(Urgency::Victim)
        } else {
            request
        }
    }

    fn uncharge(&self, machine: &M, pages: u64) {
        if let Some(budget) = &self.budget {
            budget.uncharge(machine, pages);
        }
    }
}

/// The address space is being reaped.
struct Unstable;

/// Why a huge page was not put in its place.
enum Refusal {
    Unstable,
    NoMemory,
}

impl Refusal {
    const fn at(&self, page: Vpn) -> FaultError {
        match self {
            Self::Unstable => FaultError::Unstable(page),
            Self::NoMemory => FaultError::NoMemory,
        }
    }
}

impl From<NoMemory> for Refusal {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl Batch {
    const fn new() -> Self {
        Self {
            pfns: [Pfn(0); TOGETHER],
            len: 0,
            used: 0,
            swapped: [SwapSlot(0); TOGETHER],
            swapped_len: 0,
        }
    }

    fn push(&mut self, pfn: Pfn) {
        self.pfns[self.len] = pfn;
        self.len += 1;
    }

    fn next(&mut self) -> Option<Pfn> {
        let pfn = *self.pfns[..self.len].get(self.used)?;
        self.used += 1;
        Some(pfn)
    }

    fn note_swapped(&mut self, slot: SwapSlot) {
        self.swapped[self.swapped_len] = slot;
        self.swapped_len += 1;
    }

    const fn outcome(&self) -> Faulted {
        if self.used == 0 {
            Faulted::Already
        } else {
            let swapped = self.swapped_len > 0;
            Faulted::Mapped { swapped }
        }
    }
}
