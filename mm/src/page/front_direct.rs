//! Moves runs of blocks directly between a front (a CPU's stack of free blocks) and a zone that
//! keeps its free pages in bitmaps, past the page lists.
//!
//! If a CPU allocates many pages in a row, its lists are empty, so each page would be put on a list
//! only to be taken off again. The same is true if a CPU frees many pages in a row, and its lists
//! are full and may not grow any more. The lists are tuned as if the pages had been on them. Huge
//! blocks do not go through the lists if the CPU can use its front for them, because this front
//! takes the place of the list.
//!
//! Single pages move directly only if the design lets one hold of the zone lock move at most a run
//! of pages. So every design moves as many pages under one hold of the zone lock as it does without
//! fronts. They also move directly only if a hold may move an eighth of a run. Otherwise a few
//! pages at a time would move, which is slower.
//!
//! Locks: the pcp lock, which the CPU tries to take and never waits for, and after it the zone
//! lock.

use super::front::RUN;
use super::hold::{Moved, Part};
use super::tag;
use super::zone::{PerCpu, Zone, ZoneRequest};
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{Order, count_of};

impl<M: Machine> Zone<M> {
    /// Moves blocks from the zone to `room`, if the zone may give blocks for `ask`, and blocks may
    /// move past the lists. Returns the number of blocks, which now have the tag of blocks in
    /// fronts. The block that is to be allocated first comes first.
    pub(super) fn take_directly(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        ask: ZoneRequest,
        room: &mut [u32],
    ) -> usize {
        let order = ask.order;
        let Some(most) = self.most_directly(machine, Site::Refill, order) else {
            return 0;
        };
        let each = most.min(room.len()).max(1);
        let (mut got, mut part) = (0, Part::first(Site::Refill, machine.this_cpu()));
        for room in room.chunks_exact_mut(each) {
            let taken = if self.allows(machine, ask) {
                self.take_hold_directly(machine, slot, part, order, room)
            } else {
                0
            };
            got += taken;
            part = part.after(count_of(taken));
            if taken < room.len() {
                break;
            }
        }
        got
    }

    /// Moves blocks of `order` from the zone to `room` under one hold of the zone lock. Returns the
    /// number of blocks, which now have the tag of blocks in fronts.
    fn take_hold_directly(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        part: Part,
        order: Order,
        room: &mut [u32],
    ) -> usize {
        let mut most = room.len();
        if order == Order::ZERO {
            let input = self.tuning_input(machine);
            let wanted = slot.pcp.try_local(machine, Site::PcpAlloc, |pcp| {
                pcp.refill_run(count_of(most), &input)
            });
            let Some(wanted) = wanted else { return 0 };
            most = wanted as usize;
        }
        let moved = self.take_run(machine, order, &mut room[..most]);
        if moved.blocks > 0 {
            self.note_hold(machine, part, moved);
        }
        let got = moved.blocks as usize;
        for &page in &room[..got] {
            self.tags.set(page, tag::fronted(order));
        }
        got
    }

    /// Moves blocks of `order` that have the tag of blocks in fronts, and are in no stack, to the
    /// zone, if they may move past the lists. Single pages move only if the lists have no room for
    /// them. Returns the number of blocks that it took from the beginning of `pages`.
    pub(super) fn give_directly(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        order: Order,
        pages: &mut [u32],
    ) -> usize {
        let Some(most) = self.most_directly(machine, Site::Spill, order) else {
            return 0;
        };
        let each = most.min(pages.len()).max(1);
        let len = pages.len() - pages.len() % each;
        let passes = || self.passes(machine, slot, count_of(len), count_of(pages.len()));
        if len == 0 || order == Order::ZERO && !passes() {
            return 0;
        }
        let mut part = Part::first(Site::Spill, machine.this_cpu());
        for pages in pages.chunks_exact_mut(each) {
            part = self.give_hold_directly(machine, part, order, pages);
        }
        len
    }

    /// Returns whether `len` pages of a run of `run` freed pages should go to the zone, because the
    /// lists have no room for the run. If so, also records the frees for the tuning of the lists.
    fn passes(&self, machine: &M, slot: &PerCpu<M>, len: u32, run: u32) -> bool {
        if slot.owed.read(machine) != 0 {
            return false;
        }
        let input = self.tuning_input(machine);
        let passes = slot.pcp.try_local(machine, Site::PcpFree, |pcp| {
            pcp.passes_run(len, run, &input)
        });
        passes == Some(true)
    }

    /// Moves blocks of `order` that have the tag of blocks in fronts, and are in no stack, to the
    /// zone under one hold of its lock. Drops blocks that another CPU has retagged in the meantime.
    /// Returns the [`Part`] for the next hold.
    fn give_hold_directly(&self, machine: &M, part: Part, order: Order, pages: &mut [u32]) -> Part {
        let (fronted, listed) = (tag::fronted(order), tag::listed(order));
        let blocks = self.locked(machine, Site::Spill, |buddy| {
            // If a block was freed twice, another CPU may do the same with it. The tag is changed
            // under the zone lock, so only one of these CPUs finds the tag of blocks in fronts.
            let len = count_of(pages.len());
            if order == Order::ZERO
                && let Some(first) = first_of_neighbours(pages)
                && self.tags.replace_run(first, len, fronted, listed)
            {
                buddy.give_neighbours(first, len);
                machine.spend(Work::BuddyFree, len);
                return len;
            }
            let kept = self.keep(pages, |page| {
                let is_valid = self.tags.get(page) == fronted;
                if is_valid {
                    self.tags.set(page, listed);
                }
                is_valid
            });
            match order {
                Order::ZERO => buddy.give_pages(&pages[..kept]),
                _ => buddy.give_huge(&pages[..kept]),
            }
            machine.spend(Work::BuddyFree, count_of(kept));
            count_of(kept)
        });
        self.note_hold(machine, part, Moved::of(order, blocks));
        part.after(blocks)
    }

    /// The number of blocks of `order` that move past the lists under one hold of the zone lock at
    /// `site`, or `None` if no blocks may do so.
    fn most_directly(&self, machine: &M, site: Site, order: Order) -> Option<usize> {
        let most = self.gauge(machine, site).blocks_left() as usize;
        let may_move = order == Order::HUGE || (RUN / 8..=RUN).contains(&most);
        (self.has_bitmaps && may_move).then_some(most)
    }

    /// Takes up to `pages.len()` single pages or huge blocks from the bitmaps of the zone under one
    /// hold of its lock. The design's limit for one hold must allow so many.
    pub(super) fn take_run(&self, machine: &M, order: Order, pages: &mut [u32]) -> Moved {
        let blocks = self.locked(machine, Site::Refill, |buddy| {
            let got = match order {
                Order::ZERO => buddy.take_pages(pages),
                _ => buddy.take_huge(pages),
            };
            machine.spend(Work::BuddyAlloc, count_of(got));
            count_of(got)
        });
        Moved::of(order, blocks)
    }
}

/// Returns the first page of `pages` if they are neighbours: each is the page before the one that
/// precedes it, or each is the page after that one.
#[inline]
fn first_of_neighbours(pages: &[u32]) -> Option<u32> {
    let (&from, &to) = (pages.first()?, pages.last()?);
    let len = count_of(pages.len());
    if from.abs_diff(to) != len - 1 {
        return None;
    }
    // Looks at all pages without a branch for each, because nearly always all of them match.
    let differ = if from > to {
        (0..len)
            .zip(pages)
            .fold(0, |all, (nth, page)| all | (page ^ from.wrapping_sub(nth)))
    } else {
        (0..len)
            .zip(pages)
            .fold(0, |all, (nth, page)| all | (page ^ from.wrapping_add(nth)))
    };
    (differ == 0).then_some(from.min(to))
}

#[cfg(test)]
mod tests {
    use super::first_of_neighbours;

    #[test]
    fn neighbours_are_in_ascending_or_in_descending_order() {
        for (pages, first) in [
            (&[][..], None),
            (&[7], Some(7)),
            (&[7, 8, 9], Some(7)),
            (&[9, 8, 7], Some(7)),
            (&[7, 9, 8], None),
            (&[7, 9, 9, 10], None),
            (&[9, 7, 8, 6], None),
            (&[7, 8, 10], None),
            (&[0, u32::MAX], None),
            (&[1, 0], Some(0)),
        ] {
            assert_eq!(first_of_neighbours(pages), first, "{pages:?}");
        }
    }
}
