//! Processes with counters to which threads of this computer add. The threads play the CPUs of the
//! machine, and add each process's pages to the process's counters.

use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::counter::{AnyCounters, Batch, Counting, InitError, Plan, Reading};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{Candidates, Facts, Slot, sum_rss};
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::units::CpuId;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::Error;

/// The number of pages in a MiB.
const MIB: i64 = 256;
/// The number of CPUs on which a process has run if it has not run on all CPUs. These CPUs share a
/// last-level cache.
const FEW: u32 = 8;
/// The number of threads that add pages.
const THREADS: u32 = 2;

/// The processes that a selection chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Population {
    /// One process has far more memory than any other. Each process has run on 8 CPUs.
    Hog,
    /// Each process has 0 to 800 MiB and has run on 8 CPUs.
    Random,
    /// Each process has 0 to 800 MiB and has run on every CPU.
    RandomEverywhere,
    /// All processes have nearly the same size and have run on every CPU. So approximate sums of
    /// their counters do not show which of two processes is larger.
    AllInTheBand,
    /// Like [`Self::AllInTheBand`], but if two processes are neighbours in the list, their counters
    /// are not neighbours in memory. Memory looks like this after many processes have been created
    /// and have exited.
    AllInTheBandMixed,
}

impl Population {
    pub(super) const ALL: [Self; 5] = [
        Self::Hog,
        Self::Random,
        Self::RandomEverywhere,
        Self::AllInTheBand,
        Self::AllInTheBandMixed,
    ];

    /// The name of this set of processes in the tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hog => "one hog, on 8 CPUs each",
            Self::Random => "0 to 800 MiB, on 8 CPUs each",
            Self::RandomEverywhere => "0 to 800 MiB, on all CPUs",
            Self::AllInTheBand => "all in the band, on all CPUs",
            Self::AllInTheBandMixed => "all in the band, on all CPUs, mixed in memory",
        }
    }

    /// On how many adjacent CPUs each process has run. The machine has `cpus` CPUs.
    fn spread(self, cpus: u32) -> u32 {
        match self {
            Self::Hog | Self::Random => FEW.min(cpus),
            Self::RandomEverywhere | Self::AllInTheBand | Self::AllInTheBandMixed => cpus,
        }
    }

    /// Returns how many pages each of `count` processes has. Two processes have the same number of
    /// pages only by chance.
    pub(super) fn sizes(self, count: usize) -> Vec<i64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        match self {
            Self::Hog => {
                let mut sizes = sizes(&mut random, count, 100 * MIB);
                sizes[count / 3] = 4000 * MIB;
                sizes
            }
            Self::Random | Self::RandomEverywhere => sizes(&mut random, count, 800 * MIB),
            Self::AllInTheBand | Self::AllInTheBandMixed => {
                let mut sizes: Vec<i64> = (400 * MIB..).take(count).collect();
                sizes.shuffle(&mut random);
                sizes
            }
        }
    }
}

fn sizes(random: &mut impl RngExt, count: usize, below: i64) -> Vec<i64> {
    (0..count).map(|_| random.random_range(0..below)).collect()
}

/// The processes of one [`Population`], with one kind of counter.
#[derive(Debug)]
pub(super) struct ProcessSet<'a> {
    host: &'a Host,
    counting: Counting,
    rss: Vec<Rss<Host>>,
}

impl<'a> ProcessSet<'a> {
    /// Makes a process for each element of `sizes`, which is the number of pages of the process.
    /// `population` decides on which CPUs each process has run.
    pub(super) fn new(
        host: &'a Host,
        counting: Counting,
        population: Population,
        sizes: &[i64],
    ) -> Result<Self, Error> {
        let cannot = |why| Error::Invalid(format!("cannot count this number of processes: {why}"));
        let plan = Plan::new(host, counting, Rss::<Host>::WIDTH, Batch::RSS).map_err(cannot)?;
        let rss = sizes.iter().map(|_| new_rss(host, &plan));
        let mut rss = rss.collect::<Result<Vec<_>, _>>().map_err(cannot)?;
        if population == Population::AllInTheBandMixed {
            rss.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(2));
        }
        let set = Self {
            host,
            counting,
            rss,
        };
        let spread = population.spread(plan.area().cpus());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let set = &set;
                scope.spawn(move || set.touch(thread, spread, sizes));
            }
        });
        Ok(set)
    }

    /// Acts as each CPU that is assigned to the thread with the index `thread`, one CPU after the
    /// other. On each of these CPUs, adds to each process's counters the pages that this process
    /// has touched there. Each process has run on `spread` CPUs.
    fn touch(&self, thread: u32, spread: u32, sizes: &[i64]) {
        let cpus = self.host.topology().cpus();
        for cpu in (0..cpus).filter(|cpu| cpu % THREADS == thread) {
            let _entered = self.host.enter(CpuId(cpu));
            for ((first, rss), &pages) in (0..cpus / spread).cycle().zip(&self.rss).zip(sizes) {
                let Some(nth) = cpu.checked_sub(first * spread).filter(|nth| *nth < spread) else {
                    continue;
                };
                for (kind, pages) in kinds(share(pages, nth, spread)) {
                    rss.add_growing(self.host, kind, pages);
                }
            }
        }
    }
}

/// Makes the counters of a process. A one-sided counter begins as one shared cache line. This
/// function grows it into a tree, as happens when a process has run on two CPUs.
fn new_rss(host: &Host, plan: &Plan<Host>) -> Result<Rss<Host>, InitError> {
    let rss = Rss::new(host, plan)?;
    if let AnyCounters::OneSided(tree) = rss.counters() {
        tree.grow(host)?;
    }
    Ok(rss)
}

/// Returns how many pages a process has touched on one of its CPUs. The process has touched `pages`
/// pages in equal parts on `of` CPUs, and `nth` is the index of the CPU among them.
fn share(pages: i64, nth: u32, of: u32) -> i64 {
    let (nth, of) = (i64::from(nth), i64::from(of));
    pages * (nth + 1) / of - pages * nth / of
}

/// Splits `pages` into the kinds of resident pages. Most of the pages become anonymous pages.
fn kinds(pages: i64) -> [(RssKind, i64); 4] {
    let (file, shmem, swap) = (pages / 8, pages / 16, pages / 16);
    [
        (RssKind::File, file),
        (RssKind::Anon, pages - file - shmem - swap),
        (RssKind::Shmem, shmem),
        (RssKind::Swap, swap),
    ]
}

impl Candidates for ProcessSet<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.rss.len()).unwrap_or(u32::MAX)
    }

    fn facts(&self, process: u32) -> Option<Facts> {
        self.rss.get(process as usize).map(|_| Facts::PROCESS)
    }

    fn approximate(&self, process: u32) -> Option<Reading> {
        Some(self.rss.get(process as usize)?.usage(self.host))
    }

    fn precise(&self, process: u32) -> Option<i64> {
        Some(self.rss.get(process as usize)?.usage_precise(self.host))
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        sum_rss(self.host, slots, |process| self.rss.get(process as usize));
    }

    fn batch_gain(&self) -> u32 {
        self.counting.batch_gain()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::topology::Topology;

    use super::*;

    #[test]
    fn every_process_has_the_pages_it_was_given() {
        let host = Host::with_topology(Topology::flat(32));
        for population in Population::ALL {
            let sizes = population.sizes(100);
            for counting in Counting::ALL {
                let set = ProcessSet::new(&host, counting, population, &sizes).expect("few");
                for (process, &pages) in (0..).zip(&sizes) {
                    assert_eq!(set.precise(process), Some(pages), "{population:?}");
                    let reading = set.approximate(process).expect("it is there");
                    assert!(reading.is_ordered() && reading.range.contains(pages));
                }
            }
        }
    }
}
