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
        let mut spare = Some(self.table_page(memory)?);
        let mut upper = None;
        if !spot.upper.has_frame() {
            upper = self
                .table_page(memory)
                .inspect_err(|_| {
                    spare
                        .take()
                        .inspect(|&spare| memory.give_back_tables(&[spare]));
                })?
                .into();
        }
        let outcome = spot.upper.frame.with(machine, Site::Fault, |frame| {
            if let Some(page) = upper.take() {
                upper = spot.upper.provide(frame, page);
                self.table.count(machine, i64::from(upper.is_none()));
            }
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
        for frame in spare.into_iter().chain(upper) {
            memory.give_back_tables(&[frame]);
        }
        outcome.map_err(|NoMemory| FaultError::NoMemory)
    }

    pub(super) fn table_page(&self, memory: Memory<'_, M>) -> Result<Pfn, FaultError> {
        let request = self.request(memory.machine, Order::ZERO);
        memory.table_page(request).map_err(FaultError::OutOfMemory)
    }
}
