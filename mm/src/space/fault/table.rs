//! Making a page table live: providing the table with its memory, so that faults can fill it.
//!
//! Locks: `UpperTable`, then `PageTable`. Pages are allocated before these locks are taken, and
//! freed after the locks are released.

use crate::machine::{Lock, Machine};
use crate::page::Mobility;
use crate::site::Site;
use crate::space::AddressSpace;
use crate::space::error::{FaultError, NoMemory};
use crate::space::memory::Memory;
use crate::space::page_table::{Blank, Spot, TABLES, What};
use crate::units::{Order, Pfn};

/// The memory for a page table and for its upper table (Linux: the PMD page above it), allocated
/// before any lock is taken.
pub(super) struct Spares {
    pub(super) table: Option<Blank>,
    pub(super) upper: Option<Pfn>,
}

impl Spares {
    /// Frees the pages that were not used for a table.
    pub(super) fn give_back<M: Machine>(self, memory: Memory<'_, M>) {
        let table = self.table.map(|blank| blank.frame);
        for frame in table.into_iter().chain(self.upper) {
            memory.give_back_tables(&[frame]);
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// If there is no page table in this place, creates one in the memory of `spares`, so that
    /// faults can fill it. Returns `false` if a huge page is mapped in this place.
    pub(super) fn add_table(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
        mut spares: Spares,
    ) -> bool {
        debug_assert!(
            spot.index < TABLES,
            "pages of an address space are below its end"
        );
        let machine = memory.machine;
        let is_there = spot.upper.frame.with(machine, Site::Fault, |frame| {
            self.put_upper(machine, spot, frame, &mut spares);
            spot.leaf.entries.with(machine, Site::Fault, |entries| {
                if let What::Huge(_) = entries.what() {
                    return false;
                }
                if entries.what() == What::Nothing
                    && let Some(blank) = spares.table.take()
                {
                    entries.provide(blank);
                    spot.leaf.go_live(entries);
                    self.table.count(machine, 1);
                }
                true
            })
        });
        spares.give_back(memory);
        is_there
    }

    /// Allocates a page for a page table and, if the upper table (Linux: PMD page) has no page yet,
    /// one for the upper table.
    pub(super) fn spares(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
    ) -> Result<Spares, FaultError> {
        let frame = self.table_page(memory)?;
        let blank = match Blank::new(frame) {
            Ok(blank) => blank,
            Err(NoMemory) => {
                memory.give_back_tables(&[frame]);
                return Err(FaultError::NoMemory);
            }
        };
        let mut spares = Spares {
            table: Some(blank),
            upper: None,
        };
        if !spot.upper.has_frame() {
            match self.table_page(memory) {
                Ok(page) => spares.upper = Some(page),
                Err(error) => {
                    spares.give_back(memory);
                    return Err(error);
                }
            }
        }
        Ok(spares)
    }

    /// Gives the upper table (Linux: PMD page) the page that `spares` has for it. Does nothing if
    /// `spares` has no such page, or if the upper table has a page already.
    pub(super) fn put_upper(
        &self,
        machine: &M,
        spot: Spot<'_, M>,
        frame: &mut Option<Pfn>,
        spares: &mut Spares,
    ) {
        if let Some(page) = spares.upper.take() {
            spares.upper = spot.upper.provide(frame, page);
            self.table.count(machine, i64::from(spares.upper.is_none()));
        }
    }

    pub(super) fn table_page(&self, memory: Memory<'_, M>) -> Result<Pfn, FaultError> {
        let request = self
            .request(memory.machine, Order::ZERO)
            .of_mobility(Mobility::Unmovable);
        memory.table_page(request).map_err(FaultError::OutOfMemory)
    }
}
