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
//! fronts. They also move directly only if a hold may move an eighth of a run. Otherwise a few pages
//! at a time would move, which is slower. There is one exception: a run that is a block of 64 pages
//! moves as one block, even if a hold may move fewer single pages. The bits of such a block are one
//! word of a bitmap, so this code calls its pages a *word*.
//!
//! The tags of a word are one cache line. If two CPUs had pages of the same word in their fronts,
//! this cache line would move between the CPUs with nearly every allocation and free. So a CPU takes
//! a whole word if the first word with free pages is whole, and otherwise as many pages of this word
//! as it can.
//!
//! Locks: the pcp lock, which the CPU tries to take and never waits for, and inside it or after it
//! the zone lock.

use super::front_run::{RUN, are_words, first_of_neighbours, first_of_word};
use super::hold::{Moved, Part};
use super::tag;
use super::zone::{PerCpu, Zone, ZoneRequest};
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::{Site, Work};
use crate::units::{Order, Pages, count_of};

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
        while room.len() - got >= each && self.allows(machine, ask) {
            let mut room = &mut room[got..];
            if room.len() == RUN && !self.spares(machine, ask, Pages(count_of(RUN))) {
                room = &mut room[..each];
            }
            let moved = match order {
                Order::ZERO => self.take_words(machine, slot, each, room),
                _ => self.take_run(machine, order, &mut room[..each]),
            };
            if moved.blocks > 0 {
                self.note_hold(machine, part, moved);
            }
            let taken = (moved.pages >> order.get()) as usize;
            // A page that was freed twice may be free, and in a CPU's stack or allocated as well.
            got += self.keep(&mut room[..taken], |page| {
                let is_free = !tag::is_out(self.tags.get(page), order);
                if is_free {
                    self.tags.set(page, tag::fronted(order));
                }
                is_free
            });
            part = part.after(moved.blocks);
            if taken < each {
                break;
            }
        }
        got
    }

    /// Takes a word or up to `most` single pages from the bitmaps of the zone under one hold of its
    /// lock, and writes them to `room`. The lists are tuned as if the pages had been on them.
    fn take_words(&self, machine: &M, slot: &PerCpu<M>, most: usize, room: &mut [u32]) -> Moved {
        let input = self.tuning_input(machine);
        let moved = slot.pcp.try_local(machine, Site::PcpAlloc, |pcp| {
            let mut moved = Moved::default();
            pcp.refill_run(count_of(most), &input, |wanted| {
                let wanted = wanted as usize;
                let room = if wanted < most {
                    &mut room[..wanted]
                } else {
                    room
                };
                let got = self.locked(machine, Site::Refill, |buddy| {
                    buddy.take_words(room, wanted)
                });
                moved = moved_singly(got, wanted);
                machine.spend(Work::BuddyAlloc, moved.blocks);
                moved.pages
            });
            moved
        });
        moved.unwrap_or_default()
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
        let words = order == Order::ZERO && are_words(pages);
        let each = if words {
            RUN
        } else {
            most.min(pages.len()).max(1)
        };
        let len = pages.len() - pages.len() % each;
        let passes = || self.passes(machine, slot, count_of(len), count_of(pages.len()));
        if len == 0 || order == Order::ZERO && !passes() {
            return 0;
        }
        let (mut given, mut part) = (0, Part::first(Site::Spill, machine.this_cpu()));
        for pages in pages.chunks_exact_mut(each) {
            let first = match order {
                Order::ZERO if words => first_of_word(pages),
                Order::ZERO => first_of_neighbours(pages),
                _ => None,
            };
            let moved = self.give_hold_directly(machine, order, most, pages, first);
            self.emit_hold(machine, part, moved);
            part = part.after(moved.blocks);
            given += i64::from(moved.pages);
        }
        self.count_free(machine, given);
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
    /// `first` is the first of the pages if they are neighbours. Returns the amount that it has moved.
    /// The caller adds it to the counter of free pages.
    fn give_hold_directly(
        &self,
        machine: &M,
        order: Order,
        most: usize,
        pages: &mut [u32],
        first: Option<u32>,
    ) -> Moved {
        let (fronted, listed) = (tag::fronted(order), tag::listed(order));
        self.locked(machine, Site::Spill, |buddy| {
            // If a block was freed twice, another CPU may do the same with it. The tag is changed
            // under the zone lock, so only one of these CPUs finds the tag of blocks in fronts.
            let len = count_of(pages.len());
            if let Some(first) = first
                && self.tags.replace_run(first, len, fronted, listed)
            {
                let given = buddy.give_neighbours(first, len);
                self.note_dropped(len - given);
                let moved = moved_singly(given as usize, most);
                machine.spend(Work::BuddyFree, moved.blocks);
                return moved;
            }
            let kept = self.keep(pages, |page| {
                let is_valid = self.tags.get(page) == fronted;
                if is_valid {
                    self.tags.set(page, listed);
                }
                is_valid
            });
            let kept = &pages[..kept];
            let blocks = match order {
                Order::ZERO => buddy.give_pages(kept),
                _ => buddy.give_huge(kept),
            };
            self.note_dropped(count_of(kept.len()) - blocks);
            machine.spend(Work::BuddyFree, blocks);
            Moved::of(order, blocks)
        })
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

/// The amount that a hold of the zone lock has moved, if it has moved `pages` single pages and may
/// move at most `most` blocks. If these are fewer, the pages were a word, which is one block.
fn moved_singly(pages: usize, most: usize) -> Moved {
    Moved {
        pages: count_of(pages),
        blocks: if pages > most { 1 } else { count_of(pages) },
    }
}
