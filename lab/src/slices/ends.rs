//! When the tracer stops, some slices (things that a CPU or a task does) are still going on. This
//! module chooses the times at which they end.

use std::collections::HashMap;

use plimsoll_mm::units::{CpuId, Nanos};

use super::data::Slices;

/// For each CPU and each task, the time at which to end a slice that is still going on when the
/// tracer stops.
///
/// Some simulated CPUs are already beyond the time at which the tracer stops, because their clocks
/// differ. On such a CPU, the slice ends together with the last kept slice that lies within it.
pub(super) struct Ends {
    at: Nanos,
    cpus: Vec<Nanos>,
    tasks: HashMap<u32, Nanos>,
}

impl Ends {
    pub(super) fn of(slices: &Slices, at: Nanos) -> Self {
        let mut ends = Self {
            at,
            cpus: vec![at; slices.cpus as usize],
            tasks: HashMap::new(),
        };
        let holds = slices.holds.iter().map(|held| &held.hold);
        let holds = holds.map(|hold| (hold.cpu, hold.task, hold.until));
        let waits = slices.waits.iter().map(|waited| &waited.wait);
        let waits = waits.map(|wait| (wait.cpu, wait.task, wait.until));
        for (cpu, task, until) in holds.chain(waits) {
            ends.move_cpu(cpu, until);
            ends.move_task(task, until);
        }
        for of in &slices.disturbed {
            ends.move_cpu(of.cpu, of.until);
        }
        // A phase shows how long its task worked, but not how long a CPU worked: the task may have
        // left the CPU on which the phase began.
        for of in &slices.phases {
            ends.move_task(of.task, of.until);
        }
        ends
    }

    fn move_cpu(&mut self, cpu: CpuId, until: Nanos) {
        let end = &mut self.cpus[cpu.index()];
        *end = until.max(*end);
    }

    fn move_task(&mut self, task: u32, until: Nanos) {
        let end = self.tasks.entry(task).or_insert(self.at);
        *end = until.max(*end);
    }

    pub(super) fn of_cpu(&self, cpu: CpuId) -> Nanos {
        self.cpus[cpu.index()]
    }

    pub(super) fn of_task(&self, task: u32) -> Nanos {
        self.tasks.get(&task).copied().unwrap_or(self.at)
    }
}
