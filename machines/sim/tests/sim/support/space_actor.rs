//! Tasks that act on address spaces from outside: they kill processes, help to empty address
//! spaces, swap out pages, and take CPUs offline.

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::Request;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::{END, Flag};
use plimsoll_mm::units::{CpuId, Nanos, Order, Vpn};
use plimsoll_sim::Sim;

use super::check_tables;
use super::dice::Dice;
use super::space_shared::{Process, Shared};

/// The time after which no task is left on a CPU that went offline. It is longer than any stall
/// that the simulator injects.
const SETTLE: Nanos = Nanos(2_000_000);
/// The number of times that a helping task tries to empty one address space.
const TRIES: u32 = 6;

/// A task that acts on the address spaces of processes from outside, for example by killing a
/// process.
pub(crate) struct Actor {
    shared: Shared,
    dice: Dice,
}

impl Actor {
    pub(crate) fn new(shared: &Shared, sim: &Sim, who: u64) -> Self {
        Self {
            shared: Shared::clone(shared),
            dice: Dice::new(sim.seed(), 1000 + who),
        }
    }

    fn sleep(&mut self, sim: &Sim, most: u32) {
        sim.sleep(Nanos(u64::from(self.dice.below(most))));
    }

    /// Kills most processes at random times: some before their threads have begun to act, some
    /// after their threads have finished.
    pub(crate) fn kill(mut self, sim: &Sim) {
        for process in 0..self.shared.processes.len() {
            self.sleep(sim, 600_000);
            let space = &self.shared.processes[process].space;
            if self.dice.chance(20) {
                continue;
            }
            if self.dice.chance(50) {
                space.raise(sim, Flag::Victim);
            }
            space.raise(sim, Flag::Killed);
        }
    }

    /// Helps to empty the address spaces of killed processes, some of them more than once.
    pub(crate) fn help(mut self, sim: &Sim) {
        let order: Vec<usize> = {
            let mut order: Vec<usize> = (0..self.shared.processes.len()).collect();
            self.dice.shuffle(&mut order);
            order
        };
        for index in order {
            let shared = Shared::clone(&self.shared);
            let process = &shared.processes[index];
            self.wait_for_kill(sim, process);
            for _ in 0..TRIES {
                let pause = *self.dice.pick(&[1, 3000, 100_000]);
                self.sleep(sim, pause);
                if process.is_killed(sim) {
                    self.reap(sim, process);
                }
            }
        }
    }

    /// Waits until `process` is killed or has ended. Gives up after a random number of checks.
    fn wait_for_kill(&mut self, sim: &Sim, process: &Process) {
        let patience = self.dice.below(300);
        for _ in 0..patience {
            if process.is_killed(sim) || process.space.has(sim, Flag::Ended) {
                return;
            }
            self.sleep(sim, 30_000);
        }
    }

    fn reap(&mut self, sim: &Sim, process: &Process) {
        let (shared, memory) = (&self.shared, self.shared.memory(sim));
        let may_wait = self.dice.chance(50);
        process.helpers.join();
        let reaped = process.steps.during(|| {
            if !may_wait {
                return Some(process.space.try_reap(memory));
            }
            let impatient = self.dice.chance(30);
            let reaped = process.space.release(memory, || impatient);
            assert!(impatient || reaped.is_some(), "it has time");
            reaped
        });
        let reaping = shared.design.reaping;
        let outcome = reaped.unwrap_or(Reaped::Busy);
        // A task that comes to help after `Skip` was set does nothing, so its result does not show
        // that the address space is empty.
        let is_skipped = process.space.has(sim, Flag::Skip) && !process.space.has(sim, Flag::Ended);
        if check_tables::is_all_reaped(process, reaping, outcome) && !is_skipped {
            process.is_reaped.set(true);
            shared.note(|met| met.compared[1] += 1);
        }
        check_tables::check_reaped(sim, process);
        check_tables::check(sim, process);
        match reaped {
            // Sometimes this task then sets the flag that tells other tasks not to empty the memory
            // again, as the OOM reaper does.
            Some(Reaped::All) if self.dice.chance(20) => {
                process.space.raise(sim, Flag::Skip);
            }
            Some(Reaped::Partly) => {
                assert!(shared.plan.refusals > 0, "no listener refuses here");
                shared.note(|met| met.partly += 1);
            }
            Some(Reaped::GaveWay) => {
                let gives = [Reaping::DescendingChunks, Reaping::MeetInTheMiddle];
                assert!(gives.contains(&shared.design.reaping));
                shared.note(|met| met.gave_way += 1);
            }
            Some(Reaped::Busy) => {
                assert!(!may_wait, "an actor that waits gets the lock");
                shared.note(|met| met.busy += 1);
            }
            Some(Reaped::All) | None => {}
        }
        if reaped.is_some_and(|reaped| reaped != Reaped::Busy) {
            let space = &process.space;
            assert!(space.has(sim, Flag::Unstable) || space.has(sim, Flag::Skip));
        }
    }

    /// Swaps out all pages of random address spaces, even while they are being emptied.
    pub(crate) fn swap(mut self, sim: &Sim) {
        for _ in 0..self.shared.plan.steps {
            self.sleep(sim, 400_000);
            let index = self.dice.index(self.shared.processes.len());
            let process = &self.shared.processes[index];
            let memory = self.shared.memory(sim);
            let swap_out = || process.space.swap_out(memory, Vpn(0)..END);
            let _went = process.steps.during(swap_out);
            check_tables::check(sim, process);
        }
    }

    /// Makes memory short several times, if the run reclaims. Each time, allocates all free memory
    /// that it gets without waiting, and sometimes reclaims more than is needed. Frees the memory
    /// after a random time.
    pub(crate) fn press(mut self, sim: &Sim) {
        let shared = Shared::clone(&self.shared);
        let Some(reclaim) = &shared.reclaim else {
            return;
        };
        let pages = shared.mm.pages();
        for _ in 0..shared.plan.steps.min(12) {
            self.sleep(sim, 300_000);
            let mut taken = Vec::new();
            for order in [5, 0].map(|order| Order::new(order).expect("small")) {
                let request = Request::new(order).urgent(Urgency::NoWait);
                while let Ok(pfn) = pages.alloc(sim, request) {
                    taken.push((pfn, order));
                }
            }
            let request = Request::new(Order::ZERO);
            for _ in 0..self.dice.below(4) {
                reclaim.reclaim(sim, request);
                self.sleep(sim, 50_000);
            }
            reclaim.wake(sim, pages, request);
            self.sleep(sim, 400_000);
            for (pfn, order) in taken {
                pages.free(sim, pfn, order).expect("it was just allocated");
            }
        }
    }

    /// Takes CPUs offline one at a time, and brings them back online. Sometimes drains all page
    /// lists instead.
    pub(crate) fn plug(mut self, sim: &Sim) {
        let mm = &Shared::clone(&self.shared).mm;
        for _ in 0..3 {
            self.sleep(sim, 500_000);
            let cpu = CpuId(self.dice.below(sim.topology().cpus()));
            if cpu == sim.this_cpu() {
                mm.pages().drain_all(sim);
                continue;
            }
            mm.cpu_going(sim, cpu);
            sim.set_online(cpu, false);
            sim.sleep(SETTLE);
            mm.cpu_dead(sim, cpu);
            self.sleep(sim, 1_000_000);
            sim.set_online(cpu, true);
            mm.cpu_online(sim, cpu);
        }
    }
}
