//! Mapping a page where it was touched (Linux: `handle_mm_fault`).
//!
//! Private memory is faulted in without the lock of the mappings: the mapping is looked up, a page is
//! taken, and under the lock of the page table the tree is looked at again. Its version tells
//! whether it has changed; if so, all starts over, a few times ([`FAULT_TRIES`]). Then the fault takes the
//! lock of the mappings as a reader, which keeps all from changing them. So whoever unmaps, or raises
//! [`Flag::Unstable`], and then empties the table under the same lock, leaves nothing behind.
//! A table that was not there is counted before that look, and they count too before they look for
//! tables (`PageTable::catch_up`): so none is missed.
//! What comes from elsewhere (files, shared memory, devices) is faulted in as a reader of the mappings.
//!
//! Locks: `PageTable`, or `UpperTable` and then `PageTable`, with no other lock inside; pages are
//! taken before. For what comes from elsewhere, and after a few tries, also `Mmap` around it as a reader;
//! for what comes from elsewhere `Object` before.

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

/// How often a fault looks a mapping up without its lock before it takes it as a reader, and so keeps
/// all from changing mappings until it is done.
pub const FAULT_TRIES: u32 = 3;

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

/// What became of one attempt.
enum Attempt {
    Done(Faulted),
    /// The mappings have changed meanwhile.
    Again,
}

impl<M: Machine> AddressSpace<M> {
    /// Maps `page`, if it is not there for `access` already. Taken by a victim of the OOM killer it
    /// may go below watermarks.
    ///
    /// # Errors
    /// [`FaultError`]; nothing has changed, but that a file or what is shared may have the page now.
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
                MappingKind::Anonymous => self.fault_huge_or_small(memory, (vma, version), page)?,
                MappingKind::Reserved => self.fault_reserved(memory, version, page)?,
                _ => self.fault_sourced(memory, page, access)?,
            };
            if let Attempt::Done(faulted) = attempt {
                return Ok(faulted);
            }
        }
        self.fault_alone(memory, page, access)
    }

    /// The same as a reader of the mappings: nobody changes them meanwhile.
    #[cold]
    fn fault_alone(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        access: Access,
    ) -> Result<Faulted, FaultError> {
        // Ends: only those that take tables or pages away make it start over, as one that reaps does,
        // and there is a limited number of these.
        loop {
            if let Attempt::Done(faulted) = self.fault_sourced(memory, page, access)? {
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

    /// Fills `pages`, or only the first if the budget does not allow for all. Where it stopped.
    fn fill_some(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        pages: Range<Vpn>,
    ) -> Result<Vpn, FaultError> {
        let first = pages.start;
        let after = Vpn(first.0 + 1);
        let (end, attempt) = match self.fill(memory, version, pages.clone()) {
            Err(FaultError::OverBudget(_)) if after < pages.end => {
                (after, self.fill(memory, version, first..after)?)
            }
            attempt => (pages.end, attempt?),
        };
        Ok(match attempt {
            Attempt::Done(_) => end,
            Attempt::Again => first,
        })
    }

    /// The version of the tree to look at. Waits if a mapping in it is not yet to be touched, as the
    /// pages of those it replaces are still there.
    fn version(&self, machine: &M) -> Result<u64, FaultError> {
        let version = self.tree.version();
        // Acquire, as every field's: `replacing` is set before the tree changes, so whoever looks at
        // the new tree sees it. Who has looked at the old one finds that it has changed.
        if self.replacing.get() == 0 {
            return Ok(version);
        }
        let killed = || self.has(machine, Flag::Killed);
        self.mappings
            .read_killable(machine, Site::Fault, killed, |_| version)
            .ok_or(FaultError::Killed)
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
        self.fill(memory, version, page..Vpn(page.0 + 1))
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
        let attempt = self.fault_whole(memory, (page, version), PageKind::Reserved)?;
        Ok(attempt.unwrap_or(Attempt::Again))
    }

    /// A request for whoever uses this address space: a victim may dip into reserves.
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
