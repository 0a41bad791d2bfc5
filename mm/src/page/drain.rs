//! Giving page lists back: the periodic decay, lists of remote nodes, one CPU's, everybody's.
//!
//! Locks: the drain mutex (but for the last drain before an allocation fails, if the policy says so),
//! then each pcp lock in turn, then the zone lock. A drain blocks on another CPU's pcp lock; that CPU itself never
//! waits (it goes to the zone directly).

use super::free::Excess;
use super::hold::Part;
use super::holds::MeetsDrain;
use super::pcp::{Expiry, Pcp};
use super::zone::Zone;
use super::{PageAllocator, SeedError};
use crate::machine::{CpuLock, LocalWord, Lock, Machine};
use crate::site::{Site, Work};
use crate::units::{CpuId, Pages};

impl<M: Machine> PageAllocator<M> {
    /// Gives every CPU's lists back, from here (Linux: `drain_all_pages`). Returns how many
    /// pages; none when another drain is under way, since that one will do.
    pub fn drain_all(&self, machine: &M) -> Pages {
        self.draining
            .try_with(machine, Site::Drain, |()| self.drain_each(machine))
            .unwrap_or_default()
    }

    /// The same, but waits for a drain under way and then drains again: what was on a list when
    /// it was called is back in its zone when it returns.
    pub fn drain_all_sync(&self, machine: &M) -> Pages {
        self.draining
            .with(machine, Site::Drain, |()| self.drain_each(machine))
    }

    /// Drains all lists once more, for an allocation that has no later chance. If another CPU drains
    /// them already, the policy says whether that has to do.
    pub(super) fn drain_again(&self, machine: &M) -> Pages {
        let meets = self.zones.first().map(|zone| zone.holds.meets_drain());
        match meets.unwrap_or(MeetsDrain::LeavesIt) {
            MeetsDrain::LeavesIt => self.drain_all(machine),
            MeetsDrain::DrainsToo => self.drain_each(machine),
        }
    }

    /// The same whoever else drains.
    fn drain_each(&self, machine: &M) -> Pages {
        let mut total = Pages::ZERO;
        for cpu in machine.topology().ids() {
            total += self.drain_cpu(machine, cpu);
        }
        total
    }

    /// Gives one CPU's lists back (Linux: `drain_pages`).
    pub fn drain_cpu(&self, machine: &M, cpu: CpuId) -> Pages {
        machine.spend(Work::ScanCpu, 1);
        self.zones
            .iter()
            .fold(Pages::ZERO, |total, zone| total + zone.drain(machine, cpu))
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Gives one CPU's lists in one zone back (Linux: `drain_pages_zone`).
    ///
    /// # Errors
    /// When there is no zone of that index.
    pub fn drain_lists(&self, machine: &M, zone: u32, cpu: CpuId) -> Result<Pages, SeedError> {
        Ok(self.zone_at(zone)?.drain(machine, cpu))
    }

    /// Lowers how much `cpu` may keep on its lists in one zone, and gives back what is above, as
    /// vmstat work does in all zones (Linux: `decay_pcp_high`). Returns how many pages went back.
    ///
    /// # Errors
    /// When there is no zone of that index.
    pub fn decay_lists(&self, machine: &M, zone: u32, cpu: CpuId) -> Result<Pages, SeedError> {
        Ok(self.zone_at(zone)?.decay(machine, cpu).pages)
    }
}

impl<M: Machine> Zone<M> {
    /// Gives `cpu`'s lists back, until one hold takes all that is on them (Linux:
    /// `drain_pages_zone`). What was on them at the start may not be what is coldest later: so each
    /// hold looks anew, under the lock.
    pub(super) fn drain(&self, machine: &M, cpu: CpuId) -> Pages {
        let slot = self.slot(cpu);
        // What a spill still owed goes with the rest.
        slot.owed.take(machine);
        if slot.count.read(machine) == 0 {
            return Pages::ZERO;
        }
        let mut given = 0;
        let mut list = 0;
        // Ends: each hold takes a batch or all there is, and the CPU would have to add as much
        // between any two of them.
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
        // What a spill owes since this drain took the lists from it, the drain gave back instead.
        if slot.owed.read(machine) != 0 {
            let owed = slot.owed.take(machine);
            slot.owed.add(machine, (owed - i64::from(given)).max(0));
        }
        Pages(given)
    }

    /// Lowers this CPU's `high` and gives back what is above it (Linux: `decay_pcp_high`).
    pub(crate) fn decay(&self, machine: &M, cpu: CpuId) -> Decayed {
        let mut more = false;
        let owed = u32::try_from(self.slot(cpu).owed.take(machine)).unwrap_or(0);
        let mood = self.mood(machine);
        let mut left = self.hold_on(machine, cpu, Site::Decay, |pcp| {
            let (excess, again) = pcp.decay(&mood);
            more = again;
            Some(Excess {
                pages: excess + owed,
                ..Excess::default()
            })
        });
        // Ends: each turn gives back at least one block of what was too much at the start.
        while left.pages > 0 {
            left = self.hold_on(machine, cpu, Site::Decay, |_| Some(left));
        }
        Decayed {
            pages: Pages(left.given),
            more,
        }
    }

    /// Gives one batch of a remote node's lists back when they were not used for three intervals.
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

    /// Whether `cpu` has more on its lists than `high_min` lets it keep, read without a lock.
    pub(crate) fn hoards(&self, machine: &M, cpu: CpuId) -> bool {
        self.slot(cpu).count.read(machine) > i64::from(self.sizes(machine).high_min.0)
    }

    /// One hold of both locks on `cpu`'s lists, for what `decide` says is too much.
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

/// What a decay gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decayed {
    pub(crate) pages: Pages,
    /// The next interval may find more.
    pub(crate) more: bool,
}
