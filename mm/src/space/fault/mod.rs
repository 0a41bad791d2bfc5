//! Page faults: mapping a page that a process has touched (Linux: `handle_mm_fault`).
//!
//! Private memory is faulted in without the lock of the mappings. The fault looks up the mapping,
//! allocates a page, takes the lock of the page table, and then checks whether the version of the
//! tree of mappings has changed since the look-up. If the version has changed, the fault starts
//! over. After [`FAULT_TRIES`] tries, the fault takes the lock of the mappings as a reader, so that
//! no CPU can change the mappings.
//!
//! Suppose that a CPU unmaps, or raises [`Flag::Unstable`], and then empties a table under the
//! table's lock. This CPU leaves no page behind: a fault either fills its entry before the table is
//! emptied, or sees the change. The CPU also misses no table. A fault counts each table that it
//! makes, and then checks the version again. The emptying CPU makes an atomic addition of 0 to the
//! same count before it looks for tables (`PageTable::catch_up`). So the emptying CPU sees the new
//! table, or the fault sees the change.
//!
//! A fault on a page of a file, of shared memory or of a device holds the lock of the mappings as a
//! reader.
//!
//! Locks: `PageTable`, or `UpperTable` and then `PageTable`. Pages are allocated before these locks
//! are taken. A fault holds `Mmap` as a reader while it takes these locks if it is on a page of a
//! file, of shared memory or of a device, or if it has started over too often. A fault on a page of
//! a file or of shared memory takes and releases `Object` before it takes the lock of the table
//! that it fills.

mod huge;
mod small;
mod sourced;
mod table;

use core::ops::Range;

use super::error::FaultError;
use super::mapping::allows_huge;
use super::memory::Memory;
use super::page_table::{PageKind, first_page, table_of};
use super::vma_tree::Vma;
use super::{AddressSpace, END, Flag, MappingKind};
use crate::machine::{Field, Machine, RwLock};
use crate::page::watermark::Urgency;
use crate::page::{Mobility, Request};
use crate::site::Site;
use crate::units::{Order, Vpn};

/// The number of times that a fault looks up a mapping without the lock of the mappings. After that
/// many tries it takes the lock as a reader, so that no CPU changes mappings until the fault is
/// done.
pub const FAULT_TRIES: u32 = 3;

/// The kind of access that caused a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read of the page.
    Read,
    /// A write to the page, or to its private copy.
    Write,
}

/// The outcome of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faulted {
    /// The page was mapped already, so the fault had nothing to do.
    Already,
    /// The fault mapped a page: a new one, a page of an object, or a page brought back from swap.
    Mapped {
        /// True if the page was brought back from swap.
        swapped: bool,
    },
    /// A huge page was mapped.
    Huge,
}

/// The outcome of one attempt at a fault.
enum Attempt {
    Done(Faulted),
    /// The mappings have changed during the attempt, so the fault has to start over.
    Again,
}

impl<M: Machine> AddressSpace<M> {
    /// Maps `page`, unless it is mapped for `access` already. If the address space belongs to a
    /// victim of the OOM killer, pages may be allocated from below the watermarks.
    ///
    /// # Errors
    /// [`FaultError`] if the page cannot be mapped. In that case the address space is unchanged,
    /// but a page may have been allocated for a file or for shared memory.
    pub fn fault(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        access: Access,
    ) -> Result<Faulted, FaultError> {
        for _try in 0..FAULT_TRIES {
            let version = self.version(memory.machine)?;
            let vma = self.mapped(memory.machine, page)?;
            let attempt = match MappingKind::of(&vma) {
                MappingKind::Anonymous => self.fault_huge_or_small(memory, vma, version, page)?,
                MappingKind::Reserved => self.fault_reserved(memory, version, page)?,
                _ => self.fault_sourced(memory, page, access)?,
            };
            if let Attempt::Done(faulted) = attempt {
                return Ok(faulted);
            }
        }
        self.fault_alone(memory, page, access)
    }

    /// Handles a fault while holding the lock of the mappings as a reader, so that no CPU changes
    /// the mappings during the fault.
    #[cold]
    fn fault_alone(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        access: Access,
    ) -> Result<Faulted, FaultError> {
        // The loop ends: only a CPU that removes tables or pages, such as a reaper, makes the fault
        // start over, and the number of such CPUs is limited.
        loop {
            if let Attempt::Done(faulted) = self.fault_sourced(memory, page, access)? {
                return Ok(faulted);
            }
        }
    }

    /// Maps every page of `pages` for writing, as if each page was touched (Linux: `MAP_POPULATE`).
    ///
    /// # Errors
    /// [`FaultError`] for the first page that cannot be mapped; the pages before it are mapped.
    pub fn populate(&self, memory: Memory<'_, M>, pages: Range<Vpn>) -> Result<(), FaultError> {
        let mut page = pages.start;
        let mut tries = 0;
        while page < pages.end {
            let version = self.version(memory.machine)?;
            let vma = self.mapped(memory.machine, page)?;
            let is_plain = MappingKind::of(&vma) == MappingKind::Anonymous && !allows_huge(&vma);
            if !is_plain || tries == FAULT_TRIES {
                let faulted = if is_plain {
                    self.fault_alone(memory, page, Access::Write)?
                } else {
                    self.fault(memory, page, Access::Write)?
                };
                tries = 0;
                let is_huge = faulted == Faulted::Huge;
                page = if is_huge {
                    first_page(table_of(page) + 1)
                } else {
                    Vpn(page.0 + 1)
                };
                continue;
            }
            let table_end = first_page(table_of(page) + 1).0;
            let end = (page.0 + small::TOGETHER as u64).min(table_end);
            let end = Vpn(end.min(vma.end.0).min(pages.end.0));
            let filled = self.fill_some(memory, version, page..end)?;
            tries = if filled == page { tries + 1 } else { 0 };
            page = filled;
        }
        Ok(())
    }

    /// Fills the page-table entries of `pages`. If the budget does not allow for all of these
    /// pages, fills only the first one. Returns the first page that was not filled.
    fn fill_some(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        pages: Range<Vpn>,
    ) -> Result<Vpn, FaultError> {
        let first = pages.start;
        let after = Vpn(first.0 + 1);
        let (end, attempt) = match self.fill_together(memory, version, pages.clone()) {
            Err(FaultError::OverBudget(_)) if after < pages.end => {
                (after, self.fill(memory, version, first)?)
            }
            attempt => (pages.end, attempt?),
        };
        Ok(match attempt {
            Attempt::Done(_) => end,
            Attempt::Again => first,
        })
    }

    /// Returns the current version of the tree of mappings. While the pages of replaced mappings
    /// are still being unmapped, the new mappings must not be touched, so this method waits until
    /// they are unmapped.
    fn version(&self, machine: &M) -> Result<u64, FaultError> {
        let version = self.tree.version();
        // A read of a field has Acquire ordering. `replacing` is set before the tree changes, so a
        // fault that reads the new version sees `replacing` set. A fault that reads the old version
        // finds later that the tree has changed.
        if self.replacing.get() == 0 {
            return Ok(version);
        }
        let killed = || self.has(machine, Flag::Killed);
        self.mappings
            .read_killable(machine, Site::Fault, killed, |_| version)
            .ok_or(FaultError::Killed)
    }

    /// Returns the mapping of `page`, if a fault may touch it.
    fn mapped(&self, machine: &M, page: Vpn) -> Result<Vma, FaultError> {
        if self.has(machine, Flag::Exiting) {
            return Err(FaultError::Ended);
        }
        let vma = (page < END).then(|| self.vma_at(machine, page, Site::Fault));
        vma.flatten().ok_or(FaultError::NotMapped(page))
    }

    /// Maps a huge page if the mapping allows huge pages, the huge page fits into the mapping and
    /// one can be allocated. Otherwise maps a small page.
    fn fault_huge_or_small(
        &self,
        memory: Memory<'_, M>,
        vma: Vma,
        version: u64,
        page: Vpn,
    ) -> Result<Attempt, FaultError> {
        let (first, end) = (first_page(table_of(page)), first_page(table_of(page) + 1));
        let fits = allows_huge(&vma) && vma.start <= first && end <= vma.end;
        if fits && !self.has_table(page) {
            match self.fault_whole(memory, page, version, PageKind::Anon) {
                Ok(Some(attempt)) => return Ok(attempt),
                // There is a table already, or no huge page can be allocated. So a small page is
                // mapped below.
                Ok(None) | Err(FaultError::OutOfMemory(_) | FaultError::OverBudget(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.fill(memory, version, page)
    }

    fn has_table(&self, page: Vpn) -> bool {
        self.table
            .find(page)
            .is_some_and(|spot| spot.leaf.is_live())
    }

    fn fault_reserved(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        page: Vpn,
    ) -> Result<Attempt, FaultError> {
        let attempt = self.fault_whole(memory, page, version, PageKind::Reserved)?;
        Ok(attempt.unwrap_or(Attempt::Again))
    }

    /// Returns a request for a page of this address space. A victim of the OOM killer may use the
    /// reserves.
    fn request(&self, machine: &M, order: Order) -> Request {
        let request = Request::new(order).of_mobility(Mobility::Movable);
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
