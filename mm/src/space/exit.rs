//! The end of an address space (Linux: `exit_mmap`).
//!
//! In the order of Linux: page tables are emptied as a reader of the mappings, so that the reaper may
//! help; then the space is marked as not worth reaping; then the lock is taken alone, after which no
//! reaper is inside; then page tables and mappings go.
//!
//! With [`Reaping::MeetInTheMiddle`] those who empty share a frontier instead of passing each other,
//! and whoever leaves last does the rest; the last user does not wait for helpers.
//!
//! Locks: `Mmap`, then those of `zap`.

use core::ops::Range;

use super::AddressSpace;
use super::error::ExitError;
use super::frontier::{Claim, Left};
use super::gather::Gather;
use super::memory::Memory;
use super::page_table::{ENTRIES, TABLES, first_page};
use super::reap::Reaping;
use super::vma_tree::Cursor;
use super::zap::Whose;
use super::{END, Flag};
use crate::event::{Event, Phase};
use crate::machine::{Machine, RwLock};
use crate::site::{Site, Work};
use crate::units::Vpn;

/// Who ended an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exited {
    /// Its last user: it is empty.
    Finished,
    /// Helpers who are still at it, the last of whom does the rest.
    LeftToHelpers,
}

impl<M: Machine> AddressSpace<M> {
    /// Empties it for good. Nobody uses it any more: no call to map, unmap or fault is under way or
    /// follows; helpers may come at any time.
    ///
    /// # Errors
    /// [`ExitError::Ended`] if it was called before; nothing has changed.
    pub fn exit(&self, memory: Memory<'_, M>) -> Result<Exited, ExitError> {
        let machine = memory.machine;
        if !self.raise(machine, Flag::Exiting) {
            return Err(ExitError::Ended);
        }
        machine.emit(Event::Begin(Phase::Exit));
        for notified in &self.notified {
            notified.release(machine);
        }
        let left = self.mappings.read(machine, Site::Exit, |_| {
            memory.spaces.lru.drain(machine);
            match memory.spaces.reaping() {
                Reaping::MeetInTheMiddle => self.empty_upwards(memory),
                Reaping::Ascending | Reaping::DescendingByVma | Reaping::DescendingChunks => {
                    self.empty_all(memory);
                    Left::Finish
                }
            }
        });
        if left == Left::Finish {
            self.finish(memory, Site::Exit);
        }
        machine.emit(Event::End(Phase::Exit));
        Ok(match left {
            Left::Finish => Exited::Finished,
            Left::Nothing => Exited::LeftToHelpers,
        })
    }

    /// Empties every mapping, from the lowest on.
    fn empty_all(&self, memory: Memory<'_, M>) {
        let mut gather = Gather::new(memory, self.budget.as_deref());
        let mut cursor = Cursor::at(&self.tree, Vpn(0));
        while let Ok(Some(vma)) = cursor.forward() {
            self.unmap_range(&mut gather, vma.start..vma.end, Site::Exit);
        }
        gather.finish();
    }

    /// Empties table after table from the lowest on, as far as nobody else has.
    fn empty_upwards(&self, memory: Memory<'_, M>) -> Left {
        let machine = memory.machine;
        self.frontier.join_last_user(machine);
        let mut gather = Gather::new(memory, self.budget.as_deref());
        machine.emit(Event::Begin(Phase::Unmap));
        let next = |from| self.table.next(from).map(|spot| spot.index);
        while let Some(claim) = self.frontier.claim_low(machine, next) {
            if let Some(table) = claim.table {
                self.empty_table(&mut gather, table, Site::Exit);
            }
            self.conclude_claim(&mut gather, &claim);
        }
        for table in self.frontier.take_back(machine, Site::Exit) {
            self.empty_table(&mut gather, table, Site::Exit);
        }
        machine.emit(Event::End(Phase::Unmap));
        gather.finish();
        self.frontier.leave(machine)
    }

    /// What else is to be done with a claim: mappings that begin there are forgotten, if the last
    /// user has come, and pages go back at once, so that nobody is left with many when all is claimed.
    pub(super) fn conclude_claim(&self, gather: &mut Gather<'_, M>, claim: &Claim) {
        if claim.exiting {
            self.forget_mappings(gather.memory().machine, &claim.range);
        }
        if !claim.alone {
            gather.flush_many();
        }
    }

    /// Drops what the mappings have that begin in the tables of `range`. They stay in the tree, which
    /// goes as a whole.
    fn forget_mappings(&self, machine: &M, range: &Range<u64>) {
        let (start, end) = (first_page(range.start), first_page(range.end));
        let mut cursor = Cursor::at(&self.tree, start);
        let mut forgotten = 0;
        while let Ok(Some(vma)) = cursor.forward()
            && vma.start < end
        {
            forgotten += u32::from(vma.start >= start);
        }
        if forgotten > 0 {
            machine.emit(Event::Begin(Phase::ForgetMappings));
            machine.spend(Work::ForgetMapping, forgotten);
            machine.emit(Event::End(Phase::ForgetMappings));
        }
    }

    /// Empties a table, whatever is mapped there, and gives it back.
    fn empty_table(&self, gather: &mut Gather<'_, M>, table: u64, site: Site) {
        let Some(spot) = self.table.find(first_page(table)) else {
            return;
        };
        self.unmap_table(gather, spot, 0..ENTRIES, (site, Whose::Mine));
        if let Some(frame) = self.take_table(gather.memory().machine, spot, site) {
            gather.add_table_flushing(frame);
        }
    }

    /// Does what is left to be done once all tables were visited: whatever helpers had to leave, page
    /// tables, mappings.
    pub(super) fn finish(&self, memory: Memory<'_, M>, site: Site) {
        let machine = memory.machine;
        self.raise(machine, Flag::Skip);
        self.mappings.write(machine, site, |mappings| {
            let mut gather = Gather::new(memory, self.budget.as_deref());
            self.free_tables(&mut gather, site);
            gather.finish();
            // Of a frontier most was forgotten by those who claimed it.
            let unforgotten = match memory.spaces.reaping() {
                Reaping::MeetInTheMiddle => self.frontier.claimed_before_exit(),
                Reaping::Ascending | Reaping::DescendingByVma | Reaping::DescendingChunks => {
                    0..TABLES
                }
            };
            self.forget_mappings(machine, &unforgotten);
            let cleared = self
                .tree
                .clear(machine, &mut mappings.editor, Vpn(0)..END, |_| {});
            debug_assert_eq!(cleared, Ok(()), "no mapping is cut, so no memory is needed");
            mappings.clear();
        });
        self.raise(machine, Flag::Ended);
    }

    /// Gives every page table back, empty or emptied now.
    fn free_tables(&self, gather: &mut Gather<'_, M>, site: Site) {
        let machine = gather.memory().machine;
        machine.emit(Event::Begin(Phase::FreeTables));
        let mut index = 0;
        while let Some(spot) = self.table.next(index) {
            index = spot.index + 1;
            if let Some(frame) = self.take_table(machine, spot, site) {
                gather.add_table_flushing(frame);
            } else if spot.leaf.is_huge() || spot.leaf.is_live() {
                self.empty_table(gather, spot.index, site);
            }
        }
        let mut number = 0;
        while let Some((at, upper)) = self.table.next_upper(number) {
            number = at + 1;
            if upper.has_frame()
                && let Some(frame) = upper.take_frame(machine, site)
            {
                self.table.count(machine, -1);
                gather.add_table_flushing(frame);
            }
        }
        machine.emit(Event::End(Phase::FreeTables));
    }
}
