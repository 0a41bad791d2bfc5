//! The end of an address space (Linux: `exit_mmap`).
//!
//! The steps have the same order as in Linux:
//!
//! 1. The last user (the thread that ends the space) empties page tables as a reader of the
//!    mappings' lock, so that the reaper can help.
//! 2. The last user marks the space as no longer worth reaping.
//! 3. The last user takes the lock as the writer. From then on no reader holds the lock.
//! 4. The last user frees page tables and mappings.
//!
//! With [`Reaping::MeetInTheMiddle`], the CPUs that empty the space (the walkers) share a frontier.
//! It says which page tables are claimed, so no two walkers visit the same table. The walker that
//! leaves last does steps 2 to 4, so the last user does not wait for helpers.
//!
//! Locks: `Mmap`, then the locks that `zap` takes.

use core::ops::Range;

use super::AddressSpace;
use super::Flag;
use super::error::ExitError;
use super::frontier::{Claim, Claimer, End, Left};
use super::gather::Gather;
use super::memory::Memory;
use super::page_table::{ENTRIES, Spot, TABLES, first_page};
use super::reaping::Reaping;
use super::vma_tree::Cursor;
use super::zap::Whose;
use crate::event::{Event, Phase};
use crate::machine::{Machine, RwLock};
use crate::site::{Site, Work};
use crate::units::Vpn;

/// The largest number of page tables that a walker (a CPU that empties the space) claims at once.
/// These tables map 128 MiB.
const SHARE_MAX: u64 = 64;

/// The CPU that completes the exit of an address space: that of the exiting thread, or a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exited {
    /// The exiting thread has completed the exit: the space is empty.
    Finished,
    /// Helpers (CPUs that help to empty the space) are still at work, and the last of them will
    /// finish.
    LeftToHelpers,
}

impl<M: Machine> AddressSpace<M> {
    /// Empties the address space for good. No process may use it any more: no call to map, unmap or
    /// fault may be under way or follow. Other CPUs may help to empty the space at any time.
    ///
    /// # Errors
    /// [`ExitError::Ended`] if this method was called before. In that case, nothing has changed.
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
            memory.spaces.lru.drain(machine, memory.manager.pages());
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

    /// Empties every mapping, in ascending order.
    fn empty_all(&self, memory: Memory<'_, M>) {
        let mut gather = Gather::of_dying(memory, self);
        let mut cursor = Cursor::at(&self.tree, Vpn(0));
        while let Ok(Some(vma)) = cursor.forward() {
            self.unmap_range(&mut gather, vma.start..vma.end, Site::Exit);
        }
        gather.finish();
    }

    /// Empties one page table after another in ascending order, until this CPU and its helpers have
    /// claimed all tables.
    fn empty_upwards(&self, memory: Memory<'_, M>) -> Left {
        let machine = memory.machine;
        let mut walker = self.frontier.join_last_user(machine);
        let mut gather = Gather::of_dying(memory, self);
        machine.emit(Event::Begin(Phase::Unmap));
        while let Some(claim) = self.claim(machine, &mut walker) {
            self.empty_tables(&mut gather, &claim.tables, Site::Exit);
            self.conclude_claim(&mut gather, &claim, walker.share());
        }
        for tables in self.frontier.take_back(machine, Site::Exit) {
            self.empty_tables(&mut gather, &tables, Site::Exit);
        }
        machine.emit(Event::End(Phase::Unmap));
        gather.finish();
        self.frontier.leave(machine)
    }

    /// Claims page tables for `walker` (one of the CPUs that empty the space), which empties them
    /// next.
    pub(super) fn claim(&self, machine: &M, walker: &mut Claimer) -> Option<Claim> {
        let end = walker.end();
        let beyond = |table| match end {
            End::Low => self.table.next(table).map(|spot| spot.index),
            End::High => self.table.prev(table).map(|spot| spot.index),
        };
        let share = |at_work| share(self.table.pages(machine), at_work);
        self.frontier.claim(machine, walker, share, beyond)
    }

    /// Completes the work on the page tables of `claim`. If the exiting thread has begun to empty
    /// the space, reports to the `Machine` (which may be simulated) the work of dropping the
    /// mappings that begin in these tables. If other CPUs also empty the space, frees the gathered
    /// pages once there are as many records as `share` tables have entries. `share` is smaller when
    /// fewer tables are left. So no CPU still holds many pages when all tables are claimed.
    pub(super) fn conclude_claim(&self, gather: &mut Gather<'_, M>, claim: &Claim, share: u64) {
        let machine = gather.memory().machine;
        if claim.exiting {
            self.forget_mappings(machine, &claim.tables);
        }
        if claim.at_work > 1 {
            gather.flush_above(share * u64::from(ENTRIES));
        }
    }

    /// Reports to the `Machine` (which may be simulated) the work of dropping the mappings that
    /// begin in the page tables of `range` (Linux: `remove_vma`). The mappings and their sources
    /// themselves are dropped later, all at once.
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

    /// Empties the existing page tables among `tables`, whatever kinds of pages they map, and frees
    /// these tables.
    fn empty_tables(&self, gather: &mut Gather<'_, M>, tables: &Range<u64>, site: Site) {
        let mut from = tables.start;
        while let Some(spot) = self.table.next(from).filter(|spot| spot.index < tables.end) {
            self.empty_table(gather, spot, site);
            from = spot.index + 1;
        }
    }

    /// Empties a page table, whatever kinds of pages it maps, and frees it.
    fn empty_table(&self, gather: &mut Gather<'_, M>, spot: Spot<'_, M>, site: Site) {
        self.unmap_table(gather, spot, 0..ENTRIES, site, Whose::Mine);
        if let Some(frame) = self.take_table(gather.memory().machine, spot, site) {
            gather.add_table_flushing(frame);
        }
    }

    /// Finishes after all page tables were visited: empties the tables that still have entries, and
    /// frees page tables and mappings.
    pub(super) fn finish(&self, memory: Memory<'_, M>, site: Site) {
        let machine = memory.machine;
        self.raise(machine, Flag::Skip);
        self.mappings.write(machine, site, |mappings| {
            let mut gather = Gather::of_dying(memory, self);
            self.free_tables(&mut gather, site);
            gather.finish();
            // With `MeetInTheMiddle`, each CPU that emptied page tables has already reported the
            // work of dropping the mappings in these tables. So this CPU reports only the few
            // mappings that are left.
            match memory.spaces.reaping() {
                Reaping::MeetInTheMiddle => self
                    .frontier
                    .unforgotten(machine)
                    .for_each(|tables| self.forget_mappings(machine, &tables)),
                Reaping::Ascending | Reaping::DescendingByVma | Reaping::DescendingChunks => {
                    self.forget_mappings(machine, &(0..TABLES));
                }
            }
            self.tree.clear_all(machine, &mut mappings.editor);
            mappings.clear();
        });
        if self.raise_after(machine, Flag::Ended, Flag::Enlisted) {
            self.retire(memory);
        }
    }

    /// Frees every page table, after emptying those that are not empty yet.
    fn free_tables(&self, gather: &mut Gather<'_, M>, site: Site) {
        let machine = gather.memory().machine;
        machine.emit(Event::Begin(Phase::FreeTables));
        let mut index = 0;
        while let Some(spot) = self.table.next(index) {
            index = spot.index + 1;
            if let Some(frame) = self.take_table(machine, spot, site) {
                gather.add_table_flushing(frame);
            } else if spot.leaf.is_huge() || spot.leaf.is_live() {
                self.empty_table(gather, spot, site);
            }
        }
        let mut number = 0;
        while let Some((at, upper)) = self.table.next_upper(number) {
            number = at + 1;
            if upper.has_frame()
                && let Some(frame) = upper.take_frame(machine, site)
            {
                gather.add_table_flushing(frame);
            }
        }
        machine.emit(Event::End(Phase::FreeTables));
    }
}

/// Returns how many page tables a CPU claims next, if `left` tables are left and `at_work` CPUs
/// empty the address space. The result is a quarter of each CPU's equal share, because some tables
/// take longer to empty than others and more CPUs may help. A CPU that is alone claims as if two
/// CPUs were at work.
fn share(left: u64, at_work: u64) -> u64 {
    (left / (4 * at_work.max(2))).clamp(1, SHARE_MAX)
}
