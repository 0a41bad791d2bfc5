//! Takes pages out of memory: decides whether a page was used, moves anonymous pages to swap, and
//! drops pages of files (Linux: `shrink_folio_list`).
//!
//! Locks: for one page at a time, `Rmap` as a reader, and `PageTable` or `Object` inside it. `Rmap`
//! is only tried: if it is not free, the page stays in memory. `Swap` is taken alone. No lock is
//! held when pages are freed.

use super::shrink::{Shrinker, stays};
use crate::machine::Machine;
use crate::site::Work;
use crate::space::Memory;
use crate::space::evict::Eviction;
use crate::space::lru::{Fate, ISOLATED_MAX, Kind, List, Shadow, Taken};
use crate::space::rmap::Owner;
use crate::space::swap::SwapSlot;
use crate::units::{Pfn, count_of};

/// The number of pages that are freed together (Linux: a folio batch).
const FREED_TOGETHER: usize = 31;

/// How a page was used since reclaim last looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Untouched,
    Touched,
    /// The page was used so often that it becomes active at once.
    Often,
    /// Reclaim could not find out whether the page was used: the page is being unmapped, or its
    /// address space is busy.
    Busy,
}

impl<M: Machine> Shrinker<'_, M> {
    /// Decides whether an inactive page stays (Linux: `folio_check_references`). A page that was
    /// touched since the last look stays inactive once more. If it is touched again before the next
    /// look, that look makes it active.
    pub(super) fn check(&self, taken: Taken) -> Fate {
        let machine = self.memory.machine;
        machine.spend(Work::Reference, 1);
        let kind = taken.from.kind();
        let seen = match kind {
            Kind::Anon => self.was_touched(self.owner(taken), taken.pfn, kind),
            Kind::File => self.was_used(taken),
        };
        match seen {
            Seen::Touched if taken.past.referenced => stays(kind.active(), true),
            Seen::Touched => stays(kind.inactive(), true),
            Seen::Often => stays(kind.active(), true),
            Seen::Untouched => Fate::Leaves,
            // The page is being unmapped, or its address space is busy.
            Seen::Busy => stays(kind.inactive(), taken.past.referenced),
        }
    }

    fn was_touched(&self, owner: Option<Owner>, pfn: Pfn, kind: Kind) -> Seen {
        let machine = self.memory.machine;
        let touched = owner.and_then(|owner| {
            self.rmap.with(machine, owner, |space| {
                space.was_touched(machine, owner.page, pfn, kind)
            })
        });
        match touched.flatten() {
            Some(true) => Seen::Touched,
            Some(false) => Seen::Untouched,
            None => Seen::Busy,
        }
    }

    /// Returns how a page of a file was used since reclaim last looked at it. A page that was read
    /// twice, or that several entries map, was used often ([`Seen::Often`]). A page that was read
    /// once does not count as used, so a file that is read once from end to end displaces no other
    /// pages.
    fn was_used(&self, taken: Taken) -> Seen {
        let machine = self.memory.machine;
        let pages = self.memory.manager.pages();
        let (Some(owner), Some(share)) = (self.owner(taken), self.aged.share(pages, taken.pfn))
        else {
            return Seen::Busy;
        };
        let stays = owner.file.is_none_or(|file| file.stays);
        if stays || share.take_reads(machine) >= 2 {
            return Seen::Often;
        }
        match share.uses(machine) {
            0 => Seen::Untouched,
            1 => self.was_touched(Owner::unpack(share.mapper()), taken.pfn, Kind::File),
            _ => Seen::Often,
        }
    }

    /// Evicts the pages in `fates` whose fate is to leave. A page that cannot be evicted stays.
    /// Returns the evicted pages and their number.
    pub(super) fn evict(&self, fates: &mut [(Taken, Fate)]) -> ([Pfn; ISOLATED_MAX], usize) {
        let Memory {
            machine, spaces, ..
        } = self.memory;
        let (mut freed, mut len) = ([Pfn(0); ISOLATED_MAX], 0);
        let leave = fates.iter().filter(|(_, fate)| *fate == Fate::Leaves);
        let wanted = leave.count();
        if wanted == 0 {
            return (freed, len);
        }
        let mut slots = [SwapSlot(0); ISOLATED_MAX];
        let got = spaces.swap().take_many(machine, &mut slots[..wanted]);
        for (taken, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Leaves) {
            // No free slot of swap is left for this page. The page becomes active, because it
            // cannot leave memory until a slot is free.
            let Some(&slot) = slots[..got].get(len) else {
                *fate = stays(List::Active, false);
                continue;
            };
            match self.evict_one(*taken, slot) {
                Eviction::Moved => {
                    freed[len] = taken.pfn;
                    len += 1;
                }
                Eviction::Kept => *fate = stays(List::Inactive, false),
                // The embedder's store for swap is full. The page becomes active: if it stayed
                // inactive, each pass would invalidate its translations in vain.
                Eviction::NotStored => *fate = stays(List::Active, false),
            }
        }
        let spare = spaces.swap().give_back(machine, &slots[len..got]);
        spare.expect("the slots were just taken");
        if len > 0 {
            machine.spend(Work::TlbFlush, 1);
            machine.spend(Work::SwapOut, count_of(len));
        }
        (freed, len)
    }

    fn evict_one(&self, taken: Taken, slot: SwapSlot) -> Eviction {
        let machine = self.memory.machine;
        let evicted = self.owner(taken).and_then(|owner| {
            self.rmap.with(machine, owner, |space| {
                space.evict(self.memory, owner.page, taken.pfn, slot)
            })
        });
        evicted.unwrap_or(Eviction::Kept)
    }

    fn owner(&self, taken: Taken) -> Option<Owner> {
        Owner::unpack(self.aged.owner(self.node, taken.pfn))
    }

    /// Drops those pages in `fates` that are pages of files and whose fate is to leave. A page that
    /// is in use stays. Returns the dropped pages and their number. `age` is the age of the LRU
    /// lists at the time when the pages were isolated.
    pub(super) fn drop_files(
        &self,
        fates: &mut [(Taken, Fate)],
        age: u64,
    ) -> ([Pfn; ISOLATED_MAX], usize) {
        let machine = self.memory.machine;
        let (mut freed, mut len) = ([Pfn(0); ISOLATED_MAX], 0);
        self.unmap_files(fates);
        for (taken, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Leaves) {
            let shadow = Shadow {
                node: self.aged.number_of(self.node),
                age: age + len as u64,
                was_active: taken.past.was_active,
            };
            let dropped = self.owner(*taken).and_then(|owner| {
                self.rmap.with_file(machine, owner, |file| {
                    let memory = self.memory;
                    memory.drop_cached(file, owner.page, taken.pfn, shadow)
                })
            });
            if dropped == Some(true) {
                freed[len] = taken.pfn;
                len += 1;
            } else {
                // As in Linux, a page that is still mapped becomes active. A page that a CPU is
                // reading becomes active too, because the number of uses does not say which of them
                // are mappings.
                let share = self.aged.share(self.memory.manager.pages(), taken.pfn);
                let is_used = share.is_some_and(|share| share.uses(machine) > 0);
                *fate = stays(
                    if is_used {
                        List::ActiveFile
                    } else {
                        List::InactiveFile
                    },
                    false,
                );
            }
        }
        (freed, len)
    }

    /// Unmaps those pages of files in `fates` that are to leave memory, and flushes translations
    /// once for all of them. Then subtracts the removed page-table entries from the use counts of
    /// these pages.
    fn unmap_files(&self, fates: &[(Taken, Fate)]) {
        let machine = self.memory.machine;
        let pages = self.memory.manager.pages();
        let (mut unmapped, mut len) = ([Pfn(0); ISOLATED_MAX], 0);
        for (taken, _) in fates.iter().filter(|(_, fate)| *fate == Fate::Leaves) {
            let share = self.aged.share(pages, taken.pfn);
            let mapped = share.filter(|share| share.uses(machine) > 0);
            let mapper = mapped.and_then(|share| Owner::unpack(share.mapper()));
            let gone = mapper.and_then(|mapper| {
                self.rmap.with(machine, mapper, |space| {
                    space.unmap_cached(machine, mapper.page, taken.pfn)
                })
            });
            if gone == Some(true) {
                unmapped[len] = taken.pfn;
                len += 1;
            }
        }
        if len > 0 {
            machine.spend(Work::TlbFlush, 1);
        }
        let shares = unmapped[..len].iter();
        let shares = shares.filter_map(|&pfn| self.aged.share(pages, pfn));
        shares.for_each(|share| share.unpin(machine));
    }

    /// Frees pages that were evicted and have left the lists.
    pub(super) fn free(&self, kind: Kind, freed: &[Pfn]) {
        for pfns in freed.chunks(FREED_TOGETHER) {
            match kind {
                Kind::Anon => {
                    self.memory
                        .machine
                        .spend(Work::Release, count_of(pfns.len()));
                    self.memory.give_back_evicted(pfns);
                }
                Kind::File => self.memory.give_back_cached(pfns),
            }
        }
    }
}
