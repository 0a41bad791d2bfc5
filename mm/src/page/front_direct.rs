//! Moves runs of pages directly between a front (a CPU's stack of free single pages) and a zone
//! that keeps its free pages in bitmaps, past the page lists.
//!
//! A list passes each page on one by one. If a CPU allocates many pages in a row, its lists are
//! empty, so each page would be put on a list only to be taken off again. The same is true if a CPU
//! frees many pages in a row, and its lists are full and may not grow any more.
//!
//! The lists are tuned as if the pages had passed them. Pages move directly only if the design lets
//! one hold of the zone lock move at most a run of pages. So every design moves as many pages under
//! one hold of the zone lock as it does without fronts. They also move only if a hold may move an
//! eighth of a run. Otherwise a few pages at a time would move directly, which is slower.
//!
//! Locks: the pcp lock, which the CPU tries to take and never waits for, and after it the zone lock.

use super::front::RUN;
use super::hold::{Moved, Part};
use super::tag;
use super::zone::{PerCpu, Zone, ZoneRequest};
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::Site;
use crate::units::{Order, count_of};

impl<M: Machine> Zone<M> {
    /// Moves pages from the zone to `room`, if the zone may give pages for `ask`, and pages may
    /// move past the lists. Returns the number of pages, whose tags are now `FRONTED`. The page
    /// that is to be allocated first comes first.
    pub(super) fn take_directly(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        ask: ZoneRequest,
        room: &mut [u32],
    ) -> usize {
        let Some(most) = self.most_directly(machine, Site::Refill) else {
            return 0;
        };
        let (mut got, mut part) = (0, Part::first(Site::Refill, machine.this_cpu()));
        for room in room.chunks_exact_mut(most) {
            let moved = if self.allows(machine, ask) {
                self.take_hold_directly(machine, slot, part, room)
            } else {
                0
            };
            got += moved;
            part = part.after(count_of(moved));
            if moved < room.len() {
                break;
            }
        }
        got
    }

    /// Moves pages from the zone to `room` under one hold of the zone lock. Returns the number of
    /// pages, whose tags are now `FRONTED`.
    fn take_hold_directly(
        &self,
        machine: &M,
        slot: &PerCpu<M>,
        part: Part,
        room: &mut [u32],
    ) -> usize {
        let input = self.tuning_input(machine);
        let wanted = slot
            .pcp
            .try_local(machine, Site::PcpAlloc, |pcp| pcp.refill_run(&input));
        let Some(wanted) = wanted else { return 0 };
        let most = room.len().min(wanted as usize);
        let moved = self.take_run(machine, Order::ZERO, &mut room[..most]);
        if moved.blocks > 0 {
            self.note_hold(machine, part, moved);
        }
        let got = moved.pages as usize;
        for &page in &room[..got] {
            self.tags.set(page, tag::FRONTED);
        }
        got
    }

    /// Moves `pages`, which have the tag `FRONTED` and are in no stack, to the zone, if the lists
    /// have no room for them and pages may move past the lists. Returns the number of pages that it
    /// took from the beginning of `pages`.
    pub(super) fn give_directly(&self, machine: &M, slot: &PerCpu<M>, pages: &[u32]) -> usize {
        let Some(most) = self.most_directly(machine, Site::Spill) else {
            return 0;
        };
        let len = pages.len() - pages.len() % most;
        if len == 0 || slot.owed.read(machine) != 0 {
            return 0;
        }
        let input = self.tuning_input(machine);
        let passes = slot.pcp.try_local(machine, Site::PcpFree, |pcp| {
            pcp.passes_run(count_of(len), &input)
        });
        if passes != Some(true) {
            return 0;
        }
        let mut part = Part::first(Site::Spill, machine.this_cpu());
        for pages in pages.chunks_exact(most) {
            self.give_hold_directly(machine, part, pages);
            part = part.after(count_of(pages.len()));
        }
        len
    }

    /// Moves pages that have the tag `FRONTED`, and are in no stack, to the zone under one hold of
    /// its lock. Drops pages that another CPU has retagged in the meantime.
    fn give_hold_directly(&self, machine: &M, part: Part, pages: &[u32]) {
        let mut run = [0; RUN];
        let run = &mut run[..pages.len()];
        run.copy_from_slice(pages);
        let mut gauge = self.gauge(machine, Site::Spill);
        self.locked(machine, Site::Spill, |buddy| {
            // If a page was freed twice, another CPU may move it to the zone as well. The tag is
            // changed under the zone lock, so only one of these CPUs finds the tag `FRONTED`.
            let kept = self.keep(run, |page| {
                let is_valid = self.tags.get(page) == tag::FRONTED;
                if is_valid {
                    self.tags.set(page, tag::listed(Order::ZERO));
                }
                is_valid
            });
            buddy.give_pages(&run[..kept]);
            gauge.moved_run(machine, Order::ZERO, count_of(kept));
        });
        self.note_hold(machine, part, gauge.moved);
    }

    /// The number of pages that move past the lists under one hold of the zone lock at `site`, or
    /// `None` if no pages may do so.
    fn most_directly(&self, machine: &M, site: Site) -> Option<usize> {
        let most = self.gauge(machine, site).blocks_left() as usize;
        let is_some = self.has_bitmaps && (RUN / 8..=RUN).contains(&most);
        is_some.then_some(most)
    }

    /// Takes up to `pages.len()` single pages or huge blocks from the bitmaps of the zone under one
    /// hold of its lock, but not more blocks than the design's limit for one hold.
    pub(super) fn take_run(&self, machine: &M, order: Order, pages: &mut [u32]) -> Moved {
        let mut gauge = self.gauge(machine, Site::Refill);
        let most = pages.len().min(gauge.blocks_left() as usize);
        let pages = &mut pages[..most];
        self.locked(machine, Site::Refill, |buddy| {
            let got = match order {
                Order::ZERO => buddy.take_pages(pages),
                _ => buddy.take_huge(pages),
            };
            gauge.moved_run(machine, order, count_of(got));
        });
        gauge.moved
    }
}
