//! Making a page table live.
//!
//! Locks: `UpperTable`, then `PageTable`; pages are taken before and given back after.

use crate::machine::{Lock, Machine};
use crate::site::Site;
use crate::space::AddressSpace;
use crate::space::error::{FaultError, NoMemory};
use crate::space::memory::Memory;
use crate::space::page_table::{Spot, TABLES, What};
use crate::units::{Order, Pfn};

impl<M: Machine> AddressSpace<M> {
    /// Makes a table live. `false` if a huge page is there.
    pub(super) fn add_table(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
    ) -> Result<bool, FaultError> {
        debug_assert!(
            spot.index < TABLES,
            "pages of an address space are below its end"
        );
        let machine = memory.machine;
        self.add_upper(memory, spot)?;
        let mut spare = Some(self.table_page(memory)?);
        let outcome = spot.upper.frame.with(machine, Site::Fault, |_| {
            spot.leaf.entries.with(machine, Site::Fault, |entries| {
                if let What::Huge(_) = entries.what() {
                    return Ok(false);
                }
                if let Some(frame) = spare
                    && entries.what() == What::Nothing
                {
                    entries.provide(frame)?;
                    spare = None;
                    spot.leaf.go_live(entries);
                    self.table.count(machine, 1);
                }
                Ok(true)
            })
        });
        if let Some(spare) = spare {
            memory.give_back_tables(&[spare]);
        }
        outcome.map_err(|NoMemory| FaultError::NoMemory)
    }

    /// Gives the upper table a page to be in, if it has none.
    pub(super) fn add_upper(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
    ) -> Result<(), FaultError> {
        if spot.upper.has_frame() {
            return Ok(());
        }
        let machine = memory.machine;
        let page = self.table_page(memory)?;
        let left = spot.upper.frame.with(machine, Site::Fault, |frame| {
            let left = spot.upper.provide(frame, page);
            self.table.count(machine, i64::from(left.is_none()));
            left
        });
        if let Some(left) = left {
            memory.give_back_tables(&[left]);
        }
        Ok(())
    }

    pub(super) fn table_page(&self, memory: Memory<'_, M>) -> Result<Pfn, FaultError> {
        let request = self.request(memory.machine, Order::ZERO);
        memory.table_page(request).map_err(FaultError::OutOfMemory)
    }
}
