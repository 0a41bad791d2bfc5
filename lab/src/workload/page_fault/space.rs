//! An address space of the benchmark, in which threads can delay each other.
//!
//! If the tasks are processes, each has its own address space. No other task requests the locks
//! that a process's faults take, and the price of a fault includes the cost of these locks. Threads
//! share the mmap_lock, the mappings and the translations. Before memory is freed, every CPU that
//! runs a thread of the process has to drop its translations. The thread that unmaps interrupts
//! these CPUs and waits for them. This costs the price `tlb_flush` for the first CPU, and the price
//! `ipi` for each other CPU.
//!
//! Linux sometimes interrupts fewer CPUs. From 6.15 on, it interrupts none on newer AMD processors.
//! It also skips a CPU whose thread sleeps, unless page tables are freed. The simulation always
//! interrupts every CPU that runs a thread of the process.

use std::cell::RefCell;

use plimsoll_mm::counter::Plan;
use plimsoll_mm::machine::{Machine, RwLock};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::units::Pfn;
use plimsoll_sim::Sim;

use super::vmas::Vmas;
use super::{Shared, Waiting};
use crate::workload::{Mapping, UNMAPPED_TOGETHER};

/// The number of pages that a task unmaps before it flushes translations and frees the pages: 8
/// pages in the gather itself and 19 batches of 510 pages (Linux: `mmu_gather`).
const GATHERED: usize = 8 + 19 * 510;

/// A simulated address space of the benchmark, used by one process or by all its threads.
pub(super) struct Space {
    pub(super) rss: Rss<Sim>,
    mmap_lock: <Sim as Machine>::RwLock<()>,
    /// The mappings, if several tasks share the address space.
    vmas: Option<Vmas>,
    /// The number of tasks in the address space.
    tasks: u32,
    /// The pages that tasks left mapped when they ended.
    pub(super) left: RefCell<Vec<Pfn>>,
}

impl Space {
    /// Creates an address space that `tasks` tasks use. Its locks are near the calling CPU.
    pub(super) fn new(sim: &Sim, plan: &Plan<Sim>, tasks: u32) -> Self {
        Self {
            rss: Rss::new(sim, plan).expect("the plan is one for resident pages"),
            mmap_lock: sim.rw_lock(LockClass::Mmap, sim.this_cpu(), ()),
            vmas: (tasks > 1).then(Vmas::default),
            tasks,
            left: RefCell::default(),
        }
    }

    /// Maps memory for one task. Returns the place (the index of the range of addresses) of the new
    /// mapping.
    pub(super) fn map(&self, sim: &Sim, waiting: &Waiting) -> usize {
        let asked = waiting.begin(sim);
        self.mmap_lock.write(sim, Site::Mmap, |()| {
            waiting.end(asked);
            let Some(vmas) = &self.vmas else {
                sim.spend(Work::MapEdit, 1);
                return 0;
            };
            let place = vmas.map(sim);
            vmas.unlock_all();
            place
        })
    }

    /// Touches `pages` new pages of the mapping at `place`. Each touch takes a page fault.
    pub(super) fn fault(
        &self,
        sim: &Sim,
        shared: &Shared,
        place: usize,
        mapping: &mut Mapping<'_>,
        pages: usize,
    ) {
        for _ in 0..pages {
            let mut fault = || {
                let full = mapping.fault_one(sim);
                if full.expect("the machine has memory for every task") {
                    shared.lruvecs.add(sim);
                }
                self.rss.add_growing(sim, RssKind::Anon, 1);
            };
            match &self.vmas {
                Some(vmas) => self.fault_in(sim, &shared.waiting, vmas, place, fault),
                None => fault(),
            }
        }
    }

    /// Runs `fault`, which faults in one page of a mapping that other tasks can share.
    fn fault_in(
        &self,
        sim: &Sim,
        waiting: &Waiting,
        vmas: &Vmas,
        place: usize,
        mut fault: impl FnMut(),
    ) {
        let prepare = || self.mmap_lock.try_read(sim, Site::Fault, |()| {}).is_some();
        if let Some(entered) = vmas.enter(sim, place, prepare) {
            fault();
            return entered.leave(sim);
        }
        let asked = waiting.begin(sim);
        self.mmap_lock.read(sim, Site::Fault, |()| {
            waiting.end(asked);
            vmas.prepare_at(place);
            fault();
        });
    }

    /// Unmaps the memory at `place`, whose pages are those of `mapping`, and frees the pages.
    pub(super) fn unmap(
        &self,
        sim: &Sim,
        shared: &Shared,
        place: usize,
        mapping: &mut Mapping<'_>,
    ) {
        let asked = shared.waiting.begin(sim);
        let split = |(): &mut ()| {
            shared.waiting.end(asked);
            match &self.vmas {
                Some(vmas) => {
                    vmas.unmap(sim, place);
                    vmas.unlock_all();
                }
                None => sim.spend(Work::MapEdit, 1),
            }
            Some(())
        };
        let lock = &self.mmap_lock;
        lock.write_then_read(
            sim,
            Site::Munmap,
            || false,
            split,
            |(), ()| {
                self.free(sim, shared, mapping);
            },
        );
    }

    /// Removes the pages of `mapping` and frees them.
    pub(super) fn free(&self, sim: &Sim, shared: &Shared, mapping: &mut Mapping<'_>) {
        let gathered = std::cell::Cell::new(0);
        let flush = || {
            let others = self.tasks - 1;
            if gathered.take() > 0 && others > 0 {
                sim.spend(Work::TlbFlush, 1);
                sim.spend(Work::Ipi, others - 1);
            }
        };
        let unmapped = |pages: usize| {
            let count = i64::try_from(pages).unwrap_or(0);
            self.rss.add_growing(sim, RssKind::Anon, -count);
            gathered.set(gathered.get() + pages);
            if gathered.get() + UNMAPPED_TOGETHER > GATHERED {
                flush();
            }
        };
        let lru_remove = |pages| shared.lruvecs.remove(sim, pages);
        mapping.unmap_with(sim, unmapped, lru_remove);
        flush();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use plimsoll_mm::counter::Batch;
    use plimsoll_mm::design::Design;
    use plimsoll_mm::units::CpuId;
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;
    use crate::run::testbed::Testbed;

    /// Lets one of `tasks` tasks map, fault in and unmap `pages` pages twice. Returns the times
    /// that the task spends on the simulated steps `tlb_flush` and `ipi`, in nanoseconds.
    fn flushes(tasks: u32, pages: usize) -> [u64; 2] {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        let testbed = Testbed::new(&profile, Design::UNPATCHED, 1);
        let counting = Design::UNPATCHED.counting;
        let plan = Plan::new(&testbed.sim, counting, Rss::<Sim>::WIDTH, Batch::RSS);
        let plan = plan.expect("few CPUs can be counted");
        let mm = Rc::clone(&testbed.mm);
        testbed.sim.spawn(CpuId(0), move |sim| {
            let shared = Shared::new(sim);
            let space = Space::new(sim, &plan, tasks);
            let mut mapping = Mapping::new(&mm);
            for _ in 0..2 {
                let place = space.map(sim, &shared.waiting);
                space.fault(sim, &shared, place, &mut mapping, pages);
                space.unmap(sim, &shared, place, &mut mapping);
                if let Some(vmas) = &space.vmas {
                    assert_eq!(space.map(sim, &shared.waiting), place);
                    let entered = vmas.enter(sim, place, || true);
                    entered.expect("no writer has it any more").leave(sim);
                    space.unmap(sim, &shared, place, &mut mapping);
                }
            }
        });
        testbed.sim.run();
        let spent = testbed.sim.stats().work_ns;
        [Work::TlbFlush, Work::Ipi].map(|work| spent[work as usize])
    }

    /// A gather, the collection of unmapped pages, has room for 9698 pages. A page table maps up to
    /// 512 pages. The task flushes the gather when the pages of one more table might not fit.
    #[test]
    fn each_full_gather_and_the_last_one_interrupt_every_other_cpu_of_the_process() {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        let price = |work: Work| u64::from(profile.costs.work_ns[work as usize]);
        let (flush, ipi) = (price(Work::TlbFlush), price(Work::Ipi));
        for (pages, times) in [(1, 1), (600, 1), (9216, 1), (9217, 2), (20_000, 3)] {
            assert_eq!(flushes(1, pages), [0, 0], "there is no other CPU");
            let rounds = 2 * times;
            assert_eq!(flushes(2, pages), [rounds * flush, 0], "{pages}");
            assert_eq!(flushes(5, pages), [rounds * flush, rounds * 3 * ipi]);
        }
    }

    /// The first fault of a mapping tries to take the mmap_lock without waiting. If the lock is
    /// busy, the fault waits for the lock and then gives the mapping its `anon_vma`. So the next
    /// fault does not need the mmap_lock.
    #[test]
    fn a_fault_that_takes_the_lock_leaves_an_anon_vma() {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        let testbed = Testbed::new(&profile, Design::UNPATCHED, 1);
        let plan = Plan::new(
            &testbed.sim,
            Design::UNPATCHED.counting,
            Rss::<Sim>::WIDTH,
            Batch::RSS,
        );
        let plan = plan.expect("few CPUs can be counted");
        let shared = Rc::new(Shared::new(&testbed.sim));
        let space = Rc::new(Space::new(&testbed.sim, &plan, 2));
        let place = space.map(&testbed.sim, &shared.waiting);
        let writer = Rc::clone(&space);
        testbed.sim.spawn(CpuId(0), move |sim| {
            let lock = &writer.mmap_lock;
            lock.write(sim, Site::Mmap, |()| sim.spend(Work::Think, 100_000));
        });
        let mm = Rc::clone(&testbed.mm);
        testbed.sim.spawn(CpuId(1), move |sim| {
            sim.spend(Work::Think, 10_000);
            let mut mapping = Mapping::new(&mm);
            space.fault(sim, &shared, place, &mut mapping, 1);
            assert!(sim.now().0 > 100_000, "it waited for the lock");
            let vmas = space.vmas.as_ref().expect("two tasks share it");
            assert!(vmas.enter(sim, place, || false).is_some());
            space.free(sim, &shared, &mut mapping);
        });
        testbed.sim.run();
    }
}
