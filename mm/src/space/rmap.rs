//! Records by which reclaim finds the address space that maps a page, or the file of a page (Linux:
//! `anon_vma`, `rmap_walk`).
//!
//! Each *enlisted* address space or file (one whose pages may be reclaimed) has a number. A page's
//! *owner* combines this number with the virtual page, or with the page's index in the file. A
//! space remains enlisted until it has ended. So as long as a space maps a page that has an owner,
//! the owner leads to that space. An owner may be outdated, because its number may now belong to
//! another space. So a CPU that follows an owner also checks the entry of the page table, or the
//! index of the file.
//!
//! Each number has a lock. A CPU that reclaims holds the lock as a reader while it looks at or
//! unmaps one page. The CPU does not wait for the lock: if another CPU holds it as the writer, the
//! page stays in memory. A space that ends takes the lock as the writer, so it waits until no CPU
//! is unmapping one of its pages.
//!
//! Locks: `Rmap` as a reader, then `PageTable`, then `Counter`. A CPU that holds the lock of the
//! free numbers, `RmapFree`, takes no other lock.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::error::NoMemory;
use super::object::Object;
use super::page_table::SPACE_BITS;
use super::{AddressSpace, Flag};
use crate::machine::{Lock, Machine, RwLock};
use crate::site::{LockClass, Site};
use crate::units::Vpn;

/// The address space or file that has a certain number, or `None` if no space or file has the
/// number now. The owner of a page contains such a number.
type Place<M> = <M as Machine>::RwLock<Option<Target<M>>>;

/// An address space or a file whose pages are reclaimed.
enum Target<M: Machine> {
    Space(Arc<AddressSpace<M>>),
    File(Arc<Object<M>>),
}

/// The address spaces and files whose pages may be reclaimed, by number.
pub(crate) struct Rmap<M: Machine> {
    spaces: Box<[Place<M>]>,
    free: M::Lock<Vec<u32>>,
}

/// The reason why an address space or a file cannot be enlisted, that is, made reclaimable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnlistError {
    /// The number of address spaces and files whose pages may be reclaimed has reached the maximum
    /// that was passed to [`Spaces::aging`](super::Spaces::aging).
    TooMany,
    /// The address space or file was already made reclaimable before.
    Twice,
    /// The address space has ended, or its last user is leaving.
    Ended,
}

impl fmt::Display for EnlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => {
                "too many address spaces are enlisted for reclaim: \
                 pass a larger number to `Spaces::aging`"
            }
            Self::Twice => {
                "the address space or file is enlisted for reclaim already: \
                 call `enlist` or `enlist_file` only once for each"
            }
            Self::Ended => "the address space has ended: enlist an address space before its `exit`",
        })
    }
}

impl core::error::Error for EnlistError {}

/// The owner of a page: where an anonymous page is mapped, or where a page of a file is in its
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    number: u32,
    /// The virtual page of an anonymous page, or the index of a page of a file in its file.
    pub(crate) page: Vpn,
    /// The state of a page of a file; `None` for an anonymous page.
    pub(crate) file: Option<OfFile>,
}

/// The state of a page of a file, which is stored in the page's [`Owner`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfFile {
    /// True if the page must stay in memory, because it was mapped shared and may have been written
    /// to.
    pub(crate) stays: bool,
    /// True if the page begins on the active list, because it came back into memory soon after it
    /// had left.
    pub(crate) begins_active: bool,
}

impl Owner {
    // The marks in the upper bits of a packed owner. Only the owner of a page of a file has marks.
    const FILE: u64 = 1 << 63;
    const STAYS: u64 = 1 << 62;
    const BEGINS_ACTIVE: u64 = 1 << 61;
    const MARKS: u64 = Self::FILE | Self::STAYS | Self::BEGINS_ACTIVE;

    /// Returns the owner of an anonymous page, packed into an integer that is never 0.
    pub(super) const fn pack(number: u32, page: Vpn) -> u64 {
        (number as u64 + 1) << SPACE_BITS | page.0
    }

    /// Returns the owner of a page of a file, packed into an integer. If the index is too large for
    /// an owner, returns 0, which means that the page cannot be reclaimed.
    pub(super) const fn pack_file(number: u32, index: u64, file: OfFile) -> u64 {
        if index >> SPACE_BITS != 0 {
            return 0;
        }
        let mut marks = Self::FILE;
        if file.stays {
            marks |= Self::STAYS;
        }
        if file.begins_active {
            marks |= Self::BEGINS_ACTIVE;
        }
        marks | Self::pack(number, Vpn(index))
    }

    /// Packs this owner of a page of a file, and marks that the page must stay in memory. Returns
    /// `None` if this is the owner of an anonymous page.
    pub(super) fn that_stays(self) -> Option<u64> {
        let file = self.file?;
        let file = OfFile {
            stays: true,
            ..file
        };
        Some(Self::pack_file(self.number, self.page.0, file))
    }

    /// Returns the owner that `packed` stands for, or `None` if `packed` is 0. Any other value is a
    /// result of [`Owner::pack`] or [`Owner::pack_file`].
    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let number = ((packed & !Self::MARKS) >> SPACE_BITS).checked_sub(1)?;
        let has = |mark| packed & mark != 0;
        let file = OfFile {
            stays: has(Self::STAYS),
            begins_active: has(Self::BEGINS_ACTIVE),
        };
        Some(Self {
            number: u32::try_from(number).ok()?,
            page: Vpn(packed & ((1 << SPACE_BITS) - 1)),
            file: has(Self::FILE).then_some(file),
        })
    }
}

impl<M: Machine> Rmap<M> {
    /// The largest number of address spaces and files. With more, their numbers would not fit into
    /// an `Owner`, which has 64 bits.
    const MAX: u32 = (1 << (u64::BITS - SPACE_BITS - Owner::MARKS.count_ones())) - 1;

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
        if space.has(machine, Flag::Exiting) {
            return Err(EnlistError::Ended);
        }
        let target = Target::Space(Arc::clone(space));
        let number = self.number(machine, target, &space.number)?;
        // If the space ended before it was marked as enlisted, the CPU that ended the space has not
        // given the space's number back. So this CPU gives the number back.
        if space.raise_after(machine, Flag::Enlisted, Flag::Ended) {
            self.give_back(machine, number);
            return Err(EnlistError::Ended);
        }
        Ok(())
    }

    pub(super) fn enlist_file(
        &self,
        machine: &M,
        file: &Arc<Object<M>>,
    ) -> Result<(), EnlistError> {
        let target = Target::File(Arc::clone(file));
        self.number(machine, target, &file.number).map(drop)
    }

    fn number(
        &self,
        machine: &M,
        target: Target<M>,
        number_of: &M::Once<u32>,
    ) -> Result<u32, EnlistError> {
        let number = self
            .free
            .with(machine, Site::Control, Vec::pop)
            .ok_or(EnlistError::TooMany)?;
        // The address space or file is put into the table before it gets its number. So the table
        // has an entry for each number that a page's owner contains.
        let place = &self.spaces[number as usize];
        place.write(machine, Site::Control, |there| *there = Some(target));
        if crate::machine::Once::set(number_of, number).is_err() {
            self.give_back(machine, number);
            return Err(EnlistError::Twice);
        }
        Ok(number)
    }

    /// Frees the number of an address space that has ended, or of a file whose pages are no longer
    /// reclaimed. First waits until no CPU is reclaiming a page of this space or file.
    pub(super) fn give_back(&self, machine: &M, number: u32) {
        let Some(place) = self.spaces.get(number as usize) else {
            return;
        };
        let gone = place.write(machine, Site::Exit, Option::take);
        // The caller has another reference to the address space or file, so this drop does not free
        // it.
        drop(gone);
        self.free.with(machine, Site::Exit, |free| {
            debug_assert!(
                free.len() < free.capacity(),
                "no number is given back twice"
            );
            free.push(number);
        });
    }

    /// Runs `f` with the address space of `owner`. The space does not end while `f` runs. Returns
    /// `None` if no space has the number that `owner` contains. Also returns `None` while the space
    /// is being made reclaimable, or is ending.
    pub(crate) fn with<R>(
        &self,
        machine: &M,
        owner: Owner,
        f: impl FnOnce(&AddressSpace<M>) -> R,
    ) -> Option<R> {
        let place = self.spaces.get(owner.number as usize)?;
        let found = place.try_read(machine, Site::Reclaim, |target| match target {
            Some(Target::Space(space)) => Some(f(space)),
            _ => None,
        });
        found.flatten()
    }

    /// Runs `f` with the file of `owner`. Returns `None` if no file has this number, or if another
    /// CPU is enlisting or releasing the file.
    pub(crate) fn with_file<R>(
        &self,
        machine: &M,
        owner: Owner,
        f: impl FnOnce(&Object<M>) -> R,
    ) -> Option<R> {
        let place = self.spaces.get(owner.number as usize)?;
        let found = place.try_read(machine, Site::Reclaim, |target| match target {
            Some(Target::File(file)) => Some(f(file)),
            _ => None,
        });
        found.flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_its_bits() {
        let pages = [0, 1, (1 << SPACE_BITS) - 1];
        for number in [0, 1, (1 << 25) - 2] {
            for page in pages.map(Vpn) {
                let file = None;
                let owner = Owner { number, page, file };
                assert_eq!(Owner::unpack(Owner::pack(number, page)), Some(owner));
                for marks in 0..4_u32 {
                    let file = OfFile {
                        stays: marks & 1 != 0,
                        begins_active: marks & 2 != 0,
                    };
                    let packed = Owner::pack_file(number, page.0, file);
                    let file = Some(file);
                    assert_eq!(Owner::unpack(packed), Some(Owner { number, page, file }));
                }
            }
        }
        assert_eq!(Owner::unpack(0), None);
        assert_eq!(Owner::pack_file(0, 1 << SPACE_BITS, OfFile::default()), 0);
    }
}
