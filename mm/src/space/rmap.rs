//! The way from a page to the address space that maps it (Linux: `anon_vma`, `rmap_walk`).
//!
//! Each enlisted address space has a number. A page's *owner* combines this number with the virtual
//! page. A space remains enlisted until it has ended. So as long as a space maps a page, the page's
//! owner, if it has one, leads to that space. An owner may be outdated: its number may belong to
//! another space by now. So a CPU that follows an owner checks the entry of the page table.
//!
//! A CPU that reclaims holds the lock of a number as a reader while it looks at or unmaps one page.
//! It only tries to take the lock: if the lock is busy, the page stays. A space that ends takes the
//! lock as the writer, so it waits until no CPU is unmapping one of its pages.
//!
//! Locks: `Rmap` as a reader; inside it `PageTable`, and inside that `Counter`. The lock of free
//! numbers has nothing inside.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::AddressSpace;
use super::error::NoMemory;
use super::page_table::SPACE_BITS;
use crate::machine::{Lock, Machine, RwLock};
use crate::site::{LockClass, Site};
use crate::units::Vpn;

/// The address space that has a number, or `None` if the number is free.
type Place<M> = <M as Machine>::RwLock<Option<Arc<AddressSpace<M>>>>;

/// The numbers of the enlisted address spaces.
pub(crate) struct Rmap<M: Machine> {
    spaces: Box<[Place<M>]>,
    free: M::Lock<Vec<u32>>,
}

/// The error of enlisting an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnlistError {
    /// As many address spaces are enlisted as [`Spaces::aging`](super::Spaces::aging) allows.
    TooMany,
    /// The address space has been enlisted before.
    Twice,
}

impl fmt::Display for EnlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => {
                "too many address spaces are enlisted for reclaim: \
                 pass a larger number to `Spaces::aging`"
            }
            Self::Twice => "the address space is enlisted for reclaim already",
        })
    }
}

impl core::error::Error for EnlistError {}

/// The place where a page is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    number: u32,
    pub(crate) page: Vpn,
}

impl Owner {
    /// Returns the owner as a number other than 0.
    pub(super) const fn pack(number: u32, page: Vpn) -> u64 {
        (number as u64 + 1) << SPACE_BITS | page.0
    }

    /// Returns the owner that [`Owner::pack`] made into `packed`, or `None` for 0.
    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let number = (packed >> SPACE_BITS).checked_sub(1)?;
        Some(Self {
            number: u32::try_from(number).ok()?,
            page: Vpn(packed & ((1 << SPACE_BITS) - 1)),
        })
    }
}

impl<M: Machine> Rmap<M> {
    /// The largest number of address spaces with which an owner still fits into 64 bits.
    const MAX: u32 = 1 << (u64::BITS - SPACE_BITS - 1);

    pub(super) fn new(machine: &M, spaces_max: u32) -> Result<Self, NoMemory> {
        let max = spaces_max.min(Self::MAX);
        let (mut spaces, mut free) = (Vec::new(), Vec::new());
        spaces
            .try_reserve_exact(max as usize)
            .map_err(|_| NoMemory)?;
        free.try_reserve_exact(max as usize).map_err(|_| NoMemory)?;
        let here = machine.this_cpu();
        spaces.extend((0..max).map(|_| machine.rw_lock(LockClass::Rmap, here, None)));
        free.extend((0..max).rev());
        Ok(Self {
            spaces: spaces.into(),
            free: machine.lock(LockClass::RmapFree, here, free),
        })
    }

    pub(super) fn enlist(
        &self,
        machine: &M,
        space: &Arc<AddressSpace<M>>,
    ) -> Result<(), EnlistError> {
        let number = self
            .free
            .with(machine, Site::Control, Vec::pop)
            .ok_or(EnlistError::TooMany)?;
        // The space is in its place before it learns its number. So no page names an empty place.
        let place = &self.spaces[number as usize];
        place.write(machine, Site::Control, |there| {
            *there = Some(Arc::clone(space));
        });
        if crate::machine::Once::set(&space.number, number).is_err() {
            self.give_back(machine, number);
            return Err(EnlistError::Twice);
        }
        Ok(())
    }

    /// Frees the number of an address space that has ended. First waits until no CPU is unmapping a
    /// page of the space.
    pub(super) fn give_back(&self, machine: &M, number: u32) {
        let Some(place) = self.spaces.get(number as usize) else {
            return;
        };
        let gone = place.write(machine, Site::Exit, Option::take);
        // The caller has another reference to the space, so this does not drop the space.
        drop(gone);
        self.free.with(machine, Site::Exit, |free| {
            debug_assert!(
                free.len() < free.capacity(),
                "no number is given back twice"
            );
            free.push(number);
        });
    }

    /// Runs `f` with the address space of `owner`, which does not end meanwhile. Returns `None` if
    /// no space has this number, or if the space is being enlisted or is ending.
    pub(crate) fn with<R>(
        &self,
        machine: &M,
        owner: Owner,
        f: impl FnOnce(&AddressSpace<M>) -> R,
    ) -> Option<R> {
        let place = self.spaces.get(owner.number as usize)?;
        let found = place.try_read(machine, Site::Reclaim, |space| space.as_deref().map(f));
        found.flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_its_bits() {
        for number in [0, 1, (1 << 28) - 1] {
            for page in [0, 1, (1 << SPACE_BITS) - 1].map(Vpn) {
                let packed = Owner::pack(number, page);
                assert_eq!(Owner::unpack(packed), Some(Owner { number, page }));
            }
        }
        assert_eq!(Owner::unpack(0), None);
    }
}
