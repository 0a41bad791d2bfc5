//! The periodic work of one CPU: folds its differentials and decays its page lists (Linux:
//! `refresh_cpu_vm_stats`).

use super::Manager;
use crate::event::{Changed, Event};
use crate::machine::Machine;
use crate::site::Work;
use crate::units::{CpuId, Pages};

impl<M: Machine> Manager<M> {
    /// Folds this CPU's differentials and decays its page lists. Returns whether anything changed
    /// or the next interval may find more to do.
    pub fn refresh(&self, machine: &M) -> Changed {
        let cpu = machine.this_cpu();
        let mut changed = false;
        let mut given = Pages::ZERO;
        for zone in self.pages.zones() {
            machine.spend(Work::RefreshZone, 1);
            let used = zone.counters.fold(machine, cpu);
            let decayed = zone.decay(machine, cpu);
            let expired = zone.expire(machine, cpu, used);
            changed |= used || decayed.more || expired.more;
            given += decayed.pages + expired.pages;
        }
        for node in &self.nodes {
            changed |= node.fold(machine, cpu);
        }
        let changed = if changed { Changed::Yes } else { Changed::No };
        machine.emit(Event::Refresh {
            changed,
            decayed: given,
        });
        changed
    }

    /// Folds every differential of `cpu`; its page lists stay.
    pub(super) fn fold(&self, machine: &M, cpu: CpuId) {
        for zone in self.pages.zones() {
            machine.spend(Work::RefreshZone, 1);
            zone.counters.fold(machine, cpu);
        }
        for node in &self.nodes {
            node.fold(machine, cpu);
        }
    }
}
