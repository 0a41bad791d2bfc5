//! The workload of the stalls experiment: workers on all CPUs, which fill a machine's memory. The
//! module also has the possible causes of a long time between two reschedule points of a CPU.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::{LockClass, Work};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, Nanos, NodeId, Pages, Pfn};
use plimsoll_sim::profile::{CostKey, Disturbance, Profile, Rate};
use plimsoll_sim::{Sim, Stats};
use rand::RngExt;

use crate::error::Error;
use crate::experiment::driver::{Number, Reading, Setting, read, readings};
use crate::measure::comparison::Sample;
use crate::measure::detectors::watch::{CpuStalls, Watch};
use crate::measure::metric::{Metric, Unit};
use crate::report::Table;
use crate::run::aging::{self, Memory};
use crate::run::testbed::Testbed;
use crate::workload::{Mapping, spend_unmapping};

/// The longest stretch of a CPU without a reschedule point.
pub(super) const STRETCH: Metric = Metric::lower("stretch_max_ns", Unit::Nanos);
/// The part of the longest stretch (time without a reschedule point) in which the CPU waited for
/// the zone lock.
pub(super) const ZONE_PART: Metric = Metric::neither("stretch_zone_wait_ns", Unit::Nanos);
/// The longest wait for the zone lock.
pub(super) const WAIT_MAX: Metric = Metric::lower("zone_wait_max_ns", Unit::Nanos);
/// The number of reported soft lockups.
pub(super) const LOCKUPS: Metric = Metric::lower("soft_lockups", Unit::Count);
/// The number of reported RCU stalls.
pub(super) const RCU: Metric = Metric::lower("rcu_stalls", Unit::Count);

/// The number of tasks that were reported as hung.
pub(super) const HUNG: Metric = Metric::lower("hung_tasks", Unit::Count);
/// The part of the longest stretch (time without a reschedule point) in which the CPU waited for
/// locks of page lists.
pub(super) const PCP_PART: Metric = Metric::neither("stretch_pcp_wait_ns", Unit::Nanos);
/// The number of waits for the zone lock in the longest stretch (time without a reschedule point).
pub(super) const ZONE_WAITS: Metric = Metric::neither("stretch_zone_waits", Unit::Count);

/// The longest time in which a worker freed pages without a reschedule point.
pub(super) const FREE: Metric = Metric::lower("free_max_ns", Unit::Nanos);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    STRETCH => seen.longest_ns(),
    FREE => seen.done.free_max_ns as f64,
    ZONE_PART => seen.stalls.longest.map_or(0, |stall| stall.zone_wait.0) as f64,
    PCP_PART =>
        seen.stalls.longest.map_or(0, |stall| stall.pcp_wait.0) as f64,
    ZONE_WAITS =>
        seen.stalls.longest.map_or(0, |stall| stall.zone_waits) as f64,
    WAIT_MAX => seen.stats.class(LockClass::Zone).wait_max.map_or(0, |wait| wait.wait.0) as f64,
    LOCKUPS => seen.stalls.soft_lockups as f64,
    RCU => seen.stalls.rcu_stalls as f64,
    HUNG => seen.stalls.hung_tasks as f64,
    Metric::higher("pages_per_s", Unit::PagesPerSecond) =>
        seen.done.pages as f64 * 1e9 / seen.length.0 as f64,
});

/// The setting of a run: the machine, its workers, and the length of the run.
#[derive(Clone, Debug)]
pub(super) struct StallSetup {
    pub(super) profile: Profile,
    /// The bytes that each worker maps in a round.
    bytes: u64,
    /// The number of pages that a worker frees between two reschedule points.
    chunk: usize,
    pub(super) length: Nanos,
}

/// The numbers that an experiment file gives for the workload.
pub(super) const NUMBERS: &[Number] = &[
    Number::one(
        "length_ms",
        (1, 3_600_000),
        "virtual milliseconds of a run in which no cause is applied",
    ),
    Number::one("worker_mib", (1, 1 << 20), "MiB that each worker maps"),
    Number::one(
        "causes",
        (1, CAUSES.len() as u64),
        "how many of the possible causes are tried, beginning with none",
    ),
    Number::one(
        "long_causes",
        (0, 1),
        "1 if a run with a cause is as long as this cause needs; 0 if it is as long as the others",
    ),
    Number::one(
        "seeds_of_causes",
        (1, 10_000),
        "the most seeds of runs with a cause",
    ),
];

/// A change of a setup. The change possibly lengthens the time between two reschedule points of a
/// CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    pub(super) name: &'static str,
    length: Nanos,
    change: fn(&mut StallSetup),
}

/// The largest number of pages that Linux frees between two reschedule points. The pages come from
/// a gather, which collects the unmapped pages that wait to be freed.
const CHUNK: usize = 512;

/// The experiment tries these causes of long stretches, one at a time. A stretch is the time that a
/// CPU runs without a reschedule point.
pub(super) const CAUSES: &[Cause] = &[
    cause("none", 3000, |_| {}),
    cause(
        "frees of 16,384 pages without a reschedule point",
        500,
        |setup| {
            setup.chunk = 1 << 14;
            setup.bytes = 64 << 20;
        },
    ),
    cause("steals of 1.3 ms every 400 ms", 3000, |setup| {
        steal(setup, 400_000_000, 1_300_000);
    }),
    cause("steals of 5 ms every 50 ms", LONG_MS, |setup| {
        steal(setup, 50_000_000, 5_000_000);
    }),
    cause(
        "pages under the zone lock 10 times as slow",
        LONG_MS,
        |setup| slow(setup, 10),
    ),
    cause(
        "pages under the zone lock 100 times as slow",
        LONG_MS,
        |setup| slow(setup, 100),
    ),
    cause("1024 CPUs, and pages 10 times as slow", LONG_MS, |setup| {
        crowd(setup, 1024);
        slow(setup, 10);
    }),
];

/// The length, in milliseconds, of a run in which a detector has enough time to make a report. To
/// save time, such a run has neither interrupts nor softirqs. They last only microseconds, whereas
/// the stretches between two reschedule points last milliseconds.
const LONG_MS: u64 = 25_000;

const fn cause(name: &'static str, ms: u64, change: fn(&mut StallSetup)) -> Cause {
    Cause {
        name,
        length: Nanos::from_ms(ms),
        change,
    }
}

/// Makes the machine a guest whose hypervisor steals CPUs. Each steal takes one CPU away for about
/// `length_ns`. The next steal of that CPU begins about `every_ns` after the end of the previous
/// steal.
fn steal(setup: &mut StallSetup, every_ns: u64, length_ns: u64) {
    let mut jitter = setup.profile.jitter.clone().unwrap_or_default();
    jitter.rates[Disturbance::Steal as usize] = Some(Rate {
        every_ns,
        length_ns,
    });
    setup.profile.jitter = Some(jitter);
}

/// Gives the machine `cpus` CPUs in one node. 16 cores share a cache, and each core has two CPUs.
fn crowd(setup: &mut StallSetup, cpus: u32) {
    let place = |cpu: u32| CpuPlace {
        core: cpu % (cpus / 2),
        llc: cpu % (cpus / 2) / 16,
        node: NodeId(0),
        socket: 0,
    };
    setup.profile.topology = Topology::new((0..cpus).map(place).collect());
}

/// Multiplies the prices of moving pages under the zone lock by `factor`.
fn slow(setup: &mut StallSetup, factor: u32) {
    for work in [Work::BuddyAlloc, Work::BuddyFree] {
        let key = CostKey::Work(work);
        setup.profile = setup.profile.with_scaled(key, factor * 100);
    }
}

/// The observations of one run, from which its metrics are computed.
pub(super) struct Seen {
    stats: Stats,
    pub(super) stalls: CpuStalls,
    done: Done,
    length: Nanos,
}

/// The number of pages that all workers have used so far, and the longest time that a worker needed
/// to free memory.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    pages: u64,
    free_max_ns: u64,
}

impl Seen {
    fn longest_ns(&self) -> f64 {
        self.stalls.longest.map_or(0, |stall| stall.length().0) as f64
    }
}

impl StallSetup {
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        Ok(Self {
            profile: setting.profile()?,
            bytes: setting.get("worker_mib") << 20,
            chunk: CHUNK,
            length: Nanos::from_ms(setting.get("length_ms")),
        })
    }

    pub(super) fn table(&self) -> Table {
        Table::facts(
            "Workload: one worker per CPU",
            "Each worker maps, uses and unmaps memory, without a pause. The rest of the memory is in \
             use beforehand, so that allocations come near the watermarks.",
            &[
                ("workers", self.profile.topology.cpus().to_string()),
                ("memory per worker", format!("{} MiB", self.bytes >> 20)),
                (
                    "pages freed between two reschedule points",
                    self.chunk.to_string(),
                ),
                ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
            ],
        )
    }

    /// Returns a copy of this setup with the change that `cause` describes. If `is_long`, the
    /// copy's run is long enough for the change to show its effect.
    pub(super) fn with(&self, cause: &Cause, is_long: bool) -> Self {
        let mut setup = self.clone();
        if is_long {
            setup.length = cause.length;
        }
        if cause.length == Nanos::from_ms(LONG_MS) {
            setup.profile.jitter = None;
        }
        (cause.change)(&mut setup);
        setup
    }

    /// Runs the workload once.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> (Sample, CpuStalls) {
        let testbed = Testbed::new(&self.profile, *design, seed);
        let workers = u64::from(self.profile.topology.cpus());
        // The free memory is 59 % of what all workers together would map. The rest of the machine's
        // memory is in use.
        let leave = Pages::from_bytes(workers * self.bytes * 59 / 100);
        aging::begin(&testbed, Memory::Fresh, leave).expect("the machine has this much memory");
        let watch = Watch::attach(&testbed.sim);
        let done = Rc::new(Cell::new(Done::default()));
        for cpu in self.profile.topology.ids() {
            self.start(&testbed, cpu, &done);
        }
        testbed.sim.run_until(self.length);
        let stalls = watch.finish(&testbed.sim);
        let seen = Seen {
            stats: testbed.finish().0,
            stalls,
            done: done.get(),
            length: self.length,
        };
        let sample = Sample {
            hash: seen.stats.hash,
            metrics: read(METRICS, &seen),
        };
        (sample, seen.stalls)
    }

    /// Starts a worker on `cpu`, which maps, uses and unmaps memory until the run ends.
    fn start(&self, testbed: &Testbed, cpu: CpuId, done: &Rc<Cell<Done>>) {
        let (mm, done) = (Rc::clone(&testbed.mm), Rc::clone(done));
        let (most, chunk, until) = (
            Pages::from_bytes(self.bytes).index(),
            self.chunk,
            self.length,
        );
        testbed.sim.spawn(cpu, move |sim| {
            let mut wanted = sim.rng().random_range(1..=most);
            while sim.now() < until {
                let mut mapping = Mapping::new(&mm);
                // Each fault ends with a return to the program, which is a reschedule point.
                for _ in 0..wanted {
                    if mapping.fault_one(sim).is_none() {
                        break;
                    }
                    sim.resched_point();
                }
                sim.resched_point();
                let pages = mapping.into_pages(sim);
                let mut so_far = done.get();
                so_far.pages += pages.len() as u64;
                done.set(so_far);
                for _ in &pages {
                    sim.spend(Work::Think, 400);
                }
                sim.resched_point();
                for pages in pages.chunks(chunk) {
                    let from = sim.now();
                    unmap(sim, &mm, pages);
                    sim.resched_point();
                    let mut so_far = done.get();
                    so_far.free_max_ns = so_far.free_max_ns.max(sim.now().0 - from.0);
                    done.set(so_far);
                }
                wanted = most;
            }
        });
    }
}

fn unmap(sim: &Sim, mm: &Manager<Sim>, pages: &[Pfn]) {
    spend_unmapping(sim, u32::try_from(pages.len()).unwrap_or(u32::MAX));
    let freed = mm.pages().free_pages(sim, pages);
    freed.expect("pages are given back as they were handed out");
}
