//! The workloads of the drain experiment, and the metrics of a run.
//!
//! The workload is `stress-ng --vm` as in the mailing-list thread: 50 workers of 5 GB or 10 workers
//! of 30 GB on 176 CPUs. The thread does not describe the load on 316 CPUs. In the lab, each of the
//! 316 CPUs has a worker. On 176 CPUs, each worker of the lab maps only a twentieth of the
//! published amount. So rounds end within a run, and the pages of a run fit into the host's memory.
//! But a worker must map more than its CPU's page lists can hold. Otherwise the worker's CPU would
//! hardly ever move pages to or from the zone. The page lists of one CPU can hold 173 MB: an eighth
//! of the machine's memory, divided by the number of CPUs.
//!
//! All other memory is in use from the beginning ([`aging`]). The kernel neither reclaims nor
//! swaps. If an allocation finds no memory, it fails, and its worker goes on with the pages that it
//! has. (`swapping` has a workload in which the kernel reclaims and swaps.)

use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{LockStats, LongestWait, Stats};

use crate::error::Error;
use crate::experiment::driver::{Number, Reading, Setting, read, readings};
use crate::measure::comparison::Sample;
use crate::measure::holds::HoldLog;
use crate::measure::metric::{Metric, Unit};
use crate::report::Table;
use crate::run::aging::{self, Memory};
use crate::run::options::Effort;
use crate::run::testbed::Testbed;
use crate::workload::stress_vm::{Pause, StressVm};

/// The longest hold of a zone lock.
pub(super) const HOLD_MAX: Metric = Metric::lower("hold_max_ns", Unit::Nanos);
/// The longest wait of any CPU for a zone lock.
pub(super) const WAIT_MAX: Metric = Metric::lower("wait_max_ns", Unit::Nanos);
/// The longest wait of any CPU for a lock of page lists.
pub(super) const PCP_WAIT_MAX: Metric = Metric::lower("pcp_wait_max_ns", Unit::Nanos);
/// The time that all CPUs together waited for locks of page lists.
pub(super) const PCP_WAIT: Metric = Metric::lower("pcp_wait_total_ns", Unit::Nanos);
/// The time that all CPUs together waited for zone locks.
pub(super) const ZONE_WAIT: Metric = Metric::lower("wait_total_ns", Unit::Nanos);
/// The number of times that a drain of page lists held a zone lock to return pages.
pub(super) const DRAIN_HOLDS: Metric = Metric::neither("drain_holds", Unit::Count);
/// The number of allocations that failed.
pub(super) const FAILED: Metric = Metric::lower("failed_allocations", Unit::Count);
/// The number of pages that all workers touch per second.
pub(super) const RATE: Metric = Metric::higher("pages_per_s", Unit::PagesPerSecond);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    lower("pages_per_hold_max", Unit::Pages) => f64::from(seen.kept.holds.all().max),
    lower("holds_over_1000_pages", Unit::Count) => seen.kept.holds.all().over_1000 as f64,
    lower("commits_over_1000_pages_per_s", Unit::PerSecond) => seen.over_1000_per_s(Site::Spill),
    lower("decays_over_1000_pages_per_s", Unit::PerSecond) => seen.over_1000_per_s(Site::Decay),
    HOLD_MAX => seen.locks(LockClass::Zone).hold_max.0 as f64,
    WAIT_MAX => seen.kept.longest.map_or(0, |longest| longest.wait.0) as f64,
    ZONE_WAIT => seen.locks(LockClass::Zone).wait_total.0 as f64,
    lower("contentions", Unit::Count) => seen.locks(LockClass::Zone).contentions as f64,
    PCP_WAIT_MAX => seen.locks(LockClass::Pcp).wait_max.map_or(0, |wait| wait.wait.0) as f64,
    PCP_WAIT => seen.locks(LockClass::Pcp).wait_total.0 as f64,
    lower("pcp_contentions", Unit::Count) => seen.locks(LockClass::Pcp).contentions as f64,
    lower("cpus_waiting_over_1ms", Unit::Percent) => seen.percent_waiting(1),
    lower("cpus_waiting_over_10ms", Unit::Percent) => seen.percent_waiting(10),
    lower("cpus_waiting_over_100ms", Unit::Percent) => seen.percent_waiting(100),
    DRAIN_HOLDS => seen.kept.holds.site(Site::Drain).holds as f64,
    FAILED => seen.failed as f64,
    RATE => seen.pages_per_s,
});

const fn lower(name: &'static str, unit: Unit) -> Metric {
    Metric::lower(name, unit)
}

/// Says how much of a zone is free, compared with the memory that the workers map. If the workers
/// map more than the machine has, see the separate experiment in `swapping`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    /// The zone's number of free pages never falls to the zone's high watermark.
    Plenty,
    /// Before the workers start, the zone's free pages exceed the midpoint between its low and its
    /// high watermark by the number of pages that the workers map on average.
    Short,
}

impl Pressure {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plenty => "plenty",
            Self::Short => "short",
        }
    }
}

/// The workers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The workers in a few words, such as `50 x 5 GB`.
    pub(super) name: &'static str,
    workers: u32,
    bytes: u64,
}

/// The workers of `stress-ng --vm 50 --vm-bytes 5G`, with their memory divided by [`SCALE`].
pub(super) const FIFTY: Shape = Shape {
    name: "50 x 5 GB",
    workers: 50,
    bytes: (5 << 30) / SCALE,
};
/// The workers of `stress-ng --vm 10 --vm-bytes 30G`, with their memory divided by [`SCALE`].
pub(super) const TEN: Shape = Shape {
    name: "10 x 30 GB",
    workers: 10,
    bytes: (30 << 30) / SCALE,
};
/// The virtual length of a full run with the workers [`TEN`].
const TEN_LENGTH: Nanos = Nanos::from_ms(2500);
/// The memory of a worker in the mailing-list thread, divided by the memory of our worker.
pub(super) const SCALE: u64 = 20;

/// The numbers that an experiment file gives for the workload.
pub(super) const NUMBERS: &[Number] = &[
    Number::one("workers", (1, 4096), "processes, each on a CPU of its own"),
    Number::one("worker_mib", (1, 1 << 20), "MiB that a worker maps"),
    Number::one(
        "length_ms",
        (10, 3_600_000),
        "virtual milliseconds of a run",
    ),
    Number::one(
        "use_ns_per_page",
        (0, 1_000_000_000),
        "time in which a worker uses a page that it has mapped",
    ),
    Number::one(
        "quick_use_ns_per_page",
        (0, 1_000_000_000),
        "this time in one of the workloads of the family",
    ),
    Number::one(
        "family_seeds",
        (1, 10_000),
        "the most seeds of the other workloads of the family",
    ),
];

/// One workload on one machine, and the state of the machine's memory when the workload starts.
#[derive(Clone, Debug)]
pub(super) struct DrainSetup {
    pub(super) profile: Profile,
    pub(super) shape: Shape,
    pub(super) memory: Memory,
    pub(super) pressure: Pressure,
    pub(super) use_ns: u32,
    /// For the side workload with a shorter use of each page: the time for which a worker uses a
    /// page, in nanoseconds.
    pub(super) quick_use_ns: u32,
    pub(super) length: Nanos,
}

/// The data of one run that tables need besides the values of the metrics.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) holds: HoldLog,
    pub(super) longest: Option<LongestWait>,
}

/// The observations of one run, from which its metrics are computed.
pub(super) struct Seen {
    stats: Stats,
    kept: Kept,
    cpus: u32,
    length: Nanos,
    failed: u64,
    pages_per_s: f64,
}

impl Seen {
    fn locks(&self, class: LockClass) -> LockStats {
        self.stats.class(class)
    }

    /// How many holds of zone locks per second move more than 1000 pages. Only holds at the call
    /// site `site` count.
    fn over_1000_per_s(&self, site: Site) -> f64 {
        self.kept.holds.site(site).over_1000 as f64 / seconds(self.length)
    }

    /// The percentage of CPUs that waited at least once for a zone lock for longer than `ms`
    /// milliseconds.
    fn percent_waiting(&self, ms: u64) -> f64 {
        let waited = self
            .stats
            .cpus_that_waited(LockClass::Zone, Nanos::from_ms(ms));
        100.0 * waited as f64 / f64::from(self.cpus)
    }
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / Nanos::SECOND.0 as f64
}

impl DrainSetup {
    /// Makes the main workload of a machine. In this workload, memory is short.
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let numbers = setting.numbers;
        let profile = setting.profile()?;
        let (workers, cpus) = (numbers.small("workers"), profile.topology.cpus());
        if workers > cpus {
            let why = format!("{workers} workers do not fit on {cpus} CPUs, one on each");
            return Err(Error::Invalid(why));
        }
        let shape = Shape {
            name: "",
            workers,
            bytes: numbers.get("worker_mib") << 20,
        };
        let is_fifty = (shape.workers, shape.bytes) == (FIFTY.workers, FIFTY.bytes);
        Ok(Self {
            profile,
            shape: if is_fifty { FIFTY } else { shape },
            memory: setting.memory.unwrap_or(Memory::Aged),
            pressure: Pressure::Short,
            use_ns: numbers.small("use_ns_per_page"),
            quick_use_ns: numbers.small("quick_use_ns_per_page"),
            length: Nanos::from_ms(numbers.get("length_ms")),
        })
    }

    /// Returns whether the workers use each page only for the short time `quick_use_ns`.
    pub(super) const fn uses_quickly(&self) -> bool {
        self.use_ns == self.quick_use_ns
    }

    /// Returns this setup with the workers of `shape`. A full run with the workers [`TEN`] is
    /// longer than a full run with other workers.
    pub(super) fn with_shape(&self, shape: Shape, effort: Effort) -> Self {
        let length = if shape == TEN && effort == Effort::Full {
            TEN_LENGTH
        } else {
            self.length
        };
        Self {
            shape,
            length,
            ..self.clone()
        }
    }

    /// Returns whether `other`, a setup of the same machine, differs from this setup only in the
    /// length of runs.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let choices = |setup: &Self| (setup.shape, setup.memory, setup.pressure, setup.use_ns);
        choices(self) == choices(other)
    }

    pub(super) fn table(&self) -> Table {
        let left = self.room_for_workers().bytes() >> 20;
        Table::facts(
            "Workload: stress-ng --vm",
            "Workers that stand for those of the thread are 20 times smaller. All other memory is in \
             use beforehand. Nothing is reclaimed: an allocation that finds no memory fails.",
            &[
                ("workers", self.shape.workers.to_string()),
                (
                    "memory left above the middle of low and high",
                    format!("{left} MiB"),
                ),
                (
                    "memory per worker",
                    format!("{} MiB", self.shape.bytes >> 20),
                ),
                (
                    "state of memory at the start",
                    self.memory.name().to_owned(),
                ),
                ("use of each page", format!("{} ns", self.use_ns)),
                ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
            ],
        )
    }

    /// The number of pages to leave free in each normal zone, in addition to the midpoint between
    /// the zone's low and high watermarks.
    fn room_for_workers(&self) -> Pages {
        let wanted = u64::from(self.shape.workers) * self.shape.bytes;
        Pages::from_bytes(match self.pressure {
            // The room is twice the memory that the workers want, because the page lists of their
            // CPUs can hold as many pages as the workers map.
            Pressure::Plenty => 2 * wanted,
            Pressure::Short => wanted * mapped_percent(self.use_ns) / 100,
        })
    }

    /// Runs the workload once. Some designs limit each hold of a zone lock to one batch of pages.
    /// If a hold moves more pages with such a design, the function panics and names the seed.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> (Sample, Kept) {
        let testbed = Testbed::new(&self.profile, *design, seed);
        let cpus = self.profile.topology.cpus();
        let begun = aging::begin(&testbed, self.memory, self.room_for_workers());
        begun.expect("the machine has more memory than its workers map");
        let worker = StressVm {
            bytes: self.shape.bytes,
            use_ns_per_page: self.use_ns,
            pause: Pause::No,
        };
        let places = worker_cpus(cpus, self.shape.workers);
        let done = worker.start(&testbed, places, self.length);
        // All workers start in one short interval. By the time `settled`, they have reached
        // different points of their rounds.
        let settled = Nanos(self.length.0 * 2 / 5);
        testbed.sim.run_until(settled);
        let before = done.pages();
        testbed.sim.run_until(self.length);
        let (stats, log) = testbed.finish();
        let seen = Seen {
            kept: Kept {
                holds: log.holds,
                longest: stats.class(LockClass::Zone).wait_max,
            },
            stats,
            cpus,
            length: self.length,
            failed: log.out_of_memory,
            pages_per_s: (done.pages() - before) as f64 / seconds(Nanos(self.length.0 - settled.0)),
        };
        let sample = Sample {
            hash: seen.stats.hash,
            metrics: read(METRICS, &seen),
        };
        (sample, seen.kept)
    }
}

/// The average percentage of a worker's memory that is mapped, if the worker uses each page for
/// `use_ns` nanoseconds. The worker also needs about 1600 ns to fill a page and 150 ns to unmap it.
/// While the worker fills or unmaps its memory, half of the memory is mapped on average.
fn mapped_percent(use_ns: u32) -> u64 {
    const FILL_NS: u64 = 1600;
    const UNMAP_NS: u64 = 150;
    let moving = FILL_NS + UNMAP_NS;
    100 * (moving / 2 + u64::from(use_ns)) / (moving + u64::from(use_ns))
}

/// The CPUs of workers that are spread evenly over the machine, as a scheduler would spread them.
pub(super) fn worker_cpus(cpus: u32, workers: u32) -> impl Iterator<Item = CpuId> {
    (0..workers).map(move |worker| CpuId(worker * cpus / workers))
}
