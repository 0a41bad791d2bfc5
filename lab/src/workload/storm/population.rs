//! The processes on a machine that runs out of memory, and their CPUs.
//!
//! The seed alone determines all choices, so every design runs the same processes on the same CPUs.

use std::ops::RangeInclusive;

use plimsoll_mm::units::CpuId;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// The largest number of CPUs on which one process has touched its memory.
const RAN_ON_MAX: u64 = 4;

/// The number of processes of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headcount {
    /// The number of sleepers: processes that have touched their memory before the run, and only
    /// sleep during the run.
    pub(crate) sleepers: u32,
    /// The smallest and the largest number of pages of a sleeper (a process that only sleeps during
    /// the run).
    pub(crate) pages: RangeInclusive<u64>,
    /// The number of allocators: processes that begin with as much memory as a sleeper and then
    /// allocate more, each on its own CPU.
    pub(crate) allocators: u32,
    /// For each hog (a process that allocates until it is killed), its number of threads. Each
    /// thread has its own CPU.
    pub(crate) hogs: Vec<u32>,
}

/// The behaviour of a process once the storm begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Sleeper,
    Allocator,
    Hog,
}

/// A process: the memory that it has, and the CPUs that it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcSpec {
    pub(super) role: Role,
    /// The CPU on which the process was started, and on which it runs when it is woken.
    pub(super) home: CpuId,
    /// For each CPU on which the process has touched pages, the number of these pages.
    pub(super) touched: Vec<(CpuId, u64)>,
    /// The CPU of each thread that runs during the storm. A sleeper has no such thread.
    pub(super) threads: Vec<CpuId>,
}

/// All processes, and three CPUs on which no process allocates during the storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Population {
    pub(super) specs: Vec<ProcSpec>,
    pub(super) reaper: CpuId,
    pub(super) helper: CpuId,
    /// The CPU of a thread that waits for a device.
    pub(super) device: CpuId,
}

impl Headcount {
    /// Draws all processes and their CPUs at random.
    ///
    /// # Panics
    /// If the machine has too few CPUs: each running thread, the reaper, the helper (which calls
    /// `process_mrelease`) and the device need a CPU of their own.
    pub(super) fn draw(&self, cpus: u32, seed: u64) -> Population {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut free: Vec<CpuId> = (0..cpus).map(CpuId).collect();
        free.shuffle(rng);
        let mut take = || free.pop().expect("fewer threads than CPUs");
        let [reaper, helper, device] = [(); 3].map(|()| take());
        let mut specs = Vec::new();
        for &threads in &self.hogs {
            let threads: Vec<CpuId> = (0..threads).map(|_| take()).collect();
            specs.push(ProcSpec {
                role: Role::Hog,
                home: threads[0],
                touched: Vec::new(),
                threads,
            });
        }
        for nth in 0..self.allocators + self.sleepers {
            let allocates = nth < self.allocators;
            let home = if allocates {
                take()
            } else {
                CpuId(rng.random_range(0..cpus))
            };
            specs.push(ProcSpec {
                role: if allocates {
                    Role::Allocator
                } else {
                    Role::Sleeper
                },
                home,
                touched: self.touch(home, cpus, rng),
                threads: allocates.then_some(home).into_iter().collect(),
            });
        }
        // Shuffle the list, so that each kind of process can be at any position.
        specs.shuffle(rng);
        Population {
            specs,
            reaper,
            helper,
            device,
        }
    }

    /// Divides the pages of a process about equally between the CPU `home`, on which the process
    /// was started, and some other CPUs.
    fn touch(&self, home: CpuId, cpus: u32, rng: &mut Xoshiro256PlusPlus) -> Vec<(CpuId, u64)> {
        let pages = rng.random_range(self.pages.clone());
        let on = rng.random_range(1..=RAN_ON_MAX).min(pages);
        let each = pages / on;
        let mut touched = vec![(home, pages - each * (on - 1))];
        touched.extend((1..on).map(|_| (CpuId(rng.random_range(0..cpus)), each)));
        touched
    }
}

impl ProcSpec {
    pub(super) fn pages(&self) -> u64 {
        self.touched.iter().map(|(_, pages)| pages).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn headcount() -> Headcount {
        Headcount {
            sleepers: 500,
            pages: 16..=240,
            allocators: 20,
            hogs: vec![4, 2],
        }
    }

    #[test]
    fn a_seed_is_a_population_and_another_seed_another() {
        assert_eq!(headcount().draw(64, 1), headcount().draw(64, 1));
        assert_ne!(headcount().draw(64, 1), headcount().draw(64, 2));
    }

    /// Each running thread has its own CPU, and so do the reaper, the helper (which calls
    /// `process_mrelease`) and the device.
    #[test]
    fn who_runs_is_alone_on_its_cpu() {
        let all = headcount().draw(64, 3);
        let running = all.specs.iter().flat_map(|spec| &spec.threads);
        let mut cpus: Vec<CpuId> = running.copied().collect();
        cpus.extend([all.reaper, all.helper, all.device]);
        let apart: BTreeSet<CpuId> = cpus.iter().copied().collect();
        assert_eq!((cpus.len(), apart.len()), (20 + 6 + 3, 20 + 6 + 3));
    }

    #[test]
    fn everybody_but_hogs_has_pages_within_bounds() {
        for spec in headcount().draw(64, 4).specs {
            let bounds = if spec.role == Role::Hog {
                0..=0
            } else {
                16..=240
            };
            assert!(bounds.contains(&spec.pages()), "{spec:?}");
            assert!(spec.touched.len() <= 4 && spec.touched.iter().all(|part| part.1 > 0));
        }
    }
}
