//! A workload for `plimsoll compare`: apps that are repeatedly killed and reaped.

use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Sim;
use rand::RngExt;

use super::layout::{Contents, Victim};
use super::victim_space::VictimSpace;
use crate::measure::tasks::Tasks;
use crate::run::testbed::Testbed;

/// Pairs of CPUs on which apps are killed. On the first CPU of a pair, an app fills memory, is
/// killed and exits. While the app exits, the reaper empties the app's address space on the second
/// CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KilledApps {
    /// The number of pairs of CPUs.
    pub(crate) pairs: u32,
    /// The number of small mappings in the address space of each app.
    pub(crate) mappings: u32,
}

/// The interval at which an app that has exited checks whether its reaper is done.
const LOOK_EVERY: Nanos = Nanos(10_000);

impl KilledApps {
    /// Starts the tasks of each pair of CPUs. The pairs are spread evenly over the machine. No app
    /// starts after `until`. Each kill is a task, which ends when all memory of the app is free.
    pub(crate) fn start(self, testbed: &Testbed, until: Nanos) -> Tasks {
        let tasks = Tasks::default();
        let cpus = u64::from(testbed.sim.topology().cpus());
        for pair in 0..u64::from(self.pairs) {
            let first = pair * cpus / u64::from(self.pairs);
            let at = |cpu: u64| CpuId(u32::try_from(cpu % cpus).unwrap_or(0));
            let (exit, reaper) = (at(first), at(first + 1));
            let (mm, design) = (Rc::clone(&testbed.mm), testbed.design);
            let tasks = tasks.clone();
            testbed.sim.spawn(exit, move |sim| {
                while sim.now() < until {
                    let victim = Victim::App {
                        mappings: self.mappings,
                    };
                    let parts = victim.layout(sim.rng().random());
                    let victim_space = VictimSpace::new(sim, &mm, &design, &Contents::of(&parts));
                    parts.iter().for_each(|part| victim_space.make(sim, part));
                    let killed = sim.now();
                    kill(sim, Rc::new(victim_space), reaper);
                    tasks.end(sim, killed);
                }
            });
        }
        tasks
    }
}

/// Makes the app exit on the calling CPU while the reaper empties the app's address space on the
/// CPU `reaper`. Returns when all memory of the app is freed.
fn kill(sim: &Sim, victim_space: Rc<VictimSpace>, reaper: CpuId) {
    let reaped = Rc::clone(&victim_space);
    sim.spawn(reaper, move |sim| reaped.reap(sim));
    victim_space.exit(sim);
    // The task of the reaper holds the second reference to `victim_space`, and drops it when the
    // reaper is done.
    while Rc::strong_count(&victim_space) > 1 {
        sim.sleep(LOOK_EVERY);
    }
    let victim_space = Rc::into_inner(victim_space).expect("the reaper has let go");
    victim_space.end(sim);
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::design::Design;
    use plimsoll_mm::site::{LockClass, Site};
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;

    #[test]
    fn apps_are_killed_again_and_again_and_reapers_take_part() {
        let profile = Profile::load("phone-8", Card::Mid).expect("built in");
        let testbed = Testbed::new(&profile, Design::PATCHED, 1);
        let apps = KilledApps {
            pairs: 2,
            mappings: 50,
        };
        let killed = apps.start(&testbed, Nanos::from_ms(100));
        testbed.sim.run_until(Nanos::from_ms(100));
        let (stats, _) = testbed.finish();
        let exits = stats.site(LockClass::Mmap, Site::Exit).acquisitions;
        assert!(exits > 4, "{exits}");
        assert!(killed.count() > 2, "{}", killed.count());
        assert!(stats.site(LockClass::PageTable, Site::Reap).acquisitions > 0);
    }
}
