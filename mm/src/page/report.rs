//! Giving the memory of free huge blocks back to the system below the allocator, such as a
//! hypervisor, while the blocks remain free (Linux: `mm/page_reporting.c`).
//!
//! A hypervisor, or the kernel under a process, keeps memory for each page that was ever written. A
//! round of [`PageAllocator::report_free`] visits all huge blocks. If a block was free at the last
//! visit and has been free since, the round takes the block off its list and calls the embedder's
//! function, which gives the block's memory back. Then the round puts the block at the end of its
//! list. The memory is not given back again until the block has been used. An allocation that gets
//! such a block later need not know this: the first access to a page faults, and the system below
//! the allocator provides memory again.
//!
//! Locks: the zone lock, for a bounded number of visits. No lock is held while memory is given
//! back.

use super::PageAllocator;
use super::buddy::{Isolated, Visited};
use super::zone::Zone;
use crate::machine::Machine;
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn, count_of};
use crate::vmstat::counters::ZoneItem;

/// The number of huge blocks that are visited under one hold of the zone lock.
const VISITS: u32 = 32;
/// The largest number of blocks that are off their free lists at once, while their memory is given
/// back (Linux: `PAGE_REPORTING_CAPACITY` is 32).
const AT_ONCE: usize = 4;

/// The place at which the next round of [`PageAllocator::report_free`] begins. By default, this is
/// the first page of the first zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    zone: u32,
    /// The page number within the zone, a multiple of the size of a huge block.
    page: u32,
}

/// The memory that a round of [`PageAllocator::report_free`] gave back to the host or hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The number of free pages whose memory was given back to the host or hypervisor.
    pub given: Pages,
    /// The number of free pages whose memory the caller's function `report` did not give back.
    /// Later rounds try them again.
    pub refused: Pages,
}

impl<M: Machine> PageAllocator<M> {
    /// Runs a round over the huge blocks of all zones, from where `sweep` stands. Calls `report`
    /// with each block, of order 9 or 10, that was free in the round before and has not been used
    /// since. `report` gives the block's memory back, and returns whether it did.
    ///
    /// The time between two rounds is the time for which a block must stay free. A round ends early
    /// after about `most` pages, which count as at least 1024. At most 4 blocks are off their lists
    /// at a time. A block is taken off its list only if the zone then still has as many free pages
    /// as its high watermark.
    ///
    /// Only one CPU may run rounds. While blocks are off their lists, a request for a block of the
    /// largest order can fail although the zone would have one. If `report` panics, the blocks
    /// return to their lists, and later rounds call `report` again for those whose memory was not
    /// given back.
    pub fn report_free(
        &self,
        machine: &M,
        sweep: &mut Sweep,
        most: Pages,
        mut report: impl FnMut(Pfn, Order) -> bool,
    ) -> Reported {
        let most = most.max(Order::MAX.pages());
        let mut done = Reported::default();
        let mut left: u64 = self.zones.iter().map(|zone| zone.huge_pages()).sum();
        // The loop ends: each turn visits at least one huge block or goes on to the next zone.
        while left > 0 {
            let Some(zone) = self.zones.get(sweep.zone as usize) else {
                *sweep = Sweep::default();
                continue;
            };
            let end = zone.huge_pages();
            if u64::from(sweep.page) >= end {
                sweep.zone += 1;
                sweep.page = 0;
                continue;
            }
            let room = most.saturating_sub(done.given).saturating_sub(done.refused);
            let from = sweep.page;
            // The round ends at the block at which it began. A block that is visited twice would be
            // given back although it was not free in the round before.
            let end = end.min(u64::from(from) + left);
            let at = (&mut sweep.page, end);
            let has_room = zone.report_some(machine, at, room, &mut done, &mut report);
            left = left.saturating_sub(u64::from(sweep.page - from));
            if !has_room {
                break;
            }
        }
        done
    }
}

impl<M: Machine> Zone<M> {
    /// The number of pages that the zone spans, rounded down to whole huge blocks.
    fn huge_pages(&self) -> u64 {
        let Pages(huge) = Order::HUGE.pages();
        u64::from(self.spanned().0 / huge * huge)
    }

    /// Visits some huge blocks from `page` to `end`, under one hold of the zone lock. Then calls
    /// `report` for those that have been free since the previous visit. Returns false if such a
    /// block had more pages than `room`.
    fn report_some(
        &self,
        machine: &M,
        (page, end): (&mut u32, u64),
        room: Pages,
        done: &mut Reported,
        report: &mut impl FnMut(Pfn, Order) -> bool,
    ) -> bool {
        let keeps = self.watermarks(machine).high;
        let (mut taken, mut count) = ([None; AT_ONCE], 0);
        let mut room = room;
        let mut has_room = true;
        self.locked(machine, Site::Control, |buddy| {
            for _ in 0..VISITS {
                if u64::from(*page) >= end || count == AT_ONCE {
                    break;
                }
                match buddy.visit(self.frames(), *page, keeps, room) {
                    Visited::Passed { pages } => *page += pages,
                    Visited::Taken(block) => {
                        *page += block.order.pages().0;
                        room = room.saturating_sub(block.order.pages());
                        taken[count] = Some(block);
                        count += 1;
                    }
                    Visited::NoRoom => {
                        has_room = false;
                        break;
                    }
                }
            }
            machine.spend(Work::BuddyAlloc, count_of(count));
        });
        let taken = &taken[..count];
        self.count_isolated(machine, taken, -1);
        let mut away = Away {
            zone: self,
            machine,
            taken,
            given: [false; AT_ONCE],
        };
        for (block, given) in taken.iter().flatten().zip(&mut away.given) {
            *given = report(self.pfn(block.page), block.order);
            let pages = block.order.pages();
            *(if *given {
                &mut done.given
            } else {
                &mut done.refused
            }) += pages;
        }
        drop(away);
        has_room
    }

    /// Adds the pages of `blocks` to the counter of free pages. Subtracts these pages if `sign` is
    /// −1.
    fn count_isolated(&self, machine: &M, blocks: &[Option<Isolated>], sign: i64) {
        for block in blocks.iter().flatten() {
            let pages = sign * i64::from(block.order.pages().0);
            let free = ZoneItem::FreePages as usize;
            self.counters.add(machine, free, pages);
        }
    }
}

/// Free blocks that are off the free lists while their memory is given back. Dropping this value
/// puts the blocks back, even if the function that gives the memory back panics.
struct Away<'a, M: Machine> {
    zone: &'a Zone<M>,
    machine: &'a M,
    taken: &'a [Option<Isolated>],
    /// For each block, whether its memory was given back.
    given: [bool; AT_ONCE],
}

impl<M: Machine> Drop for Away<'_, M> {
    fn drop(&mut self) {
        let Self {
            zone,
            machine,
            taken,
            given,
        } = *self;
        if taken.is_empty() {
            return;
        }
        zone.locked(machine, Site::Control, |buddy| {
            machine.spend(Work::BuddyFree, count_of(taken.len()));
            for (block, given) in taken.iter().flatten().zip(given) {
                buddy.put_back(zone.frames(), *block, given);
            }
        });
        zone.count_isolated(machine, taken, 1);
    }
}
