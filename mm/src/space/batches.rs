//! The memory in which gathers (collections of unmapped pages) keep their records. It is set aside
//! when the [`Spaces`](super::Spaces) are made.
//!
//! A gather that frees memory must not ask the global allocator: the allocator may get its own
//! memory from the pages that are about to be freed, and may wait for them. So each batch of a
//! gather takes the memory for its records from here. If none is left, the gather gets no further
//! batch and is flushed sooner. The same happens if there is no free page for a batch (Linux:
//! `tlb_next_batch`).
//!
//! [`BATCHES_MAX`] of the batches are kept for dying processes: only a gather that empties a dying
//! address space may take them. Any other unmapping leaves at least [`BATCHES_MAX`] batches. So a
//! living process that unmaps much memory cannot delay dying processes that free their memory.
//!
//! Lock: `Batches`. A CPU that holds this lock takes no other lock and allocates nothing. A gather
//! takes the lock once for each batch that it adds, and once when it ends. A CPU may hold the lock
//! of a page table while it takes this lock.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::error::NoMemory;
use super::page_table::Page;
use crate::machine::{Lock, Machine};
use crate::site::{LockClass, Site};
use crate::units::{Order, Pfn, count_of};

/// The number of records (unmapped pages) of a batch. As in Linux, a batch is a page of 512 words,
/// of which a header takes two.
pub(super) const BATCH: usize = 510;
/// The largest number of batches of a gather, which collects unmapped pages until they are freed.
/// Linux limits a gather to 10,000 pages, so that freeing them does not take too long.
pub(crate) const BATCHES_MAX: usize = 10_000 / BATCH;

/// The records of a batch. There is room for one record more than [`BATCH`]. A CPU that unmaps a
/// huge page adds two records before it can flush: one for the page, and one for the table that was
/// kept for splitting the page.
pub(crate) type Records = [Record; BATCH + 1];

/// A record of a gather (a collection of unmapped pages), packed into 64 bits: one unmapped page,
/// or one page table.
#[derive(Clone, Copy)]
pub(crate) struct Record(u64);

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// A page, or a huge page.
    Page(Page, Order),
    /// A page that held a page table.
    Table(Pfn),
}

/// Whether a gather (a collection of unmapped pages) may take the last [`BATCHES_MAX`] batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// The gather (collection of unmapped pages) of a CPU that empties a dying address space. It is
    /// allowed to take every batch.
    Dying,
    /// Any other gather (collection of unmapped pages). It must leave [`BATCHES_MAX`] batches for
    /// dying address spaces.
    Living,
}

/// The batches of records of unmapped pages that are set aside and that no CPU uses now.
pub(crate) struct Batches<M: Machine> {
    /// The records of each unused batch. The vector has capacity for all batches, so returning a
    /// batch to it allocates nothing.
    #[expect(clippy::vec_box, reason = "a batch moves between gathers as a pointer")]
    spare: M::Lock<Vec<Box<Records>>>,
}

impl<M: Machine> Batches<M> {
    /// Sets aside memory for `batches` batches of records of unmapped pages. A batch takes 4 KiB.
    ///
    /// # Errors
    /// [`NoMemory`] if the global allocator cannot provide them.
    pub(crate) fn new(machine: &M, batches: u32) -> Result<Self, NoMemory> {
        let mut spare = Vec::new();
        spare
            .try_reserve_exact(batches as usize)
            .map_err(|_| NoMemory)?;
        for _ in 0..batches {
            spare.push(records()?);
        }
        let home = machine.this_cpu();
        Ok(Self {
            spare: machine.lock(LockClass::Batches, home, spare),
        })
    }

    /// Returns the number of batches to set aside for `cpus` CPUs: enough for one full gather (a
    /// collection of unmapped pages) on each CPU, and for one more gather, whose batches are kept
    /// for dying processes.
    pub(super) fn for_cpus(cpus: u32) -> u32 {
        count_of(BATCHES_MAX).saturating_mul(cpus.saturating_add(1))
    }

    /// Takes the memory for the records of one batch. Returns `None` if no memory is left that a
    /// gather of this `share` is allowed to take.
    pub(crate) fn take(&self, machine: &M, share: Share) -> Option<Box<Records>> {
        let left = match share {
            Share::Dying => 0,
            Share::Living => BATCHES_MAX,
        };
        self.spare.with(machine, Site::Gather, |spare| {
            (spare.len() > left).then(|| spare.pop()).flatten()
        })
    }

    /// Gives back the memory for the records of all `batches`, in one hold of the lock of `spare`.
    pub(crate) fn give_back(&self, machine: &M, batches: impl Iterator<Item = Box<Records>>) {
        self.spare.with(machine, Site::Gather, |spare| {
            for records in batches {
                debug_assert!(
                    spare.len() < spare.capacity(),
                    "no batch is given back twice"
                );
                spare.push(records);
            }
        });
    }

    /// Returns the number of batches that no gather uses.
    pub(crate) fn spare(&self, machine: &M) -> usize {
        self.spare.with(machine, Site::Control, |spare| spare.len())
    }
}

/// Asks the global allocator for the memory of one batch's records.
fn records() -> Result<Box<Records>, NoMemory> {
    let mut records = Vec::new();
    records.try_reserve_exact(BATCH + 1).map_err(|_| NoMemory)?;
    records.resize(BATCH + 1, Record::BLANK);
    // The capacity is exact, so making the boxed slice neither copies nor allocates. The length is
    // exact, so the conversion to an array succeeds.
    records.into_boxed_slice().try_into().map_err(|_| NoMemory)
}

impl Record {
    /// The value that fills an array of records before they are written.
    pub(super) const BLANK: Self = Self(0);

    const ORDER_SHIFT: u32 = 8;
    const TABLE: u64 = 1 << 16;
    const PFN_SHIFT: u32 = 32;

    #[inline]
    pub(super) fn of_page(page: Page, order: Order) -> Self {
        Self(page.encode() | u64::from(order.get()) << Self::ORDER_SHIFT)
    }

    #[inline]
    pub(super) fn of_table(pfn: Pfn) -> Self {
        Self(Self::TABLE | u64::from(pfn.0) << Self::PFN_SHIFT)
    }

    #[inline]
    pub(super) fn get(self) -> Gathered {
        if self.0 & Self::TABLE != 0 {
            return Gathered::Table(Pfn((self.0 >> Self::PFN_SHIFT) as u32));
        }
        let [order, ..] = (self.0 >> Self::ORDER_SHIFT).to_le_bytes();
        // `of_page` has written a valid order to these bits, so the default is never used.
        let order = Order::new(order).unwrap_or(Order::ZERO);
        Gathered::Page(Page::decode(self.0), order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::page_table::PageKind;

    #[test]
    fn a_record_survives_its_bits() {
        for pfn in [0, 1, 1 << 16, u32::MAX].map(Pfn) {
            assert_eq!(Record::of_table(pfn).get(), Gathered::Table(pfn));
            for kind in PageKind::ALL {
                for order in Order::all() {
                    let page = Page { pfn, kind };
                    let gathered = Record::of_page(page, order).get();
                    assert_eq!(gathered, Gathered::Page(page, order));
                }
            }
        }
    }

    #[test]
    fn a_batch_takes_no_more_than_a_page() {
        assert_eq!(size_of::<Records>(), 4096 - 8);
        assert_eq!(BATCHES_MAX, 19);
    }
}
