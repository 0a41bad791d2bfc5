//! Descriptions of mixes of programs: which programs run on which CPUs of a machine, and how much
//! of the machine's memory is free. An experiment that runs several workloads lists them as mixes.

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::Profile;

use super::daemons::Daemons;
use super::make_like::MakeLike;
use super::readers::Readers;
use super::stress_vm::StressVm;
use crate::error::Error;
use crate::run::aging;
use crate::run::testbed::Testbed;

/// A workload: programs on CPUs, and the state of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// The name of this mix of programs, unique in the experiment's list of mixes.
    pub(crate) name: &'static str,
    /// The situation, on a real machine, that the mix imitates.
    pub(crate) stands_for: &'static str,
    /// The values of the parameters, and the reason for these values, as text.
    pub(crate) parameters: &'static str,
    /// The programs, in the order in which they start.
    pub(crate) parts: &'static [Part],
    /// How much memory is free when the programs start.
    pub(crate) memory: Memory,
}

/// A program, and the CPUs on which it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) cpus: Cpus,
    pub(crate) program: Program,
}

/// The CPUs whose number divided by `divisor` leaves a remainder that is in `remainders`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    pub(crate) divisor: u32,
    pub(crate) remainders: &'static [u32],
}

/// A program that a [`Mix`] can contain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// A worker of `stress-ng --vm` on each CPU of the [`Part`].
    Stress(StressVm),
    /// The daemons (background programs) of each CPU of the [`Part`].
    Daemons(Daemons),
    /// A reader of a file on each CPU of the [`Part`]. The memory of the mix must be
    /// [`Memory::Cached`].
    Readers(Readers),
    /// Jobs that move between all CPUs of the machine. The CPUs of the [`Part`] have no effect.
    Make(MakeLike),
}

/// The state of the machine's memory when the programs start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All memory is free.
    Plenty,
    /// The number of free pages of each zone is halfway between the zone's low and high watermarks.
    /// All other memory is in use and stays in use: nothing reclaims it.
    Short,
    /// Like [`Memory::Short`], but `cached` of the pages in use belong to the files that the
    /// [`Readers`] read. Kswapd and allocations reclaim pages of these files. There is no swap.
    Cached { cached: Pages },
}

impl Mix {
    /// Finds the mix called `name` in `family`.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no mix has this name. The error lists the most similar names.
    pub(crate) fn find(family: &'static [Self], name: &str) -> Result<&'static Self, Error> {
        let names: Vec<&str> = family.iter().map(|mix| mix.name).collect();
        let found = family.iter().find(|mix| mix.name == name);
        found.ok_or_else(|| Error::unknown("workload", name, &names))
    }

    /// Makes the machine for a run. The machine can reclaim memory only if the mix's memory is
    /// [`Memory::Cached`].
    pub(crate) fn testbed(&self, profile: &Profile, design: Design, seed: u64) -> Testbed {
        match self.memory {
            Memory::Plenty | Memory::Short => Testbed::new(profile, design, seed),
            Memory::Cached { .. } => Testbed::with_pressure(profile, design, seed, 0),
        }
    }

    /// Prepares the memory, and starts the programs. The programs stop at `until`.
    pub(crate) fn start(&self, testbed: &Testbed, until: Nanos) {
        self.memory.prepare(testbed);
        let all = testbed.sim.topology().cpus();
        for part in self.parts {
            let cpus = part.cpus.of(all);
            match part.program {
                Program::Stress(worker) => {
                    worker.start(testbed, cpus, until);
                }
                Program::Daemons(daemons) => daemons.start(testbed, cpus, until),
                Program::Readers(readers) => {
                    let cpus: Vec<CpuId> = cpus.collect();
                    readers.start(testbed, &cpus, self.memory.cached(), until);
                }
                Program::Make(make) => drop(make.start(testbed, until)),
            }
        }
        testbed.forget_log();
    }
}

impl Cpus {
    /// Every CPU of a machine.
    pub(crate) const ALL: Self = Self {
        divisor: 1,
        remainders: &[0],
    };

    /// Returns the CPUs of this set on a machine with `cpus` CPUs, in ascending order.
    fn of(self, cpus: u32) -> impl Iterator<Item = CpuId> {
        let chosen = move |cpu: &u32| self.remainders.contains(&(cpu % self.divisor));
        (0..cpus).filter(chosen).map(CpuId)
    }
}

impl Memory {
    fn prepare(self, testbed: &Testbed) {
        let leave = match self {
            Self::Plenty => return,
            Self::Short => Pages(0),
            // `cached` pages stay free here, because the readers fill them with pages of files
            // before they start.
            Self::Cached { cached } => cached,
        };
        let begun = aging::begin(testbed, aging::Memory::Fresh, leave);
        begun.expect("the machine has this much memory");
    }

    /// The number of pages of files that are in memory when the programs start.
    const fn cached(self) -> u64 {
        match self {
            Self::Plenty | Self::Short => 0,
            Self::Cached { cached } => cached.0 as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::page::ZoneKind;
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::catalog::designs;

    static FAMILY: [Mix; 1] = [Mix {
        name: "quiet",
        stands_for: "nothing",
        parameters: "none",
        parts: &[],
        memory: Memory::Short,
    }];

    #[test]
    fn an_unknown_workload_gets_the_nearest_names() {
        let error = Mix::find(&FAMILY, "qiet").expect_err("a slip");
        assert_eq!(
            error.to_string(),
            "no workload is called `qiet`; did you mean `quiet`?"
        );
        assert!(error.is_bad_input());
        assert_eq!(Mix::find(&FAMILY, "quiet").expect("known").name, "quiet");
    }

    #[test]
    fn cpus_are_chosen_by_their_remainders() {
        let two_of_three = Cpus {
            divisor: 3,
            remainders: &[0, 1],
        };
        let numbers = |cpus: Cpus| cpus.of(7).map(|cpu| cpu.0).collect::<Vec<_>>();
        assert_eq!(numbers(two_of_three), [0, 1, 3, 4, 6]);
        assert_eq!(numbers(Cpus::ALL), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn short_memory_leaves_each_zone_between_its_low_and_its_high_watermark() {
        let profile = Profile::load("grace-72", Card::Mid).expect("built in");
        let design = designs::find("linux").expect("built in").design;
        let testbed = Testbed::new(&profile, design, 1);
        FAMILY[0].start(&testbed, Nanos(0));
        let zones = testbed.mm.pages().view(&testbed.sim);
        let normal = zones.iter().find(|zone| zone.kind == ZoneKind::Normal);
        let zone = normal.expect("there is a normal zone");
        let (low, high) = (zone.watermarks.low, zone.watermarks.high);
        assert!((low..=high).contains(&zone.free), "{zone:?}");
        assert!(zone.free > low && zone.free < high);
    }

    #[test]
    fn readers_make_kswapd_drop_pages_of_files() {
        static MIX: Mix = Mix {
            name: "reading",
            stands_for: "a disk that is read",
            parameters: "so fast that kswapd wakes soon",
            parts: &[Part {
                cpus: Cpus {
                    divisor: 36,
                    remainders: &[0],
                },
                program: Program::Readers(Readers {
                    pages_per_s: 4_000_000,
                    pages: 400_000,
                }),
            }],
            memory: Memory::Cached {
                cached: Pages(150_000),
            },
        };
        let profile = Profile::load("grace-72", Card::Mid).expect("built in");
        let design = designs::find("linux").expect("built in").design;
        let testbed = MIX.testbed(&profile, design, 1);
        let until = Nanos::from_ms(100);
        MIX.start(&testbed, until);
        testbed.sim.run_until(until);
        let (_, log) = testbed.finish();
        assert!(log.reclaim.kswapd_wakes > 0, "{:?}", log.reclaim);
        assert!(log.reclaim.by_kswapd > 10_000, "{:?}", log.reclaim);
        assert_eq!(log.out_of_memory, 0);
    }
}
