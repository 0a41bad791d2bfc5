//! A swap area: the slots for pages that are not in memory (Linux: `swap_info_struct`).
//!
//! The area records only which slots are taken. The embedder stores their contents. Each slot takes
//! four bytes of memory, which are first written when the slot is first taken. Slots that were
//! freed are linked into a list through these bytes.
//!
//! Invariant: a slot is taken, or on the list of free slots, or was never taken.
//!
//! Lock: `Swap`, which guards the list. A CPU that holds it takes no other lock and allocates no
//! memory. Linux has one lock for each cluster of 512 slots, and CPUs seldom contend for one of
//! those locks. To imitate this, a CPU reports the work of freeing a slot only after it has
//! released the lock.

use alloc::vec::Vec;
use core::fmt;

use super::vma_tree::NoMemory;
use crate::machine::{Field, Lock, Machine};
use crate::site::{LockClass, Site, Work};
use crate::units::count_of;

/// The number of a slot, which holds one page (Linux: the offset of a `swp_entry_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwapSlot(pub u32);

/// The slots of a swap area, taken or free.
pub struct SwapArea<M: Machine> {
    slots: u32,
    table: M::Lock<Table>,
    /// A copy of the number of slots that are taken. CPUs read it without the lock.
    taken: M::Field,
}

/// The end of the list of free slots. No slot has this number, because there are at most `END`
/// slots.
const END: u32 = u32::MAX;

struct Table {
    /// For each swap slot that was ever taken: its own number while the slot is taken, otherwise
    /// the number of the next free slot.
    next: Vec<u32>,
    /// The head of the list of free slots: the slot that was freed last, or [`END`].
    first: u32,
    used: u32,
}

impl<M: Machine> SwapArea<M> {
    /// Makes `slots` free slots. If `slots` is 0, there is no swap.
    ///
    /// # Errors
    /// [`NoMemory`] if the global allocator cannot provide four bytes for each slot.
    pub fn new(machine: &M, slots: u32) -> Result<Self, NoMemory> {
        let mut next = Vec::new();
        next.try_reserve_exact(slots as usize)
            .map_err(|_| NoMemory)?;
        let table = Table {
            next,
            first: END,
            used: 0,
        };
        let home = machine.this_cpu();
        Ok(Self {
            slots,
            table: machine.lock(LockClass::Swap, home, table),
            taken: machine.field(0),
        })
    }

    /// Takes a free slot, if there is one (Linux: `folio_alloc_swap`).
    pub fn take(&self, machine: &M) -> Option<SwapSlot> {
        self.table.with(machine, Site::SwapAlloc, |table| {
            let slot = table.take(self.slots).map(SwapSlot);
            self.taken.set(u64::from(table.used));
            slot
        })
    }

    /// Takes a free slot for each element of `slots`, or as many as are free, while holding the
    /// lock once. Returns the number of slots that were taken (Linux: `get_swap_pages`, which fills
    /// a CPU's cache of 64 slots).
    pub fn take_many(&self, machine: &M, slots: &mut [SwapSlot]) -> usize {
        self.table.with(machine, Site::SwapAlloc, |table| {
            let mut taken = 0;
            for slot in slots {
                let Some(free) = table.take(self.slots) else {
                    break;
                };
                *slot = SwapSlot(free);
                taken += 1;
            }
            self.taken.set(u64::from(table.used));
            taken
        })
    }

    /// Frees `slots`, while holding the lock once (Linux: `free_swap_and_cache_nr`).
    ///
    /// # Errors
    /// [`BadSlot`] for the first slot that is not taken. The slots before that slot are freed. That
    /// slot and the slots after it are not.
    pub fn give_back(&self, machine: &M, slots: &[SwapSlot]) -> Result<(), BadSlot> {
        if slots.is_empty() {
            return Ok(());
        }
        let given = self.table.with(machine, Site::SwapFree, |table| {
            let refused = slots.iter().position(|&SwapSlot(slot)| !table.give(slot));
            self.taken.set(u64::from(table.used));
            refused.unwrap_or(slots.len())
        });
        machine.spend(Work::SwapFree, count_of(given));
        slots
            .get(given)
            .map_or(Ok(()), |&slot| Err(BadSlot { slot }))
    }

    /// Returns the number of swap slots that are taken.
    pub fn used(&self, machine: &M) -> u32 {
        self.table.with(machine, Site::Control, |table| table.used)
    }

    /// Returns the number of free slots. The number may be outdated.
    #[must_use]
    pub fn free(&self) -> u64 {
        u64::from(self.slots).saturating_sub(self.taken.get())
    }

    /// Returns the number of all swap slots in the area, taken or free.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }
}

impl<M: Machine> fmt::Debug for SwapArea<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwapArea")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

impl Table {
    fn take(&mut self, slots: u32) -> Option<u32> {
        let slot = match self.next.get(self.first as usize) {
            Some(&next) => core::mem::replace(&mut self.first, next),
            None => self.fresh(slots)?,
        };
        self.next[slot as usize] = slot;
        self.used += 1;
        Some(slot)
    }

    /// Returns a slot that was never taken. The memory for it was reserved by [`SwapArea::new`].
    fn fresh(&mut self, slots: u32) -> Option<u32> {
        let slot = u32::try_from(self.next.len()).ok()?;
        if slot == slots {
            return None;
        }
        debug_assert!(
            self.next.len() < self.next.capacity(),
            "memory was reserved for every slot"
        );
        self.next.push(slot);
        Some(slot)
    }

    /// Frees the swap slot `slot` if the slot is taken. Returns whether it was taken.
    fn give(&mut self, slot: u32) -> bool {
        match self.next.get_mut(slot as usize) {
            Some(next) if *next == slot => {
                *next = self.first;
                self.first = slot;
                self.used -= 1;
                true
            }
            _ => false,
        }
    }
}

/// The error for a slot that cannot be freed because it is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSlot {
    /// The slot that the caller tried to free.
    pub slot: SwapSlot,
}

impl fmt::Display for BadSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swap slot {} is not taken", self.slot.0)
    }
}

impl core::error::Error for BadSlot {}
