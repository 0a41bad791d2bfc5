//! Many large processes that end at the same time.
//!
//! A process has a thread on each CPU of a group. Each thread faults in a part of the process's
//! memory. After all threads of all processes have done this, all processes end at once. The first
//! CPU of each group unmaps the memory of the whole process. So most pages are allocated by one CPU
//! and freed by another. Then new processes start.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos, Pfn};
use plimsoll_sim::Sim;

use super::{Mapping, about};
use crate::run::testbed::Testbed;

/// A load of processes that end together: their size, and how often they run and end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exits {
    /// The number of threads of a process, each on its own CPU.
    pub(crate) threads: u32,
    /// How many pages each thread faults in.
    pub(crate) pages: usize,
    /// How many times all processes run and end.
    pub(crate) rounds: u32,
}

/// The measurements of all rounds except the first. The first round does not count, because its
/// threads get memory that no process has freed before.
#[derive(Debug, Default)]
pub(crate) struct Exited {
    /// The number of processes that have ended, without those of the first round.
    pub(crate) processes: Cell<u64>,
    /// The sum of the times that processes took to exit, in nanoseconds, without the first round.
    pub(crate) ns: Cell<u64>,
    /// The longest time that a process took to exit, in nanoseconds, without the first round.
    pub(crate) longest_ns: Cell<u64>,
    /// The sum of the times that all threads took to fault in their memory, in nanoseconds.
    pub(crate) faulting_ns: Cell<u64>,
}

/// The state that the threads of all processes share, and by which they wait for each other.
struct Shared {
    /// How many threads have faulted in their memory, counted over all rounds.
    ready: Cell<u32>,
    /// How many processes have ended, counted over all rounds.
    ended: Cell<u32>,
    exited: Rc<Exited>,
}

/// The pages of one process, as a list for each of its threads.
type Memory = Rc<RefCell<Vec<Vec<Pfn>>>>;

/// The time that a task sleeps before it looks again at the progress of the other tasks.
const LOOK: Nanos = Nanos(50_000);

impl Exits {
    /// Starts the processes on all CPUs of the machine. The run is over when all tasks have ended.
    pub(crate) fn start(self, testbed: &Testbed) -> Rc<Exited> {
        let exited = Rc::<Exited>::default();
        let shared = Rc::new(Shared {
            ready: Cell::new(0),
            ended: Cell::new(0),
            exited: Rc::clone(&exited),
        });
        let processes = testbed.sim.topology().cpus() / self.threads;
        for process in 0..processes {
            let memory = Memory::default();
            for thread in 0..self.threads {
                let (mm, shared) = (Rc::clone(&testbed.mm), Rc::clone(&shared));
                let memory = Rc::clone(&memory);
                let cpu = CpuId(process * self.threads + thread);
                testbed.sim.spawn(cpu, move |sim| {
                    for round in 1..=self.rounds {
                        self.fault(sim, &mm, &shared, &memory, round);
                        wait_until(sim, || {
                            shared.ready.get() == round * processes * self.threads
                        });
                        if thread == 0 {
                            exit(sim, &mm, &shared, &memory, round);
                        }
                        wait_until(sim, || shared.ended.get() == round * processes);
                    }
                });
            }
        }
        exited
    }

    fn fault(self, sim: &Sim, mm: &Manager<Sim>, shared: &Shared, memory: &Memory, round: u32) {
        sim.sleep(about(sim, Nanos(200_000)));
        let from = sim.now();
        let mut mapping = Mapping::new(mm);
        mapping.fault(sim, self.pages);
        if round > 1 {
            add(&shared.exited.faulting_ns, sim.now().since(from).0);
        }
        memory.borrow_mut().push(mapping.into_pages(sim));
        shared.ready.set(shared.ready.get() + 1);
    }
}

fn exit(sim: &Sim, mm: &Manager<Sim>, shared: &Shared, memory: &Memory, round: u32) {
    let parts = memory.take();
    let from = sim.now();
    for pages in parts {
        Mapping::of(mm, pages).unmap(sim);
    }
    let took = sim.now().since(from).0;
    if round > 1 {
        let exited = &shared.exited;
        add(&exited.processes, 1);
        add(&exited.ns, took);
        exited.longest_ns.set(exited.longest_ns.get().max(took));
    }
    shared.ended.set(shared.ended.get() + 1);
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

/// Sleeps until `is_reached` is true.
fn wait_until(sim: &Sim, is_reached: impl Fn() -> bool) {
    while !is_reached() {
        sim.sleep(LOOK);
    }
}
