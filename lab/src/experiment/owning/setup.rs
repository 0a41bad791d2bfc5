//! The machines, loads and metrics of the experiments about page lists that own blocks.
//!
//! The machines of 96 and 192 CPUs are parts of the machine of 384 CPUs. Each part has whole
//! last-level caches and a proportional part of the memory. Most memory is in use from the
//! beginning. At the beginning, twice as much memory is free as the load needs.

use plimsoll_mm::design::Design;
use plimsoll_mm::page::ZoneView;
use plimsoll_mm::site::LockClass;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Nanos, Order, Pages};
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{LockStats, Stats};

use crate::error::Error;
use crate::experiment::driver::{Number, Reading, Setting, read, readings};
use crate::measure::comparison::Sample;
use crate::measure::metric::{Metric, Unit};
use crate::report::Table;
use crate::run::aging::{self, Memory};
use crate::run::testbed::Testbed;
use crate::workload::exits::Exits;
use crate::workload::purge::{Purge, SPAN};

/// The number of pages that all CPUs fault in per second.
pub(super) const RATE: Metric = Metric::higher("pages_per_s", Unit::PagesPerSecond);
/// The mean time that the load's CPUs take to unmap and free one page.
pub(super) const COST: Metric = Metric::lower("free_page_ns", Unit::Nanos);
/// The longest time that a CPU took to unmap one span (a run of pages that is purged as a whole),
/// or the memory of one process.
pub(super) const LONGEST: Metric = Metric::lower("free_max_ns", Unit::Nanos);
pub(super) const CONTENTIONS: Metric = Metric::lower("contentions", Unit::Count);
pub(super) const ZONE_WAIT: Metric = Metric::lower("wait_total_ns", Unit::Nanos);
pub(super) const WAIT_MAX: Metric = Metric::lower("wait_max_ns", Unit::Nanos);
pub(super) const HOLD_MAX: Metric = Metric::lower("hold_max_ns", Unit::Nanos);
/// The number of pages on page lists and in inboxes when the load ends. A CPU's inbox holds the
/// pages of the CPU's blocks that other CPUs have freed.
pub(super) const PCP_WAIT: Metric = Metric::lower("pcp_wait_total_ns", Unit::Nanos);
/// The number of pages on lists and in inboxes when the load ends. A page that another CPU frees
/// waits in the inbox of the CPU that owns its block.
pub(super) const LISTED: Metric = Metric::lower("listed_at_end", Unit::Pages);
/// The number of free huge blocks at the beginning of the run minus the number at the end. The
/// blocks at the end are counted after all memory has been freed and all lists have been drained.
pub(super) const HUGE_LOST: Metric = Metric::lower("huge_blocks_lost", Unit::Count);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    RATE => seen.pages_per_s,
    COST => seen.free_ns,
    LONGEST => seen.longest_ns,
    CONTENTIONS => seen.locks(LockClass::Zone).contentions as f64,
    ZONE_WAIT => seen.locks(LockClass::Zone).wait_total.0 as f64,
    WAIT_MAX => seen.locks(LockClass::Zone).wait_max.map_or(0, |wait| wait.wait.0) as f64,
    HOLD_MAX => seen.locks(LockClass::Zone).hold_max.0 as f64,
    Metric::lower("pcp_contentions", Unit::Count) =>
        seen.locks(LockClass::Pcp).contentions as f64,
    PCP_WAIT => seen.locks(LockClass::Pcp).wait_total.0 as f64,
    LISTED => seen.listed as f64,
    Metric::higher("free_huge_at_end", Unit::Count) => f64::from(seen.huge_at_end),
    HUGE_LOST => f64::from(seen.huge_lost),
    Metric::lower("failed_allocations", Unit::Count) => seen.failed as f64,
});

/// The observations of one run, from which its metrics are computed. The lock statistics cover the
/// time until the load ends.
pub(super) struct Seen {
    stats: Stats,
    pages_per_s: f64,
    free_ns: f64,
    longest_ns: f64,
    listed: u64,
    huge_at_end: u32,
    huge_lost: u32,
    failed: u64,
}

impl Seen {
    fn locks(&self, class: LockClass) -> LockStats {
        self.stats.class(class)
    }
}

/// The load of an experiment: allocators that purge, or exits of large processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Purge,
    Exits,
}

/// The load of the experiment `purge`. Each group has one purger and 15 workers. The workers use
/// each page for 400 ns, like the quick workers of the experiment `drain`.
const PURGE: Purge = Purge {
    group: 16,
    kept: 4,
    waiting: 8,
    use_ns_per_page: 400,
    pause: Nanos::from_ms(1),
};

/// The load of the experiment `exits`: processes that exit after each of their four threads has
/// used 2048 pages (8 MiB).
const EXITS: Exits = Exits {
    threads: 4,
    pages: 2048,
    rounds: 3,
};

const CPUS: Number = Number::one("cpus", (32, 4096), "CPUs of the part of the machine");
const FAMILY: [Number; 3] = [
    Number::list(
        "family_cpus",
        (32, 4096),
        "numbers of CPUs of the parts of the machine in the table `family`",
    ),
    Number::one(
        "family_states",
        (1, 3),
        "states of memory in the table `family`: the first of fresh, aged and fragmented",
    ),
    Number::one(
        "family_seeds",
        (1, 10_000),
        "the most seeds of runs that only the table `family` shows",
    ),
];
/// The whole numbers that a file for the experiment `exits` gives.
pub(super) const NUMBERS: [Number; 4] = [CPUS, FAMILY[0], FAMILY[1], FAMILY[2]];
/// The whole numbers that a file for the experiment `purge` gives.
pub(super) const PURGE_NUMBERS: [Number; 5] = [
    CPUS,
    Number::one(
        "length_ms",
        (1, 3_600_000),
        "virtual milliseconds for which workers allocate",
    ),
    FAMILY[0],
    FAMILY[1],
    FAMILY[2],
];

/// A machine, the state of its memory, and a load.
#[derive(Clone, Debug)]
pub(super) struct OwningSetup {
    whole: Profile,
    profile: Profile,
    pub(super) memory: Memory,
    load: Load,
    /// The virtual time for which workers allocate. It has no effect on exits, which run for a
    /// fixed number of rounds.
    length: Nanos,
}

impl OwningSetup {
    pub(super) fn new(setting: &Setting<'_>, load: Load) -> Result<Self, Error> {
        let whole = setting.profile()?;
        let length_ms = match load {
            Load::Purge => setting.get("length_ms"),
            Load::Exits => 0,
        };
        Self {
            profile: whole.clone(),
            whole,
            memory: Memory::Fresh,
            load,
            length: Nanos::from_ms(length_ms),
        }
        .on(setting.numbers.small("cpus"), Memory::Fresh)
    }

    /// Returns a setup with the load of `self` on a part of the machine. The part has `cpus` CPUs,
    /// and memory in the state `memory`.
    ///
    /// # Errors
    /// If the machine has fewer than `cpus` CPUs.
    pub(super) fn on(&self, cpus: u32, memory: Memory) -> Result<Self, Error> {
        let has = self.whole.topology.cpus();
        if cpus > has {
            let why = format!("the machine has {has} CPUs, not {cpus}");
            return Err(Error::Invalid(why));
        }
        Ok(Self {
            profile: part(&self.whole, cpus),
            memory,
            ..self.clone()
        })
    }

    pub(super) fn cpus(&self) -> u32 {
        self.profile.topology.cpus()
    }

    /// Returns whether `other` has the same number of CPUs and the same state of memory as `self`.
    /// Both must be setups of the same experiment.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.cpus(), self.memory) == (other.cpus(), other.memory)
    }

    pub(super) fn table(&self) -> Table {
        let (about, facts) = match self.load {
            Load::Purge => (
                "Workers fault in spans, use them, and leave them to the purger of their group.",
                vec![
                    ("CPUs in a group", PURGE.group.to_string()),
                    ("memory of a span", format!("{} KiB", SPAN * 4)),
                    ("spans that a worker keeps", PURGE.kept.to_string()),
                    ("use of each page", format!("{} ns", PURGE.use_ns_per_page)),
                    ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
                ],
            ),
            Load::Exits => (
                "All processes end at once; one thread frees what all have allocated.",
                vec![
                    ("threads of a process", EXITS.threads.to_string()),
                    ("memory of a thread", format!("{} KiB", EXITS.pages * 4)),
                    ("rounds, the first not measured", EXITS.rounds.to_string()),
                ],
            ),
        };
        let most = ("CPUs of the largest machine", self.cpus().to_string());
        let facts: Vec<_> = [most].into_iter().chain(facts).collect();
        Table::facts("Workload", about, &facts)
    }

    /// The number of pages to leave free in each normal zone.
    fn room(&self) -> Pages {
        let each = match self.load {
            Load::Purge => (PURGE.kept + PURGE.waiting + 1) * SPAN,
            Load::Exits => EXITS.pages,
        };
        Pages(2 * self.cpus() * u32::try_from(each).unwrap_or(u32::MAX))
    }

    /// Runs the load once, frees all memory, and drains all lists.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> Sample {
        let testbed = Testbed::new(&self.profile, *design, seed);
        let begun = aging::begin(&testbed, self.memory, self.room());
        begun.expect("the machine has more memory than its load needs");
        let huge_before = huge_blocks(&testbed);
        let mut seen = match self.load {
            Load::Purge => self.purge(&testbed),
            Load::Exits => self.exits(&testbed),
        };
        testbed.sim.run();
        testbed.mm.pages().drain_all_sync(&testbed.sim);
        seen.huge_lost = huge_before.saturating_sub(huge_blocks(&testbed));
        let (stats, log) = testbed.finish();
        seen.failed = log.out_of_memory;
        Sample {
            hash: stats.hash,
            metrics: read(METRICS, &seen),
        }
    }

    fn purge(&self, testbed: &Testbed) -> Seen {
        let (done, purged) = PURGE.start(testbed, self.length);
        // From this time on, purgers return memory as fast as workers fault it in.
        let settled = Nanos(self.length.0 / 2);
        testbed.sim.run_until(settled);
        let before = done.pages();
        testbed.sim.run_until(self.length);
        let measured = self.length.since(settled).0 as f64;
        let pages = purged.spans.get() as f64 * SPAN as f64;
        Seen {
            pages_per_s: (done.pages() - before) as f64 * 1e9 / measured,
            free_ns: purged.ns.get() as f64 / pages.max(1.0),
            longest_ns: purged.longest_ns.get() as f64,
            ..seen(testbed)
        }
    }

    fn exits(&self, testbed: &Testbed) -> Seen {
        let exited = EXITS.start(testbed);
        testbed.sim.run();
        let threads = exited.processes.get() as f64 * f64::from(EXITS.threads);
        let pages = threads * EXITS.pages as f64;
        // Each thread faults on its own CPU, so the rate of all CPUs is the sum of the threads'
        // rates.
        let each = exited.faulting_ns.get() as f64 / threads.max(1.0);
        let rate = EXITS.pages as f64 * 1e9 / each.max(1.0);
        Seen {
            pages_per_s: rate * f64::from(self.cpus()),
            free_ns: exited.ns.get() as f64 / pages.max(1.0),
            longest_ns: exited.longest_ns.get() as f64,
            ..seen(testbed)
        }
    }
}

/// Reads the statistics of the machine and the number of pages on its page lists. Call this
/// function when the load ends.
fn seen(testbed: &Testbed) -> Seen {
    let zones = testbed.mm.pages().view(&testbed.sim);
    Seen {
        stats: testbed.sim.stats(),
        pages_per_s: 0.0,
        free_ns: 0.0,
        longest_ns: 0.0,
        listed: zones.iter().map(|zone| u64::from(zone.listed.0)).sum(),
        huge_at_end: huge_blocks(testbed),
        huge_lost: 0,
        failed: 0,
    }
}

/// The number of huge pages that the free blocks of all zones contain.
fn huge_blocks(testbed: &Testbed) -> u32 {
    let zones = testbed.mm.pages().view(&testbed.sim);
    let of =
        |zone: &ZoneView| zone.blocks[Order::HUGE.index()] + 2 * zone.blocks[Order::MAX.index()];
    zones.iter().map(of).sum()
}

/// Returns a machine that is a part of `whole`. It has `cpus` CPUs, taken from one last-level cache
/// after the other, and a proportional part of the memory.
fn part(whole: &Profile, cpus: u32) -> Profile {
    let topology = &whole.topology;
    let mut places: Vec<_> = topology.ids().map(|cpu| topology.place(cpu)).collect();
    places.sort_by_key(|place| place.llc);
    places.truncate(cpus as usize);
    let mut profile = whole.clone();
    let share = |bytes: &u64| bytes / u64::from(topology.cpus()) * u64::from(cpus);
    let nodes = places.iter().map(|place| place.node.0 + 1).max();
    let nodes = nodes.unwrap_or(1) as usize;
    profile.topology = Topology::new(places);
    let all = whole.node_bytes.len() as u64;
    profile.node_bytes = whole.node_bytes.iter().map(share).take(nodes).collect();
    for bytes in &mut profile.node_bytes {
        *bytes = *bytes * all / nodes as u64;
    }
    profile
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::experiment::driver::Numbers;

    fn setup(cpus: u64, load: Load) -> OwningSetup {
        let setting = Setting {
            machine: "epyc-9654-2s",
            card: Card::Mid,
            numbers: &Numbers::of(&[("cpus", &[cpus]), ("length_ms", &[10])]),
            memory: None,
        };
        OwningSetup::new(&setting, load).expect("built in")
    }

    #[test]
    fn a_part_of_the_machine_has_whole_caches_and_memory_in_proportion() {
        let whole = setup(384, Load::Purge);
        let bytes = |setup: &OwningSetup| setup.profile.node_bytes.iter().sum::<u64>();
        for cpus in [96, 192] {
            let part = whole.on(cpus, Memory::Fresh).unwrap();
            assert_eq!(part.cpus(), cpus);
            assert_eq!(part.profile.node_bytes.len(), 1);
            let share = bytes(&whole) / 384 * u64::from(cpus);
            assert!(bytes(&part).abs_diff(share) < 4096);
        }
        let all = whole.on(384, Memory::Fresh).unwrap();
        assert_eq!(bytes(&all), bytes(&whole));
    }

    #[test]
    fn all_huge_blocks_come_back_from_every_design() {
        for load in [Load::Purge, Load::Exits] {
            let setup = setup(96, load).on(32, Memory::Aged).unwrap();
            for name in ["bounded", "block-owned-rfc", "block-owned"] {
                let design = Design::named(name).expect("known");
                let sample = setup.measure(&design, 1);
                assert_eq!(sample.value(&HUGE_LOST), Some(0.0), "{name}, {load:?}");
                assert!(sample.value(&RATE).is_some_and(|rate| rate > 0.0), "{name}");
            }
        }
    }
}
