//! The workload of the drain experiment and its metrics.
//!
//! The workload is `stress-ng --vm` as in the mailing-list thread: 50 workers on 176 CPUs, or one
//! worker per CPU on 316. In the thread, each worker has 5 GB and all workers together fill the
//! machine's memory. Here a worker maps only 128 or 32 MiB, so that its rounds end within a run.
//! The scene therefore allocates other memory before the run, so that the workers fill what is
//! left. The simulated machine reclaims nothing. So the scene leaves as many free pages in the zone
//! as kswapd would: mostly between the low and the high watermark.

use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::{Card, Profile};
use plimsoll_sim::{LockStats, LongestWait, Stats};

use crate::error::Error;
use crate::experiment::declared::{Reading, read, readings};
use crate::measure::comparison::Sample;
use crate::measure::holds::HoldLog;
use crate::measure::metric::{Metric, Unit};
use crate::report::Table;
use crate::run::options::Effort;
use crate::run::testbed::Testbed;
use crate::workload::stress_vm::{Pause, StressVm};

/// The longest hold of a zone lock.
pub(super) const HOLD_MAX: Metric = Metric::lower("hold_max_ns", Unit::Nanos);
/// The longest wait of any CPU for a zone lock.
pub(super) const WAIT_MAX: Metric = Metric::lower("wait_max_ns", Unit::Nanos);
/// The number of pages that all workers touch per second.
pub(super) const RATE: Metric = Metric::higher("pages_per_s", Unit::PagesPerSecond);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    lower("pages_per_hold_max", Unit::Pages) => f64::from(seen.kept.holds.all().max),
    lower("holds_over_1000_pages", Unit::Count) => seen.kept.holds.all().over_1000 as f64,
    lower("commits_over_1000_pages_per_s", Unit::PerSecond) => seen.over_1000_per_s(Site::Spill),
    lower("decays_over_1000_pages_per_s", Unit::PerSecond) => seen.over_1000_per_s(Site::Decay),
    HOLD_MAX => seen.zone().hold_max.0 as f64,
    WAIT_MAX => seen.kept.longest.map_or(0, |longest| longest.wait.0) as f64,
    lower("wait_total_ns", Unit::Nanos) => seen.zone().wait_total.0 as f64,
    lower("contentions", Unit::Count) => seen.zone().contentions as f64,
    lower("cpus_waiting_over_1ms", Unit::Percent) => seen.percent_waiting(1),
    lower("cpus_waiting_over_10ms", Unit::Percent) => seen.percent_waiting(10),
    lower("cpus_waiting_over_100ms", Unit::Percent) => seen.percent_waiting(100),
    RATE => seen.pages_per_s,
});

const fn lower(name: &'static str, unit: Unit) -> Metric {
    Metric::lower(name, unit)
}

/// The machine, the workers, and the length of a run.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    profile: Profile,
    workers: u32,
    worker: StressVm,
    length: Nanos,
}

/// The percentage of a worker's memory that is mapped on average over time. It follows from the
/// times per page, which are about 1.6 µs to fill a page, 0.4 µs to use it and 0.15 µs to unmap it.
/// While a worker fills or unmaps its memory, half of the memory is mapped on average.
const MAPPED_PERCENT: u64 = 59;

/// The data of one run that the tables need besides its sample.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) holds: HoldLog,
    pub(super) longest: Option<LongestWait>,
}

/// The observations of one run.
pub(super) struct Seen {
    stats: Stats,
    kept: Kept,
    cpus: u32,
    length: Nanos,
    pages_per_s: f64,
}

impl Seen {
    fn zone(&self) -> LockStats {
        self.stats.class(LockClass::Zone)
    }

    /// The number of holds per second, at one call site, that move more than 1000 pages.
    fn over_1000_per_s(&self, site: Site) -> f64 {
        self.kept.holds.site(site).over_1000 as f64 / seconds(self.length)
    }

    /// The percentage of CPUs that waited for a zone lock for longer than `ms` milliseconds at
    /// least once.
    fn percent_waiting(&self, ms: u64) -> f64 {
        let waited = self
            .stats
            .cpus_that_waited(LockClass::Zone, Nanos::from_ms(ms));
        100.0 * waited as f64 / f64::from(self.cpus)
    }
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / Nanos::SECOND.0 as f64
}

impl Scene {
    pub(super) fn new(machine: &str, card: Card, effort: Effort) -> Result<Self, Error> {
        let profile = Profile::load(machine, card)?;
        let cpus = profile.topology.cpus();
        let large = cpus >= 300;
        let ms = match (effort, large) {
            // The run is longer than a second, so that it includes vmstat work.
            (Effort::Full, false) => 1200,
            (Effort::Full, true) => 400,
            (Effort::Quick, _) => 150,
        };
        Ok(Self {
            // The command in the mailing-list thread has 50 workers on 176 CPUs, and one per CPU on
            // the larger machine.
            workers: if large { cpus } else { 50 },
            worker: StressVm {
                // On a saturated machine a round takes ten times as long, and it must still end
                // within the run.
                bytes: if large { 32 << 20 } else { 128 << 20 },
                use_ns_per_page: 400,
                pause: Pause::No,
            },
            length: Nanos::from_ms(ms),
            profile,
        })
    }

    pub(super) fn table(&self) -> Table {
        let left = self.room_for_workers().bytes() >> 20;
        Table::facts(
            "Workload: stress-ng --vm",
            "The thread's 50 workers of 5 GB filled its machine; the rest of ours is in use \
             beforehand.",
            &[
                ("workers", self.workers.to_string()),
                (
                    "memory left above the middle of low and high",
                    format!("{left} MiB"),
                ),
                (
                    "memory per worker",
                    format!("{} MiB", self.worker.bytes >> 20),
                ),
                (
                    "use of each page",
                    format!("{} ns", self.worker.use_ns_per_page),
                ),
                ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
            ],
        )
    }

    /// The amount of free memory to leave above the midpoint between the low and the high
    /// watermark. It is as much as all workers map on average. So the zone's free memory is mostly
    /// between these two watermarks.
    fn room_for_workers(&self) -> Pages {
        let wanted = u64::from(self.workers) * self.worker.bytes;
        Pages::from_bytes(wanted * MAPPED_PERCENT / 100)
    }

    /// Runs the workload once. Panics, and names the seed, if the design limits each hold to one
    /// batch and a hold moves more pages.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> (Sample, Kept) {
        let testbed = Testbed::new(&self.profile, *design, seed);
        let cpus = self.profile.topology.cpus();
        testbed.fill(self.room_for_workers());
        let places = worker_cpus(cpus, self.workers);
        let done = self.worker.start(&testbed, places, self.length);
        // All workers start in one short interval. By `settled`, they are at different points of
        // their rounds.
        let settled = Nanos(self.length.0 / 5);
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
            pages_per_s: (done.pages() - before) as f64 / seconds(Nanos(self.length.0 - settled.0)),
        };
        let sample = Sample {
            hash: seen.stats.hash,
            metrics: read(METRICS, &seen),
        };
        (sample, seen.kept)
    }
}

/// The CPUs of workers that are spread evenly over the machine, as a scheduler would do.
fn worker_cpus(cpus: u32, workers: u32) -> impl Iterator<Item = CpuId> {
    (0..workers).map(move |worker| CpuId(worker * cpus / workers))
}
