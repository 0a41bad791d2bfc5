//! A [`Gauge`] keeps one hold of the zone lock within the limit that the design sets.

use core::sync::atomic::Ordering::Relaxed;

use super::hold::Moved;
use super::holds::Limit;
use super::zone::Zone;
use crate::machine::{Machine, Word};
use crate::site::{Site, Work};
use crate::units::{Nanos, Order, total_in};

impl<M: Machine> Zone<M> {
    /// Creates a gauge for one hold of the zone lock by the code that `site` names. The caller
    /// starts the gauge as soon as it holds the lock.
    pub(super) fn gauge(&self, machine: &M, site: Site) -> Gauge {
        let limit = self.holds.limit(site, self.sizes(machine).batch);
        // In a zone with bitmaps of free pages, a hold that moves 63 blocks takes only about a
        // microsecond. So holds have no time limit there (0), and the clock is not read.
        let hold_time = if self.has_bitmaps {
            Nanos(0)
        } else {
            Nanos(total_in(self.settings.hold_time_max.load(machine, Relaxed)))
        };
        let work = match site {
            Site::Refill | Site::AllocDirect => Work::BuddyAlloc,
            _ => Work::BuddyFree,
        };
        Gauge {
            limit,
            counts_blocks: self.has_bitmaps,
            hold_time,
            work,
            started: Nanos(0),
            moved: Moved::default(),
            unspent: 0,
        }
    }
}

/// Keeps one hold of the zone lock within its limit, and reports the hold's work to the machine. A
/// simulated machine advances its clock by the time that the work takes.
pub(super) struct Gauge {
    limit: Limit,
    /// True if the limit of the hold counts blocks and not pages. This is so if free pages are in
    /// bitmaps, because a block of any order then moves in one operation.
    counts_blocks: bool,
    hold_time: Nanos,
    work: Work,
    started: Nanos,
    pub(super) moved: Moved,
    /// The number of moved blocks whose work has not been reported to the machine yet.
    unspent: u32,
}

/// The number of blocks moved between two readings of the clock.
const CLOCK_EVERY: u32 = 8;

impl Gauge {
    /// Records that the lock is held from now on.
    pub(super) fn start(&mut self, machine: &impl Machine) {
        if matches!(self.limit, Limit::Strict(_)) && self.hold_time > Nanos(0) {
            self.started = clock(machine);
        }
    }

    /// Returns whether this hold of the zone lock may move another block of `order`. The first
    /// block is always admitted.
    #[inline]
    pub(super) fn admits(&self, machine: &impl Machine, order: Order) -> bool {
        self.fits(order) && self.has_time(machine)
    }

    /// Records that a block of `order` was moved.
    #[inline]
    pub(super) fn moved(&mut self, machine: &impl Machine, order: Order) {
        self.moved.pages += order.pages().0;
        self.moved.blocks += 1;
        self.unspent += 1;
        if self.unspent == CLOCK_EVERY {
            self.stop(machine);
        }
    }

    /// Records that `count` blocks of `order` were moved.
    pub(super) fn moved_run(&mut self, machine: &impl Machine, order: Order, count: u32) {
        self.moved.pages += count << order.get();
        self.moved.blocks += count;
        machine.spend(self.work, count);
    }

    /// Reports to the machine the blocks that were moved since the last report.
    #[inline]
    pub(super) fn stop(&mut self, machine: &impl Machine) {
        machine.spend(self.work, self.unspent);
        self.unspent = 0;
    }

    /// The number of pages that this hold of the zone lock may still move.
    pub(super) fn room(&self, machine: &impl Machine) -> u32 {
        match self.limit {
            Limit::None => u32::MAX,
            _ if !self.has_time(machine) => 0,
            _ => self.pages_left(),
        }
    }

    /// The number of pages that this hold of the zone lock may still move, regardless of its time
    /// limit.
    pub(super) fn pages_left(&self) -> u32 {
        match self.limit {
            Limit::None => u32::MAX,
            Limit::About(max) | Limit::Strict(max) => max.0.saturating_sub(self.moved.pages),
        }
    }

    /// The number of blocks that may still move before the zone lock must be released. It counts
    /// only if free pages are in bitmaps; otherwise the limit counts pages.
    pub(super) fn blocks_left(&self) -> u32 {
        match self.limit {
            Limit::None => u32::MAX,
            Limit::About(max) | Limit::Strict(max) => max.0.saturating_sub(self.moved.blocks),
        }
    }

    /// Returns whether another block of `order` stays within the limit of this hold of the zone
    /// lock.
    pub(super) fn fits(&self, order: Order) -> bool {
        if self.counts_blocks {
            return self.blocks_left() > 0;
        }
        let pages = self.moved.pages;
        match self.limit {
            Limit::None => true,
            Limit::About(max) => pages < max.0,
            Limit::Strict(max) => pages == 0 || pages + order.pages().0 <= max.0,
        }
    }

    /// Counts a block that will be moved in the hold that is being planned. The work is reported
    /// during that hold, not by this call.
    pub(super) fn plan(&mut self, order: Order) {
        self.moved.pages += order.pages().0;
        self.moved.blocks += 1;
    }

    /// Returns whether this hold of the zone lock is still within its time limit. Always true for
    /// the first block, and for blocks between two readings of the clock.
    #[inline]
    pub(super) fn has_time(&self, machine: &impl Machine) -> bool {
        !matches!(self.limit, Limit::Strict(_))
            || self.hold_time == Nanos(0)
            || self.moved.blocks == 0
            || self.unspent != 0
            || clock(machine).since(self.started) < self.hold_time
    }
}

/// Reads the clock. Also reports the reading to the machine, because it takes time.
fn clock(machine: &impl Machine) -> Nanos {
    machine.spend(Work::Clock, 1);
    machine.now()
}
