//! Returns pages from the page lists to their zones, in three ways: by the periodic decay (Linux:
//! `decay_pcp_high`), by drains of one CPU's lists or of all lists, and by the return of pages to
//! zones of remote nodes that a CPU no longer uses.
//!
//! Locks: the drain mutex, then each pcp lock in turn, then the zone lock. Under some hold policies
//! (`holds/`), `drain_again` does not take the drain mutex. A drain waits for another CPU's pcp
//! lock. The CPU that owns the lists never waits for that lock when it allocates or frees: if a
//! drain holds the lock, the CPU uses the zone directly.

use super::free::Excess;
use super::front::FRONTED;
use super::hold::Part;
use super::holds::MeetsDrain;
use super::pcp::{Expiry, Pcp};
use super::zone::Zone;
use super::{PageAllocator, SeedError};
use crate::machine::{CpuLock, Front, LocalWord, Lock, Machine};
use crate::site::{Site, Work};
use crate::units::{CpuId, Pages, count_in, count_of};

impl<M: Machine> PageAllocator<M> {
    /// Drains every CPU's lists into their zones, from the calling CPU (Linux: `drain_all_pages`).
    /// Returns the number of pages moved, or zero at once if another CPU is already draining all
    /// lists.
    pub fn drain_all(&self, machine: &M) -> Pages {
        self.draining
            .try_with(machine, Site::Drain, |()| self.drain_each(machine))
            .unwrap_or_default()
    }

    /// Drains every CPU's lists as [`PageAllocator::drain_all`] does, but waits for a drain in
    /// progress and then drains again. Moves these pages to their zones, unless they are allocated
    /// first: those that were on a list or in a [`Front`] at the time of the call, and those that
    /// were then on their way to the CPU that owns their block.
    ///
    /// The drain may miss pages that another CPU is just moving:
    /// - between a [`Front`] and its lists or the zone, up to 64 blocks;
    /// - if CPUs own blocks, from its lists to the inbox of the CPU that owns the block around the
    ///   page, or from the lists of another CPU to its own;
    /// - if CPUs own blocks, into such an inbox by a free. Pages of the same group of 64 that other
    ///   CPUs have freed since this free began may be missed, too.
    ///
    /// In Linux, `drain_all_pages` may miss a CPU that is just filling its lists, because it reads
    /// `pcp->count` without a lock.
    pub fn drain_all_sync(&self, machine: &M) -> Pages {
        self.draining
            .with(machine, Site::Drain, |()| self.drain_each(machine))
    }

    /// Drains all lists once more, for an allocation that has found no block so far. If another CPU
    /// is already draining them, the design says whether this CPU drains as well.
    pub(super) fn drain_again(&self, machine: &M) -> Pages {
        let meets = self.zones.first().map(|zone| zone.holds.meets_drain());
        match meets.unwrap_or(MeetsDrain::LeavesIt) {
            MeetsDrain::LeavesIt => self.drain_all(machine),
            MeetsDrain::DrainsToo => self.drain_each(machine),
        }
    }

    /// Drains every CPU's lists, whether or not another CPU is draining.
    fn drain_each(&self, machine: &M) -> Pages {
        let mut total = Pages::ZERO;
        for cpu in machine.topology().ids() {
            total += self.drain_cpu(machine, cpu);
        }
        total
    }

    /// Drains `cpu`'s lists in all zones and returns the number of pages moved (Linux:
    /// `drain_pages`).
    pub fn drain_cpu(&self, machine: &M, cpu: CpuId) -> Pages {
        machine.spend(Work::ScanCpu, count_of(self.zones.len()));
        self.zones
            .iter()
            .fold(Pages::ZERO, |total, zone| total + zone.drain(machine, cpu))
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Drains `cpu`'s lists in one zone and returns the number of pages moved (Linux:
    /// `drain_pages_zone`).
    ///
    /// # Errors
    /// If there is no zone with the index `zone`.
    pub fn drain_lists(&self, machine: &M, zone: u32, cpu: CpuId) -> Result<Pages, SeedError> {
        Ok(self.zone_at(zone)?.drain(machine, cpu))
    }

    /// Lowers `high` of `cpu`'s lists in one zone and moves the pages that exceed `high` to the
    /// zone, as vmstat work does in all zones (Linux: `decay_pcp_high`). Returns the number of
    /// pages moved.
    ///
    /// # Errors
    /// If there is no zone with the index `zone`.
    pub fn decay_lists(&self, machine: &M, zone: u32, cpu: CpuId) -> Result<Pages, SeedError> {
        Ok(self.zone_at(zone)?.decay(machine, cpu).pages)
    }
}

impl<M: Machine> Zone<M> {
    /// Drains `cpu`'s lists, in one hold of the zone lock after another, until they are empty
    /// (Linux: `drain_pages_zone`). Between two holds, `cpu` may put further pages on its lists,
    /// and the next hold may return these before the older ones. So each hold counts the pages on
    /// the lists anew, under the pcp lock.
    ///
    /// If another CPU drains the same lists at the same time, it may still have blocks of a front (the
    /// CPU's stack of free blocks) that are not on the lists yet when this function returns. The other
    /// CPU then moves them to the zone.
    pub(super) fn drain(&self, machine: &M, cpu: CpuId) -> Pages {
        let slot = self.slot(cpu);
        // The drain returns all pages to the zone, including those whose return was interrupted
        // before (`owed`), so none are owed any more.
        slot.owed.take(machine);
        // The inbox, which has the pages that other CPUs freed for `cpu`, is read before the count.
        // While a CPU moves pages from the inbox to the lists, the count is not zero
        // (`bring_home`), so this drain does not overlook these pages.
        self.open_inbox(machine, cpu, Site::Drain);
        let direct = Pages(self.empty_fronts(machine, cpu, Site::Drain));
        if slot.count.read(machine) == 0 {
            return direct;
        }
        let mut given = 0;
        let mut list = 0;
        // The loop ends: each hold returns at least one block to the zone, typically a batch. To
        // prolong the loop, `cpu` would have to fill its lists as fast as this drain empties them.
        loop {
            let mut left = 0;
            let excess = self.hold_on(machine, cpu, Site::Drain, |pcp| {
                left = pcp.count();
                Some(Excess {
                    pages: left,
                    list,
                    given,
                })
            });
            left -= excess.given - given;
            (given, list) = (excess.given, excess.list);
            if left == 0 {
                break;
            }
        }
        // If this drain interrupted a free that was returning pages to the zone, that free may have
        // recorded in `owed` how many pages it had not returned yet. The drain has returned `given`
        // pages in its place, so they are subtracted from that number.
        if slot.owed.read(machine) != 0 {
            let owed = slot.owed.take(machine);
            slot.owed.add(machine, (owed - i64::from(given)).max(0));
        }
        Pages(given) + direct
    }

    /// Lowers `high` of `cpu`'s lists. Returns the pages that exceed `high` to the zone. Also
    /// returns as many pages as an interrupted spill has left to return (Linux: `decay_pcp_high`).
    /// First empties each of the CPU's fronts (its stacks of free blocks) that the CPU has not used
    /// since the last call. So the front of a CPU that allocates and frees pages keeps its pages.
    pub(crate) fn decay(&self, machine: &M, cpu: CpuId) -> Decayed {
        let slot = self.slot(cpu);
        self.open_inbox(machine, cpu, Site::Decay);
        let mut direct = 0;
        for order in FRONTED {
            if slot.front(order).is_idle() {
                direct += self.empty_front(machine, cpu, order, Site::Decay);
            }
        }
        let mut more = slot.fronted() > 0;
        let owed = count_in(slot.owed.take(machine));
        let input = self.tuning_input(machine);
        let mut left = self.hold_on(machine, cpu, Site::Decay, |pcp| {
            let (excess, again) = pcp.decay(&input);
            more |= again;
            Some(Excess {
                pages: excess + owed,
                ..Excess::default()
            })
        });
        // The loop ends: each turn returns at least one block of the excess found at the start.
        while left.pages > 0 {
            left = self.hold_on(machine, cpu, Site::Decay, |_| Some(left));
        }
        Decayed {
            pages: Pages(left.given + direct),
            more,
        }
    }

    /// Moves a batch of pages from `cpu`'s lists to the zone if the zone is on a remote node and
    /// `cpu` has stopped using it (Linux: `drain_zone_pages`). Called once in each vmstat interval
    /// of `cpu`; `used` says whether `cpu` had counted something for the zone in this interval (had
    /// differentials). The batch moves in the second interval in a row in which `used` is false.
    pub(crate) fn expire(&self, machine: &M, cpu: CpuId, used: bool) -> Decayed {
        let batch = self.sizes(machine).batch.0;
        if machine.topology().place(cpu).node == self.node {
            return Decayed::default();
        }
        let mut expiry = Expiry::Never;
        let left = self.hold_on(machine, cpu, Site::DrainRemoteNode, |pcp| {
            expiry = pcp.expires(used);
            (expiry == Expiry::Now).then_some(Excess {
                pages: batch,
                ..Excess::default()
            })
        });
        Decayed {
            pages: Pages(left.given),
            more: expiry != Expiry::Never,
        }
    }

    /// Returns whether `cpu` has more than `high_min` free pages on its lists and in its fronts (its
    /// stacks of free blocks) together. Also returns true if other CPUs have freed pages for `cpu`.
    /// Takes no lock.
    pub(crate) fn hoards(&self, machine: &M, cpu: CpuId) -> bool {
        machine.spend(Work::ScanCpu, 1);
        let slot = self.slot(cpu);
        slot.count.read(machine) + i64::from(slot.fronted())
            > i64::from(self.sizes(machine).high_min.0)
            || self.owners.has_mail(machine, cpu)
    }

    /// Takes `cpu`'s pcp lock. Under this lock, calls `decide`, and returns as many pages to the
    /// zone as `decide` says. The design limits how many pages one hold of the pcp lock returns.
    /// Returns the rest of the excess.
    fn hold_on(
        &self,
        machine: &M,
        cpu: CpuId,
        site: Site,
        decide: impl FnOnce(&mut Pcp) -> Option<Excess>,
    ) -> Excess {
        let slot = self.slot(cpu);
        slot.pcp.with(machine, site, |pcp| {
            let excess = decide(pcp).unwrap_or_default();
            let left = self.spill_hold(machine, pcp, Part::first(site, cpu), excess);
            slot.count.set(machine, i64::from(pcp.count()));
            left
        })
    }
}

/// The number of pages that [`Zone::decay`] or [`Zone::expire`] returned to the zone, and whether
/// there may be more to return later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decayed {
    pub(crate) pages: Pages,
    /// True if the next vmstat interval may find more pages to return.
    pub(crate) more: bool,
}
